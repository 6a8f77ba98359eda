//! Comparisons of columns with constants and with each other, as loops over plain values.
//!
//! The constant is brought to what the column holds: its scale for decimals, ordered integers for floats. Which of the
//! six comparisons is asked for is decided outside of the loops.

use std::cmp::Ordering;

use eris_storage::{Column, Comparison, DataType, Value, Values};

use super::Datum;
use super::bits;
use super::instructions::{Level, kernel};
use super::texts;
use crate::arithmetic::decimals::narrow_values;
use crate::arithmetic::power;

kernel! {
    /// 1 where the test holds.
    pub(super) fn test[T: Copy, F: Fn(T) -> bool](values: &[T], test: F) -> Vec<u8> {
        let mut out = vec![0; values.len()];
        for (out, value) in out.iter_mut().zip(values) {
            *out = u8::from(test(*value));
        }
        out
    }
}

kernel! {
    /// 1 where the test holds.
    fn test_both[T: Copy, F: Fn(T, T) -> bool](left: &[T], right: &[T], test: F) -> Vec<u8> {
        let mut out = vec![0; left.len()];
        for ((out, left), right) in out.iter_mut().zip(left).zip(right) {
            *out = u8::from(test(*left, *right));
        }
        out
    }
}

/// Values against a constant, both as `key` gives them.
fn with_constant<T: Copy, K: PartialOrd + Copy>(
    comparison: Comparison,
    values: &[T],
    constant: K,
    key: impl Fn(T) -> K,
) -> Vec<u8> {
    let level = Level::for_rows(values.len());
    match comparison {
        Comparison::Equal => test(level, values, |value| key(value) == constant),
        Comparison::NotEqual => test(level, values, |value| key(value) != constant),
        Comparison::Less => test(level, values, |value| key(value) < constant),
        Comparison::LessOrEqual => test(level, values, |value| key(value) <= constant),
        Comparison::Greater => test(level, values, |value| key(value) > constant),
        Comparison::GreaterOrEqual => test(level, values, |value| key(value) >= constant),
    }
}

/// Values against others, both as `key` gives them.
fn with_values<T: Copy, K: PartialOrd>(
    comparison: Comparison,
    left: &[T],
    right: &[T],
    key: impl Fn(T) -> K,
) -> Vec<u8> {
    let level = Level::for_rows(left.len());
    match comparison {
        Comparison::Equal => test_both(level, left, right, |left, right| key(left) == key(right)),
        Comparison::NotEqual => test_both(level, left, right, |left, right| key(left) != key(right)),
        Comparison::Less => test_both(level, left, right, |left, right| key(left) < key(right)),
        Comparison::LessOrEqual => test_both(level, left, right, |left, right| key(left) <= key(right)),
        Comparison::Greater => test_both(level, left, right, |left, right| key(left) > key(right)),
        Comparison::GreaterOrEqual => test_both(level, left, right, |left, right| key(left) >= key(right)),
    }
}

/// A float as an integer in SQL's order: one zero, NaN above everything.
#[inline]
pub(super) fn ordered_f64(value: f64) -> i64 {
    let bits = (value + 0.0).to_bits() as i64;
    let ordered = bits ^ (((bits >> 63) as u64) >> 1) as i64;
    if value.is_nan() { i64::MAX } else { ordered }
}

/// A float as an integer in SQL's order: one zero, NaN above everything.
#[inline]
pub(super) fn ordered_f32(value: f32) -> i32 {
    let bits = (value + 0.0).to_bits() as i32;
    let ordered = bits ^ (((bits >> 31) as u32) >> 1) as i32;
    if value.is_nan() { i32::MAX } else { ordered }
}

