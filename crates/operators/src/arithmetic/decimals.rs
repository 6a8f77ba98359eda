//! Arithmetic of decimals: in 64 bits wherever the values of a batch allow it, whatever their types would allow.
//!
//! ```text
//!   l_extendedprice * (1 - l_discount)       numeric(15,2) * (1 - numeric(15,2)) is a numeric(31,4)
//!     [90100, 10494950]     [90, 100]        but these are the smallest and largest values of the batch,
//!               [8109000, 1049495000]        so this is where all products are: 64 bits are enough, without a check
//! ```
//! Of each operand the range is known: a constant's, a column's from one pass over its values, a result's from those
//! of its operands. If the result's range fits 64 bits and the digits of its type, the loop needs neither branches nor
//! wide products: modulo 2^64 everything comes out right. If it does not fit and an operand's range was only derived,
//! that is measured; if it still does not, rows are computed one by one in 128 bits and checked.
//!
//! Columns of wide types may hold 64-bit values as long as they are within an expression (a *narrow* column). Values
//! under a NULL are computed as well; they only make ranges wider.

use eris_storage::{Bitmap, Buffer, Column, DataType, Physical, Value, Values};

use super::ArithmeticOperator;
use super::quotient::{Shift, quotient};
use super::scale::{digits_of, divide_rounded, limit, overflow, power, rescale};
use crate::error::OperatorError;
use crate::expression::Datum;
use crate::expression::bits;
use crate::expression::instructions::{Level, kernel};

/// Fewer rows are computed one by one: looking at their range first costs more.
const NARROW_ROWS_MIN: usize = 4;

/// Decimals on one side of an operation, unscaled.
#[derive(Debug)]
pub(crate) enum Operand {
    /// NULL in all rows.
    Null,
    /// The same number in all rows.
    All {
        /// Without the point.
        unscaled: i128,
        /// Digits behind the point.
        scale: u8,
    },
    /// A number of 64 bits for each row.
    Narrow(Narrow),
    /// A number of 128 bits for each row.
    Wide {
        /// Without the point.
        values: Buffer<i128>,
        /// Which are not NULL.
        validity: Option<Bitmap>,
        /// Digits behind the point.
        scale: u8,
    },
}

/// Decimals of 64 bits.
#[derive(Debug)]
pub(crate) struct Narrow {
    values: Cells,
    validity: Option<Bitmap>,
    scale: u8,
    range: Option<Range>,
}

/// Where values lie, ends included.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: i64,
    high: i64,
    /// It was found by looking at them, so there is no smaller one.
    measured: bool,
}

/// Values of a column, or those of an intermediate result, which may be overwritten.
#[derive(Debug)]
enum Cells {
    Shared(Buffer<i64>),
    Own(Vec<i64>),
}

kernel! {
    /// The smallest and the largest value; 0 and 0 of none.
    fn measure[](values: &[i64]) -> (i64, i64) {
        let Some(first) = values.first() else { return (0, 0) };
        let (mut low, mut high) = (*first, *first);
        for value in values {
            low = low.min(*value);
            high = high.max(*value);
        }
        (low, high)
    }
}

kernel! {
    fn map[F: Fn(i64) -> i64](values: &[i64], apply: F) -> Vec<i64> {
        let mut out = vec![0; values.len()];
        for (out, value) in out.iter_mut().zip(values) {
            *out = apply(*value);
        }
        out
    }
}

kernel! {
    fn map_in_place[F: Fn(i64) -> i64](values: &mut [i64], apply: F) {
        for value in values {
            *value = apply(*value);
        }
    }
}

kernel! {
    fn zip[F: Fn(i64, i64) -> i64](left: &[i64], right: &[i64], apply: F) -> Vec<i64> {
        let mut out = vec![0; left.len()];
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            *out = apply(*left, *right);
        }
        out
    }
}

kernel! {
    fn zip_in_place[F: Fn(i64, i64) -> i64](left: &mut [i64], right: &[i64], apply: F) {
        for (left, right) in left.iter_mut().zip(right) {
            *left = apply(*left, *right);
        }
    }
}

kernel! {
    /// Values that all fit 64 bits.
    fn narrowed[](values: &[i128]) -> Option<Vec<i64>> {
        let mut out = vec![0; values.len()];
        let mut lost = 0;
        for (out, value) in out.iter_mut().zip(values) {
            let low = *value as i64;
            *out = low;
            // The upper half repeats the sign, or something is lost.
            lost |= (*value >> 64) as i64 ^ (low >> 63);
        }
        (lost == 0).then_some(out)
    }
}

