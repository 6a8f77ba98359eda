//! What can go wrong at run time, and what the caller may do about it.

use std::error::Error;
use std::sync::Arc;

use eris_platform::MemoryExceeded;
use eris_storage::{ContainerId, Holder, SchemaVersion, StatementNumber, StorageError};
use thiserror::Error as ThisError;

use crate::commit_log::LogError;
use crate::foreign_key::{ForeignKeyError, ForeignKeyViolation};
use crate::sequence::SequenceError;

/// An error of the engine. Cheap to clone: one failure may reach several waiters.
#[derive(Clone, Debug, ThisError)]
pub enum EngineError {
    /// A partition refused the command: a constraint, a conflict, memory.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The statement was cancelled on request.
    #[error("the statement was cancelled")]
    Cancelled,
    /// The transaction waits for others that wait for it; it has to roll back (SQLSTATE 40P01).
    #[error("deadlock detected")]
    Deadlock,
    /// The transaction and others saw each other's rows in a way that may have no serial order; it has to roll back
    /// (40001).
    #[error("could not serialize access due to read/write dependencies among transactions")]
    Unserializable {
        /// Its part in it.
        reason: &'static str,
    },
    /// The transaction said that it would write nothing (25006).
    #[error("cannot write in a read-only transaction")]
    ReadOnly,
    /// Another transaction did not let go of a row or a key in the time that the lock timeout allows (55P03).
    #[error("canceling statement due to lock timeout")]
    LockTimeout,
    /// Another transaction has a row, and the request was not to wait (55P03).
    #[error("could not obtain lock on row")]
    LockNotAvailable,
    /// Another transaction has a lock of the container, and the request was not to wait (55P03).
    #[error("could not obtain lock on container {}", .0.0)]
    TableLockNotAvailable(ContainerId),
    /// The container took the place of another one after the transaction's snapshot, or was dropped after the
    /// transaction had written to it (40001).
    #[error("could not serialize access: container {} came or went after the transaction's snapshot", .0.0)]
    ContainerReplaced(ContainerId),
    /// The snapshot was the oldest in use and was revoked, because old versions had too much memory (72000).
    #[error("snapshot too old")]
    SnapshotTooOld,
    /// The transaction has as many statements as a lock word can number (54000).
    #[error("a transaction has at most {} statements", StatementNumber::MAX)]
    TooManyStatements,
    /// The savepoint is of another transaction, was released, or was rolled back with an earlier one (3B001).
    #[error("savepoint does not exist")]
    NoSuchSavepoint,
    /// A row refers to nothing, or would (23503).
    #[error("{0}")]
    ForeignKeyViolation(Arc<ForeignKeyViolation>),
    /// A foreign key cannot be made, or stands in the way.
    #[error(transparent)]
    ForeignKey(#[from] ForeignKeyError),
    /// A sequence gives no value, or cannot be made or set.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The commit did not get into the log; the transaction is rolled back, unless the log failed under way.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A consumer asked for more memory than `memory_limit` leaves.
    #[error(transparent)]
    Memory(#[from] MemoryExceeded),
    /// The container was dropped, or never existed.
    #[error("container {} does not exist", .0.0)]
    NoSuchContainer(ContainerId),
    /// The statement was planned for another version of the schema; plan it again.
    #[error("the schema changed while the statement was running; run it again")]
    SchemaMoved,
    /// A micro-operator or a read panicked. The query is lost, nothing else.
    #[error("an operator panicked: {0}")]
    OperatorPanicked(String),
    /// Worker threads, topology or sockets could not be set up.
    #[error("cannot start: {0}")]
    Start(String),
    /// The engine is shutting down and takes no more work.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// An error of code that the engine runs for others (an expression, a row change).
    #[error("{0}")]
    Foreign(Arc<dyn Error + Send + Sync>),
}

impl EngineError {
    /// Wraps an error of code above the engine; get it back with [`EngineError::foreign`].
    pub fn from_foreign(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Foreign(Arc::new(error))
    }

    /// The wrapped error, if it is one of type `T`.
    pub fn foreign<T: Error + 'static>(&self) -> Option<&T> {
        match self {
            Self::Foreign(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Whom a write has to wait for before it may be repeated.
    pub(crate) fn undecided(&self) -> Option<Holder> {
        match self {
            Self::Storage(error) => error.undecided(),
            _ => None,
        }
    }

    /// The error for a sender who knew version `known` of the schema, where the partition has version `here`: that a
    /// request does not fit is then nobody's mistake, and it may be made anew.
    pub(crate) fn for_sender(self, known: SchemaVersion, here: SchemaVersion) -> Self {
        let unfit = matches!(self, Self::Storage(StorageError::InvalidRequest { .. } | StorageError::Layout { .. }));
        if unfit && known != here { Self::SchemaMoved } else { self }
    }

    /// Whether a write lost against a transaction that committed after the statement's snapshot.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Storage(StorageError::Conflict { with: None }))
    }

    /// The refused request, if the error is for want of memory.
    pub fn memory_exceeded(&self) -> Option<&MemoryExceeded> {
        match self {
            Self::Memory(refused) | Self::Storage(StorageError::Memory(refused)) => Some(refused),
            _ => None,
        }
    }

    /// Whether there was no memory for something.
    pub fn is_out_of_memory(&self) -> bool {
        self.memory_exceeded().is_some()
    }

    /// Whether the transaction lost against a concurrent one and may succeed when run again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_retryable(),
            Self::SchemaMoved | Self::Deadlock | Self::Unserializable { .. } | Self::ContainerReplaced(_) => true,
            _ => false,
        }
    }
}
