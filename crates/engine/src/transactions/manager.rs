//! Hands out snapshots and commit timestamps and knows every transaction that a lock word may name.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use eris_platform::{DeterministicMap, MemoryPool};
use eris_storage::{Horizon, Outcome, Outcomes, PartitionId, StatementNumber, Timestamp, TransactionId};
use eris_sync::{NumberBlocks, WatermarkRing};

use super::object::{FIRST_TIMESTAMP, TransactionObject};
use super::snapshots::{Publication, PublishedSnapshots};
use super::visibility::VisibilityWaits;
use super::waits::{WaitReason, WaitsFor};
use crate::commit_log::LogError;
use crate::counters::own_slot;
use crate::lock::{Lock, lock};
use crate::serializable::{ConflictGraph, TrackedTransaction};

/// Shards of the table of known transactions.
const SHARDS: usize = 16;
/// Commits that may stand between taking and finishing their timestamp: more than there can be workers.
const COMMITS_IN_FLIGHT_MAX: usize = 2_048;

pub(crate) struct TransactionManager {
    known: [Lock<DeterministicMap<u64, Arc<TransactionObject>>>; SHARDS],
    /// A worker takes a block of them, so that to begin writes no line that others write.
    numbers: NumberBlocks,
    finished: WatermarkRing,
    pub(super) snapshots: PublishedSnapshots,
    pub(super) waits: WaitsFor,
    /// Settled transactions, with the timestamp that the oldest snapshot must pass before they are forgotten: a pinned
    /// delete map may still name them.
    retired: Lock<VecDeque<(u64, TransactionId)>>,
    /// Whether there may be some; looked at by those who have nothing to add.
    has_retired: AtomicBool,
    committed: AtomicU64,
    aborted: AtomicU64,
    visibility: VisibilityWaits,
    /// Which SERIALIZABLE transactions may not commit together.
    pub serializable: ConflictGraph,
}

impl fmt::Debug for TransactionManager {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TransactionManager(visible {})", self.visible().0)
    }
}

impl TransactionManager {
    pub fn new(workers: usize) -> Self {
        Self {
            known: std::array::from_fn(|_| Lock::default()),
            numbers: NumberBlocks::new(workers + 1),
            finished: WatermarkRing::new(COMMITS_IN_FLIGHT_MAX, FIRST_TIMESTAMP - 1),
            snapshots: PublishedSnapshots::new(workers),
            waits: WaitsFor::default(),
            retired: Lock::default(),
            has_retired: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            visibility: VisibilityWaits::default(),
            serializable: ConflictGraph::default(),
        }
    }

    /// The last timestamp with no undecided predecessor.
    pub fn visible(&self) -> Timestamp {
        Timestamp(self.finished.visible())
    }

    /// Starts a transaction.
    pub fn begin(&self) -> Arc<TransactionObject> {
        Arc::new(TransactionObject::new(self.next_id()))
    }

    /// Starts a transaction whose snapshots are not revoked.
    pub fn begin_internal(&self) -> Arc<TransactionObject> {
        Arc::new(TransactionObject::new_internal(self.next_id()))
    }

    fn next_id(&self) -> TransactionId {
        TransactionId(self.numbers.next(own_slot(self.numbers.slots())))
    }

    /// Starts a transaction whose reads and writes are tracked, once its snapshot is known to the graph.
    pub fn begin_tracked(&self, memory: &Arc<MemoryPool>) -> Arc<TransactionObject> {
        let tracked = TrackedTransaction::new(self.next_id(), memory);
        Arc::new(TransactionObject::new_tracked(&Arc::new(tracked)))
    }

    /// Publishes a snapshot of what is visible now; the caller withdraws it.
    pub(super) fn publish(&self, object: &Arc<TransactionObject>) -> Publication {
        self.snapshots.publish(object, || self.finished.visible())
    }

    /// Takes the oldest snapshot from those that have it; gives these. None, if one of them has to keep it, or if it is
    /// the newest there is.
    pub fn revoke_snapshot(&self, oldest: Timestamp) -> Vec<TransactionId> {
        if oldest >= self.visible() { Vec::new() } else { self.snapshots.revoke(oldest) }
    }

    /// Which transactions use which snapshots, and whether these are not revoked, ascending.
    pub fn snapshots_in_use(&self) -> Vec<(Timestamp, TransactionId, bool)> {
        self.snapshots.list()
    }

