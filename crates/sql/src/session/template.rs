//! Texts that differ in their literals alone, as drivers and `pgbench -M simple` send them: they share one plan.
//!
//! ```text
//!   SELECT x FROM t WHERE id = 5 AND y = 'a'     SELECT x FROM t WHERE id = 7 AND y = 'b'
//!                         └──────────────┬──────────────────────────┘
//!        SELECT x FROM t WHERE id = $1 AND y = $2      $1 integer, $2 not said
//! ```
//! The template is planned as if a client had prepared it, with the types that its numbers have; a text in quotes gets
//! the type of what it stands beside. It is found by its text and types among the other plans, without being parsed
//! again. Only what our own binder binds is taken: there a literal and a parameter of its type mean the same. Where
//! they would not (`ORDER BY 1`, a pattern, `interval '1 day'`, a numeric in quotes), a template is not planned, which
//! is remembered. A literal that is no value of its type is left to planning of the text itself, which says where it
//! stands.

use std::ops::Range;

use eris_query::{ScalarKind, TypeKind};
use eris_storage::Value;

use crate::binder::number;
use crate::pg_format::parse_text;
use crate::types::SqlType;

/// Longer texts are planned as they are: most of them are loads, and no two are alike.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// Statements that have templates.
const BEGINNINGS: [&str; 3] = ["select", "update", "delete"];

/// A text with its literals taken out.
#[derive(Debug, PartialEq)]
pub(super) struct Template {
    /// The text with parameters in their places.
    pub text: String,
    /// The types of the parameters; none: it is a text in quotes.
    pub types: Vec<Option<SqlType>>,
    literals: Vec<Literal>,
}

#[derive(Debug, PartialEq)]
enum Literal {
    Number(Value),
    Text(Box<str>),
}

/// The next piece of a statement's text.
enum Piece {
    /// Bytes to be copied.
    Plain(usize),
    /// Length of a number in bytes.
    Number(usize),
    /// Length of a text in bytes, quotes included.
    Text(usize),
    End,
}

impl Template {
    /// The template of a text of one statement; `None` if it has none.
    pub fn of(sql: &str) -> Option<Self> {
        let sql = sql.trim_ascii_start();
        let first = sql.get(..6)?;
        if sql.len() > TEXT_BYTES_MAX || !BEGINNINGS.iter().any(|word| first.eq_ignore_ascii_case(word)) {
            return None;
        }
        let mut template = Self { text: String::with_capacity(sql.len()), types: Vec::new(), literals: Vec::new() };
        let (mut at, mut plain) = (0, 0..0);
        loop {
            let piece = piece(sql.as_bytes(), at)?;
            if let Piece::Plain(length) = piece {
                at += length;
                plain.end = at;
                continue;
            }
            template.text.push_str(&sql[plain.clone()]);
            let length = match piece {
                Piece::Number(length) => {
                    template.number(&sql[at..at + length])?;
                    length
                }
                Piece::Text(length) => {
                    template.types.push(None);
                    template.literals.push(Literal::Text(unquoted(sql, at + 1..at + length - 1)));
                    length
                }
                Piece::Plain(_) | Piece::End => break,
            };
            at += length;
            plain = at..at;
            template.text.push('$');
            template.text.push_str(&template.types.len().to_string());
        }
        let used = template.text.trim_ascii_end().len();
        template.text.truncate(used);
        (!template.types.is_empty()).then_some(template)
    }

    fn number(&mut self, digits: &str) -> Option<()> {
        let number = number(digits, false).ok()?;
        let ScalarKind::Constant(value) = number.kind else { return None };
        // With a minus before it, it has a narrower type.
        let is_edge = [i128::from(i32::MAX), i128::from(i64::MAX)].map(|edge| (edge + 1).to_string());
        if is_edge.iter().any(|edge| digits.trim_start_matches('0') == edge) {
            return None;
        }
        self.types.push(Some(number.sql_type));
        self.literals.push(Literal::Number(value));
        Some(())
    }

