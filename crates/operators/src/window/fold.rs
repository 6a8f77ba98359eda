//! The aggregates of frames: what a tree's states are.

use std::cmp::Ordering;
use std::ops::Range;

use eris_storage::{Bitmap, Column, ColumnBuilder, DataType, Value, Values};

use super::frame::Frames;
use super::tree::{Fold, Folding, Tree};
use super::{Frame, FrameBound, FrameUnit, Runner};
use crate::aggregate::{AggregateFunction, average_of, overflow, sum_of};
use crate::error::OperatorError;
use crate::sort::compare_values;

/// The tree of an aggregate of a column of so many rows.
pub(super) fn folding(
    function: AggregateFunction,
    column: Column,
    rows: usize,
) -> Result<Box<dyn Folding>, OperatorError> {
    let average = function == AggregateFunction::Average;
    Ok(match function {
        AggregateFunction::CountAll | AggregateFunction::Count => Box::new(Tree::new(Count(column), rows)),
        AggregateFunction::Min => Box::new(Tree::new(Extreme { column, wanted: Ordering::Less }, rows)),
        AggregateFunction::Max => Box::new(Tree::new(Extreme { column, wanted: Ordering::Greater }, rows)),
        AggregateFunction::Sum | AggregateFunction::Average => match (column.data_type, &column.values) {
            (_, Values::Float32(_) | Values::Float64(_)) => Box::new(Tree::new(Approximate { column, average }, rows)),
            (DataType::Decimal { scale, .. }, _) => Box::new(Tree::new(Exact { column, scale, average }, rows)),
            (DataType::Int16 | DataType::Int32 | DataType::Int64, _) => {
                Box::new(Tree::new(Exact { column, scale: 0, average }, rows))
            }
            (other, _) => return Err(OperatorError::Internal(format!("a sum of {other}"))),
        },
    })
}

/// Whether frames are so short that whole nodes are never asked for.
pub(super) fn are_short(frame: &Frame) -> bool {
    const SHORT_ROWS: u64 = 16;
    let is_near = |bound: FrameBound| match bound {
        FrameBound::Current => true,
        FrameBound::Preceding(count) | FrameBound::Following(count) => count < SHORT_ROWS,
        FrameBound::Unbounded | FrameBound::Value { .. } => false,
    };
    frame.unit == FrameUnit::Rows && is_near(frame.start) && is_near(frame.end)
}

/// count(*): as many as the frame has rows.
#[derive(Debug)]
pub(super) struct Lengths<'a>(pub Frames<'a>);

impl Runner for Lengths<'_> {
    fn column(&mut self, rows: Range<usize>) -> Result<Column, OperatorError> {
        let lengths = rows.map(|row| self.0.of(row).len() as i64).collect();
        Ok(Column { data_type: DataType::Int64, validity: None, values: Values::Int64(lengths) })
    }
}

/// Values that are not NULL.
#[derive(Debug)]
struct Count(Column);

impl Fold for Count {
    type State = i64;

    fn add(&self, state: &mut i64, rows: Range<usize>) {
        *state += match &self.0.validity {
            None => rows.len() as i64,
            Some(valid) => rows.filter(|row| valid.get(*row)).count() as i64,
        };
    }

    fn merge(&self, state: &mut i64, next: &i64) {
        *state += next;
    }

    fn remove(&self, state: &mut i64, rows: Range<usize>) -> bool {
        let mut removed = 0;
        self.add(&mut removed, rows);
        *state -= removed;
        true
    }

    fn push(&self, state: &i64, _result: DataType, builder: &mut ColumnBuilder) -> Result<(), OperatorError> {
        builder.push_i64(*state);
        Ok(())
    }
}

/// Sums of integers and decimals.
#[derive(Debug)]
struct Exact {
    column: Column,
    scale: u8,
    average: bool,
}

/// The sum of so many values; it may have left 128 bits.
#[derive(Clone, Debug, Default)]
struct ExactSum {
    sum: i128,
    count: i64,
    overflowed: bool,
}

impl ExactSum {
    fn add(&mut self, value: i128, count: i64) {
        let (sum, overflowed) = self.sum.overflowing_add(value);
        self.sum = sum;
        self.overflowed |= overflowed;
        self.count += count;
    }
}

impl Exact {
    fn each(&self, rows: Range<usize>, mut visit: impl FnMut(i128)) {
        let column = &self.column;
        let rows = rows.filter(|row| !column.is_null(*row));
        match &column.values {
            Values::Int16(values) => rows.for_each(|row| visit(values[row].into())),
            Values::Int32(values) => rows.for_each(|row| visit(values[row].into())),
            Values::Int64(values) => rows.for_each(|row| visit(values[row].into())),
            Values::Int128(values) => rows.for_each(|row| visit(values[row])),
            Values::Boolean(_) | Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => {
                unreachable!("an exact sum of {}", column.data_type)
            }
        }
    }
}

impl Fold for Exact {
    type State = ExactSum;

    fn add(&self, state: &mut ExactSum, rows: Range<usize>) {
        self.each(rows, |value| state.add(value, 1));
    }