/// The comparison with its sides exchanged.
pub fn flipped(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::Equal,
        Comparison::NotEqual => Comparison::NotEqual,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

/// Compares both sides row by row; NULL where one is NULL.
pub(crate) fn compare(comparison: Comparison, left: &Datum, right: &Datum) -> Datum {
    let values = match (left, right) {
        (Datum::Constant(Value::Null), _) | (_, Datum::Constant(Value::Null)) => return Datum::Constant(Value::Null),
        (Datum::Constant(a), Datum::Constant(b)) => {
            return Datum::Constant(Value::Boolean(comparison.accepts(a.cmp(b))));
        }
        (Datum::Column(column), Datum::Constant(value)) => column_and_constant(comparison, column, value),
        (Datum::Constant(value), Datum::Column(column)) => column_and_constant(flipped(comparison), column, value),
        (Datum::Column(left), Datum::Column(right)) => columns(comparison, left, right),
    };
    let validity = bits::both_of(left.validity(), right.validity());
    Datum::Column(Column { data_type: DataType::Boolean, validity, values: Values::Boolean(values.into()) })
}

fn column_and_constant(comparison: Comparison, column: &Column, value: &Value) -> Vec<u8> {
    match (&column.values, value) {
        (Values::Boolean(values), Value::Boolean(constant)) => {
            with_constant(comparison, values, u8::from(*constant), |value| value)
        }
        (Values::Int16(values), Value::Int16(constant)) => with_constant(comparison, values, *constant, |value| value),
        (Values::Int32(values), Value::Int32(constant) | Value::Date(constant)) => {
            with_constant(comparison, values, *constant, |value| value)
        }
        (Values::Int64(values), Value::Int64(constant) | Value::Timestamp(constant)) => {
            with_constant(comparison, values, *constant, |value| value)
        }
        (Values::Int64(values), Value::Decimal { unscaled, scale }) => {
            let bound = Bound::of(*unscaled, *scale, scale_of(column));
            match bound.decide(comparison, i128::from(i64::MIN), i128::from(i64::MAX)) {
                Decision::All(answer) => vec![u8::from(answer); values.len()],
                Decision::Compare(comparison, constant) => {
                    with_constant(comparison, values, constant as i64, |value| value)
                }
            }
        }
        (Values::Int128(values), Value::Decimal { unscaled, scale }) => {
            let bound = Bound::of(*unscaled, *scale, scale_of(column));
            match bound.decide(comparison, i128::MIN, i128::MAX) {
                Decision::All(answer) => vec![u8::from(answer); values.len()],
                Decision::Compare(comparison, constant) => with_constant(comparison, values, constant, |value| value),
            }
        }
        (Values::Float32(values), Value::Float32(constant)) => {
            with_constant(comparison, values, ordered_f32(*constant), ordered_f32)
        }
        (Values::Float64(values), Value::Float64(constant)) => {
            with_constant(comparison, values, ordered_f64(*constant), ordered_f64)
        }
        (Values::Bytes(views), Value::Text(constant)) => texts::compare(comparison, views, constant.as_bytes()),
        (Values::Bytes(views), Value::Bytes(constant)) => texts::compare(comparison, views, constant),
        // Values of different types are ordered by type.
        _ => (0..column.len()).map(|row| u8::from(comparison.accepts(column.value(row).cmp(value)))).collect(),
    }
}

fn columns(comparison: Comparison, left: &Column, right: &Column) -> Vec<u8> {
    if let (DataType::Decimal { scale, .. }, DataType::Decimal { scale: other, .. }) = (left.data_type, right.data_type)
    {
        return decimals(comparison, (left, scale), (right, other));
    }
    match (&left.values, &right.values) {
        (Values::Boolean(left), Values::Boolean(right)) => with_values(comparison, left, right, |value| value),
        (Values::Int16(left), Values::Int16(right)) => with_values(comparison, left, right, |value| value),
        (Values::Int32(left), Values::Int32(right)) => with_values(comparison, left, right, |value| value),
        (Values::Int64(left), Values::Int64(right)) => with_values(comparison, left, right, |value| value),
        (Values::Float32(left), Values::Float32(right)) => with_values(comparison, left, right, ordered_f32),
        (Values::Float64(left), Values::Float64(right)) => with_values(comparison, left, right, ordered_f64),
        (Values::Bytes(left), Values::Bytes(right)) => texts::compare_both(comparison, left, right),
        _ => one_by_one(comparison, left, right),
    }
}

fn one_by_one(comparison: Comparison, left: &Column, right: &Column) -> Vec<u8> {
    (0..left.len()).map(|row| u8::from(comparison.accepts(left.value(row).cmp(&right.value(row))))).collect()
}

/// Decimals of any width and scale.
fn decimals(comparison: Comparison, left: (&Column, u8), right: (&Column, u8)) -> Vec<u8> {
    let common = left.1.max(right.1);
    match (narrow_values(left.0), narrow_values(right.0)) {
        (Some(left_values), Some(right_values)) if left.1 == right.1 => {
            with_values(comparison, &left_values, &right_values, |value| value)
        }
        // 64 bits times 10^18 fit 128.
        (Some(left_values), Some(right_values)) if common - left.1.min(right.1) <= 18 => {
            let factor = |scale: u8| power(common - scale).unwrap_or(1);
            let (left_factor, right_factor) = (factor(left.1), factor(right.1));
            let order =
                |left: i64, right: i64| (i128::from(left) * left_factor).cmp(&(i128::from(right) * right_factor));
            let pairs = left_values.iter().zip(right_values.iter());
            pairs.map(|(left, right)| u8::from(comparison.accepts(order(*left, *right)))).collect()
        }
        _ => match (&left.0.values, &right.0.values) {
            (Values::Int128(left_values), Values::Int128(right_values)) if left.1 == right.1 => {
                with_values(comparison, left_values, right_values, |value| value)
            }
            _ => one_by_one(comparison, left.0, right.0),
        },
    }
}

fn scale_of(column: &Column) -> u8 {
    match column.data_type {
        DataType::Decimal { scale, .. } => scale,
        _ => 0,
    }
}

/// Where a decimal constant lies among unscaled numbers of another scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// It is one.
    Exact(i128),
    /// It lies above this one and below the next.
    Above(i128),
    /// It is larger (smaller) than all numbers of 128 bits.
    Beyond(Ordering),
}

