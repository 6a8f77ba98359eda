//! The names of a result's columns, as PostgreSQL gives them.
//!
//! A column keeps its name, a function gives its own, a cast that of what it casts; everything else is `?column?`.
//! DataFusion names columns by their expression and refuses two of the same name, so items that are no columns get an
//! alias here, and the names shown are computed from the text.

use crate::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, SetOperator,
};

/// The shown name of one select item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownName {
    /// This.
    Name(String),
    /// `*`: as many columns as it stands for, by their own names.
    Wildcard,
}

/// The shown names, if the query has a select list of its own.
pub(super) fn shown_names(query: &Query) -> Option<Vec<ShownName>> {
    names_of(&query.body)
}

fn names_of(body: &SetExpr) -> Option<Vec<ShownName>> {
    match body {
        SetExpr::Select(select) => Some(select.projection.iter().map(shown_name).collect()),
        SetExpr::Query(query) => names_of(&query.body),
        SetExpr::SetOperation { left, .. } => names_of(left),
        _ => None,
    }
}

/// Names the items of a select list so that DataFusion takes them: by PostgreSQL's names, as far as nothing else in the
/// list or the SELECT could be meant by them, otherwise by numbers.
pub(super) fn name_items(select: &mut Select) {
    let items = &mut select.projection;
    let wildcard = items.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    // In HAVING DataFusion prefers such a name to a column.
    let by_name = !wildcard && select.having.is_none();
    let columns: Vec<String> = items.iter().filter_map(column_name).collect();
    let mut taken: Vec<String> = Vec::new();
    let mut plain: Vec<Vec<String>> = Vec::new();
    for (at, item) in items.iter_mut().enumerate() {
        let number = || Ident::with_quote('"', format!("__column_{at}"));
        let alias = match item {
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                // Columns of two tables may have one name, if they are told apart by their tables.
                let parts = parts_of(expr);
                let same =
                    |known: &Vec<String>| known.iter().rev().zip(parts.iter().rev()).all(|(one, two)| one == two);
                let hidden = parts.last().is_some_and(|name| taken.contains(name));
                if !plain.iter().any(same) && !hidden && !wildcard {
                    taken.extend(Some(parts[0].clone()).filter(|_| parts.len() == 1));
                    plain.push(parts);
                    continue;
                }
                number()
            }
            SelectItem::UnnamedExpr(expr) => match name_of(expr).filter(|_| by_name) {
                Some(name) if !taken.contains(&name) && !columns.contains(&name) => {
                    taken.push(name.clone());
                    Ident::with_quote('"', name)
                }
                _ => number(),
            },
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = folded(alias);
                if !taken.contains(&name) && !plain.iter().any(|parts| parts.last() == Some(&name)) {
                    taken.push(name);
                    continue;
                }
                number()
            }
            _ => continue,
        };
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Numbers results of the outermost list that may have the name of a column that is meant elsewhere: one behind `*`, or
/// one that ORDER BY names with its table. ORDER BY means the results by their names, too.
pub(super) fn number_beside_columns(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let wildcards = select.projection.iter().filter(|item| shown_name(item) == ShownName::Wildcard).count();
    let keys = match &mut query.order_by {
        Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) => keys.as_mut_slice(),
        _ => &mut [],
    };
    let mut columns = Vec::new();
    for key in &*keys {
        eris_binder::visit_expressions(&key.expr, &mut |expr| {
            columns.extend(matches!(expr, Expr::CompoundIdentifier(_)).then(|| name_of(expr)).flatten());
        });
    }
    let named =
        |keys: &[Expr], name: &str| keys.iter().any(|key| matches!(key, Expr::Identifier(key) if folded(key) == name));
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (expr, name) = match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => continue,
            SelectItem::UnnamedExpr(expr) => match name_of(expr) {
                Some(name) => (expr, name),
                None => continue,
            },
            _ => continue,
        };
        let is_key = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if named(keys, &name))
            || matches!(&select.distinct, Some(Distinct::On(keys)) if named(keys, &name));
        if is_key || wildcards > 1 || (wildcards == 0 && !columns.contains(&name)) {
            continue;
        }
        let alias = Ident::with_quote('"', format!("__column_{at}"));
        for key in keys.iter_mut() {
            if matches!(&key.expr, Expr::Identifier(key) if folded(key) == name) {
                key.expr = Expr::Identifier(alias.clone());
            }
        }
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// Gives columns of the same name in an operand of INTERSECT or EXCEPT names of their own: there DataFusion compares
/// columns by name.
pub(super) fn name_compared_items(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { op: SetOperator::Intersect | SetOperator::Except, left, right, .. } => {
            for operand in [left, right] {
                name_compared_items(operand);
                let operand = match operand.as_mut() {
                    SetExpr::Query(query) => query.body.as_mut(),
                    other => other,
                };
                if let SetExpr::Select(select) = operand {
                    name_twins(&mut select.projection);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_compared_items(left);
            name_compared_items(right);
        }
        _ => {}
    }
}

fn name_twins(items: &mut [SelectItem]) {
    let mut taken: Vec<String> = Vec::new();
    for (at, item) in items.iter_mut().enumerate() {
        let Some(name) = column_name(item) else { continue };
        if !taken.contains(&name) {
            taken.push(name);
        } else if let SelectItem::UnnamedExpr(expr) = item {
            let alias = Ident::with_quote('"', format!("__column_{at}"));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// The parts of a column's name.
fn parts_of(expr: &Expr) -> Vec<String> {
    match expr {
        Expr::Identifier(ident) => vec![folded(ident)],
        Expr::CompoundIdentifier(parts) => parts.iter().map(folded).collect(),
        _ => Vec::new(),
    }
}

/// The name of an item that is a column or has an alias.
pub(super) fn column_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => name_of(expr),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

fn shown_name(item: &SelectItem) -> ShownName {
    match item {
        SelectItem::UnnamedExpr(expr) => ShownName::Name(name_of(expr).unwrap_or_else(|| "?column?".to_string())),
        SelectItem::ExprWithAlias { alias, .. } => ShownName::Name(folded(alias)),
        SelectItem::ExprWithAliases { .. } | SelectItem::QualifiedWildcard(..) | SelectItem::Wildcard(_) => {
            ShownName::Wildcard
        }
    }
}

pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

pub(crate) fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        Expr::Nested(inner) => name_of(inner),
        Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()).map(folded),
        Expr::Cast { expr, data_type, .. } => {
            name_of(expr).or_else(|| crate::front::sql_type_of(data_type).ok().map(cast_name))
        }
        Expr::TypedString(typed) => crate::front::sql_type_of(&typed.data_type).ok().map(cast_name),
        Expr::Case { .. } => Some("case".to_string()),
        Expr::Extract { .. } => Some("extract".to_string()),
        Expr::Substring { .. } => Some("substring".to_string()),
        Expr::Trim { .. } => Some("btrim".to_string()),
        Expr::Position { .. } => Some("position".to_string()),
        Expr::Ceil { .. } => Some("ceil".to_string()),
        Expr::Floor { .. } => Some("floor".to_string()),
        Expr::Overlay { .. } => Some("overlay".to_string()),
        Expr::Interval(_) => Some("interval".to_string()),
        Expr::Exists { .. } => Some("exists".to_string()),
        Expr::Value(value) if matches!(value.value, crate::ast::Value::Boolean(_)) => Some("bool".to_string()),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.as_slice() {
                [item] => match shown_name(item) {
                    ShownName::Name(name) => Some(name),
                    ShownName::Wildcard => None,
                },
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The internal name of a type, which a cast without a better name shows.
fn cast_name(sql_type: crate::types::SqlType) -> String {
    use crate::types::SqlType;
    match sql_type {
        SqlType::Boolean => "bool",
        SqlType::SmallInt => "int2",
        SqlType::Integer => "int4",
        SqlType::BigInt => "int8",
        SqlType::Real => "float4",
        SqlType::Double => "float8",
        SqlType::Char(_) => "bpchar",
        SqlType::Varchar(_) => "varchar",
        other => other.base_name(),
    }
    .to_string()
}

/// Puts shown names over the names of a plan's columns.
pub(super) fn apply(shown: Option<Vec<ShownName>>, planned: Vec<String>) -> Vec<String> {
    let Some(shown) = shown else { return planned };
    let wildcards = shown.iter().filter(|name| **name == ShownName::Wildcard).count();
    let fixed = shown.len() - wildcards;
    if wildcards == 0 && fixed == planned.len() {
        return shown
            .into_iter()
            .zip(planned)
            .map(|(shown, planned)| match shown {
                ShownName::Name(name) => name,
                ShownName::Wildcard => planned,
            })
            .collect();
    }
    if wildcards != 1 || planned.len() < fixed {
        // Several wildcards: which columns belong to which is known to the plan only.
        return planned;
    }
    let width = planned.len() - fixed;
    let mut planned = planned.into_iter();
    let mut names = Vec::new();
    for name in shown {
        match name {
            ShownName::Name(name) => {
                planned.next();
                names.push(name);
            }
            ShownName::Wildcard => names.extend(planned.by_ref().take(width)),
        }
    }
    names
}
