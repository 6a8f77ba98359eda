//! Values as PostgreSQL's text.

use eris_storage::{Column, DataType, Value, Values};

use super::datetime::{write_date, write_timestamp};
use super::float::{write_f32, write_f64};
use super::interval::write_interval;
use super::numeric::write_decimal;
use crate::types::SqlType;

fn write_i64(value: i64, out: &mut Vec<u8>) {
    // At most 19 digits and a sign; written from the end, no allocation.
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_bytea(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

/// Appends the text of a value that is not NULL.
///
/// # Panics
/// If `row` is out of range. NULL is the caller's to see: it has no text.
pub fn text(column: &Column, row: usize, sql_type: SqlType, out: &mut Vec<u8>) {
    match (&column.values, column.data_type) {
        (Values::Boolean(values), _) => out.push(if values[row] != 0 { b't' } else { b'f' }),
        (Values::Int16(values), _) => write_i64(i64::from(values[row]), out),
        (Values::Int32(values), DataType::Date) => write_date(values[row], out),
        (Values::Int32(values), _) => write_i64(i64::from(values[row]), out),
        (Values::Int64(values), DataType::Timestamp) => write_timestamp(values[row], out),
        (Values::Int64(values), DataType::Decimal { scale, .. }) => write_decimal(i128::from(values[row]), scale, out),
        (Values::Int64(values), _) => write_i64(values[row], out),
        (Values::Int128(values), _) if sql_type == SqlType::Interval => write_interval(values[row], out),
        (Values::Int128(values), DataType::Decimal { scale, .. }) => write_decimal(values[row], scale, out),
        (Values::Int128(values), _) => write_decimal(values[row], 0, out),
        (Values::Float32(values), _) => write_f32(values[row], out),
        (Values::Float64(values), _) => write_f64(values[row], out),
        (Values::Bytes(views), DataType::Bytes) => write_bytea(views.get(row), out),
        (Values::Bytes(views), _) => out.extend_from_slice(views.get(row)),
    }
}

/// The text of a single value; `None` for NULL.
pub fn value_text(value: &Value) -> Option<String> {
    let mut out = Vec::new();
    match value {
        Value::Null => return None,
        Value::Boolean(v) => out.push(if *v { b't' } else { b'f' }),
        Value::Int16(v) => write_i64(i64::from(*v), &mut out),
        Value::Int32(v) => write_i64(i64::from(*v), &mut out),
        Value::Int64(v) => write_i64(*v, &mut out),
        Value::Float32(v) => write_f32(*v, &mut out),
        Value::Float64(v) => write_f64(*v, &mut out),
        Value::Decimal { unscaled, scale } => write_decimal(*unscaled, *scale, &mut out),
        Value::Date(v) => write_date(*v, &mut out),
        Value::Timestamp(v) => write_timestamp(*v, &mut out),
        Value::Text(v) => return Some(v.to_string()),
        Value::Bytes(v) => write_bytea(v, &mut out),
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}
