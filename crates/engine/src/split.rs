//! Splitting a partition that has grown.
//!
//! ```text
//!   request    a position `at` is chosen; new commands wait until no cursor is saved (for a limited time)
//!   copying    rows >= at are copied to a new store, a few per call; commands run as usual
//!   switching  all is copied; new commands wait again until no cursor is saved
//!   publish    the copies count from now on; table version + 1; the source passes older messages on
//! ```
//!
//! Until the switch the source answers for everything; at the switch, under the latch, the target does. A partition
//! without positions gives nothing away: it gets an empty sibling for what comes.

use std::sync::Arc;
use std::time::Duration;

use eris_platform::Nanos;
use eris_storage::{Batch, Key, SplitBoundary, SplitStep, Store, Value};

use crate::container::Container;
use crate::counters::Event;
use crate::ids::TableVersion;
use crate::options::MAINTENANCE_ROWS;
use crate::partition::{Bounds, LivingPartition, Partition, PartitionState, SplitRecord};
use crate::partition_table::Partitioning;
use crate::runtime::Runtime;

/// How long new commands wait for saved cursors to go before the split is put off: a reader that takes its results
/// slowly must not block others for longer.
const CURSOR_WAIT: Duration = Duration::from_millis(20);
/// How long a split that was put off lets others work before it tries again.
const RETRY_WAIT: Duration = Duration::from_millis(200);
/// Partitions below this many rows are not split for parallelism.
const SPLIT_ROWS_MIN: u64 = 2;

/// A split under way.
pub(crate) struct SplitInProgress {
    at: Option<Key>,
    phase: Phase,
}

enum Phase {
    Requested {
        until: Nanos,
    },
    Copying {
        target: Box<Store>,
    },
    Switching {
        target: Box<Store>,
        until: Nanos,
    },
    /// Cursors stood in the way of the switch; copies follow the changes meanwhile.
    PutOff {
        target: Box<Store>,
        until: Nanos,
    },
}

/// What maintenance does next about a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SplitNext {
    /// There is no split any more.
    Over,
    /// Call again as soon as possible.
    Again,
    /// Call again at this time.
    At(Nanos),
}

impl SplitInProgress {
    /// Decides where to cut; `None` if that is not possible.
    pub fn request(
        runtime: &Runtime,
        container: &Container,
        partition: &LivingPartition,
        state: &PartitionState,
    ) -> Option<Self> {
        let phase = Phase::Requested { until: runtime.env.now() + CURSOR_WAIT };
        let at = match &*container.partitioning() {
            Partitioning::Size { .. } => return Some(Self { at: None, phase }),
            Partitioning::Range(attributes) => state.store.split_key(attributes)?,
            Partitioning::Hash { .. } => state.bounds.middle_of_hashes()?,
        };
        assert!(state.bounds.contains(&at), "partition {} is cut inside its bounds", partition.id.0);
        Some(Self { at: Some(at), phase })
    }

    /// Whether commands without a cursor wait.
    pub fn is_draining(&self) -> bool {
        match self.phase {
            Phase::Requested { .. } | Phase::Switching { .. } => true,
            Phase::Copying { .. } | Phase::PutOff { .. } => false,
        }
    }
}

/// Whether the partition has outgrown its limits.
pub(crate) fn wants_split(runtime: &Runtime, container: &Container, partition: &LivingPartition) -> bool {
    let options = &runtime.options;
    let rows = partition.rows();
    if rows < SPLIT_ROWS_MIN {
        return false;
    }
    // Without positions nothing can be given away; a sibling helps once all partitions are about as full.
    let helps = container.partitioning().has_positions() || smallest_rows(container) * 2 >= rows;
    if rows > options.split_rows || partition.bytes() > options.split_bytes {
        return helps;
    }
    let partitions = container.partition_count() as u64;
    let table_rows = container.rows();
    let wanted = (2 * options.workers as u64).min(table_rows.div_ceil(options.parallel_rows));
    helps && partitions < wanted && rows * partitions >= table_rows
}

fn smallest_rows(container: &Container) -> u64 {
    container.table().partitions().map(|partition| partition.rows()).min().unwrap_or(0)
}

