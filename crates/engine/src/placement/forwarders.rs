//! Forwarders: a partition that gave everything away passes older messages on until there can be none.
//!
//! A message names a table version that its dataflow pins, and the pin is the table itself, held by count. When no
//! version is held in which the forwarder owned rows, no message can reach it: not from a sender, and not from another
//! partition, because that passes on only messages older than its own handover, which came earlier still. Its rows left
//! at the switch; their words may be undecided, so it also stays until its store has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use crate::container::Container;
use crate::counters::Event;
use crate::partition::{Partition, PartitionState};
use crate::runtime::Runtime;

/// How often somebody looks whether a forwarder may go.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Lets a forwarder go if nobody needs it, or sees to it that somebody looks again. For one without maintenance to do.
pub(crate) fn look_after_forwarder(
    runtime: &Arc<Runtime>,
    container: &Container,
    partition: &Partition,
    state: &mut PartitionState,
) {
    let needed = container.oldest_pinned() < state.changed
        || !state.has_no_commands()
        || !partition.inbox_is_empty()
        || state.store.wants_maintenance();
    if !needed {
        if container.remove_forwarder(partition.id) {
            runtime.counters.add(Event::ForwardersDropped, 1);
        }
        return;
    }
    let now = runtime.env.now();
    if state.next_look.is_none_or(|look| look <= now) {
        let look = now + LOOK_AGAIN;
        state.next_look = Some(look);
        runtime.queue_maintenance_at(partition, look);
    }
}
