//! Published snapshots: what may not be garbage-collected yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eris_storage::{Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId};

use super::manager::TransactionManager;
use super::object::TransactionHold;
use crate::lock::{Lock, lock};

/// The multiset of snapshots in use.
#[derive(Debug, Default)]
pub(super) struct PublishedSnapshots {
    in_use: Lock<BTreeMap<u64, u32>>,
    /// How many there are; changed under the lock.
    count: AtomicU64,
}

impl PublishedSnapshots {
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes the snapshot that `visible` yields under the lock, so that no reader of [`Self::oldest`] misses it.
    pub fn publish(&self, visible: impl FnOnce() -> u64) -> Timestamp {
        let mut in_use = lock(&self.in_use);
        let timestamp = visible();
        *in_use.entry(timestamp).or_insert(0) += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
        Timestamp(timestamp)
    }

    pub fn republish(&self, timestamp: Timestamp) {
        let mut in_use = lock(&self.in_use);
        let count = in_use.get_mut(&timestamp.0);
        *count.unwrap_or_else(|| unreachable!("only a published snapshot is shared")) += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn withdraw(&self, timestamp: Timestamp) {
        let mut in_use = lock(&self.in_use);
        let Some(count) = in_use.get_mut(&timestamp.0) else {
            unreachable!("a snapshot is withdrawn once per publication");
        };
        *count -= 1;
        if *count == 0 {
            in_use.remove(&timestamp.0);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The oldest snapshot in use; `visible` when there is none.
    pub fn oldest(&self, visible: impl FnOnce() -> u64) -> Timestamp {
        // Under the lock: a snapshot that is being published is either in the set or not yet older than `visible`.
        let in_use = lock(&self.in_use);
        Timestamp(in_use.keys().next().copied().unwrap_or_else(visible))
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A published snapshot that may be used from any thread; withdrawn when the last owner drops it.
#[derive(Debug)]
pub struct SnapshotHandle {
    manager: Arc<TransactionManager>,
    hold: TransactionHold,
    visible: Timestamp,
    statement: StatementNumber,
}

impl SnapshotHandle {
    /// `visible` must be published; the handle takes a publication of its own.
    pub(crate) fn share(
        manager: &Arc<TransactionManager>,
        hold: TransactionHold,
        visible: Timestamp,
        statement: StatementNumber,
    ) -> Self {
        manager.snapshots.republish(visible);
        Self { manager: Arc::clone(manager), hold, visible, statement }
    }

    /// What this snapshot sees.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            visible: self.visible,
            transaction: self.hold.object().id,
            statement: self.statement,
            outcomes: self,
        }
    }

    /// The statement the snapshot was taken for.
    pub fn statement(&self) -> StatementNumber {
        self.statement
    }
}

/// The own transaction is at hand; the others are looked up.
impl Outcomes for SnapshotHandle {
    fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome {
        let own = self.hold.object();
        if transaction == own.id { own.outcome(statement) } else { self.manager.outcome(transaction, statement) }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        self.manager.withdraw(self.visible);
    }
}
