//! Prepared statements.

use std::sync::Arc;

use eris_platform::Reservation;
use eris_storage::Value;

use super::statement::{Body, Planned};
use super::states::Place;
use crate::errors::SqlError;
use crate::front;
use crate::types::SqlType;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDescription {
    /// Its name.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
}

/// A statement of a text, planned, not run.
#[derive(Debug)]
pub struct Prepared {
    pub(super) planned: Arc<Planned>,
    pub(super) place: Place,
    /// Characters of the client's text before the statement: positions in errors count from there.
    pub(super) offset: usize,
    /// If the plan is one of a [`Template`](super::template::Template): the client's text, and the literals in it.
    pub(super) literals: Option<Literals>,
    /// What is reserved for it as long as it has a name in the session.
    pub(super) _memory: Option<Reservation>,
}

/// A text whose literals are the parameters of its plan.
#[derive(Debug)]
pub(super) struct Literals {
    pub text: Box<str>,
    pub values: Arc<[Value]>,
}

/// Bytes that a plan keeps, by what was measured: schemas and nodes that each has, and for each byte of its text.
const PLAN_BYTES: usize = 8 << 10;
const PLAN_BYTES_PER_TEXT_BYTE: usize = 100;
/// For each column of its result, or of the table that it inserts into.
const PLAN_BYTES_PER_COLUMN: usize = 64;

/// So often a plan may have each of its constants: in the logical plan, and in what it is lowered to.
const CONSTANT_COPIES: usize = 2;

/// About how many bytes the plan of a text keeps. Constants that were computed while it was planned may be longer than
/// the text.
pub(super) fn plan_bytes(text: &str, plan: &Planned) -> usize {
    let columns = match &plan.body {
        Body::Insert(insert) => insert.source_of_column.len(),
        _ => plan.columns.as_ref().map_or(0, |columns| columns.len()),
    };
    let constants = CONSTANT_COPIES.saturating_mul(plan.constant_bytes);
    (PLAN_BYTES + PLAN_BYTES_PER_TEXT_BYTE * text.len() + PLAN_BYTES_PER_COLUMN * columns).saturating_add(constants)
}

impl Prepared {
    /// About how many bytes it keeps.
    pub fn bytes(&self) -> usize {
        plan_bytes(&self.planned.text, &self.planned)
    }

    /// The error with its place in the client's text.
    pub(super) fn placed(&self, error: SqlError) -> SqlError {
        placed(error, self.text(), self.offset)
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[SqlType] {
        if self.literals.is_some() { &[] } else { &self.planned.parameters }
    }

    /// What its plan runs with where the client gives these values.
    pub(super) fn values(&self, given: &[Value]) -> Arc<[Value]> {
        self.literals.as_ref().map_or_else(|| given.into(), |literals| Arc::clone(&literals.values))
    }

    /// Its result; `None` if it gives no rows.
    pub fn columns(&self) -> Option<&[ColumnDescription]> {
        self.planned.columns.as_deref()
    }

    /// Whether the plan has no node of DataFusion: what the benchmarks report as native.
    pub fn is_native(&self) -> bool {
        self.planned.is_native()
    }

    /// Whether it is a `COPY ... FROM STDIN`: running it gives [`super::Outcome::CopyIn`].
    pub fn takes_data(&self) -> bool {
        self.planned.takes_data()
    }

    /// Its text.
    pub fn text(&self) -> &str {
        self.literals.as_ref().map_or(&self.planned.text, |literals| &literals.text)
    }
}

/// An error about a statement's text with the place in the client's text, which has `offset` characters before it.
pub(super) fn placed(error: SqlError, text: &str, offset: usize) -> SqlError {
    let error = front::locate(error, text);
    let position = error.position.map(|position| position + offset);
    error.at(position)
}
