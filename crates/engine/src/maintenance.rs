//! What partitions do for themselves between commands: settle decided words, unlink dead versions, seal, thaw, compact,
//! split when they have grown, and go when they only forwarded and nobody needs that any more.

use std::sync::Arc;
use std::time::Duration;

use crate::assignments::Urgency;
use crate::counters::Event;
use crate::options::{LATCHED_RETRY, NO_ROOM_RETRY, NO_ROOM_RETRY_MAX, TAIL_QUIET};
use crate::partition::{Partition, PartitionState, TailWatch};
use crate::placement::{ChangeNext, continue_change, cut_if_rising, look_after_forwarder, wants_split};
use crate::runtime::Runtime;

/// Grants a partition one piece of maintenance.
pub(crate) fn maintain(runtime: &Arc<Runtime>, partition: &Partition) {
    let moves = runtime.memory.moves();
    maintain_once(runtime, partition);
    // Rows moved without room, here or elsewhere since this was refused: parked partitions may do so now.
    if runtime.memory.moves() != moves {
        runtime.retry_blocked_maintenance();
    }
}

fn maintain_once(runtime: &Arc<Runtime>, partition: &Partition) {
    partition.unmark_maintenance();
    let Some(mut state) = partition.try_latch() else {
        runtime.counters.add(Event::LatchWaits, 1);
        // Whoever is at it may have lost its processor; spinning would not give it back.
        runtime.queue_maintenance_at(partition, runtime.env.now() + LATCHED_RETRY);
        return;
    };
    let Ok(container) = runtime.container(partition.container) else {
        // Dropped: its rows go with the last dataflow that still reads them. A change gives up, for its guests' sake.
        state.store.stop_moving();
        if let ChangeNext::At(time) = continue_change(runtime, partition, &mut state) {
            runtime.queue_change_at(partition, time);
        }
        return;
    };
    // Segments are sealed here, and the partition may have got another home.
    state.store.set_arena(runtime.machine.arena(partition.home()).cloned());
    state.store.set_opening(runtime.is_opening());
    state.store.let_rebuilds_wait(runtime.is_opening() && runtime.has_room_for_plain_columns(0));
    let horizon = runtime.transactions.horizon();
    let maintained = state.store.maintain(&horizon, runtime.options.maintenance_rows);
    for transaction in &maintained.settled {
        runtime.transactions.settled(*transaction);
    }
    // What could go is gone; what is left is kept for a snapshot, or there is none.
    let oldest = horizon.oldest;
    let sum = if maintained.more {
        None
    } else {
        runtime.weigh_old_versions(partition, oldest, state.store.old_version_bytes())
    };
    if state.change.is_some() {
        let next = continue_change(runtime, partition, &mut state);
        partition.publish_size(&mut state);
        partition.publish_change(&state);
        drop(state);
        // What waited for the switch may go on.
        runtime.visit(partition, Urgency::Urgent);
        match next {
            ChangeNext::At(time) if !maintained.more => runtime.queue_change_at(partition, time),
            ChangeNext::Over | ChangeNext::Again | ChangeNext::At(_) => runtime.queue_maintenance(partition),
        }
        return;
    }
    partition.publish_size(&mut state);
    if !state.handovers.is_empty() && !state.is_forwarder() {
        // No message can be older than the oldest version that is pinned.
        let oldest = container.oldest_pinned();
        state.handovers.retain(|handover| handover.version > oldest);
    }
    let _ = cut_if_rising(runtime, &container, partition, &mut state)
        || wants_split(runtime, &container, partition, &mut state);
    partition.publish_change(&state);
    let closed = !maintained.more && watch_tail(runtime, partition, &mut state);
    let again = maintained.more || closed || state.change.is_some();
    let blocked = !again && state.store.wants_maintenance();
    if blocked && maintained.has_no_room {
        try_again_later(runtime, partition, &mut state);
    } else if !again {
        state.no_room_pause = Duration::ZERO;
    }
    if !again && state.is_forwarder() {
        look_after_forwarder(runtime, &container, partition, &mut state);
    }
    drop(state);
    if again {
        runtime.queue_maintenance(partition);
    } else if blocked {
        runtime.block_maintenance(partition);
    }
    if let Some(sum) = sum {
        runtime.revoke_if_too_much(oldest, sum);
    }
}

/// Has maintenance for which there was no room tried again after a while: memory also comes back when no transaction
/// ends, and that wakes no partition. While it is refused, the pauses grow. At most one timer runs for a partition.
fn try_again_later(runtime: &Arc<Runtime>, partition: &Partition, state: &mut PartitionState) {
    let now = runtime.env.now();
    if state.no_room_retry <= now {
        state.no_room_pause = (state.no_room_pause * 2).clamp(NO_ROOM_RETRY, NO_ROOM_RETRY_MAX);
        state.no_room_retry = now + state.no_room_pause;
        runtime.queue_maintenance_at(partition, state.no_room_retry);
    }
}

/// Closes the tail if it stayed as it was for a while, and lets segments be sealed that were kept open to be
/// overwritten if none was; sees to it that somebody looks again if they may yet. At most one timer runs for a
/// partition.
fn watch_tail(runtime: &Arc<Runtime>, partition: &Partition, state: &mut PartitionState) -> bool {
    let now = runtime.env.now();
    let (tail, overwrites) = (state.store.sealable_tail(), state.store.overwrites_mark());
    if state.tail_watch.is_some_and(|watch| now < watch.until) {
        return false;
    }
    let watch = state.tail_watch.take();
    let closes = tail.is_some() && watch.is_some_and(|watch| watch.tail == tail);
    let cools = overwrites.is_some() && watch.is_some_and(|watch| watch.overwrites == overwrites);
    if closes {
        state.store.close_tail();
    }
    if cools {
        state.store.let_cool();
    }
    if !closes && !cools && (tail.is_some() || overwrites.is_some()) {
        let until = now + TAIL_QUIET;
        state.tail_watch = Some(TailWatch { tail, overwrites, until });
        runtime.queue_maintenance_at(partition, until);
    }
    closes || cools
}
