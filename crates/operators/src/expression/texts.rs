//! Texts by their views, see [`Views`]: what the 16 bytes of a view decide is not looked up in its data.
//!
//! Texts that a dictionary gave repeat with the very same view. Tests that cost more than finding a view again are made
//! once per distinct view of a batch, see [`test_distinct`].

use std::cmp::Ordering;

use eris_storage::{Comparison, VIEW_INLINE_MAX, Views};

use super::compare::test;
use super::instructions::Level;

/// Answers kept at a time, a power of two.
const ANSWERS: usize = 256;
/// Rows after which it is decided whether views repeat.
const SAMPLE_ROWS: usize = 128;
/// Views repeat if at least one in so many was known.
const REPEATS_MIN: usize = 4;

/// The length that a view says.
#[inline]
pub(super) fn len_of(view: u128) -> usize {
    view as u32 as usize
}

/// Up to twelve bytes, one behind the other from the lowest on, zeros above.
#[inline]
fn word_of(text: &[u8]) -> u128 {
    let four = |at: usize| u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
    let len = text.len();
    // Two words that overlap hold what one and a part of another would.
    let tail = |width: usize| u128::from(four(len - 4)) << (8 * (width - 4));
    match len {
        8..=12 => u128::from(four(0)) | u128::from(four(4)) << 32 | tail(len),
        4..=7 => u128::from(four(0)) | tail(len),
        _ => text.iter().rev().fold(0, |word, byte| word << 8 | u128::from(*byte)),
    }
}

/// The view of a text that lies in it; `None`: it is too long.
#[inline]
pub(super) fn inline_view(text: &[u8]) -> Option<u128> {
    (text.len() <= VIEW_INLINE_MAX).then(|| text.len() as u128 | word_of(text) << 32)
}

/// The view of `part`, which begins `start` bytes into the text of a view.
#[inline]
pub(super) fn view_of_part(view: u128, part: &[u8], start: usize) -> u128 {
    if let Some(inline) = inline_view(part) {
        return inline;
    }
    let (buffer, offset) = ((view >> 64) as u32, (view >> 96) as u32 + start as u32);
    let prefix = word_of(&part[..4]);
    part.len() as u128 | prefix << 32 | u128::from(buffer) << 64 | u128::from(offset) << 96
}

/// The view of the first characters of a text, if there are so many and the view itself shows that they are ASCII.
#[inline]
pub(super) fn beginning_of(view: u128, characters: usize) -> Option<u128> {
    if characters > 4 || characters > len_of(view) {
        return None;
    }
    let bits = (1_u64 << (8 * characters)) - 1;
    let bytes = (view >> 32) as u64 & bits;
    (bytes & 0x8080_8080 == 0).then_some(characters as u128 | u128::from(bytes) << 32)
}

/// The first four bytes of a view's text, in their order; zeros where it is shorter.
#[inline]
fn prefix_of(view: u128) -> u32 {
    ((view >> 32) as u32).swap_bytes()
}

fn prefix_of_text(text: &[u8]) -> u32 {
    let mut prefix = [0; 4];
    let len = text.len().min(4);
    prefix[..len].copy_from_slice(&text[..len]);
    u32::from_be_bytes(prefix)
}

/// A dictionary is asked instead of a column if it has at most one text for so many rows.
const ROWS_PER_TEXT_MIN: usize = 2;

/// Asks each text of the dictionary that a column comes from once, if that is less work than asking each row.
pub(crate) fn by_dictionary(views: &Views, ask: impl FnOnce(&Views) -> Vec<u8>) -> Option<Vec<u8>> {
    let coded = views.coded().filter(|coded| coded.texts.len() * ROWS_PER_TEXT_MIN <= coded.ids.len())?;
    let answers = ask(coded.texts.texts());
    Some(coded.ids.iter().map(|id| answers[usize::from(*id)]).collect())
}

/// Texts against a constant.
pub(super) fn compare(comparison: Comparison, views: &Views, constant: &[u8]) -> Vec<u8> {
    if let Some(known) = by_dictionary(views, |texts| compare(comparison, texts, constant)) {
        return known;
    }
    let level = Level::for_rows(views.len());
    match comparison {
        Comparison::Equal => equals(level, views, constant, true),
        Comparison::NotEqual => equals(level, views, constant, false),
        Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
            let prefix = prefix_of_text(constant);
            let order = |row: usize| {
                // Zeros stand for what is missing, so different prefixes are ordered as the texts are.
                prefix_of(views.views[row]).cmp(&prefix).then_with(|| views.get(row).cmp(constant))
            };
            (0..views.len()).map(|row| u8::from(comparison.accepts(order(row)))).collect()
        }
    }
}

fn equals(level: Level, views: &Views, constant: &[u8], wanted: bool) -> Vec<u8> {
    match inline_view(constant) {
        Some(constant) if wanted => test(level, &views.views, |view| view == constant),
        Some(constant) => test(level, &views.views, |view| view != constant),
        None => {
            // Length and prefix.
            let head = constant.len() as u64 | u64::from(prefix_of_text(constant).swap_bytes()) << 32;
            let same = |row: usize| views.views[row] as u64 == head && views.get(row) == constant;
            (0..views.len()).map(|row| u8::from(same(row) == wanted)).collect()
        }
    }
}

