//! Storage module *row sparse*: rows of which many hold nothing, addressed by handles of its own (indirect world).
//!
//! ```text
//!   inserted   [a0 b0]  [- -]  [- -]  [a3 -]  [- -]
//!   handles       0       1      1       2      1          kept by the composite as the linkage attribute
//!   held       [a0 b0]  [- -]  [a3 -]                      rows of fixed layout
//! ```
//! All rows whose attributes are all NULL are one: a group of attributes that few rows have costs the others the four
//! bytes of a handle.

use super::row_static::RowStaticModule;
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, Count, PathAttribute, PathConfiguration,
    PathFilter, PathInstance, Properties, ROW_SPARSE,
};
use crate::batch::{Batch, Column, ColumnBuilder};
use crate::error::StorageError;
use crate::ids::AttributeId;
use std::ops::Range;

/// The factory.
pub(super) struct RowSparseModule;

impl AccessPathFactory for RowSparseModule {
    fn name(&self) -> &'static str {
        ROW_SPARSE
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Indirect,
            attributes: Count::Any,
            keys: Count::None,
            nulls: true,
            undefined: false,
            variable_length: true,
            shares_frozen_columns: false,
            updates_in_place: false,
            key_order: false,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        let PathInstance::Rows(held) = RowStaticModule.create(configuration) else {
            unreachable!("row static holds rows");
        };
        let attributes = configuration.attributes.iter().map(|attribute: &PathAttribute| attribute.id).collect();
        PathInstance::Rows(Box::new(SparsePath { attributes, held, empty: None, rows: 0, closed: false }))
    }
}

/// Rows of one segment.
struct SparsePath {
    attributes: Box<[AttributeId]>,
    held: Box<dyn AccessPath>,
    /// The handle of the rows that hold nothing, once there is one.
    empty: Option<u32>,
    /// Rows inserted.
    rows: u32,
    closed: bool,
}

impl SparsePath {
    fn is_empty_row(&self, rows: &Batch, row: usize) -> bool {
        self.attributes.iter().all(|id| rows.columns[id.index()].is_null(row))
    }

    /// Holds rows as they are and gives them handles.
    fn hold(&mut self, rows: &Batch, run: Range<usize>, handles: &mut Vec<u32>) -> Result<(), StorageError> {
        let first = self.held.rows();
        self.held.insert(rows, run)?;
        handles.extend(first..self.held.rows());
        Ok(())
    }

    fn insert_runs(&mut self, rows: &Batch, range: Range<usize>, handles: &mut Vec<u32>) -> Result<(), StorageError> {
        let mut at = range.start;
        while at < range.end {
            let full = (at..range.end).take_while(|row| !self.is_empty_row(rows, *row)).count();
            if full > 0 {
                self.hold(rows, at..at + full, handles)?;
                at += full;
                continue;
            }
            if let Some(handle) = self.empty {
                handles.push(handle);
            } else {
                self.hold(rows, at..at + 1, handles)?;
                self.empty = handles.last().copied();
            }
            at += 1;
        }
        Ok(())
    }
}

impl AccessPath for SparsePath {
    fn module(&self) -> &'static str {
        ROW_SPARSE
    }

    fn rows(&self) -> u32 {
        self.rows
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        self.insert_with_handles(rows, range, &mut Vec::new())
    }

    fn gives_handles(&self) -> bool {
        true
    }

    fn insert_with_handles(
        &mut self,
        rows: &Batch,
        range: Range<usize>,
        handles: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        assert!(!self.closed, "a path that took a part of some rows takes no more");
        let (count, before) = (range.len() as u32, self.held.rows());
        let inserted = self.insert_runs(rows, range, handles);
        match inserted {
            Ok(()) => self.rows += count,
            // Rows without a handle take the place of others.
            Err(_) => self.closed = self.held.rows() > before,
        }
        inserted
    }

    fn is_closed(&self) -> bool {
        self.closed
    }

    /// The window is one of handles.
    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        self.held.scan(state, filter, window, found)
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        self.held.retain(state, filter, offsets)
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        self.held.link(attribute, offsets, out);
    }

    fn shared(&self, _attribute: AttributeId, _run: Range<u32>) -> Option<Column> {
        None
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        self.held.gather(attribute, offsets)
    }

    fn freeze(&mut self) {
        self.held.freeze();
    }

    fn bytes(&self) -> u64 {
        self.held.bytes()
    }
}