    /// The last timestamp that was given to a commit: visible as soon as those before it are finished.
    pub fn last_taken(&self) -> Timestamp {
        Timestamp(self.finished.taken())
    }

    /// A transaction that a lock word names; none if it is decided and forgotten since.
    pub fn find(&self, transaction: TransactionId) -> Option<Arc<TransactionObject>> {
        lock(self.shard(transaction)).get(&transaction.0).cloned()
    }

    /// Undecided transactions that have words in partitions, and which those are.
    pub fn writing(&self) -> Vec<(Arc<TransactionObject>, Vec<PartitionId>)> {
        let mut writing: Vec<Arc<TransactionObject>> = Vec::new();
        for shard in &self.known {
            writing.extend(lock(shard).values().filter(|object| !object.is_decided()).cloned());
        }
        writing.sort_unstable_by_key(|object| object.id);
        writing.into_iter().map(|object| (Arc::clone(&object), object.touched())).collect()
    }

    /// Transactions that wait for others.
    pub fn waiting(&self) -> u64 {
        self.waits.count()
    }

    /// What a transaction waits for.
    pub fn waits_for(&self, transaction: TransactionId) -> Option<WaitReason> {
        self.waits.reason(transaction)
    }

    /// Who waits for whom, in words.
    pub fn describe_waits(&self) -> Vec<String> {
        self.waits.describe()
    }

    /// A partition got its first word of the transaction: the object is known from now on. Called while the partition
    /// is still latched, so nobody has seen the word yet.
    pub fn touch(&self, object: &Arc<TransactionObject>, partition: PartitionId) {
        object.hold();
        let mut known = lock(self.shard(object.id));
        known.entry(object.id.0).or_insert_with(|| Arc::clone(object));
        object.add_touched(partition);
    }

    /// The words of the transaction moved along with their rows.
    pub fn touch_by_id(&self, transaction: TransactionId, partition: PartitionId) {
        let object = lock(self.shard(transaction)).get(&transaction.0).cloned();
        let Some(object) = object else { unreachable!("a lock word belongs to a known transaction") };
        self.touch(&object, partition);
    }

    /// A partition has settled all words of the transaction.
    pub fn settled(&self, transaction: TransactionId) {
        let object = lock(self.shard(transaction)).get(&transaction.0).cloned();
        let Some(object) = object else { unreachable!("a settled transaction was known until now") };
        if object.release() {
            self.retire(&object);
        }
    }

    /// Decides for commit. The timestamp is visible to others once [`Self::visible`] has reached it.
    pub fn commit(&self, object: &TransactionObject) -> Timestamp {
        if !object.has_touched() {
            object.commit(Timestamp(FIRST_TIMESTAMP));
            self.note_commit(object, Timestamp(FIRST_TIMESTAMP));
            self.serializable.forget_if_any(|| self.visible());
            return self.visible();
        }
        let timestamp = self.take_timestamp();
        self.commit_at(object, timestamp);
        timestamp
    }

    /// The next timestamp, to be [decided](Self::commit_at) or [failed](Self::fail_at).
    pub fn take_timestamp(&self) -> Timestamp {
        loop {
            // Full only while that many threads stand between taking and deciding; a log has less on its way.
            match self.finished.take() {
                Some(timestamp) => break Timestamp(timestamp),
                None => std::hint::spin_loop(),
            }
        }
    }

    /// Decides for commit, at a timestamp that was taken for it.
    pub fn commit_at(&self, object: &TransactionObject, timestamp: Timestamp) {
        // Before anybody sees it.
        self.note_commit(object, timestamp);
        object.commit(timestamp);
        self.finished.finish(timestamp.0);
        self.committed.fetch_add(1, Ordering::Relaxed);
        object.wake_waiters();
        self.visibility.wake(|| self.visible());
        self.serializable.forget_if_any(|| self.visible());
    }

    #[inline]
    fn note_commit(&self, object: &TransactionObject, timestamp: Timestamp) {
        if let Some(tracked) = object.tracked() {
            self.serializable.commit(tracked.id, timestamp);
        }
    }

    #[inline]
    fn note_abort(&self, object: &TransactionObject) {
        if let Some(tracked) = object.tracked() {
            self.serializable.abort(tracked.id);
        }
        // It may have held others back, by its snapshot or its timestamp.
        self.serializable.forget_if_any(|| self.visible());
    }

