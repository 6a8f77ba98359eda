//! Aggregates over one table.

use datafusion::logical_expr::expr::{AggregateFunction as AggregateExpr, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr};
use eris_operators::{AggregateCall, AggregateFunction, GroupCall};

use super::expressions::{Columns, lower, lower_all};
use super::query::lower_query;
use super::{Lowering, NotNative};
use crate::arrow_view::sql_type_of_arrow;
use crate::native::Node;

/// Aggregates run in the partitions if their input is a scan with filter and projection.
pub(super) fn lower_aggregate(aggregate: &Aggregate) -> Lowering<Node> {
    let columns = Columns::of(aggregate.input.schema());
    let Node::Scan { access, filter, projection } = lower_query(&aggregate.input)? else {
        return Err(NotNative::because("Aggregate over more than one table"));
    };
    if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        return Err(NotNative::because("GROUPING SETS"));
    }
    let groups = lower_all(&aggregate.group_expr, columns)?;
    let calls = aggregate
        .aggr_expr
        .iter()
        .enumerate()
        .map(|(at, expr)| {
            let field = aggregate.schema.field(aggregate.group_expr.len() + at);
            lower_call(expr, columns, sql_type_of_arrow(field.data_type())?.data_type())
        })
        .collect::<Lowering<Vec<AggregateCall>>>()?;
    Ok(Node::Aggregate { access, filter, projection, groups, calls: calls.into() })
}

/// An aggregate of whole groups in a partition: without DISTINCT and FILTER.
fn lower_call(expr: &Expr, columns: Columns<'_>, result: eris_storage::DataType) -> Lowering<AggregateCall> {
    let GroupCall { call, distinct: false, filter: None } = lower_group_call(expr, columns, result)? else {
        return Err(NotNative::because(format!("aggregate {expr}")));
    };
    Ok(call)
}

/// An aggregate over the columns given.
pub(in crate::plan) fn lower_group_call(
    expr: &Expr,
    columns: Columns<'_>,
    result: eris_storage::DataType,
) -> Lowering<GroupCall> {
    let Expr::AggregateFunction(AggregateExpr { func, params }) = unaliased(expr) else {
        return Err(NotNative::because(format!("aggregate {expr}")));
    };
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
    if !order_by.is_empty() || null_treatment.is_some() {
        return Err(NotNative::because(format!("aggregate {expr}")));
    }
    let Some(function) = aggregate_function(func.name()) else {
        return Err(NotNative::because(format!("aggregate {}", func.name())));
    };
    let call = match args.as_slice() {
        [Expr::Literal(value, _)] if function == AggregateFunction::Count && !value.is_null() && !distinct => {
            AggregateCall { function: AggregateFunction::CountAll, input: None, result }
        }
        [argument] => AggregateCall { function, input: Some(lower(argument, columns)?), result },
        _ => return Err(NotNative::because(format!("aggregate {expr}"))),
    };
    let filter = filter.as_ref().map(|filter| lower(filter, columns)).transpose()?;
    Ok(GroupCall { call, distinct: *distinct, filter })
}

/// The aggregate of this name, if there is an operator for it.
pub(in crate::plan) fn aggregate_function(name: &str) -> Option<AggregateFunction> {
    Some(match name {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        // Of two truth values false is the smaller one.
        "min" | "bool_and" => AggregateFunction::Min,
        "max" | "bool_or" => AggregateFunction::Max,
        "avg" => AggregateFunction::Average,
        _ => return None,
    })
}

/// An expression without the names that it was given.
pub(in crate::plan) fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}
