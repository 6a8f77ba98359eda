//! Lookups of many keys inside a partition: gathered from the inbox, answered in one pass.
//!
//! All messages of one dataflow and operator that wait in the inbox become one command ([`Gathered`]). What it costs to
//! be a command (a look into the registry of dataflows, a cursor, a result, the count of what is finished) is paid once
//! for all of them.
//!
//! **Each row is found once.** Keys that fix a position are looked up by the partition that owns it, and go on to it
//! from one that gave it away; no other partition has such rows. Keys that do not fix one may have rows anywhere, so
//! every partition is asked, as by a scan: such a message concerns a range of positions (see [`super::forward`]), the
//! part of it that lies elsewhere goes on with a copy of the keys, and what is found here is kept to the part that
//! lies here. Messages are put together only if they agree in what they concern.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_storage::{Batch, Column, Found, Gateway, LookupCursor, PartitionId, RowLock, StatementNumber};

use super::forward::{Concern, divide, is_own_position, owner_of, passed_on};
use super::within::Within;
use super::{Bounds, PartitionState};
use crate::counters::Event;
use crate::dataflow::{Dataflow, Work};
use crate::lookup::{ArrivedKeys, Coalescing, KeyCodec, Lookup, SharedCodec, position_column, position_columns};
use crate::message::{Class, Header, MessageView, MessageWriter};
use crate::operator::OperatorState;
use crate::runtime::Runtime;

/// Keys for which room is made when the first message arrives.
const KEYS_EXPECTED: usize = 256;

/// Messages of one dataflow and operator, not started.
pub(crate) struct Gathered {
    pub dataflow: Arc<Dataflow>,
    /// Of the first message.
    pub header: Header,
    pub messages: usize,
    pub keys: ArrivedKeys,
}

/// A lookup under way.
pub(crate) struct LookingUp {
    pub cursor: LookupCursor,
    pub positions: Vec<u32>,
    /// Keeps what is found to what the messages concern.
    pub within: Option<Within>,
    pub state: Box<dyn OperatorState>,
}

/// What becomes of the rows that a lookup finds.
#[derive(Clone, Copy)]
pub(super) struct LockFound {
    pub lock: RowLock,
    /// The statement whose locks they are; it may see less than the lookup does.
    pub statement: StatementNumber,
}

/// What is looked up here.
pub(super) struct OwnKeys {
    pub keys: Batch,
    pub positions: Vec<u32>,
    /// Rows of these positions only.
    pub range: Option<Bounds>,
}

/// Takes messages from an inbox, one after the other, and puts those together that are answered together.
#[derive(Default)]
pub(crate) struct Gathering {
    groups: Vec<Group>,
    /// The group of the last message.
    last: usize,
    /// The dataflow of the last message that is answered alone.
    known: Option<Arc<Dataflow>>,
}

/// Messages of one dataflow and operator that concern the same positions.
enum Group {
    Keys(Gathered),
    /// Commands that touch no row: their number and the sum of their first bytes, so that they are at least looked at.
    Probes {
        dataflow: Arc<Dataflow>,
        header: Header,
        messages: usize,
        commands: u64,
        sum: u64,
    },
}

impl Group {
    fn takes(&self, other: &Header) -> bool {
        let header = match self {
            Self::Keys(gathered) => &gathered.header,
            Self::Probes { header, .. } => header,
        };
        header.dataflow == other.dataflow
            && header.operator == other.operator
            && header.forwarded == other.forwarded
            && header.range == other.range
    }

    fn add(&mut self, message: &MessageView<'_>) {
        match self {
            Self::Keys(gathered) => {
                gathered.messages += 1;
                gathered.keys.add(message);
            }
            Self::Probes { messages, commands, sum, .. } => {
                *messages += 1;
                *commands += u64::from(message.command_count);
                for command in message.commands() {
                    *sum = sum.wrapping_add(probe_value(command));
                }
            }
        }
    }
}

/// What a probe's command adds to the sum.
pub(crate) fn probe_value(command: &[u8]) -> u64 {
    let mut first = [0; 8];
    let bytes = command.len().min(8);
    first[..bytes].copy_from_slice(&command[..bytes]);
    u64::from_le_bytes(first)
}

impl Gathering {
    /// Adds a message to the others of its dataflow.
    pub fn add(&mut self, runtime: &Runtime, message: &MessageView<'_>, mut ready: impl FnMut(Gathered)) {
        let header = &message.header;
        let takes = |group: &Group| group.takes(header);
        if !self.groups.get(self.last).is_some_and(takes) {
            self.last = self.groups.iter().position(takes).unwrap_or(self.groups.len());
        }
        if let Some(group) = self.groups.get_mut(self.last) {
            return group.add(message);
        }
        let dataflow = match &self.known {
            Some(known) if known.id == header.dataflow => Arc::clone(known),
            _ => runtime.dataflow(header.dataflow),
        };
        self.known = Some(Arc::clone(&dataflow));
        let mut group = match &dataflow.operator(header.operator).work {
            Work::Lookup { lookup, codec, .. } | Work::LockKeys { lookup, codec, .. } => {
                let alone = lookup.coalescing == Coalescing::None;
                let expected = if alone { message.command_count as usize } else { KEYS_EXPECTED };
                let mut keys = ArrivedKeys::new(codec, expected);
                if alone {
                    keys.add(message);
                    return ready(Gathered { dataflow: Arc::clone(&dataflow), header: *header, messages: 1, keys });
                }
                Group::Keys(Gathered { dataflow: Arc::clone(&dataflow), header: *header, messages: 0, keys })
            }
            Work::Probe => {
                let dataflow = Arc::clone(&dataflow);
                Group::Probes { dataflow, header: *header, messages: 0, commands: 0, sum: 0 }
            }
            _ => unreachable!("keys and probes go to operators for them"),
        };
        group.add(message);
        self.groups.push(group);
    }

