//! Reading PostgreSQL's binary format: parameters of the extended protocol. Every length is checked.

use eris_storage::Value;

use super::binary::{POSTGRES_EPOCH_DAYS, POSTGRES_EPOCH_MICROS};
use super::interval::pack_interval;
use super::numeric::{power_of_ten, rescale};
use super::parse::fit_text;
use crate::errors::{SqlError, SqlState};
use crate::types::SqlType;

fn malformed(sql_type: SqlType) -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY, format!("incorrect binary data format for type {}", sql_type.base_name()))
}

fn fixed<const N: usize>(sql_type: SqlType, bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| malformed(sql_type))
}

/// Reads a value of the type from its binary form.
pub fn parse_binary(sql_type: SqlType, bytes: &[u8]) -> Result<Value, SqlError> {
    Ok(match sql_type {
        SqlType::Boolean => Value::Boolean(fixed::<1>(sql_type, bytes)?[0] != 0),
        SqlType::SmallInt => Value::Int16(i16::from_be_bytes(fixed(sql_type, bytes)?)),
        SqlType::Integer => Value::Int32(i32::from_be_bytes(fixed(sql_type, bytes)?)),
        SqlType::BigInt => Value::Int64(i64::from_be_bytes(fixed(sql_type, bytes)?)),
        SqlType::Real => Value::Float32(f32::from_be_bytes(fixed(sql_type, bytes)?)),
        SqlType::Double => Value::Float64(f64::from_be_bytes(fixed(sql_type, bytes)?)),
        SqlType::Date => Value::Date(
            i32::from_be_bytes(fixed(sql_type, bytes)?)
                .checked_add(POSTGRES_EPOCH_DAYS)
                .ok_or_else(|| SqlError::out_of_range("date"))?,
        ),
        SqlType::Timestamp => Value::Timestamp(
            i64::from_be_bytes(fixed(sql_type, bytes)?)
                .checked_add(POSTGRES_EPOCH_MICROS)
                .ok_or_else(|| SqlError::out_of_range("timestamp"))?,
        ),
        SqlType::Interval => {
            let bytes: [u8; 16] = fixed(sql_type, bytes)?;
            let micros = i64::from_be_bytes(fixed(sql_type, &bytes[..8])?);
            let days = i32::from_be_bytes(fixed(sql_type, &bytes[8..12])?);
            let months = i32::from_be_bytes(fixed(sql_type, &bytes[12..])?);
            Value::Decimal { unscaled: pack_interval(months, days, micros), scale: 0 }
        }
        SqlType::Numeric { precision, scale } => {
            Value::Decimal { unscaled: parse_numeric(bytes, precision, scale)?, scale }
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Unknown => {
            Value::Text(fit_text(sql_type, utf8(bytes)?)?.into())
        }
        SqlType::Bytea => Value::Bytes(bytes.into()),
    })
}

/// Text or 22021.
fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        SqlError::new(SqlState::INVALID_ENCODING, "invalid byte sequence for encoding \"UTF8\"")
            .detail(format!("The byte 0x{:02x} at offset {at} does not continue a character.", bytes[at]))
    })
}

fn parse_numeric(bytes: &[u8], precision: u8, scale: u8) -> Result<i128, SqlError> {
    let sql_type = SqlType::Numeric { precision, scale };
    let word = |at: usize| -> Result<i16, SqlError> {
        let bytes = bytes.get(at * 2..at * 2 + 2).ok_or_else(|| malformed(sql_type))?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let (count, weight, sign) = (word(0)?, word(1)?, word(2)? as u16);
    word(3)?;
    if count < 0 || bytes.len() != 8 + 2 * count as usize {
        return Err(malformed(sql_type));
    }
    if sign == 0xc000 || sign == 0xd000 || sign == 0xf000 {
        return Err(SqlError::unsupported("NaN or infinity as numeric", "Use double precision."));
    }
    if sign != 0 && sign != 0x4000 {
        return Err(malformed(sql_type));
    }
    let overflow = || SqlError::numeric_overflow(precision, scale);
    let mut unscaled: i128 = 0;
    for at in 0..count as usize {
        let digit = word(4 + at)?;
        if !(0..10_000).contains(&digit) {
            return Err(malformed(sql_type));
        }
        unscaled = unscaled.checked_mul(10_000).and_then(|n| n.checked_add(i128::from(digit))).ok_or_else(overflow)?;
    }
    // The last digit stands for 10,000 to the power of (weight - count + 1).
    let power = 4 * (i32::from(weight) - i32::from(count) + 1);
    let mut from_scale = 0_u8;
    if power >= 0 {
        let factor = u8::try_from(power).ok().and_then(power_of_ten);
        unscaled = match (unscaled, factor) {
            (0, _) => 0,
            (n, Some(factor)) => n.checked_mul(factor).ok_or_else(overflow)?,
            (_, None) => return Err(overflow()),
        };
    } else {
        from_scale = u8::try_from(-power).unwrap_or(u8::MAX);
    }
    if sign == 0x4000 {
        unscaled = -unscaled;
    }
    rescale(unscaled, from_scale, precision, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lengths_are_refused_for_every_type() {
        for sql_type in [
            SqlType::Boolean,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Real,
            SqlType::Double,
            SqlType::Date,
            SqlType::Timestamp,
            SqlType::Interval,
            SqlType::Numeric { precision: 10, scale: 2 },
        ] {
            for length in [0_usize, 3, 5, 7, 9, 17, 33] {
                let error = parse_binary(sql_type, &vec![1; length]).unwrap_err();
                assert_eq!(error.sqlstate, SqlState::INVALID_BINARY, "{sql_type} {length}");
            }
        }
        assert_eq!(parse_binary(SqlType::Text, &[0xff]).unwrap_err().sqlstate, SqlState::INVALID_ENCODING);
    }

    #[test]
    fn arbitrary_numerics_never_panic() {
        let mut state = 99_u64;
        for _ in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let count = (state >> 60) as usize;
            let mut bytes = Vec::new();
            for at in 0..4 + count {
                bytes.extend_from_slice(&((state.rotate_left(at as u32 * 7)) as i16).to_be_bytes());
            }
            bytes[..2].copy_from_slice(&(count as i16).to_be_bytes());
            let _ = parse_binary(SqlType::Numeric { precision: 38, scale: 6 }, &bytes);
        }
    }
}
