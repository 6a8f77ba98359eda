//! Semi, anti and mark joins with one inequality beside the keys: the least or the largest value of a key says what its
//! rows would.
//!
//! ```text
//!   LeftSemi Join: l.k = r.k, r.v <> l.v        LeftSemi Join: l.k = r.k, r.least <> l.v OR r.largest <> l.v
//!     l                                    ->     l
//!     r                                           Aggregate AS r: group by k, min(v) AS least, max(v) AS largest
//!                                                   r
//! ```
//! A row looks at one row of the other side instead of at all that have its key: where a key is very frequent on both
//! sides (Q21 of JCC-H), pairs of rows are too many to be looked at.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Dependency, NullEquality, Result, TableReference};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

const LEAST: &str = "__least";
const LARGEST: &str = "__largest";

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Extremes;

/// `value op bound`: a column of the inner side, and an expression over the outer one.
struct Inequality<'j> {
    value: &'j Column,
    op: Operator,
    bound: &'j Expr,
}

impl OptimizerRule for Extremes {
    fn name(&self) -> &'static str {
        "extremes"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let Some(functions) = config.function_registry() else {
            return datafusion::common::internal_err!("a plan is optimised without functions");
        };
        Ok(match summarised(&join, functions)? {
            Some(summarised) => Transformed::yes(LogicalPlan::Join(summarised)),
            None => Transformed::no(LogicalPlan::Join(join)),
        })
    }
}

/// The join with a summary of its inner side, if that says as much.
fn summarised(join: &Join, functions: &dyn FunctionRegistry) -> Result<Option<Join>> {
    let asks_for_rows = !matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark);
    if asks_for_rows || join.null_aware || join.null_equality != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    let (Some(inequality), Some(name), Some(keys)) = (inequality(join)?, only_name(join.right.schema()), keys(join))
    else {
        return Ok(None);
    };
    if has_one_row_a_key(&join.right, &keys)? {
        return Ok(None);
    }
    let of_key = |aggregate: &str, alias: &str| -> Result<Expr> {
        Ok(functions.udaf(aggregate)?.call(vec![Expr::Column(inequality.value.clone())]).alias(alias))
    };
    let mut aggregates = Vec::new();
    if !matches!(inequality.op, Operator::Gt | Operator::GtEq) {
        aggregates.push(of_key("min", LEAST)?);
    }
    if !matches!(inequality.op, Operator::Lt | Operator::LtEq) {
        aggregates.push(of_key("max", LARGEST)?);
    }
    let summary = LogicalPlanBuilder::from(Arc::clone(&join.right))
        .aggregate(keys.into_iter().map(Expr::Column), aggregates)?
        .alias(name.clone())?
        .build()?;
    let compared = |extreme: &str| {
        let extreme = Expr::Column(Column::new(Some(name.clone()), extreme));
        Expr::BinaryExpr(BinaryExpr::new(Box::new(extreme), inequality.op, Box::new(inequality.bound.clone())))
    };
    let condition = match inequality.op {
        Operator::NotEq => compared(LEAST).or(compared(LARGEST)),
        Operator::Lt | Operator::LtEq => compared(LEAST),
        _ => compared(LARGEST),
    };
    let (left, on, constraint) = (Arc::clone(&join.left), join.on.clone(), join.join_constraint);
    Join::try_new(
        left,
        Arc::new(summary),
        on,
        Some(condition),
        join.join_type,
        constraint,
        join.null_equality,
        join.null_aware,
    )
    .map(Some)
}

/// The join's condition beside its keys, if it is one inequality of values that have an order in which equal values are
/// the same value.
fn inequality(join: &Join) -> Result<Option<Inequality<'_>>> {
    let (outer, inner) = (join.left.schema(), join.right.schema());
    let Some(Expr::BinaryExpr(BinaryExpr { left, op, right })) = &join.filter else { return Ok(None) };
    let (value, op, bound) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column(value), bound) if inner.has_column(value) => (value, Some(*op), bound),
        (bound, Expr::Column(value)) if inner.has_column(value) => (value, op.swap(), bound),
        _ => return Ok(None),
    };
    let Some(op @ (Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)) = op else {
        return Ok(None);
    };
    let of_outer = !bound.is_volatile() && bound.column_refs().into_iter().all(|column| outer.has_column(column));
    let ordered = is_ordered(&Expr::Column(value.clone()).get_type(inner)?);
    Ok((of_outer && ordered).then_some(Inequality { value, op, bound }))
}

fn is_ordered(data_type: &ArrowType) -> bool {
    data_type.is_integer()
        || matches!(data_type, ArrowType::Decimal128(..) | ArrowType::Date32 | ArrowType::Timestamp(..))
        || data_type.is_string()
}

/// What all columns of a side are qualified by: the summary takes its place, and so does its mark.
fn only_name(schema: &DFSchema) -> Option<TableReference> {
    let mut names = schema.iter().map(|(name, _)| name);
    let first = names.next().flatten()?;
    names.all(|name| name == Some(first)).then(|| first.clone())
}

/// The keys of the inner side, each once, if all are columns.
fn keys(join: &Join) -> Option<Vec<Column>> {
    let mut keys: Vec<Column> = Vec::new();
    for (_, key) in &join.on {
        let Expr::Column(column) = key else { return None };
        if !keys.contains(column) {
            keys.push(column.clone());
        }
    }
    Some(keys)
}

/// Whether the inner side is known to have at most one row with the same keys: a summary, for one.
fn has_one_row_a_key(plan: &LogicalPlan, keys: &[Column]) -> Result<bool> {
    let schema = plan.schema();
    let keys = keys.iter().map(|key| schema.index_of_column(key)).collect::<Result<Vec<usize>>>()?;
    let unique = schema.functional_dependencies().iter().any(|dependency| {
        dependency.mode == Dependency::Single && dependency.source_indices.iter().all(|column| keys.contains(column))
    });
    Ok(unique || plan.max_rows().is_some_and(|rows| rows <= 1))
}
