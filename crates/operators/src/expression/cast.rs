//! Casts between numbers, and of dates to timestamps. Those to decimals are in
//! [`decimals`](crate::arithmetic::decimals).

use eris_storage::{Column, DataType, Values};

use super::instructions::{Level, kernel};
use crate::arithmetic::decimals::Operand;
use crate::error::OperatorError;

/// Digits that a `double precision` holds exactly: a decimal of so many is divided by its power of ten once.
const DIGITS_EXACT: u8 = 15;

const MICROS_OF_DAY: i64 = 86_400_000_000;

/// How wide an integer type is.
fn width_of(data_type: DataType) -> Option<u8> {
    match data_type {
        DataType::Int16 => Some(16),
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        _ => None,
    }
}

/// Whether there is a kernel for a cast.
pub(super) fn is_native(from: DataType, to: DataType) -> bool {
    match (from, to) {
        (DataType::Decimal { .. }, DataType::Decimal { .. })
        | (DataType::Float32, DataType::Float64)
        | (DataType::Date, DataType::Timestamp) => true,
        (DataType::Decimal { precision, .. }, DataType::Float64) => precision <= DIGITS_EXACT,
        (from, DataType::Decimal { .. } | DataType::Float32 | DataType::Float64) => width_of(from).is_some(),
        (from, to) => width_of(from).is_some() && width_of(to).is_some(),
    }
}

/// Whether a value may not fit the type it is cast to.
pub(super) fn can_fail(from: DataType, to: DataType) -> bool {
    let digits = |data_type| match data_type {
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal { precision, scale } => Some((precision, scale)),
        _ => None,
    };
    match (digits(from), to) {
        (Some((precision, scale)), DataType::Decimal { precision: kept, scale: kept_scale }) => {
            // Rounding may need a digit more.
            let rounds = u8::from(kept_scale < scale);
            i16::from(kept) - i16::from(kept_scale) < i16::from(precision) - i16::from(scale) + i16::from(rounds)
        }
        (_, DataType::Timestamp) => true,
        (_, to) => width_of(from) > width_of(to) && width_of(to).is_some(),
    }
}

kernel! {
    fn convert[T: Copy, U: Copy + Default, F: Fn(T) -> U](values: &[T], apply: F) -> Vec<U> {
        let mut out = vec![U::default(); values.len()];
        for (out, value) in out.iter_mut().zip(values) {
            *out = apply(*value);
        }
        out
    }
}

/// Integers of any width as decimals.
pub(super) fn as_decimals(column: &Column) -> Result<Operand, OperatorError> {
    let level = Level::for_rows(column.len());
    let values = match &column.values {
        Values::Int16(values) => convert(level, values, |value: i16| i64::from(value)),
        Values::Int32(values) => convert(level, values, |value: i32| i64::from(value)),
        Values::Int64(values) => values.to_vec(),
        _ => return Err(OperatorError::Internal(format!("{} as numeric", column.data_type))),
    };
    Ok(Operand::of_integers(values, column.validity.clone()))
}

/// A column of numbers as another type of them, but for decimals.
pub(super) fn cast(column: &Column, to: DataType) -> Result<Column, OperatorError> {
    let level = Level::for_rows(column.len());
    let unknown = || OperatorError::Internal(format!("a cast of {} to {to}", column.data_type));
    let values = match (&column.values, to) {
        (Values::Int16(values), DataType::Int32) => Values::Int32(convert(level, values, i32::from).into()),
        (Values::Int16(values), DataType::Int64) => Values::Int64(convert(level, values, i64::from).into()),
        (Values::Int32(values), DataType::Int64) => Values::Int64(convert(level, values, i64::from).into()),
        (Values::Int32(values), DataType::Int16) => Values::Int16(checked(column, values, "smallint")?.into()),
        (Values::Int64(values), DataType::Int16) => Values::Int16(checked(column, values, "smallint")?.into()),
        (Values::Int64(values), DataType::Int32) => Values::Int32(checked(column, values, "integer")?.into()),
        (Values::Int32(values), DataType::Timestamp) => Values::Int64(midnights(column, values)?.into()),
        (Values::Int16(values), DataType::Float32) => Values::Float32(convert(level, values, f32::from).into()),
        (Values::Int32(values), DataType::Float32) => {
            Values::Float32(convert(level, values, |value: i32| value as f32).into())
        }
        (Values::Int64(values), DataType::Float32) => {
            Values::Float32(convert(level, values, |value: i64| value as f32).into())
        }
        (Values::Int16(values), DataType::Float64) => Values::Float64(convert(level, values, f64::from).into()),
        (Values::Int32(values), DataType::Float64) => Values::Float64(convert(level, values, f64::from).into()),
        (Values::Float32(values), DataType::Float64) => Values::Float64(convert(level, values, f64::from).into()),
        (Values::Int64(values), DataType::Float64) => {
            let divisor = match column.data_type {
                DataType::Decimal { scale, .. } => 10_f64.powi(i32::from(scale)),
                _ => 1.0,
            };
            Values::Float64(convert(level, values, |value: i64| value as f64 / divisor).into())
        }
        _ => return Err(unknown()),
    };
    Ok(Column { data_type: to, validity: column.validity.clone(), values })
}

/// The first moments of days.
fn midnights(column: &Column, days: &[i32]) -> Result<Vec<i64>, OperatorError> {
    let mut out = Vec::with_capacity(days.len());
    for (row, day) in days.iter().enumerate() {
        out.push(match i64::from(*day).checked_mul(MICROS_OF_DAY) {
            Some(micros) => micros,
            None if column.is_null(row) => 0,
            None => return Err(OperatorError::DateOverflow),
        });
    }
    Ok(out)
}

/// Integers in fewer bits; what lies under a NULL may be lost.
fn checked<T: Copy, U: TryFrom<T> + Default>(
    column: &Column,
    values: &[T],
    type_name: &'static str,
) -> Result<Vec<U>, OperatorError> {
    let mut out = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        out.push(match U::try_from(*value) {
            Ok(value) => value,
            Err(_) if column.is_null(row) => U::default(),
            Err(_) => return Err(OperatorError::Overflow { type_name }),
        });
    }
    Ok(out)
}
