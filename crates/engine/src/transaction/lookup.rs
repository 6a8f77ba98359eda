//! Lookups of many keys as messages, and probes of the message layer itself.
//!
//! ```text
//!   keys:         k0 k1 k2 k3 k4 k5        one column for each key attribute
//!   partition:     a  b  a  a  b  a        by the partition table, all at once
//!   messages:     a: k0 k2 k3 k5   b: k1 k4    (or one for each key, see [`Coalescing`])
//! ```
//! Keys that do not name a partition go to all of them.

use std::sync::Arc;

use eris_storage::{Batch, Column, ContainerId, Key, Values};

use super::{StreamGuard, Transaction};
use crate::dataflow::{Dataflow, Work};
use crate::error::EngineError;
use crate::ids::OperatorIndex;
use crate::lookup::{Coalescing, KeyCodec, Lookup, SharedCodec, invalid, position_columns};
use crate::message::{Class, HEADER_BYTES, MessageWriter, Primitive};
use crate::operator::{Collect, MicroOperator};
use crate::partition::{Partition, probe_value};
use crate::partition_table::{PartitionTable, Partitioning};
use crate::results::Results;
use crate::runtime::Runtime;
use crate::table_locks::TableLockMode;
use crate::transactions::SnapshotHandle;

/// Messages with keys are not longer than this, so that a sender's buffer is filled by several.
const KEY_MESSAGE_BYTES_MAX: usize = 32 << 10;

/// No-op commands: what they cost is what messages cost.
#[derive(Clone, Debug)]
pub struct Probes {
    /// Its partitions receive them in turn.
    pub container: ContainerId,
    /// How many commands.
    pub commands: usize,
    /// Bytes of each, at least 8.
    pub command_bytes: usize,
    /// How many share a message.
    pub commands_per_message: usize,
}

/// What arrived of [`Probes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeReport {
    /// Commands that arrived.
    pub commands: u64,
    /// The sum of their first eight bytes.
    pub sum: u64,
    /// What the sum was when they were sent.
    pub sent_sum: u64,
}

/// Messages of keys: to a partition, or to all of them.
struct KeyMessage<'r> {
    partition: Option<&'r Partition>,
    rows: &'r [u32],
}

impl Transaction {
    /// Looks up many keys at once. The batches of the answer have the position of the key in `keys` as their first
    /// column (`Int32`), then the desired attributes; `operator` gets the same batches inside each partition. Batches
    /// and rows come in no order; a key without a visible row has no row in the answer.
    ///
    /// # Errors
    /// If there is no such container or attribute, a key column is not of its attribute's type, a key is longer than a
    /// message can be, or there is no memory for the messages.
    pub fn lookup_many(
        &mut self,
        lookup: Lookup,
        keys: &Batch,
        operator: Option<Arc<dyn MicroOperator>>,
    ) -> Result<Results, EngineError> {
        let operator = operator.unwrap_or_else(|| Arc::new(Collect));
        let container = self.runtime.view(lookup.container)?.container.clone();
        self.use_table_now(&container, TableLockMode::AccessShare)?;
        self.track_lookup(&lookup, keys)?;
        let snapshot = Arc::clone(self.snapshot());
        self.send_lookup(lookup, keys, snapshot, |lookup, codec| Work::Lookup { lookup, codec, operator })
    }

