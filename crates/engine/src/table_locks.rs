//! Table locks: which transactions use a container, and which of them keep others out of it.
//!
//! PostgreSQL's eight [modes](TableLockMode), held until the transaction ends, or until it rolls back to a savepoint
//! before the statement that took them. Every access takes one of the three weak modes, which never conflict with each
//! other, so it writes nothing that another worker writes:
//! ```text
//!   strong = 0 ───> a weak lock is noted in the shard of its worker        (no other worker touches that line)
//!   strong > 0 ───> it goes through the queue, as strong locks do
//!
//!   a strong lock:  strong += 1, then looks at what is held, at who waits before it, and into every shard
//! ```
//! A weak locker looks at `strong` while it has its shard's lock, and a strong locker takes every shard's lock after it
//! has raised `strong`: one of the two sees the other. Whoever takes a note out of a shard looks at `strong`, too, and
//! if it is raised sees to those who wait.
//!
//! Requests are granted in the order of arrival: one waits if it conflicts with what others hold, or with what somebody
//! before it in the queue asks for. So readers that keep coming do not starve a strong lock. A transaction that has a
//! lock already goes before those who wait for it; else they would wait for each other.

mod mode;
mod queue;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use eris_storage::{ContainerId, TransactionId};

use crate::counters::own_slot;
use crate::lock::{Lock, lock};
pub use mode::TableLockMode;
pub(crate) use mode::TableLockModes;
use queue::{Queue, Wakers};

/// The locks of one container.
#[derive(Debug)]
pub(crate) struct TableLocks {
    container: ContainerId,
    /// How many strong locks are held or waited for.
    strong: AtomicU64,
    workers: usize,
    /// Made for the first who locks: one for each worker, and one for all other threads.
    shards: OnceLock<Box<[Shard]>>,
    queue: Lock<Queue>,
}

/// Weak locks that were noted by one worker, on a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    noted: Lock<Vec<(TransactionId, TableLockMode)>>,
}

/// Where a lock is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockPlace {
    Shard(u16),
    Queue,
    /// A stronger lock of the transaction does.
    Covered,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    Granted(LockPlace),
    /// It stands in the queue, under this ticket.
    Waits(u64),
    /// It would have to wait, and does not.
    Refused,
}

/// A lock that is held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableLockDescription {
    /// On this container.
    pub container: ContainerId,
    /// Of this transaction.
    pub transaction: TransactionId,
    /// In this mode.
    pub mode: TableLockMode,
    /// Whether it is held; else it is waited for.
    pub granted: bool,
    /// Whether it was noted without the queue.
    pub fast_path: bool,
}

impl TableLocks {
    pub fn new(container: ContainerId, workers: usize) -> Self {
        let (strong, shards, queue) = Default::default();
        Self { container, strong, workers, shards, queue }
    }

    /// Notes a weak lock, if nobody has a strong one or wants it.
    #[inline]
    pub fn note(&self, transaction: TransactionId, mode: TableLockMode) -> Option<LockPlace> {
        debug_assert!(mode.is_weak(), "strong locks go through the queue");
        let shards = self.made_shards();
        let slot = own_slot(shards.len());
        let mut noted = lock(&shards[slot].noted);
        if self.strong.load(Ordering::Acquire) > 0 {
            return None;
        }
        noted.push((transaction, mode));
        Some(LockPlace::Shard(slot as u16))
    }

    fn made_shards(&self) -> &[Shard] {
        self.shards.get_or_init(|| (0..=self.workers).map(|_| Shard::default()).collect())
    }

    /// Asks for a lock; `own` is what the transaction has here by now.
    pub fn request(
        &self,
        transaction: TransactionId,
        own: TableLockModes,
        mode: TableLockMode,
        may_wait: bool,
    ) -> Requested {
        let mut queue = lock(&self.queue);
        if mode.is_strong() {
            // A weak request meets this one at the latch of a shard, which has to be there before the count is raised.
            self.made_shards();
            self.strong.fetch_add(1, Ordering::AcqRel);
        }
        let place = queue.place_for(transaction, own);
        if self.is_free(&queue, transaction, mode, place) {
            queue.hold(transaction, mode);
            return Requested::Granted(LockPlace::Queue);
        }
        if may_wait {
            return Requested::Waits(queue.enter(place, transaction, mode));
        }
        self.count_strong_out(mode);
        Requested::Refused
    }

