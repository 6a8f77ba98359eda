//! How much memory the statements of a transaction may hold.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eris_platform::MemoryPool;

use super::Transaction;
use crate::engine::Engine;
use crate::error::EngineError;

/// What kind of statement works with the memory of a database.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MemoryUse {
    /// One that may take all that rows may.
    #[default]
    Any,
    /// A short one: the little that it works with is also given in a full database.
    Short,
    /// A long one: it leaves a part to short ones.
    Long,
}

impl Transaction {
    /// The memory of its statements, for what a task holds besides: bounded like their results.
    pub fn memory(&self) -> &Arc<MemoryPool> {
        self.bounded_memory.as_ref().or(self.statement_memory.as_ref()).unwrap_or(&self.runtime.memory)
    }

    /// Bounds what each further statement may hold at a time: its waiting results, and what a task reserves from
    /// [`Transaction::memory`] for it. At the limit the statement fails with an error that names consumer and limit,
    /// while others go on. Rows it writes are the database's and do not count. `None`: only the database's limit.
    ///
    /// Statements of a transaction follow one another and give everything back at their end; results of earlier ones
    /// that are still open keep the limit they started with.
    pub fn set_memory_limit(&mut self, bytes: Option<u64>) {
        self.bounded_memory = bytes.map(|bytes| self.runtime.memory.child(bytes));
    }

    /// From which part of the database's memory further statements get what they work with. Those with a limit of their
    /// own keep that.
    pub fn use_memory_of(&mut self, memory_use: MemoryUse) {
        self.statement_memory = match memory_use {
            MemoryUse::Any => None,
            MemoryUse::Short => Some(Arc::clone(&self.runtime.short_memory)),
            MemoryUse::Long => Some(self.runtime.memory.working()),
        };
    }

    /// Further statements may hold what they need, beyond the database's limit: for what writes the
    /// [system container](crate::SYSTEM_CONTAINER).
    pub fn use_system_memory(&mut self) {
        self.bounded_memory = Some(Arc::clone(&self.runtime.system_memory));
    }

    /// Waits while memory is reclaimed (see [`Engine::reclaim_memory`]); fails if the statement is cancelled meanwhile.
    pub(super) async fn reclaim_memory(&self, wait_max: Duration) -> Result<(), EngineError> {
        let engine = Engine::of_runtime(&self.runtime);
        let mut reclaimed = pin!(engine.reclaim_memory(wait_max));
        poll_fn(|context| match self.poll_cancelled(context) {
            Ok(()) => reclaimed.as_mut().poll(context).map(Ok),
            Err(cancelled) => Poll::Ready(Err(cancelled)),
        })
        .await
    }
}