    /// Finishes probes and gives every group of keys to `ready`.
    pub fn finish(self, runtime: &Runtime, mut ready: impl FnMut(Gathered)) {
        for group in self.groups {
            match group {
                Group::Keys(gathered) => ready(gathered),
                Group::Probes { dataflow, messages, commands, sum, .. } => {
                    runtime.counters.add(Event::Commands, commands);
                    dataflow.add_probed(commands, sum);
                    runtime.finish_commands(&dataflow, messages);
                }
            }
        }
    }
}

fn parts(dataflow: &Dataflow, header: &Header) -> (Lookup, SharedCodec) {
    match &dataflow.operator(header.operator).work {
        Work::Lookup { lookup, codec, .. } | Work::LockKeys { lookup, codec, .. } => {
            (lookup.clone(), Arc::clone(codec))
        }
        _ => unreachable!("keys go to operators that look them up"),
    }
}

/// The keys that concern this partition; what concerns others is passed on.
pub(super) fn own_keys(
    runtime: &Runtime,
    own: PartitionId,
    state: &PartitionState,
    header: &Header,
    dataflow: &Dataflow,
    keys: ArrivedKeys,
) -> OwnKeys {
    let (keys, positions) = keys.finish();
    if !header.forwarded && header.table_version >= state.changed {
        return OwnKeys { keys, positions, range: None };
    }
    let (lookup, codec) = parts(dataflow, header);
    let partitioning = &dataflow.operator(header.operator).table.partitioning;
    let columns = position_columns(partitioning.attributes(), &lookup.request);
    let Some(columns) = columns.filter(|_| partitioning.has_positions()) else {
        let all: Vec<u32> = (0..keys.rows as u32).collect();
        let (here, others) = divide(state, header, own, dataflow);
        for (to, range) in others {
            send_keys(runtime, header, (to, range.as_ref()), dataflow, &codec, (&keys, &positions), &all);
        }
        return match here {
            Concern::All => OwnKeys { keys, positions, range: None },
            Concern::Within(range) => OwnKeys { keys, positions, range: Some(range) },
            Concern::Nothing => OwnKeys { keys: keys.take(&[]), positions: Vec::new(), range: None },
        };
    };
    let located = keys.project(&columns);
    let mut here: Vec<u32> = Vec::with_capacity(keys.rows);
    let mut leaving: Vec<(PartitionId, Vec<u32>)> = Vec::new();
    for row in 0..keys.rows {
        let position = partitioning.position_of_key_row(&located, row);
        if is_own_position(state, &position) {
            here.push(row as u32);
            continue;
        }
        let owner = owner_of(state, &position);
        match leaving.iter_mut().find(|(known, _)| *known == owner) {
            Some((_, rows)) => rows.push(row as u32),
            None => leaving.push((owner, vec![row as u32])),
        }
    }
    if leaving.is_empty() {
        return OwnKeys { keys, positions, range: None };
    }
    for (owner, rows) in leaving {
        send_keys(runtime, header, (owner, None), dataflow, &codec, (&keys, &positions), &rows);
    }
    let positions = here.iter().map(|row| positions[*row as usize]).collect();
    OwnKeys { keys: keys.take(&here), positions, range: None }
}

/// Passes keys on. Each message has a range of its own, because it is taken once.
fn send_keys(
    runtime: &Runtime,
    header: &Header,
    (to, range): (PartitionId, Option<&Bounds>),
    dataflow: &Dataflow,
    codec: &SharedCodec,
    (keys, positions): (&Batch, &[u32]),
    rows: &[u32],
) {
    for part in runtime.parts_of_keys(codec, keys, rows) {
        let header = passed_on(header, to, range.cloned(), dataflow);
        #[cfg(feature = "bug_split_loses_command")]
        if header.forwarded {
            // Planted: see `forward`.
            continue;
        }
        dataflow.count_sends(1);
        runtime.counters.add(Event::Forwarded, 1);
        runtime.send_with(Class::Point, |buffer| {
            let mut writer = MessageWriter::new(buffer, &header, codec.width);
            for row in part {
                let position = positions[*row as usize];
                writer.push(|bytes| KeyCodec::encode(keys, *row as usize, position, bytes));
            }
            writer.finish();
        });
    }
}

/// What is found, with the request's positions as first column.
pub(super) fn gateway(positions: &[u32], found: Found) -> Gateway {
    let first = position_column(found.keys.iter().map(|key| positions[*key as usize]));
    let columns: Vec<Column> = std::iter::once(first).chain(found.batch.columns).collect();
    Gateway { batch: Batch { columns: columns.into(), rows: found.batch.rows }, addresses: Box::default() }
}

/// The first row of each key.
pub(super) fn one_of_each_key(found: Found) -> Found {
    let Found { keys, batch, addresses } = found;
    assert!(addresses.len() == keys.len(), "rows that are to be locked come with their addresses");
    let mut seen = BTreeSet::new();
    let first: Vec<u32> = (0..keys.len() as u32).filter(|row| seen.insert(keys[*row as usize])).collect();
    if first.len() == keys.len() {
        return Found { keys, batch, addresses };
    }
    Found {
        keys: first.iter().map(|row| keys[*row as usize]).collect(),
        batch: batch.take(&first),
        addresses: first.iter().map(|row| addresses[*row as usize]).collect(),
    }
}
