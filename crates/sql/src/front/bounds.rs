//! What one text, and one statement of it, may have at most.
//!
//! The planner below takes memory and time by what it is given, so it is bounded before it begins: a text by its bytes
//! and statements, a statement by its tokens before it is parsed, and by [its size](super::size) before it is planned.
//! Refusals are PostgreSQL's `program_limit_exceeded`, `statement_too_complex` and `too_many_columns`.

use super::cut::Piece;
use super::size::Size;
use crate::errors::{SqlError, SqlState};

/// The bounds in force; each is a setting of the session of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub text_bytes: usize,
    pub statements: usize,
    pub tokens: usize,
    pub nesting: usize,
    pub list_items: usize,
    pub expression_terms: usize,
    pub conditions: usize,
    pub relations: usize,
    pub columns: usize,
    pub plan_parts: usize,
}

/// The largest value of each, which is also the most that its setting takes: more than that no worker's stack and no
/// patience holds.
pub const BOUNDS_MAX: Bounds = Bounds {
    text_bytes: 256 << 20,
    statements: 10_000_000,
    tokens: 32_000_000,
    nesting: 100,
    list_items: 10_000_000,
    expression_terms: 3_000,
    conditions: 10_000,
    relations: 1_000,
    columns: 16_384,
    plan_parts: 100_000_000,
};

/// What sessions begin with, and what our own texts are read with.
pub const BOUNDS_DEFAULT: Bounds = Bounds {
    text_bytes: 64 << 20,
    statements: 100_000,
    tokens: 8_000_000,
    nesting: 100,
    list_items: 1_000_000,
    // A sum of 300 terms takes 20 s to plan: DataFusion writes the names of all operands for each type it asks for, so
    // that time grows with the third power. These take less than one.
    expression_terms: 100,
    conditions: 5_000,
    relations: 200,
    columns: 1_600,
    plan_parts: 2_000_000,
};

impl Bounds {
    /// Refuses a text that is too long.
    pub fn check_text(&self, bytes: usize) -> Result<(), SqlError> {
        exceeds(bytes, self.text_bytes, "bytes of a query text", "max_text_bytes", SqlState::LIMIT_EXCEEDED)
    }

    /// Refuses a text of too many statements.
    pub fn check_statements(&self, statements: usize) -> Result<(), SqlError> {
        let what = "statements of a query text";
        exceeds(statements, self.statements, what, "max_text_statements", SqlState::LIMIT_EXCEEDED)
    }

    /// Refuses a statement that is too much to be read.
    pub fn check_piece(&self, piece: &Piece) -> Result<(), SqlError> {
        let state = SqlState::LIMIT_EXCEEDED;
        exceeds(piece.tokens, self.tokens, "tokens of a statement", "max_statement_tokens", state)?;
        exceeds(piece.list_items, self.list_items, "items of a list", "max_list_items", state)
    }

    /// Refuses a statement that is too much to be planned.
    pub fn check_size(&self, size: &Size) -> Result<(), SqlError> {
        let complex = SqlState::TOO_COMPLEX;
        exceeds(size.columns, self.columns, "columns", "max_columns", SqlState::TOO_MANY_COLUMNS)?;
        exceeds(size.terms, self.expression_terms, "terms of an expression", "max_expression_terms", complex)?;
        exceeds(size.conditions, self.conditions, "conditions in a chain", "max_conditions", complex)?;
        exceeds(size.relations, self.relations, "relations of a statement", "max_relations", complex)?;
        exceeds(
            size.parts.max(size.plannings),
            self.plan_parts,
            "parts of a written-out statement",
            "max_plan_parts",
            complex,
        )
    }
}

fn exceeds(has: usize, most: usize, what: &str, setting: &str, state: SqlState) -> Result<(), SqlError> {
    if has <= most {
        return Ok(());
    }
    let count = if has == usize::MAX { "too many".to_string() } else { has.to_string() };
    Err(SqlError::new(state, format!("statement is too large: {count} {what}, and at most {most} are allowed"))
        .hint(format!("Send less at a time, use COPY or a table for long lists, or raise the setting {setting}.")))
}

/// Nesting, or a chain of operators, that nothing could walk over.
pub(super) fn too_complex() -> SqlError {
    SqlError::new(SqlState::TOO_COMPLEX, "statement is too complex: nesting or a chain of operators is too deep")
        .hint("Use IN lists, temporary steps or COPY instead of very long expressions.")
}
