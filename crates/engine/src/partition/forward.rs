//! Passing commands on to siblings that split off after the command was addressed.
//!
//! A message names the partition-table version it was addressed under. Every sibling that is younger than that version
//! owns rows the sender meant: a message to all rows is copied to each of them, a message to one position goes to the
//! one that owns it, rows go where they belong. The sibling compares the same version with its own splits, so chains
//! of splits resolve themselves, and each row is met exactly once.

use std::sync::Arc;

use eris_storage::{Batch, Key, PartitionId};

use super::{LivingPartition, PartitionState};
use crate::counters::Event;
use crate::dataflow::{Attachment, Dataflow};
use crate::error::EngineError;
use crate::ids::TableVersion;
use crate::message::{Header, Message};
use crate::runtime::Runtime;

/// Whether messages of this table version may concern rows that are no longer here.
pub(crate) fn is_stale(state: &PartitionState, version: TableVersion) -> bool {
    state.splits.last().is_some_and(|split| version < split.version)
}

/// Copies a message for all rows to every sibling its sender did not know.
pub(super) fn forward_to_all(runtime: &Runtime, state: &PartitionState, message: &Message, dataflow: &Dataflow) {
    let version = message.header.table_version;
    for split in state.splits.iter().filter(|split| version < split.version) {
        forward(runtime, message.header, split.sibling, message, dataflow);
    }
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
    forward(runtime, message.header, sibling_of(state, position), message, dataflow);
    true
}

fn forward(runtime: &Runtime, header: Header, sibling: PartitionId, message: &Message, dataflow: &Dataflow) {
    let commands: Vec<&[u8]> = message.commands().collect();
    let header = Header { target: Some(sibling), forwarded: true, ..header };
    #[cfg(feature = "bug_split_loses_command")]
    {
        let _ = (runtime, header, commands, dataflow);
    }
    #[cfg(not(feature = "bug_split_loses_command"))]
    {
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send(&Message::new(header, &commands));
    }
}

pub(super) fn sibling_of(state: &PartitionState, position: &Key) -> PartitionId {
    let split = state.splits.iter().find(|split| split.bounds.contains(position));
    split.unwrap_or_else(|| unreachable!("a position belongs to this partition or to one that split off it")).sibling
}

/// Whether a position belongs here.
pub(crate) fn is_own_position(state: &PartitionState, position: &Key) -> bool {
    state.bounds.contains(position)
}

/// Keeps the rows that belong here and sends the others to their siblings as inserts or sealed rows.
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
    if !partitioning.has_positions() || !is_stale(state, header.table_version) {
        return Ok(rows);
    }
    let mut own: Vec<u32> = Vec::with_capacity(rows.rows);
    let mut leaving: Vec<(PartitionId, Vec<u32>)> = Vec::new();
    for row in 0..rows.rows {
        let position = partitioning.position_of_row(&rows, row);
        if is_own_position(state, &position) {
            own.push(row as u32);
            continue;
        }
        let sibling = sibling_of(state, &position);
        match leaving.iter_mut().find(|(known, _)| *known == sibling) {
            Some((_, list)) => list.push(row as u32),
            None => leaving.push((sibling, vec![row as u32])),
        }
    }
    if leaving.is_empty() {
        return Ok(rows);
    }
    assert!(!state.splits.is_empty(), "partition {} forwards rows only after a split", partition.id.0);
    for (sibling, list) in leaving {
        let index = dataflow.attach(attachment(rows.take(&list))?);
        let header = Header { target: Some(sibling), forwarded: true, ..*header };
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send(&Message::new(header, &[&index.to_le_bytes()]));
    }
    Ok(rows.take(&own))
}
