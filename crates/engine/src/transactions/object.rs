//! One transaction's shared state, and who still needs it.
//!
//! The object stays known as long as a lock word may name it. Holders: the transaction's own handle, each of its
//! dataflows, each partition with unsettled words of it. The last one to let go hands it to the manager for
//! retirement.
//!
//! A part of a transaction may be rolled back before the transaction ends: the numbers of its statements become *void*,
//! for good, and words that name them count as aborted. Statements are numbered anew after that, so a void number is
//! never used again.
//!
//! Others wait here for the transaction to end, or to roll back the statement that stands in their way.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Waker};

use eris_platform::{MemoryExceeded, Reservation};
use eris_storage::{Outcome, PartitionId, StatementNumber, Timestamp, TransactionId};
use eris_sync::{Decision, Outstanding};

use super::manager::TransactionManager;
use crate::commit_log::LogError;
use crate::lock::{Lock, lock};
use crate::near::Near;
use crate::redo::RedoBuffer;
use crate::serializable::TrackedTransaction;

const ABORTED: u64 = 1;
/// Commit timestamps start above [`ABORTED`], and above zero, which is no decision.
pub(super) const FIRST_TIMESTAMP: u64 = 2;

#[derive(Debug)]
pub(crate) struct TransactionObject {
    pub id: TransactionId,
    /// `ABORTED` or a commit timestamp; its exceptions are the void statements.
    decision: Decision,
    holds: Outstanding,
    /// Partitions with words of this transaction.
    touched: Lock<Vec<PartitionId>>,
    has_touched: AtomicBool,
    /// The void statements: first to last, ascending and disjoint.
    void: Lock<Vec<(u32, u32)>>,
    waiters: Lock<Waiters>,
    /// What it wrote and the log does not have yet.
    redo: Lock<RedoBuffer>,
    has_redo: AtomicBool,
    redo_is_long: AtomicBool,
    /// Why the log refused it.
    log_error: Lock<Option<LogError>>,
    /// Streams that its task has open: while there are any, nothing runs in place.
    streams: AtomicUsize,
    /// Only of a SERIALIZABLE one.
    tracked: Option<Arc<TrackedTransaction>>,
    /// Its snapshots up to this timestamp are revoked.
    revoked_to: AtomicU64,
    /// Its snapshots are not revoked: the engine's own work depends on them.
    is_internal: bool,
}

/// Who is to be woken, in the order they came.
#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// See [`TransactionObject::watch_redo`].
pub(crate) struct WatchedRedo<'o>(&'o TransactionObject);

impl Drop for WatchedRedo<'_> {
    fn drop(&mut self) {
        lock(&self.0.redo).is_watched = false;
    }
}

impl TransactionObject {
    pub fn new(id: TransactionId) -> Self {
        Self {
            id,
            decision: Decision::new(),
            holds: Outstanding::new(),
            touched: Lock::default(),
            has_touched: AtomicBool::new(false),
            void: Lock::default(),
            waiters: Lock::default(),
            redo: Lock::default(),
            has_redo: AtomicBool::new(false),
            redo_is_long: AtomicBool::new(false),
            log_error: Lock::default(),
            streams: AtomicUsize::new(0),
            tracked: None,
            revoked_to: AtomicU64::new(0),
            is_internal: false,
        }
    }

    /// One whose snapshots are not revoked.
    pub fn new_internal(id: TransactionId) -> Self {
        Self { is_internal: true, ..Self::new(id) }
    }

    /// One whose reads and writes are tracked.
    pub fn new_tracked(tracked: &Arc<TrackedTransaction>) -> Self {
        Self { tracked: Some(Arc::clone(tracked)), ..Self::new(tracked.id) }
    }

    /// What it has besides if it is SERIALIZABLE.
    #[inline]
    pub fn tracked(&self) -> Option<&Arc<TrackedTransaction>> {
        self.tracked.as_ref()
    }

    pub(super) fn keeps_snapshots(&self) -> bool {
        self.is_internal
    }

    /// From now on its snapshot of this timestamp is of no use, and no older one that it has.
    pub(super) fn revoke(&self, timestamp: Timestamp) {
        // Withdrawing the snapshot releases it.
        self.revoked_to.fetch_max(timestamp.0, Ordering::Relaxed);
    }

