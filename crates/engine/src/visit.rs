//! A visit of a partition: whoever has its latch runs the commands that wait there, for a quantum.
//!
//! Workers visit partitions that have commands; a task that wants to run a point access in place, and finds others
//! waiting there, runs those first.

use std::sync::Arc;
use std::time::Duration;

use eris_sync::Guard;

use crate::assignments::Urgency;
use crate::counters::Event;
use crate::message::Class;
use crate::options::VISIT_COMMANDS_MAX;
use crate::partition::{LivingPartition, Partition, PartitionState, Quantum, Ran, receive, run_command};
use crate::runtime::Runtime;

/// Processes a partition until the quantum is over; returns whether it could do anything: it may not get the latch, and
/// commands may wait for something else.
pub(crate) fn visit(runtime: &Runtime, partition: &Partition, urgency: Urgency, quantum: &Quantum<'_>) -> bool {
    let Some(state) = partition.try_latch() else {
        runtime.counters.add(Event::LatchWaits, 1);
        // Somebody is at it right now; its place in the queue is kept.
        runtime.acting_node(partition.home()).assignments.push(Arc::clone(partition), urgency);
        return false;
    };
    partition.unmark_queued(urgency);
    attend(runtime, partition, state, quantum, Urgency::Later)
}

/// Runs what waits at a partition and is as urgent as a point access, for a quantum, in the poll of a task that holds
/// no other latch; whether it could. Nobody overtakes what waits: without this all others would be sent as well, which
/// costs several accesses each, so that a backlog would keep itself up.
pub(crate) fn serve_waiting(runtime: &Runtime, partition: &Partition) -> bool {
    let Some(state) = partition.try_latch() else { return false };
    // Then nobody gets in place anyway.
    if state.is_draining() {
        return false;
    }
    attend(runtime, partition, state, &Quantum::start(runtime), Urgency::Urgent);
    true
}

/// Runs the commands that are at least as urgent; returns whether it could run any.
fn attend(
    runtime: &Runtime,
    partition: &Partition,
    mut state: Guard<'_, PartitionState>,
    quantum: &Quantum<'_>,
    least: Urgency,
) -> bool {
    let begun = runtime.env.now();
    let worked = process(runtime, partition, &mut state, quantum, least);
    state.store.add_processing(Duration::from_nanos(runtime.env.now().0.saturating_sub(begun.0)));
    if state.resized {
        partition.publish_size(&mut state);
    }
    let wants_maintenance = state.store.wants_maintenance() || state.is_draining();
    let more = state.wants_visit();
    drop(state);
    if let Some(urgency) = [partition.inbox_urgency(), more].into_iter().flatten().min() {
        runtime.visit(partition, urgency);
    }
    if wants_maintenance {
        runtime.queue_maintenance(partition);
    }
    worked
}

fn process(
    runtime: &Runtime,
    partition: &LivingPartition,
    state: &mut PartitionState,
    quantum: &Quantum<'_>,
    least: Urgency,
) -> bool {
    let (mut commands, mut waiting) = (0, Vec::new());
    // Only scans and loads give way, and none whose end a change of bounds waits for: nobody gets in before that.
    let wishes = partition.forget_wishes();
    let yielding = quantum.until_wanted(wishes);
    state.resume_stalled(partition.id);
    while commands < VISIT_COMMANDS_MAX {
        if !partition.inbox_is_empty() {
            receive(runtime, partition, state);
        }
        let next = match least {
            _ if state.is_draining() => state.next_started(),
            Urgency::Urgent => state.next_fresh_urgent(),
            Urgency::Later => state.next_command(),
        };
        let Some(command) = next else { break };
        runtime.counters.add(Event::Commands, command.messages as u64);
        commands += command.messages;
        let gives_way = command.class() > Class::Point && !state.holds_back();
        let until = if gives_way { &yielding } else { quantum };
        match run_command(runtime, partition, state, command, until) {
            Ran::Finished => {}
            Ran::Unfinished(command) => state.add(command),
            // Tried once in a visit: what it waits for may be next.
            Ran::Waiting(command) => {
                waiting.push(command);
                continue;
            }
            Ran::Stalled(command) => state.stall(command),
        }
        if until.is_over() {
            break;
        }
    }
    let worked = waiting.is_empty() || commands > waiting.len();
    for command in waiting {
        state.add(command);
    }
    worked
}
