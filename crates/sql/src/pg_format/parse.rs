//! Reading values from text: literals, parameters in text format, COPY.

use eris_storage::Value;

use super::datetime::{parse_date, parse_timestamp};
use super::numeric::{parse_decimal, rescale};
use crate::errors::{SqlError, SqlState};
use crate::types::SqlType;

/// Reads a value of the type. Spaces around numbers, dates and booleans do not count; around text they do.
pub fn parse_text(sql_type: SqlType, text: &str) -> Result<Value, SqlError> {
    Ok(match sql_type {
        SqlType::Boolean => Value::Boolean(parse_boolean(text).ok_or_else(|| invalid(sql_type, text))?),
        SqlType::SmallInt => {
            Value::Int16(i16::try_from(parse_integer(sql_type, text)?).map_err(|_| integer_range(sql_type, text))?)
        }
        SqlType::Integer => {
            Value::Int32(i32::try_from(parse_integer(sql_type, text)?).map_err(|_| integer_range(sql_type, text))?)
        }
        SqlType::BigInt => {
            Value::Int64(i64::try_from(parse_integer(sql_type, text)?).map_err(|_| integer_range(sql_type, text))?)
        }
        SqlType::Real => {
            let value = parse_float::<f32>(text).ok_or_else(|| invalid(sql_type, text))?;
            Value::Float32(float_range(value, value.is_infinite(), value == 0.0, sql_type, text)?)
        }
        SqlType::Double => {
            let value = parse_float::<f64>(text).ok_or_else(|| invalid(sql_type, text))?;
            Value::Float64(float_range(value, value.is_infinite(), value == 0.0, sql_type, text)?)
        }
        SqlType::Numeric { precision, scale } => {
            let decimal = parse_decimal(text).ok_or_else(|| {
                if looks_numeric(text) { SqlError::numeric_overflow(precision, scale) } else { invalid(sql_type, text) }
            })?;
            Value::Decimal { unscaled: rescale(decimal.unscaled, decimal.scale, precision, scale)?, scale }
        }
        SqlType::Date => Value::Date(parse_date(text).ok_or_else(|| invalid_datetime("date", text))?),
        SqlType::Timestamp => {
            Value::Timestamp(parse_timestamp(text).ok_or_else(|| invalid_datetime("timestamp", text))?)
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Unknown => {
            Value::Text(fit_text(sql_type, text)?.into())
        }
        SqlType::Bytea => Value::Bytes(parse_bytea(text)?.into()),
        SqlType::Interval => {
            return Err(SqlError::unsupported("interval as a parameter", "Write interval '...' in the statement."));
        }
    })
}

fn invalid(sql_type: SqlType, text: &str) -> SqlError {
    SqlError::invalid_text(sql_type.base_name(), text)
}

fn invalid_datetime(name: &str, text: &str) -> SqlError {
    let digits =
        text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && text.bytes().filter(|&b| b == b'-').count() == 2;
    if digits {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
    } else {
        SqlError::new(SqlState::INVALID_DATETIME, format!("invalid input syntax for type {name}: \"{text}\""))
    }
}

fn integer_range(sql_type: SqlType, text: &str) -> SqlError {
    SqlError::new(
        SqlState::OUT_OF_RANGE,
        format!("value \"{}\" is out of range for type {}", text.trim(), sql_type.base_name()),
    )
}

fn looks_numeric(text: &str) -> bool {
    let text = text.trim();
    text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'))
}

fn parse_integer(sql_type: SqlType, text: &str) -> Result<i128, SqlError> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(sql_type, text));
    }
    trimmed.parse().map_err(|_| integer_range(sql_type, text))
}

fn parse_float<F: std::str::FromStr>(text: &str) -> Option<F> {
    let text = text.trim();
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let word =
        body.eq_ignore_ascii_case("nan") || body.eq_ignore_ascii_case("infinity") || body.eq_ignore_ascii_case("inf");
    let number = !body.is_empty() && body.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    (word || number).then(|| text.parse().ok())?
}

/// A number whose digits say that it is infinite or zero, which they do not mean.
fn float_range<F>(value: F, infinite: bool, zero: bool, sql_type: SqlType, text: &str) -> Result<F, SqlError> {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let nonzero = mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if nonzero && (infinite || zero) {
        let text = text.trim();
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, format!("\"{text}\" is out of range for type {sql_type}")));
    }
    Ok(value)
}