/// Texts against others.
pub(super) fn compare_both(comparison: Comparison, left: &Views, right: &Views) -> Vec<u8> {
    let order = |row: usize| -> Ordering {
        let (a, b) = (left.views[row], right.views[row]);
        if a == b && len_of(a) <= VIEW_INLINE_MAX {
            return Ordering::Equal;
        }
        prefix_of(a).cmp(&prefix_of(b)).then_with(|| left.get(row).cmp(right.get(row)))
    };
    (0..left.len()).map(|row| u8::from(comparison.accepts(order(row)))).collect()
}

/// 1 for each text for which a test holds; `filter` is asked first and sees the view alone.
pub(super) fn test_each(views: &Views, filter: impl Fn(u128) -> bool, holds: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let each = views.views.iter().enumerate();
    each.map(|(row, view)| u8::from(filter(*view) && holds(views.get(row)))).collect()
}

/// 1 for each text for which a test holds, made once per distinct view if views repeat.
pub(super) fn test_distinct(views: &Views, mut holds: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let rows = views.len();
    let mut out = Vec::with_capacity(rows);
    let mut row = 0;
    if rows > SAMPLE_ROWS {
        // An empty text is the one whose view is 0: it is what free places hold.
        let mut known = [(0_u128, u8::from(holds(&[]))); ANSWERS];
        let mut repeated = 0;
        while row < rows {
            let view = views.views[row];
            let place = &mut known[place_of(view)];
            if place.0 == view {
                repeated += 1;
            } else {
                *place = (view, u8::from(holds(views.get(row))));
            }
            out.push(place.1);
            row += 1;
            if row == SAMPLE_ROWS && repeated * REPEATS_MIN < SAMPLE_ROWS {
                break;
            }
        }
    }
    out.extend((row..rows).map(|row| u8::from(holds(views.get(row)))));
    out
}

/// Where the answer for a view is kept.
#[inline]
fn place_of(view: u128) -> usize {
    let mixed = ((view as u64) ^ (view >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as usize & (ANSWERS - 1)
}

const _: () = assert!(ANSWERS == 256, "places are the topmost eight bits of a product");

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{ColumnBuilder, DataType, Values};

    fn views(texts: &[&str]) -> Views {
        let mut builder = ColumnBuilder::with_capacity(DataType::Text, texts.len());
        for text in texts {
            builder.push_bytes(text.as_bytes());
        }
        match builder.finish().values {
            Values::Bytes(views) => views,
            other => panic!("texts are {other:?}"),
        }
    }

    const COMPARISONS: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    #[test]
    fn short_texts_lie_in_their_views() {
        let text = b"abcdefghijklm";
        for len in 0..=13 {
            let text = std::str::from_utf8(&text[..len]).unwrap();
            let expected = views(&[text]).views[0];
            assert_eq!(inline_view(text.as_bytes()), (len <= 12).then_some(expected), "{len}");
        }
        let long = "0123456789 a text of which parts are taken";
        let whole = views(&["something else before it", long]);
        for (start, end) in [(0, 2), (3, 15), (3, 16), (5, long.len())] {
            let view = view_of_part(whole.views[1], &long.as_bytes()[start..end], start);
            let part = Views { views: vec![view].into(), data: whole.data.clone() };
            assert_eq!(part.get(0), &long.as_bytes()[start..end]);
        }
    }

    #[test]
    fn texts_compare_by_their_bytes_whatever_their_views_hold() {
        let long = "a text longer than its view";
        let texts = [
            "",
            "a",
            "a\0",
            "a\0b",
            "ab",
            "abc",
            "abcd",
            "abcde",
            "abcdefghijkl",
            "abcdefghijklm",
            "abcdefghijkln",
            "é",
            "zzzz",
            long,
            "a text longer than its view!",
            "b",
        ];
        let left = views(&texts);
        for comparison in COMPARISONS {
            for constant in texts {
                let expected: Vec<u8> = texts
                    .iter()
                    .map(|text| u8::from(comparison.accepts(text.as_bytes().cmp(constant.as_bytes()))))
                    .collect();
                assert_eq!(compare(comparison, &left, constant.as_bytes()), expected, "{comparison} {constant}");
                let right = views(&vec![constant; texts.len()]);
                assert_eq!(compare_both(comparison, &left, &right), expected, "{comparison} {constant}");
            }
        }
    }

    #[test]
    fn repeated_texts_are_tested_once() {
        let names: Vec<String> = (0..40).map(|n| format!("{n} is a text that is not inline")).collect();
        let texts: Vec<&str> =
            (0..2048).map(|row| if row % 41 == 40 { "" } else { names[row % 41].as_str() }).collect();
        // Views of a dictionary: the same data for all rows.
        let distinct = views(&texts[..41]);
        let repeated =
            Views { views: (0..2048).map(|row| distinct.views[row % 41]).collect(), data: distinct.data.clone() };
        let mut tested = 0;
        let answers = test_distinct(&repeated, |text| {
            tested += 1;
            text.len() % 2 == 0
        });
        assert!(texts.iter().zip(&answers).all(|(text, answer)| (text.len() % 2 == 0) == (*answer == 1)));
        assert!(tested < 2048 / 4, "{tested} tests");
        // Texts that do not repeat are not looked for.
        let all = views(&(0..300).map(|n| names[n % 40].as_str()).collect::<Vec<_>>());
        let answers = test_distinct(&all, |text| text.starts_with(b"3"));
        assert!((0..300).all(|n| names[n % 40].starts_with('3') == (answers[n] == 1)));
    }
}
