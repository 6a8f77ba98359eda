//! Where the statements of a text begin and end, and how much each is, without keeping anything of it.
//!
//! The lexemes are those of the parser's tokenizer as far as an end depends on them: what stands in quotes, between
//! dollar signs or in a comment ends nothing. Where the tokenizer is odd (it takes `--` behind some operators for a
//! part of these), a comment here is longer than it needs to be: then two statements come as one piece, and
//! [`super::parse`] cuts it. Such a comment counts as the tokens that it may be; any other costs its text.

use std::ops::Range;

/// A statement in its text, or in a rare case several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its bytes, from the first lexeme that is neither blank nor comment to the last one.
    pub range: Range<usize>,
    /// Lexemes that are neither blank nor comment. A comment that the tokenizer may read as something else counts as
    /// many as would have room in it.
    pub tokens: usize,
    /// Blanks and comments between them: the tokenizer makes a token of each, which the parser passes over.
    pub blanks: usize,
    /// Bytes of these comments: the tokenizer keeps their text.
    pub comment_bytes: usize,
    /// Commas of one bracket level, at most, and one more.
    pub list_items: usize,
}

impl Piece {
    fn beginning(at: usize) -> Self {
        Self { range: at..at, tokens: 0, blanks: 0, comment_bytes: 0, list_items: 1 }
    }

    /// The next lexeme is one of the statement, so what stands between is within it.
    fn extend(&mut self, lexeme: Range<usize>, between: &Between) {
        if self.tokens == 0 {
            self.range = lexeme;
        } else {
            self.range.end = lexeme.end;
            self.tokens += between.tokens;
            self.blanks += between.blanks;
            self.comment_bytes += between.comment_bytes;
        }
        self.tokens += 1;
    }
}

/// Blanks and comments after a lexeme. Those before the first one and after the last one are not in the piece.
#[derive(Default)]
struct Between {
    tokens: usize,
    blanks: usize,
    comment_bytes: usize,
}

/// Brackets within each other that commas are counted in; the parser follows fewer.
const DEPTH_MAX: usize = 256;

/// A comment that may be something else weighs as much as a token for so many bytes.
const COMMENT_BYTES: usize = 2;

/// Gives the pieces of a text one after the other. A text of blanks and comments has none.
#[derive(Clone, Debug)]
pub struct Cutter<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cutter<'a> {
    pub fn new(text: &'a str) -> Self {
        Self::from(text, 0)
    }

    /// The pieces from this byte on, which is the end of a piece or 0.
    pub fn from(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }
}

impl Iterator for Cutter<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let bytes = self.text.as_bytes();
        let mut piece = Piece::beginning(self.at);
        // How many items there are so far inside of each open bracket, and how many brackets are open.
        let mut items = [1_usize; DEPTH_MAX];
        let mut depth = 0;
        let mut begun = false;
        let mut between = Between::default();
        // Whether what precedes is an operator, and whether the tokenizer may have read something else since.
        let (mut after_operator, mut is_odd) = (false, false);
        while let Some(first) = bytes.get(self.at) {
            let begin = self.at;
            self.at = lexeme_end(self.text, begin);
            match first {
                b';' if begun => return Some(piece),
                b';' => {}
                _ if is_blank(*first) => {
                    between.blanks += 1;
                    after_operator = false;
                }
                b'-' | b'/' if is_comment(bytes, begin) => {
                    // From here on the two may not even agree about what is a comment.
                    is_odd |= after_operator;
                    if is_odd {
                        between.tokens += (self.at - begin).div_ceil(COMMENT_BYTES);
                    } else {
                        between.blanks += 1;
                        between.comment_bytes += self.at - begin;
                    }
                    after_operator = false;
                }
                _ => {
                    match first {
                        b'(' | b'[' => {
                            depth += 1;
                            items[depth % DEPTH_MAX] = 1;
                        }
                        b')' | b']' => depth = depth.saturating_sub(1),
                        b',' => {
                            items[depth % DEPTH_MAX] += 1;
                            piece.list_items = piece.list_items.max(items[depth % DEPTH_MAX]);
                        }
                        _ => {}
                    }
                    begun = true;
                    after_operator = is_operator(*first);
                    piece.extend(begin..self.at, &std::mem::take(&mut between));
                }
            }
        }
        begun.then_some(piece)
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// What the tokenizer makes operators of, as many as follow each other.
fn is_operator(byte: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?".contains(&byte)
}

