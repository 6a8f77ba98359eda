//! Aggregates that belong to a query further outside.
//!
//! An aggregate is of the innermost query that its arguments, or its FILTER, have columns of: `(SELECT sum(t.a) FROM
//! u)` is the sum over the rows of `t`, and makes the query around it an aggregating one (PostgreSQL's
//! `check_agg_arguments`). DataFusion computes it over the rows of `u`. Refused, before rules of ours make aggregates
//! that mean just that.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::analyzer::AnalyzerRule;

use crate::errors::SqlError;

#[derive(Debug)]
pub(super) struct OuterAggregates;

impl AnalyzerRule for OuterAggregates {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        eris_binder::visit_nodes(&plan, &mut |node| {
            let LogicalPlan::Aggregate(Aggregate { aggr_expr, .. }) = node else { return Ok(()) };
            for aggregate in aggr_expr {
                if is_of_outside(aggregate)? {
                    return Err(refused());
                }
            }
            Ok(())
        })?;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "outer_aggregates"
    }
}

/// Whether all columns of an aggregate, if any, are those of queries outside.
fn is_of_outside(aggregate: &Expr) -> Result<bool> {
    let is_own = |part: &Expr| match part {
        // Its columns are not looked for.
        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => true,
        other => matches!(other, Expr::Column(_)),
    };
    let (mut own, mut outside) = (false, false);
    aggregate.apply(|part| {
        own |= is_own(part);
        outside |= matches!(part, Expr::OuterReferenceColumn(..));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(outside && !own)
}

fn refused() -> DataFusionError {
    let what = "an aggregate of nothing but columns of the query around";
    let hint = "It belongs to that query: compute it in a subquery of its FROM, and refer to the result here.";
    DataFusionError::External(Box::new(SqlError::unsupported(what, hint)))
}
