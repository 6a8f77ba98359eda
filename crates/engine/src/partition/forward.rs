//! Passing commands on to those who own the rows now.
//!
//! Every message for many rows concerns a *range of positions*: what its addressee owned in the table version that the
//! sender used, or, if it was passed on, the range that its header names. A partition answers for the part of the range
//! that it owns, and passes the rest on along what it gave away, newest handover first, in disjoint pieces. The
//! messages of a dataflow begin with disjoint ranges that cover what its predicate leaves of its table version, and
//! every step keeps that, so each row is met exactly once, however often the partitions split, merged or moved
//! meanwhile.
//!
//! ```text
//!   version 4:  [      P      )[    R    )      a scan under version 4 is two messages: P and R
//!   version 5:  [  P  )[  Q   )[    R    )      P passes Q's share of its range on
//!   version 6:  [  P  )[        Q        )      R passes its range on to Q; Q answers both, each within its range
//! ```
//!
//! Each hop follows a later handover than the one before, so messages arrive. A message for one position goes where the
//! position went, rows and keys that fix a position go where they belong; keys that do not are a message for many rows.
//! A container without positions knows no merges: there every partition that is younger than the message came from
//! exactly one older one, which copies the message to it.

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
    /// The rows within these positions; other messages of the dataflow concern the others.
    Within(Bounds),
    /// Nothing is left here.
    Nothing,
}

/// Whom else a message for many rows concerns, and within which positions; none: all that came from here.
pub(super) type Others = Vec<(PartitionId, Option<Bounds>)>;

/// Finds out what a message for many rows concerns here, and passes the rest on.
pub(super) fn concern(
    runtime: &Runtime,
    state: &PartitionState,
    message: &Message,
    own: PartitionId,
    dataflow: &Dataflow,
) -> Concern {
    let (here, others) = divide(state, &message.header, own, dataflow);
    for (to, range) in others {
        forward(runtime, passed_on(&message.header, to, range, dataflow), &commands(message), dataflow);
    }
    here
}

/// What a message for many rows concerns here and elsewhere.
pub(super) fn divide(
    state: &PartitionState,
    header: &Header,
    own: PartitionId,
    dataflow: &Dataflow,
) -> (Concern, Others) {
    let table = &dataflow.operator(header.operator).table;
    if !table.partitioning.has_positions() {
        let later = state.handovers.iter().filter(|handover| header.table_version < handover.version);
        let others = later.map(|handover| (handover.to, None)).collect();
        return (if state.is_forwarder() { Concern::Nothing } else { Concern::All }, others);
    }
    let range = if header.forwarded {
        carried_range(header, dataflow)
    } else if header.table_version >= state.changed {
        return (Concern::All, Vec::new());
    } else {
        table.bounds_of(own).unwrap_or_else(|| unreachable!("a message goes to a partition of its table version"))
    };
    let others = owners_of(state, range.without(&state.bounds));
    let here = range.intersection(&state.bounds);
    let concern = if here.is_nothing() {
        Concern::Nothing
    } else if here == state.bounds {
        Concern::All
    } else {
        Concern::Within(here)
    };
    (concern, others)
}

fn carried_range(header: &Header, dataflow: &Dataflow) -> Bounds {
    match header.range.and_then(|index| dataflow.take_attachment(index)) {
        Some(Attachment::Range(range)) => range,
        _ => unreachable!("a message that was passed on names its range, which nobody took before"),
    }
}

/// To whom ranges that are not here were given last, piece by piece.
fn owners_of(state: &PartitionState, mut rest: Vec<Bounds>) -> Others {
    let mut owners = Vec::new();
    for handover in state.handovers.iter().rev() {
        if rest.is_empty() {
            break;
        }
        let pieces = rest.iter().map(|piece| piece.intersection(&handover.bounds));
        owners.extend(pieces.filter(|piece| !piece.is_nothing()).map(|piece| (handover.to, Some(piece))));
        rest = rest.iter().flat_map(|piece| piece.without(&handover.bounds)).collect();
    }
    assert!(rest.is_empty(), "what a message concerns is here or was given away: {rest:?} is neither");
    owners
}

/// The header of a message to somebody else whom it concerns. Its range is taken once: each message has its own.
pub(super) fn passed_on(header: &Header, to: PartitionId, range: Option<Bounds>, dataflow: &Dataflow) -> Header {
    let range = range.map(|range| dataflow.attach_range(range));
    Header { target: Some(to), forwarded: true, range, ..*header }
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
    let header = passed_on(&message.header, owner_of(state, position), None, dataflow);
    forward(runtime, header, &commands(message), dataflow);
    true
}

fn commands(message: &Message) -> Vec<&[u8]> {
    message.commands().collect()
}

fn forward(runtime: &Runtime, header: Header, commands: &[&[u8]], dataflow: &Dataflow) {
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
pub(super) fn owner_of(state: &PartitionState, position: &Key) -> PartitionId {
    let given: Option<&Handover> = state.handovers.iter().rev().find(|handover| handover.bounds.contains(position));
    given
        .unwrap_or_else(|| {
            let PartitionState { bounds, changed, handovers, .. } = state;
            unreachable!(
                "a position belongs to this partition or was given away by it: {position:?} is not in {bounds:?} \
                 (since {changed:?}), nor in {handovers:?}"
            )
        })
        .to
}

/// Whether a position belongs here.
pub(crate) fn is_own_position(state: &PartitionState, position: &Key) -> bool {
    state.bounds.contains(position)
}

/// Whether what a message brings belongs here without a look at its rows: the table is as its sender knew it.
pub(crate) fn all_belong_here(state: &PartitionState, header: &Header, dataflow: &Dataflow) -> bool {
    if dataflow.operator(header.operator).table.partitioning.has_positions() {
        !header.forwarded && header.table_version >= state.changed
    } else {
        !state.is_forwarder()
    }
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
    if all_belong_here(state, header, dataflow) {
        return Ok(rows);
    }
    let partitioning = &dataflow.operator(header.operator).table.partitioning;
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
        let index = dataflow.attach(attachment(rows.take(&list))?)?;
        let header = passed_on(header, owner, None, dataflow);
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send(&Message::new(header, &[&index.to_le_bytes()]));
    }
    Ok(rows.take(&own))
}