fn is_comment(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at..at + 2), Some(b"--" | b"/*"))
}

/// The end of the lexeme that begins at `at`.
fn lexeme_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let quoted = |offset: usize| bytes.get(at + offset) == Some(&b'\'');
    match bytes[at] {
        b'-' | b'/' if is_comment(bytes, at) => comment_end(bytes, at),
        b'\'' => string_end(bytes, at, b'\'', false),
        b'"' => string_end(bytes, at, b'"', false),
        b'E' | b'e' | b'X' | b'x' if quoted(1) => string_end(bytes, at + 1, b'\'', true),
        b'B' | b'b' | b'N' | b'n' if quoted(1) => string_end(bytes, at + 1, b'\'', false),
        b'B' | b'b' if bytes.get(at + 1) == Some(&b'"') => string_end(bytes, at + 1, b'"', false),
        b'U' | b'u' if bytes.get(at + 1) == Some(&b'&') && quoted(2) => string_end(bytes, at + 2, b'\'', false),
        b'0'..=b'9' | b'.' => number_end(bytes, at),
        b'$' => dollar_end(text, at),
        first if is_word_start(first) => run_end(bytes, at, is_word_part),
        _ => at + 1,
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

fn is_word_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// The first byte from `at` on that is not `wanted`.
fn run_end(bytes: &[u8], at: usize, wanted: fn(u8) -> bool) -> usize {
    bytes[at..].iter().position(|byte| !wanted(*byte)).map_or(bytes.len(), |length| at + length)
}

/// Behind the second of two quotes; the first is at `at`.
fn string_end(bytes: &[u8], at: usize, quote: u8, backslash: bool) -> usize {
    let mut end = at + 1;
    while let Some(byte) = bytes.get(end) {
        end += 1;
        if *byte == b'\\' && backslash {
            end += 1;
        } else if *byte == quote {
            if bytes.get(end) != Some(&quote) {
                return end;
            }
            end += 1;
        }
    }
    bytes.len()
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    if bytes[at] == b'-' {
        let end = run_end(bytes, at, |byte| !matches!(byte, b'\n' | b'\r'));
        return (end + 1).min(bytes.len());
    }
    let mut depth = 1;
    let mut end = at + 2;
    while let Some(pair) = bytes.get(end..end + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                end += 1;
                continue;
            }
        }
        end += 2;
        if depth == 0 {
            return end;
        }
    }
    bytes.len()
}

