//! Floats that are looked up: in lists, among the values of a CASE, and by `count(DISTINCT x)`.
//!
//! DataFusion finds them by their bits, which tell 0 from -0 and have many NaN. Short lists it takes for comparisons.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Case, Expr, ExprSchemable};

use super::functions::Function;

/// Lists up to this length become comparisons.
const SHORT_LIST_MAX: usize = 3;

/// The list, CASE or count over floats with one zero and one NaN.
pub(super) fn plain_floats(expr: &Expr, columns: &DFSchema) -> Result<Option<Expr>> {
    let is_float = |expr: &Expr| Ok::<_, datafusion::common::DataFusionError>(expr.get_type(columns)?.is_floating());
    let plain = |expr: Box<Expr>| Box::new(Function::Plain.call(*expr));
    Ok(match expr {
        Expr::InList(list) if list.list.len() > SHORT_LIST_MAX && is_float(&list.expr)? => {
            Some(expr.clone().map_children(|operand| Ok(Transformed::yes(Function::Plain.call(operand))))?.data)
        }
        Expr::Case(Case { expr: Some(operand), when_then_expr, else_expr }) if is_float(operand)? => {
            let branches = when_then_expr.iter().map(|(when, then)| (plain(when.clone()), then.clone())).collect();
            Some(Expr::Case(Case::new(Some(plain(operand.clone())), branches, else_expr.clone())))
        }
        Expr::AggregateFunction(call) if call.params.distinct && call.func.name() == "count" => {
            match &*call.params.args {
                [value] if is_float(value)? => {
                    let mut call = call.clone();
                    call.params.args = vec![Function::Plain.call(value.clone())];
                    Some(Expr::AggregateFunction(call))
                }
                _ => None,
            }
        }
        _ => None,
    })
}
