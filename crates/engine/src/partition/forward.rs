//! Passing commands on to those who own the rows now.
//!
//! Every message for many rows concerns a *range of positions*: what its addressee owned in the table version that the
//! sender used, or, if it was passed on, the range that it carries. A partition answers for the part of the range that
//! it owns, and passes the rest on along what it gave away, newest handover first, in disjoint pieces. The messages of
//! a dataflow begin with disjoint ranges that cover its table version, and every step keeps that, so each row is met
//! exactly once, however often the partitions split, merged or moved meanwhile.
//!
//! ```text
//!   version 4:  [      P      )[    R    )      a scan under version 4 is two messages: P and R
//!   version 5:  [  P  )[  Q   )[    R    )      P passes Q's share of its range on
//!   version 6:  [  P  )[        Q        )      R passes its range on to Q; Q answers both, each within its range
//! ```
//!
//! Each hop follows a later handover than the one before, so messages arrive. A message for one position goes where the
//! position went, rows go where they belong. A container without positions knows no merges: there every partition that
//! is younger than the message came from exactly one older one, which copies the message to it.

use std::sync::Arc;

use eris_storage::{Batch, Key, PartitionId};

use super::{Bounds, Handover, LivingPartition, PartitionState};
use crate::counters::Event;
use crate::dataflow::{Attachment, Dataflow};
use crate::error::EngineError;
use crate::message::{Header, Message};
use crate::runtime::Runtime;

/// What a message for many rows means here.
pub(super) enum Concern {
    /// All rows.
    All,
    /// The rows within these positions; a command for the whole partition is left to another message.
    Within(Bounds),
    /// Nothing is left here.
    Nothing,
}

/// Finds out what a message for many rows concerns here, and passes the rest on.
pub(super) fn concern(
    runtime: &Runtime,
    state: &PartitionState,
    message: &Message,
    own: PartitionId,
    dataflow: &Dataflow,
) -> Concern {
    let table = &dataflow.operator(message.header.operator).table;
    if !table.partitioning.has_positions() {
        let version = message.header.table_version;
        for handover in state.handovers.iter().filter(|handover| version < handover.version) {
            forward(runtime, message.header, handover.to, &commands(message), dataflow);
        }
        return if state.is_forwarder() { Concern::Nothing } else { Concern::All };
    }
    let range = if message.header.forwarded {
        carried_range(message, dataflow)
    } else if message.header.table_version >= state.changed {
        return Concern::All;
    } else {
        table.bounds_of(own).unwrap_or_else(|| unreachable!("a message goes to a partition of its table version"))
    };
    forward_range(runtime, state, message, range.without(&state.bounds), dataflow);
    let here = range.intersection(&state.bounds);
    if here.is_nothing() {
        Concern::Nothing
    } else if here == state.bounds {
        Concern::All
    } else {
        Concern::Within(here)
    }
}

fn carried_range(message: &Message, dataflow: &Dataflow) -> Bounds {
    let index = message.commands().next().and_then(|command| command.try_into().ok()).map(u32::from_le_bytes);
    match index.and_then(|index| dataflow.take_attachment(index)) {
        Some(Attachment::Range(range)) => range,
        _ => unreachable!("a message that was passed on carries its range, which nobody took before"),
    }
}

/// Passes ranges that are not here on, each piece to whom it was given last.
fn forward_range(
    runtime: &Runtime,
    state: &PartitionState,
    message: &Message,
    mut rest: Vec<Bounds>,
    dataflow: &Dataflow,
) {
    for handover in state.handovers.iter().rev() {
        if rest.is_empty() {
            return;
        }
        for piece in rest.iter().map(|piece| piece.intersection(&handover.bounds)).filter(|piece| !piece.is_nothing()) {
            let index = dataflow.attach(Attachment::Range(piece));
            forward(runtime, message.header, handover.to, &[&index.to_le_bytes()], dataflow);
        }
        rest = rest.iter().flat_map(|piece| piece.without(&handover.bounds)).collect();
    }
    assert!(rest.is_empty(), "what a message concerns is here or was given away: {rest:?} is neither");
}

/// Passes a message for one position on; false if the position is this partition's own.
pub(super) fn forward_position(
    runtime: &Runtime,
    state: &PartitionState,
    message: &Message,
    position: &Key,
    dataflow: &Dataflow,
) -> bool {
    if state.bounds.contains(position) {
        return false;
    }
    forward(runtime, message.header, owner_of(state, position), &commands(message), dataflow);
    true
}

fn commands(message: &Message) -> Vec<&[u8]> {
    message.commands().collect()
}

fn forward(runtime: &Runtime, header: Header, to: PartitionId, commands: &[&[u8]], dataflow: &Dataflow) {
    let header = Header { target: Some(to), forwarded: true, ..header };
    #[cfg(feature = "bug_split_loses_command")]
    {
        let _ = (runtime, header, commands, dataflow);
    }
    #[cfg(not(feature = "bug_split_loses_command"))]
    {
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send(&Message::new(header, commands));
    }
}

/// To whom a position was given last.
fn owner_of(state: &PartitionState, position: &Key) -> PartitionId {
    let given: Option<&Handover> = state.handovers.iter().rev().find(|handover| handover.bounds.contains(position));
    given.unwrap_or_else(|| unreachable!("a position belongs to this partition or was given away by it")).to
}

/// Whether a position belongs here.
pub(crate) fn is_own_position(state: &PartitionState, position: &Key) -> bool {
    state.bounds.contains(position)
}

/// Keeps the rows that belong here and sends the others to their owners as inserts or sealed rows.
pub(crate) fn forward_inserts(
    runtime: &Runtime,
    partition: &LivingPartition,
    state: &PartitionState,
    header: &Header,
    rows: Batch,
    dataflow: &Arc<Dataflow>,
    attachment: impl Fn(Batch) -> Result<Attachment, EngineError>,
) -> Result<Batch, EngineError> {
    let operator = dataflow.operator(header.operator);
    let partitioning = &operator.table.partitioning;
    if !partitioning.has_positions() && !state.is_forwarder()
        || partitioning.has_positions() && !header.forwarded && header.table_version >= state.changed
    {
        return Ok(rows);
    }
    let mut own: Vec<u32> = Vec::with_capacity(rows.rows);
    let mut leaving: Vec<(PartitionId, Vec<u32>)> = Vec::new();
    for row in 0..rows.rows {
        let owner = if partitioning.has_positions() {
            let position = partitioning.position_of_row(&rows, row);
            if is_own_position(state, &position) {
                own.push(row as u32);
                continue;
            }
            owner_of(state, &position)
        } else {
            let last = state.handovers.last();
            last.unwrap_or_else(|| unreachable!("a forwarder gave its rows to somebody")).to
        };
        match leaving.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, list)) => list.push(row as u32),
            None => leaving.push((owner, vec![row as u32])),
        }
    }
    if leaving.is_empty() {
        return Ok(rows);
    }
    assert!(!state.handovers.is_empty(), "partition {} passes rows on only after a handover", partition.id.0);
    for (owner, list) in leaving {
        let index = dataflow.attach(attachment(rows.take(&list))?);
        let header = Header { target: Some(owner), forwarded: true, ..*header };
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send(&Message::new(header, &[&index.to_le_bytes()]));
    }
    Ok(rows.take(&own))
}
