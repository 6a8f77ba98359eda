//! One value outside a batch: parameters, constants, keys, the rows of small results.
//!
//! The order is SQL's as PostgreSQL defines it: NULL last, NaN equal to itself and above every other number, -0 equal
//! to 0, text by its bytes. Values of different types are ordered by type; the planner never compares them.

use std::cmp::Ordering;
use std::fmt;

/// A value of some [`crate::DataType`], or NULL.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Boolean(bool),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01.
    Timestamp(i64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
}

/// Maps a float to an integer that is ordered as SQL orders floats.
pub(crate) fn order_f64(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = (value + 0.0).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Maps a float to an integer that is ordered as SQL orders floats.
pub(crate) fn order_f32(value: f32) -> i32 {
    if value.is_nan() {
        return i32::MAX;
    }
    let bits = (value + 0.0).to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

impl Value {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Boolean(_) => 0,
            Self::Int16(_) => 1,
            Self::Int32(_) => 2,
            Self::Int64(_) => 3,
            Self::Float32(_) => 4,
            Self::Float64(_) => 5,
            Self::Decimal { .. } => 6,
            Self::Date(_) => 7,
            Self::Timestamp(_) => 8,
            Self::Text(_) => 9,
            Self::Bytes(_) => 10,
            Self::Null => 11,
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            (Self::Int16(a), Self::Int16(b)) => a.cmp(b),
            (Self::Int32(a), Self::Int32(b)) | (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::Int64(a), Self::Int64(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::Float32(a), Self::Float32(b)) => order_f32(*a).cmp(&order_f32(*b)),
            (Self::Float64(a), Self::Float64(b)) => order_f64(*a).cmp(&order_f64(*b)),
            (Self::Decimal { unscaled: a, scale: s }, Self::Decimal { unscaled: b, scale: t }) => {
                compare_decimals(*a, *s, *b, *t)
            }
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Compares without losing digits: the side with the smaller scale is scaled up, and if that overflows its magnitude
/// decides.
fn compare_decimals(a: i128, a_scale: u8, b: i128, b_scale: u8) -> Ordering {
    match a_scale.cmp(&b_scale) {
        Ordering::Equal => a.cmp(&b),
        Ordering::Greater => compare_decimals(b, b_scale, a, a_scale).reverse(),
        Ordering::Less => {
            let scaled = 10_i128.checked_pow(u32::from(b_scale - a_scale)).and_then(|factor| a.checked_mul(factor));
            scaled.map_or_else(|| a.cmp(&0), |scaled| scaled.cmp(&b))
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Boolean(v) => v.fmt(f),
            Self::Int16(v) => v.fmt(f),
            Self::Int32(v) => v.fmt(f),
            Self::Int64(v) => v.fmt(f),
            Self::Float32(v) => v.fmt(f),
            Self::Float64(v) => v.fmt(f),
            Self::Decimal { unscaled, scale } => format_decimal(*unscaled, *scale, f),
            Self::Date(days) => write!(f, "day {days}"),
            Self::Timestamp(microseconds) => write!(f, "{microseconds} us"),
            Self::Text(text) => text.fmt(f),
            Self::Bytes(bytes) => {
                f.write_str("\\x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

fn format_decimal(unscaled: i128, scale: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_postgresql_does() {
        let ascending = [f64::NEG_INFINITY, -1.5, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        for pair in ascending.windows(2) {
            assert!(Value::Float64(pair[0]) < Value::Float64(pair[1]), "{pair:?}");
            assert!(Value::Float32(pair[0] as f32) <= Value::Float32(pair[1] as f32), "{pair:?}");
        }
        assert_eq!(Value::Float64(-0.0), Value::Float64(0.0));
        assert_eq!(Value::Float64(f64::NAN), Value::Float64(-f64::NAN));
        assert!(Value::Null > Value::Text("zzz".into()));
    }

    #[test]
    fn decimals_compare_across_scales_and_print() {
        let decimal = |unscaled, scale| Value::Decimal { unscaled, scale };
        assert_eq!(decimal(150, 2), decimal(15, 1));
        assert!(decimal(-151, 2) < decimal(-15, 1));
        assert!(decimal(i128::MAX, 0) > decimal(1, 30));
        assert_eq!(decimal(-5, 2).to_string(), "-0.05");
        assert_eq!(decimal(12345, 2).to_string(), "123.45");
        assert_eq!(decimal(12, 0).to_string(), "12");
    }
}
