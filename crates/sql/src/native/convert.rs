//! Values from one type to another: for comparisons, where a value outside of the type is still comparable, and for
//! assignments, where it is an error.

use datafusion::common::ScalarValue;
use eris_storage::{DataType, Value};

use crate::errors::{SqlError, SqlState};
use crate::pg_format::{MICROS_OF_DAY, fit_text, parse_text, rescale, value_text};
use crate::types::SqlType;

/// What a constant becomes when it is compared with values of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Converted {
    /// The same value.
    Exact(Value),
    /// The constant lies above this value of the type and below the next one.
    Between(Value),
    /// Below every value of the type.
    Below,
    /// Above every value of the type.
    Above,
    /// NULL.
    Null,
}

fn integer_bounds(data_type: DataType) -> Option<(i128, i128)> {
    match data_type {
        DataType::Int16 => Some((i128::from(i16::MIN), i128::from(i16::MAX))),
        DataType::Int32 => Some((i128::from(i32::MIN), i128::from(i32::MAX))),
        DataType::Int64 => Some((i128::from(i64::MIN), i128::from(i64::MAX))),
        DataType::Decimal { precision, .. } => {
            let limit = 10_i128.checked_pow(u32::from(precision))?;
            Some((1 - limit, limit - 1))
        }
        _ => None,
    }
}

fn integer_value(data_type: DataType, value: i128) -> Value {
    match data_type {
        DataType::Int16 => Value::Int16(value as i16),
        DataType::Int32 => Value::Int32(value as i32),
        DataType::Decimal { scale, .. } => Value::Decimal { unscaled: value, scale },
        _ => Value::Int64(value as i64),
    }
}

/// A number as unscaled integer and scale.
fn exact_number(value: &Value) -> Option<(i128, u8)> {
    match value {
        Value::Int16(v) => Some((i128::from(*v), 0)),
        Value::Int32(v) => Some((i128::from(*v), 0)),
        Value::Int64(v) => Some((i128::from(*v), 0)),
        Value::Decimal { unscaled, scale } => Some((*unscaled, *scale)),
        _ => None,
    }
}

/// Brings a constant to the type of what it is compared with; `None` if that would change the comparison's meaning
/// (then DataFusion's coercion must evaluate it).
pub fn comparable(value: &Value, data_type: DataType) -> Option<Converted> {
    if value.is_null() {
        return Some(Converted::Null);
    }
    let exact = |value: Value| Some(Converted::Exact(value));
    match (value, data_type) {
        (Value::Boolean(_), DataType::Boolean)
        | (Value::Int16(_), DataType::Int16)
        | (Value::Int32(_), DataType::Int32)
        | (Value::Int64(_), DataType::Int64)
        | (Value::Float32(_), DataType::Float32)
        | (Value::Float64(_), DataType::Float64)
        | (Value::Date(_), DataType::Date)
        | (Value::Timestamp(_), DataType::Timestamp)
        | (Value::Text(_), DataType::Text)
        | (Value::Bytes(_), DataType::Bytes) => exact(value.clone()),
        (Value::Float32(v), DataType::Float64) => exact(Value::Float64(f64::from(*v))),
        (Value::Date(days), DataType::Timestamp) => {
            exact(Value::Timestamp(i64::from(*days).checked_mul(MICROS_OF_DAY)?))
        }
        (Value::Timestamp(micros), DataType::Date) => {
            let day = Value::Date(i32::try_from(micros.div_euclid(MICROS_OF_DAY)).ok()?);
            Some(if micros.rem_euclid(MICROS_OF_DAY) == 0 { Converted::Exact(day) } else { Converted::Between(day) })
        }
        (_, DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal { .. }) => {
            let (unscaled, from) = exact_number(value)?;
            let to = match data_type {
                DataType::Decimal { scale, .. } => scale,
                _ => 0,
            };
            let (low, high) = integer_bounds(data_type)?;
            let (scaled, remainder) = if to >= from {
                match 10_i128.checked_pow(u32::from(to - from)).and_then(|factor| unscaled.checked_mul(factor)) {
                    Some(scaled) => (scaled, false),
                    None if unscaled < 0 => return Some(Converted::Below),
                    None => return Some(Converted::Above),
                }
            } else {
                let divisor = 10_i128.checked_pow(u32::from(from - to))?;
                (unscaled.div_euclid(divisor), unscaled.rem_euclid(divisor) != 0)
            };
            if scaled < low {
                Some(Converted::Below)
            } else if scaled > high {
                Some(Converted::Above)
            } else if remainder {
                Some(Converted::Between(integer_value(data_type, scaled)))
            } else {
                exact(integer_value(data_type, scaled))
            }
        }
        _ => None,
    }
}