    /// Whether its snapshot of this timestamp is of no use any more.
    #[inline]
    pub fn is_revoked(&self, timestamp: Timestamp) -> bool {
        timestamp.0 <= self.revoked_to.load(Ordering::Relaxed)
    }

    /// It has a snapshot that is not published.
    pub(super) fn assert_revoked(&self, timestamp: Timestamp) {
        assert!(self.is_revoked(timestamp), "a snapshot is published until it is revoked");
    }

    /// What became of the writes of a statement.
    pub fn outcome(&self, statement: StatementNumber) -> Outcome {
        let (decided, has_void) = self.decision.look();
        match decided {
            Some(ABORTED) => Outcome::Aborted,
            _ if has_void && self.is_void(statement) => Outcome::Aborted,
            Some(timestamp) => Outcome::Committed(Timestamp(timestamp)),
            None => Outcome::Active,
        }
    }

    #[cold]
    fn is_void(&self, statement: StatementNumber) -> bool {
        let void = lock(&self.void);
        let next = void.partition_point(|(first, _)| *first <= statement.0);
        next > 0 && void[next - 1].1 >= statement.0
    }

    /// Rolls statements back. No later statement may have one of these numbers.
    pub fn void(&self, statements: RangeInclusive<StatementNumber>) {
        let (mut first, last) = (statements.start().0, statements.end().0);
        {
            let mut void = lock(&self.void);
            assert!(
                first <= last && void.last().is_none_or(|before| before.1 <= last),
                "statements are numbered upwards"
            );
            // A savepoint takes in what was rolled back after it.
            while let Some(before) = void.last().copied().filter(|before| before.1 + 1 >= first) {
                first = first.min(before.0);
                void.pop();
            }
            void.push((first, last));
            self.decision.except();
        }
        // Planted: whoever waits for a statement that was rolled back sleeps until the transaction ends.
        if !cfg!(feature = "bug_void_wakes_nobody") {
            self.wake_waiters();
        }
    }

    /// The one atomic write of a commit.
    pub(super) fn commit(&self, timestamp: Timestamp) {
        assert!(timestamp.0 >= FIRST_TIMESTAMP, "commit timestamps are not states");
        self.decision.decide(timestamp.0);
    }

    pub(super) fn abort(&self) {
        self.decision.decide(ABORTED);
    }

    /// Notes what it wrote.
    pub fn note_redo(
        &self,
        memory: &Reservation,
        long_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MemoryExceeded> {
        let mut redo = lock(&self.redo);
        write(&mut redo.bytes);
        self.has_redo.store(true, Ordering::Relaxed);
        if redo.bytes.len() > long_bytes {
            self.redo_is_long.store(true, Ordering::Relaxed);
            redo.waker.take().into_iter().for_each(Waker::wake);
        }
        redo.account(memory)
    }

    /// Whether it wrote anything that a log keeps. Asked by its task, which waited for whoever wrote.
    pub fn has_redo(&self) -> bool {
        self.has_redo.load(Ordering::Relaxed)
    }

    /// Whether some of what it wrote should go into the log ahead; true once for what there is.
    pub fn take_redo_is_long(&self) -> bool {
        self.redo_is_long.load(Ordering::Relaxed) && self.redo_is_long.swap(false, Ordering::Relaxed)
    }

    /// The same; if it is not so, the task is woken when it is.
    pub fn poll_redo_is_long(&self, context: &Context<'_>) -> bool {
        if !self.take_redo_is_long() {
            // A writer takes the waker under the same lock.
            let mut redo = lock(&self.redo);
            if !self.take_redo_is_long() {
                redo.waker = Some(context.waker().clone());
                return false;
            }
        }
        true
    }

    /// Until what is returned is dropped, its task looks after what is written and puts it into the log ahead.
    pub fn watch_redo(&self) -> WatchedRedo<'_> {
        lock(&self.redo).is_watched = true;
        WatchedRedo(self)
    }

    /// Whether those who write should wait until the task has put more into the log.
    pub fn redo_waits_for_log(&self, long_bytes: usize) -> bool {
        let redo = lock(&self.redo);
        redo.is_watched && redo.bytes.len() > 2 * long_bytes
    }

