//! `EXISTS` in a projection: a join that marks the rows for which there is a match.
//!
//! ```text
//!   Projection: EXISTS (SELECT ... FROM u WHERE u.k = t.k)      Projection: __exists_1.mark
//!     t                                                    ->     LeftMark Join: t.k = __exists_1.k
//!                                                                   t
//!                                                                   u AS __exists_1
//! ```
//! DataFusion does the same for filters, and leaves projections alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, lit};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::analyze::refused;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Marks;

fn is_exists(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists(_))
}

impl OptimizerRule for Marks {
    fn name(&self) -> &'static str {
        "marks"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Projection(_)) || !eris_binder::node_has(&plan, &is_exists)? {
            return Ok(Transformed::no(plan));
        }
        let LogicalPlan::Projection(projection) = plan else { return Ok(Transformed::no(plan)) };
        let names = NamePreserver::new_for_projection();
        let mut input = projection.input.as_ref().clone();
        let mut exprs = Vec::with_capacity(projection.expr.len());
        for expr in projection.expr {
            let name = names.save(&expr);
            let expr = eris_binder::replace_parts(expr, &mut |part| {
                let Expr::Exists(Exists { subquery, negated }) = part else { return Ok(None) };
                let (marked, mark) = marked(&input, subquery, config.alias_generator())?;
                input = marked;
                Ok(Some(if *negated { Expr::Not(Box::new(mark)) } else { mark }))
            })?;
            exprs.push(name.restore(expr));
        }
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)))
    }
}

/// A plan with a further column that says whether the subquery has rows, and that column.
fn marked(plan: &LogicalPlan, subquery: &Subquery, aliases: &Arc<AliasGenerator>) -> Result<(LogicalPlan, Expr)> {
    let mut pull_up = PullUpCorrelatedExpr::new().with_exists_sub_query(true);
    let query = subquery.subquery.as_ref().clone().rewrite(&mut pull_up)?.data;
    if !pull_up.can_pull_up {
        return Err(refused("a subquery of EXISTS in which columns outside are used in this way"));
    }
    let alias = aliases.next("__exists");
    let right = LogicalPlanBuilder::from(query).alias(alias.as_str())?.build()?;
    let inside: BTreeSet<Column> = pull_up.correlated_subquery_cols_map.into_values().flatten().collect();
    let condition = match conjunction(pull_up.join_filters) {
        None => lit(true),
        Some(condition) => eris_binder::replace_parts(condition, &mut |part| {
            Ok(match part {
                Expr::Column(column) if inside.contains(column) => {
                    Some(Expr::Column(Column::new(Some(alias.as_str()), &column.name)))
                }
                _ => None,
            })
        })?,
    };
    let mut needed: Vec<(usize, Column)> = condition
        .column_refs()
        .into_iter()
        .filter_map(|column| Some((right.schema().index_of_column(column).ok()?, column.clone())))
        .collect();
    needed.sort_unstable();
    let right = if needed.is_empty() {
        right
    } else {
        let columns = needed.into_iter().map(|(_, column)| Expr::Column(column));
        LogicalPlanBuilder::from(right).project(columns)?.build()?
    };
    let joined = LogicalPlanBuilder::from(plan.clone()).join_on(right, JoinType::LeftMark, Some(condition))?.build()?;
    Ok((joined, Expr::Column(Column::new(Some(alias), "mark"))))
}