    /// Sends keys to the partitions that may have them.
    pub(super) fn send_lookup(
        &mut self,
        lookup: Lookup,
        keys: &Batch,
        snapshot: Arc<SnapshotHandle>,
        work: impl FnOnce(Lookup, SharedCodec) -> Work,
    ) -> Result<Results, EngineError> {
        let container = self.runtime.container(lookup.container)?;
        let table = container.table();
        let codec = Arc::new(KeyCodec::of(&container, &lookup.request)?);
        if !codec.types().iter().copied().eq(keys.columns.iter().map(|column| column.data_type)) {
            return Err(invalid(format!("keys of {:?} for attributes of {:?}", keys.data_types(), codec.types())));
        }
        let rows: Vec<u32> =
            (0..keys.rows as u32).filter(|row| !keys.columns.iter().any(|c| c.is_null(*row as usize))).collect();
        let bytes_max = self.runtime.key_message_bytes_max();
        if codec.width == 0 || codec.width > bytes_max {
            let fits = |row: &u32| codec.bytes_of(keys, *row as usize) + COMMAND_LENGTH_BYTES <= bytes_max;
            if !rows.iter().all(fits) {
                return Err(invalid(format!("a key is longer than {bytes_max} bytes")));
            }
        }
        let coalescing = lookup.coalescing;
        let columns = position_columns(table.partitioning.attributes(), &lookup.request);
        let work = work(lookup, Arc::clone(&codec));
        let dataflow = self.dataflow_of(vec![Self::operator(&container, &table, work, None)], snapshot);
        let groups = match columns.filter(|_| table.partitioning.has_positions()) {
            Some(columns) => rows_by_partition(&table, &keys.project(&columns), &rows),
            None => vec![(None, rows)],
        };
        let mut messages = Vec::new();
        for (partition, rows) in &groups {
            let parts = match coalescing {
                Coalescing::None | Coalescing::Partition => rows.chunks(1).collect(),
                Coalescing::Sender => self.runtime.parts_of_keys(&codec, keys, rows),
            };
            messages.extend(parts.into_iter().map(|rows| KeyMessage { partition: *partition, rows }));
        }
        let header = |partition| self.header(&dataflow, Primitive::LookupKeys, partition);
        let all = dataflow.operator(OperatorIndex(0)).receivers().len();
        let receivers = |message: &KeyMessage<'_>| message.partition.map_or(all, |_| 1);
        let sends = messages.iter().map(receivers).sum();
        let bytes = messages.iter().map(|message| receivers(message) * bytes_of(&codec, keys, message.rows)).sum();
        if bytes > self.runtime.options.worker_buffer_bytes {
            dataflow.charge_messages(bytes)?;
        }
        self.publish(&dataflow, sends, |runtime| {
            let mut last = None;
            for message in &messages {
                let header = match last {
                    Some((partition, header)) if same(partition, message.partition) => header,
                    _ => header(message.partition),
                };
                last = Some((message.partition, header));
                runtime.send_with(Class::Point, |buffer| {
                    let mut writer = MessageWriter::new(buffer, &header, codec.width);
                    for row in message.rows {
                        writer.push(|bytes| KeyCodec::encode(keys, *row as usize, *row, bytes));
                    }
                    writer.finish();
                });
            }
        });
        Ok(Results::new(&self.runtime, dataflow, self.cancel().clone(), StreamGuard::new(self.hold.object())))
    }

    /// Sends commands that touch no row and waits until all have arrived.
    pub async fn probe(&mut self, probes: &Probes) -> Result<ProbeReport, EngineError> {
        let container = self.runtime.container(probes.container)?;
        let table = container.table();
        let per_message = probes.commands_per_message.max(1);
        let bytes = probes.command_bytes.max(8);
        if HEADER_BYTES + per_message * bytes > self.runtime.options.incoming_buffer_bytes {
            return Err(invalid(format!("{per_message} commands of {bytes} bytes do not fit into a buffer")));
        }
        let dataflow = self.dataflow(vec![Self::operator(&container, &table, Work::Probe, None)]);
        let headers: Vec<_> =
            table.partitions().map(|partition| self.header(&dataflow, Primitive::Probe, Some(partition))).collect();
        let mut sent_sum = 0_u64;
        self.publish(&dataflow, probes.commands.div_ceil(per_message), |runtime| {
            let mut command = vec![0; bytes];
            for (number, first) in (0..probes.commands).step_by(per_message).enumerate() {
                runtime.send_with(Class::Point, |buffer| {
                    let mut writer = MessageWriter::new(buffer, &headers[number % headers.len()], bytes);
                    for value in first..probes.commands.min(first + per_message) {
                        command[..8].copy_from_slice(&(value as u64).to_le_bytes());
                        sent_sum = sent_sum.wrapping_add(probe_value(&command));
                        writer.push(|buffer| buffer.extend_from_slice(&command));
                    }
                    writer.finish();
                });
            }
        });
        let results =
            Results::new(&self.runtime, dataflow, self.cancel().clone(), StreamGuard::new(self.hold.object()));
        let summary = results.finish().await?;
        Ok(ProbeReport { commands: summary.rows_affected, sum: summary.probe_sum, sent_sum })
    }

