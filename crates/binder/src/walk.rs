//! Walks over trees, with closures behind references.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ParamValues, Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery, TableScan};
use datafusion::sql::sqlparser::ast::{self, VisitMut, VisitorMut};

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

/// Rewrites every expression of a plan as [`rewrite_plan`] does, and then each node. The subqueries of a node come
/// behind its inputs and refer to the columns that these have by then.
pub fn rewrite_plan_and_nodes(
    plan: LogicalPlan,
    rewrite: &mut dyn FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
    nodes: &mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    Ok(rewritten(Transformed::no(plan), rewrite, nodes)?.data)
}

/// Schemas are made anew for what is changed, and for what comes behind a change: nodes above are among it.
fn rewritten(
    plan: Transformed<LogicalPlan>,
    rewrite: &mut dyn FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
    nodes: &mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<Transformed<LogicalPlan>> {
    let mut changes = plan.transformed;
    plan.data.transform_up(|node| {
        let inputs: Vec<_> = node.inputs().into_iter().map(|input| Arc::clone(input.schema())).collect();
        let node = node.map_subqueries(|subquery| {
            let mut columns = DFSchema::empty();
            for input in &inputs {
                columns.merge(input);
            }
            rewritten(refer_to(subquery, &columns)?, rewrite, nodes)
        })?;
        let node = node.transform_data(|node| rewrite_node(node, rewrite))?.transform_data(&mut *nodes)?;
        changes |= node.transformed;
        if changes { Ok(Transformed::yes(node.data.recompute_schema()?)) } else { Ok(node) }
    })
}

/// Gives a subquery's references to columns of the query around it the types that these have; schemas stay. Subqueries
/// in it are looked at when it is rewritten: what they refer to further outside stays as it was.
fn refer_to(subquery: LogicalPlan, columns: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let renewed = |expr: Expr| {
        expr.transform_up(|expr| {
            let Expr::OuterReferenceColumn(known, column) = &expr else { return Ok(Transformed::no(expr)) };
            match columns.qualified_field_from_column(column) {
                Ok((_, field)) if field.data_type() != known.data_type() => {
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column.clone())))
                }
                // Of a query further outside, or as it was.
                _ => Ok(Transformed::no(expr)),
            }
        })
    };
    let LogicalPlan::Subquery(Subquery { subquery: plan, outer_ref_columns, spans }) = subquery else {
        return Ok(Transformed::no(subquery));
    };
    let outside = outer_ref_columns.into_iter().map(|expr| Ok(renewed(expr)?.data));
    let outer_ref_columns = outside.collect::<Result<_>>()?;
    let plan = Arc::unwrap_or_clone(plan).transform_up(|node| node.map_expressions(renewed))?;
    Ok(plan.update_data(|plan| LogicalPlan::Subquery(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans })))
}

/// Visits every node of a plan, those of subqueries included.
pub fn visit_nodes(plan: &LogicalPlan, visit: &mut dyn FnMut(&LogicalPlan) -> Result<()>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        visit(node)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether an expression of a node, or a part of one, is what `test` looks for; subqueries are not looked into.
pub fn node_has(node: &LogicalPlan, test: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(test(expr)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Rewrites every node of a plan, subqueries included, from the leaves up. The schemas of the nodes above follow.
pub fn rewrite_nodes(
    plan: LogicalPlan,
    rewrite: &mut dyn FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    Ok(plan
        .transform_up_with_subqueries(|node| {
            let node = rewrite(node)?;
            if node.transformed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
        })?
        .data)
}

/// Rewrites an expression from the root down; what is put in place of a part is not looked at again.
pub fn replace_parts(expr: Expr, replace: &mut dyn FnMut(&Expr) -> Result<Option<Expr>>) -> Result<Expr> {
    Ok(expr
        .transform_down(|part| {
            Ok(match replace(&part)? {
                Some(new) => Transformed::new(new, true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        })?
        .data)
}

/// Rewrites an expression from the leaves up.
pub fn rewrite_expression(expr: Expr, rewrite: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>) -> Result<Expr> {
    Ok(expr.transform_up(rewrite)?.data)
}

/// Rewrites every expression of a plan, subqueries included, from the leaves up. The schemas of the nodes follow, their
/// names stay. A rewrite gets the columns that an expression refers to.
pub fn rewrite_plan(
    plan: LogicalPlan,
    rewrite: &mut dyn FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        let node = rewrite_node(node, rewrite)?;
        if node.transformed { node.map_data(LogicalPlan::recompute_schema) } else { Ok(node) }
    })?;
    Ok(rewritten.data)
}

/// Rewrites the expressions of one node; its schema stays as it was.
fn rewrite_node(
    node: LogicalPlan,
    rewrite: &mut dyn FnMut(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let columns = match (&node, node.inputs().as_slice()) {
        (LogicalPlan::TableScan(scan), _) => {
            Arc::new(DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?)
        }
        (_, [only]) => Arc::clone(only.schema()),
        (_, inputs) => Arc::new(merge_schema(inputs)),
    };
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|expr| rewrite(expr, &columns))?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
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

/// Changes a query's text in place.
pub trait RewriteQuery {
    /// A query, before what is in it.
    fn query(&mut self, query: &mut ast::Query);

    /// A SELECT, before what is in it.
    fn select(&mut self, select: &mut ast::Select);

    /// An expression, after what is in it.
    fn expression(&mut self, expr: &mut ast::Expr);
}

struct Rewriting<'a>(&'a mut dyn RewriteQuery);

impl VisitorMut for Rewriting<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        self.0.query(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        self.0.select(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        self.0.expression(expr);
        ControlFlow::Continue(())
    }
}

/// Changes a query and everything in it.
pub fn rewrite_query(query: &mut ast::Query, rewriter: &mut dyn RewriteQuery) {
    let _: ControlFlow<()> = query.visit(&mut Rewriting(rewriter));
}

/// Changes the expressions of one SELECT, but not those of queries within.
pub trait RewriteLevel {
    /// A query within, as a whole.
    fn query(&mut self, query: &mut ast::Query);

    /// An expression, after what is in it.
    fn expression(&mut self, expr: &mut ast::Expr);
}

/// What a level is changed in.
pub enum Level<'a> {
    Select(&'a mut ast::Select),
    Body(&'a mut ast::SetExpr),
    Expression(&'a mut ast::Expr),
}

struct RewritingLevel<'a> {
    rewriter: &'a mut dyn RewriteLevel,
    /// Queries that are around what is visited.
    depth: usize,
}

impl VisitorMut for RewritingLevel<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.rewriter.query(query);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if self.depth == 0 {
            self.rewriter.expression(expr);
        }
        ControlFlow::Continue(())
    }
}

/// Changes one level of a query.
pub fn rewrite_level(level: Level<'_>, rewriter: &mut dyn RewriteLevel) {
    let rewriting = &mut RewritingLevel { rewriter, depth: 0 };
    let _: ControlFlow<()> = match level {
        Level::Select(select) => select.visit(rewriting),
        Level::Body(body) => body.visit(rewriting),
        Level::Expression(expr) => expr.visit(rewriting),
    };
}
