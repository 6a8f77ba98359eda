//! The rows that an expression is computed for: all of a batch, or some. Of a column only those are ever copied, and
//! only if the expression asks for the column.

use std::borrow::Cow;

use eris_storage::{Batch, Column, Value};

use crate::error::OperatorError;

/// Rows of a batch, and the statement's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    batch: &'a Batch,
    /// Positions in the batch; `None`: all.
    selected: Option<&'a [u32]>,
    parameters: &'a [Value],
}

impl<'a> Rows<'a> {
    /// All rows of a batch.
    pub fn all(batch: &'a Batch, parameters: &'a [Value]) -> Self {
        Self { batch, selected: None, parameters }
    }

    /// These positions of a batch, if any are given.
    pub fn of(batch: &'a Batch, parameters: &'a [Value], selected: Option<&'a [u32]>) -> Self {
        Self { batch, selected, parameters }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.selected.map_or(self.batch.rows, <[u32]>::len)
    }

    /// A column's values of these rows.
    pub fn column(&self, index: usize) -> Column {
        let column = &self.batch.columns[index];
        match self.selected {
            None => column.clone(),
            Some(rows) => column.take(rows),
        }
    }

    /// A batch of these rows.
    pub fn batch(&self) -> Cow<'a, Batch> {
        match self.selected {
            None => Cow::Borrowed(self.batch),
            Some(rows) => Cow::Owned(self.batch.take(rows)),
        }
    }

    /// The value of a parameter.
    pub fn parameter(&self, index: usize) -> Result<&'a Value, OperatorError> {
        let unbound = || OperatorError::Internal(format!("parameter {} is not bound", index + 1));
        self.parameters.get(index).ok_or_else(unbound)
    }

    /// The statement's parameters.
    pub fn parameters(&self) -> &'a [Value] {
        self.parameters
    }

    /// Where some of these rows are in the batch; `chosen` counts these rows.
    pub fn positions(&self, chosen: &[u32]) -> Vec<u32> {
        match self.selected {
            None => chosen.to_vec(),
            Some(rows) => chosen.iter().map(|row| rows[*row as usize]).collect(),
        }
    }

    /// Other rows of the same batch, by position.
    pub fn at<'b>(&self, positions: &'b [u32]) -> Rows<'b>
    where
        'a: 'b,
    {
        Rows { batch: self.batch, selected: Some(positions), parameters: self.parameters }
    }
}
