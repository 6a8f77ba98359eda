//! Batched lookups: what is asked, and how keys travel in the commands of a message.
//!
//! ```text
//!   keys of fixed size:  | request position u32 | value | value | ...   little-endian, one width for all commands
//!   other keys:          | request position u32 | value | length u32, bytes | ...
//! ```
//! The position is the key's row in the request. It comes back with every row of the answer, so answers of several
//! partitions may arrive in any order. NULL is equal to nothing and is not sent.

use std::sync::Arc;

use eris_storage::{
    AttributeId, Batch, Column, ColumnBuilder, ContainerId, DataType, LookupRequest, Physical, StorageError, Values,
};

use crate::container::Container;
use crate::error::EngineError;
use crate::message::MessageView;

/// How many keys share a message, and how many messages a partition executes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coalescing {
    /// A message for each key; a partition executes message by message.
    None,
    /// A message for each key; a partition takes all of a dataflow's messages from its inbox and executes them as one
    /// batch (the coalescing of 004, section 3.4.6).
    Partition,
    /// The sender puts all keys for a partition into as few messages as possible, and the partition takes all of those.
    #[default]
    Sender,
}

/// A lookup of many keys in one container.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The container.
    pub container: ContainerId,
    /// Key attributes and wanted ones.
    pub request: LookupRequest,
    /// How messages are formed.
    pub coalescing: Coalescing,
}

/// The bytes of one key's command.
#[derive(Clone, Debug)]
pub(crate) struct KeyCodec {
    types: Box<[DataType]>,
    /// Bytes of a command; 0 if they differ.
    pub width: usize,
}

const POSITION_BYTES: usize = 4;
const LENGTH_BYTES: usize = 4;

impl KeyCodec {
    /// For keys of these types.
    pub fn new(types: impl Iterator<Item = DataType>) -> Self {
        let types: Box<[DataType]> = types.collect();
        let fixed = types.iter().all(|data_type| data_type.physical() != Physical::Bytes);
        let width = POSITION_BYTES + types.iter().map(|data_type| data_type.physical().width()).sum::<usize>();
        Self { types, width: if fixed { width } else { 0 } }
    }

    /// For the key attributes of a lookup; an error if there is no such attribute.
    pub fn of(container: &Container, request: &LookupRequest) -> Result<Self, EngineError> {
        let schema = container.schema();
        let types = request.attributes.iter().map(|id| {
            let attribute = schema.attribute(*id);
            attribute.map(|attribute| attribute.data_type).ok_or_else(|| invalid(format!("no attribute {id}")))
        });
        Ok(Self::new(types.collect::<Result<Vec<_>, _>>()?.into_iter()))
    }

    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Bytes of the command of one key.
    pub fn bytes_of(&self, keys: &Batch, row: usize) -> usize {
        if self.width > 0 {
            return self.width;
        }
        let bytes = |column: &Column| match &column.values {
            Values::Bytes(views) => LENGTH_BYTES + views.get(row).len(),
            _ => column.data_type.physical().width(),
        };
        POSITION_BYTES + keys.columns.iter().map(bytes).sum::<usize>()
    }