/// The value as a column of this type stores it, or why not: what INSERT and UPDATE do with constants and parameters.
pub fn assign(value: Value, sql_type: SqlType) -> Result<Value, SqlError> {
    let data_type = sql_type.data_type();
    match (&value, data_type) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Text(text), DataType::Text) => {
            let fitted = fit_text(sql_type, text)?;
            if fitted.len() == text.len() { Ok(value) } else { Ok(Value::Text(fitted.into())) }
        }
        (Value::Text(text), _) => parse_text(sql_type, text),
        (_, DataType::Int16 | DataType::Int32 | DataType::Int64) => {
            let integer = match &value {
                Value::Float32(v) => float_to_integer(f64::from(*v)),
                Value::Float64(v) => float_to_integer(*v),
                other => match exact_number(other) {
                    Some((unscaled, scale)) => Some(rescale(unscaled, scale, 38, 0)?),
                    None => return Err(mismatch(&value, sql_type)),
                },
            };
            let (low, high) = integer_bounds(data_type).unwrap_or((0, 0));
            match integer {
                Some(integer) if (low..=high).contains(&integer) => Ok(integer_value(data_type, integer)),
                _ => Err(SqlError::out_of_range(sql_type.base_name())),
            }
        }
        (_, DataType::Decimal { precision, scale }) => {
            let (unscaled, from) = match &value {
                Value::Float32(_) | Value::Float64(_) => {
                    let text = value_text(&value).unwrap_or_default();
                    return parse_text(sql_type, &text);
                }
                other => exact_number(other).ok_or_else(|| mismatch(&value, sql_type))?,
            };
            Ok(Value::Decimal { unscaled: rescale(unscaled, from, precision, scale)?, scale })
        }
        (_, DataType::Float64) => Ok(Value::Float64(float_of(&value).ok_or_else(|| mismatch(&value, sql_type))?)),
        (_, DataType::Float32) => {
            let wide = float_of(&value).ok_or_else(|| mismatch(&value, sql_type))?;
            let narrow = wide as f32;
            if narrow.is_infinite() && !wide.is_infinite() {
                return Err(SqlError::out_of_range("real"));
            }
            Ok(Value::Float32(narrow))
        }
        (Value::Date(days), DataType::Timestamp) => i64::from(*days)
            .checked_mul(MICROS_OF_DAY)
            .map(Value::Timestamp)
            .ok_or_else(|| SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp")),
        (Value::Timestamp(micros), DataType::Date) => Ok(Value::Date(micros.div_euclid(MICROS_OF_DAY) as i32)),
        (Value::Boolean(_), DataType::Boolean)
        | (Value::Date(_), DataType::Date)
        | (Value::Timestamp(_), DataType::Timestamp)
        | (Value::Bytes(_), DataType::Bytes) => Ok(value),
        (_, DataType::Text) => {
            let text = value_text(&value).unwrap_or_default();
            Ok(Value::Text(fit_text(sql_type, &text)?.into()))
        }
        _ => Err(mismatch(&value, sql_type)),
    }
}

fn float_of(value: &Value) -> Option<f64> {
    match value {
        Value::Float32(v) => Some(f64::from(*v)),
        Value::Float64(v) => Some(*v),
        other => value_text(other).filter(|_| exact_number(other).is_some())?.parse().ok(),
    }
}

/// Rounded half to even, as PostgreSQL casts floats.
fn float_to_integer(value: f64) -> Option<i128> {
    let rounded = value.round_ties_even();
    (rounded.is_finite() && rounded.abs() < 1e37).then_some(rounded as i128)
}

fn mismatch(value: &Value, sql_type: SqlType) -> SqlError {
    let from = match value {
        Value::Null => "unknown",
        Value::Boolean(_) => "boolean",
        Value::Int16(_) => "smallint",
        Value::Int32(_) => "integer",
        Value::Int64(_) => "bigint",
        Value::Float32(_) => "real",
        Value::Float64(_) => "double precision",
        Value::Decimal { .. } => "numeric",
        Value::Date(_) => "date",
        Value::Timestamp(_) => "timestamp",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytea",
    };
    SqlError::new(SqlState::TYPE_MISMATCH, format!("a value of type {from} cannot be stored as {sql_type}"))
        .hint("Cast the expression.")
}

