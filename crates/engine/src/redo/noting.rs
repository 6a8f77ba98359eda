//! Notes what a write does, under the latch under which it does it.

use std::cell::RefCell;
use std::sync::Arc;

use eris_storage::{AttributeId, Batch, PackedRows, RowAddress, Schema, Snapshot, StorageError, Store, Written};

use super::formats::RedoFormats;
use super::operation::{DELETE, HEADER_BYTES, INSERT, LOAD, UPDATE};
use crate::container::Container;
use crate::runtime::Runtime;
use crate::serializable::Tracking;
use crate::transactions::TransactionObject;

/// So many new rows are written column by column, as the segments that they are or will be.
const LOAD_ROWS_MIN: usize = 1_024;
/// More bytes are several operations: rows in row-wise form have 32-bit offsets.
const OPERATION_BYTES_MAX: usize = 1 << 28;

/// Memory that notes reuse.
#[derive(Default)]
struct Scratch {
    identities: PackedRows,
    rows: PackedRows,
    formats: RedoFormats,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Where a write is noted: for the log, if there is one, and for a SERIALIZABLE transaction.
#[derive(Clone, Copy)]
pub(crate) struct Noting<'a> {
    to: Option<(&'a Runtime, &'a TransactionObject)>,
    tracking: Option<Tracking<'a>>,
}

impl<'a> Noting<'a> {
    pub fn new(runtime: &'a Runtime, container: &'a Container, object: &'a TransactionObject) -> Self {
        let to = (runtime.log().is_some() && container.is_logged()).then_some((runtime, object));
        Self { to, tracking: Tracking::of(runtime, container, object) }
    }

    /// Whether anything is noted.
    pub fn is_on(self) -> bool {
        self.to.is_some() || self.tracking.is_some()
    }

