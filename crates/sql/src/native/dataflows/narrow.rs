//! What a passed filter says to storage: conditions that let whole segments be left out, or an index find the rows.
//!
//! The filter itself still tests each row behind the scan; here only what is cheap for storage is said again. A build
//! side without keys leaves nothing to scan.

use std::sync::Arc;

use eris_operators::{PassedFilter, Pipeline, Step};
use eris_storage::{Comparison, Condition, DataType, Predicate, Test, Value};

use super::{PassedFilterPlan, StepPlan};
use crate::native::access::{Access, Bound};

/// Bounds are a condition for storage if they cover at most this share of the values that the attribute has.
const COVERED_SHARE_MAX: f64 = 0.8;

/// A request, narrowed by the filters with which the pipeline behind it begins.
pub(super) fn narrowed(bound: Bound, access: &Access, pipeline: &Pipeline, plans: &[StepPlan]) -> Bound {
    let Bound::Read(mut read) = bound else { return Bound::Nothing };
    let mut conditions = Vec::new();
    for (step, plan) in pipeline.steps.iter().zip(plans) {
        let (Step::Passed(filter), StepPlan::Passed(plan)) = (step, plan) else { break };
        if filter.filter().is_empty() {
            return Bound::Nothing;
        }
        conditions.extend(conditions_of(access, filter, plan));
    }
    if !conditions.is_empty() {
        let own = read.request.predicate.conditions.iter().cloned();
        read.request.predicate = Predicate::new(own.chain(conditions).collect::<Vec<_>>());
    }
    Bound::Read(read)
}

fn conditions_of(access: &Access, filter: &PassedFilter, plan: &PassedFilterPlan) -> Vec<Condition> {
    let attribute = access.desired[filter.column()];
    let data_type = access.table.columns[attribute.index()].sql_type.data_type();
    let value = |number: i64| value_of(number, data_type);
    let condition = |test| Condition { attribute, test };
    if access.leads_an_index(attribute)
        && let Some(few) = filter.filter().few_values()
        && let Some(values) = few.iter().map(|number| value(*number)).collect::<Option<Arc<[Value]>>>()
    {
        return vec![condition(Test::In(values))];
    }
    let (Some((low, high)), Some(spread)) = (filter.filter().bounds(), plan.spread) else { return Vec::new() };
    if covered_share((low, high), spread) > COVERED_SHARE_MAX {
        return Vec::new();
    }
    let at_least = value(low).map(|low| condition(Test::Compare(Comparison::GreaterOrEqual, low)));
    let at_most = value(high).map(|high| condition(Test::Compare(Comparison::LessOrEqual, high)));
    at_least.into_iter().chain(at_most).collect()
}

/// Which share of a range lies within bounds.
fn covered_share(bounds: (i64, i64), range: (i64, i64)) -> f64 {
    let length = |low: i64, high: i64| (high as f64 - low as f64 + 1.0).max(0.0);
    length(bounds.0.max(range.0), bounds.1.min(range.1)) / length(range.0, range.1).max(1.0)
}

/// A number as it lies in memory, as a value of a type; `None` if it is no number of 64 bits there.
fn value_of(number: i64, data_type: DataType) -> Option<Value> {
    Some(match data_type {
        DataType::Int16 => Value::Int16(i16::try_from(number).ok()?),
        DataType::Int32 => Value::Int32(i32::try_from(number).ok()?),
        DataType::Int64 => Value::Int64(number),
        DataType::Date => Value::Date(i32::try_from(number).ok()?),
        DataType::Timestamp => Value::Timestamp(number),
        DataType::Decimal { scale, .. } => Value::Decimal { unscaled: i128::from(number), scale },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_ranges() {
        let close = |bounds, range, share: f64| assert!((covered_share(bounds, range) - share).abs() < 1e-9);
        close((1, 10), (1, 10), 1.0);
        close((i64::MIN, i64::MAX), (1, 10), 1.0);
        close((3, 4), (1, 10), 0.2);
        close((8, 90), (1, 10), 0.3);
        close((11, 90), (1, 10), 0.0);
    }
}
