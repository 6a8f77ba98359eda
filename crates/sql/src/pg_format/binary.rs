//! Values in PostgreSQL's binary format: big endian, dates and timestamps from 2000-01-01, numerics in base 10,000.

use eris_storage::{Column, DataType, Values};

use super::interval::unpack_interval;
use crate::types::SqlType;

/// Days from 1970-01-01 to 2000-01-01.
pub(super) const POSTGRES_EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(super) const POSTGRES_EPOCH_MICROS: i64 = 946_684_800_000_000;

/// Appends the binary form of a value that is not NULL.
///
/// # Panics
/// If `row` is out of range.
pub fn binary(column: &Column, row: usize, sql_type: SqlType, out: &mut Vec<u8>) {
    match (&column.values, column.data_type) {
        (Values::Boolean(values), _) => out.push(u8::from(values[row] != 0)),
        (Values::Int16(values), _) => out.extend_from_slice(&values[row].to_be_bytes()),
        (Values::Int32(values), DataType::Date) => {
            out.extend_from_slice(&values[row].wrapping_sub(POSTGRES_EPOCH_DAYS).to_be_bytes());
        }
        (Values::Int32(values), _) => out.extend_from_slice(&values[row].to_be_bytes()),
        (Values::Int64(values), DataType::Timestamp) => {
            out.extend_from_slice(&values[row].wrapping_sub(POSTGRES_EPOCH_MICROS).to_be_bytes());
        }
        (Values::Int64(values), DataType::Decimal { scale, .. }) => {
            binary_numeric(i128::from(values[row]), scale, out);
        }
        (Values::Int64(values), _) => out.extend_from_slice(&values[row].to_be_bytes()),
        (Values::Int128(values), _) if sql_type == SqlType::Interval => {
            let (months, days, micros) = unpack_interval(values[row]);
            out.extend_from_slice(&micros.to_be_bytes());
            out.extend_from_slice(&days.to_be_bytes());
            out.extend_from_slice(&months.to_be_bytes());
        }
        (Values::Int128(values), DataType::Decimal { scale, .. }) => binary_numeric(values[row], scale, out),
        (Values::Int128(values), _) => binary_numeric(values[row], 0, out),
        (Values::Float32(values), _) => out.extend_from_slice(&values[row].to_be_bytes()),
        (Values::Float64(values), _) => out.extend_from_slice(&values[row].to_be_bytes()),
        (Values::Bytes(views), _) => out.extend_from_slice(views.get(row)),
    }
}

/// PostgreSQL's numeric: digits in base 10,000, the weight of the first one, sign, and the digits shown after the
/// point.
///
/// ```text
/// | ndigits: i16 | weight: i16 | sign: 0 or 0x4000 | dscale: i16 | digit: i16 ... |
/// ```
fn binary_numeric(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    let mut magnitude = unscaled.unsigned_abs();
    // Align the digits after the point to groups of four.
    let padding = (4 - u32::from(scale) % 4) % 4;
    let fraction_groups = (u32::from(scale) + padding) / 4;
    let mut groups: Vec<i16> = Vec::with_capacity(12);
    if padding > 0 {
        // The lowest group is completed with zeros without multiplying the whole number, which might overflow.
        let low = 10_u128.pow(4 - padding);
        groups.push(((magnitude % low) * 10_u128.pow(padding)) as i16);
        magnitude /= low;
    }
    while magnitude > 0 {
        groups.push((magnitude % 10_000) as i16);
        magnitude /= 10_000;
    }
    let weight = groups.len() as i32 - fraction_groups as i32 - 1;
    // Digits that are zero at either end are not sent.
    let trailing = groups.iter().take_while(|&&digit| digit == 0).count();
    let digits: Vec<i16> = groups.split_off(trailing);
    let leading = digits.iter().rev().take_while(|&&digit| digit == 0).count();
    let sent = &digits[..digits.len() - leading];
    let weight = if sent.is_empty() { 0 } else { weight - leading as i32 };
    out.extend_from_slice(&(sent.len() as i16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&(if unscaled < 0 { 0x4000_i16 } else { 0 }).to_be_bytes());
    out.extend_from_slice(&i16::from(scale).to_be_bytes());
    for digit in sent.iter().rev() {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::binary_numeric;
    use crate::pg_format::parse_binary;
    use crate::types::SqlType;
    use eris_storage::Value;

    #[test]
    fn numerics_go_both_ways() {
        let mut state = 7_u64;
        for round in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let scale = (round % 11) as u8;
            let unscaled = i128::from(state as i64) >> (round % 61);
            let mut bytes = Vec::new();
            binary_numeric(unscaled, scale, &mut bytes);
            let back = parse_binary(SqlType::Numeric { precision: 38, scale }, &bytes).unwrap();
            assert_eq!(back, Value::Decimal { unscaled, scale }, "{unscaled} at {scale}: {bytes:?}");
        }
    }

    #[test]
    fn as_postgres_sends_it() {
        let mut bytes = Vec::new();
        binary_numeric(1_234_567, 2, &mut bytes);
        // 12345.67 = 1 * 10^4 + 2345 + 6700 * 10^-4
        assert_eq!(bytes, [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1a, 0x2c]);
    }
}