    /// As [`Store::insert`].
    pub fn insert(self, store: &mut Store, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<Written, StorageError> {
        let written = store.insert(snapshot, rows).inspect_err(|error| self.refused(store.schema(), error))?;
        self.inserted(store.schema(), snapshot, rows)?;
        Ok(written)
    }

    /// Notes that rows were not inserted, or not changed.
    pub fn refused(self, schema: &Schema, error: &StorageError) {
        if let Some(tracking) = self.tracking {
            tracking.refused(schema, error);
        }
    }

    /// Notes rows that were inserted.
    pub fn inserted(self, schema: &Schema, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<(), StorageError> {
        if let Some(tracking) = self.tracking {
            tracking.inserted(schema, rows);
        }
        self.log_inserted(schema, snapshot, rows)
    }

    fn log_inserted(self, schema: &Schema, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<(), StorageError> {
        let Some((runtime, object)) = self.to else { return Ok(()) };
        if rows.rows > 1 && rows.bytes() > OPERATION_BYTES_MAX {
            let half = rows.rows / 2;
            self.log_inserted(schema, snapshot, &rows.slice(0, half))?;
            return self.log_inserted(schema, snapshot, &rows.slice(half, rows.rows - half));
        }
        let changed = rows.columns.len();
        if rows.rows >= LOAD_ROWS_MIN.min(schema.segment_rows as usize) {
            return Ok(object.note_redo(&runtime.redo_memory, runtime.write_ahead_bytes(), |out| {
                Header { kind: LOAD, identity: &[], changed, schema, snapshot }.write(out, |out| rows.store(out));
            })?);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let format = scratch.formats.of(schema.attributes.iter().map(|attribute| attribute.data_type));
            scratch.rows.clear(&format);
            scratch.rows.extend(rows);
            object.note_redo(&runtime.redo_memory, runtime.write_ahead_bytes(), |out| {
                let header = Header { kind: INSERT, identity: &[], changed, schema, snapshot };
                header.write(out, |out| scratch.rows.store(out));
            })
        })?;
        Ok(())
    }

    /// As [`Store::take_rows_out`].
    pub fn delete(
        self,
        store: &mut Store,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
    ) -> Result<Vec<u32>, StorageError> {
        let Some(tracking) = self.tracking else { return self.log_delete(store, snapshot, addresses) };
        let old = store.rows_to_change(snapshot, addresses);
        let gone = self.log_delete(store, snapshot, addresses)?;
        tracking.deleted(&old, &gone);
        Ok(gone)
    }

    fn log_delete(
        self,
        store: &mut Store,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
    ) -> Result<Vec<u32>, StorageError> {
        let Some((runtime, object)) = self.to else { return store.take_rows_out(snapshot, addresses) };
        SCRATCH.with_borrow_mut(|scratch| {
            pack_identities(scratch, store, snapshot, addresses);
            let gone = store.take_rows_out(snapshot, addresses)?;
            if !gone.is_empty() {
                keep(&mut scratch.identities, &gone);
                object.note_redo(&runtime.redo_memory, runtime.write_ahead_bytes(), |out| {
                    let (identity, schema) = (store.identity(), &**store.schema());
                    let header = Header { kind: DELETE, identity, changed: 0, schema, snapshot };
                    header.write(out, |out| {
                        write_ids(identity, out);
                        scratch.identities.store(out);
                    });
                })?;
            }
            Ok(gone)
        })
    }

    /// As [`Store::update_rows`].
    pub fn update(
        self,
        store: &mut Store,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Vec<u32>, StorageError> {
        let Some(tracking) = self.tracking else {
            return self.log_update(store, snapshot, addresses, attributes, new);
        };
        let old = store.rows_to_change(snapshot, addresses);
        let changed = self.log_update(store, snapshot, addresses, attributes, new);
        let changed = changed.inspect_err(|error| self.refused(store.schema(), error))?;
        tracking.updated(store.schema(), &old, &changed, attributes, new);
        Ok(changed)
    }

    fn log_update(
        self,
        store: &mut Store,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Vec<u32>, StorageError> {
        let Some((runtime, object)) = self.to else {
            return store.update_rows(snapshot, addresses, attributes, new);
        };
        SCRATCH.with_borrow_mut(|scratch| {
            pack_identities(scratch, store, snapshot, addresses);
            let changed = store.update_rows(snapshot, addresses, attributes, new)?;
            if !changed.is_empty() {
                let schema = &**store.schema();
                keep(&mut scratch.identities, &changed);
                let format = scratch.formats.of(attributes.iter().map(|id| schema.attributes[id.index()].data_type));
                scratch.rows.clear(&format);
                if changed.len() == new.rows {
                    scratch.rows.extend(new);
                } else {
                    scratch.rows.extend(&new.take(&changed));
                }
                object.note_redo(&runtime.redo_memory, runtime.write_ahead_bytes(), |out| {
                    let identity = store.identity();
                    let header = Header { kind: UPDATE, identity, changed: attributes.len(), schema, snapshot };
                    header.write(out, |out| {
                        write_ids(identity, out);
                        write_ids(attributes, out);
                        scratch.identities.store(out);
                        scratch.rows.store(out);
                    });
                })?;
            }
            Ok(changed)
        })
    }
}

fn pack_identities(scratch: &mut Scratch, store: &mut Store, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) {
    let schema = store.schema();
    let format = scratch.formats.of(store.identity().iter().map(|id| schema.attributes[id.index()].data_type));
    scratch.identities.clear(&format);
    store.pack_identities(snapshot, addresses, &mut scratch.identities);
}

/// Leaves only these rows, as a rule all of them.
fn keep(rows: &mut PackedRows, kept: &[u32]) {
    if kept.len() < rows.len() {
        let kept = rows.to_batch().take(kept);
        let format = Arc::clone(rows.format());
        rows.clear(&format);
        rows.extend(&kept);
    }
}

struct Header<'a> {
    kind: u8,
    identity: &'a [AttributeId],
    changed: usize,
    schema: &'a Schema,
    snapshot: &'a Snapshot<'a>,
}

impl Header<'_> {
    /// Writes an operation: this, then what `body` writes.
    fn write(&self, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        let mut header = [0; HEADER_BYTES];
        header[4] = self.kind;
        header[6..8].copy_from_slice(&(self.identity.len() as u16).to_le_bytes());
        header[8..10].copy_from_slice(&(self.changed as u16).to_le_bytes());
        header[12..16].copy_from_slice(&self.schema.container.0.to_le_bytes());
        header[16..20].copy_from_slice(&self.schema.version.0.to_le_bytes());
        header[20..24].copy_from_slice(&self.snapshot.statement.0.to_le_bytes());
        out.extend_from_slice(&header);
        body(out);
        let length = out.len() - start;
        assert!(u32::try_from(length).is_ok(), "an operation of {length} bytes");
        out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

fn write_ids(ids: &[AttributeId], out: &mut Vec<u8>) {
    for id in ids {
        out.extend_from_slice(&id.0.to_le_bytes());
    }
}
