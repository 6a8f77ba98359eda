//! Published snapshots: what may not be garbage-collected yet.
//!
//! Each worker publishes in a shard of its own. The oldest of every shard stands in [`OldestInUse`], where garbage
//! collection reads it without a lock.

use std::collections::VecDeque;

use eris_storage::{Outcome, Outcomes, Snapshot, StatementNumber, Timestamp, TransactionId};
use eris_sync::OldestInUse;

use super::object::TransactionHold;
use crate::counters::own_slot;
use crate::lock::{Lock, lock};

/// The multiset of snapshots in use.
pub(super) struct PublishedSnapshots {
    oldest: OldestInUse,
    /// The snapshots of each shard, ascending, with their users.
    shards: Box<[Shard]>,
}

/// On a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    in_use: Lock<VecDeque<(u64, u32)>>,
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

    /// Publishes the snapshot that `visible` yields; no reader of [`Self::oldest`] misses it.
    pub fn publish(&self, visible: impl Fn() -> u64) -> Publication {
        let shard = own_slot(self.shards.len());
        let mut in_use = lock(&self.shards[shard].in_use);
        let timestamp = if in_use.is_empty() { self.oldest.announce(shard, visible) } else { visible() };
        match in_use.back_mut() {
            Some((youngest, users)) if *youngest == timestamp => *users += 1,
            youngest => {
                assert!(youngest.is_none_or(|(youngest, _)| *youngest < timestamp), "what is visible only grows");
                in_use.push_back((timestamp, 1));
            }
        }
        Publication { timestamp: Timestamp(timestamp), shard }
    }

    /// One more use of a snapshot.
    pub fn republish(&self, publication: &Publication) -> Publication {
        let mut in_use = lock(&self.shards[publication.shard].in_use);
        let place = place(&in_use, publication);
        in_use[place].1 += 1;
        Publication { ..*publication }
    }

    pub fn withdraw(&self, publication: &Publication) {
        let shard = publication.shard;
        let mut in_use = lock(&self.shards[shard].in_use);
        let place = place(&in_use, publication);
        in_use[place].1 -= 1;
        if place > 0 || in_use[0].1 > 0 {
            return;
        }
        while in_use.front().is_some_and(|(_, users)| *users == 0) {
            in_use.pop_front();
        }
        self.oldest.replace(shard, in_use.front().map(|(oldest, _)| *oldest));
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
        let of_shard = |shard: &Shard| lock(&shard.in_use).iter().map(|(_, users)| u64::from(*users)).sum::<u64>();
        self.shards.iter().map(of_shard).sum()
    }
}

/// Where the snapshot of a publication stands.
fn place(in_use: &VecDeque<(u64, u32)>, publication: &Publication) -> usize {
    let place = in_use.binary_search_by_key(&publication.timestamp.0, |(timestamp, _)| *timestamp);
    place.unwrap_or_else(|_| unreachable!("a published snapshot is among those in use"))
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
        let publication = hold.manager().publish();
        Self { hold, publication, statement }
    }

    /// The same snapshot for another statement.
    pub(crate) fn share(&self, statement: StatementNumber) -> Self {
        let hold = TransactionHold::new(self.hold.manager(), self.hold.object());
        let publication = hold.manager().snapshots.republish(&self.publication);
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
        if transaction == own.id { own.outcome(statement) } else { self.hold.manager().outcome(transaction, statement) }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        self.hold.manager().snapshots.withdraw(&self.publication);
    }
}
