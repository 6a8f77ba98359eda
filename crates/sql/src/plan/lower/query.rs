//! Plan nodes that only compute: projections, filters, limits, sorts over native plans.

use std::sync::Arc;

use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Filter, Limit, LogicalPlan, Projection, Sort, SortExpr, SubqueryAlias, TableScan,
};
use eris_operators::{Expression, SortKey, SortKeys};
use eris_storage::{AttributeId, DataType};

use super::aggregate::lower_aggregate;
use super::conditions::condition_of;
use super::expressions::{Columns, lower, lower_all, lower_constant};
use super::join::lower_join;
use super::{Lowering, NotNative};
use crate::arrow_view::sql_type_of_arrow;
use crate::catalog::Table;
use crate::native::{Access, ConditionTemplate, Node, Slot, SortSpec};
use crate::plan::source::TableSourceProvider;

/// The native plan of an optimised logical plan.
pub fn lower_query(plan: &LogicalPlan) -> Lowering<Node> {
    match plan {
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let node = lower_query(input)?;
            project(node, lower_all(expr, Columns::of(input.schema()))?)
        }
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let node = lower_query(input)?;
            Ok(filter(node, lower(predicate, Columns::of(input.schema()))?))
        }
        LogicalPlan::TableScan(scan) => lower_scan(scan),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => lower_query(input),
        LogicalPlan::Limit(Limit { skip, fetch, input }) => {
            let node = lower_query(input)?;
            let slot = |expr: &Option<Box<Expr>>| expr.as_ref().map(|expr| limit_slot(expr)).transpose();
            Ok(Node::Limit { input: Box::new(node), skip: slot(skip)?, fetch: slot(fetch)? })
        }
        LogicalPlan::Sort(Sort { expr, input, fetch }) => lower_sort(expr, input, *fetch),
        LogicalPlan::Aggregate(aggregate) => lower_aggregate(aggregate),
        LogicalPlan::Join(join) => lower_join(join),
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row, schema }) => {
            let types = schema
                .fields()
                .iter()
                .map(|field| Ok(sql_type_of_arrow(field.data_type())?.data_type()))
                .collect::<Lowering<Vec<DataType>>>()?;
            let rows: Arc<[Arc<[Expression]>]> = if *produce_one_row { [Arc::from([])].into() } else { [].into() };
            Ok(Node::Values { rows, types: types.into() })
        }
        LogicalPlan::Values(values) => {
            let empty = datafusion::common::DFSchema::empty();
            let rows = values
                .values
                .iter()
                .map(|row| lower_all(row, Columns::of(&empty)))
                .collect::<Lowering<Vec<Arc<[Expression]>>>>()?;
            let types = values
                .schema
                .fields()
                .iter()
                .map(|field| Ok(sql_type_of_arrow(field.data_type())?.data_type()))
                .collect::<Lowering<Vec<DataType>>>()?;
            Ok(Node::Values { rows: rows.into(), types: types.into() })
        }
        other => Err(NotNative::because(node_name(other))),
    }
}

/// What a node that is not native is called in EXPLAIN and refusals.
pub(in crate::plan) fn node_name(plan: &LogicalPlan) -> String {
    let text = plan.display().to_string();
    text.split([':', ' ']).next().unwrap_or("plan").to_string()
}

/// The table behind a scan, if it is one of ours.
pub(in crate::plan) fn table_of(scan: &TableScan) -> Lowering<Arc<Table>> {
    let provider = source_as_provider(&scan.source).map_err(NotNative::because)?;
    match provider.downcast_ref::<TableSourceProvider>() {
        Some(source) => Ok(Arc::clone(source.table())),
        None => Err(NotNative::because(format!("scan of the view {}", scan.table_name))),
    }
}

/// The attributes that a scan yields.
pub(super) fn desired_of(scan: &TableScan, table: &Table) -> Arc<[AttributeId]> {
    match &scan.projection {
        Some(projection) => projection.iter().map(|position| AttributeId(*position as u16)).collect(),
        None => table.attributes(),
    }
}

/// The conditions of filters that storage evaluates.
pub(in crate::plan) fn access_conditions(filters: &[Expr], table: &Table) -> Lowering<Vec<ConditionTemplate>> {
    let mut conditions = Vec::new();
    for expr in filters {
        let own = condition_of(expr, table).ok_or_else(|| NotNative::because(format!("filter {expr}")))?;
        conditions.extend(own);
    }
    Ok(conditions)
}

/// The access of a scan; its filters must all be evaluable by storage.
pub(super) fn access_of(scan: &TableScan) -> Lowering<Access> {
    let table = table_of(scan)?;
    let conditions = access_conditions(&scan.filters, &table)?;
    let desired = desired_of(scan, &table);
    Ok(Access { table, conditions, desired, order: None })
}

fn lower_scan(scan: &TableScan) -> Lowering<Node> {
    let node = Node::Scan { access: access_of(scan)?, filter: None, projection: None };
    // What the optimiser pushed into a scan is a hint to it; the limit itself stays above.
    Ok(node)
}

/// Puts a projection on a node; into the scan itself where that is possible.
fn project(node: Node, expressions: Arc<[Expression]>) -> Lowering<Node> {
    Ok(match node {
        Node::Scan { access, filter, projection: None } => Node::Scan { access, filter, projection: Some(expressions) },
        Node::Values { rows, types } if types.is_empty() && rows.len() == 1 => {
            let types = expressions.iter().map(Expression::data_type).collect();
            Node::Values { rows: [expressions].into(), types }
        }
        other => Node::Project { input: Box::new(other), expressions },
    })
}

fn filter(node: Node, condition: Expression) -> Node {
    match node {
        Node::Scan { access, filter: None, projection: None } => {
            Node::Scan { access, filter: Some(Arc::new(condition)), projection: None }
        }
        other => Node::Filter { input: Box::new(other), condition: Arc::new(condition) },
    }
}

/// OFFSET or LIMIT.
pub(in crate::plan) fn limit_slot(expr: &Expr) -> Lowering<Slot> {
    let expression = lower_constant(expr)?;
    Ok(match super::expressions::constant_value(&expression) {
        Some(value) => Slot::Constant(value),
        None => Slot::Expression(expression),
    })
}

fn lower_sort(keys: &[SortExpr], input: &LogicalPlan, fetch: Option<usize>) -> Lowering<Node> {
    let node = lower_query(input)?;
    if !node.is_small() {
        return Err(NotNative::because("Sort of many rows"));
    }
    let columns = Columns::of(input.schema());
    let keys = keys
        .iter()
        .map(|key| match lower(&key.expr, columns)? {
            Expression::Column { index, .. } => {
                Ok(SortKey { column: index, descending: !key.asc, nulls_first: key.nulls_first })
            }
            _ => Err(NotNative::because(format!("Sort by the expression {}", key.expr))),
        })
        .collect::<Lowering<Vec<SortKey>>>()?;
    Ok(Node::Sort { input: Box::new(node), spec: SortSpec { keys: SortKeys(keys.into()), fetch } })
}
