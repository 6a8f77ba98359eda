//! Walks over trees, with closures behind references.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, Result, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use datafusion::sql::sqlparser::ast;

/// Visits every scan of a plan, those of subqueries included.
pub fn visit_scans(plan: &LogicalPlan, visit: &mut dyn FnMut(&TableScan) -> Result<()>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            visit(scan)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Rewrites an expression from the leaves up.
pub fn rewrite_expression(expr: Expr, rewrite: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>) -> Result<Expr> {
    Ok(expr.transform_up(|expr| rewrite(expr))?.data)
}

/// The types of a plan's parameters, by name; `None` where nothing says.
pub fn parameter_types(plan: &LogicalPlan) -> Result<BTreeMap<String, Option<DataType>>> {
    Ok(plan.get_parameter_types()?.into_iter().collect())
}

/// The plan with values for its parameters.
pub fn fill_parameters(plan: LogicalPlan, values: Vec<ScalarValue>) -> Result<LogicalPlan> {
    plan.with_param_values(ParamValues::from(values))
}

/// A part of a statement's text.
#[derive(Clone, Copy, Debug)]
pub enum Text<'a> {
    Query(&'a ast::Query),
    Expression(&'a ast::Expr),
}

impl<'a> From<&'a ast::Query> for Text<'a> {
    fn from(query: &'a ast::Query) -> Self {
        Self::Query(query)
    }
}

impl<'a> From<&'a ast::Expr> for Text<'a> {
    fn from(expr: &'a ast::Expr) -> Self {
        Self::Expression(expr)
    }
}

/// Visits every expression of a text.
pub fn visit_expressions<'a>(text: impl Into<Text<'a>>, visit: &mut dyn FnMut(&ast::Expr)) {
    visit_text(text.into(), visit);
}

fn visit_text(text: Text<'_>, visit: &mut dyn FnMut(&ast::Expr)) {
    let mut visit = |expr: &ast::Expr| -> ControlFlow<()> {
        visit(expr);
        ControlFlow::Continue(())
    };
    let _: ControlFlow<()> = match text {
        Text::Query(query) => ast::visit_expressions(query, &mut visit),
        Text::Expression(expr) => ast::visit_expressions(expr, &mut visit),
    };
}
