//! LIKE and ILIKE with a pattern that is known when the statement is planned.
//!
//! ```text
//!   'PROMO%'            begins with            '%special%requests%'   parts in order, each as far left as it can be
//!   '%BRASS'            ends with              'a_c%d\%'              _ is one character, \ takes the next as it is
//! ```
//! A pattern is cut at each `%` into parts. The first must stand at the beginning, the last at the end, and the others
//! between them in order; taking each at its leftmost place never loses a match, so nothing is tried twice. A part is a
//! sequence of literals and skipped characters. ILIKE folds pattern and text and then is LIKE.

use std::borrow::Cow;
use std::fmt;

use eris_storage::Views;

use super::instructions::Level;
use super::search::find;
use super::texts;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct LikePattern {
    text: Box<str>,
    folds: bool,
    program: Program,
}

/// A piece of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    /// So many characters, whatever they are.
    Skip(usize),
}

/// What stands between two `%`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part(Box<[Piece]>);

#[derive(Clone, Debug)]
enum Program {
    /// The text is this one.
    Whole(Box<[u8]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    /// The literals are in the text in this order.
    Contains(Box<[Box<[u8]>]>),
    /// Without a `%`, but with skipped characters.
    Exact(Part),
    Parts {
        first: Part,
        between: Box<[Part]>,
        last: Part,
    },
}

/// The first byte of the next character, from within one.
#[inline]
fn after_character(text: &[u8], at: usize) -> usize {
    let mut next = at + 1;
    while next < text.len() && text[next] & 0xC0 == 0x80 {
        next += 1;
    }
    next
}

impl Part {
    /// Where the part ends if it begins at `at`.
    fn matches_at(&self, text: &[u8], mut at: usize) -> Option<usize> {
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => {
                    if !text[at..].starts_with(literal) {
                        return None;
                    }
                    at += literal.len();
                }
                Piece::Skip(characters) => {
                    for _ in 0..*characters {
                        if at >= text.len() {
                            return None;
                        }
                        at = after_character(text, at);
                    }
                }
            }
        }
        Some(at)
    }

    /// Where the part ends at the leftmost place from `from` on.
    fn find(&self, level: Level, text: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        match self.0.first() {
            None => Some(from),
            Some(Piece::Literal(literal)) => loop {
                at += find(level, &text[at..], literal)?;
                if let Some(end) = self.matches_at(text, at) {
                    return Some(end);
                }
                at += 1;
            },
            Some(Piece::Skip(_)) => loop {
                if let Some(end) = self.matches_at(text, at) {
                    return Some(end);
                }
                if at >= text.len() {
                    return None;
                }
                at = after_character(text, at);
            },
        }
    }

    /// Where the part begins if it ends with the text and begins at `from` or later.
    fn matches_end(&self, text: &[u8], from: usize) -> bool {
        let mut end = text.len();
        for piece in self.0.iter().rev() {
            match piece {
                Piece::Literal(literal) => {
                    if end < from + literal.len() || !text[..end].ends_with(literal) {
                        return false;
                    }
                    end -= literal.len();
                }
                Piece::Skip(characters) => {
                    for _ in 0..*characters {
                        if end <= from {
                            return false;
                        }
                        end -= 1;
                        while end > from && text[end] & 0xC0 == 0x80 {
                            end -= 1;
                        }
                    }
                }
            }
        }
        true
    }

    fn fold(&mut self) {
        for piece in &mut self.0 {
            match piece {
                Piece::Literal(literal) => literal.make_ascii_lowercase(),
                Piece::Skip(_) => {}
            }
        }
    }

    fn literal(&self) -> Option<&[u8]> {
        match &*self.0 {
            [] => Some(&[]),
            [Piece::Literal(literal)] => Some(literal),
            _ => None,
        }
    }
}

/// The parts of a pattern: one more than it has `%`.
fn parts_of(pattern: &str, escape: Option<char>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let end_literal = |literal: &mut String, pieces: &mut Vec<Piece>| {
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(literal).into_bytes().into()));
        }
    };
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            // One at the very end stands for itself.
            escaping if Some(escaping) == escape => literal.push(characters.next().unwrap_or(escaping)),
            '%' => {
                end_literal(&mut literal, &mut pieces);
                parts.push(Part(std::mem::take(&mut pieces).into()));
            }
            '_' => {
                end_literal(&mut literal, &mut pieces);
                match pieces.last_mut() {
                    Some(Piece::Skip(characters)) => *characters += 1,
                    Some(Piece::Literal(_)) | None => pieces.push(Piece::Skip(1)),
                }
            }
            other => literal.push(other),
        }
    }
    end_literal(&mut literal, &mut pieces);
    parts.push(Part(pieces.into()));
    parts
}

