//! `substring(text from start for count)` with constant bounds, in characters. Parts of long texts share their data.

use eris_storage::{Column, Values, Views};

use super::texts;
use crate::error::OperatorError;

/// Which characters of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Skipped at the beginning.
    skipped: usize,
    /// Taken after that; `None`: all.
    taken: Option<usize>,
}

impl Span {
    /// From character `start`, of which the first one is 1, `count` characters (`None`: all). What lies before the text
    /// counts, too: from 0 for 2 is the first character. `None`: the bounds are refused.
    pub fn new(start: i64, count: Option<i64>) -> Option<Self> {
        let before = start.checked_sub(1)?;
        let skipped = usize::try_from(before.max(0)).ok()?;
        let taken = match count {
            None => None,
            Some(count) if count < 0 => return None,
            Some(count) => {
                let end = usize::try_from(before.saturating_add(count).max(0)).ok()?;
                Some(end.saturating_sub(skipped))
            }
        };
        Some(Self { skipped, taken })
    }

    /// The first character's number and how many there are.
    pub(super) fn bounds(self) -> (usize, Option<usize>) {
        (self.skipped + 1, self.taken)
    }

    /// How many characters, if they are the first ones.
    fn beginning(self) -> Option<usize> {
        if self.skipped == 0 { self.taken } else { None }
    }

    /// Where the part begins and ends, in bytes.
    fn of(self, text: &[u8]) -> (usize, usize) {
        let start = skip(text, 0, self.skipped);
        (start, self.taken.map_or(text.len(), |taken| skip(text, start, taken)))
    }
}

/// The byte that `count` characters from byte `at` on end before.
#[inline]
fn skip(text: &[u8], at: usize, count: usize) -> usize {
    let end = at.saturating_add(count);
    if end <= text.len() && text[at..end].is_ascii() && text.get(end).is_none_or(|next| next & 0xC0 != 0x80) {
        return end;
    }
    let mut characters = 0;
    for (offset, byte) in text[at..].iter().enumerate() {
        // Each byte that does not continue a character begins one.
        if byte & 0xC0 != 0x80 {
            if characters == count {
                return at + offset;
            }
            characters += 1;
        }
    }
    text.len()
}

/// The same part of every text.
pub(super) fn substring(column: &Column, span: Span) -> Result<Column, OperatorError> {
    let Values::Bytes(views) = &column.values else {
        return Err(OperatorError::Internal(format!("substring of {}", column.data_type)));
    };
    let beginning = span.beginning();
    let part = |row: usize| {
        if let Some(part) = beginning.and_then(|characters| texts::beginning_of(views.views[row], characters)) {
            return part;
        }
        let text = views.get(row);
        let (start, end) = span.of(text);
        texts::view_of_part(views.views[row], &text[start..end], start)
    };
    let parts = (0..views.len()).map(part).collect();
    let values = Values::Bytes(Views { views: parts, data: views.data.clone() });
    Ok(Column { data_type: column.data_type, validity: column.validity.clone(), values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{ColumnBuilder, DataType, Value};

    #[test]
    fn agrees_with_characters_counted_one_by_one() {
        let texts =
            ["", "a", "13-456-789", "é", "éa", "aé🌏b", "a text that is longer than its view", "ééééééééé🌏🌏🌏🌏"];
        let mut builder = ColumnBuilder::with_capacity(DataType::Text, texts.len());
        for text in texts {
            builder.push_bytes(text.as_bytes());
        }
        builder.push_null();
        let column = builder.finish();
        for start in [i64::MIN + 1, -5, -1, 0, 1, 2, 3, 8, 30, i64::MAX] {
            for count in [None, Some(0), Some(1), Some(2), Some(7), Some(14), Some(i64::MAX)] {
                let span = Span::new(start, count).unwrap();
                let got = substring(&column, span).unwrap();
                for (row, text) in texts.iter().enumerate() {
                    let end = count.map_or(i128::MAX, |count| i128::from(start) + i128::from(count));
                    let wanted = |at: usize| (i128::from(start)..end).contains(&(at as i128 + 1));
                    let expected: String =
                        text.chars().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, c)| c).collect();
                    assert_eq!(got.value(row), Value::Text(expected.into()), "'{text}' from {start} for {count:?}");
                }
                assert_eq!(got.value(texts.len()), Value::Null);
            }
        }
        assert!(Span::new(1, Some(-1)).is_none());
        assert!(Span::new(i64::MIN, None).is_none());
    }
}