    /// Whether a request that stands at this place of the queue may be granted.
    fn is_free(&self, queue: &Queue, transaction: TransactionId, mode: TableLockMode, place: usize) -> bool {
        let conflicts = mode.conflicts();
        queue.is_free(transaction, conflicts, place)
            && !(mode.is_strong() && self.noted_by_others(transaction, conflicts).next().is_some())
    }

    /// Who else has noted a lock of one of these modes.
    fn noted_by_others(
        &self,
        transaction: TransactionId,
        modes: TableLockModes,
    ) -> impl Iterator<Item = TransactionId> + '_ {
        // Planted: who has only noted a lock is not waited for.
        let shards = self.shards().filter(|_| !cfg!(feature = "bug_truncate_does_not_wait"));
        shards.flat_map(move |shard| {
            let noted = lock(&shard.noted);
            let others = noted.iter().filter(|(other, mode)| *other != transaction && modes.has(*mode));
            others.map(|(other, _)| *other).collect::<Vec<_>>()
        })
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.get().into_iter().flat_map(|shards| shards.iter())
    }

    /// Gives a lock back, and grants what was waiting for that.
    pub fn release(&self, transaction: TransactionId, mode: TableLockMode, place: LockPlace) {
        match place {
            LockPlace::Shard(slot) => {
                {
                    let Some(shards) = self.shards.get() else { unreachable!("a lock was noted in a shard") };
                    let mut noted = lock(&shards[slot as usize].noted);
                    let found = noted.iter().position(|known| *known == (transaction, mode));
                    let Some(found) = found else { unreachable!("a noted lock is given back once") };
                    noted.swap_remove(found);
                }
                if self.strong.load(Ordering::Acquire) > 0 {
                    let wakers = self.grant(&mut lock(&self.queue));
                    wakers.wake();
                }
            }
            LockPlace::Covered => {}
            LockPlace::Queue => {
                let wakers = {
                    let mut queue = lock(&self.queue);
                    queue.let_go(transaction, mode);
                    self.count_strong_out(mode);
                    self.grant(&mut queue)
                };
                wakers.wake();
            }
        }
    }

    /// Whoever asked waits no longer; a lock that it was given meanwhile is given back.
    pub fn give_up(&self, transaction: TransactionId, mode: TableLockMode, ticket: u64) {
        let wakers = {
            let mut queue = lock(&self.queue);
            if !queue.leave(ticket) {
                queue.let_go(transaction, mode);
            }
            self.count_strong_out(mode);
            self.grant(&mut queue)
        };
        wakers.wake();
    }

    /// Ready when the request was granted.
    pub fn poll(&self, ticket: u64, context: &Context<'_>) -> Poll<()> {
        let mut queue = lock(&self.queue);
        if queue.await_grant(ticket, context.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whom a request waits for: those who have what it conflicts with, and those before it who want that.
    pub fn blockers(&self, ticket: u64) -> Vec<TransactionId> {
        let queue = lock(&self.queue);
        let Some((place, transaction, mode)) = queue.find(ticket) else { return Vec::new() };
        let mut blockers = queue.blockers(transaction, mode.conflicts(), place);
        if mode.is_strong() {
            blockers.extend(self.noted_by_others(transaction, mode.conflicts()));
        }
        blockers
    }

    /// Grants what can be granted, first come, first served.
    fn grant(&self, queue: &mut Queue) -> Wakers {
        let mut wakers = Wakers::default();
        let mut place = 0;
        while let Some((transaction, mode)) = queue.at(place) {
            if self.is_free(queue, transaction, mode, place) {
                wakers.add(queue.grant(place));
            } else {
                place += 1;
            }
        }
        wakers
    }

    fn count_strong_out(&self, mode: TableLockMode) {
        if mode.is_strong() {
            let before = self.strong.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "a strong lock is counted until it is given back");
        }
    }

    /// The container.
    pub fn container(&self) -> ContainerId {
        self.container
    }

    /// All locks that are held or waited for.
    pub fn describe(&self, described: &mut Vec<TableLockDescription>) {
        let of = |(transaction, mode), granted, fast_path| TableLockDescription {
            container: self.container,
            transaction,
            mode,
            granted,
            fast_path,
        };
        let queue = lock(&self.queue);
        described.extend(queue.held().map(|held| of(held, true, false)));
        described.extend(queue.waiting().map(|waiting| of(waiting, false, false)));
        for shard in self.shards() {
            described.extend(lock(&shard.noted).iter().map(|noted| of(*noted, true, true)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TableLockMode::{AccessExclusive, AccessShare, RowExclusive, Share};
    use super::*;

    const NONE: TableLockModes = TableLockModes::NONE;

    fn locks() -> TableLocks {
        TableLocks::new(ContainerId(7), 2)
    }

    fn noted(locks: &TableLocks, transaction: u64, mode: TableLockMode) -> LockPlace {
        locks.note(TransactionId(transaction), mode).expect("nobody has a strong lock")
    }

    fn waits(locks: &TableLocks, transaction: u64, own: TableLockModes, mode: TableLockMode) -> u64 {
        match locks.request(TransactionId(transaction), own, mode, true) {
            Requested::Waits(ticket) => ticket,
            other => panic!("it waits: {other:?}"),
        }
    }

    #[test]
    fn a_strong_lock_waits_for_noted_ones_and_those_that_come_wait_for_it() {
        let locks = locks();
        let place = noted(&locks, 1, RowExclusive);
        let strong = waits(&locks, 2, NONE, AccessExclusive);
        assert_eq!(locks.note(TransactionId(3), AccessShare), None, "a reader that comes later goes to the queue");
        let reader = waits(&locks, 3, NONE, AccessShare);
        assert_eq!(locks.blockers(strong), [TransactionId(1)]);
        assert_eq!(locks.blockers(reader), [TransactionId(2)], "first come, first served");
        locks.release(TransactionId(1), RowExclusive, place);
        assert!(locks.blockers(strong).is_empty(), "it was granted");
        assert_eq!(locks.blockers(reader), [TransactionId(2)]);
        locks.release(TransactionId(2), AccessExclusive, LockPlace::Queue);
        assert!(locks.blockers(reader).is_empty());
        noted(&locks, 4, AccessShare);
    }

    #[test]
    fn a_request_that_is_given_up_lets_the_next_ones_through() {
        let locks = locks();
        noted(&locks, 1, AccessShare);
        let strong = waits(&locks, 2, NONE, AccessExclusive);
        let reader = waits(&locks, 3, NONE, AccessShare);
        locks.give_up(TransactionId(2), AccessExclusive, strong);
        assert!(locks.blockers(reader).is_empty());
        noted(&locks, 4, AccessShare);
    }

    #[test]
    fn who_has_a_lock_goes_before_those_who_wait_for_it() {
        let locks = locks();
        noted(&locks, 1, AccessShare);
        let strong = waits(&locks, 2, NONE, AccessExclusive);
        let own = NONE.with(AccessShare);
        let granted = locks.request(TransactionId(1), own, RowExclusive, true);
        assert_eq!(granted, Requested::Granted(LockPlace::Queue));
        assert_eq!(locks.blockers(strong), [TransactionId(1), TransactionId(1)]);
    }

    #[test]
    fn two_shares_are_held_together_and_keep_writers_out() {
        let locks = locks();
        for transaction in [1, 2] {
            let granted = locks.request(TransactionId(transaction), NONE, Share, false);
            assert_eq!(granted, Requested::Granted(LockPlace::Queue));
        }
        assert_eq!(locks.request(TransactionId(3), NONE, RowExclusive, false), Requested::Refused);
        assert_eq!(
            locks.request(TransactionId(3), NONE, AccessShare, false),
            Requested::Granted(LockPlace::Queue),
            "readers are let in"
        );
    }
}
