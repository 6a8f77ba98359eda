//! A dataflow at run time: its operators, its message counter and what it hands to the waiting task.
//!
//! **Termination** (equation 3.1 of the sources): `outstanding` counts commands that were sent and not yet finished.
//! Sends are counted before the message is published, and only decrements may lag, so the counter reaches zero exactly
//! once, when nothing is left anywhere. Cancelled and failed dataflows drain through the same counter.
//!
//! **Back-pressure**: a command asks [`Dataflow::has_room`] before it starts its next batch. Without room it is put
//! aside in its partition and the partition's id is noted here, under the same lock that the task takes to fetch
//! results, so that no wake-up is lost.
//!
//! Rows between operators have credits: an update whose rows move to other partitions sends no more of them while
//! [`Dataflow::has_credit`] says that too many bytes are on the way. They are charged to the statement until their
//! partition takes them.
//!
//! **Degree of parallelism**: see [`seats`](crate::seats).
//!
//! **Waiting for other transactions** is the task's: a command that meets a row or key of somebody undecided takes back
//! its last step, notes here whom it met and what is left to do, and finishes. Nothing sleeps inside a partition.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use eris_platform::{MemoryExceeded, MemoryPool, NodeId, Reservation};
use eris_storage::{
    AttributeId, Batch, Holder, IndexDefinition, Key, PartitionId, PinnedPartition, ReadRequest, RowLock, Schema,
    SchemaVersion, SealedSegment, SegmentLayouts, Snapshot, StatementNumber,
};
use eris_sync::Outstanding;

use crate::cancel::CancelHandle;
use crate::container::Container;
use crate::error::EngineError;
use crate::ids::{DataflowId, OperatorIndex};
use crate::lock::{Lock, lock};
use crate::lookup::{Lookup, SharedCodec};
use crate::message::Header;
use crate::operator::{MicroOperator, RowChange, RowFilter};
use crate::options::EngineOptions;
use crate::partition::Bounds;
use crate::partition_table::{Entry, PartitionTable};
use crate::redo::Noting;
use crate::runtime::{Runtime, current_node};
use crate::seats::Seats;
use crate::transactions::{SnapshotHandle, TransactionHold};

/// What an operator does to the rows that its access primitive names.
pub(crate) enum Work {
    Read {
        request: ReadRequest,
        operator: Arc<dyn MicroOperator>,
    },
    Lookup {
        lookup: Lookup,
        codec: SharedCodec,
        operator: Arc<dyn MicroOperator>,
    },
    /// Looks keys up and locks one row of each that is found, for `statement`; the task is told which keys these are.
    LockKeys {
        lookup: Lookup,
        codec: SharedCodec,
        lock: RowLock,
        statement: StatementNumber,
    },
    /// Touches no row: commands are counted and added up.
    Probe,
    Insert,
    /// `returning`: the task is told old and new values of these attributes, which then are those of whole rows.
    Update {
        request: ReadRequest,
        change: Arc<dyn RowChange>,
        moved_rows: OperatorIndex,
        returning: Option<Arc<[AttributeId]>>,
    },
    /// The filter reads the first `inputs` desired attributes; the task is told the others of the deleted rows.
    Delete {
        request: ReadRequest,
        filter: Option<Arc<dyn RowFilter>>,
        inputs: usize,
    },
    /// Locks the rows and hands out the desired attributes of those that are locked.
    Lock {
        request: ReadRequest,
        lock: RowLock,
        skip_locked: bool,
    },
    Attach,
    Pin {
        request: ReadRequest,
    },
    BuildIndex {
        definition: IndexDefinition,
    },
    Alter {
        schema: Arc<Schema>,
    },
    SetLayout {
        layouts: Option<Arc<SegmentLayouts>>,
    },
}

impl Work {
    /// Whether a partition may have another size behind a call. Changes say so themselves: one that waits in the end
    /// may have changed rows, or none.
    pub fn may_resize(&self) -> bool {
        match self {
            Self::Read { .. }
            | Self::Lookup { .. }
            | Self::LockKeys { .. }
            | Self::Probe
            | Self::Lock { .. }
            | Self::Update { .. }
            | Self::Delete { .. } => false,
            Self::Insert
            | Self::Attach
            | Self::Pin { .. }
            | Self::BuildIndex { .. }
            | Self::Alter { .. }
            | Self::SetLayout { .. } => true,
        }
    }
}

