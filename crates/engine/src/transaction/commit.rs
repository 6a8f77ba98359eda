//! The end of a transaction: into the log, if there is one, then one atomic write.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use eris_storage::{StatementNumber, Timestamp};

use super::{Transaction, hand_to_maintenance, until_visible};
use crate::commit_log::{Commit, CommitLog, Durability, LogError};
use crate::error::EngineError;
use crate::redo::without;
use crate::task::Task;
use crate::transactions::{TransactionHold, TransactionObject};

impl Transaction {
    /// When its commit is told; synchronous unless said otherwise. Without a log there is no difference.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// Commits: one atomic write, behind its record in the log. Returns when the commit is visible to new snapshots,
    /// and durable, unless it is [asynchronous](Durability::Asynchronous). Checks that were put off come first; if one
    /// does not pass, the transaction is rolled back.
    ///
    /// A future that is dropped while the record is on its way leaves the decision to the log.
    pub async fn commit(mut self) -> Result<Timestamp, EngineError> {
        let timestamp = self.commit_all().await?;
        self.end();
        Ok(timestamp)
    }

    /// All but the end: table locks are still held.
    pub(super) async fn commit_all(&mut self) -> Result<Timestamp, EngineError> {
        self.check_all().await?;
        self.check_containers()?;
        self.prepare_serializable()?;
        let manager = self.hold.manager().clone();
        let log = self.runtime.log().filter(|_| self.hold.object().has_redo()).cloned();
        let timestamp = match log {
            None => manager.commit(self.hold.object()),
            Some(log) => Box::pin(self.commit_logged(&*log)).await?,
        };
        until_visible(&manager, timestamp).await;
        self.count_serializable();
        Ok(timestamp)
    }

    async fn commit_logged(&mut self, log: &dyn CommitLog) -> Result<Timestamp, EngineError> {
        let object = Arc::clone(self.hold.object());
        let mut commit = Some(self.record(&object));
        poll_fn(|context| match self.poll_cancelled(context) {
            Err(cancelled) => Poll::Ready(Err(cancelled)),
            Ok(()) => log.poll_commit(context, &mut commit).map_err(EngineError::from),
        })
        .await?;
        self.logged = true;
        let outcome = decided(&object).await;
        if outcome.is_err() {
            self.end();
        }
        Ok(outcome?)
    }

    /// What goes into the log for it.
    fn record(&self, object: &Arc<TransactionObject>) -> Commit {
        let void = object.void_statements();
        let (operations, has_parts) = {
            let mut redo = object.redo();
            (redo.take(&self.runtime.redo_memory), redo.has_parts)
        };
        let operations = if void.is_empty() { operations } else { without(&operations, |it| is_void(&void, it)) };
        Commit {
            transaction: object.id,
            operations,
            has_parts,
            // Planted: parts keep the operations of statements that were rolled back behind them.
            void: if has_parts && !cfg!(feature = "bug_parts_keep_void") { void } else { Vec::new() },
            durability: self.durability,
            manager: Arc::clone(&**self.hold.manager()),
            object: Arc::clone(object),
        }
    }

    /// Writes what a long transaction did so far into the log, ahead of its commit, if that is worth while.
    pub(super) async fn write_ahead_if_long(&self) -> Result<(), EngineError> {
        if self.hold.object().take_redo_is_long() { Box::pin(self.write_ahead()).await } else { Ok(()) }
    }

    pub(super) async fn write_ahead(&self) -> Result<(), EngineError> {
        let object = Arc::clone(self.hold.object());
        let Some(log) = self.runtime.log().cloned() else { return Ok(()) };
        let operations = {
            let mut redo = object.redo();
            // What was noted after the flag was read goes with this part.
            object.take_redo_is_long();
            redo.has_parts |= !redo.bytes.is_empty();
            redo.take(&self.runtime.redo_memory)
        };
        if operations.is_empty() {
            return Ok(());
        }
        let mut part = Part { object: &object, operations };
        poll_fn(|context| match self.poll_cancelled(context) {
            Err(cancelled) => Poll::Ready(Err(cancelled)),
            Ok(()) => log.poll_part(context, object.id, &mut part.operations).map_err(EngineError::from),
        })
        .await
    }

    pub(super) fn poll_cancelled(&self, context: &Context<'_>) -> Result<(), EngineError> {
        self.cancel().register(context.waker());
        if self.cancel().is_cancelled() { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    /// The task is gone and the record is in the log: somebody else sees to the end.
    pub(super) fn leave_to_log(&mut self) {
        self.ended = true;
        self.snapshot = None;
        let runtime = Arc::clone(&self.runtime);
        let hold = TransactionHold::new(self.hold.manager(), self.hold.object());
        let node = runtime.next_node();
        let of_task = Arc::clone(&runtime);
        let locks = self.locks.take();
        let end = async move {
            // Nobody is left to be told of an error.
            if let Ok(timestamp) = decided(hold.object()).await {
                until_visible(hold.manager(), timestamp).await;
            }
            drop(locks);
            hand_to_maintenance(&of_task, hold.object());
        };
        Task::start(&runtime, node, Box::pin(end));
    }
}

/// Operations on their way into the log; what did not get there stays with the transaction.
struct Part<'o> {
    object: &'o TransactionObject,
    operations: Vec<u8>,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.operations.is_empty() {
            self.object.redo().put_back(std::mem::take(&mut self.operations));
        }
    }
}

/// Waits until the log has decided.
async fn decided(object: &TransactionObject) -> Result<Timestamp, LogError> {
    let mut ticket = None;
    poll_fn(|context| {
        if let Some(outcome) = object.decided() {
            return Poll::Ready(outcome);
        }
        ticket = Some(object.add_waiter(ticket, context.waker()));
        // It may have been decided between the two.
        object.decided().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn is_void(void: &[(StatementNumber, StatementNumber)], statement: StatementNumber) -> bool {
    void.iter().any(|(first, last)| (*first..=*last).contains(&statement))
}