    /// Counts `sends` and has `send` publish them. The extra count keeps the dataflow alive until all are sent.
    fn publish(&self, dataflow: &Arc<Dataflow>, sends: usize, send: impl FnOnce(&Runtime)) {
        dataflow.count_sends(1 + sends);
        self.runtime.add_dataflow(Arc::clone(dataflow));
        send(&self.runtime);
        self.runtime.finish_commands(dataflow, 1);
    }
}

const COMMAND_LENGTH_BYTES: usize = 4;

/// Bytes of a message with these keys.
fn bytes_of(codec: &KeyCodec, keys: &Batch, rows: &[u32]) -> usize {
    let commands = match codec.width {
        0 => rows.iter().map(|row| codec.bytes_of(keys, *row as usize) + COMMAND_LENGTH_BYTES).sum(),
        width => rows.len() * width,
    };
    HEADER_BYTES + commands
}

fn same(left: Option<&Partition>, right: Option<&Partition>) -> bool {
    left.map(|partition| partition.id) == right.map(|partition| partition.id)
}

impl Runtime {
    /// Bytes of the commands of a message with keys, at most.
    fn key_message_bytes_max(&self) -> usize {
        let buffer = self.options.incoming_buffer_bytes.min(KEY_MESSAGE_BYTES_MAX);
        buffer.saturating_sub(HEADER_BYTES)
    }

    /// Cuts keys for one partition into messages that fit into a buffer; at least one key in each.
    pub(crate) fn parts_of_keys<'r>(&self, codec: &KeyCodec, keys: &Batch, rows: &'r [u32]) -> Vec<&'r [u32]> {
        let bytes_max = self.key_message_bytes_max();
        if let Some(keys_max) = bytes_max.checked_div(codec.width) {
            return rows.chunks(keys_max.max(1)).collect();
        }
        let mut parts = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (at, row) in rows.iter().enumerate() {
            let more = COMMAND_LENGTH_BYTES + codec.bytes_of(keys, *row as usize);
            if at > start && bytes + more > bytes_max {
                parts.push(&rows[start..at]);
                (start, bytes) = (at, 0);
            }
            bytes += more;
        }
        if start < rows.len() {
            parts.push(&rows[start..]);
        }
        parts
    }
}

/// The rows of each partition that has some. `keys` are the partitioning attributes only, in their order.
fn rows_by_partition<'t>(
    table: &'t PartitionTable,
    keys: &Batch,
    rows: &[u32],
) -> Vec<(Option<&'t Partition>, Vec<u32>)> {
    let entries = table.entries();
    if entries.len() == 1 {
        return vec![(Some(&entries[0].partition), rows.to_vec())];
    }
    let expected = 2 * rows.len() / entries.len();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    groups.resize_with(entries.len(), Vec::new);
    let mut add = |entry: usize, row: u32| {
        let group = &mut groups[entry];
        if group.capacity() == 0 {
            group.reserve(expected.max(4));
        }
        group.push(row);
    };
    match PackedBounds::new(table, keys) {
        Some(bounds) => {
            for row in rows {
                add(bounds.entry_of(*row as usize), *row);
            }
        }
        None => {
            for row in rows {
                let position = table.partitioning.position_of_key_row(keys, *row as usize);
                add(table.index_of(&position), *row);
            }
        }
    }
    let groups = entries.iter().zip(groups).filter(|(_, rows)| !rows.is_empty());
    groups.map(|(entry, rows)| (Some(&entry.partition), rows)).collect()
}

