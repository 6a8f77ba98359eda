//! Checked arithmetic: what does not fit is an error, never a wrapped number.
//!
//! Integers are computed in their own width and checked; decimals in 128 bits. Addition and subtraction of decimals
//! happen at the larger scale, a product has the sum of both scales, and the result is brought to the scale of its type
//! exactly or rounded half away from zero.

use std::fmt;

use eris_storage::{Bitmap, BitmapBuilder, Buffer, Column, DataType, Value, Values};

use crate::error::OperatorError;
use crate::expression::Datum;

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

/// Which rows of a result are not NULL: those where neither side is.
pub(crate) fn validity_of(left: &Datum, right: &Datum, rows: usize) -> Option<Bitmap> {
    let of = |datum: &Datum| match datum {
        Datum::Column(column) => column.validity.clone(),
        Datum::Constant(_) => None,
    };
    match (of(left), of(right)) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one),
        (Some(left), Some(right)) => {
            let mut both = BitmapBuilder::default();
            for row in 0..rows {
                both.push(left.get(row) && right.get(row));
            }
            Some(both.finish())
        }
    }
}

fn is_null_constant(datum: &Datum) -> bool {
    matches!(datum, Datum::Constant(Value::Null))
}

/// Applies an operator to both sides.
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
    let validity = validity_of(left, right, count);
    let valid = |row: usize| validity.as_ref().is_none_or(|bits| bits.get(row));
    let values = match data_type {
        DataType::Int16 => Values::Int16(integers(operator, &side_i16(left)?, &side_i16(right)?, count, valid)?),
        DataType::Int32 => Values::Int32(integers(operator, &side_i32(left)?, &side_i32(right)?, count, valid)?),
        DataType::Int64 => Values::Int64(integers(operator, &side_i64(left)?, &side_i64(right)?, count, valid)?),
        DataType::Float32 => Values::Float32(floats(operator, &side_f32(left)?, &side_f32(right)?, count, valid)?),
        DataType::Float64 => Values::Float64(floats(operator, &side_f64(left)?, &side_f64(right)?, count, valid)?),
        DataType::Decimal { precision, scale } => {
            let (left, left_scale) = decimal_side(left)?;
            let (right, right_scale) = decimal_side(right)?;
            let wide = decimals(operator, (&left, left_scale), (&right, right_scale), scale, count, valid)?;
            let limit = 10_i128.pow(u32::from(precision));
            if wide.iter().any(|value| *value <= -limit || *value >= limit) {
                return Err(OperatorError::Overflow { type_name: "numeric" });
            }
            match data_type.physical() {
                eris_storage::Physical::Int64 => Values::Int64(wide.iter().map(|value| *value as i64).collect()),
                _ => Values::Int128(wide.into()),
            }
        }
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

/// Decimals of either width, widened, with their scale.
fn decimal_side(datum: &Datum) -> Result<(Decimals<'_>, u8), OperatorError> {
    match datum {
        Datum::Column(Column { data_type: DataType::Decimal { scale, .. }, values, .. }) => match values {
            Values::Int64(values) => Ok((Decimals::Narrow(values), *scale)),
            Values::Int128(values) => Ok((Decimals::Wide(values), *scale)),
            _ => Err(OperatorError::Internal("decimals are integers".to_string())),
        },
        Datum::Constant(Value::Decimal { unscaled, scale }) => Ok((Decimals::All(*unscaled), *scale)),
        other => Err(OperatorError::Internal(format!("{other:?} as numeric"))),
    }
}

enum Decimals<'a> {
    Narrow(&'a [i64]),
    Wide(&'a [i128]),
    All(i128),
}

impl Decimals<'_> {
    #[inline]
    fn get(&self, row: usize) -> i128 {
        match self {
            Self::Narrow(values) => i128::from(values[row]),
            Self::Wide(values) => values[row],
            Self::All(value) => *value,
        }
    }
}

fn decimals(
    operator: ArithmeticOperator,
    left: (&Decimals<'_>, u8),
    right: (&Decimals<'_>, u8),
    scale: u8,
    rows: usize,
    valid: impl Fn(usize) -> bool,
) -> Result<Vec<i128>, OperatorError> {
    let overflow = || OperatorError::Overflow { type_name: "numeric" };
    let power = |exponent: u8| 10_i128.checked_pow(u32::from(exponent)).ok_or_else(overflow);
    let common = left.1.max(right.1);
    let (left_factor, right_factor) = match operator {
        ArithmeticOperator::Multiply => (1, 1),
        _ => (power(common - left.1)?, power(common - right.1)?),
    };
    let result_scale = match operator {
        ArithmeticOperator::Multiply => left.1 + right.1,
        _ => common,
    };
    let mut out = Vec::with_capacity(rows);
    for row in 0..rows {
        if !valid(row) {
            out.push(0);
            continue;
        }
        let a = left.0.get(row).checked_mul(left_factor).ok_or_else(overflow)?;
        let b = right.0.get(row).checked_mul(right_factor).ok_or_else(overflow)?;
        let raw = match operator {
            ArithmeticOperator::Add => a.checked_add(b),
            ArithmeticOperator::Subtract => a.checked_sub(b),
            ArithmeticOperator::Multiply => a.checked_mul(b),
            ArithmeticOperator::Divide => return Err(OperatorError::Internal("decimal division is foreign".into())),
            ArithmeticOperator::Modulo if b == 0 => return Err(OperatorError::DivisionByZero),
            ArithmeticOperator::Modulo => a.checked_rem(b),
        }
        .ok_or_else(overflow)?;
        out.push(if result_scale == scale { raw } else { rescale(raw, result_scale, scale).ok_or_else(overflow)? });
    }
    Ok(out)
}

/// Brings an unscaled number to another scale, rounding half away from zero.
pub(crate) fn rescale(value: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        return value.checked_mul(10_i128.checked_pow(u32::from(to - from))?);
    }
    let divisor = 10_i128.checked_pow(u32::from(from - to))?;
    Some(divide_rounded(value, divisor))
}

/// Division rounded half away from zero.
pub(crate) fn divide_rounded(dividend: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    if remainder.unsigned_abs().saturating_mul(2) < divisor.unsigned_abs() {
        quotient
    } else if (dividend < 0) == (divisor < 0) {
        quotient + 1
    } else {
        quotient - 1
    }
}

trait Checked: Copy + Default + PartialEq {
    const TYPE_NAME: &'static str;
    fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Option<Self>;
}

macro_rules! checked {
    ($($native:ty, $name:literal;)*) => {$(
        impl Checked for $native {
            const TYPE_NAME: &'static str = $name;
            #[inline]
            fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Option<Self> {
                match operator {
                    ArithmeticOperator::Add => a.checked_add(b),
                    ArithmeticOperator::Subtract => a.checked_sub(b),
                    ArithmeticOperator::Multiply => a.checked_mul(b),
                    ArithmeticOperator::Divide => a.checked_div(b),
                    ArithmeticOperator::Modulo => Some(a.checked_rem(b).unwrap_or(0)),
                }
            }
        }
    )*};
}

checked! {
    i16, "smallint";
    i32, "integer";
    i64, "bigint";
}

fn integers<T: Checked + Send + Sync + 'static>(
    operator: ArithmeticOperator,
    left: &Side<'_, T>,
    right: &Side<'_, T>,
    rows: usize,
    valid: impl Fn(usize) -> bool,
) -> Result<Buffer<T>, OperatorError> {
    let divides = matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Modulo);
    let mut out = Vec::with_capacity(rows);
    for row in 0..rows {
        if !valid(row) {
            out.push(T::default());
            continue;
        }
        let (a, b) = (left.get(row), right.get(row));
        if divides && b == T::default() {
            return Err(OperatorError::DivisionByZero);
        }
        out.push(T::apply(operator, a, b).ok_or(OperatorError::Overflow { type_name: T::TYPE_NAME })?);
    }
    Ok(out.into())
}

