//! Windows, slowly: for each row every row of its partition is asked whether it is in the frame.

use std::cmp::Ordering;

use eris_storage::Value;

use crate::aggregate::AggregateFunction;
use crate::sort::{SortKey, SortKeys};
use crate::window::{Frame, FrameBound, FrameUnit, WindowCall, WindowFunction};

type Row = Vec<Value>;

fn compare_by(key: SortKey, a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) if key.nulls_first => Ordering::Less,
        (true, false) => Ordering::Greater,
        (false, true) => compare_by(key, b, a).reverse(),
        (false, false) if key.descending => b.cmp(a),
        (false, false) => a.cmp(b),
    }
}

fn compare(keys: &[SortKey], a: &Row, b: &Row) -> Ordering {
    let each = keys.iter().map(|key| compare_by(*key, &a[key.column], &b[key.column]));
    each.fold(Ordering::Equal, Ordering::then)
}

/// The kept columns and the results of all rows, in the order of the keys.
pub fn expected(
    rows: &[Row],
    keys: &SortKeys,
    partition_keys: usize,
    kept: &[usize],
    calls: &[WindowCall],
) -> Vec<Row> {
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| compare(&keys.0, a, b));
    let (by, order) = keys.0.split_at(partition_keys);
    let mut results = Vec::new();
    for partition in sorted.chunk_by(|a, b| compare(by, a, b) == Ordering::Equal) {
        let mut groups = vec![0];
        for pair in partition.windows(2) {
            let is_new = compare(order, &pair[0], &pair[1]) != Ordering::Equal;
            groups.push(groups[groups.len() - 1] + usize::from(is_new));
        }
        for (at, row) in partition.iter().enumerate() {
            let own = kept.iter().map(|column| row[*column].clone());
            let view = Partition { rows: partition, groups: &groups, at };
            results.push(own.chain(calls.iter().map(|call| view.result(call))).collect());
        }
    }
    results
}

/// A row among those of its partition.
struct Partition<'a> {
    rows: &'a [Row],
    /// The number of each row's group.
    groups: &'a [usize],
    at: usize,
}

