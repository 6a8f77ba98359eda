//! Lists that DataFusion's simplification takes for sets.
//!
//! It joins two lists of the same operand, `x IN (..) AND x NOT IN (..)`, as if every item were a value of its own,
//! known and not NULL, and as if a test against an empty list were true or false for every `x`. So what has no value
//! yet stands in comparisons instead, NULL stands beside the list, and what comes out empty says what it is for NULL.

use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, binary_expr};

use super::lookups;

/// A list without NULL, and with nothing but literals and parameters.
pub(super) fn of_values(list: &InList, columns: &DFSchema) -> Result<Option<Expr>> {
    let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    let is_known = |item: &Expr| matches!(item, Expr::Literal(..) | Expr::Placeholder(_));
    let has_null = list.list.iter().any(is_null);
    let has_unknown = !list.list.iter().all(is_known) && !list.expr.is_volatile();
    if !has_null && !has_unknown || list.list.iter().all(is_null) {
        return Ok(None);
    }
    let (known, unknown): (Vec<Expr>, Vec<Expr>) =
        list.list.iter().filter(|item| !is_null(item)).cloned().partition(|item| is_known(item) || !has_unknown);
    let known = (!known.is_empty()).then(|| Expr::InList(InList::new(list.expr.clone(), known, list.negated)));
    let known = match known {
        Some(known) => Some(lookups::plain_floats(&known, columns)?.unwrap_or(known)),
        None => None,
    };
    let null = has_null.then(|| Expr::Literal(ScalarValue::Boolean(None), None));
    let tests = known.into_iter().chain(unknown.into_iter().map(|item| compared(list, item))).chain(null);
    Ok(joined(list, tests))
}

/// Two lists that are joined by AND or OR.
pub(super) fn pair(expr: &BinaryExpr) -> Option<Expr> {
    let (Expr::InList(left), Expr::InList(right)) = (expr.left.as_ref(), expr.right.as_ref()) else { return None };
    if left.expr != right.expr || left.expr.is_volatile() {
        return None;
    }
    let is_literal = |item: &Expr| matches!(item, Expr::Literal(..));
    let all_literals = left.list.iter().chain(&right.list).all(is_literal);
    let has_common = left.list.iter().any(|item| right.list.contains(item));
    let only_in = |one: &InList, other: &InList| one.list.iter().any(|item| !other.list.contains(item));
    let is_empty = match (expr.op, left.negated, right.negated) {
        (Operator::And, false, false) | (Operator::Or, true, true) => !has_common,
        (Operator::And, false, true) => !only_in(left, right),
        (Operator::And, true, false) => !only_in(right, left),
        // The union of both, which is right whatever the items are.
        _ => return None,
    };
    if !all_literals {
        let compared = joined(right, right.list.iter().cloned().map(|item| compared(right, item)))?;
        return Some(binary_expr(expr.left.as_ref().clone(), expr.op, compared));
    }
    let null = Expr::Literal(ScalarValue::Boolean(None), None);
    is_empty.then(|| match expr.op {
        Operator::Or => left.expr.as_ref().clone().is_not_null().or(null),
        _ => left.expr.as_ref().clone().is_null().and(null),
    })
}

/// The test of one item.
fn compared(list: &InList, item: Expr) -> Expr {
    let operator = if list.negated { Operator::NotEq } else { Operator::Eq };
    binary_expr(list.expr.as_ref().clone(), operator, item)
}

/// What the tests of its items say of a list.
fn joined(list: &InList, tests: impl Iterator<Item = Expr>) -> Option<Expr> {
    tests.reduce(if list.negated { Expr::and } else { Expr::or })
}
