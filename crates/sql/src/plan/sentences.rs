//! DataFusion's sentences about wrong statements, with the codes and, where it can be said, the words of PostgreSQL.

use crate::errors::{SqlError, SqlState};

/// Functions that PostgreSQL knows with OVER only; without it DataFusion knows no such function.
const WINDOW_FUNCTIONS: [&str; 11] = [
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// The error that a sentence of the planner stands for; `None` if it is not one of those people meet.
pub(super) fn known_sentence(text: &str) -> Option<SqlError> {
    let new = |state, message: String| Some(SqlError::new(state, message));
    let sentence = text.lines().next().unwrap_or(text);
    let after = |head: &str| Some(sentence.split_once(head)?.1.split([' ', ',', '.', ')']).next().unwrap_or("?"));
    if let Some(name) = after("Invalid qualifier ") {
        let message = format!("missing FROM-clause entry for table \"{name}\"");
        return Some(SqlError::new(SqlState::NO_SUCH_TABLE, message).about(&[name]));
    }
    if let Some(position) = after("Cannot find column with position ") {
        return new(SqlState::WRONG_REFERENCE, format!("GROUP BY position {position} is not in select list"));
    }
    if let Some(position) = after("Order by column out of bounds, specified: ") {
        return new(SqlState::WRONG_REFERENCE, format!("ORDER BY position {position} is not in select list"));
    }
    if sentence.contains("For SELECT DISTINCT, ORDER BY expressions") {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return new(SqlState::WRONG_REFERENCE, message.to_owned());
    }
    if sentence.contains("SELECT DISTINCT ON expressions must match") {
        let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return new(SqlState::WRONG_REFERENCE, message.to_owned());
    }
    if sentence.contains("to grouping function is not in grouping columns") {
        let message = "arguments to GROUPING must be grouping expressions of the associated query level";
        return new(SqlState::GROUPING, message.to_owned());
    }
    if let Some(columns) = after("Source table contains ") {
        let names = after("columns but only ").unwrap_or("?");
        let message = format!("the table has {columns} columns available but {names} columns specified");
        return new(SqlState::WRONG_REFERENCE, message);
    }
    if sentence.contains("WITH query name") && sentence.contains("more than once") {
        return new(SqlState::DUPLICATE_ALIAS, sentence.to_owned());
    }
    if sentence.contains("Join condition must be boolean") {
        return new(SqlState::TYPE_MISMATCH, "argument of JOIN/ON must be type boolean".to_owned());
    }
    if sentence.contains("Unary operator 'NOT'") {
        return new(SqlState::TYPE_MISMATCH, "argument of NOT must be type boolean".to_owned());
    }
    for clause in ["LIMIT", "OFFSET"] {
        if sentence.contains(&format!("Expected {clause} to be an integer")) {
            return new(SqlState::TYPE_MISMATCH, format!("argument of {clause} must be type bigint"));
        }
    }
    if sentence.contains("Unary operator '") || sentence.contains("There isn't a common type to coerce") {
        let error = SqlError::new(SqlState::NO_SUCH_FUNCTION, sentence.to_owned());
        return Some(error.hint("No operator matches the given argument types. You might need to add explicit casts."));
    }
    let function = sentence.to_lowercase().split_once("invalid function '")?.1.split('\'').next()?.to_owned();
    if WINDOW_FUNCTIONS.contains(&function.as_str()) {
        let error =
            SqlError::new(SqlState::WRONG_OBJECT, format!("window function {function} requires an OVER clause"));
        return Some(error.about(&[&function]));
    }
    None
}

/// What is not implemented because it makes no sense.
pub(super) fn known_refusal(text: &str) -> Option<SqlError> {
    text.contains("logical expression WindowFunction").then(|| {
        SqlError::new(SqlState::MISPLACED_WINDOW, "window functions are not allowed in WHERE or JOIN conditions")
    })
}