/// Takes a split one piece further.
pub(crate) fn continue_split(
    runtime: &Arc<Runtime>,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
) -> SplitNext {
    let Some(SplitInProgress { at, phase }) = state.split.take() else { return SplitNext::Over };
    let now = runtime.env.now();
    match phase {
        Phase::Requested { until } if state.has_saved_cursors() => {
            if now >= until {
                return SplitNext::Over;
            }
            state.split = Some(SplitInProgress { at, phase: Phase::Requested { until } });
            SplitNext::Again
        }
        Phase::Requested { .. } => {
            let target = Box::new(Store::new(runtime.store_options(state.store.schema())));
            let Some(bound) = at.clone() else {
                publish(runtime, container, partition, state, None, *target);
                return SplitNext::Over;
            };
            if state.store.begin_split(boundary(&container.partitioning(), bound)).is_err() {
                // Busy with an index or the rests of an earlier split: wanted again later.
                return SplitNext::Over;
            }
            state.split = Some(SplitInProgress { at, phase: Phase::Copying { target } });
            SplitNext::Again
        }
        Phase::PutOff { target, until } if now < until => {
            state.split = Some(SplitInProgress { at, phase: Phase::PutOff { target, until } });
            SplitNext::At(until)
        }
        Phase::PutOff { target, .. } => {
            state.split = Some(SplitInProgress { at, phase: Phase::Copying { target } });
            SplitNext::Again
        }
        Phase::Copying { target } => {
            let until = now + CURSOR_WAIT;
            copy(runtime, container, partition, state, at, target, until)
        }
        Phase::Switching { target, until } => copy(runtime, container, partition, state, at, target, until),
    }
}

fn copy(
    runtime: &Arc<Runtime>,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
    at: Option<Key>,
    mut target: Box<Store>,
    until: Nanos,
) -> SplitNext {
    match state.store.split_step(&mut target, MAINTENANCE_ROWS) {
        Ok(SplitStep::More { blocked_by_cursors: false }) => {
            state.split = Some(SplitInProgress { at, phase: Phase::Copying { target } });
            SplitNext::Again
        }
        // Not only cursors of commands stand in the way: a load that failed does until its transaction is settled.
        Ok(SplitStep::More { blocked_by_cursors: true }) if runtime.env.now() >= until => {
            let until = runtime.env.now() + RETRY_WAIT;
            state.split = Some(SplitInProgress { at, phase: Phase::PutOff { target, until } });
            SplitNext::At(until)
        }
        Ok(SplitStep::More { blocked_by_cursors: true }) => {
            state.split = Some(SplitInProgress { at, phase: Phase::Switching { target, until } });
            SplitNext::Again
        }
        Ok(SplitStep::Done(moved)) => {
            let sibling = publish(runtime, container, partition, state, at, *target);
            for transaction in moved.transactions_now_in_target {
                runtime.transactions.touch_by_id(transaction, sibling.id);
            }
            runtime.queue_maintenance(&sibling);
            SplitNext::Over
        }
        Err(_) => {
            // Out of memory: the copies go, the rows are where they were.
            state.store.abandon_split();
            SplitNext::Over
        }
    }
}

fn boundary(partitioning: &Arc<Partitioning>, at: Key) -> SplitBoundary {
    let attributes: Box<[_]> = partitioning.attributes().into();
    let partitioning = Arc::clone(partitioning);
    let position = Arc::new(move |keys: &Batch, row: usize| partitioning.position_of_key_row(keys, row));
    SplitBoundary { attributes, position, at }
}

/// Cuts a partition above all its rows, so that rising keys go on in an empty one: `values` are the partitioning
/// attributes of the first row to come. False if there are rows at or above it, or something is under way here.
pub(crate) fn split_above(
    runtime: &Runtime,
    container: &Container,
    partition: &Partition,
    state: &mut PartitionState,
    at: Key,
    values: &[Value],
) -> bool {
    let partitioning = container.partitioning();
    let Partitioning::Range(attributes) = &*partitioning else { return false };
    let free = state.split.is_none()
        && !state.has_saved_cursors()
        && state.bounds.contains(&at)
        && state.bounds.lower.as_ref() != Some(&at)
        && state.store.has_entries_from(attributes, values) == Some(false);
    if free {
        let store = Store::new(runtime.store_options(state.store.schema()));
        publish(runtime, container, partition, state, Some(at), store);
    }
    free
}

/// Makes the sibling known: from the next table version on it takes its share of the positions.
fn publish(
    runtime: &Runtime,
    container: &Container,
    partition: &Partition,
    state: &mut PartitionState,
    at: Option<Key>,
    mut store: Store,
) -> Partition {
    store.inherit_layouts(&state.store);
    let bounds = Bounds { lower: at.clone(), upper: state.bounds.upper.clone() };
    let id = runtime.next_partition_id();
    let sibling = Arc::new(LivingPartition::new(id, partition.container, runtime.next_node(), store, bounds.clone()));
    runtime.add_partition(&sibling);
    if at.is_some() {
        state.bounds.upper.clone_from(&at);
    }
    let mut version = TableVersion(0);
    container.publish_table(|table| {
        let next = table.with_split(partition, at, Arc::clone(&sibling));
        version = next.version;
        next
    });
    state.splits.push(SplitRecord { version, sibling: id, bounds });
    runtime.counters.add(Event::Splits, 1);
    sibling
}
