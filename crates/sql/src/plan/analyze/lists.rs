//! Lists that DataFusion's simplification takes for sets.
//!
//! It joins two lists of the same operand, `x IN (..) AND x NOT IN (..)`, as if every item were a value of its own,
//! known and not NULL, and as if a test against an empty list were true or false for every `x`. So what differs from
//! row to row stands in comparisons instead, NULL stands beside the list, and what comes out empty says what it is for
//! NULL. Constants stay in the list, however they are written: it may be long.

use std::collections::HashSet;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, binary_expr};

use super::lookups;

/// Takes NULL, and what is no constant, out of a list.
pub(super) fn of_constants(list: &InList, columns: &DFSchema) -> Result<Option<Expr>> {
    let has_null = list.list.iter().any(is_null);
    let takes_varying = !list.expr.is_volatile() && list.list.iter().any(varies);
    if !has_null && !takes_varying || list.list.iter().all(is_null) {
        return Ok(None);
    }
    let items = list.list.iter().filter(|item| !is_null(item)).cloned();
    let (varying, constant): (Vec<Expr>, Vec<Expr>) = items.partition(|item| takes_varying && varies(item));
    let mut tests = Vec::new();
    if !constant.is_empty() {
        let constant = Expr::InList(InList::new(list.expr.clone(), constant, list.negated));
        tests.push(lookups::plain_floats(&constant, columns)?.unwrap_or(constant));
    }
    tests.extend(varying.into_iter().map(|item| comparison(list, item)));
    tests.extend(has_null.then(null));
    Ok(joined(list, tests))
}

/// Says what two lists are that AND or OR joins, where the simplification would not know.
pub(super) fn pair(expr: &BinaryExpr, columns: &DFSchema) -> Option<Expr> {
    let (left, right) = (Set::of(&expr.left, columns, LEVELS_MAX)?, Set::of(&expr.right, columns, LEVELS_MAX)?);
    let is_union = match expr.op {
        Operator::And => left.negated && right.negated,
        Operator::Or => !(left.negated && right.negated),
        _ => return None,
    };
    // A union is right whatever the items are; two comparisons are left to themselves.
    if is_union || left.operand != right.operand || left.operand.is_volatile() || !(left.is_list || right.is_list) {
        return None;
    }
    let (Some(of_left), Some(of_right)) = (left.values(), right.values()) else {
        let Expr::InList(list) = expr.right.as_ref() else { return None };
        let tests = list.list.iter().map(|item| comparison(list, item.clone())).collect();
        return Some(binary_expr(expr.left.as_ref().clone(), expr.op, joined(list, tests)?));
    };
    let is_empty = match (left.negated, right.negated) {
        (false, true) => of_left.is_subset(&of_right),
        (true, false) => of_right.is_subset(&of_left),
        _ => of_left.is_disjoint(&of_right),
    };
    let operand = || left.operand.clone();
    is_empty.then(|| match expr.op {
        Operator::Or => operand().is_not_null().or(null()),
        _ => operand().is_null().and(null()),
    })
}

/// Chains of comparisons that are longer are not looked through: each of their parts asks.
const LEVELS_MAX: usize = 32;

/// What the simplification takes for a list, or makes one of: `x IN (1, 2)`, `NOT x IN (1, 2)`, `x = 1 OR x = 2`,
/// `x <> 1 AND x <> 2`.
struct Set<'a> {
    /// Without casts to wider integers, which it may take away.
    operand: &'a Expr,
    negated: bool,
    items: Vec<&'a Expr>,
    is_list: bool,
}