    /// Appends the command of one key, which has no NULL.
    #[inline]
    pub fn encode(keys: &Batch, row: usize, position: u32, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&position.to_le_bytes());
        for column in &keys.columns {
            match &column.values {
                Values::Int64(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Int32(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Int16(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Int128(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Boolean(values) => buffer.push(values[row]),
                Values::Float32(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Float64(values) => buffer.extend_from_slice(&values[row].to_le_bytes()),
                Values::Bytes(views) => {
                    let bytes = views.get(row);
                    buffer.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                    buffer.extend_from_slice(bytes);
                }
            }
        }
    }
}

/// Keys that arrived at a partition, from one message or many.
#[derive(Debug)]
pub(crate) struct ArrivedKeys {
    /// Which keys of the request they are.
    pub positions: Vec<u32>,
    columns: Vec<ColumnBuilder>,
}

impl ArrivedKeys {
    /// None yet; `codec` is the one of all messages to come.
    pub fn new(codec: &KeyCodec, keys: usize) -> Self {
        let columns = ColumnBuilder::for_batch(codec.types.iter().copied(), keys);
        Self { positions: Vec::with_capacity(keys), columns }
    }

    /// Reads the keys of a message.
    pub fn add(&mut self, message: &MessageView<'_>) {
        if let ([column], Some((bytes, width))) = (&mut self.columns[..], message.commands_of_one_width())
            && column.data_type().physical() == Physical::Int64
        {
            // The key-value store's case, without a choice per key.
            for command in bytes.chunks_exact(width) {
                let (position, value) = command.split_at(POSITION_BYTES);
                self.positions.push(u32::from_le_bytes(array(position)));
                column.push_i64(i64::from_le_bytes(array(value)));
            }
            return;
        }
        for command in message.commands() {
            self.add_command(command);
        }
    }

    fn add_command(&mut self, command: &[u8]) {
        let mut rest = command;
        let mut next = |bytes: usize| {
            let (value, after) = rest.split_at(bytes);
            rest = after;
            value
        };
        self.positions.push(u32::from_le_bytes(array(next(POSITION_BYTES))));
        for column in &mut self.columns {
            match column.data_type().physical() {
                Physical::Boolean => column.push_bool(next(1)[0]),
                Physical::Int16 => column.push_i16(i16::from_le_bytes(array(next(2)))),
                Physical::Int32 => column.push_i32(i32::from_le_bytes(array(next(4)))),
                Physical::Int64 => column.push_i64(i64::from_le_bytes(array(next(8)))),
                Physical::Int128 => column.push_i128(i128::from_le_bytes(array(next(16)))),
                Physical::Float32 => column.push_f32(f32::from_le_bytes(array(next(4)))),
                Physical::Float64 => column.push_f64(f64::from_le_bytes(array(next(8)))),
                Physical::Bytes => {
                    let length = u32::from_le_bytes(array(next(LENGTH_BYTES))) as usize;
                    column.push_bytes(next(length));
                }
            }
        }
        assert!(rest.is_empty(), "the command of a key has its values and no more");
    }

    /// The keys, one column an attribute, and their positions.
    pub fn finish(self) -> (Batch, Vec<u32>) {
        let columns = self.columns.into_iter().map(ColumnBuilder::finish).collect();
        (Batch { columns, rows: self.positions.len() }, self.positions)
    }
}

fn array<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    bytes.try_into().unwrap_or_else(|_| unreachable!("the values of a key have the sizes of its types"))
}

/// Where the partitioning attributes are among the key columns; none if the keys do not have them all, so that a key
/// may be in any partition.
pub(crate) fn position_columns(partitioning: &[AttributeId], request: &LookupRequest) -> Option<Vec<usize>> {
    let place = |id: &AttributeId| request.attributes.iter().position(|other| other == id);
    partitioning.iter().map(place).collect()
}

/// A mistake of the caller.
pub(crate) fn invalid(reason: String) -> EngineError {
    StorageError::InvalidRequest { reason }.into()
}

/// The first column of an answer: positions of the request.
pub(crate) fn position_column(positions: impl ExactSizeIterator<Item = u32>) -> Column {
    let mut column = ColumnBuilder::with_capacity(DataType::Int32, positions.len());
    for position in positions {
        column.push_i32(position as i32);
    }
    column.finish()
}

/// Shared by what names lookups.
pub(crate) type SharedCodec = Arc<KeyCodec>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Header, MessageWriter, Primitive};
    use crate::{DataflowId, OperatorIndex, TableVersion};
    use eris_platform::{NodeId, SeededRandom};
    use eris_storage::{SchemaVersion, StatementNumber, TransactionId, Value};

    fn header() -> Header {
        Header {
            primitive: Primitive::LookupKeys,
            operator: OperatorIndex(0),
            target: None,
            container: ContainerId(1),
            schema_version: SchemaVersion(1),
            table_version: TableVersion(1),
            dataflow: DataflowId(1),
            transaction: TransactionId(1),
            statement: StatementNumber(1),
            source: NodeId(0),
            forwarded: false,
            range: None,
        }
    }

    fn value(random: &mut SeededRandom, data_type: DataType) -> Value {
        match data_type {
            DataType::Boolean => Value::Boolean(random.chance(0.5)),
            DataType::Int16 => Value::Int16(random.next_u64() as i16),
            DataType::Int32 => Value::Int32(random.next_u64() as i32),
            DataType::Int64 => Value::Int64(random.next_u64() as i64),
            DataType::Float32 => Value::Float32(random.below(100) as f32),
            DataType::Float64 => Value::Float64(random.below(100) as f64),
            DataType::Decimal { scale, .. } => Value::Decimal { unscaled: i128::from(random.below(1_000)), scale },
            _ => Value::Text("ein langer oder kurzer Text"[..random.index(20)].into()),
        }
    }

    #[test]
    fn keys_of_every_type_arrive_as_they_were_sent() {
        let fixed = [DataType::Int64];
        let mixed = [
            DataType::Boolean,
            DataType::Int16,
            DataType::Int32,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal { precision: 30, scale: 2 },
        ];
        let variable = [DataType::Int64, DataType::Text, DataType::Int16];
        let mut random = SeededRandom::new(3);
        for types in [&fixed[..], &mixed[..], &variable[..]] {
            let codec = KeyCodec::new(types.iter().copied());
            let rows: Vec<Vec<Value>> =
                (0..200).map(|_| types.iter().map(|data_type| value(&mut random, *data_type)).collect()).collect();
            let keys = Batch::from_rows(types, &rows);
            let mut arrived = ArrivedKeys::new(&codec, 7);
            for first in (0..200).step_by(50) {
                let mut buffer = Vec::new();
                let mut writer = MessageWriter::new(&mut buffer, &header(), codec.width);
                for row in first..first + 50 {
                    writer.push(|bytes| {
                        let before = bytes.len();
                        KeyCodec::encode(&keys, row, 1_000 + row as u32, bytes);
                        assert_eq!(bytes.len() - before, codec.bytes_of(&keys, row));
                    });
                }
                writer.finish();
                arrived.add(&MessageView::decode(&buffer).expect("just encoded").0);
            }
            let (back, positions) = arrived.finish();
            assert_eq!((0..200).map(|row| back.row(row)).collect::<Vec<_>>(), rows);
            assert_eq!(positions, (1_000..1_200).collect::<Vec<u32>>());
        }
    }
}