kernel! {
    fn widened[](values: &[i64]) -> Vec<i128> {
        let mut out = vec![0; values.len()];
        for (out, value) in out.iter_mut().zip(values) {
            *out = i128::from(*value);
        }
        out
    }
}

/// The smallest and the largest of some values; 0 and 0 of none.
pub(crate) fn range_of(values: &[i64]) -> (i64, i64) {
    measure(Level::for_rows(values.len()), values)
}

/// The values of a column of decimals, if 64 bits hold them.
pub(crate) fn narrow_values(column: &Column) -> Option<Buffer<i64>> {
    match &column.values {
        Values::Int64(values) => Some(values.clone()),
        Values::Int128(values) => narrowed(Level::for_rows(values.len()), values).map(Buffer::from),
        _ => None,
    }
}

/// A column in the physical type of its own type.
pub(crate) fn in_full_width(mut column: Column) -> Column {
    if let (Values::Int64(values), Physical::Int128) = (&column.values, column.data_type.physical()) {
        column.values = Values::Int128(widened(Level::for_rows(values.len()), values).into());
    }
    column
}

impl Cells {
    fn as_slice(&self) -> &[i64] {
        match self {
            Self::Shared(values) => values,
            Self::Own(values) => values,
        }
    }

    fn map(self, level: Level, apply: impl Fn(i64) -> i64) -> Self {
        Self::Own(match self {
            Self::Shared(values) => map(level, &values, apply),
            Self::Own(mut values) => {
                map_in_place(level, &mut values, apply);
                values
            }
        })
    }

    fn zip(self, other: Self, level: Level, apply: impl Fn(i64, i64) -> i64) -> Self {
        Self::Own(match (self, other) {
            (Self::Own(mut left), right) => {
                zip_in_place(level, &mut left, right.as_slice(), apply);
                left
            }
            (Self::Shared(left), Self::Own(mut right)) => {
                zip_in_place(level, &mut right, &left, |right, left| apply(left, right));
                right
            }
            (Self::Shared(left), Self::Shared(right)) => zip(level, &left, &right, apply),
        })
    }

    fn into_buffer(self) -> Buffer<i64> {
        match self {
            Self::Shared(values) => values,
            Self::Own(values) => values.into(),
        }
    }
}

impl Operand {
    /// Decimals of either width.
    pub fn of(datum: Datum) -> Result<Self, OperatorError> {
        Ok(match datum {
            Datum::Constant(Value::Null) => Self::Null,
            Datum::Constant(Value::Decimal { unscaled, scale }) => Self::All { unscaled, scale },
            Datum::Column(Column { data_type: DataType::Decimal { scale, .. }, validity, values }) => match values {
                Values::Int64(values) => {
                    Self::Narrow(Narrow { values: Cells::Shared(values), validity, scale, range: None })
                }
                Values::Int128(values) => Self::Wide { values, validity, scale },
                _ => return Err(OperatorError::Internal("decimals are integers".to_string())),
            },
            other => return Err(OperatorError::Internal(format!("{other:?} as numeric"))),
        })
    }

    /// Integers, as decimals without digits behind the point.
    pub fn of_integers(values: Vec<i64>, validity: Option<Bitmap>) -> Self {
        Self::Narrow(Narrow { values: Cells::Own(values), validity, scale: 0, range: None })
    }

    /// An integer, as a decimal without digits behind the point.
    pub fn of_integer(value: &Value) -> Result<Self, OperatorError> {
        let unscaled = match value {
            Value::Null => return Ok(Self::Null),
            Value::Int16(value) => i128::from(*value),
            Value::Int32(value) => i128::from(*value),
            Value::Int64(value) => i128::from(*value),
            other => return Err(OperatorError::Internal(format!("{other:?} as numeric"))),
        };
        Ok(Self::All { unscaled, scale: 0 })
    }

    /// As values of a type, whose scale they have. A column may be a narrow one.
    pub fn into_datum(self, data_type: DataType) -> Datum {
        match self {
            Self::Null => Datum::Constant(Value::Null),
            Self::All { unscaled, scale } => Datum::Constant(Value::Decimal { unscaled, scale }),
            Self::Narrow(Narrow { values, validity, .. }) => {
                Datum::Column(Column { data_type, validity, values: Values::Int64(values.into_buffer()) })
            }
            Self::Wide { values, validity, .. } => {
                Datum::Column(Column { data_type, validity, values: Values::Int128(values) })
            }
        }
    }