    /// What it wrote.
    pub fn redo(&self) -> MutexGuard<'_, RedoBuffer> {
        lock(&self.redo)
    }

    /// The statements that were rolled back: first to last, ascending.
    pub fn void_statements(&self) -> Vec<(StatementNumber, StatementNumber)> {
        let (_, has_void) = self.decision.look();
        if !has_void {
            return Vec::new();
        }
        lock(&self.void).iter().map(|(first, last)| (StatementNumber(*first), StatementNumber(*last))).collect()
    }

    /// Before it is aborted: why the log refused it.
    pub(super) fn set_log_error(&self, error: LogError) {
        *lock(&self.log_error) = Some(error);
    }

    /// What became of it as a whole.
    pub fn decided(&self) -> Option<Result<Timestamp, LogError>> {
        match self.decision.look().0? {
            ABORTED => {
                let reason = || LogError::Failed { reason: Arc::from("the log is gone"), is_over: true };
                Some(Err(lock(&self.log_error).clone().unwrap_or_else(reason)))
            }
            timestamp => Some(Ok(Timestamp(timestamp))),
        }
    }

    pub fn is_decided(&self) -> bool {
        self.decision.is_decided()
    }

    /// Has `waker` woken when something is decided here; the caller looks again after this call. Gives a ticket.
    pub fn add_waiter(&self, ticket: Option<u64>, waker: &Waker) -> u64 {
        let mut waiters = lock(&self.waiters);
        let ticket = ticket.unwrap_or_else(|| {
            waiters.next += 1;
            waiters.next
        });
        waiters.wakers.insert(ticket, waker.clone());
        ticket
    }

    pub fn remove_waiter(&self, ticket: u64) {
        lock(&self.waiters).wakers.remove(&ticket);
    }

    /// Wakes everybody who waits here: what they wait for may be decided.
    pub(super) fn wake_waiters(&self) {
        let wakers = std::mem::take(&mut lock(&self.waiters).wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    pub(super) fn has_touched(&self) -> bool {
        self.has_touched.load(Ordering::Acquire)
    }

    pub(super) fn add_touched(&self, partition: PartitionId) {
        lock(&self.touched).push(partition);
        self.has_touched.store(true, Ordering::Release);
    }

    /// Partitions that hold words of it.
    pub fn touched(&self) -> Vec<PartitionId> {
        if !self.has_touched() {
            return Vec::new();
        }
        lock(&self.touched).clone()
    }

    pub fn has_streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    pub(super) fn hold(&self) {
        self.holds.add(1);
    }

    /// Lets go; true for the last holder.
    pub(super) fn release(&self) -> bool {
        self.holds.finish(1)
    }
}

/// Counts an open stream of a transaction.
#[derive(Debug)]
pub(crate) struct StreamGuard(Arc<TransactionObject>);

impl StreamGuard {
    pub fn new(object: &Arc<TransactionObject>) -> Self {
        object.streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(object))
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a transaction known.
#[derive(Debug)]
pub(crate) struct TransactionHold {
    manager: Near<TransactionManager>,
    object: Arc<TransactionObject>,
}

impl TransactionHold {
    pub fn new(manager: &Near<TransactionManager>, object: &Arc<TransactionObject>) -> Self {
        object.hold();
        Self { manager: manager.clone(), object: Arc::clone(object) }
    }

    pub fn manager(&self) -> &Near<TransactionManager> {
        &self.manager
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_statements_are_aborted_whatever_becomes_of_the_rest() {
        let object = TransactionObject::new(TransactionId(1));
        let of = |statement| object.outcome(StatementNumber(statement));
        let void = |first, last| object.void(StatementNumber(first)..=StatementNumber(last));
        void(5, 5);
        void(8, 9);
        assert_eq!([4, 5, 6, 8, 9, 10].map(|n| of(n) == Outcome::Aborted), [false, true, false, true, true, false]);
        // A savepoint before them all.
        void(3, 11);
        assert_eq!(*lock(&object.void), [(3, 11)]);
        object.commit(Timestamp(7));
        assert_eq!((of(2), of(7), of(12)), (Outcome::Committed(Timestamp(7)), Outcome::Aborted, of(2)));
    }
}
