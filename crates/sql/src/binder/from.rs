//! FROM: tables, subqueries and joins.
//!
//! ```text
//!   FROM a LEFT JOIN b ON a.x = b.y, c        Join   inner
//!                                               Join   left, #0 = #3
//!                                      ->         Scan   a  #0 ...
//!                                                 Scan   b  #3 ...
//!                                               Scan   c
//! ```

use eris_query::{Join, JoinKind, Relation, Unplanned};

use super::scope::Scope;
use super::{Binder, Binding, OutputColumn};
use crate::ast::{JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins};
use crate::front::table_name;
use crate::plan::folded;

impl Binder<'_> {
    /// The rows of a FROM; without one there is one row.
    pub(super) fn from(&mut self, from: &[TableWithJoins], scope: &mut Scope<'_>) -> Binding<Relation> {
        let mut all: Option<Relation> = None;
        for item in from {
            // What stands before a comma is not seen in ON after it.
            let mut own = scope.beside();
            let relation = self.joins(item, &mut own)?;
            scope.extend(own)?;
            all = Some(match all {
                None => relation,
                Some(left) => joined(JoinKind::Inner, left, relation, None),
            });
        }
        Ok(all.unwrap_or(Relation::OneRow))
    }

    fn joins(&mut self, item: &TableWithJoins, scope: &mut Scope<'_>) -> Binding<Relation> {
        let mut relation = self.factor(&item.relation, scope)?;
        for join in &item.joins {
            let mut right_scope = scope.beside();
            let right = self.factor(&join.relation, &mut right_scope)?;
            scope.extend(right_scope)?;
            let (kind, is_swapped, constraint) = match &join.join_operator {
                JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
                    (JoinKind::Inner, false, constraint)
                }
                JoinOperator::CrossJoin(constraint @ JoinConstraint::None) => (JoinKind::Inner, false, constraint),
                JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                    (JoinKind::Left, false, constraint)
                }
                JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                    (JoinKind::Left, true, constraint)
                }
                JoinOperator::FullOuter(constraint) => (JoinKind::Full, false, constraint),
                _ => return Err(Unplanned::because("a join of another kind")),
            };
            let condition = match (constraint, &join.join_operator) {
                (JoinConstraint::On(condition), _) => Some(self.condition(condition, scope)?),
                (JoinConstraint::None, JoinOperator::CrossJoin(_)) => None,
                _ => return Err(Unplanned::because("a join without ON")),
            };
            let (left, right) = if is_swapped { (right, relation) } else { (relation, right) };
            relation = joined(kind, left, right, condition);
        }
        Ok(relation)
    }

    fn factor(&mut self, factor: &TableFactor, scope: &mut Scope<'_>) -> Binding<Relation> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let name = table_name(name).map_err(Unplanned::because)?;
                if name.schema.is_none()
                    && let Some(rows) = self.with_query(&name.name, alias.as_ref(), scope)
                {
                    return rows;
                }
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    return Err(Unplanned::because("names of columns in FROM"));
                }
                let alias = alias.as_ref().map(|alias| folded(&alias.name));
                self.scan(scope, &name, alias.as_deref())
            }
            TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None } => {
                let bound = self.query(subquery)?;
                scope.add_results(&folded(&alias.name), named(bound.output, alias)?)?;
                Ok(bound.relation)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joins(table_with_joins, scope),
            _ => Err(Unplanned::because("something else in FROM")),
        }
    }
}

/// Columns with the names that an alias gives to the first of them.
pub(super) fn named(mut columns: Vec<OutputColumn>, alias: &TableAlias) -> Binding<Vec<OutputColumn>> {
    if alias.columns.len() > columns.len() {
        return Err(Unplanned::because("more names than columns"));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        if name.data_type.is_some() {
            return Err(Unplanned::because("types of columns in FROM"));
        }
        column.name = folded(&name.name);
    }
    Ok(columns)
}

fn joined(kind: JoinKind, left: Relation, right: Relation, condition: Option<eris_query::Scalar>) -> Relation {
    Relation::Join(Box::new(Join { kind, left, right, keys: Vec::new(), condition, null_equal: false }))
}
