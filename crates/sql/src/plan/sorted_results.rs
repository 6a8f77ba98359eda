//! ORDER BY of a SELECT with groups: by a result, whatever else has its name.
//!
//! | written                                                    | bound                                           |
//! |------------------------------------------------------------|-------------------------------------------------|
//! | `SELECT max(b) AS a FROM t GROUP BY a ORDER BY a`          | `SELECT max(b) AS x ... ORDER BY x`             |
//! | `FROM (SELECT max(b) AS a ... ORDER BY a LIMIT 1) AS s`    | `FROM (SELECT max(b) AS x ...) AS s(a)`         |
//! | `WITH s AS (SELECT max(b) AS a ... ORDER BY a LIMIT 1)`    | `WITH s(a) AS (SELECT max(b) AS x ...)`         |
//!
//! DataFusion would sort by a column of the table that has this name. What the outermost query shows is named apart
//! ([`result_names`](super::result_names)), and the columns of subqueries in expressions have no names.

use super::result_names::{column_name, folded, name_of};
use crate::ast::{
    Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Value,
};

/// Gives items that ORDER BY means by number or name a name of their own, if something else in the SELECT has theirs.
pub(super) fn name_apart(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by else { return };
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return };
    let groups: Vec<Expr> = groups.clone();
    if groups.is_empty() || select.distinct.is_some() {
        return;
    }
    let text = select.to_string().to_lowercase();
    let mentions = |name: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.filter(|word| *word == name.to_lowercase()).count()
    };
    let places: Vec<Option<usize>> = keys.iter().map(|key| place_of(&key.expr, &select.projection)).collect();
    let mut renamed = Vec::new();
    for (key, place) in keys.iter_mut().zip(places) {
        let Some(at) = place else { continue };
        let Some(SelectItem::ExprWithAlias { alias, .. }) = select.projection.get_mut(at) else { continue };
        let name = folded(alias);
        // GROUP BY may mean it.
        let is_group = groups.iter().any(|group| matches!(group, Expr::Identifier(group) if folded(group) == name));
        if !renamed.contains(&at) && !is_group && mentions(&name) > 1 {
            *alias = internal_name(at);
            renamed.push(at);
        }
        if renamed.contains(&at) {
            key.expr = Expr::Identifier(alias.clone());
        }
    }
}

/// The same for the tables of WITH: their columns keep their names.
pub(super) fn name_apart_in_with(query: &mut Query) {
    for table in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
        name_apart_in_table(&mut table.query, &mut table.alias);
    }
}

/// The same for subqueries in FROM: their columns keep their names.
pub(super) fn name_apart_in_from(select: &mut Select) {
    for table in &mut select.from {
        in_tables(table);
    }
}

fn in_tables(tables: &mut TableWithJoins) {
    let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
    for factor in std::iter::once(&mut tables.relation).chain(joined) {
        match factor {
            TableFactor::Derived { subquery, alias: Some(alias), .. } => name_apart_in_table(subquery, alias),
            TableFactor::NestedJoin { table_with_joins, .. } => in_tables(table_with_joins),
            _ => {}
        }
    }
}

fn name_apart_in_table(query: &mut Query, alias: &mut TableAlias) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some(names) = names(&select.projection) else { return };
    let before = select.projection.clone();
    name_apart(query);
    let is_renamed = matches!(query.body.as_ref(), SetExpr::Select(select) if select.projection != before);
    if is_renamed {
        // Those that the alias has itself come first.
        let rest = names.into_iter().skip(alias.columns.len());
        alias.columns.extend(rest.map(|name| TableAliasColumnDef { name, data_type: None }));
    }
}

/// The names of a list's items, different ones; none if it has a wildcard.
fn names(items: &[SelectItem]) -> Option<Vec<Ident>> {
    let mut names: Vec<Ident> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let name = match item {
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            SelectItem::ExprWithAlias { .. } => column_name(item),
            _ => return None,
        };
        let name = name.map_or_else(|| internal_name(at), |name| Ident::with_quote('"', name));
        names.push(if names.contains(&name) { internal_name(at) } else { name });
    }
    Some(names)
}

fn internal_name(at: usize) -> Ident {
    Ident::with_quote('"', format!("__column_{at}"))
}

/// Which item a key of ORDER BY means by its number or its name, if it is one.
fn place_of(key: &Expr, items: &[SelectItem]) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        Expr::Identifier(name) => {
            let is_named = |item: &SelectItem| column_name(item).is_some_and(|column| column == folded(name));
            let mut found = items.iter().enumerate().filter(|(_, item)| is_named(item));
            found.next().filter(|_| found.next().is_none()).map(|(at, _)| at)
        }
        _ => None,
    }
}