impl<'a> Set<'a> {
    /// Looks so many levels down.
    fn of(expr: &'a Expr, columns: &DFSchema, levels: usize) -> Option<Self> {
        let levels = levels.checked_sub(1)?;
        match expr {
            Expr::InList(InList { expr, list, negated }) => Some(Self {
                operand: narrow(expr, columns),
                negated: *negated,
                items: list.iter().collect(),
                is_list: true,
            }),
            Expr::Not(of) => Self::of(of, columns, levels).map(|set| Self { negated: !set.negated, ..set }),
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Eq | Operator::NotEq), right }) => {
                let (operand, item) = if value(left).is_some() { (right, left) } else { (left, right) };
                let negated = *op == Operator::NotEq;
                Some(Self { operand: narrow(operand, columns), negated, items: vec![item], is_list: false })
            }
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let idle = |side: &Expr| match side {
                    Expr::Literal(ScalarValue::Boolean(Some(value)), _) => *value == (*op == Operator::And),
                    _ => false,
                };
                if idle(left) || idle(right) {
                    return Self::of(if idle(left) { right } else { left }, columns, levels);
                }
                let (left, right) = (Self::of(left, columns, levels)?, Self::of(right, columns, levels)?);
                let unites = [&left, &right].iter().all(|set| set.negated == (*op == Operator::And));
                (unites && left.operand == right.operand).then(|| {
                    let items = left.items.into_iter().chain(right.items).collect();
                    Self { items, is_list: true, ..left }
                })
            }
            _ => None,
        }
    }

    /// The values, if all are known and none is NULL.
    fn values(&self) -> Option<HashSet<ScalarValue>> {
        let known = |item: &&Expr| value(item).filter(|value| !value.is_null()).map(|value| of_one_width(&value));
        self.items.iter().map(known).collect()
    }
}

/// An operand without casts to wider integers. Other casts make equal values of different ones, and stay.
fn narrow<'a>(expr: &'a Expr, columns: &DFSchema) -> &'a Expr {
    match expr {
        Expr::Cast(Cast { expr: inner, field }) => match (inner.get_type(columns), field.data_type()) {
            (Ok(ArrowType::Int16), ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64)
            | (Ok(ArrowType::Int32), ArrowType::Int32 | ArrowType::Int64)
            | (Ok(ArrowType::Int64), ArrowType::Int64) => narrow(inner, columns),
            _ => expr,
        },
        other => other,
    }
}

/// Integers of any width are comparable: without casts, operands may be of another one.
fn of_one_width(value: &ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Int16(_) | ScalarValue::Int32(_) => {
            value.cast_to(&ArrowType::Int64).unwrap_or_else(|_| value.clone())
        }
        other => other.clone(),
    }
}

fn null() -> Expr {
    Expr::Literal(ScalarValue::Boolean(None), None)
}

fn is_null(item: &Expr) -> bool {
    match item {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}

/// Whether an item is more than a constant or a parameter.
pub(super) fn varies(item: &Expr) -> bool {
    let of_row = |part: &Expr| {
        matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_)) || part.is_volatile()
    };
    !matches!(item, Expr::Literal(..)) && item.exists(|part| Ok(of_row(part))).unwrap_or(true)
}

fn value(item: &Expr) -> Option<ScalarValue> {
    match item {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(Cast { expr, field }) => value(expr)?.cast_to(field.data_type()).ok(),
        _ => None,
    }
}

/// The test of one item, a constant behind what varies as everywhere else.
fn comparison(list: &InList, item: Expr) -> Expr {
    let operator = if list.negated { Operator::NotEq } else { Operator::Eq };
    let operand = list.expr.as_ref().clone();
    let (left, right) = if varies(&item) && !varies(&operand) { (item, operand) } else { (operand, item) };
    binary_expr(left, operator, right)
}

/// What the tests of its items say of a list.
fn joined(list: &InList, tests: Vec<Expr>) -> Option<Expr> {
    tests.into_iter().reduce(if list.negated { Expr::and } else { Expr::or })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::DataType;
    use datafusion::logical_expr::{cast, col, in_list, lit};

    use super::*;

    fn rewritten(list: Expr) -> Option<String> {
        let Expr::InList(list) = list else { unreachable!("a list") };
        of_constants(&list, &DFSchema::empty()).unwrap().map(|expr| expr.to_string())
    }

    #[test]
    fn constants_stay_in_the_list() {
        let decimal = |value: i64| cast(lit(value), DataType::Decimal128(10, 2));
        let items = || (0..20_000).map(decimal).chain([lit(1) + lit(2)]).collect::<Vec<_>>();
        assert_eq!(rewritten(in_list(col("x"), items(), false)), None, "also if they are not computed yet");
        let null = cast(lit(ScalarValue::Int64(None)), DataType::Decimal128(10, 2));
        let some = vec![decimal(1), null, col("y"), decimal(2)];
        let list = "x NOT IN ([CAST(Int64(1) AS Decimal128(10, 2)), CAST(Int64(2) AS Decimal128(10, 2))])";
        let expected = format!("{list} AND x != y AND Boolean(NULL)");
        assert_eq!(rewritten(in_list(col("x"), some, true)), Some(expected));
    }
}
