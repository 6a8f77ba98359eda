//! What a plan holds beside its nodes: the values of its constants.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Bytes of a plan's constants, without those that lie in their expression.
pub(super) fn constant_bytes(plan: &LogicalPlan) -> Result<usize> {
    let mut bytes = 0_usize;
    eris_binder::visit_nodes(plan, &mut |node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::Literal(scalar, _) = part {
                    bytes = bytes.saturating_add(scalar.size().saturating_sub(size_of::<ScalarValue>()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(())
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};

    use super::*;

    #[test]
    fn texts_of_a_plan_are_counted_wherever_they_are() {
        let text = "x".repeat(10_000);
        let plan = LogicalPlanBuilder::empty(true)
            .project([lit(7), lit(text.as_str())])
            .and_then(|plan| plan.filter(lit(text.as_str()).eq(lit("y"))))
            .and_then(LogicalPlanBuilder::build)
            .unwrap();
        let bytes = constant_bytes(&plan).unwrap();
        assert!((20_000..30_000).contains(&bytes), "{bytes}");
    }
}
