//! What the optimiser is told about a scan: rows after the filter, bounds and numbers of distinct values by column.
//!
//! Nothing here is exact, because deleted rows count until their segment is compacted, and what a filter keeps is
//! estimated from a sample; nothing is answered from it, it only decides which side of a join is built and the like.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use eris_engine::SnapshotHandle;
use eris_storage::{AttributeId, Batch, Comparison, Condition, DataType, PinnedSegment, Test, Value};

use super::sample::Sample;
use crate::plan::ScanTarget;

/// The share of rows that a test keeps when nothing is known.
const EQUAL_SHARE: f64 = 0.05;
const RANGE_SHARE: f64 = 0.33;
const PREFIX_SHARE: f64 = 0.1;

pub(super) fn scan_statistics(
    target: &ScanTarget,
    segments: &[Arc<PinnedSegment>],
    open: &[Batch],
    schema: &SchemaRef,
    snapshot: &SnapshotHandle,
) -> Statistics {
    let sealed: f64 = segments.iter().map(|segment| f64::from(segment.rows())).sum();
    let share = share(target, segments, sealed, snapshot);
    let open_rows: usize = open.iter().map(|batch| batch.rows).sum();
    let rows = (sealed * share).ceil() as usize + open_rows;
    let columns = target
        .request
        .desired
        .iter()
        .map(|attribute| {
            let mut column = ColumnStatistics::new_unknown();
            let bounds = bounds(*attribute, segments);
            if let Some(distinct) = distinct(*attribute, target, bounds.as_ref(), sealed + open_rows as f64) {
                column.distinct_count = Precision::Inexact((distinct as usize).min(rows.max(1)));
            }
            if open.is_empty()
                && let Some((low, high)) = bounds
                && let (Some(low), Some(high)) = (scalar(&low, *attribute, target), scalar(&high, *attribute, target))
            {
                column.min_value = Precision::Inexact(low);
                column.max_value = Precision::Inexact(high);
            }
            column
        })
        .collect();
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Inexact(rows);
    statistics.total_byte_size = Precision::Inexact(rows * row_bytes(target));
    statistics.column_statistics = columns;
    statistics
}

/// About how many bytes a row takes in Arrow's layout.
fn row_bytes(target: &ScanTarget) -> usize {
    let types = target.request.desired.iter().map(|attribute| target.table.columns[attribute.index()].sql_type);
    types
        .map(|sql_type| {
            sql_type.data_type().physical().width() + if sql_type.data_type().is_variable_length() { 16 } else { 0 }
        })
        .sum::<usize>()
        .max(1)
}

fn bounds(attribute: AttributeId, segments: &[Arc<PinnedSegment>]) -> Option<(Value, Value)> {
    let mut all: Option<(Value, Value)> = None;
    for segment in segments {
        let Some((low, high)) = segment.segment().bounds(attribute) else { continue };
        all = Some(match all {
            None => (low.clone(), high.clone()),
            Some((least, most)) => (least.min(low.clone()), most.max(high.clone())),
        });
    }
    all
}

/// A value as a number, for interpolation.
fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::Int16(v) => f64::from(*v),
        Value::Int32(v) | Value::Date(v) => f64::from(*v),
        Value::Int64(v) | Value::Timestamp(v) => *v as f64,
        Value::Decimal { unscaled, scale } => *unscaled as f64 / 10_f64.powi(i32::from(*scale)),
        Value::Float32(v) => f64::from(*v),
        Value::Float64(v) => *v,
        _ => return None,
    })
}

/// At most how many different values a column has.
fn distinct(attribute: AttributeId, target: &ScanTarget, bounds: Option<&(Value, Value)>, rows: f64) -> Option<f64> {
    let schema = &target.table.schema;
    let alone = schema.indexes.iter().any(|index| index.unique && *index.attributes == [attribute]);
    if alone {
        return Some(rows);
    }
    let (low, high) = bounds?;
    match (low, high) {
        (Value::Int16(_) | Value::Int32(_) | Value::Int64(_) | Value::Date(_), _) => {
            Some((number(high)? - number(low)? + 1.0).min(rows))
        }
        _ => None,
    }
}

fn scalar(value: &Value, attribute: AttributeId, target: &ScanTarget) -> Option<ScalarValue> {
    let data_type = target.table.columns[attribute.index()].sql_type.data_type();
    Some(match (value, data_type) {
        (Value::Int16(v), _) => ScalarValue::Int16(Some(*v)),
        (Value::Int32(v), _) => ScalarValue::Int32(Some(*v)),
        (Value::Int64(v), _) => ScalarValue::Int64(Some(*v)),
        (Value::Date(v), _) => ScalarValue::Date32(Some(*v)),
        (Value::Timestamp(v), _) => ScalarValue::TimestampMicrosecond(Some(*v), None),
        (Value::Decimal { unscaled, .. }, DataType::Decimal { precision, scale }) => {
            ScalarValue::Decimal128(Some(*unscaled), precision, scale as i8)
        }
        (Value::Float32(v), _) => ScalarValue::Float32(Some(*v)),
        (Value::Float64(v), _) => ScalarValue::Float64(Some(*v)),
        _ => return None,
    })
}

/// Which share of the rows the conditions keep. A sample sees what bounds cannot, how often a value occurs and which
/// conditions go together; of what is too rare for it, the bounds may say that it is rarer still.
fn share(target: &ScanTarget, segments: &[Arc<PinnedSegment>], sealed: f64, snapshot: &SnapshotHandle) -> f64 {
    let conditions = &target.request.predicate.conditions;
    if conditions.is_empty() {
        return 1.0;
    }
    let by_bounds: f64 = conditions.iter().map(|condition| selectivity(condition, target, segments, sealed)).product();
    let sample = Sample::take(target, segments, snapshot);
    match (sample.examined, sample.rows()) {
        (0, _) => by_bounds,
        (examined, 0) => by_bounds.min(1.0 / examined as f64),
        (examined, rows) => rows as f64 / examined as f64,
    }
}

fn selectivity(condition: &Condition, target: &ScanTarget, segments: &[Arc<PinnedSegment>], rows: f64) -> f64 {
    let bounds = bounds(condition.attribute, segments);
    let equal = || match distinct(condition.attribute, target, bounds.as_ref(), rows) {
        Some(distinct) if distinct >= 1.0 => 1.0 / distinct,
        _ => EQUAL_SHARE,
    };
    match &condition.test {
        Test::Compare(Comparison::Equal, _) => equal(),
        Test::Compare(Comparison::NotEqual, _) => 1.0 - equal(),
        Test::Compare(comparison, value) => {
            let position = bounds.as_ref().and_then(|(low, high)| {
                let (low, high, at) = (number(low)?, number(high)?, number(value)?);
                (high > low).then(|| ((at - low) / (high - low)).clamp(0.0, 1.0))
            });
            match (position, comparison) {
                (Some(position), Comparison::Less | Comparison::LessOrEqual) => position,
                (Some(position), _) => 1.0 - position,
                (None, _) => RANGE_SHARE,
            }
        }
        Test::In(values) => (equal() * values.len() as f64).min(1.0),
        Test::IsNull => EQUAL_SHARE,
        Test::IsNotNull => 1.0,
        Test::CompareAttribute(Comparison::Equal, _) => EQUAL_SHARE,
        Test::CompareAttribute(..) => RANGE_SHARE,
        Test::StartsWith(_) => PREFIX_SHARE,
    }
}