    /// Where the values of a column lie, if they have 64 bits.
    pub fn range(&mut self) -> Option<(i64, i64)> {
        match self {
            Self::Narrow(_) => {
                self.bounds(false).and_then(|(low, high)| Some((low.try_into().ok()?, high.try_into().ok()?)))
            }
            Self::Null | Self::All { .. } | Self::Wide { .. } => None,
        }
    }

    fn scale(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::All { scale, .. } | Self::Narrow(Narrow { scale, .. }) | Self::Wide { scale, .. } => *scale,
        }
    }

    fn validity(&self) -> Option<&Bitmap> {
        match self {
            Self::Null | Self::All { .. } => None,
            Self::Narrow(Narrow { validity, .. }) | Self::Wide { validity, .. } => validity.as_ref(),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> i128 {
        match self {
            Self::Null => 0,
            Self::All { unscaled, .. } => *unscaled,
            Self::Narrow(Narrow { values, .. }) => i128::from(values.as_slice()[row]),
            Self::Wide { values, .. } => values[row],
        }
    }

    /// How many values; `None`: one for all rows.
    fn rows(&self) -> Option<usize> {
        match self {
            Self::Null | Self::All { .. } => None,
            Self::Narrow(Narrow { values, .. }) => Some(values.as_slice().len()),
            Self::Wide { values, .. } => Some(values.len()),
        }
    }

    /// In 64 bits, if all values fit.
    pub fn narrow(self) -> Self {
        match self {
            Self::Wide { values, validity, scale } => match narrowed(Level::for_rows(values.len()), &values) {
                Some(values) => Self::Narrow(Narrow { values: Cells::Own(values), validity, scale, range: None }),
                None => Self::Wide { values, validity, scale },
            },
            other => other,
        }
    }

    /// The smallest and largest value of what has 64 bits; `exact`: found by looking at all of them.
    fn bounds(&mut self, exact: bool) -> Option<(i128, i128)> {
        match self {
            Self::Null | Self::Wide { .. } => None,
            Self::All { unscaled, .. } => Some((*unscaled, *unscaled)),
            Self::Narrow(Narrow { values, range, .. }) => {
                let range = match range {
                    Some(known) if known.measured || !exact => *known,
                    _ => {
                        let (low, high) = range_of(values.as_slice());
                        *range.insert(Range { low, high, measured: true })
                    }
                };
                Some((i128::from(range.low), i128::from(range.high)))
            }
        }
    }
}

/// What both sides of an operation are multiplied with to be at one scale, and the scale of its result.
#[derive(Clone, Copy, Debug)]
struct Scaling {
    left: Option<i128>,
    right: Option<i128>,
    result: u8,
}

impl Scaling {
    fn of(operator: ArithmeticOperator, left: u8, right: u8) -> Self {
        let common = left.max(right);
        match operator {
            ArithmeticOperator::Multiply => Self { left: Some(1), right: Some(1), result: left + right },
            ArithmeticOperator::Add
            | ArithmeticOperator::Subtract
            | ArithmeticOperator::Divide
            | ArithmeticOperator::Modulo => {
                Self { left: power(common - left), right: power(common - right), result: common }
            }
        }
    }
}

/// Where the results lie; `None`: not in 128 bits.
fn bounds_of(
    operator: ArithmeticOperator,
    left: (i128, i128),
    right: (i128, i128),
    scaling: Scaling,
) -> Option<(i128, i128)> {
    let scaled = |(low, high): (i128, i128), factor: Option<i128>| {
        let factor = factor?;
        Some((low.checked_mul(factor)?, high.checked_mul(factor)?))
    };
    let (left, right) = (scaled(left, scaling.left)?, scaled(right, scaling.right)?);
    match operator {
        ArithmeticOperator::Add => Some((left.0.checked_add(right.0)?, left.1.checked_add(right.1)?)),
        ArithmeticOperator::Subtract => Some((left.0.checked_sub(right.1)?, left.1.checked_sub(right.0)?)),
        ArithmeticOperator::Multiply => {
            let corners = [
                left.0.checked_mul(right.0)?,
                left.0.checked_mul(right.1)?,
                left.1.checked_mul(right.0)?,
                left.1.checked_mul(right.1)?,
            ];
            Some((corners.into_iter().min()?, corners.into_iter().max()?))
        }
        ArithmeticOperator::Divide | ArithmeticOperator::Modulo => None,
    }
}

/// The range of results that 64 bits and the digits of a type hold.
fn range_within((low, high): (i128, i128), precision: u8) -> Option<Range> {
    let limit = limit(precision);
    if low <= -limit || high >= limit {
        return None;
    }
    Some(Range { low: low.try_into().ok()?, high: high.try_into().ok()?, measured: false })
}

/// Applies an operator to both sides, at the scale and within the digits of a type.
pub(crate) fn evaluate(
    operator: ArithmeticOperator,
    left: Operand,
    right: Operand,
    data_type: DataType,
) -> Result<Operand, OperatorError> {
    let (precision, scale) = digits_of(data_type)?;
    if matches!(left, Operand::Null) || matches!(right, Operand::Null) {
        return Ok(Operand::Null);
    }
    let scaling = Scaling::of(operator, left.scale(), right.scale());
    let (mut left, mut right) = (left, right);
    let rows = left.rows().or(right.rows()).unwrap_or(0);
    if scaling.result == scale && rows >= NARROW_ROWS_MIN {
        (left, right) = (left.narrow(), right.narrow());
        for exact in [false, true] {
            let (Some(left_bounds), Some(right_bounds)) = (left.bounds(exact), right.bounds(exact)) else { break };
            let bounds = bounds_of(operator, left_bounds, right_bounds, scaling);
            if let Some(range) = bounds.and_then(|bounds| range_within(bounds, precision)) {
                return Ok(Operand::Narrow(in_64_bits(operator, left, right, scaling, range)));
            }
        }
    }
    row_by_row(operator, &left, &right, scaling, (precision, scale))
}

/// All results lie in `range`, so that nothing but the lowest 64 bits of anything matters.
fn in_64_bits(operator: ArithmeticOperator, left: Operand, right: Operand, scaling: Scaling, range: Range) -> Narrow {
    let validity = bits::both_of(left.validity(), right.validity());
    let level = Level::for_rows(left.rows().or(right.rows()).unwrap_or(0));
    let factor = |factor: Option<i128>| factor.unwrap_or(1) as i64;
    let (left_factor, right_factor) = (factor(scaling.left), factor(scaling.right));
    let subtracts = operator == ArithmeticOperator::Subtract;
    let cells = |operand| match operand {
        Operand::Narrow(narrow) => narrow.values,
        Operand::Null | Operand::All { .. } | Operand::Wide { .. } => Cells::Own(Vec::new()),
    };
    let values = match (operator, left, right) {
        (ArithmeticOperator::Multiply, Operand::All { unscaled, .. }, other)
        | (ArithmeticOperator::Multiply, other, Operand::All { unscaled, .. }) => {
            let factor = unscaled as i64;
            cells(other).map(level, |value| value.wrapping_mul(factor))
        }
        (ArithmeticOperator::Multiply, left, right) => cells(left).zip(cells(right), level, i64::wrapping_mul),
        (_, Operand::All { unscaled, .. }, right) => {
            let constant = (unscaled as i64).wrapping_mul(left_factor);
            let factor = if subtracts { right_factor.wrapping_neg() } else { right_factor };
            multiply_and_add(cells(right), level, factor, constant)
        }
        (_, left, Operand::All { unscaled, .. }) => {
            let constant = (unscaled as i64).wrapping_mul(right_factor);
            let constant = if subtracts { constant.wrapping_neg() } else { constant };
            multiply_and_add(cells(left), level, left_factor, constant)
        }
        (_, left, right) => {
            let scaled = |cells: Cells, factor: i64| match factor {
                1 => cells,
                _ => cells.map(level, |value| value.wrapping_mul(factor)),
            };
            let (left, right) = (scaled(cells(left), left_factor), scaled(cells(right), right_factor));
            if subtracts {
                left.zip(right, level, i64::wrapping_sub)
            } else {
                left.zip(right, level, i64::wrapping_add)
            }
        }
    };
    Narrow { values, validity, scale: scaling.result, range: Some(range) }
}

/// `value * factor + constant`, without the product where there is none.
fn multiply_and_add(cells: Cells, level: Level, factor: i64, constant: i64) -> Cells {
    match factor {
        1 => cells.map(level, |value| value.wrapping_add(constant)),
        -1 => cells.map(level, |value| constant.wrapping_sub(value)),
        _ => cells.map(level, |value| value.wrapping_mul(factor).wrapping_add(constant)),
    }
}

fn row_by_row(
    operator: ArithmeticOperator,
    left: &Operand,
    right: &Operand,
    scaling: Scaling,
    (precision, scale): (u8, u8),
) -> Result<Operand, OperatorError> {
    let shift = if operator == ArithmeticOperator::Divide {
        Some(Shift::new(left.scale(), right.scale(), scale)?)
    } else {
        None
    };
    let one = |a: i128, b: i128| -> Result<i128, OperatorError> {
        if let Some(shift) = shift {
            return quotient(a, b, shift);
        }
        let scaled = |value: i128, factor: Option<i128>| factor.and_then(|factor| value.checked_mul(factor));
        let (a, b) = scaled(a, scaling.left).zip(scaled(b, scaling.right)).ok_or_else(overflow)?;
        let raw = match operator {
            ArithmeticOperator::Add => a.checked_add(b),
            ArithmeticOperator::Subtract => a.checked_sub(b),
            ArithmeticOperator::Multiply => a.checked_mul(b),
            ArithmeticOperator::Modulo if b == 0 => return Err(OperatorError::DivisionByZero),
            ArithmeticOperator::Divide | ArithmeticOperator::Modulo => a.checked_rem(b),
        };
        let raw = raw.ok_or_else(overflow)?;
        if scaling.result == scale { Ok(raw) } else { rescale(raw, scaling.result, scale).ok_or_else(overflow) }
    };
    let Some(rows) = left.rows().or(right.rows()) else {
        let unscaled = within(one(left.get(0), right.get(0))?, precision)?;
        return Ok(Operand::All { unscaled, scale });
    };
    let validity = bits::both_of(left.validity(), right.validity());
    checked_rows(rows, validity, (precision, scale), |row| one(left.get(row), right.get(row)))
}

fn within(value: i128, precision: u8) -> Result<i128, OperatorError> {
    let limit = limit(precision);
    if value <= -limit || value >= limit { Err(overflow()) } else { Ok(value) }
}

/// The value of each row that is not NULL, each within the digits of a type.
fn checked_rows(
    rows: usize,
    validity: Option<Bitmap>,
    (precision, scale): (u8, u8),
    value: impl Fn(usize) -> Result<i128, OperatorError>,
) -> Result<Operand, OperatorError> {
    let checked = |row: usize| match &validity {
        Some(validity) if !validity.get(row) => Ok(0),
        _ => within(value(row)?, precision),
    };
    if (DataType::Decimal { precision, scale }).physical() == Physical::Int64 {
        let mut values = Vec::with_capacity(rows);
        for row in 0..rows {
            values.push(checked(row)? as i64);
        }
        return Ok(Operand::Narrow(Narrow { values: Cells::Own(values), validity, scale, range: None }));
    }
    let mut values = Vec::with_capacity(rows);
    for row in 0..rows {
        values.push(checked(row)?);
    }
    Ok(Operand::Wide { values: values.into(), validity, scale })
}

/// Brings decimals to the scale and within the digits of a type, rounded half away from zero.
pub(crate) fn cast(mut operand: Operand, data_type: DataType) -> Result<Operand, OperatorError> {
    let (precision, scale) = digits_of(data_type)?;
    let from = operand.scale();
    let Some(rows) = operand.rows() else {
        return match operand {
            Operand::All { unscaled, .. } => {
                let unscaled = within(rescale(unscaled, from, scale).ok_or_else(overflow)?, precision)?;
                Ok(Operand::All { unscaled, scale })
            }
            other => Ok(other),
        };
    };
    operand = operand.narrow();
    let target = |value| rescale(value, from, scale);
    let bounds = operand.bounds(false).and_then(|(low, high)| Some((target(low)?, target(high)?)));
    let range = bounds.and_then(|bounds| range_within(bounds, precision));
    match (operand, range) {
        (Operand::Narrow(narrow), Some(range)) => {
            let level = Level::for_rows(rows);
            let factor = power(scale.abs_diff(from)).map_or(0, |factor| factor as i64);
            let values = match scale.cmp(&from) {
                std::cmp::Ordering::Equal => narrow.values,
                std::cmp::Ordering::Greater => narrow.values.map(level, |value| value.wrapping_mul(factor)),
                std::cmp::Ordering::Less => narrow.values.map(level, |value| {
                    // Divisors beyond 64 bits do occur: the quotient is 0 then, or nearly.
                    power(from - scale).map_or(0, |divisor| divide_rounded(i128::from(value), divisor) as i64)
                }),
            };
            let range = Range { measured: narrow.range.is_some_and(|range| range.measured), ..range };
            Ok(Operand::Narrow(Narrow { values, validity: narrow.validity, scale, range: Some(range) }))
        }
        (operand, _) => {
            let validity = operand.validity().cloned();
            checked_rows(rows, validity, (precision, scale), |row| target(operand.get(row)).ok_or_else(overflow))
        }
    }
}
