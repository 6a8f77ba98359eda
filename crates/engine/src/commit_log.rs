//! Where commits become durable before they become visible.
//!
//! ```text
//!   task                          log                                  its queue
//!   commit ── poll_commit ──────> takes the timestamp, appends ──────> writes, syncs
//!     │ waits                       in flight: PendingCommit                │
//!     │ <── woken ─────────────── decide(Ok) <──────────────────────────────┘
//!     └── visible
//! ```
//! The log hands out timestamps in its own order, so that what stands in front of a record is what was committed
//! before it, and a log that ends early ends with a state that somebody could have seen.
//!
//! From [`CommitLog::poll_commit`] on it is the log that decides: a task that is dropped meanwhile takes nothing back.
//! An asynchronous commit is decided at once. Timestamps become visible in order, so it still waits for synchronous
//! ones in front of it that are on their way to disk.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use eris_platform::NodeId;
use eris_storage::{StatementNumber, Timestamp, TransactionId};
use thiserror::Error;

use crate::definition::Definition;
use crate::runtime::keep_work;
use crate::transactions::{TransactionManager, TransactionObject};

/// Why a transaction does not get into the log. Cheap to clone: one failure reaches everybody who waits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// There is no room for the log (SQLSTATE 53100). Nothing was written; it may be tried again.
    #[error("could not extend the log: {reason}")]
    Full {
        /// What the system says.
        reason: Arc<str>,
    },
    /// The system fails at the log (58030).
    #[error("the log could not be {}: {reason}", failed_at(*.is_over))]
    Failed {
        /// What the system says.
        reason: Arc<str>,
        /// Whether that ended the log: it could not be written. No further commit is accepted, and whether the ones
        /// that were under way are durable is found out when the database is opened again. If not, it could not be
        /// extended: nothing was written, and it may be tried again.
        is_over: bool,
    },
    /// One transaction wrote more than a record can hold (54000).
    #[error("the transaction wrote {bytes} bytes of log, at most {bytes_max} are possible")]
    TooLong {
        /// What it wrote.
        bytes: u64,
        /// What a record holds.
        bytes_max: u64,
    },
}

impl LogError {
    /// Whether the record of a commit that it came to may be in the log.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        matches!(self, Self::Failed { is_over: true, .. })
    }
}

fn failed_at(is_over: bool) -> &'static str {
    if is_over { "written, no more commits are accepted" } else { "extended" }
}

/// When a commit is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once it is on disk.
    #[default]
    Synchronous,
    /// Once it is visible: a crash may lose the last ones, never one in the middle.
    Asynchronous,
}

/// A log of what is committed. See the [module](self).
pub trait CommitLog: Send + Sync + 'static {
    /// Appends a transaction, as soon as there is room, and takes it out of `commit`.
    fn poll_commit(&self, context: &mut Context<'_>, commit: &mut Option<Commit>) -> Poll<Result<(), LogError>>;

    /// Appends a part of a transaction that may still roll back, as soon as there is room, and empties `operations`.
    fn poll_part(
        &self,
        context: &mut Context<'_>,
        transaction: TransactionId,
        operations: &mut Vec<u8>,
    ) -> Poll<Result<(), LogError>>;

    /// A transaction with parts in the log was rolled back: nobody needs them.
    fn rolled_back(&self, transaction: TransactionId);

    /// Appends a change of definitions: in front of whatever is appended later.
    fn define(&self, definition: &Definition) -> Result<(), LogError>;

    /// If commits that wait will be told in less time than it takes to fall asleep and be woken: the node whose task
    /// tells it.
    fn about_to_tell(&self) -> Option<NodeId> {
        None
    }

    /// Whether everything that was appended is durable by now.
    fn poll_durable(&self, context: &mut Context<'_>, ticket: &mut Option<u64>) -> Poll<Result<(), LogError>>;
}

/// Where a log is, once there is one. Clones are the same place.
#[derive(Clone, Default)]
pub(crate) struct LogSlot(Arc<OnceLock<Arc<dyn CommitLog>>>);

impl LogSlot {
    pub fn set(&self, log: Arc<dyn CommitLog>) -> Result<(), Arc<dyn CommitLog>> {
        self.0.set(log)
    }

    #[inline]
    pub fn get(&self) -> Option<&Arc<dyn CommitLog>> {
        self.0.get()
    }
}

impl fmt::Debug for LogSlot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.get().is_some() { "a log" } else { "no log" })
    }
}

/// A transaction that wants to be in the log.
#[derive(Debug)]
pub struct Commit {
    /// Which; its parts have the same number.
    pub transaction: TransactionId,
    /// What it did, as [`redo_operations`](crate::redo_operations) reads it, behind its parts.
    pub operations: Vec<u8>,
    /// Whether parts of it are in the log.
    pub has_parts: bool,
    /// Statements that were rolled back: first to last, ascending. Parts may have operations of these.
    pub void: Vec<(StatementNumber, StatementNumber)>,
    /// When it is told.
    pub durability: Durability,
    pub(crate) manager: Arc<TransactionManager>,
    pub(crate) object: Arc<TransactionObject>,
}

impl Commit {
    /// Takes the transaction's timestamp: the next one. Whoever has the result decides it.
    pub fn take_timestamp(&self) -> PendingCommit {
        let timestamp = self.manager.take_timestamp();
        let decided = false;
        PendingCommit { manager: Arc::clone(&self.manager), object: Arc::clone(&self.object), timestamp, decided }
    }
}

/// A transaction that is in the log and not decided yet. Dropped undecided, it is rolled back.
pub struct PendingCommit {
    manager: Arc<TransactionManager>,
    object: Arc<TransactionObject>,
    timestamp: Timestamp,
    decided: bool,
}

impl PendingCommit {
    /// Its timestamp.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Decides several, in the order of their timestamps. A worker that does this goes on with the first of their tasks
    /// itself: nobody is woken for one.
    pub fn decide_all(commits: impl IntoIterator<Item = (Self, Result<(), LogError>)>) {
        keep_work(1);
        commits.into_iter().for_each(|(commit, outcome)| commit.decide(outcome));
        keep_work(0);
    }

    /// Says what became of it; in the order of timestamps. It becomes visible, and its task is woken.
    pub fn decide(mut self, outcome: Result<(), LogError>) {
        self.decided = true;
        match outcome {
            Ok(()) => self.manager.commit_at(&self.object, self.timestamp),
            Err(error) => self.manager.fail_at(&self.object, self.timestamp, Some(error)),
        }
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        if !self.decided {
            self.manager.fail_at(&self.object, self.timestamp, None);
        }
    }
}

impl fmt::Debug for PendingCommit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PendingCommit({} at {})", self.object.id.0, self.timestamp.0)
    }
}