/// A text in which upper and lower case are the same. Of letters beyond ASCII only those are folded that fold to one of
/// ASCII: others are in no pattern that folds.
fn folded(text: &[u8]) -> Cow<'_, [u8]> {
    if text.is_ascii() {
        return if text.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(text.to_ascii_lowercase())
        } else {
            Cow::Borrowed(text)
        };
    }
    let fold = |character: char| match character {
        '\u{212A}' => 'k',
        '\u{17F}' => 's',
        other => other.to_ascii_lowercase(),
    };
    Cow::Owned(String::from_utf8_lossy(text).chars().map(fold).collect::<String>().into_bytes())
}

impl LikePattern {
    /// Compiles a pattern; `folds`: upper and lower case are the same, for which a pattern must be ASCII (`None`: it is
    /// not).
    pub fn new(pattern: &str, escape: Option<char>, folds: bool) -> Option<Self> {
        if folds && !pattern.is_ascii() {
            return None;
        }
        let mut parts = parts_of(pattern, escape);
        if folds {
            parts.iter_mut().for_each(Part::fold);
        }
        let last = parts.pop().unwrap_or_default();
        let program = if parts.is_empty() {
            match last.literal() {
                Some(literal) => Program::Whole(literal.into()),
                None => Program::Exact(last),
            }
        } else {
            let first = parts.remove(0);
            let between: Box<[Part]> = parts.into_iter().filter(|part| !part.0.is_empty()).collect();
            let literals: Option<Vec<&[u8]>> = between.iter().map(Part::literal).collect();
            match (first.literal(), literals.as_deref(), last.literal()) {
                (Some(prefix), Some([]), Some([])) => Program::Prefix(prefix.into()),
                (Some([]), Some([]), Some(suffix)) => Program::Suffix(suffix.into()),
                (Some([]), Some(literals), Some([])) => {
                    Program::Contains(literals.iter().map(|literal| Box::from(*literal)).collect())
                }
                _ => Program::Parts { first, between, last },
            }
        };
        Some(Self { text: pattern.into(), folds, program })
    }

    /// Whether upper and lower case are the same.
    pub fn folds(&self) -> bool {
        self.folds
    }

    /// What texts begin with, if that is all it says: of `abc%` the text `abc`.
    pub fn prefix(&self) -> Option<&str> {
        let prefix = self.text.strip_suffix('%')?;
        (!self.folds && !prefix.contains(['%', '_', '\\'])).then_some(prefix)
    }

    fn matches_folded(&self, level: Level, text: &[u8]) -> bool {
        match &self.program {
            Program::Whole(whole) => text == &**whole,
            Program::Prefix(prefix) => text.starts_with(prefix),
            Program::Suffix(suffix) => text.ends_with(suffix),
            Program::Contains(literals) => {
                let mut rest = text;
                literals.iter().all(|literal| match find(level, rest, literal) {
                    Some(at) => {
                        rest = &rest[at + literal.len()..];
                        true
                    }
                    None => false,
                })
            }
            Program::Exact(part) => part.matches_at(text, 0) == Some(text.len()),
            Program::Parts { first, between, last } => {
                let Some(mut at) = first.matches_at(text, 0) else { return false };
                for part in between {
                    match part.find(level, text, at) {
                        Some(end) => at = end,
                        None => return false,
                    }
                }
                last.matches_end(text, at)
            }
        }
    }

    /// Whether a text matches.
    fn matches(&self, level: Level, text: &[u8]) -> bool {
        if self.folds { self.matches_folded(level, &folded(text)) } else { self.matches_folded(level, text) }
    }

    /// 1 for each text that matches.
    pub(super) fn test(&self, views: &Views) -> Vec<u8> {
        if let Some(known) = texts::by_dictionary(views, |texts| self.test(texts)) {
            return known;
        }
        let level = Level::for_rows(views.len());
        match &self.program {
            Program::Whole(whole) if !self.folds => texts::compare(eris_storage::Comparison::Equal, views, whole),
            Program::Prefix(prefix) if !self.folds => {
                // What the view itself has of the text decides most.
                let mut head = [0; 4];
                let len = prefix.len().min(4);
                head[..len].copy_from_slice(&prefix[..len]);
                let head = u32::from_le_bytes(head);
                let mask = if len == 4 { u32::MAX } else { (1 << (8 * len)) - 1 };
                let may_match =
                    |view: u128| ((view >> 32) as u32 & mask) == head && texts::len_of(view) >= prefix.len();
                texts::test_each(views, may_match, |text| text.starts_with(prefix))
            }
            Program::Suffix(suffix) if !self.folds => {
                let long_enough = |view: u128| texts::len_of(view) >= suffix.len();
                match suffix.len() {
                    len @ 1..=8 => {
                        // Compared as a word, which has the suffix as its uppermost bytes.
                        let unused = 64 - 8 * len as u32;
                        let mut bytes = [0; 8];
                        bytes[8 - len..].copy_from_slice(suffix);
                        let wanted = u64::from_le_bytes(bytes) >> unused;
                        texts::test_each(views, long_enough, |text| match text.last_chunk::<8>() {
                            Some(last) => u64::from_le_bytes(*last) >> unused == wanted,
                            None => text.ends_with(suffix),
                        })
                    }
                    _ => texts::test_each(views, long_enough, |text| text.ends_with(suffix)),
                }
            }
            _ => texts::test_distinct(views, |text| self.matches(level, text)),
        }
    }
}