/// A literal of DataFusion as a value; `None` for types that storage does not have.
pub fn scalar_value(scalar: &ScalarValue) -> Option<Value> {
    use ScalarValue as S;
    if scalar.is_null() {
        return Some(Value::Null);
    }
    Some(match scalar {
        S::Boolean(Some(v)) => Value::Boolean(*v),
        S::Int8(Some(v)) => Value::Int16(i16::from(*v)),
        S::Int16(Some(v)) => Value::Int16(*v),
        S::Int32(Some(v)) => Value::Int32(*v),
        S::Int64(Some(v)) => Value::Int64(*v),
        S::UInt8(Some(v)) => Value::Int16(i16::from(*v)),
        S::UInt16(Some(v)) => Value::Int32(i32::from(*v)),
        S::UInt32(Some(v)) => Value::Int64(i64::from(*v)),
        S::UInt64(Some(v)) => Value::Int64(i64::try_from(*v).ok()?),
        S::Float32(Some(v)) => Value::Float32(*v),
        S::Float64(Some(v)) => Value::Float64(*v),
        S::Decimal128(Some(v), _, scale) => Value::Decimal { unscaled: *v, scale: u8::try_from(*scale).ok()? },
        S::Utf8(Some(v)) | S::LargeUtf8(Some(v)) | S::Utf8View(Some(v)) => Value::Text(v.as_str().into()),
        S::Binary(Some(v)) | S::LargeBinary(Some(v)) | S::BinaryView(Some(v)) => Value::Bytes(v.as_slice().into()),
        S::Date32(Some(v)) => Value::Date(*v),
        S::TimestampMicrosecond(Some(v), None) => Value::Timestamp(*v),
        S::TimestampSecond(Some(v), None) => Value::Timestamp(v.checked_mul(1_000_000)?),
        S::TimestampMillisecond(Some(v), None) => Value::Timestamp(v.checked_mul(1_000)?),
        S::TimestampNanosecond(Some(v), None) if v % 1_000 == 0 => Value::Timestamp(v / 1_000),
        S::Dictionary(_, inner) => return scalar_value(inner),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_survive_narrower_types() {
        let decimal = |unscaled, scale| Value::Decimal { unscaled, scale };
        let cases = [
            (Value::Int64(5), DataType::Int32, Some(Converted::Exact(Value::Int32(5)))),
            (Value::Int64(1 << 40), DataType::Int32, Some(Converted::Above)),
            (Value::Int64(-(1 << 40)), DataType::Int32, Some(Converted::Below)),
            (decimal(15, 1), DataType::Int32, Some(Converted::Between(Value::Int32(1)))),
            (decimal(-15, 1), DataType::Int32, Some(Converted::Between(Value::Int32(-2)))),
            (Value::Int32(3), DataType::Decimal { precision: 4, scale: 2 }, Some(Converted::Exact(decimal(300, 2)))),
            (Value::Int32(100), DataType::Decimal { precision: 4, scale: 2 }, Some(Converted::Above)),
            (Value::Float64(1.5), DataType::Int32, None),
            (Value::Timestamp(2 * MICROS_OF_DAY), DataType::Date, Some(Converted::Exact(Value::Date(2)))),
            (Value::Timestamp(-1), DataType::Date, Some(Converted::Between(Value::Date(-1)))),
            (Value::Null, DataType::Text, Some(Converted::Null)),
        ];
        for (value, data_type, expected) in cases {
            assert_eq!(comparable(&value, data_type), expected, "{value} as {data_type}");
        }
    }

    #[test]
    fn assignments_round_check_and_parse() {
        let numeric = SqlType::Numeric { precision: 4, scale: 1 };
        assert_eq!(assign(Value::Float64(2.5), SqlType::Integer), Ok(Value::Int32(2)));
        assert_eq!(assign(Value::Int64(7), SqlType::SmallInt), Ok(Value::Int16(7)));
        assert_eq!(assign(Value::Text("7".into()), SqlType::SmallInt), Ok(Value::Int16(7)));
        assert_eq!(assign(Value::Float64(1.25), numeric), Ok(Value::Decimal { unscaled: 13, scale: 1 }));
        assert_eq!(assign(Value::Int64(40_000), SqlType::SmallInt).unwrap_err().sqlstate.as_str(), "22003");
        assert_eq!(assign(Value::Int64(1_000), numeric).unwrap_err().sqlstate.as_str(), "22003");
        assert_eq!(assign(Value::Boolean(true), SqlType::Integer).unwrap_err().sqlstate.as_str(), "42804");
        assert_eq!(
            assign(Value::Text("abc".into()), SqlType::Varchar(Some(2))).unwrap_err().sqlstate.as_str(),
            "22001"
        );
    }
}