    /// Whether its literals may be values of these types without meaning something else.
    pub fn fits(&self, types: &[SqlType]) -> bool {
        let fits = |(literal, sql_type): (&Literal, &SqlType)| match (literal, sql_type.kind()) {
            (Literal::Number(_), _) => true,
            // It has the digits that are written, a parameter those of its type.
            (Literal::Text(_), TypeKind::Numeric | TypeKind::Interval | TypeKind::Unknown) => false,
            (Literal::Text(_), _) => true,
        };
        types.len() == self.literals.len() && self.literals.iter().zip(types).all(fits)
    }

    /// Its literals as values of the parameters' types; `None` if one is none.
    pub fn values(self, types: &[SqlType]) -> Option<Vec<Value>> {
        let value = |(literal, sql_type): (Literal, &SqlType)| match (literal, sql_type.kind()) {
            (Literal::Number(value), _) => Some(value),
            // As long as it is: what is stored is cut or refused then, what is compared is not.
            (Literal::Text(text), TypeKind::Text | TypeKind::Varchar | TypeKind::Char) => Some(Value::Text(text)),
            (Literal::Text(text), _) => parse_text(*sql_type, &text).ok(),
        };
        self.literals.into_iter().zip(types).map(value).collect()
    }
}

/// What comes at a byte; `None`: something that templates do not know.
fn piece(sql: &[u8], at: usize) -> Option<Piece> {
    let piece = piece_of(sql, at)?;
    // A parameter would become one word with what it touches: `where.5`, `'a'and`.
    let touches = |byte: Option<&u8>| byte.is_some_and(|byte| is_of_word(*byte) || matches!(byte, b'"' | b')' | b'\''));
    match &piece {
        Piece::Number(length) | Piece::Text(length) => {
            let before = at.checked_sub(1).and_then(|before| sql.get(before));
            let apart =
                !touches(before) && !sql.get(at + length).is_some_and(|byte| is_of_word(*byte) || *byte == b'\'');
            apart.then_some(piece)
        }
        Piece::Plain(_) | Piece::End => Some(piece),
    }
}

