//! Where in a statement's text a wrong name stands.
//!
//! Names are resolved on trees that have no places in them any more, so the first place where the name's tokens stand
//! in the text is taken, leaving out names that are just being given (`AS name`).

use crate::ast::{PostgreSqlDialect, Token, TokenWithSpan, Tokenizer};
use crate::errors::SqlError;

/// The error with its position in `text`, if it is about a name and has none yet.
#[must_use]
pub fn locate(error: SqlError, text: &str) -> SqlError {
    match &error.about {
        Some(name) if error.position.is_none() && !name.0.is_empty() => {
            let position = find(text, &name.0);
            error.at(position)
        }
        _ => error,
    }
}

fn find(text: &str, parts: &[String]) -> Option<usize> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().ok()?;
    let tokens: Vec<&TokenWithSpan> =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    let at = (0..tokens.len()).find(|at| stands_at(&tokens, *at, parts))?;
    let start = tokens[at].span.start;
    let line = usize::try_from(start.line).ok()?.checked_sub(1)?;
    let before: usize = text.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum();
    Some(before + usize::try_from(start.column).ok()?)
}

/// Whether `a.b` stands at a token, not followed by more of a name and not named by `AS`.
fn stands_at(tokens: &[&TokenWithSpan], at: usize, parts: &[String]) -> bool {
    let named = |at: usize, name: &str| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_some() => word.value == name,
        Some(Token::Word(word)) => word.value.to_lowercase() == name,
        _ => false,
    };
    let period = |at: usize| tokens.get(at).is_some_and(|token| token.token == Token::Period);
    let given = at > 0 && matches!(&tokens[at - 1].token, Token::Word(word) if word.value.eq_ignore_ascii_case("as"));
    let qualified = at > 0 && period(at - 1) && parts.len() > 1;
    !given
        && !qualified
        && parts
            .iter()
            .enumerate()
            .all(|(part, name)| named(at + 2 * part, name) && (part + 1 == parts.len() || period(at + 2 * part + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::SqlState;

    fn position(text: &str, parts: &[&str]) -> Option<usize> {
        locate(SqlError::new(SqlState::NO_SUCH_COLUMN, "x").about(parts), text).position
    }

    #[test]
    fn names_are_found_where_they_stand() {
        assert_eq!(position("select nope from t", &["nope"]), Some(8));
        assert_eq!(position("select 'nope', \"nope\"", &["nope"]), Some(16));
        assert_eq!(position("select 1 as nope, NOPE", &["nope"]), Some(19));
        assert_eq!(position("select 'ä',\n  t.nope from t", &["t", "nope"]), Some(15));
        assert_eq!(position("select t.x, x.t", &["x", "t"]), Some(13));
        assert_eq!(position("select \"Nope\"", &["nope"]), None);
        assert_eq!(position("select 1", &[]), None);
    }

    #[test]
    fn a_known_position_stays() {
        let error = SqlError::new(SqlState::SYNTAX, "x").about(&["x"]).at(Some(3));
        assert_eq!(locate(error, "x x").position, Some(3));
    }
}
