//! Published snapshots: what may not be garbage-collected yet.
//!
//! Each worker publishes in a shard of its own. The oldest of every shard stands in [`OldestInUse`], where garbage
//! collection reads it without a lock.
//!
//! A snapshot may be *revoked*, so that what is kept for it can go:
//! ```text
//!   revoker      the transaction's object says so, then the publication is withdrawn
//!   maintenance  sees that it is withdrawn, has the latch of a partition: vacates versions
//!   reader       has the latch, then looks whether its snapshot is revoked: SnapshotTooOld
//! ```
//! Whoever has the latch after something was vacated sees what the revoker wrote before. Whoever has it earlier reads
//! what is still there. So a revoked snapshot never shows a wrong row.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_storage::{Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId};
use eris_sync::OldestInUse;

use super::object::{TransactionHold, TransactionObject};
use crate::counters::own_slot;
use crate::error::EngineError;
use crate::lock::{Lock, lock};

/// The multiset of snapshots in use.
pub(super) struct PublishedSnapshots {
    oldest: OldestInUse,
    shards: Box<[Shard]>,
}

/// On a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    /// By timestamp, ascending.
    in_use: Lock<VecDeque<InUse>>,
}

/// A snapshot that a transaction published in a shard.
struct InUse {
    timestamp: u64,
    /// Handles that share it.
    users: u32,
    object: Arc<TransactionObject>,
}

/// One use of a published snapshot.
#[derive(Debug)]
pub(super) struct Publication {
    pub timestamp: Timestamp,
    shard: usize,
}

impl PublishedSnapshots {
    /// The last shard is for threads that are no workers.
    pub fn new(workers: usize) -> Self {
        let shards: Box<[Shard]> = (0..=workers).map(|_| Shard::default()).collect();
        Self { oldest: OldestInUse::new(shards.len()), shards }
    }

    /// Publishes the snapshot that `visible` yields for a transaction; no reader of [`Self::oldest`] misses it.
    pub fn publish(&self, object: &Arc<TransactionObject>, visible: impl Fn() -> u64) -> Publication {
        let shard = own_slot(self.shards.len());
        let mut in_use = lock(&self.shards[shard].in_use);
        let timestamp = if in_use.is_empty() { self.oldest.announce(shard, visible) } else { visible() };
        match in_use.back_mut() {
            Some(youngest) if youngest.timestamp == timestamp && Arc::ptr_eq(&youngest.object, object) => {
                youngest.users += 1;
            }
            youngest => {
                let youngest = youngest.map_or(0, |youngest| youngest.timestamp);
                assert!(youngest <= timestamp, "what is visible only grows");
                in_use.push_back(InUse { timestamp, users: 1, object: Arc::clone(object) });
            }
        }
        Publication { timestamp: Timestamp(timestamp), shard }
    }

    /// One more use of a snapshot. If it is revoked, so is this one.
    pub fn republish(&self, publication: &Publication, object: &TransactionObject) -> Publication {
        let mut in_use = lock(&self.shards[publication.shard].in_use);
        match place(&in_use, publication, object) {
            Some(place) => in_use[place].users += 1,
            None => object.assert_revoked(publication.timestamp),
        }
        Publication { ..*publication }
    }

    pub fn withdraw(&self, publication: &Publication, object: &TransactionObject) {
        let shard = publication.shard;
        let mut in_use = lock(&self.shards[shard].in_use);
        let Some(place) = place(&in_use, publication, object) else {
            return object.assert_revoked(publication.timestamp);
        };
        in_use[place].users -= 1;
        if in_use[place].users > 0 {
            return;
        }
        in_use.remove(place);
        if place == 0 {
            self.oldest.replace(shard, in_use.front().map(|oldest| oldest.timestamp));
        }
    }

    /// Revokes the uses of a snapshot, which is the oldest as far as the caller knows, and older than what is visible.
    /// Gives the transactions that had it; none if one of them has to keep it, and nothing is revoked.
    pub fn revoke(&self, timestamp: Timestamp) -> Vec<TransactionId> {
        let shards = || self.shards.iter().enumerate();
        // No snapshot of this timestamp is published any more, so what is kept stands here already.
        let is_kept = |in_use: &InUse| in_use.timestamp == timestamp.0 && in_use.object.keeps_snapshots();
        if shards().any(|(_, shard)| lock(&shard.in_use).iter().any(is_kept)) {
            return Vec::new();
        }
        let mut revoked = Vec::new();
        for (number, shard) in shards() {
            let mut in_use = lock(&shard.in_use);
            let before = revoked.len();
            in_use.retain(|it| {
                if it.timestamp == timestamp.0 {
                    it.object.revoke(timestamp);
                    revoked.push(it.object.id);
                }
                it.timestamp != timestamp.0
            });
            if revoked.len() > before {
                // Behind what the object says.
                self.oldest.replace(number, in_use.front().map(|oldest| oldest.timestamp));
            }
        }
        revoked.sort_unstable();
        revoked.dedup();
        revoked
    }

