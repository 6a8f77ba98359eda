//! Partitions that have outgrown their limits: where to cut them, and when to cut above all rows instead.
//!
//! A table whose keys rise grows at its upper end. A cut in the middle of the last partition would move half of its
//! rows and leave both halves half empty; a cut *above* all rows moves none, and the next rows go on in a fresh *append
//! partition* on the next node. Keys rise when the rows lie in the order of their keys, which a sample tells. The last
//! partition is then cut when it has its share of rows (as long as the table has few partitions), or is near a limit.

use std::sync::Arc;

use eris_storage::{Key, Value};

use super::change::{Change, Kind, Part, Place};
use super::error::{PlacementError, Ticket};
use super::groups::counterparts;
use super::publish::cut;
use crate::container::Container;
use crate::counters::Event;
use crate::partition::{Bounds, LivingPartition, Partition, PartitionState};
use crate::partition_table::Partitioning;
use crate::runtime::Runtime;

/// Partitions below this many rows are not split for parallelism.
const SPLIT_ROWS_MIN: u64 = 2;

/// How to cut a partition in two, if that is possible.
fn way_to_split(container: &Container, state: &PartitionState) -> Option<Kind> {
    let at = match &*container.partitioning() {
        Partitioning::Size { .. } => return Some(Kind::Split { at: None }),
        Partitioning::Range(attributes) => state.store.split_key(attributes)?,
        Partitioning::Hash { .. } => state.bounds.middle_of_hashes()?,
    };
    // The first key is no place to cut at, and versions that nobody sees any more may have been sampled.
    let inside = state.bounds.contains(&at) && state.bounds.lower.as_ref() != Some(&at);
    inside.then_some(Kind::Split { at: Some(at) })
}

/// A split of a partition and its counterparts; `None` if there is nothing to cut, or somebody is busy.
pub(super) fn request_split(
    runtime: &Runtime,
    container: &Arc<Container>,
    partition: &Partition,
    state: &PartitionState,
    ticket: Ticket,
) -> Option<Box<Change>> {
    let Some(kind) = way_to_split(container, state) else {
        ticket.resolve(Err(PlacementError::NotDivisible(partition.id)));
        return None;
    };
    let Some(parts) = counterparts(container, partition) else {
        ticket.resolve(Err(PlacementError::Busy(partition.id)));
        return None;
    };
    let parts = parts.iter().map(|(container, source)| Part::new(container, source, None)).collect();
    Change::request(runtime, kind, parts, ticket)
}

/// Begins to split a partition that has outgrown its limits; false if it has not, or cannot now.
pub(crate) fn wants_split(
    runtime: &Runtime,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
) -> bool {
    // A split waits for cursors, and while it does nobody gets in: with one that stays it would be asked for again and
    // again. A definition that waits here comes first.
    if container.is_dropped()
        || state.is_changing()
        || state.is_forwarder()
        || state.has_saved_cursors()
        || state.holds_definition()
        || runtime.env.now() < state.no_split_until
        || !is_outgrown(runtime, container, partition)
    {
        return false;
    }
    state.change = request_split(runtime, container, partition, state, Ticket::new());
    state.change.is_some()
}

fn is_outgrown(runtime: &Runtime, container: &Container, partition: &LivingPartition) -> bool {
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
    if container.is_rising() {
        // The table gets its further partitions at its upper end.
        return false;
    }
    let partitions = container.partition_count() as u64;
    let table_rows = container.rows();
    let wanted = (2 * options.workers as u64).min(table_rows.div_ceil(options.parallel_rows));
    helps && partitions < wanted && rows * partitions >= table_rows
}

fn smallest_rows(container: &Container) -> u64 {
    container.table().partitions().map(|partition| partition.rows()).min().unwrap_or(0)
}

/// Cuts the last partition above its rows if keys rise and it is full enough.
pub(crate) fn cut_if_rising(
    runtime: &Runtime,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
) -> bool {
    let options = &runtime.options;
    let partitioning = container.partitioning();
    let Partitioning::Range(attributes) = &*partitioning else { return false };
    let rows = partition.rows();
    let few = container.partition_count() < 2 * options.workers;
    let near = |size: u64, limit: u64| size > limit - limit / 4;
    // Somewhat less than a share: the others must not pass theirs before this one is cut.
    let share = options.parallel_rows - options.parallel_rows / 8;
    let full = (few && rows >= share.max(SPLIT_ROWS_MIN))
        || near(rows, options.split_rows)
        || near(partition.bytes(), options.split_bytes);
    let last = state.bounds.upper.is_none() && !state.is_forwarder();
    if !full || !last || rows < state.rising_look || state.is_changing() || container.is_dropped() {
        return false;
    }
    // An index that is being created would lack the rows that come to the new partition.
    if container.group().is_some() || state.has_saved_cursors() || state.store.is_indexing() {
        return false;
    }
    state.rising_look = rows + rows / 8;
    let rising = state.store.has_rising_keys(attributes);
    container.set_rising(rising);
    if !rising {
        return false;
    }
    let Some(highest) = state.store.highest_key(attributes) else { return false };
    // No key is a prefix of another, so this is a place between the highest and all that may come above it.
    let at = Key::from_bytes(&[highest.as_bytes(), &[0]].concat());
    cut_above(runtime, container, partition, state, at);
    true
}

/// Cuts a partition above all its rows, so that rising keys go on in an empty one: `values` are the partitioning
/// attributes of the first row to come. False if there are rows at or above it, or something is under way here.
pub(crate) fn split_above(
    runtime: &Runtime,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
    at: Key,
    values: &[Value],
) -> bool {
    let partitioning = container.partitioning();
    let Partitioning::Range(attributes) = &*partitioning else { return false };
    let free = !state.is_changing()
        && container.group().is_none()
        && !state.has_saved_cursors()
        && !state.store.is_indexing()
        && state.bounds.contains(&at)
        && state.bounds.lower.as_ref() != Some(&at)
        && state.store.has_entries_from(attributes, values) == Some(false);
    if free {
        cut_above(runtime, container, partition, state, at);
    }
    free
}

fn cut_above(
    runtime: &Runtime,
    container: &Arc<Container>,
    partition: &Partition,
    state: &mut PartitionState,
    at: Key,
) {
    let store = runtime.store_beside(&state.store);
    let place = Place { container: Arc::clone(container), source: Arc::clone(partition), live: None };
    let bounds = Bounds::new(Some(at), state.bounds.upper.clone());
    cut(runtime, &place, state, bounds, runtime.next_node(), store);
    runtime.counters.add(Event::Splits, 1);
    runtime.counters.add(Event::AppendPartitions, 1);
}
