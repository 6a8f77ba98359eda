//! Semi, anti and mark joins with one inequality beside the keys: the least or the largest value of a key says what its
//! rows would.
//!
//! ```text
//!   Semi   #0 = #4, #5 <> #1           Semi   #0 = #6, #7 <> #1 or #8 <> #1
//!     l                         ->       l
//!     r                                  Aggregate  #7 = min(#5), #8 = max(#5) by #6 = #4
//!                                          r
//! ```
//! A row looks at one row of the other side instead of at all that have its key: where a key is very frequent on both
//! sides, pairs of rows are too many to be looked at.

use eris_operators::flipped;
use eris_storage::{Comparison, DataType};

use crate::aggregates::aggregate_of;
use crate::operators::Kernel;
use crate::relation::{Aggregate, AggregateItem, Join, JoinKind, Projected, Relation, TypedColumn};
use crate::resolve::resolve;
use crate::scalar::{ColumnId, Scalar, ScalarKind};

/// See the module's documentation. New columns are numbered from `next` on.
pub fn extremes(relation: Relation, next: &mut u32) -> Relation {
    let mut relation = relation.map_inputs(&mut |input| extremes(input, next));
    if let Relation::Join(join) = &mut relation
        && let Some(inequality) = inequality(join)
        && let Some((keys, condition, summary)) = summarised(join, &inequality, next)
    {
        let rows = std::mem::replace(&mut join.right, Relation::OneRow);
        join.right = Relation::Aggregate(Box::new(Aggregate { input: rows, ..summary }));
        for ((_, key), column) in join.keys.iter_mut().zip(keys) {
            *key = Scalar::column(column, key.sql_type);
        }
        join.condition = Some(condition);
    }
    relation
}

/// `value op bound`: a column of the inner side, and a scalar of the outer one.
struct Inequality {
    value: Scalar,
    /// The name of the operator.
    op: &'static str,
    bound: Scalar,
}

/// The condition of a join beside its keys, if it is one inequality of values that have an order in which equal values
/// are the same value.
fn inequality(join: &Join) -> Option<Inequality> {
    let asks_for_rows = !matches!(
        join.kind,
        JoinKind::Semi | JoinKind::Anti { null_aware: false } | JoinKind::Mark { null_aware: false, .. }
    );
    if asks_for_rows || join.null_equal || join.keys.iter().any(|(_, key)| key.as_column().is_none()) {
        return None;
    }
    if matches!(join.right, Relation::Aggregate(_)) {
        // There is one row for each key, or nearly so.
        return None;
    }
    let ScalarKind::Call { operator, operands } = &join.condition.as_ref()?.kind else { return None };
    let (Kernel::Compare(comparison), [left, right]) = (operator.kernel, operands.as_slice()) else { return None };
    let inner = join.right.columns();
    let is_value = |scalar: &Scalar| scalar.as_column().is_some_and(|column| inner.contains(&column));
    let (value, comparison, bound) = if is_value(left) {
        (left, comparison, right)
    } else if is_value(right) {
        (right, flipped(comparison), left)
    } else {
        return None;
    };
    let outer = join.left.columns();
    let mut is_of_outer = !bound.is_volatile();
    bound.columns(&mut |column| is_of_outer &= outer.contains(&column));
    let op = match comparison {
        Comparison::Equal => return None,
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    };
    let is_ordered = match value.sql_type.data_type() {
        DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Decimal { .. }
        | DataType::Date
        | DataType::Timestamp
        | DataType::Text => true,
        DataType::Boolean | DataType::Float32 | DataType::Float64 | DataType::Bytes => false,
    };
    (is_of_outer && is_ordered).then(|| Inequality { value: value.clone(), op, bound: bound.clone() })
}

/// For each key of a join its column of the summary, the condition on the summary, and the summary but for its rows.
fn summarised(join: &Join, inequality: &Inequality, next: &mut u32) -> Option<(Vec<ColumnId>, Scalar, Aggregate)> {
    let Inequality { value, op, bound } = inequality;
    let mut new_column = || {
        *next += 1;
        ColumnId(*next - 1)
    };
    let mut groups: Vec<Projected> = Vec::new();
    let mut keys = Vec::with_capacity(join.keys.len());
    for (_, key) in &join.keys {
        let known = groups.iter().find(|group| group.value.is_same(key)).map(|group| group.column);
        keys.push(known.unwrap_or_else(|| {
            let column = new_column();
            groups.push(Projected { column, value: key.clone() });
            column
        }));
    }
    let mut calls = Vec::new();
    let mut conditions = Vec::new();
    for (name, is_asked) in [("min", !op.starts_with('>')), ("max", op.starts_with('>') || *op == "<>")] {
        if !is_asked {
            continue;
        }
        let signature = aggregate_of(name, value.sql_type)?;
        let result = TypedColumn { column: new_column(), sql_type: signature.result };
        let (function, argument) = (signature.function, Some(value.clone().cast(signature.argument)));
        calls.push(AggregateItem { result, function, argument, distinct: false, filter: None });
        let operator = resolve(op, &[signature.result.kind(), bound.sql_type.kind()]).ok()?;
        let operands = vec![Scalar::column(result.column, result.sql_type), bound.clone()];
        conditions.push(Scalar::condition(ScalarKind::Call { operator, operands }));
    }
    let condition = if conditions.len() == 1 { conditions.remove(0) } else { Scalar::or(conditions) };
    Some((keys, condition, Aggregate { input: Relation::OneRow, groups, calls, sets: None }))
}