impl fmt::Display for LikePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{ColumnBuilder, DataType, Values};

    /// The reference: a character, or a split at every place.
    fn naive(text: &[char], pattern: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|at| naive(&text[at..], rest)),
            ['_', rest @ ..] => !text.is_empty() && naive(&text[1..], rest),
            ['\\', escaped, rest @ ..] => text.first() == Some(escaped) && naive(&text[1..], rest),
            [literal, rest @ ..] => text.first() == Some(literal) && naive(&text[1..], rest),
        }
    }

    #[test]
    fn agrees_with_a_recursive_matcher() {
        const ALPHABET: [char; 5] = ['a', 'b', 'é', '%', '🌏'];
        const PATTERN: [char; 8] = ['a', 'b', 'é', '%', '%', '_', '\\', '🌏'];
        let mut state = 11_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) as usize % below
        };
        let mut matched = 0;
        for _ in 0..60_000 {
            let text: String = (0..next(9)).map(|_| ALPHABET[next(5)]).collect();
            let pattern: String = (0..next(8)).map(|_| PATTERN[next(8)]).collect();
            let expected = naive(&text.chars().collect::<Vec<_>>(), &pattern.chars().collect::<Vec<_>>());
            let compiled = LikePattern::new(&pattern, Some('\\'), false).unwrap();
            for level in Level::available() {
                assert_eq!(compiled.matches(*level, text.as_bytes()), expected, "'{text}' like '{pattern}'");
            }
            matched += usize::from(expected);
        }
        assert!(matched > 5_000, "{matched} matches");
    }

    #[test]
    fn columns_agree_with_single_texts() {
        let texts = [
            "",
            "S",
            "ASS",
            "BRASS",
            "a BRASS",
            "LARGE POLISHED BRASS",
            "LARGE POLISHED BRAS",
            "PROMO",
            "PROMOTION",
            "PROMO BURNISHED COPPER",
            "PRO",
            "éé BRASS 🌏",
        ];
        let patterns = [
            "%BRASS",
            "%S",
            "%",
            "%POLISHED BRASS",
            "%ED BRASS",
            "PROMO%",
            "PRO%",
            "P%",
            "PROMO",
            "%🌏",
            "%R_SS",
            "LARGE POLISHED BRASS",
            "PROMO BURN%",
        ];
        // Few rows and many, of which all are told apart or not.
        for rows in [texts.len(), 500] {
            let mut builder = ColumnBuilder::with_capacity(DataType::Text, rows);
            for row in 0..rows {
                builder.push_bytes(texts[row % texts.len()].as_bytes());
            }
            let Values::Bytes(views) = builder.finish().values else { panic!("texts") };
            for pattern in patterns {
                let compiled = LikePattern::new(pattern, Some('\\'), false).unwrap();
                let pattern: Vec<char> = pattern.chars().collect();
                for (row, matches) in compiled.test(&views).into_iter().enumerate() {
                    let text = texts[row % texts.len()];
                    let expected = naive(&text.chars().collect::<Vec<_>>(), &pattern);
                    assert_eq!(matches == 1, expected, "'{text}' like {compiled}");
                }
            }
        }
    }

    #[test]
    fn escapes_and_case() {
        let like = |text: &str, pattern: &str, escape, folds| {
            LikePattern::new(pattern, escape, folds).unwrap().matches(Level::best(), text.as_bytes())
        };
        assert!(like("100%", "100#%", Some('#'), false));
        assert!(!like("1000", "100#%", Some('#'), false));
        assert!(like(r"a\b", r"a\_", None, false));
        assert!(!like("a_", r"a\_", None, false));
        assert!(like("a%", "aE%", Some('E'), true));
        assert!(!like("ax", "aE%", Some('E'), true));
        assert!(like(r"a\", r"a\", Some('\\'), false));
        assert!(like("Straße PROMO", "%promo", Some('\\'), true));
        assert!(like("\u{212A}elvin", "K_lvin", Some('\\'), true));
        assert!(!like("PROMO", "promo", Some('\\'), false));
        assert!(LikePattern::new("é", None, true).is_none());
    }
}
