//! Joins by key: few outer rows, and for each of them the rows of a table with that key.

use std::sync::Arc;

use datafusion::common::{Column, NullEquality};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Projection, SubqueryAlias, TableScan};
use eris_operators::Expression;
use eris_storage::{AttributeId, Comparison};

use super::expressions::{Columns, lower};
use super::query::{access_of, lower_query};
use super::{Lowering, NotNative};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::{Access, ConditionTemplate, Expected, Node, Slot, TestTemplate};

/// Tries the left side as the outer one, then the right.
pub(super) fn lower_join(join: &Join) -> Lowering<Node> {
    let left_join = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        other => return Err(NotNative::because(format!("{other} Join"))),
    };
    if join.null_equality != NullEquality::NullEqualsNothing || join.null_aware {
        return Err(NotNative::because("a join in which NULL equals NULL"));
    }
    let on: Vec<(&Expr, &Expr)> = join.on.iter().map(|(left, right)| (left, right)).collect();
    let forward = by_key(join, &join.left, &join.right, &on, left_join);
    if forward.is_ok() || left_join {
        return forward;
    }
    let swapped: Vec<(&Expr, &Expr)> = on.iter().map(|(left, right)| (*right, *left)).collect();
    let node = by_key(join, &join.right, &join.left, &swapped, false)?;
    // Columns are right then left; bring them back into the join's order.
    let (right, left) = (join.right.schema().fields().len(), join.left.schema().fields().len());
    let types = node.types();
    let expressions: Arc<[Expression]> = (right..right + left)
        .chain(0..right)
        .map(|index| Expression::Column { index, data_type: types[index] })
        .collect();
    Ok(Node::Project { input: Box::new(node), expressions })
}

fn by_key(
    join: &Join,
    outer: &LogicalPlan,
    inner: &LogicalPlan,
    on: &[(&Expr, &Expr)],
    left_join: bool,
) -> Lowering<Node> {
    let outer_node = lower_query(outer)?;
    if !outer_node.is_small() {
        return Err(NotNative::because("Join of many rows"));
    }
    let outer_columns = Columns::of(outer.schema());
    let width = outer.schema().fields().len();
    let (scan, residual) = inner_scan(inner)?;
    let mut access: Access = access_of(scan)?;
    for (outer_expr, inner_expr) in on {
        let (Expr::Column(outer_column), Expr::Column(inner_column)) = (outer_expr, inner_expr) else {
            return Err(NotNative::because("a join on expressions"));
        };
        let attribute = attribute_of(inner_column, &access)?;
        let data_type = access.table.columns[attribute.index()].sql_type.data_type();
        let position = outer_columns.position(outer_column)?;
        let given = sql_type_of_arrow(outer.schema().field(position).data_type())?.data_type();
        if given != data_type {
            return Err(NotNative::because("a join of columns of different types"));
        }
        let test = TestTemplate::Compare(Comparison::Equal, Slot::Outer(position));
        access.conditions.push(ConditionTemplate { attribute, data_type, test });
    }
    if access.expected() == Expected::Many {
        return Err(NotNative::because("Join without a key of the inner table"));
    }
    if inner.schema().fields().len() != access.desired.len() {
        return Err(NotNative::because("Join with a computed inner table"));
    }
    let mut filters = Vec::new();
    for expr in residual {
        filters.push(lower(expr, Columns { schema: inner.schema(), offset: width, map: None })?);
    }
    if let Some(expr) = &join.filter {
        let combined = outer.schema().join(inner.schema()).map_err(NotNative::because)?;
        filters.push(lower(expr, Columns::of(&combined))?);
    }
    let filter = match filters.len() {
        0 => None,
        1 => filters.pop(),
        _ => Some(Expression::And(filters.into())),
    };
    Ok(Node::KeyJoin { outer: Box::new(outer_node), inner: access, filter: filter.map(Arc::new), left: left_join })
}

/// The scan below aliases and filters, and the filters that storage does not evaluate.
fn inner_scan(plan: &LogicalPlan) -> Lowering<(&TableScan, Vec<&Expr>)> {
    match plan {
        LogicalPlan::TableScan(scan) => Ok((scan, Vec::new())),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => inner_scan(input),
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let (scan, mut filters) = inner_scan(input)?;
            filters.push(predicate);
            Ok((scan, filters))
        }
        LogicalPlan::Projection(Projection { .. }) => Err(NotNative::because("Join with a computed inner table")),
        _ => Err(NotNative::because("Join with an inner side that is not a table")),
    }
}

fn attribute_of(column: &Column, access: &Access) -> Lowering<AttributeId> {
    access
        .table
        .column(&column.name)
        .map(|(attribute, _)| attribute)
        .ok_or_else(|| NotNative::because(format!("column {column}")))
}
