//! What can go wrong inside a partition, and what the caller may do about it.

use crate::ids::{AttributeId, IndexId};
use crate::mvcc::Holder;
use crate::value::Value;
use eris_platform::memory::MemoryExceeded;
use thiserror::Error;

/// An operation on a partition failed. The partition is unchanged, except for what a failed write of several rows had
/// already written: that belongs to the statement, which must be rolled back. After a conflict with somebody who is
/// undecided nothing is left, and the same write may be tried again.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum StorageError {
    /// Another row has the key: names and values of its attributes.
    #[error("duplicate key value violates unique constraint \"{index_name}\": key {} already exists", key_text(key))]
    DuplicateKey { index: IndexId, index_name: Box<str>, key: Box<[(Box<str>, Value)]> },
    /// NULL for an attribute that is not nullable.
    #[error("null value in column \"{name}\" violates not-null constraint")]
    NotNull { attribute: AttributeId, name: Box<str> },
    /// Another transaction changed the row (or holds the key) first.
    #[error("could not serialize access due to concurrent update")]
    Conflict {
        /// Who holds the row or the key, while that is undecided: the write may be repeated when it is. None: the other
        /// one committed.
        with: Option<Holder>,
    },
    /// No memory within the limit.
    #[error(transparent)]
    Memory(#[from] MemoryExceeded),
    /// One value is longer than a buffer can hold.
    #[error("row is too large: a value of {bytes} bytes exceeds the maximum of {bytes_max}")]
    RowTooLarge { bytes: usize, bytes_max: usize },
    /// The request was made for another version of the schema.
    #[error("the schema changed while the statement was running")]
    SchemaMoved,
    /// The partition is in a state in which it cannot do this now (a split while cursors are saved).
    #[error("the partition is busy: {reason}")]
    Busy { reason: &'static str },
    /// The request does not fit the schema: the caller's mistake, not the user's.
    #[error("invalid request: {reason}")]
    InvalidRequest { reason: String },
    /// A physical layout that cannot hold the rows: the user's mistake.
    #[error("invalid layout: {reason}")]
    Layout { reason: String },
    /// What was stored is not what was written.
    #[error("corrupted data: {reason}")]
    Corrupted { reason: String },
    /// An error of the caller's own code that ran inside the partition (merge functions).
    #[error("{reason}")]
    Foreign { reason: String },
}

impl StorageError {
    /// Whom a write has to wait for before it may be repeated.
    pub fn undecided(&self) -> Option<Holder> {
        match self {
            Self::Conflict { with } => *with,
            _ => None,
        }
    }

    /// Whether running the transaction again may succeed without anything else changing.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict { .. } | Self::SchemaMoved | Self::Busy { .. } => true,
            Self::DuplicateKey { .. }
            | Self::NotNull { .. }
            | Self::Memory(_)
            | Self::RowTooLarge { .. }
            | Self::InvalidRequest { .. }
            | Self::Layout { .. }
            | Self::Corrupted { .. }
            | Self::Foreign { .. } => false,
        }
    }
}

fn key_text(key: &[(Box<str>, Value)]) -> String {
    let names: Vec<&str> = key.iter().map(|(name, _)| &**name).collect();
    let values: Vec<String> = key.iter().map(|(_, value)| value.to_string()).collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}