impl Partition<'_> {
    /// How far a row is behind this one, in the unit of the frame.
    fn distance(&self, unit: FrameUnit, row: usize) -> i64 {
        match unit {
            FrameUnit::Rows => row as i64 - self.at as i64,
            FrameUnit::Groups => self.groups[row] as i64 - self.groups[self.at] as i64,
        }
    }

    fn is_in(&self, frame: &Frame, row: usize) -> bool {
        let distance = self.distance(frame.unit, row);
        let by_value = |key: SortKey, bound: usize, beyond: Ordering| {
            let (mine, other) = (&self.rows[self.at][key.column], &self.rows[row][key.column]);
            match (mine.is_null(), other.is_null()) {
                (true, other_is_null) => other_is_null || (key.nulls_first == (beyond == Ordering::Less)),
                // A NULL beside values is where NULLs are.
                (false, true) => key.nulls_first != (beyond == Ordering::Less),
                (false, false) => compare_by(key, other, &self.rows[self.at][bound]) != beyond,
            }
        };
        let from_start = match frame.start {
            FrameBound::Unbounded => true,
            FrameBound::Current => distance >= 0,
            FrameBound::Preceding(count) => distance >= -(count as i64),
            FrameBound::Following(count) => distance >= count as i64,
            FrameBound::Value { key, bound } => by_value(key, bound, Ordering::Less),
        };
        let to_end = match frame.end {
            FrameBound::Unbounded => true,
            FrameBound::Current => distance <= 0,
            FrameBound::Preceding(count) => distance <= -(count as i64),
            FrameBound::Following(count) => distance <= count as i64,
            FrameBound::Value { key, bound } => by_value(key, bound, Ordering::Greater),
        };
        from_start && to_end
    }

    fn integer(&self, row: usize, column: usize) -> Option<i64> {
        match self.rows[row][column] {
            Value::Int16(value) => Some(value.into()),
            Value::Int32(value) => Some(value.into()),
            Value::Int64(value) => Some(value),
            _ => None,
        }
    }

    fn result(&self, call: &WindowCall) -> Value {
        let count = self.rows.len();
        let frame: Vec<&Row> =
            (0..count).filter(|row| self.is_in(&call.frame, *row)).map(|row| &self.rows[row]).collect();
        let group = self.groups[self.at];
        let before = self.groups.iter().filter(|other| **other < group).count();
        let up_to = self.groups.iter().filter(|other| **other <= group).count();
        let of = |row: Option<&&Row>, column: usize| row.map_or(Value::Null, |row| row[column].clone());
        match call.function {
            WindowFunction::RowNumber => Value::Int64(self.at as i64 + 1),
            WindowFunction::Rank => Value::Int64(before as i64 + 1),
            WindowFunction::DenseRank => Value::Int64(group as i64 + 1),
            WindowFunction::PercentRank => {
                Value::Float64(if count == 1 { 0.0 } else { before as f64 / (count - 1) as f64 })
            }
            WindowFunction::CumeDist => Value::Float64(up_to as f64 / count as f64),
            WindowFunction::Ntile { buckets } => {
                let first = (0..=self.at).find_map(|row| Some((row, self.integer(row, buckets)?)));
                let Some((first, buckets)) = first else { return Value::Null };
                // Rows are dealt out one after the other; the first buckets come first.
                let mut sizes = vec![0; buckets as usize];
                (0..count).for_each(|row| sizes[row % buckets as usize] += 1);
                let mut end = 0;
                let ends = sizes.iter().map(|size| {
                    end += size;
                    end
                });
                Value::Int32(ends.take_while(|end| *end <= self.at - first).count() as i32 + 1)
            }
            WindowFunction::Shift { value, offset, default, ahead } => {
                let offset = offset.map_or(Some(1), |offset| self.integer(self.at, offset));
                let Some(offset) = offset else { return Value::Null };
                let target = self.at as i64 + if ahead { offset } else { -offset };
                match usize::try_from(target).ok().and_then(|target| self.rows.get(target)) {
                    Some(row) => row[value].clone(),
                    None => default.map_or(Value::Null, |default| self.rows[self.at][default].clone()),
                }
            }
            WindowFunction::FirstValue { value } => of(frame.first(), value),
            WindowFunction::LastValue { value } => of(frame.last(), value),
            WindowFunction::NthValue { value, number } => {
                let number = self.integer(self.at, number);
                number.map_or(Value::Null, |number| of(frame.get(number as usize - 1), value))
            }
            WindowFunction::Aggregate { function: AggregateFunction::CountAll, .. } => Value::Int64(frame.len() as i64),
            WindowFunction::Aggregate { function, input } => {
                let values = frame.iter().map(|row| &row[input.unwrap()]).filter(|value| !value.is_null());
                aggregate(function, values.collect(), call)
            }
        }
    }
}

fn aggregate(function: AggregateFunction, values: Vec<&Value>, call: &WindowCall) -> Value {
    let count = values.len();
    let average = function == AggregateFunction::Average;
    match function {
        AggregateFunction::CountAll | AggregateFunction::Count => return Value::Int64(count as i64),
        AggregateFunction::Min => return values.into_iter().min().cloned().unwrap_or(Value::Null),
        AggregateFunction::Max => return values.into_iter().max().cloned().unwrap_or(Value::Null),
        AggregateFunction::Sum | AggregateFunction::Average => {}
    }
    if count == 0 {
        return Value::Null;
    }
    if let Value::Float64(_) = values[0] {
        let numbers = values.iter().map(|value| if let Value::Float64(value) = value { *value } else { f64::NAN });
        let sum: f64 = numbers.sum();
        return Value::Float64(if average { sum / count as f64 } else { sum });
    }
    let exact = values.iter().map(|value| match value {
        Value::Int32(value) => i128::from(*value),
        Value::Decimal { unscaled, .. } => *unscaled,
        other => panic!("a sum of {other}"),
    });
    let (sum, scale) = (exact.sum::<i128>(), if let Value::Decimal { scale, .. } = values[0] { *scale } else { 0 });
    let eris_storage::DataType::Decimal { scale: wanted, .. } = call.result else { return Value::Int64(sum as i64) };
    let scaled = sum * 10_i128.pow(u32::from(wanted - scale));
    let unscaled = if average {
        let count = count as i128;
        // Half away from zero.
        (2 * scaled.abs() + count) / (2 * count) * scaled.signum()
    } else {
        scaled
    };
    Value::Decimal { unscaled, scale: wanted }
}
