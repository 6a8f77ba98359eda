//! Rows on their way into a partition: columns of many, or few row by row.

use crate::batch::{Batch, Column, PackedRows};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::modules::AccessPath;
use std::ops::Range;

/// Rows with all attributes of the schema.
#[derive(Clone, Copy)]
pub(crate) enum NewRows<'a> {
    Columns(&'a Batch),
    Packed(&'a PackedRows),
}

impl NewRows<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Columns(batch) => batch.rows,
            Self::Packed(rows) => rows.len(),
        }
    }

    /// Some attributes of all rows.
    pub(crate) fn columns(self, attributes: &[AttributeId]) -> Vec<Column> {
        match self {
            Self::Columns(batch) => attributes.iter().map(|id| batch.columns[id.index()].clone()).collect(),
            Self::Packed(rows) => rows.to_columns(attributes.iter().map(|id| id.index())),
        }
    }

    /// Appends some of the rows to a path.
    pub(crate) fn insert_into(self, path: &mut dyn AccessPath, range: Range<usize>) -> Result<(), StorageError> {
        match self {
            Self::Columns(batch) => path.insert(batch, range),
            Self::Packed(rows) => path.insert_packed(rows, range),
        }
    }
}