/// Ranges over one integer: bounds and positions as words that compare as their bytes do. The last byte of a word is
/// the length: where rising keys are cut, a bound is the highest key and a zero more, and lies above that key.
struct PackedBounds<'k> {
    lower: Vec<u128>,
    keys: &'k Column,
}

impl<'k> PackedBounds<'k> {
    fn new(table: &PartitionTable, keys: &'k Batch) -> Option<Self> {
        let (Partitioning::Range(_), [column]) = (&*table.partitioning, &keys.columns[..]) else { return None };
        if !matches!(column.values, Values::Int64(_) | Values::Int32(_) | Values::Int16(_)) {
            return None;
        }
        let lower = table.entries().iter().map(|entry| entry.lower.as_ref().map_or(Some(0), packed));
        Some(Self { lower: lower.collect::<Option<_>>()?, keys: column })
    }

    fn entry_of(&self, row: usize) -> usize {
        // As positions are encoded: a tag that says "not NULL", then the value with its sign turned, big-endian.
        let (value, bytes) = match &self.keys.values {
            Values::Int64(values) => (values[row] as u64 ^ 1 << 63, 8),
            Values::Int32(values) => (u64::from(values[row] as u32 ^ 1 << 31), 4),
            Values::Int16(values) => (u64::from(values[row] as u16 ^ 1 << 15), 2),
            _ => unreachable!("only integers are packed"),
        };
        let position = 1 << 120 | u128::from(value) << (120 - bytes * 8) | (1 + bytes);
        self.lower.partition_point(|lower| *lower <= position) - 1
    }
}

/// The bytes of a bound, most significant first, then zeros, then how many they are; none if they are too many.
fn packed(bound: &Key) -> Option<u128> {
    let mut bytes = [0; 16];
    let length = bound.as_bytes().len();
    bytes[..15].get_mut(..length)?.copy_from_slice(bound.as_bytes());
    bytes[15] = length as u8;
    Some(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{DataType, Value, key_of_values};

    #[test]
    fn packed_positions_compare_as_their_bytes() {
        let numbers = [i64::MIN, -70_000, -1, 0, 1, 255, 256, 70_000, i64::MAX];
        for data_type in [DataType::Int64, DataType::Int32, DataType::Int16] {
            let value = |number: i64| match data_type {
                DataType::Int64 => Value::Int64(number),
                DataType::Int32 => Value::Int32(number.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
                _ => Value::Int16(number.clamp(i16::MIN.into(), i16::MAX.into()) as i16),
            };
            let keys = Batch::from_rows(&[data_type], &numbers.map(|number| vec![value(number)]));
            let encoded = |number: i64| key_of_values(&[(&value(number), data_type)]);
            let lower: Vec<u128> = std::iter::once(0)
                .chain(numbers[2..7].iter().map(|number| packed(&encoded(*number)).expect("short")))
                .collect();
            let bounds = PackedBounds { lower, keys: &keys.columns[0] };
            for (row, number) in numbers.iter().enumerate() {
                let expected = numbers[2..7].iter().filter(|bound| encoded(**bound) <= encoded(*number)).count();
                assert_eq!(bounds.entry_of(row), expected, "{number} of {data_type}");
            }
        }
    }

    #[test]
    fn a_key_lies_below_the_bound_that_cuts_behind_it() {
        let keys = Batch::from_rows(&[DataType::Int64], &[161, 162, 163].map(|number| vec![Value::Int64(number)]));
        let highest = key_of_values(&[(&Value::Int64(162), DataType::Int64)]);
        let behind = Key::from_bytes(&[highest.as_bytes(), &[0]].concat());
        let bounds = PackedBounds { lower: vec![0, packed(&behind).expect("short")], keys: &keys.columns[0] };
        assert_eq!([0, 1, 2].map(|row| bounds.entry_of(row)), [0, 0, 1]);
    }
}
