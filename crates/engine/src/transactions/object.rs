//! One transaction's shared state, and who still needs it.
//!
//! The object stays known as long as a lock word may name it. Holders: the transaction's own handle, each of its
//! dataflows, each partition with unsettled words of it. The last one to let go hands it to the manager for
//! retirement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use eris_storage::{Outcome, PartitionId, Timestamp, TransactionId};

use super::manager::TransactionManager;
use crate::lock::{Lock, lock};

const ACTIVE: u64 = 0;
const ABORTED: u64 = 1;
/// Commit timestamps start above the two states that are none.
pub(super) const FIRST_TIMESTAMP: u64 = 2;

#[derive(Debug)]
pub(crate) struct TransactionObject {
    pub id: TransactionId,
    state: AtomicU64,
    holds: AtomicU32,
    /// Partitions with words of this transaction.
    touched: Lock<Vec<PartitionId>>,
}

impl TransactionObject {
    pub fn new(id: TransactionId) -> Self {
        Self { id, state: AtomicU64::new(ACTIVE), holds: AtomicU32::new(0), touched: Lock::new(Vec::new()) }
    }

    pub fn outcome(&self) -> Outcome {
        match self.state.load(Ordering::Acquire) {
            ACTIVE => Outcome::Active,
            ABORTED => Outcome::Aborted,
            timestamp => Outcome::Committed(Timestamp(timestamp)),
        }
    }

    /// The one atomic write of a commit.
    pub(super) fn commit(&self, timestamp: Timestamp) {
        assert!(timestamp.0 >= FIRST_TIMESTAMP, "commit timestamps are not states");
        let before = self.state.swap(timestamp.0, Ordering::AcqRel);
        assert!(before == ACTIVE, "a transaction is decided once");
    }

    pub(super) fn abort(&self) {
        let before = self.state.swap(ABORTED, Ordering::AcqRel);
        assert!(before == ACTIVE, "a transaction is decided once");
    }

    pub fn is_decided(&self) -> bool {
        self.state.load(Ordering::Acquire) != ACTIVE
    }

    pub(super) fn has_touched(&self) -> bool {
        !lock(&self.touched).is_empty()
    }

    pub(super) fn add_touched(&self, partition: PartitionId) {
        lock(&self.touched).push(partition);
    }

    /// Partitions that hold words of it.
    pub fn touched(&self) -> Vec<PartitionId> {
        lock(&self.touched).clone()
    }

    pub(super) fn hold(&self) {
        self.holds.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets go; true for the last holder.
    pub(super) fn release(&self) -> bool {
        let before = self.holds.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a transaction is released once per hold");
        before == 1
    }
}

/// Keeps a transaction known.
#[derive(Debug)]
pub(crate) struct TransactionHold {
    manager: Arc<TransactionManager>,
    object: Arc<TransactionObject>,
}

impl TransactionHold {
    pub fn new(manager: &Arc<TransactionManager>, object: &Arc<TransactionObject>) -> Self {
        object.hold();
        Self { manager: Arc::clone(manager), object: Arc::clone(object) }
    }

    pub fn object(&self) -> &Arc<TransactionObject> {
        &self.object
    }
}

impl Drop for TransactionHold {
    fn drop(&mut self) {
        if self.object.release() {
            self.manager.retire(&self.object);
        }
    }
}
