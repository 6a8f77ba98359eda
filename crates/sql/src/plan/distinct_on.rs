//! DISTINCT ON: the first row of each group, by number.
//!
//! ```text
//!   DistinctOn: on a, select a, b, order a, c  ->  Projection: a, b
//!     t                                              Sort: a
//!                                                      Filter: n = 1
//!                                                        Window: row_number() over (partition by a order by c) as n
//!                                                          t
//! ```
//! DataFusion takes the first value of each column by itself, each of which sorts the rows of its group.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFunctionDefinition, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::ast::{self, SelectItem};

/// What the column of numbers is called.
const NUMBER: &str = "__distinct_on";

/// Puts in place what numbers and names of the select list stand for, as in ORDER BY; the binder knows columns only.
pub(super) fn name_keys(select: &mut ast::Select) {
    let ast::Select { distinct: Some(ast::Distinct::On(keys)), projection, .. } = select else { return };
    for key in keys {
        let item = match key {
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(digits, _) => {
                    digits.parse::<usize>().ok().and_then(|number| projection.get(number.checked_sub(1)?))
                }
                _ => None,
            },
            ast::Expr::Identifier(name) => projection.iter().find(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.value == name.value,
                _ => false,
            }),
            _ => None,
        };
        if let Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item {
            *key = expr.clone();
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FirstOfGroups;

impl OptimizerRule for FirstOfGroups {
    fn name(&self) -> &'static str {
        "first_of_groups"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Distinct(Distinct::On(DistinctOn { on_expr, select_expr, sort_expr, input, schema })) = plan
        else {
            return Ok(Transformed::no(plan));
        };
        let Some(registry) = config.function_registry() else {
            return datafusion::common::internal_err!("a plan is optimised without functions");
        };
        let mut order = sort_expr.unwrap_or_default();
        let behind = order.split_off(on_expr.len().min(order.len()));
        let window_frame = WindowFrame::new((!behind.is_empty()).then_some(false));
        let number = Expr::WindowFunction(Box::new(WindowFunction {
            fun: WindowFunctionDefinition::WindowUDF(registry.udwf("row_number")?),
            params: WindowFunctionParams {
                args: Vec::new(),
                partition_by: on_expr,
                order_by: behind,
                window_frame,
                filter: None,
                null_treatment: None,
                distinct: false,
            },
        }));
        let first = Expr::Column(Column::from_name(NUMBER)).eq(lit(1_i64));
        let mut builder = LogicalPlanBuilder::from(input).window(vec![number.alias(NUMBER)])?.filter(first)?;
        if !order.is_empty() {
            builder = builder.sort(order)?;
        }
        let named = select_expr.into_iter().zip(schema.iter());
        let named = named.map(|(expr, (qualifier, field))| expr.alias_qualified(qualifier.cloned(), field.name()));
        Ok(Transformed::yes(builder.project(named.collect::<Vec<Expr>>())?.build()?))
    }
}
