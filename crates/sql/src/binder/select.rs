//! SELECT: FROM and WHERE, groups, items, DISTINCT, order, limit.
//!
//! ```text
//!   SELECT a AS x, b FROM t ORDER BY a + b, x LIMIT 3
//!     Project  x, b
//!       Limit    3
//!         Sort     #4, #2
//!           Project  #2 = a, #3 = b, #4 = a + b
//!             Scan     t
//! ```

use eris_query::resolve::Typing;
use eris_query::{Projected, Relation, Scalar, ScalarKind, SortItem, Unplanned};
use eris_storage::Value;

use super::groups::Groups;
use super::scope::Scope;
use super::subqueries::filtered_with;
use super::{Binder, Binding, BoundSelect, OutputColumn, QUERIES_MAX, QUERIES_WITHIN_MAX};
use crate::ast::{
    Distinct, Expr, LimitClause, Offset, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr,
};
use crate::plan::{folded, name_of};
use crate::types::SqlType;

/// What a SELECT computes: the items of its result, then those that only ORDER BY asks for.
#[derive(Default)]
struct Items {
    output: Vec<OutputColumn>,
    all: Vec<Projected>,
}

impl Binder<'_> {
    /// A whole query. The front has refused the clauses that nothing plans.
    pub fn query(&mut self, query: &Query) -> Binding<BoundSelect> {
        match query.body.as_ref() {
            SetExpr::Select(select) if select.projection.is_empty() => Err(Unplanned::because("no columns")),
            _ => self.query_below(query, None),
        }
    }

    /// A query that may refer to what stands around it.
    pub(super) fn query_below(&mut self, query: &Query, outside: Option<&Scope<'_>>) -> Binding<BoundSelect> {
        if query.fetch.is_some() {
            return Err(Unplanned::because("FETCH"));
        }
        self.all_queries += 1;
        if self.all_queries > QUERIES_MAX {
            return Err(Unplanned::because("many subqueries"));
        }
        let (calls, pending) = (self.calls.take(), self.pending.take());
        let bound = self.deeper(|binder| {
            binder.beside(query.with.as_ref(), |binder| {
                let (order_by, limit) = (query.order_by.as_ref(), query.limit_clause.as_ref());
                if let SetExpr::Select(select) = query.body.as_ref() {
                    return binder.select(select, order_by, limit, outside);
                }
                let BoundSelect { relation, output } = match query.body.as_ref() {
                    SetExpr::Query(query) => binder.query_below(query, outside)?,
                    body => binder.set_operations(body, outside)?,
                };
                let keys = result_keys(order_by, &output)?;
                Ok(BoundSelect { relation: binder.limited(sorted(relation, keys), limit)?, output })
            })
        })?;
        (self.calls, self.pending) = (calls, pending);
        Ok(bound)
    }

    /// A level further down among queries.
    pub(super) fn deeper<T>(&mut self, bind: impl FnOnce(&mut Self) -> Binding<T>) -> Binding<T> {
        self.queries += 1;
        if self.queries > QUERIES_WITHIN_MAX {
            return Err(Unplanned::because("many subqueries within each other"));
        }
        let bound = bind(self)?;
        self.queries -= 1;
        Ok(bound)
    }

    pub(super) fn select(
        &mut self,
        select: &Select,
        order_by: Option<&OrderBy>,
        limit: Option<&LimitClause>,
        outside: Option<&Scope<'_>>,
    ) -> Binding<BoundSelect> {
        if !is_plain(select) {
            return Err(Unplanned::because("a clause of SELECT"));
        }
        let mut scope = Scope::below(outside);
        let mut rows = self.from(&select.from, &mut scope)?;
        if let Some(selection) = &select.selection {
            self.pending = Some(Vec::new());
            let condition = self.condition(selection, &scope)?;
            let pending = self.pending.take().unwrap_or_default();
            rows = filtered_with(rows, condition, pending)?;
        }
        let keys = self.group_keys(&select.group_by, &select.projection, &scope)?;
        (self.calls, self.pending) = (Some(Vec::new()), Some(Vec::new()));
        let mut items = Items::default();
        for item in &select.projection {
            for (name, value) in self.item(item, &scope)? {
                let column = self.new_column();
                items.output.push(OutputColumn { name, column, sql_type: value.sql_type });
                items.all.push(Projected { column, value });
            }
        }
        let having = select.having.as_ref().map(|having| self.condition(having, &scope)).transpose()?;
        let is_distinct = select.distinct == Some(Distinct::Distinct);
        let keys_of_order = self.sort_keys(order_by, &mut items, is_distinct, &scope)?;
        let calls = self.calls.take().unwrap_or_default();
        let pending = self.pending.take().unwrap_or_default();
        let Items { output, mut all } = items;
        let is_grouped = !keys.is_empty() || !calls.is_empty() || having.is_some();
        if is_grouped && !pending.is_empty() {
            return Err(Unplanned::because("a subquery that refers to groups"));
        }
        for pending in pending {
            rows = pending.joined(rows)?;
        }
        if is_grouped {
            let groups = Groups::of(keys, calls);
            let over = |item: Projected| Ok(Projected { value: groups.over(item.value)?, ..item });
            all = all.into_iter().map(over).collect::<Binding<Vec<Projected>>>()?;
            let having = having.map(|having| groups.over(having)).transpose()?;
            rows = groups.relation(rows);
            if let Some(condition) = having {
                rows = Relation::Filter { input: Box::new(rows), condition };
            }
        }
        let hidden = all.len() > output.len();
        let mut relation = Relation::Project { input: Box::new(rows), items: all };
        if is_distinct {
            let columns = output.iter().map(|column| column.column).collect();
            relation = Relation::Distinct { input: Box::new(relation), columns };
        }
        relation = self.limited(sorted(relation, keys_of_order), limit)?;
        if hidden {
            let same = |column: &OutputColumn| Projected {
                column: column.column,
                value: Scalar::column(column.column, column.sql_type),
            };
            relation = Relation::Project { input: Box::new(relation), items: output.iter().map(same).collect() };
        }
        Ok(BoundSelect { relation, output })
    }

    /// The columns that an item stands for, with their names.
    fn item(&mut self, item: &SelectItem, scope: &Scope<'_>) -> Binding<Vec<(String, Scalar)>> {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = name_of(expr).unwrap_or_else(|| "?column?".to_string());
                Ok(vec![(name, self.settled(expr, scope)?)])
            }
            SelectItem::ExprWithAlias { expr, alias } => Ok(vec![(folded(alias), self.settled(expr, scope)?)]),
            SelectItem::Wildcard(_) => scope.all(None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                match name.0.as_slice() {
                    [table] => {
                        let table = table.as_ident().map(folded);
                        scope.all(Some(&table.ok_or_else(|| Unplanned(format!("{name}.*")))?))
                    }
                    _ => Err(Unplanned(format!("{name}.*"))),
                }
            }
            other => Err(Unplanned(format!("the item {other}"))),
        }
    }

    /// The keys of ORDER BY. A name or number alone means a result; everything else is computed from the rows, and
    /// becomes an item that is not shown unless it is one already.
    fn sort_keys(
        &mut self,
        order_by: Option<&OrderBy>,
        items: &mut Items,
        is_distinct: bool,
        scope: &Scope<'_>,
    ) -> Binding<Vec<SortItem>> {
        let mut sorted = Vec::new();
        for key in keys_of(order_by)? {
            let expr = &key.expr;
            let value = if let Some(value) = result_named(expr, &items.output)? {
                value
            } else {
                let value = self.settled(expr, scope)?;
                let sql_type = value.sql_type;
                let known = items.all.iter().find(|item| item.value.is_same(&value)).map(|item| item.column);
                if known.is_none() && is_distinct {
                    return Err(Unplanned::because("DISTINCT with an order by something else"));
                }
                let column = known.unwrap_or_else(|| {
                    let column = self.new_column();
                    items.all.push(Projected { column, value });
                    column
                });
                Scalar::column(column, sql_type)
            };
            sorted.push(sort_item(value, key));
        }
        Ok(sorted)
    }

    fn limited(&mut self, relation: Relation, clause: Option<&LimitClause>) -> Binding<Relation> {
        let (limit, offset) = match clause {
            None => return Ok(relation),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => (limit, offset),
            Some(_) => return Err(Unplanned::because("this form of LIMIT")),
        };
        let skip = offset.as_ref().map(|Offset { value, rows: _ }| self.count(value)).transpose()?;
        let fetch = limit.as_ref().map(|limit| self.count(limit)).transpose()?;
        if skip.is_none() && fetch.is_none() {
            return Ok(relation);
        }
        Ok(Relation::Limit { input: Box::new(relation), skip, fetch })
    }

    /// A number of rows: a bigint.
    fn count(&mut self, expr: &Expr) -> Binding<Scalar> {
        let count = self.expression(expr, &Scope::default())?;
        let count = match count.sql_type {
            SqlType::Unknown => self.typed(count, SqlType::BigInt)?,
            _ => count.cast(SqlType::BigInt),
        };
        let is_known = match &count.kind {
            ScalarKind::Constant(value) => matches!(value, Value::Int64(_) | Value::Null),
            ScalarKind::Cast(input) => matches!(input.kind, ScalarKind::Parameter(_)),
            kind => matches!(kind, ScalarKind::Parameter(_)),
        };
        if is_known { Ok(count) } else { Err(Unplanned::because("a number of rows that is computed")) }
    }
}

