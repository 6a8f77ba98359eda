//! The form of an operation.
//!
//! ```text
//!   bytes u32 | kind u8 | 0 u8 | identity u16 | changed u16 | 0 u16 | container u32 | schema version u32
//!   statement u32
//!   identity x attribute u16 | changed x attribute u16
//!   insert, load: rows, all attributes of the schema version     delete: identities     update: identities, new values
//! ```
//! All numbers are little-endian; `bytes` counts the whole operation, and rows are as
//! [`PackedRows::store`](eris_storage::PackedRows::store) writes them, those of a load as
//! [`Batch::store`](eris_storage::Batch::store) does. Neither inserts nor loads name attributes: their rows have the
//! first `changed` ones of the schema.

use std::fmt;
use std::sync::Arc;

use eris_storage::{
    AttributeId, Batch, ContainerId, NotRows, PackedRows, RowFormat, Schema, SchemaVersion, StatementNumber,
};

use super::formats::RedoFormats;

pub(super) const INSERT: u8 = 1;
pub(super) const DELETE: u8 = 2;
pub(super) const UPDATE: u8 = 3;
pub(super) const LOAD: u8 = 4;

/// Bytes in front of the attributes.
pub(super) const HEADER_BYTES: usize = 24;

/// Bytes that are no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRedo {
    /// What is wrong with them.
    pub reason: String,
}

impl fmt::Display for NotRedo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NotRedo {}

fn wrong(reason: impl Into<String>) -> NotRedo {
    NotRedo { reason: reason.into() }
}

impl From<NotRows> for NotRedo {
    fn from(error: NotRows) -> Self {
        wrong(error.reason)
    }
}

/// What every operation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoHeader {
    kind: u8,
    identity: u16,
    changed: u16,
    /// Where the rows are.
    pub container: ContainerId,
    /// The schema that the partition had.
    pub schema_version: SchemaVersion,
    /// Who wrote, within the transaction.
    pub statement: StatementNumber,
}

/// An operation whose rows are not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct RedoOperation<'a> {
    /// Of what.
    pub header: RedoHeader,
    /// All of it.
    pub bytes: &'a [u8],
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum RedoChange {
    /// New rows.
    Insert {
        /// The first attributes of the schema, as many as there were.
        rows: PackedRows,
    },
    /// Many new rows at once, column by column.
    Load {
        /// The first attributes of the schema, as many as there were.
        rows: Batch,
    },
    /// Rows go.
    Delete {
        /// What tells them apart.
        identity: Box<[AttributeId]>,
        /// Its values.
        rows: PackedRows,
    },
    /// Rows get other values.
    Update {
        /// What tells them apart.
        identity: Box<[AttributeId]>,
        /// Its values before the update.
        rows: PackedRows,
        /// What changes.
        changed: Box<[AttributeId]>,
        /// The values behind the update, row by row.
        new: PackedRows,
    },
}

impl RedoChange {
    /// How many rows it is about.
    pub fn rows(&self) -> usize {
        match self {
            Self::Insert { rows } | Self::Delete { rows, .. } | Self::Update { rows, .. } => rows.len(),
            Self::Load { rows } => rows.rows,
        }
    }
}

/// The operations in `bytes`, one behind the other.
pub fn redo_operations(bytes: &[u8]) -> impl Iterator<Item = Result<RedoOperation<'_>, NotRedo>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = split_first(rest);
        rest = next.as_ref().map_or(&[], |(_, rest)| rest);
        Some(next.map(|(operation, _)| operation))
    })
}

fn split_first(bytes: &[u8]) -> Result<(RedoOperation<'_>, &[u8]), NotRedo> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Err(wrong("an operation ends early")) };
    let long = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let length = long(0) as usize;
    if length < HEADER_BYTES || length > bytes.len() {
        return Err(wrong(format!("an operation of {length} bytes in {}", bytes.len())));
    }
    let header = RedoHeader {
        kind: header[4],
        identity: short(6),
        changed: short(8),
        container: ContainerId(long(12)),
        schema_version: SchemaVersion(long(16)),
        statement: StatementNumber(long(20)),
    };
    let (bytes, rest) = bytes.split_at(length);
    Ok((RedoOperation { header, bytes }, rest))
}

impl RedoOperation<'_> {
    /// What it does to rows of this schema, which is that of the header's version or a later one.
    pub fn change(&self, schema: &Schema, formats: &mut RedoFormats) -> Result<RedoChange, NotRedo> {
        let RedoHeader { kind, identity, changed, .. } = self.header;
        let body = &self.bytes[HEADER_BYTES..];
        if matches!(kind, INSERT | LOAD) {
            let attributes = (0..changed).map(AttributeId);
            let format = format_of(schema, attributes, formats)?;
            return Ok(match kind {
                LOAD => RedoChange::Load { rows: Batch::load(format.data_types(), body)? },
                _ => RedoChange::Insert { rows: take_rows(&format, body)? },
            });
        }
        let (identity, body) = take_attributes(identity, body)?;
        let (changed, body) = take_attributes(changed, body)?;
        let format = format_of(schema, identity.iter().copied(), formats)?;
        match kind {
            DELETE => Ok(RedoChange::Delete { rows: take_rows(&format, body)?, identity }),
            UPDATE => {
                let (rows, body) = PackedRows::load(&format, body)?;
                let new = take_rows(&format_of(schema, changed.iter().copied(), formats)?, body)?;
                if rows.len() != new.len() {
                    return Err(wrong(format!("an update of {} rows with values for {}", rows.len(), new.len())));
                }
                Ok(RedoChange::Update { identity, rows, changed, new })
            }
            other => Err(wrong(format!("an operation of kind {other}"))),
        }
    }
}

/// Rows and nothing behind them.
fn take_rows(format: &Arc<RowFormat>, bytes: &[u8]) -> Result<PackedRows, NotRedo> {
    let (rows, rest) = PackedRows::load(format, bytes)?;
    if rest.is_empty() { Ok(rows) } else { Err(wrong(format!("{} bytes behind the rows", rest.len()))) }
}

fn take_attributes(count: u16, bytes: &[u8]) -> Result<(Box<[AttributeId]>, &[u8]), NotRedo> {
    let (ids, rest) = bytes.split_at_checked(2 * count as usize).ok_or_else(|| wrong("an operation ends early"))?;
    let ids = ids.chunks_exact(2).map(|id| AttributeId(u16::from_le_bytes([id[0], id[1]]))).collect();
    Ok((ids, rest))
}

fn format_of(
    schema: &Schema,
    attributes: impl Iterator<Item = AttributeId> + Clone,
    formats: &mut RedoFormats,
) -> Result<Arc<RowFormat>, NotRedo> {
    if let Some(unknown) = attributes.clone().find(|id| schema.attribute(*id).is_none()) {
        return Err(wrong(format!("container {} has no attribute {unknown}", schema.container.0)));
    }
    Ok(formats.of(attributes.map(|id| schema.attributes[id.index()].data_type)))
}
