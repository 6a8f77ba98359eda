//! How many bytes a call's result has, told by its arguments.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

/// How long the result for a row gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// `repeat(text, times)`
    Repeat,
    /// `lpad(text, length, fill)`, `rpad`: `length` is in characters.
    Pad,
    /// `replace(text, from, to)`
    Replace,
    /// All arguments one after the other.
    Sum,
    /// `overlay(text, other, from, count)`: where `count` is negative, parts of the text are there twice.
    Overlaid,
    /// `concat_ws(separator, texts ...)`
    Separated,
    /// As long as the first argument.
    Same,
    /// Other letters: each may take up to three times as many bytes.
    Letters,
    /// `translate(text, from, to)`: other characters.
    Characters,
    /// `encode(bytes, format)`
    Encoded,
    /// `regexp_replace(text, pattern, to, flags)`: there may be a match before each character and at the end.
    Matches,
}

/// What a call makes for a batch, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    /// The longest result of a row.
    pub longest: u64,
    /// All results.
    pub all: u64,
    /// Constant arguments that the function repeats for each row.
    pub spread: u64,
}

/// An argument that is a text or bytes.
enum Texts<'a> {
    Constant(Option<&'a [u8]>),
    Rows(BinaryViewArray),
}

impl Texts<'_> {
    fn get(&self, row: usize) -> Option<&[u8]> {
        match self {
            Self::Constant(value) => *value,
            Self::Rows(rows) => rows.is_valid(row).then(|| rows.value(row)),
        }
    }

    fn len(&self, row: usize) -> u64 {
        self.get(row).map_or(0, |text| text.len() as u64)
    }
}

/// An argument that is a number.
enum Counts {
    Constant(Option<i64>),
    Rows(Int64Array),
}

impl Counts {
    fn get(&self, row: usize) -> Option<u64> {
        let count = match self {
            Self::Constant(count) => *count,
            Self::Rows(rows) => rows.is_valid(row).then(|| rows.value(row)),
        };
        count.map(|count| u64::try_from(count).unwrap_or(0))
    }
}

/// A constant text, or bytes.
pub(super) fn constant_bytes(scalar: &ScalarValue) -> Option<&[u8]> {
    match scalar {
        ScalarValue::Binary(bytes) | ScalarValue::LargeBinary(bytes) | ScalarValue::BinaryView(bytes) => {
            bytes.as_deref()
        }
        other => other.try_as_str().flatten().map(str::as_bytes),
    }
}

fn rows_of_bytes(array: &ArrayRef) -> Result<BinaryViewArray> {
    if array.data_type().is_string() {
        return Ok(cast(array, &ArrowType::Utf8View)?.as_string_view().clone().to_binary_view());
    }
    Ok(cast(array, &ArrowType::BinaryView)?.as_binary_view().clone())
}

fn is_text(data_type: &ArrowType) -> bool {
    use ArrowType::{Binary, BinaryView, LargeBinary};
    data_type.is_string() || matches!(data_type, Binary | LargeBinary | BinaryView)
}

/// The arguments that are texts or bytes, in their order.
fn texts_of(args: &[ColumnarValue]) -> Result<Vec<Texts<'_>>> {
    let texts = args.iter().filter(|arg| is_text(&arg.data_type()));
    texts
        .map(|arg| match arg {
            ColumnarValue::Scalar(scalar) => Ok(Texts::Constant(constant_bytes(scalar))),
            ColumnarValue::Array(array) => Ok(Texts::Rows(rows_of_bytes(array)?)),
        })
        .collect()
}

fn counts_of(arg: &ColumnarValue) -> Result<Counts> {
    Ok(match arg {
        ColumnarValue::Scalar(scalar) => match scalar.cast_to(&ArrowType::Int64)? {
            ScalarValue::Int64(count) => Counts::Constant(count),
            _ => Counts::Constant(None),
        },
        ColumnarValue::Array(array) => {
            Counts::Rows(cast(array, &ArrowType::Int64)?.as_primitive::<Int64Type>().clone())
        }
    })
}

/// Whether an argument of any type is NULL in a row.
fn is_null(arg: &ColumnarValue, row: usize) -> bool {
    match arg {
        ColumnarValue::Scalar(scalar) => scalar.is_null(),
        ColumnarValue::Array(array) => array.is_null(row),
    }
}

/// Constant texts that a function may repeat for each row: in views they are there once.
fn spread(args: &[ColumnarValue], rows: usize) -> u64 {
    let constants = args.iter().map(|arg| match arg {
        ColumnarValue::Scalar(ScalarValue::Utf8View(_) | ScalarValue::BinaryView(_)) | ColumnarValue::Array(_) => 0,
        ColumnarValue::Scalar(scalar) => constant_bytes(scalar).map_or(0, <[u8]>::len),
    });
    if rows > 1 { (constants.sum::<usize>() as u64).saturating_mul(rows as u64) } else { 0 }
}