    fn merge(&self, state: &mut ExactSum, next: &ExactSum) {
        state.add(next.sum, next.count);
        state.overflowed |= next.overflowed;
    }

    fn remove(&self, state: &mut ExactSum, rows: Range<usize>) -> bool {
        self.each(rows, |value| {
            let (sum, overflowed) = state.sum.overflowing_sub(value);
            state.sum = sum;
            state.overflowed |= overflowed;
            state.count -= 1;
        });
        !state.overflowed
    }

    fn push(&self, state: &ExactSum, result: DataType, builder: &mut ColumnBuilder) -> Result<(), OperatorError> {
        if state.overflowed {
            return Err(overflow(result));
        }
        if state.count == 0 {
            builder.push_null();
        } else if self.average {
            builder.push(&average_of(state.sum, state.count, self.scale, result)?);
        } else {
            builder.push(&sum_of(state.sum, self.scale, result)?);
        }
        Ok(())
    }
}

/// Sums of floating point, added from the first row of the frame to the last.
#[derive(Debug)]
struct Approximate {
    column: Column,
    average: bool,
}

/// The sum of so many values; it may have left its range though none of them was beyond.
#[derive(Clone, Debug, Default)]
struct ApproximateSum {
    sum: f64,
    count: i64,
    overflowed: bool,
}

impl ApproximateSum {
    fn add(&mut self, value: f64, count: i64) {
        // The first value is the sum: zero plus -0 is 0.
        let sum = if self.count == 0 { value } else { self.sum + value };
        self.overflowed |= sum.is_infinite() && value.is_finite() && self.sum.is_finite();
        self.sum = sum;
        self.count += count;
    }
}

impl Fold for Approximate {
    type State = ApproximateSum;

    fn add(&self, state: &mut ApproximateSum, rows: Range<usize>) {
        let rows = rows.filter(|row| !self.column.is_null(*row));
        match &self.column.values {
            Values::Float32(values) => rows.for_each(|row| state.add(values[row].into(), 1)),
            Values::Float64(values) => rows.for_each(|row| state.add(values[row], 1)),
            _ => unreachable!("an approximate sum of {}", self.column.data_type),
        }
    }

    fn merge(&self, state: &mut ApproximateSum, next: &ApproximateSum) {
        if next.count > 0 {
            state.add(next.sum, next.count);
        }
        state.overflowed |= next.overflowed;
    }

    /// What was added has been rounded.
    fn remove(&self, _state: &mut ApproximateSum, _rows: Range<usize>) -> bool {
        false
    }

    fn push(&self, state: &ApproximateSum, result: DataType, builder: &mut ColumnBuilder) -> Result<(), OperatorError> {
        if state.overflowed {
            return Err(overflow(result));
        }
        let value = if self.average { state.sum / state.count as f64 } else { state.sum };
        match (state.count, result) {
            (0, _) => builder.push_null(),
            (_, DataType::Float32) => builder.push(&Value::Float32(value as f32)),
            _ => builder.push(&Value::Float64(value)),
        }
        Ok(())
    }
}

/// The row of the smallest or largest value.
#[derive(Debug)]
struct Extreme {
    column: Column,
    /// How the value of a better row compares with that of another.
    wanted: Ordering,
}

/// A row, if there is one.
#[derive(Clone, Debug, Default)]
struct Best(Option<u32>);

impl Extreme {
    fn offer(&self, best: &mut Best, row: u32) {
        let is_better =
            best.0.is_none_or(|held| compare_values(&self.column, row as usize, held as usize) == self.wanted);
        if is_better {
            best.0 = Some(row);
        }
    }
}

impl Fold for Extreme {
    type State = Best;

    fn add(&self, state: &mut Best, rows: Range<usize>) {
        rows.filter(|row| !self.column.is_null(*row)).for_each(|row| self.offer(state, row as u32));
    }

    fn merge(&self, state: &mut Best, next: &Best) {
        if let Some(row) = next.0 {
            self.offer(state, row);
        }
    }

    /// Nothing changes unless the best row goes.
    fn remove(&self, state: &mut Best, rows: Range<usize>) -> bool {
        state.0.is_none_or(|row| !rows.contains(&(row as usize)))
    }

    /// The row, as if it were a date: only its 32 bits matter.
    fn pushed_type(&self, _result: DataType) -> DataType {
        DataType::Int32
    }

    fn push(&self, state: &Best, _result: DataType, builder: &mut ColumnBuilder) -> Result<(), OperatorError> {
        match state.0 {
            Some(row) => builder.push_i32(row as i32),
            None => builder.push_null(),
        }
        Ok(())
    }

    fn finish(&self, rows: Column) -> Column {
        let Values::Int32(numbers) = &rows.values else { unreachable!("rows were pushed as 32 bits") };
        let numbers: Vec<u32> = numbers.iter().map(|row| *row as u32).collect();
        let validity: Option<Bitmap> = rows.validity.clone();
        let best = self.column.take(&numbers);
        Column { validity, ..best }
    }
}