fn number_end(bytes: &[u8], at: usize) -> usize {
    let digits = |at: usize| run_end(bytes, at, |byte| byte.is_ascii_digit() || byte == b'_');
    let mut end = digits(at);
    if end == at + 1 && bytes[at] == b'0' && bytes.get(end) == Some(&b'x') {
        return run_end(bytes, end + 1, |byte| byte.is_ascii_hexdigit() || byte == b'_');
    }
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if end > at + 1 || bytes[at] != b'.' {
        // The e of an exponent belongs to the number only with digits: `1E'x'` is a number and a string.
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if matches!(bytes.get(end), Some(b'e' | b'E')) && bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

/// A parameter, or a text between `$tag$` and `$tag$`.
fn dollar_end(text: &str, at: usize) -> usize {
    let rest = &text[at + 1..];
    let tag_bytes = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let tag_end = at + 1 + tag_bytes;
    if text.as_bytes().get(tag_end) != Some(&b'$') {
        return tag_end;
    }
    let tag = &text[at..=tag_end];
    text[tag_end + 1..].find(tag).map_or(text.len(), |length| tag_end + 1 + length + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::{PostgreSqlDialect, Token, Tokenizer, Whitespace};

    fn pieces(text: &str) -> Vec<&str> {
        Cutter::new(text).map(|piece| &text[piece.range]).collect()
    }

    #[test]
    fn only_a_semicolon_outside_of_quotes_and_comments_ends_a_statement() {
        assert_eq!(pieces("select ';' ; -- a;b\n\n select 2;;"), ["select ';'", "select 2"]);
        assert_eq!(pieces(" \n;; ; /* ; /* ; */ ; */"), Vec::<&str>::new());
        assert_eq!(pieces("a'b'';'';c \"d;\"\"\";e"), ["a'b'';'';c \"d;\"\"\";e"]);
        assert_eq!(pieces("a'b'';''';c \"d;\"\"\";e"), ["a'b'';'''", "c \"d;\"\"\"", "e"]);
        assert_eq!(pieces(r"e'\';';'\';x"), [r"e'\';'", r"'\'", "x"]);
        assert_eq!(pieces("$$;$a$;$$;$a$;$$;$a$;a$$;$1;1e';'"), ["$$;$a$;$$", "$a$;$$;$a$", "a$$", "$1", "1e';'"]);
        assert_eq!(pieces("ä;'open ; "), ["ä", "'open ; "]);
    }

    #[test]
    fn a_piece_knows_its_size() {
        let text = "  select  a+1, 'x y' -- 12345678\n from t;";
        let piece = Cutter::new(text).next().unwrap();
        assert_eq!((piece.tokens, piece.blanks, piece.comment_bytes, piece.list_items), (8, 7, 12, 2));
        let piece = Cutter::new("insert into t (a, b) values (1, f(2, 3, 4)), (1, 2), (1, 2), (1, 2)").next().unwrap();
        assert_eq!(piece.list_items, 4);
    }

    #[test]
    fn what_is_around_a_statement_costs_nothing_and_a_comment_no_token() {
        let size = |text: &str| {
            let piece = Cutter::new(text).next().unwrap();
            (piece.tokens, piece.blanks, piece.comment_bytes)
        };
        assert_eq!(size("select 1"), (2, 1, 0));
        assert_eq!(size(" \n/* a b c */ -- d e\n select 1 -- f\n /* g h */ ; select 2"), (2, 1, 0));
        assert_eq!(size("select /* a b */ 1"), (2, 3, 9));
        assert_eq!(size("select/*a*//*b*/--c\n1"), (2, 3, 14));
        // The tokenizer takes `<--` for an operator, and may then see a string end where another one begins.
        assert_eq!(size("select 1 <-- 3\n/* 4 */ + 2"), (5 + 3 + 4, 4, 0));
    }

    /// The tokens of a text, or of its pieces one by one.
    fn tokens<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Vec<Token>> {
        let mut all = Vec::new();
        for text in texts {
            let own = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().ok()?;
            let words = own.into_iter().filter(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon));
            all.extend(words);
        }
        Some(all)
    }

    fn comment_bytes(token: &Token) -> usize {
        match token {
            Token::Whitespace(
                Whitespace::SingleLineComment { comment, .. } | Whitespace::MultiLineComment(comment),
            ) => comment.len(),
            _ => 0,
        }
    }

    #[test]
    fn pieces_have_the_tokens_that_their_text_has() {
        const PARTS: [&str; 30] = [
            ";", ";", " ", "\n", "\r", "'", "''", "\"", "\\", "$", "$$", "$a$", "$1", "--", "/*", "*/", "e'", "E'",
            "x'", "b'", "u&'", "n'", "a", "1", "1e", "0x", ".", "ä", "<", "*",
        ];
        let mut random = eris_platform::SeededRandom::new(7);
        let mut compared = 0;
        for _ in 0..200_000 {
            let text: String = (0..random.below(14)).map(|_| PARTS[random.below(30) as usize]).collect();
            let Some(whole) = tokens([text.as_str()]) else { continue };
            // PostgreSQL begins a comment there, and so do pieces.
            let begins = |text: &str| text.contains("--") || text.contains("/*");
            let is_odd = |token: &Token| matches!(token, Token::CustomBinaryOperator(text) if begins(text));
            if whole.iter().any(is_odd) {
                continue;
            }
            let cut = pieces(&text);
            assert_eq!(tokens(cut.iter().copied()).as_ref(), Some(&whole), "{text:?} was cut into {cut:?}");
            compared += usize::from(cut.len() > 1);
            for piece in Cutter::new(&text) {
                let own = Tokenizer::new(&PostgreSqlDialect {}, &text[piece.range.clone()]).tokenize().unwrap();
                assert!(own.len() <= piece.tokens + piece.blanks, "{text:?}: {piece:?}");
                let bytes: usize = own.iter().map(comment_bytes).sum();
                assert!(bytes <= piece.comment_bytes + COMMENT_BYTES * piece.tokens, "{text:?}: {piece:?}");
            }
        }
        assert!(compared > 3_000, "{compared}");
    }
}