/// A micro-operator bound to its container and to one version of the partition table.
pub(crate) struct Operator {
    pub container: Arc<Container>,
    pub table: Arc<PartitionTable>,
    pub work: Work,
    /// What the container had when the operator was bound.
    pub schema_version: SchemaVersion,
    /// The entries of the table that the predicate leaves.
    pub left: Range<usize>,
    /// The position that the predicate names, when it names one.
    pub position: Option<Key>,
}

impl Operator {
    /// Who gets a message without a target: the partitions that may have qualifying rows.
    pub fn receivers(&self) -> &[Entry] {
        &self.table.entries()[self.left.clone()]
    }
}

/// Payload that commands name by index instead of carrying it.
pub(crate) enum Attachment {
    Rows(Batch),
    Segment(Arc<SealedSegment>),
    /// The positions that a message which was passed on concerns.
    Range(Bounds),
}

impl Attachment {
    /// What is charged to the statement. A bulk load bounds its segments itself.
    fn bytes(&self) -> u64 {
        match self {
            Self::Rows(rows) => rows.bytes() as u64,
            Self::Segment(_) | Self::Range(_) => 0,
        }
    }
}

/// One run of micro-operators.
pub struct Dataflow {
    pub(crate) id: DataflowId,
    pub(crate) hold: TransactionHold,
    pub(crate) snapshot: Arc<SnapshotHandle>,
    pub(crate) operators: Box<[Operator]>,
    cancel: CancelHandle,
    failed: AtomicBool,
    outstanding: Outstanding,
    /// None: all commands may run at once.
    seats: Option<Seats>,
    result_batches_max: usize,
    rows_on_the_way_max: u64,
    /// Results that wait, as long as the dataflow is not over; written with the lock of `inner` held. A scan looks
    /// behind every batch: if that took the lock, its workers would wait for each other. Who sees too few makes one
    /// batch more, who sees too many looks again with the lock.
    result_count: AtomicUsize,
    attachments: Lock<Attachments>,
    inner: Lock<Inner>,
}

struct Attachments {
    list: Vec<Option<Attachment>>,
    /// Of rows that no partition has taken yet; none before the first, because most dataflows have none.
    reservation: Option<Reservation>,
}

/// A batch that waits for its task.
struct Answer {
    batch: Batch,
    /// What is charged for it.
    bytes: u64,
    /// Whether it is charged among what was handed back.
    is_handed_back: bool,
    /// The node of the worker that made it.
    source: Option<NodeId>,
}

/// What the pool calls results that wait.
const RESULTS: &str = "query results";

struct Inner {
    results: VecDeque<Answer>,
    reservation: Reservation,
    /// Of batches for which there was no memory where they belong; none before the first.
    handed_back: Option<Reservation>,
    /// So many results were handed back.
    handed_back_count: usize,
    /// Of messages that buffers need not take at once.
    messages: Option<Reservation>,
    pinned: Vec<PinnedPartition>,
    rows_affected: u64,
    blocked: Blocked,
    probe_sum: u64,
    error: Option<EngineError>,
    waker: Option<Waker>,
    stalled: Vec<PartitionId>,
    finished: bool,
}

impl Dataflow {
    pub(crate) fn new(
        id: DataflowId,
        hold: TransactionHold,
        snapshot: Arc<SnapshotHandle>,
        operators: Vec<Operator>,
        cancel: CancelHandle,
        memory: &Arc<MemoryPool>,
        options: &EngineOptions,
    ) -> Self {
        Self {
            id,
            hold,
            snapshot,
            operators: operators.into_boxed_slice(),
            cancel,
            failed: AtomicBool::new(false),
            outstanding: Outstanding::new(),
            seats: None,
            // Without room for one, nothing would ever move.
            result_batches_max: options.result_batches_max.max(1),
            rows_on_the_way_max: options.rows_on_the_way_max,
            result_count: AtomicUsize::new(0),
            attachments: Lock::new(Attachments { list: Vec::new(), reservation: None }),
            inner: Lock::new(Inner {
                results: VecDeque::new(),
                reservation: memory.reserve(RESULTS),
                handed_back: None,
                handed_back_count: 0,
                messages: None,
                pinned: Vec::new(),
                rows_affected: 0,
                blocked: Blocked::default(),
                probe_sum: 0,
                error: None,
                waker: None,
                stalled: Vec::new(),
                finished: false,
            }),
        }
    }

