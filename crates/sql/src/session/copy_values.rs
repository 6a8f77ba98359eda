//! Fields of COPY data: the text of one becomes a value of a column.

use std::borrow::Cow;

use eris_storage::ColumnBuilder;

use crate::errors::SqlError;
use crate::pg_format::{fit_text, parse_date, parse_text};
use crate::types::SqlType;

/// Reads a value straight into a column: the common types without a value in between.
pub(super) fn push_value(builder: &mut ColumnBuilder, sql_type: SqlType, text: &str) -> Result<(), SqlError> {
    match sql_type {
        SqlType::Integer => {
            if let Ok(value) = text.parse::<i32>() {
                builder.push_i32(value);
                return Ok(());
            }
        }
        SqlType::BigInt => {
            if let Ok(value) = text.parse::<i64>() {
                builder.push_i64(value);
                return Ok(());
            }
        }
        SqlType::Date => {
            if let Some(days) = parse_date(text) {
                builder.push_i32(days);
                return Ok(());
            }
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            builder.push_bytes(fit_text(sql_type, text)?.as_bytes());
            return Ok(());
        }
        _ => {}
    }
    builder.push(&parse_text(sql_type, text)?);
    Ok(())
}

/// Backslash sequences of the text format; `None` if they give bytes that are not text.
pub(super) fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains('\\') {
        return Some(Cow::Borrowed(raw));
    }
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' || at + 1 == bytes.len() {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        at += 1;
        let digits = |from: usize, most: usize, radix: u32| {
            bytes[from..].iter().take(most).take_while(|byte| (**byte as char).is_digit(radix)).count()
        };
        match bytes[at] {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' if digits(at + 1, 2, 16) > 0 => {
                let count = digits(at + 1, 2, 16);
                out.push(u8::from_str_radix(&raw[at + 1..=at + count], 16).ok()?);
                at += count;
            }
            b'0'..=b'7' => {
                let count = digits(at, 3, 8);
                out.push((u32::from_str_radix(&raw[at..at + count], 8).ok()? & 0xff) as u8);
                at += count - 1;
            }
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}
