//! What an engine is started with. Every limit that shapes scheduling has a name and a reason here.

use std::time::Duration;

use eris_platform::Pinning;

use crate::admission::AdmissionOptions;
use crate::memory::LocalMemory;

/// Options of [`crate::Engine::start`]; the defaults fit a small machine.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, most of them for comparisons")]
pub struct EngineOptions {
    /// Worker threads in total, over all nodes.
    pub workers: usize,
    /// Nodes; more than the machine has become virtual ones.
    pub nodes: usize,
    /// Whether workers are pinned to hardware threads.
    pub pinning: Pinning,
    /// Bytes that all consumers together may reserve.
    pub memory_limit_bytes: u64,
    /// Whether the limit is tightened by what the process holds and nobody accounted for.
    pub memory_watched: bool,
    /// Bytes that versions may have which only old snapshots see: beyond that the oldest snapshot is revoked. `None`: a
    /// quarter of the memory limit; 0: no snapshot is revoked.
    pub old_version_limit_bytes: Option<u64>,
    /// How long they may have more, unless memory is nearly gone: short statements are over by then.
    pub old_snapshot_grace: Duration,
    /// Whether sealed columns lie in memory of their partition's home.
    pub local_memory: LocalMemory,
    /// The longest time a command keeps a partition before it saves its cursor.
    pub quantum: Duration,
    /// Whether a task may run a command in place on an idle partition of its node.
    pub in_place: bool,
    /// Whether updates overwrite rows where they can and keep before-images, instead of appending versions. Not a
    /// setting of the server: both ways exist to be measured against each other.
    pub updates_in_place: bool,
    /// Whether a worker puts messages for partitions of its node into their inboxes itself, without the coordinator.
    /// Not a setting of the server: both ways exist to be measured against each other.
    pub direct_append: bool,
    /// Size of each half of a node's incoming buffers.
    pub incoming_buffer_bytes: usize,
    /// A worker flushes its local buffer at this size, and at the end of each step.
    pub worker_buffer_bytes: usize,
    /// A partition with more rows than this is split.
    pub split_rows: u64,
    /// A partition with more bytes than this is split.
    pub split_bytes: u64,
    /// A table gets a partition for each so many rows, until there are two for each worker.
    pub parallel_rows: u64,
    /// Rows that one maintenance call may touch: about a quantum of work.
    pub maintenance_rows: usize,
    /// Result batches that wait for their task before the producing commands yield.
    pub result_batches_max: usize,
    /// Bytes of updated rows on their way to other partitions before the update waits for them to arrive.
    pub rows_on_the_way_max: u64,
    /// Bytes that a transaction may write before they go into the log ahead of its commit.
    pub write_ahead_bytes: usize,
    /// Reads and writes of one container that a SERIALIZABLE transaction is known for, each; beyond that it counts as
    /// having read, or written, any row of it.
    pub tracked_entries_max: usize,
    /// How many statements of each class run at once.
    pub admission: AdmissionOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            workers: 1,
            nodes: 1,
            pinning: Pinning::Auto,
            memory_limit_bytes: 1 << 30,
            memory_watched: true,
            old_version_limit_bytes: None,
            old_snapshot_grace: Duration::from_millis(20),
            local_memory: LocalMemory::Auto,
            quantum: Duration::from_micros(200),
            in_place: true,
            updates_in_place: true,
            direct_append: true,
            incoming_buffer_bytes: 1 << 20,
            worker_buffer_bytes: 16 << 10,
            split_rows: 4_000_000,
            split_bytes: 64 << 20,
            parallel_rows: 65_536,
            maintenance_rows: 2_048,
            result_batches_max: 64,
            rows_on_the_way_max: 1 << 20,
            write_ahead_bytes: 4 << 20,
            tracked_entries_max: 4_096,
            admission: AdmissionOptions::default(),
        }
    }
}

/// Quanta that tasks get in one step of a worker if they are many; partitions get one.
pub(crate) const TASK_QUANTA: u32 = 4;
/// The tasks that are ready in a step of a worker, then those that they made ready; further rounds while timers fire.
/// So what a timer's task starts does not wait for a visit of a partition.
pub(crate) const TASK_ROUNDS: u32 = 2;
/// A poll of a task that takes more quanta than this is counted as a long one. A task that blocks its worker passes it,
/// as does one that computes for 10 ms without a break; a worker that lost its processor for a moment does not, as a
/// rule.
pub(crate) const LONG_POLL_QUANTA: u32 = 50;
/// Tasks polled in one round, unless their quanta are over before.
pub(crate) const STEP_TASKS_MAX: usize = 512;
/// Visits of partitions in one step of a worker, unless a quantum is over before.
pub(crate) const STEP_VISITS_MAX: usize = 64;
/// The same of visits in vain: somebody else is at the partition, or its commands wait for something else.
pub(crate) const STEP_VISITS_IN_VAIN_MAX: usize = 8;
/// Short commands (point reads, inserts) of one visit, unless the quantum is over before.
pub(crate) const VISIT_COMMANDS_MAX: usize = 256;
/// How often an access in place looks whether a latch is free: a few microseconds.
pub(crate) const LATCH_TRIES: u32 = 64;
/// Every n-th pick inside a partition takes the lowest waiting class: its guaranteed share.
pub(crate) const LOW_CLASS_SHARE: u32 = 8;
/// Every n-th step does long work, pieces of it and scans and loads, also if tasks are ready: its guaranteed share, but
/// at keepers (`keepers.rs`) only while nobody else gives it any.
pub(crate) const LONG_WORK_SHARE: u64 = 4;
/// Every n-th busy step runs one maintenance call: adaptation gets at most about 1/16 of a worker.
pub(crate) const MAINTENANCE_SHARE: u64 = 16;
/// Busy steps between two looks at the sockets, unless a quantum is over before.
pub(crate) const REACTOR_SHARE: u64 = 8;
/// Steps between two thoughts of the process's memory, which is looked at ten times a second at most.
pub(crate) const MEMORY_SHARE: u64 = 64;
/// A timer that is late by less than this is for the workers that keep to tasks, if there are any.
pub(crate) const PATIENCE: Duration = Duration::from_micros(50);
/// A worker whose next timer is due sooner stays awake: the operating system wakes it some fifty microseconds late.
pub(crate) const SLEEP_MIN: Duration = Duration::from_micros(20);
/// Maintenance of a partition that somebody else is at is tried again after this time.
pub(crate) const LATCHED_RETRY: Duration = Duration::from_micros(500);
/// A tail that took no row for this long is closed and sealed, if it has rows enough; a partition in which no row was
/// overwritten for this long seals the segments that it kept open for that.
pub(crate) const TAIL_QUIET: Duration = Duration::from_millis(100);
/// A split for which there was no memory is tried again after this time. While rows are copied, segments stay what they
/// are, so in a full database many attempts would keep it from giving memory back.
pub(crate) const SPLIT_RETRY: Duration = Duration::from_secs(10);
/// Maintenance for which there was no room is tried again after this time, also if no transaction ends meanwhile. The
/// time doubles with each refusal, ...
pub(crate) const NO_ROOM_RETRY: Duration = Duration::from_millis(200);
/// ... up to this: an attempt in vain may copy a segment, and an idle worker wakes for it.
pub(crate) const NO_ROOM_RETRY_MAX: Duration = Duration::from_secs(10);
/// Blocked maintenance is tried again after this time, when some transaction ended meanwhile.
pub(crate) const MAINTENANCE_RETRY: Duration = Duration::from_millis(5);
