//! WITH: queries that others read by their names. Each use is bound by itself; groups that are the same are computed
//! once, whatever they are named.

use std::cell::Cell;
use std::rc::Rc;

use eris_query::{Relation, Unplanned};

use super::from::named;
use super::scope::Scope;
use super::{Binder, Binding};
use crate::ast::{Query, TableAlias, With};
use crate::plan::folded;

/// A query of WITH.
pub(super) struct WithQuery {
    name: String,
    /// With the names of its columns, if some are given.
    alias: TableAlias,
    query: Query,
    is_used: Cell<bool>,
}

impl Binder<'_> {
    /// Binds what follows WITH, which sees its queries.
    pub(super) fn beside<T>(&mut self, with: Option<&With>, bind: impl FnOnce(&mut Self) -> Binding<T>) -> Binding<T> {
        let Some(with) = with else { return bind(self) };
        if with.recursive {
            return Err(Unplanned::because("WITH RECURSIVE"));
        }
        let outside = self.with.len();
        for cte in &with.cte_tables {
            let name = folded(&cte.alias.name);
            if cte.from.is_some() || self.with[outside..].iter().any(|known| known.name == name) {
                return Err(Unplanned(format!("WITH \"{name}\"")));
            }
            let (alias, query) = (cte.alias.clone(), cte.query.as_ref().clone());
            self.with.push(Rc::new(WithQuery { name, alias, query, is_used: Cell::new(false) }));
        }
        let bound = bind(self)?;
        if self.with.drain(outside..).any(|query| !query.is_used.get()) {
            // What is wrong with it is an error all the same.
            return Err(Unplanned::because("WITH that nothing reads"));
        }
        Ok(bound)
    }

    /// The rows of a query of WITH, if there is one of this name; `alias` is what they are called there.
    pub(super) fn with_query(
        &mut self,
        name: &str,
        alias: Option<&TableAlias>,
        scope: &mut Scope<'_>,
    ) -> Option<Binding<Relation>> {
        let at = self.with.iter().rposition(|query| query.name == name)?;
        let query = Rc::clone(&self.with[at]);
        query.is_used.set(true);
        // It sees those before it.
        let others = self.with.split_off(at);
        let bound = self.query(&query.query);
        self.with.truncate(at);
        self.with.extend(others);
        Some(bound.and_then(|bound| {
            let mut columns = named(bound.output, &query.alias)?;
            if let Some(alias) = alias {
                columns = named(columns, alias)?;
            }
            scope.add_results(&alias.map_or_else(|| name.to_string(), |alias| folded(&alias.name)), columns)?;
            Ok(bound.relation)
        }))
    }
}
