//! Checked arithmetic: what does not fit is an error, never a wrapped number.
//!
//! Integers are computed in their own width and checked, see [`integers`]; decimals in 64 bits where the values allow
//! it and in 128 otherwise, see [`decimals`]. Addition and subtraction of decimals happen at the larger scale, a
//! product has the sum of both scales, and the result is brought to the scale of its type exactly or rounded half away
//! from zero.

pub(crate) mod decimals;
mod floats;
mod integers;
mod quotient;
mod scale;
#[cfg(test)]
mod tests;

use std::fmt;

use eris_storage::{Column, DataType, Value, Values};

use crate::error::OperatorError;
use crate::expression::Datum;
use crate::expression::bits;
use floats::floats;
use integers::integers;

#[cfg(test)]
pub(crate) use scale::divide_rounded;
pub(crate) use scale::{power, rescale};

/// The average, at scale `wanted`, of so many values whose sum has this scale.
pub fn exact_average(sum: i128, count: i64, scale: u8, wanted: u8) -> Result<i128, OperatorError> {
    quotient::quotient(sum, i128::from(count), quotient::Shift::new(scale, 0, wanted)?)
}

/// The operators computed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticOperator {
    /// +
    Add,
    /// -
    Subtract,
    /// *
    Multiply,
    /// / (integers truncate)
    Divide,
    /// % (the sign is the dividend's)
    Modulo,
}

impl fmt::Display for ArithmeticOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        })
    }
}

/// One side of an operation: values by row, or one for all.
enum Side<'a, T> {
    Rows(&'a [T]),
    All(T),
}

impl<T: Copy> Side<'_, T> {
    #[inline]
    fn get(&self, row: usize) -> T {
        match self {
            Self::Rows(values) => values[row],
            Self::All(value) => *value,
        }
    }
}

fn is_null_constant(datum: &Datum) -> bool {
    matches!(datum, Datum::Constant(Value::Null))
}

/// Applies an operator to both sides. A column of decimals may be a narrow one.
pub(crate) fn evaluate(
    operator: ArithmeticOperator,
    left: &Datum,
    right: &Datum,
    data_type: DataType,
    rows: usize,
) -> Result<Datum, OperatorError> {
    if is_null_constant(left) || is_null_constant(right) {
        return Ok(Datum::Constant(Value::Null));
    }
    let both_constant = matches!((left, right), (Datum::Constant(_), Datum::Constant(_)));
    let count = if both_constant { 1 } else { rows };
    let validity = bits::both_of(left.validity(), right.validity());
    let valid = |row: usize| validity.as_ref().is_none_or(|bits| bits.get(row));
    let values = match data_type {
        DataType::Int16 => Values::Int16(integers(operator, &side_i16(left)?, &side_i16(right)?, count, valid)?),
        DataType::Int32 => Values::Int32(integers(operator, &side_i32(left)?, &side_i32(right)?, count, valid)?),
        DataType::Int64 => Values::Int64(integers(operator, &side_i64(left)?, &side_i64(right)?, count, valid)?),
        DataType::Float32 => Values::Float32(floats(operator, &side_f32(left)?, &side_f32(right)?, count, valid)?),
        DataType::Float64 => Values::Float64(floats(operator, &side_f64(left)?, &side_f64(right)?, count, valid)?),
        other => return Err(OperatorError::Internal(format!("arithmetic of type {other}"))),
    };
    let column = Column { data_type, validity, values };
    Ok(if both_constant { Datum::Constant(column.value(0)) } else { Datum::Column(column) })
}

macro_rules! sides {
    ($($name:ident, $native:ty, $variant:ident;)*) => {$(
        fn $name(datum: &Datum) -> Result<Side<'_, $native>, OperatorError> {
            match datum {
                Datum::Column(Column { values: Values::$variant(values), .. }) => Ok(Side::Rows(values)),
                Datum::Constant(Value::$variant(value)) => Ok(Side::All(*value)),
                other => Err(OperatorError::Internal(format!("{other:?} as {}", stringify!($variant)))),
            }
        }
    )*};
}

sides! {
    side_i16, i16, Int16;
    side_i32, i32, Int32;
    side_i64, i64, Int64;
    side_f32, f32, Float32;
    side_f64, f64, Float64;
}