fn piece_of(sql: &[u8], at: usize) -> Option<Piece> {
    let rest = &sql[at..];
    let Some(&first) = rest.first() else { return Some(Piece::End) };
    let next = rest.get(1).copied().unwrap_or(b' ');
    match first {
        b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80.. => {
            let length = rest.iter().take_while(|byte| is_of_word(**byte)).count();
            // E'...', U&'...' and the like are read in other ways.
            let is_prefix = matches!(rest.get(length), Some(b'\'' | b'&'));
            (!is_prefix).then_some(Piece::Plain(length))
        }
        b'0'..=b'9' => number_piece(rest),
        b'.' if next.is_ascii_digit() => number_piece(rest),
        b'\'' => text_piece(rest),
        b'"' => {
            let close = rest[1..].iter().position(|byte| *byte == b'"')?;
            // A doubled quote begins another one.
            Some(Piece::Plain(close + 2))
        }
        b';' => rest[1..].iter().all(u8::is_ascii_whitespace).then_some(Piece::End),
        b'-' if next == b'-' => None,
        b'/' if next == b'*' => None,
        b'$' | b'\\' | b'[' | b'`' | 0 => None,
        _ => Some(Piece::Plain(1)),
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

fn number_piece(rest: &[u8]) -> Option<Piece> {
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let points = rest[..length].iter().filter(|byte| **byte == b'.').count();
    let goes_on = rest.get(length).is_some_and(|byte| is_of_word(*byte));
    (points <= 1 && !goes_on).then_some(Piece::Number(length))
}

fn text_piece(rest: &[u8]) -> Option<Piece> {
    let mut at = 1;
    loop {
        at += rest[at..].iter().position(|byte| *byte == b'\'')? + 1;
        if rest.get(at) != Some(&b'\'') {
            break;
        }
        at += 1;
    }
    // Two texts on neighbouring lines are one in SQL: such a statement has no template.
    let follows = rest[at..].iter().find(|byte| !byte.is_ascii_whitespace());
    (follows != Some(&b'\'')).then_some(Piece::Text(at))
}

fn unquoted(sql: &str, range: Range<usize>) -> Box<str> {
    let text = &sql[range];
    if text.contains('\'') { text.replace("''", "'").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(sql: &str) -> Option<(String, Vec<Option<SqlType>>)> {
        Template::of(sql).map(|template| (template.text, template.types))
    }

    #[test]
    fn literals_are_taken_out_and_nothing_else_is() {
        let numeric = |precision, scale| Some(SqlType::Numeric { precision, scale });
        for (sql, text, types) in [
            ("SELECT 1", "SELECT $1", vec![Some(SqlType::Integer)]),
            (
                " select a1, \"b 2\"\"'3\" from t2 where x='it''s' and y = -1.50 ;  ",
                "select a1, \"b 2\"\"'3\" from t2 where x=$1 and y = -$2",
                vec![None, numeric(3, 2)],
            ),
            (
                "UPDATE t SET b = b+3000000000 WHERE c=.5",
                "UPDATE t SET b = b+$1 WHERE c=$2",
                vec![Some(SqlType::BigInt), numeric(1, 1)],
            ),
            ("delete from tä where é1 = 'ä;$--'", "delete from tä where é1 = $1", vec![None]),
            ("select x from t where d in ('', 'a')", "select x from t where d in ($1, $2)", vec![None, None]),
        ] {
            assert_eq!(template(sql), Some((text.to_string(), types)), "{sql}");
        }
    }

    #[test]
    fn what_may_be_read_in_another_way_has_no_template() {
        for sql in [
            "SELECT a FROM t",
            "INSERT INTO t VALUES (1)",
            "EXPLAIN SELECT 1",
            "SELECT E'a\\n' FROM t",
            "SELECT U&'a' FROM t",
            "SELECT x'ff'",
            "SELECT 'a'\n'b'",
            "SELECT 'a",
            "SELECT \"a",
            "SELECT 1e3",
            "SELECT 1.2.3",
            "SELECT 0x10",
            "SELECT 1 -- one",
            "SELECT /* one */ 1",
            "SELECT $1 + 1",
            "SELECT $$a$$, 1",
            "SELECT 1; SELECT 2",
            "SELECT ARRAY[1]",
            "SELECT 1\0",
            "DELETE FROM w WHERE.5",
            "SELECT a.5, 7 FROM t",
            "SELECT 7 LIMIT.0",
            "SELECT 'a'and 'b'",
            "SELECT 5'a'",
            "SELECT (a).5",
            "SELECT -2147483648",
            "SELECT -09223372036854775808",
            "\u{a0}SELECT 5",
            "SELECT 123456789012345678901234567890123456789",
            "sélect 1",
        ] {
            assert_eq!(template(sql), None, "{sql}");
        }
        let long = format!("SELECT {} 1", "x,".repeat(TEXT_BYTES_MAX / 2));
        assert_eq!(template(&long), None);
    }

    #[test]
    fn literals_become_values_of_the_types_of_parameters() {
        let template = || Template::of("SELECT 'a ', '5', 7, '2020-01-01'").unwrap();
        let types = [SqlType::Char(Some(1)), SqlType::BigInt, SqlType::Integer, SqlType::Date];
        assert!(template().fits(&types));
        let values = template().values(&types).unwrap();
        assert_eq!(values, [Value::Text("a ".into()), Value::Int64(5), Value::Int32(7), Value::Date(18_262)]);
        assert!(!template().fits(&[SqlType::NUMERIC, SqlType::BigInt, SqlType::Integer, SqlType::Date]));
        assert!(!template().fits(&types[..3]));
        assert_eq!(template().values(&[SqlType::Text, SqlType::Boolean, SqlType::Integer, SqlType::Text]), None);
    }
}
