//! What the engine counts. Every worker counts in its own cache line, readers sum; counters only grow.

use std::cell::Cell;

use eris_sync::Counter;

use crate::message::{PRIMITIVES, Primitive};

/// Something that happens at run time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Event {
    /// Messages assigned to a partition of the node they were sent from.
    LocalMessages,
    /// Messages that went to another node.
    RemoteMessages,
    /// Messages to all partitions of a container.
    Broadcasts,
    /// Messages to the partitions of a container that a predicate leaves, where these are several but not all.
    Multicasts,
    /// Messages passed on by a partition that had split.
    Forwarded,
    /// Commands that a task ran in place.
    InPlace,
    /// Commands that ran from a message.
    Commands,
    /// Quanta that ended with a saved cursor.
    SavedCursors,
    /// Commands put aside until their task takes results.
    Stalls,
    /// Times an update found too many of its rows on the way to other partitions; it looks once in each visit.
    CreditWaits,
    /// Splits of partitions.
    Splits,
    /// Partitions cut above all their rows because keys rise: nothing moved.
    AppendPartitions,
    /// Merges of neighbours.
    Merges,
    /// Partitions that got another home where they are.
    Links,
    /// Partitions copied to another node.
    Copies,
    /// Rows that splits, merges and copies moved to another partition.
    RowsHandedOver,
    /// Changes that were given up because readers stood in the way.
    ChangesGivenUp,
    /// Forwarders that were dropped because nobody pins an older version.
    ForwardersDropped,
    /// Tasks, visits and maintenance done for another node.
    Helped,
    /// Task polls.
    TaskPolls,
    /// Tasks that panicked.
    TaskPanics,
    /// Polls of tasks that kept their worker for many quanta: somebody blocks it, or computes without a break.
    LongPolls,
    /// Times a worker went to sleep.
    Parks,
    /// Times a worker looked on for the end of a commit instead.
    Watches,
    /// Coordinator passes that moved messages.
    CoordinatorPasses,
    /// Times an incoming buffer was full and messages waited with their sender.
    BufferFull,
    /// Visits and maintenance calls put off because another worker was at the partition.
    LatchWaits,
    /// Times a statement waited for others of its class to end before it began.
    AdmissionWaits,
    /// Snapshots that were revoked because old versions had too much memory.
    SnapshotsRevoked,
    /// Maintenance calls.
    MaintenanceCalls,
    /// Times a transaction waited for another one.
    LockWaits,
    /// Waits that were refused, because they would never end.
    Deadlocks,
    /// Waits that were given up: the lock timeout was over.
    LockTimeouts,
    /// Times a transaction waited for a table lock.
    TableLockWaits,
    /// Waits for table locks that were refused, because they would never end.
    TableDeadlocks,
    /// Statements that ran again with a newer snapshot (READ COMMITTED).
    StatementRestarts,
    /// SERIALIZABLE transactions that committed.
    SerializableCommits,
    /// SERIALIZABLE transactions that may not commit, because they are part of a dangerous structure.
    DangerousStructures,
    /// Structures of SERIALIZABLE transactions that are not dangerous, because one of them wrote nothing.
    ReadOnlySpared,
    /// Times a SERIALIZABLE transaction's reads or writes of a container were too many to be told apart.
    TrackedCoarsely,
}

/// All events, in the order of their counters.
pub const EVENTS: [Event; 40] = [
    Event::LocalMessages,
    Event::RemoteMessages,
    Event::Broadcasts,
    Event::Multicasts,
    Event::Forwarded,
    Event::InPlace,
    Event::Commands,
    Event::SavedCursors,
    Event::Stalls,
    Event::CreditWaits,
    Event::Splits,
    Event::AppendPartitions,
    Event::Merges,
    Event::Links,
    Event::Copies,
    Event::RowsHandedOver,
    Event::ChangesGivenUp,
    Event::ForwardersDropped,
    Event::Helped,
    Event::TaskPolls,
    Event::TaskPanics,
    Event::LongPolls,
    Event::Parks,
    Event::Watches,
    Event::CoordinatorPasses,
    Event::BufferFull,
    Event::LatchWaits,
    Event::AdmissionWaits,
    Event::SnapshotsRevoked,
    Event::MaintenanceCalls,
    Event::LockWaits,
    Event::Deadlocks,
    Event::LockTimeouts,
    Event::TableLockWaits,
    Event::TableDeadlocks,
    Event::StatementRestarts,
    Event::SerializableCommits,
    Event::DangerousStructures,
    Event::ReadOnlySpared,
    Event::TrackedCoarsely,
];