/// How a comparison with a bound is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    All(bool),
    Compare(Comparison, i128),
}

impl Bound {
    fn of(unscaled: i128, from: u8, to: u8) -> Self {
        if from <= to {
            return match power(to - from).and_then(|factor| unscaled.checked_mul(factor)) {
                Some(scaled) => Self::Exact(scaled),
                None => Self::Beyond(unscaled.cmp(&0)),
            };
        }
        match power(from - to) {
            Some(divisor) if unscaled.rem_euclid(divisor) == 0 => Self::Exact(unscaled.div_euclid(divisor)),
            Some(divisor) => Self::Above(unscaled.div_euclid(divisor)),
            None if unscaled == 0 => Self::Exact(0),
            None => Self::Above(if unscaled < 0 { -1 } else { 0 }),
        }
    }

    /// The comparison for values from `low` to `high`.
    fn decide(self, comparison: Comparison, low: i128, high: i128) -> Decision {
        let (comparison, constant) = match self {
            Self::Exact(constant) => (comparison, constant),
            Self::Above(below) => match comparison {
                Comparison::Equal => return Decision::All(false),
                Comparison::NotEqual => return Decision::All(true),
                Comparison::Less | Comparison::LessOrEqual => (Comparison::LessOrEqual, below),
                Comparison::Greater | Comparison::GreaterOrEqual => (Comparison::Greater, below),
            },
            // What every value is to the constant, the constant is to every value, reversed.
            Self::Beyond(order) => return Decision::All(comparison.accepts(order.reverse())),
        };
        if constant > high {
            Decision::All(comparison.accepts(Ordering::Less))
        } else if constant < low {
            Decision::All(comparison.accepts(Ordering::Greater))
        } else {
            Decision::Compare(comparison, constant)
        }
    }
}
