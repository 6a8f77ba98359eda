//! What the binder does not know of GROUPING SETS, written out as sets.
//!
//! | written                               | bound                                          |
//! |---------------------------------------|------------------------------------------------|
//! | `ROLLUP ((a, b), c)`                  | `GROUPING SETS ((a, b, c), (a, b), ())`        |
//! | `CUBE ((a, b), c)`                    | `GROUPING SETS ((a, b, c), (a, b), (c), ())`   |
//! | `GROUPING SETS (ROLLUP (a), (b))`     | `GROUPING SETS ((a), (), (b))`                 |
//! | `GROUP BY ()`                         | `GROUP BY GROUPING SETS (())`                  |

use std::borrow::Cow;

use crate::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select};

/// CUBEs of more elements are left to the binder, which refuses them.
const CUBE_MAX: usize = 12;

type Sets = Vec<Vec<Expr>>;

/// Writes out what the binder would not know in the GROUP BY of a query.
pub(super) fn write_out(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &mut select.group_by else { return };
    for key in keys {
        let is_known = match key {
            Expr::Tuple(entries) => !entries.is_empty(),
            Expr::Rollup(elements) | Expr::Cube(elements) => elements.iter().all(|element| element.len() == 1),
            Expr::GroupingSets(sets) => !sets.iter().flatten().any(|expr| inner_sets(expr).is_some()),
            _ => true,
        };
        if !is_known && let Some(sets) = sets_of(key) {
            *key = Expr::GroupingSets(sets);
        }
    }
}

/// An expression that stands for sets within others: the parser takes ROLLUP and CUBE for functions there.
fn inner_sets(expr: &Expr) -> Option<Cow<'_, Expr>> {
    if matches!(expr, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)) {
        return Some(Cow::Borrowed(expr));
    }
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, .. }) = expr else {
        return None;
    };
    let element = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(entries))) => Some(entries.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Nested(inner))) => Some(vec![inner.as_ref().clone()]),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(vec![expr.clone()]),
        _ => None,
    };
    let elements = list.args.iter().map(element).collect::<Option<Sets>>()?;
    match name.to_string().to_lowercase().as_str() {
        "rollup" => Some(Cow::Owned(Expr::Rollup(elements))),
        "cube" => Some(Cow::Owned(Expr::Cube(elements))),
        _ => None,
    }
}

fn sets_of(expr: &Expr) -> Option<Sets> {
    match expr {
        Expr::Rollup(elements) => Some((0..=elements.len()).rev().map(|count| elements[..count].concat()).collect()),
        Expr::Cube(elements) if elements.len() <= CUBE_MAX => {
            let chosen = |bits: usize| {
                let elements = elements.iter().enumerate().filter(move |(at, _)| bits >> at & 1 != 0);
                elements.flat_map(|(_, element)| element.clone()).collect()
            };
            Some((0..1 << elements.len()).rev().map(chosen).collect())
        }
        Expr::GroupingSets(sets) => {
            let mut all = Sets::new();
            for set in sets {
                let inner = if let [only] = set.as_slice() { inner_sets(only) } else { None };
                match inner {
                    Some(inner) => all.extend(sets_of(&inner)?),
                    None => all.push(set.clone()),
                }
            }
            Some(all)
        }
        Expr::Tuple(entries) if entries.is_empty() => Some(vec![Vec::new()]),
        _ => None,
    }
}