trait Float: Copy + Default + PartialEq {
    const TYPE_NAME: &'static str;
    const NAN: Self;
    fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Self;
    fn is_infinite(self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($($native:ty, $name:literal;)*) => {$(
        impl Float for $native {
            const TYPE_NAME: &'static str = $name;
            const NAN: Self = <$native>::NAN;
            #[inline]
            fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Self {
                match operator {
                    ArithmeticOperator::Add => a + b,
                    ArithmeticOperator::Subtract => a - b,
                    ArithmeticOperator::Multiply => a * b,
                    ArithmeticOperator::Divide => a / b,
                    ArithmeticOperator::Modulo => a % b,
                }
            }
            #[inline]
            fn is_infinite(self) -> bool {
                self.is_infinite()
            }
            #[inline]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    )*};
}

float! {
    f32, "real";
    f64, "double precision";
}

fn floats<T: Float + Send + Sync + 'static>(
    operator: ArithmeticOperator,
    left: &Side<'_, T>,
    right: &Side<'_, T>,
    rows: usize,
    valid: impl Fn(usize) -> bool,
) -> Result<Buffer<T>, OperatorError> {
    let divides = matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Modulo);
    let zero = T::default();
    let underflows = |operator, a: T, b: T| match operator {
        ArithmeticOperator::Multiply => a != zero && b != zero,
        ArithmeticOperator::Divide => a != zero && !b.is_infinite(),
        _ => false,
    };
    let mut out = Vec::with_capacity(rows);
    for row in 0..rows {
        if !valid(row) {
            out.push(zero);
            continue;
        }
        let (a, b) = (left.get(row), right.get(row));
        if divides && b == zero {
            return Err(OperatorError::DivisionByZero);
        }
        let value = T::apply(operator, a, b);
        let overflows = value.is_infinite() && !a.is_infinite() && !b.is_infinite();
        if overflows || (value == zero && underflows(operator, a, b)) {
            return Err(OperatorError::Overflow { type_name: T::TYPE_NAME });
        }
        // One NaN: processors give one with a sign.
        out.push(if value.is_nan() { T::NAN } else { value });
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: DataType, values: &[Value]) -> Datum {
        let mut builder = eris_storage::ColumnBuilder::with_capacity(data_type, values.len());
        for value in values {
            builder.push(value);
        }
        Datum::Column(builder.finish())
    }

    const OPERATORS: [ArithmeticOperator; 5] = [
        ArithmeticOperator::Add,
        ArithmeticOperator::Subtract,
        ArithmeticOperator::Multiply,
        ArithmeticOperator::Divide,
        ArithmeticOperator::Modulo,
    ];

    /// The reference: 128-bit arithmetic on one pair.
    fn reference(operator: ArithmeticOperator, a: i64, b: i64) -> Option<i128> {
        let (a, b) = (i128::from(a), i128::from(b));
        match operator {
            ArithmeticOperator::Add => Some(a + b),
            ArithmeticOperator::Subtract => Some(a - b),
            ArithmeticOperator::Multiply => Some(a * b),
            ArithmeticOperator::Divide => (b != 0).then(|| a / b),
            ArithmeticOperator::Modulo => (b != 0).then(|| a % b),
        }
    }

    #[test]
    fn integers_agree_with_wide_arithmetic_or_refuse() {
        let interesting = [i64::MIN, i64::MIN + 1, -7, -1, 0, 1, 2, 7, 1 << 32, i64::MAX - 1, i64::MAX];
        for operator in OPERATORS {
            for a in interesting {
                for b in interesting {
                    let left = column(DataType::Int64, &[Value::Int64(a), Value::Null]);
                    let right = Datum::Constant(Value::Int64(b));
                    let got = evaluate(operator, &left, &right, DataType::Int64, 2);
                    match reference(operator, a, b) {
                        None => assert!(matches!(got, Err(OperatorError::DivisionByZero)), "{a} {operator} {b}"),
                        Some(wide) => match i64::try_from(wide) {
                            Ok(exact) => {
                                let column = got.unwrap().into_column(DataType::Int64, 2);
                                assert_eq!(column.value(0), Value::Int64(exact), "{a} {operator} {b}");
                                assert_eq!(column.value(1), Value::Null);
                            }
                            Err(_) => assert!(matches!(got, Err(OperatorError::Overflow { .. })), "{a} {operator} {b}"),
                        },
                    }
                }
            }
        }
    }

    #[test]
    fn floats_that_leave_their_range_are_refused() {
        let (tiny, huge) = (1e-200, 1e200);
        for (operator, a, b, refused) in [
            (ArithmeticOperator::Multiply, huge, huge, true),
            (ArithmeticOperator::Multiply, tiny, tiny, true),
            (ArithmeticOperator::Multiply, tiny, 0.0, false),
            (ArithmeticOperator::Divide, tiny, huge, true),
            (ArithmeticOperator::Divide, tiny, f64::INFINITY, false),
            (ArithmeticOperator::Divide, huge, tiny, true),
            (ArithmeticOperator::Add, f64::MAX, f64::MAX, true),
            (ArithmeticOperator::Add, f64::INFINITY, 1.0, false),
            (ArithmeticOperator::Subtract, 1.0, 1.0, false),
        ] {
            let left = column(DataType::Float64, &[Value::Float64(a)]);
            let got = evaluate(operator, &left, &Datum::Constant(Value::Float64(b)), DataType::Float64, 1);
            assert_eq!(got.is_err(), refused, "{a} {operator} {b}");
        }
    }

    #[test]
    fn decimals_keep_their_scale() {
        let left =
            column(DataType::Decimal { precision: 12, scale: 2 }, &[Value::Decimal { unscaled: 1050, scale: 2 }]);
        let right = Datum::Constant(Value::Decimal { unscaled: 25, scale: 1 });
        let to = |scale| DataType::Decimal { precision: 20, scale };
        let product = evaluate(ArithmeticOperator::Multiply, &left, &right, to(3), 1).unwrap();
        assert_eq!(product.into_column(to(3), 1).value(0), Value::Decimal { unscaled: 26_250, scale: 3 });
        let sum = evaluate(ArithmeticOperator::Add, &left, &right, to(2), 1).unwrap();
        assert_eq!(sum.into_column(to(2), 1).value(0), Value::Decimal { unscaled: 1300, scale: 2 });
        let narrow = DataType::Decimal { precision: 3, scale: 2 };
        let refused = evaluate(ArithmeticOperator::Add, &left, &right, narrow, 1);
        assert!(matches!(refused, Err(OperatorError::Overflow { .. })));
    }
}