impl Event {
    /// Name in views and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::LocalMessages => "local_messages",
            Self::RemoteMessages => "remote_messages",
            Self::Broadcasts => "broadcasts",
            Self::Multicasts => "multicasts",
            Self::Forwarded => "forwarded_messages",
            Self::InPlace => "in_place_executions",
            Self::Commands => "commands",
            Self::SavedCursors => "saved_cursors",
            Self::Stalls => "stalls",
            Self::CreditWaits => "credit_waits",
            Self::Splits => "splits",
            Self::AppendPartitions => "append_partitions",
            Self::Merges => "merges",
            Self::Links => "links",
            Self::Copies => "copies",
            Self::RowsHandedOver => "rows_handed_over",
            Self::ChangesGivenUp => "changes_given_up",
            Self::ForwardersDropped => "forwarders_dropped",
            Self::Helped => "helped",
            Self::TaskPolls => "task_polls",
            Self::TaskPanics => "task_panics",
            Self::LongPolls => "long_polls",
            Self::Parks => "parks",
            Self::Watches => "watches",
            Self::CoordinatorPasses => "coordinator_passes",
            Self::BufferFull => "buffer_full",
            Self::LatchWaits => "latch_waits",
            Self::AdmissionWaits => "admission_waits",
            Self::SnapshotsRevoked => "snapshots_revoked",
            Self::MaintenanceCalls => "maintenance_calls",
            Self::LockWaits => "lock_waits",
            Self::Deadlocks => "deadlocks",
            Self::LockTimeouts => "lock_timeouts",
            Self::TableLockWaits => "table_lock_waits",
            Self::TableDeadlocks => "table_deadlocks",
            Self::StatementRestarts => "statement_restarts",
            Self::SerializableCommits => "serializable_commits",
            Self::DangerousStructures => "dangerous_structures",
            Self::ReadOnlySpared => "read_only_spared",
            Self::TrackedCoarsely => "tracked_coarsely",
        }
    }
}

thread_local! {
    /// The counter shard of this thread: its worker's number, none for foreign threads.
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn count_as(worker: usize) {
    SHARD.set(Some(worker));
}

/// This thread is no worker's any more, or not at the moment.
pub(crate) fn count_as_nobody() {
    SHARD.set(None);
}

/// Which of so many slots is this thread's: that of its worker (which runs on it, or ran last), or the last one, which
/// all threads share that are no workers.
pub(crate) fn own_slot(slots: usize) -> usize {
    SHARD.get().unwrap_or(usize::MAX).min(slots - 1)
}

pub(crate) struct Counters {
    counters: [Counter; EVENTS.len()],
    /// Messages that reached a partition, by what they want.
    messages: [Counter; PRIMITIVES.len()],
}

impl Counters {
    pub fn new(workers: usize) -> Self {
        Self {
            counters: std::array::from_fn(|_| Counter::new(workers)),
            messages: std::array::from_fn(|_| Counter::new(workers)),
        }
    }

    pub fn add(&self, event: Event, amount: u64) {
        add(&self.counters[event as usize], amount);
    }

    pub fn add_messages(&self, primitive: Primitive, messages: u64) {
        add(&self.messages[primitive.index()], messages);
    }

    pub fn sum(&self, event: Event) -> u64 {
        self.counters[event as usize].sum()
    }

    pub fn messages(&self, primitive: Primitive) -> u64 {
        self.messages[primitive.index()].sum()
    }
}

fn add(counter: &Counter, amount: u64) {
    match SHARD.get() {
        Some(worker) => counter.add(worker, amount),
        None => counter.add_shared(amount),
    }
}