    /// The oldest snapshot in use; `visible` when there is none.
    pub fn oldest(&self, visible: impl FnOnce() -> u64) -> Timestamp {
        Timestamp(self.oldest.oldest(visible))
    }

    pub fn is_empty(&self) -> bool {
        self.oldest.is_empty()
    }

    /// Uses of snapshots.
    pub fn count(&self) -> u64 {
        let of_shard = |shard: &Shard| lock(&shard.in_use).iter().map(|it| u64::from(it.users)).sum::<u64>();
        self.shards.iter().map(of_shard).sum()
    }

    /// Which transactions use which snapshots, ascending.
    pub fn list(&self) -> Vec<(Timestamp, TransactionId, bool)> {
        let mut list = Vec::new();
        for shard in &self.shards {
            let in_use = lock(&shard.in_use);
            list.extend(in_use.iter().map(|it| (Timestamp(it.timestamp), it.object.id, it.object.keeps_snapshots())));
        }
        list.sort_unstable();
        list.dedup();
        list
    }
}

/// Where the snapshot of a publication stands; nowhere if it is revoked.
fn place(in_use: &VecDeque<InUse>, publication: &Publication, object: &TransactionObject) -> Option<usize> {
    let timestamp = publication.timestamp.0;
    let first = in_use.partition_point(|it| it.timestamp < timestamp);
    let mut same = in_use.range(first..).take_while(|it| it.timestamp == timestamp);
    same.position(|it| std::ptr::eq(Arc::as_ptr(&it.object), object)).map(|place| first + place)
}

/// A published snapshot that may be used from any thread; withdrawn when the last owner drops it.
#[derive(Debug)]
pub struct SnapshotHandle {
    hold: TransactionHold,
    publication: Publication,
    statement: StatementNumber,
}

impl SnapshotHandle {
    /// Publishes a snapshot of what is visible now.
    pub(crate) fn publish(hold: TransactionHold, statement: StatementNumber) -> Self {
        let publication = hold.manager().publish(hold.object());
        Self { hold, publication, statement }
    }

    /// The same snapshot for another statement.
    pub(crate) fn share(&self, statement: StatementNumber) -> Self {
        let hold = TransactionHold::new(self.hold.manager(), self.hold.object());
        let publication = hold.manager().snapshots.republish(&self.publication, hold.object());
        Self { hold, publication, statement }
    }

    /// From now on it is another statement's; nobody else may have it.
    pub(crate) fn set_statement(&mut self, statement: StatementNumber) {
        self.statement = statement;
    }

    /// Commits up to this timestamp are visible.
    pub(crate) fn visible(&self) -> Timestamp {
        self.publication.timestamp
    }

    /// Whether versions that it would see may be gone. Whoever reads a partition asks with its latch in hand, before it
    /// reads; whoever reads what is pinned asks after that, before it uses what it read.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.hold.object().is_revoked(self.publication.timestamp)
    }

    /// The error of a revoked one.
    #[inline]
    pub fn check(&self) -> Result<(), EngineError> {
        // Planted: a reader does not look.
        let looks = !cfg!(feature = "bug_revoked_snapshot_is_read");
        if looks && self.is_revoked() { Err(EngineError::SnapshotTooOld) } else { Ok(()) }
    }

    /// What this snapshot sees.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            visible: self.visible(),
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
        if transaction == own.id {
            return own.outcome(statement);
        }
        match self.hold.manager().known_outcome(transaction, statement) {
            Some(outcome) => outcome,
            // A pin names who is forgotten. What is read from it is not used (`is_revoked`).
            None if self.is_revoked() => Outcome::Aborted,
            None => unreachable!("a lock word belongs to a known transaction, {transaction:?} is not"),
        }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        self.hold.manager().snapshots.withdraw(&self.publication, self.hold.object());
    }
}