impl Growth {
    /// Of a function; `None`: its results are small, or parts of its arguments.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "repeat" => Self::Repeat,
            "lpad" | "rpad" => Self::Pad,
            "replace" => Self::Replace,
            "||" | "concat" => Self::Sum,
            "overlay" => Self::Overlaid,
            "concat_ws" => Self::Separated,
            "reverse" | "decode" => Self::Same,
            "upper" | "lower" | "initcap" => Self::Letters,
            "translate" => Self::Characters,
            "encode" => Self::Encoded,
            "regexp_replace" => Self::Matches,
            _ => return None,
        })
    }

    /// Whether the result has as many bytes as are told, or nearly; else it may have far fewer.
    pub fn is_exact(self) -> bool {
        !matches!(self, Self::Overlaid | Self::Letters | Self::Characters | Self::Matches)
    }

    /// Whether the result is NULL where an argument is.
    fn is_strict(self) -> bool {
        !matches!(self, Self::Sum | Self::Separated)
    }

    /// Bytes that a call makes of these arguments.
    pub fn bytes(self, args: &[ColumnarValue], rows: usize) -> Result<Bytes> {
        let texts = texts_of(args)?;
        let count = match (self, args.get(1)) {
            (Self::Repeat | Self::Pad, Some(count)) => counts_of(count)?,
            _ => Counts::Constant(None),
        };
        let mut bytes = Bytes { spread: spread(args, rows), ..Bytes::default() };
        for row in 0..rows {
            if self.is_strict() && args.iter().any(|arg| is_null(arg, row)) {
                continue;
            }
            let one = self.of_row(&texts, count.get(row).unwrap_or(0), row);
            bytes.longest = bytes.longest.max(one);
            bytes.all = bytes.all.saturating_add(one);
        }
        Ok(bytes)
    }

    fn of_row(self, texts: &[Texts<'_>], count: u64, row: usize) -> u64 {
        let Some((first, others)) = texts.split_first() else { return 0 };
        let own = first.get(row).unwrap_or_default();
        let length = own.len() as u64;
        let is_ascii = || own.is_ascii() && others.iter().all(|text| text.get(row).is_none_or(<[u8]>::is_ascii));
        let of_others = || others.iter().fold(0_u64, |sum, text| sum.saturating_add(text.len(row)));
        match self {
            Self::Repeat => count.saturating_mul(length),
            Self::Pad => count.saturating_mul(if is_ascii() { 1 } else { 4 }),
            Self::Replace => match others {
                [from, to] => replaced_bytes(own, from.get(row).unwrap_or_default(), to.get(row).unwrap_or_default()),
                _ => length,
            },
            Self::Sum => length.saturating_add(of_others()),
            Self::Overlaid => length.saturating_mul(2).saturating_add(of_others()),
            Self::Separated => {
                let separators = others.iter().filter(|text| text.get(row).is_some()).count().saturating_sub(1);
                length.saturating_mul(separators as u64).saturating_add(of_others())
            }
            Self::Same => length,
            Self::Letters => length.saturating_mul(if is_ascii() { 1 } else { 3 }),
            Self::Characters => length.saturating_mul(if is_ascii() { 1 } else { 4 }),
            // Two digits a byte in one format; four characters for three bytes in the other.
            Self::Encoded => length.saturating_mul(2).saturating_add(4),
            Self::Matches => match others {
                [_, to, flags @ ..] => {
                    let is_global = flags.first().and_then(|flags| flags.get(row)).unwrap_or_default().contains(&b'g');
                    matched_bytes(length, to.get(row).unwrap_or_default(), is_global)
                }
                _ => length,
            },
        }
    }
}

fn replaced_bytes(text: &[u8], from: &[u8], to: &[u8]) -> u64 {
    let length = text.len() as u64;
    if from.is_empty() || to.len() <= from.len() {
        return length;
    }
    // Both are valid UTF-8, or else the function itself refuses them.
    let found = match (std::str::from_utf8(text), std::str::from_utf8(from)) {
        (Ok(text), Ok(from)) => text.matches(from).count(),
        _ => text.len() / from.len(),
    };
    length.saturating_add((found as u64).saturating_mul((to.len() - from.len()) as u64))
}

/// `to` at each match, and what its references (`\1`, `$1`) repeat of the matches, which do not overlap.
fn matched_bytes(length: u64, to: &[u8], is_global: bool) -> u64 {
    let references = to.iter().filter(|byte| matches!(byte, b'\\' | b'$')).count() as u64;
    let matches = if is_global { length.saturating_add(1) } else { 1 };
    let written = matches.saturating_mul(to.len() as u64);
    length.saturating_add(written).saturating_add(references.saturating_mul(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_grows_by_what_is_found() {
        assert_eq!(replaced_bytes(b"abcabc", b"b", b"xyz"), "axyzcaxyzc".len() as u64);
        assert_eq!(replaced_bytes(b"abc", b"", b"xyz"), 3);
        assert_eq!(replaced_bytes(b"aaa", b"aa", b"b"), 3);
    }

    #[test]
    fn matches_are_bounded_by_the_length_of_a_text() {
        // Without flags the first match alone is replaced.
        assert_eq!(matched_bytes(3, b"xy", false), 5);
        // xy before each of three characters and at the end.
        assert_eq!(matched_bytes(3, b"xy", true), 3 + 4 * 2);
        // The whole text twice, and the two references as they are written.
        assert!(matched_bytes(10, br"\1\1", false) >= 20);
    }
}
