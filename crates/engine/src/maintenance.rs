//! What partitions do for themselves between commands: settle decided words, unlink dead versions, seal, thaw, compact,
//! and split when they have grown.

use std::sync::Arc;

use crate::options::{LATCHED_RETRY, MAINTENANCE_ROWS, TAIL_QUIET};
use crate::partition::{Partition, PartitionState, TailWatch};
use crate::runtime::Runtime;
use crate::split::{SplitInProgress, SplitNext, continue_split, wants_split};

/// Grants a partition one piece of maintenance.
pub(crate) fn maintain(runtime: &Arc<Runtime>, partition: &Partition) {
    partition.unmark_maintenance();
    let Some(mut state) = partition.try_latch() else {
        // Whoever is at it may have lost its processor; spinning would not give it back.
        runtime.queue_maintenance_at(partition, runtime.env.now() + LATCHED_RETRY);
        return;
    };
    let Ok(container) = runtime.container(partition.container) else {
        // Dropped: its rows go with the last dataflow that still reads them.
        return;
    };
    // Segments are sealed here, and the partition may have got another home.
    state.store.set_arena(runtime.machine.arena(partition.home()).cloned());
    let horizon = runtime.transactions.horizon();
    let maintained = state.store.maintain(&horizon, MAINTENANCE_ROWS);
    for transaction in &maintained.settled {
        runtime.transactions.settled(*transaction);
    }
    if state.split.is_some() {
        let next = continue_split(runtime, &container, partition, &mut state);
        partition.publish_size(&state);
        drop(state);
        // What waited for the switch may go on.
        runtime.visit(partition);
        match next {
            SplitNext::At(time) if !maintained.more => runtime.queue_maintenance_at(partition, time),
            SplitNext::Over | SplitNext::Again | SplitNext::At(_) => runtime.queue_maintenance(partition),
        }
        return;
    }
    partition.publish_size(&state);
    let split = !container.is_dropped() && wants_split(runtime, &container, partition);
    if split {
        state.split = SplitInProgress::request(runtime, &container, partition, &state);
    }
    let closed = !maintained.more && watch_tail(runtime, partition, &mut state);
    let again = maintained.more || closed || state.split.is_some();
    let blocked = !again && state.store.wants_maintenance();
    drop(state);
    if again {
        runtime.queue_maintenance(partition);
    } else if blocked {
        runtime.block_maintenance(partition);
    }
}

/// Closes the tail if it stayed as it was for a while; sees to it that somebody looks again if it may yet. At most one
/// timer runs for a partition.
fn watch_tail(runtime: &Arc<Runtime>, partition: &Partition, state: &mut PartitionState) -> bool {
    let now = runtime.env.now();
    match (state.store.sealable_tail(), state.tail_watch) {
        (_, Some(watch)) if now < watch.until => false,
        (Some(tail), Some(watch)) if watch.tail == tail => {
            state.tail_watch = None;
            state.store.close_tail();
            true
        }
        (Some(tail), _) => {
            let until = now + TAIL_QUIET;
            state.tail_watch = Some(TailWatch { tail, until });
            runtime.queue_maintenance_at(partition, until);
            false
        }
        (None, _) => {
            state.tail_watch = None;
            false
        }
    }
}
