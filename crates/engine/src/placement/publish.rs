//! The switch of a change: who owns what from the next table version on.

use std::sync::Arc;

use eris_platform::NodeId;
use eris_storage::{SplitMoved, Store};

use super::change::{Kind, Place, Target};
use crate::counters::Event;
use crate::ids::TableVersion;
use crate::partition::{Bounds, Handover, LivingPartition, Partition, PartitionState};
use crate::partition_table::PartitionTable;
use crate::runtime::Runtime;

/// Carries out the switch of one part whose copies are complete. All its partitions are latched.
pub(super) fn publish(
    runtime: &Arc<Runtime>,
    kind: &Kind,
    place: &Place,
    target: &mut Target,
    home: NodeId,
    (source, live): (&mut PartitionState, Option<&mut PartitionState>),
) {
    match (kind, &place.live, live) {
        (Kind::Merge, Some(survivor), Some(state)) => merge(runtime, place, source, survivor, state),
        (Kind::Split { at: Some(at) }, _, _) => {
            let mut store = copies(target);
            let moved = source.store.switch(&mut store);
            let bounds = Bounds::new(Some(at.clone()), source.bounds.upper.clone());
            let sibling = cut(runtime, place, source, bounds, home, store);
            runtime.counters.add(Event::Splits, 1);
            arrived(runtime, &sibling, moved);
        }
        (Kind::Split { at: None }, _, _) => {
            let store = runtime.store_beside(&source.store);
            cut(runtime, place, source, Bounds::default(), home, store);
            runtime.counters.add(Event::Splits, 1);
        }
        (Kind::Copy { .. }, _, _) => {
            let mut store = copies(target);
            let moved = source.store.switch(&mut store);
            let new = newcomer(runtime, place, source.bounds.clone(), home, store);
            leave(place, source, &new, |table| table.with_replaced(&place.source, Arc::clone(&new)));
            runtime.counters.add(Event::Copies, 1);
            arrived(runtime, &new, moved);
        }
        (Kind::Merge, _, _) => unreachable!("a merge has a survivor"),
    }
}

fn copies(target: &mut Target) -> Store {
    match std::mem::replace(target, Target::Fresh(None)) {
        Target::Fresh(Some(store)) => *store,
        Target::Fresh(None) | Target::Live(_) => unreachable!("a change that switches has copied"),
    }
}

fn newcomer(runtime: &Runtime, place: &Place, bounds: Bounds, home: NodeId, store: Store) -> Partition {
    let id = runtime.next_partition_id();
    let new = Arc::new(LivingPartition::new(id, place.container.id(), home, store, bounds));
    runtime.add_partition(&new);
    new
}

/// The upper part of a partition becomes a sibling's.
pub(super) fn cut(
    runtime: &Runtime,
    place: &Place,
    source: &mut PartitionState,
    bounds: Bounds,
    home: NodeId,
    mut store: Store,
) -> Partition {
    store.inherit_layouts(&source.store);
    let sibling = newcomer(runtime, place, bounds.clone(), home, store);
    if bounds.lower.is_some() {
        source.bounds.upper.clone_from(&bounds.lower);
    }
    let version =
        publish_table(place, |table| table.with_split(&place.source, bounds.lower.clone(), Arc::clone(&sibling)));
    source.changed = version;
    source.handovers.push(Handover { version, to: sibling.id, bounds });
    sibling
}

/// The neighbour takes everything over.
fn merge(
    runtime: &Arc<Runtime>,
    place: &Place,
    source: &mut PartitionState,
    survivor: &Partition,
    state: &mut PartitionState,
) {
    let moved = source.store.switch(&mut state.store);
    state.store.end_absorbing();
    let Some(joined) = state.bounds.joined(&source.bounds) else {
        unreachable!("the bounds of neighbours did not change while they merged")
    };
    let version = leave(place, source, survivor, |table| table.with_merged(&place.source, survivor));
    state.bounds = joined;
    // Planted: the survivor takes messages of older versions for messages about all that it has now.
    if !cfg!(feature = "bug_merge_keeps_version") {
        state.changed = version;
    }
    survivor.publish_size(state);
    runtime.counters.add(Event::Merges, 1);
    arrived(runtime, survivor, moved);
}

/// A partition that gave everything to another one stays as a forwarder.
fn leave(
    place: &Place,
    source: &mut PartitionState,
    to: &LivingPartition,
    next: impl FnOnce(&PartitionTable) -> PartitionTable,
) -> TableVersion {
    let version = publish_table(place, |table| {
        // In this order: a forwarder belongs to the container before its table lets go of it.
        place.container.add_forwarder(&place.source);
        next(table)
    });
    let bounds = std::mem::replace(&mut source.bounds, Bounds::nothing());
    source.changed = version;
    source.handovers.push(Handover { version, to: to.id, bounds });
    source.tail_watch = None;
    place.source.set_carer(place.source.home());
    version
}

fn publish_table(place: &Place, next: impl FnOnce(&PartitionTable) -> PartitionTable) -> TableVersion {
    place.container.publish_table(next).version
}

/// Rows came, some with words of undecided transactions: the partition will report those as settled, too.
fn arrived(runtime: &Arc<Runtime>, partition: &Partition, moved: SplitMoved) {
    runtime.counters.add(Event::RowsHandedOver, moved.rows);
    for transaction in moved.transactions_now_in_target {
        runtime.transactions.touch_by_id(transaction, partition.id);
    }
    runtime.queue_maintenance(partition);
}