    /// At most so many of its commands read at the same time.
    pub(crate) fn with_parallelism(self, commands: usize) -> Self {
        Self { seats: Some(Seats::new(commands)), ..self }
    }

    /// Whether a command of `partition` may start to read; if not, the partition is told when it may.
    pub(crate) fn take_seat(&self, partition: PartitionId) -> bool {
        self.seats.as_ref().is_none_or(|seats| seats.take(partition))
    }

    /// A command has read; gives the partitions whose commands may now start.
    pub(crate) fn leave_seat(&self) -> Vec<PartitionId> {
        self.seats.as_ref().map(Seats::leave).unwrap_or_default()
    }

    /// Partitions whose commands are to be dropped and counted.
    fn held_back(&self, inner: &mut Inner) -> Vec<PartitionId> {
        let mut held_back = std::mem::take(&mut inner.stalled);
        held_back.extend(self.seats.as_ref().map(Seats::dismiss).unwrap_or_default());
        held_back
    }

    pub(crate) fn operator(&self, index: OperatorIndex) -> &Operator {
        &self.operators[index.0 as usize]
    }

    /// Where the writes of a message are noted.
    pub(crate) fn noting<'a>(&'a self, runtime: &'a Runtime, header: &Header) -> Noting<'a> {
        Noting::new(runtime, &self.operator(header.operator).container, self.hold.object())
    }

    /// Whether more of what its commands wrote has to go into the log before they go on.
    pub(crate) fn waits_for_log(&self, runtime: &Runtime) -> bool {
        self.hold.object().redo_waits_for_log(runtime.write_ahead_bytes())
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        self.snapshot.snapshot()
    }

    /// Counts commands that are about to be published.
    pub(crate) fn count_sends(&self, commands: usize) {
        self.outstanding.add(commands as u64);
    }

