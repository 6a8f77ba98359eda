//! What holds for any text: it is refused with an error that a client can use, or its statements are commands.

use eris_sql::SqlError;
use eris_sql::front::{lower, parse};

/// What became of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Statements that became commands.
    pub accepted: usize,
    /// Statements that were refused; a text that cannot be parsed counts as one.
    pub refused: usize,
}

/// Parses a text and lowers its statements.
///
/// # Panics
/// If an error says too little, or if a statement does not stand for itself.
pub fn judge(text: &str) -> Verdict {
    let mut verdict = Verdict::default();
    let statements = match parse(text) {
        Ok(statements) => statements,
        Err(error) => {
            check(&error, text);
            verdict.refused += 1;
            return verdict;
        }
    };
    for statement in statements {
        match lower(&statement.ast) {
            Ok(_command) => {
                verdict.accepted += 1;
                // Planning prints expressions, for the names of columns.
                assert!(!statement.ast.to_string().is_empty());
                // Plans are cached under the statement's own text: it must mean the same without its neighbours.
                let again = parse(&statement.text).unwrap_or_else(|error| panic!("{:?}: {error}", statement.text));
                assert_eq!(again.len(), 1, "{:?} is one statement", statement.text);
                assert!(again[0].ast == statement.ast, "{:?} means something else on its own", statement.text);
                assert_eq!(again[0].text, statement.text);
            }
            Err(error) => {
                check(&error, text);
                verdict.refused += 1;
            }
        }
    }
    verdict
}

/// An error has a message, a code that is not "internal error", a place inside the text, and if something is not
/// supported it says what to do instead.
fn check(error: &SqlError, text: &str) {
    let code = error.sqlstate.as_str();
    assert!(!code.starts_with("XX"), "{error}");
    assert!(!error.message.trim().is_empty(), "{error:?}");
    assert!(!error.is_retryable(), "what a text says does not change: {error}");
    if code == "0A000" {
        assert!(error.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{error}");
    }
    if let Some(position) = error.position {
        let end = text.chars().count() + 1;
        assert!((1..=end).contains(&position), "position {position} of {end}: {error}");
    }
}
