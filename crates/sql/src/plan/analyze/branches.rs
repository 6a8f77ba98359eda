//! CASE of truth values whose branches can fail.
//!
//! DataFusion makes AND and OR of a searched CASE of truth values, and evaluates them for rows of every branch:
//! `CASE WHEN a = 0 THEN true ELSE 10 / a > 1 END` divided by zero. A CASE with an operand it leaves alone, so
//! `CASE true WHEN a = 0 ...` says the same and computes only what it has to.

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator, lit};

/// The CASE with an operand, if it has to be.
pub(super) fn kept_apart(case: &Case, columns: &DFSchema) -> Result<Option<Expr>> {
    let Some((_, first)) = case.when_then_expr.first() else { return Ok(None) };
    if case.expr.is_some() || first.get_type(columns)? != ArrowType::Boolean {
        return Ok(None);
    }
    // The first condition is computed for every row in any case.
    let later = case.when_then_expr.iter().skip(1).map(|(when, _)| when);
    let branches = later.chain(case.when_then_expr.iter().map(|(_, then)| then)).chain(&case.else_expr);
    for branch in branches {
        if can_fail(branch)? {
            let operand = Some(Box::new(lit(true)));
            return Ok(Some(Expr::Case(Case::new(operand, case.when_then_expr.clone(), case.else_expr.clone()))));
        }
    }
    Ok(None)
}

/// Whether there is more than comparisons of columns and constants.
fn can_fail(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|node| {
        found |= match node {
            Expr::Column(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Literal(..)
            | Expr::Placeholder(_)
            | Expr::Alias(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::Like(_) => false,
            Expr::BinaryExpr(BinaryExpr { op, .. }) => !matches!(
                op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
                    | Operator::IsDistinctFrom
                    | Operator::IsNotDistinctFrom
                    | Operator::And
                    | Operator::Or
            ),
            _ => true,
        };
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