    /// Counts finished commands. At zero the dataflow is finished and its task woken; returns whether it is.
    pub(crate) fn count_finished(&self, commands: usize) -> bool {
        if !self.outstanding.finish(commands as u64) {
            return false;
        }
        let waker = {
            let mut inner = lock(&self.inner);
            assert!(!inner.finished, "a dataflow's message counter reaches zero exactly once");
            inner.finished = true;
            // Before its task hears of the end, which may be followed by a statement with the same limit.
            inner.messages = None;
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Keeps what a message names by the index that comes back. Rows are charged until they are taken.
    pub(crate) fn attach(&self, attachment: Attachment) -> Result<u32, MemoryExceeded> {
        let mut attachments = lock(&self.attachments);
        let bytes = attachment.bytes();
        if bytes > 0 {
            let reserve = || lock(&self.inner).reservation.pool().reserve("rows on the way");
            attachments.reservation.get_or_insert_with(reserve).grow(bytes)?;
        }
        attachments.list.push(Some(attachment));
        Ok((attachments.list.len() - 1) as u32)
    }

    /// The same for positions, which cost nothing to speak of.
    pub(crate) fn attach_range(&self, range: Bounds) -> u32 {
        let list = &mut lock(&self.attachments).list;
        list.push(Some(Attachment::Range(range)));
        (list.len() - 1) as u32
    }

    pub(crate) fn take_attachment(&self, index: u32) -> Option<Attachment> {
        let attachments = &mut *lock(&self.attachments);
        let attachment = attachments.list.get_mut(index as usize).and_then(Option::take)?;
        if let Some(reservation) = &attachments.reservation {
            reservation.shrink(attachment.bytes());
        }
        Some(attachment)
    }

    /// Charges the messages of many commands until all have run: what buffers do not take waits with its sender.
    pub(crate) fn charge_messages(&self, bytes: usize) -> Result<(), MemoryExceeded> {
        let inner = &mut *lock(&self.inner);
        let messages = inner.messages.get_or_insert_with(|| inner.reservation.pool().reserve("messages"));
        messages.grow(bytes as u64)
    }

    pub(crate) fn reserve(&self, consumer: &'static str) -> Reservation {
        lock(&self.inner).reservation.pool().reserve(consumer)
    }

    /// Whether an update may send further rows to other partitions.
    pub(crate) fn has_credit(&self) -> bool {
        let on_the_way = lock(&self.attachments).reservation.as_ref().map_or(0, Reservation::bytes);
        on_the_way == 0 || on_the_way < self.rows_on_the_way_max
    }

    pub(crate) fn emit(&self, batch: Batch) -> Result<(), EngineError> {
        self.answer(batch, false)
    }

    /// The same for a batch that its operator had no memory for: it is counted, and no limit refuses it. There is one
    /// of each worker at most: while one waits, no command begins another.
    pub(crate) fn hand_back(&self, batch: Batch) -> Result<(), EngineError> {
        self.answer(batch, true)
    }

    fn answer(&self, batch: Batch, is_handed_back: bool) -> Result<(), EngineError> {
        if batch.rows == 0 {
            return Ok(());
        }
        let (bytes, source) = (batch.bytes() as u64, current_node());
        let waker = {
            let inner = &mut *lock(&self.inner);
            if is_handed_back {
                let pool = inner.reservation.pool();
                inner.handed_back.get_or_insert_with(|| pool.counted().reserve(RESULTS)).grow(bytes)?;
            } else {
                inner.reservation.grow(bytes)?;
            }
            inner.results.push_back(Answer { batch, bytes, is_handed_back, source });
            inner.handed_back_count += usize::from(is_handed_back);
            self.result_count.store(inner.fullness(self.result_batches_max), Ordering::Relaxed);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Notes commands that touched no row, and the sum of what they carried.
    pub(crate) fn add_probed(&self, commands: u64, sum: u64) {
        let mut inner = lock(&self.inner);
        inner.rows_affected += commands;
        inner.probe_sum = inner.probe_sum.wrapping_add(sum);
    }

    pub(crate) fn add_rows_affected(&self, rows: u64) {
        lock(&self.inner).rows_affected += rows;
    }

    /// A change or row lock met somebody undecided: it has to be run again, from the start. What it did is passed over
    /// then, because its words have the number of the statement.
    pub(crate) fn block(&self, holder: Holder) {
        let blocked = &mut lock(&self.inner).blocked;
        blocked.again = true;
        blocked.holder.get_or_insert(holder);
    }

    /// An insert met somebody undecided: these rows are still to be inserted.
    pub(crate) fn give_back(&self, holder: Holder, rows: Batch) {
        let blocked = &mut lock(&self.inner).blocked;
        blocked.rows.push(rows);
        blocked.holder.get_or_insert(holder);
    }

    pub(crate) fn add_pinned(&self, pinned: PinnedPartition) {
        lock(&self.inner).pinned.push(pinned);
    }

    /// Whether the task has to take results first.
    pub(crate) fn is_full(&self) -> bool {
        self.result_count.load(Ordering::Relaxed) >= self.result_batches_max
    }

    /// Whether a command may produce another batch; if not, `partition` is noted and told when it may.
    pub(crate) fn has_room(&self, partition: PartitionId) -> bool {
        if !self.is_full() {
            return true;
        }
        let mut inner = lock(&self.inner);
        if inner.fullness(self.result_batches_max) < self.result_batches_max || self.is_over() {
            return true;
        }
        if !inner.stalled.contains(&partition) {
            inner.stalled.push(partition);
        }
        false
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Cancelled or failed: its commands are dropped and counted.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.is_cancelled()
    }

    /// Records the first error; the rest of the dataflow drains. The task is woken to let stalled commands go.
    pub(crate) fn fail(&self, error: EngineError) {
        let waker = {
            let mut inner = lock(&self.inner);
            inner.error.get_or_insert(error);
            self.failed.store(true, Ordering::Release);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Stops the dataflow without an error: the task lost interest. Returns partitions to visit.
    pub(crate) fn abandon(&self) -> Vec<PartitionId> {
        self.failed.store(true, Ordering::Release);
        let mut inner = lock(&self.inner);
        inner.drop_results();
        self.held_back(&mut inner)
    }

    /// The next result, or the end. Also returns the partitions that may go on because there is room again.
    pub(crate) fn poll_result(
        &self,
        runtime: &Runtime,
        context: &mut Context<'_>,
    ) -> (Poll<Result<Option<Batch>, EngineError>>, Vec<PartitionId>) {
        let mut inner = lock(&self.inner);
        if self.is_cancelled() {
            inner.error.get_or_insert(EngineError::Cancelled);
        }
        if self.is_over() {
            inner.drop_results();
            if inner.finished {
                return (Poll::Ready(inner.error.clone().map_or(Ok(None), Err)), Vec::new());
            }
            inner.waker = Some(context.waker().clone());
            return (Poll::Pending, self.held_back(&mut inner));
        }
        if let Some(Answer { batch, bytes, is_handed_back, source }) = inner.results.pop_front() {
            inner.handed_back_count -= usize::from(is_handed_back);
            self.result_count.store(inner.fullness(self.result_batches_max), Ordering::Relaxed);
            match &inner.handed_back {
                Some(handed_back) if is_handed_back => handed_back.shrink(bytes),
                _ => inner.reservation.shrink(bytes),
            }
            if let (Some(source), Some(target)) = (source, current_node())
                && source != target
            {
                runtime.traffic.answered(source, target, bytes);
            }
            let half = self.result_batches_max / 2;
            let resumed = if inner.fullness(self.result_batches_max) <= half {
                std::mem::take(&mut inner.stalled)
            } else {
                Vec::new()
            };
            return (Poll::Ready(Ok(Some(batch))), resumed);
        }
        if inner.finished {
            return (Poll::Ready(Ok(None)), Vec::new());
        }
        inner.waker = Some(context.waker().clone());
        (Poll::Pending, std::mem::take(&mut inner.stalled))
    }

    pub(crate) fn describe(&self) -> String {
        let outstanding = self.outstanding.count();
        let inner = lock(&self.inner);
        format!(
            "{}: {outstanding} commands outstanding, {} results, stalled in {:?}, over: {}, error: {:?}, awaited: {}",
            self.id,
            inner.results.len(),
            inner.stalled,
            self.is_over(),
            inner.error,
            inner.waker.is_some(),
        )
    }

    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.inner).finished
    }

    /// What the dataflow leaves behind once it is finished.
    pub(crate) fn take_summary(&self) -> Summary {
        let mut inner = lock(&self.inner);
        assert!(inner.finished, "a summary is taken of a finished dataflow");
        Summary {
            rows_affected: inner.rows_affected,
            probe_sum: inner.probe_sum,
            pinned: std::mem::take(&mut inner.pinned),
            blocked: std::mem::take(&mut inner.blocked),
        }
    }
}

impl Inner {
    /// The results that wait; as many as may, if one was handed back: there is no memory for others.
    fn fullness(&self, results_max: usize) -> usize {
        if self.handed_back_count > 0 { self.results.len().max(results_max) } else { self.results.len() }
    }

    /// Nobody wants the results any more.
    fn drop_results(&mut self) {
        self.results.clear();
        self.reservation.shrink(self.reservation.bytes());
        (self.handed_back, self.handed_back_count) = (None, 0);
    }
}

/// What remains of a finished dataflow besides its results.
pub(crate) struct Summary {
    pub rows_affected: u64,
    pub probe_sum: u64,
    pub pinned: Vec<PinnedPartition>,
    pub blocked: Blocked,
}

/// What a dataflow could not do because of somebody undecided.
#[derive(Default)]
pub(crate) struct Blocked {
    /// The first one met.
    pub holder: Option<Holder>,
    /// Whether a change or row lock has to run again.
    pub again: bool,
    /// Rows still to be inserted.
    pub rows: Vec<Batch>,
}