    /// It is found out when the database is opened again whether it commits.
    #[inline]
    fn note_doubt(&self, object: &TransactionObject) {
        if let Some(tracked) = object.tracked() {
            self.serializable.doubt(tracked.id);
        }
        // As above.
        self.serializable.forget_if_any(|| self.visible());
    }

    /// Decides against a commit for which a timestamp was taken. Its record may be in the log all the same, unless the
    /// error says that nothing was written.
    pub fn fail_at(&self, object: &TransactionObject, timestamp: Timestamp, error: Option<LogError>) {
        let in_doubt = error.as_ref().is_none_or(LogError::leaves_in_doubt);
        if let Some(error) = error {
            object.set_log_error(error);
        }
        object.abort();
        self.finished.finish(timestamp.0);
        self.aborted.fetch_add(1, Ordering::Relaxed);
        object.wake_waiters();
        self.visibility.wake(|| self.visible());
        if in_doubt {
            self.note_doubt(object);
        } else {
            self.note_abort(object);
        }
    }

    /// The next timestamp lies behind this one. Only while nobody begins or ends a transaction.
    pub fn continue_behind(&self, timestamp: Timestamp) {
        self.finished.continue_behind(timestamp.0);
    }

    /// From now on timestamps may stay undecided for long: whoever waits for one sleeps.
    pub fn expect_waits(&self) {
        self.visibility.expect();
    }

    /// Whether a timestamp that was taken is visible by now; `context` is woken when it is.
    pub fn poll_visible(&self, timestamp: Timestamp, context: &mut Context<'_>) -> Poll<()> {
        self.visibility.poll(timestamp, || self.visible(), context)
    }

    pub fn abort(&self, object: &TransactionObject) {
        object.abort();
        object.wake_waiters();
        if object.has_touched() {
            self.aborted.fetch_add(1, Ordering::Relaxed);
        }
        self.note_abort(object);
    }

    /// What garbage collection may rely on.
    pub fn horizon(&self) -> Horizon<'_> {
        Horizon { oldest: self.oldest_snapshot(), outcomes: self }
    }

    /// The oldest published snapshot.
    pub fn oldest_snapshot(&self) -> Timestamp {
        self.snapshots.oldest(|| self.finished.visible())
    }

    /// Published snapshots, committed and aborted writing transactions, known transactions.
    pub fn statistics(&self) -> (u64, u64, u64, u64) {
        let known = self.known.iter().map(|shard| lock(shard).len() as u64).sum();
        (self.snapshots.count(), self.committed.load(Ordering::Relaxed), self.aborted.load(Ordering::Relaxed), known)
    }

    /// The last holder let go. Forgets transactions that no pin can name any more.
    pub(super) fn retire(&self, object: &TransactionObject) {
        assert!(object.is_decided(), "a transaction is decided before everybody lets go of it");
        if !object.has_touched() {
            // No word ever named it, so nobody knows it. If it was the last one, it turns off the light.
            if self.has_retired.load(Ordering::Relaxed) && self.snapshots.is_empty() {
                self.forget_retired();
            }
            return;
        }
        // Every snapshot taken from now on is younger than this, and every older one may still pin a word.
        let now = self.finished.taken();
        lock(&self.retired).push_back((now, object.id));
        self.has_retired.store(true, Ordering::Relaxed);
        self.forget_retired();
    }

    fn forget_retired(&self) {
        // Strictly older: a snapshot of the same timestamp may have been taken before the words were settled.
        let oldest = self.oldest_snapshot().0;
        let idle = self.snapshots.is_empty();
        let mut retired = lock(&self.retired);
        while let Some((settled_at, transaction)) = retired.front().copied() {
            if settled_at >= oldest && !idle {
                break;
            }
            retired.pop_front();
            lock(self.shard(transaction)).remove(&transaction.0);
        }
        self.has_retired.store(!retired.is_empty(), Ordering::Relaxed);
    }

    /// What became of a statement; none if its transaction is decided and forgotten.
    pub(super) fn known_outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Option<Outcome> {
        lock(self.shard(transaction)).get(&transaction.0).map(|object| object.outcome(statement))
    }

    fn shard(&self, transaction: TransactionId) -> &Lock<DeterministicMap<u64, Arc<TransactionObject>>> {
        &self.known[transaction.0 as usize % SHARDS]
    }
}

impl Outcomes for TransactionManager {
    fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome {
        match self.known_outcome(transaction, statement) {
            Some(outcome) => outcome,
            None => unreachable!("a lock word belongs to a known transaction, {transaction:?} is not"),
        }
    }
}