fn keys_of(order_by: Option<&OrderBy>) -> Binding<&[OrderByExpr]> {
    match order_by.map(|order_by| &order_by.kind) {
        None => Ok(&[]),
        Some(OrderByKind::Expressions(keys)) => Ok(keys),
        Some(OrderByKind::All(_)) => Err(Unplanned::because("ORDER BY ALL")),
    }
}

fn sort_item(value: Scalar, key: &OrderByExpr) -> SortItem {
    let descending = key.options.asc == Some(false);
    SortItem { value, descending, nulls_first: key.options.nulls_first.unwrap_or(descending) }
}

/// The keys of an order by results alone.
fn result_keys(order_by: Option<&OrderBy>, output: &[OutputColumn]) -> Binding<Vec<SortItem>> {
    let key = |key: &OrderByExpr| {
        let value = result_named(&key.expr, output)?;
        Ok(sort_item(value.ok_or_else(|| Unplanned::because("an order by more than results"))?, key))
    };
    keys_of(order_by)?.iter().map(key).collect()
}

fn sorted(relation: Relation, keys: Vec<SortItem>) -> Relation {
    if keys.is_empty() {
        return relation;
    }
    Relation::Sort { input: Box::new(relation), keys, fetch: None }
}

/// The result that a key of ORDER BY means, if it is a name or a number alone.
fn result_named(expr: &Expr, output: &[OutputColumn]) -> Binding<Option<Scalar>> {
    let of = |column: &OutputColumn| Some(Scalar::column(column.column, column.sql_type));
    match expr {
        Expr::Identifier(name) => {
            let name = folded(name);
            let mut found = output.iter().filter(|column| column.name == name);
            match (found.next(), found.next()) {
                (None, _) => Ok(None),
                (Some(column), None) => Ok(of(column)),
                _ => Err(Unplanned(format!("ORDER BY \"{name}\" is ambiguous"))),
            }
        }
        Expr::Value(value) => match &value.value {
            crate::ast::Value::Number(digits, false) => {
                let place = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match place.and_then(|place| output.get(place)) {
                    Some(column) => Ok(of(column)),
                    None => Err(Unplanned(format!("ORDER BY position {digits} of {}", output.len()))),
                }
            }
            _ => Err(Unplanned::because("ORDER BY a literal or parameter")),
        },
        _ => Ok(None),
    }
}

/// Whether a SELECT has items and no clause that is not bound here.
fn is_plain(select: &Select) -> bool {
    matches!(select.distinct, None | Some(Distinct::All | Distinct::Distinct)) && select.named_window.is_empty()
}