fn parse_boolean(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let prefix = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if prefix("true", 1) || prefix("yes", 1) || text == "on" || text == "1" {
        Some(true)
    } else if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

/// `\x0aff`, or text in which `\\` is a backslash and `\ooo` a byte in octal.
fn parse_bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    let bad = || SqlError::invalid_text("bytea", text);
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(bad());
        }
        let nibble = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
        return digits
            .chunks_exact(2)
            .map(|pair| Some((nibble(pair[0])? << 4) | nibble(pair[1])?))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(bad);
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
        } else if bytes.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else {
            let octal = bytes.get(at + 1..at + 4).ok_or_else(bad)?;
            let valid = octal.iter().all(|b| (b'0'..=b'7').contains(b)) && octal[0] <= b'3';
            if !valid {
                return Err(bad());
            }
            out.push(octal.iter().fold(0, |n, b| (n << 3) | (b - b'0')));
            at += 4;
        }
    }
    Ok(out)
}

/// Checks the length of text against `varchar(n)` or `char(n)`; spaces beyond it are cut as the standard says, and
/// trailing spaces of `char(n)` are never kept.
pub fn fit_text(sql_type: SqlType, text: &str) -> Result<&str, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::new(SqlState::INVALID_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    let (limit, text) = match sql_type {
        SqlType::Varchar(limit) => (limit, text),
        SqlType::Char(limit) => (limit, text.trim_end_matches(' ')),
        _ => return Ok(text),
    };
    let Some(limit) = limit else { return Ok(text) };
    if text.len() <= limit as usize {
        return Ok(text);
    }
    let Some((cut, _)) = text.char_indices().nth(limit as usize) else { return Ok(text) };
    if text[cut..].bytes().all(|b| b == b' ') {
        return Ok(&text[..cut]);
    }
    Err(SqlError::new(SqlState::STRING_TOO_LONG, format!("value too long for type {sql_type}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_postgres_reads() {
        assert_eq!(parse_text(SqlType::Integer, " 42 "), Ok(Value::Int32(42)));
        assert_eq!(parse_text(SqlType::Boolean, "T"), Ok(Value::Boolean(true)));
        assert_eq!(parse_text(SqlType::Boolean, "of"), Ok(Value::Boolean(false)));
        assert_eq!(parse_text(SqlType::Bytea, "\\x00ff"), Ok(Value::Bytes([0, 255].into())));
        assert_eq!(parse_text(SqlType::Bytea, "a\\\\b\\001"), Ok(Value::Bytes([97, 92, 98, 1].into())));
        assert_eq!(
            parse_text(SqlType::Numeric { precision: 5, scale: 2 }, "1.005"),
            Ok(Value::Decimal { unscaled: 101, scale: 2 })
        );
        assert_eq!(parse_text(SqlType::Char(Some(5)), "ab   "), Ok(Value::Text("ab".into())));
        assert_eq!(parse_text(SqlType::Varchar(Some(2)), "ab "), Ok(Value::Text("ab".into())));
    }

    #[test]
    fn refuses_with_the_right_state() {
        let cases = [
            (SqlType::Integer, "4x", "22P02"),
            (SqlType::Integer, "", "22P02"),
            (SqlType::Integer, "2147483648", "22003"),
            (SqlType::BigInt, "99999999999999999999999999999999999999999999", "22003"),
            (SqlType::SmallInt, "40000", "22003"),
            (SqlType::Boolean, "o", "22P02"),
            (SqlType::Double, "1.2.3", "22P02"),
            (SqlType::Double, "0x10", "22P02"),
            (SqlType::Double, "1e400", "22003"),
            (SqlType::Double, "1e-400", "22003"),
            (SqlType::Real, "1e39", "22003"),
            (SqlType::Date, "yesterday", "22007"),
            (SqlType::Date, "2023-02-30", "22008"),
            (SqlType::Numeric { precision: 3, scale: 1 }, "1000", "22003"),
            (SqlType::Numeric { precision: 3, scale: 1 }, "1x", "22P02"),
            (SqlType::Varchar(Some(2)), "abc", "22001"),
            (SqlType::Char(Some(2)), "äöü", "22001"),
            (SqlType::Bytea, "\\x0", "22P02"),
            (SqlType::Bytea, "\\9", "22P02"),
            (SqlType::Text, "a\0b", "22021"),
        ];
        for (sql_type, text, state) in cases {
            assert_eq!(parse_text(sql_type, text).unwrap_err().sqlstate.as_str(), state, "{sql_type} {text}");
        }
    }
}
