//! Waiting for other transactions, and running a statement again.
//!
//! The task waits, not the command: nothing is kept in a partition meanwhile but the words of what is done, so rows may
//! move, partitions split, and a task that is cancelled or dropped leaves nothing behind.

use std::future::poll_fn;
use std::time::Duration;

use eris_storage::{Holder, Timestamp};

use super::{IsolationLevel, Transaction};
use crate::counters::Event;
use crate::error::EngineError;
use crate::transactions::{TransactionManager, Wait};

/// How often a statement under READ COMMITTED begins again before it is told that it lost: with that many writers at a
/// row each of which was faster, something else than patience is needed.
const STATEMENT_RESTARTS_MAX: u32 = 256;

/// One operation of a statement, and how often it began.
pub(super) struct Attempt {
    /// Whether it is the first thing that its statement does: then running it again is running the statement again.
    alone: bool,
    restarts: u32,
}

impl Attempt {
    pub(super) fn may_restart(&self, level: IsolationLevel) -> bool {
        level == IsolationLevel::ReadCommitted && self.alone && self.restarts < STATEMENT_RESTARTS_MAX
    }
}

impl Transaction {
    /// How long a write waits for another transaction's row or key, and any access for a table lock; `None` (the
    /// default): until it is decided. Zero: not at all. Each wait has this time anew.
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.lock_timeout = timeout;
    }

    /// Waits until the statement that stands in the way is decided.
    pub(super) async fn wait_for(&mut self, holder: Holder) -> Result<(), EngineError> {
        let runtime = self.runtime.clone();
        let manager = &runtime.transactions;
        let Some(object) = manager.find(holder.transaction) else {
            // Decided, and settled since.
            return Ok(());
        };
        if self.lock_timeout == Some(Duration::ZERO) {
            runtime.counters.add(Event::LockTimeouts, 1);
            return Err(EngineError::LockTimeout);
        }
        let Some(mut wait) = Wait::begin(manager, self.id(), object, holder.statement) else {
            runtime.counters.add(Event::Deadlocks, 1);
            return Err(EngineError::Deadlock);
        };
        runtime.counters.add(Event::LockWaits, 1);
        self.sleep_until_ready(|context| wait.poll(context)).await
    }

    /// Counts an operation of the current statement.
    pub(super) fn begin_operation(&mut self) -> Result<Attempt, EngineError> {
        if self.exhausted {
            return Err(EngineError::TooManyStatements);
        }
        self.snapshot().check()?;
        self.operations += 1;
        Ok(Attempt { alone: self.operations == 1, restarts: 0 })
    }

    /// Begins the statement again if its operation lost against a newer version and may: under READ COMMITTED, when the
    /// statement did nothing else.
    pub(super) async fn try_again(&mut self, attempt: &mut Attempt, error: EngineError) -> Result<(), EngineError> {
        if !attempt.may_restart(self.level) {
            return Err(error);
        }
        attempt.restarts += 1;
        self.restart_statement(error).await?;
        self.operations = 1;
        Ok(())
    }

    /// Takes back what the current statement wrote, and begins it again with a newer snapshot, for a caller whose
    /// statement consists of several operations. Gives the error back unless the level is READ COMMITTED and the error
    /// says that the statement lost against a version that its snapshot does not see.
    pub async fn restart_statement(&mut self, error: EngineError) -> Result<(), EngineError> {
        if self.level != IsolationLevel::ReadCommitted || !error.is_lost() {
            return Err(error);
        }
        self.runtime.counters.add(Event::StatementRestarts, 1);
        let manager = self.hold.manager().clone();
        // The winner is among those that have taken a timestamp.
        until_visible(&manager, manager.last_taken()).await;
        // Together, so that nobody who drops this future is left with a number that is void.
        self.hold.object().void(self.statement..=self.statement);
        self.next_statement();
        if self.exhausted { Err(EngineError::TooManyStatements) } else { Ok(()) }
    }
}

/// Waits until a timestamp that was taken is visible.
pub(crate) async fn until_visible(manager: &TransactionManager, timestamp: Timestamp) {
    poll_fn(|context| manager.poll_visible(timestamp, context)).await;
}
