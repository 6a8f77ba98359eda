//! The message format: ids and command bytes, nothing that points into memory (figure 3.24 of the sources, with ids).
//!
//! ```text
//!  byte 0        4       6       8               16          20          24          28          32
//!       +--------+-------+-------+---------------+-----------+-----------+-----------+-----------+
//!       | length | prim  | oper. | target LP     | container | schema    | table     | commands  |
//!       |  u32   |  u16  |  u16  | u64, MAX=all  |   u32     | version   | version   |   u32     |
//!       +--------+-------+-------+---------------+-----------+-----------+-----------+-----------+
//!  byte 32               40              48          52      54      56              64
//!       +----------------+---------------+-----------+-------+-------+---------------+
//!       | dataflow u64   | transaction   | statement | node  | flags | zero          |
//!       +----------------+---------------+-----------+-------+-------+---------------+
//!       commands, each: length u32, bytes; the whole message is padded to a multiple of 8
//! ```
//!
//! A length that does not fit the bytes, an unknown primitive or a command that runs over the end is an error, not a
//! panic: the same decoder reads messages in tests and fuzzers.

use eris_platform::NodeId;
use eris_storage::{ContainerId, PartitionId, SchemaVersion, StatementNumber, TransactionId};
use thiserror::Error;

use crate::ids::{DataflowId, OperatorIndex, TableVersion};

/// Size of a header; messages are 8-byte aligned.
pub const HEADER_BYTES: usize = 64;
const _: () = assert!(HEADER_BYTES.is_multiple_of(8), "headers keep messages 8-byte aligned");

const BROADCAST: u64 = u64::MAX;
const FLAG_FORWARDED: u16 = 1;

/// How a message touches the rows of its partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Primitive {
    /// Insertion of rows.
    Insert = 1,
    /// All qualifying rows, in no order.
    UnorderedScan = 2,
    /// Rows with given key values.
    Lookup = 3,
    /// Insert or merge, for temporary containers.
    ConditionalInsert = 4,
    /// Qualifying rows in index order.
    OrderedScan = 5,
    /// Control: registration of sealed segments.
    Attach = 6,
    /// Control: pins of sealed segments for readers outside.
    Pin = 7,
    /// Control: build an index over the rows.
    BuildIndex = 8,
    /// Control: move to another version of the schema.
    Alter = 9,
}

/// Scheduling class inside a partition, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Pins and other control messages.
    Control,
    /// Point accesses and inserts.
    Point,
    /// Scans.
    Scan,
    /// Bulk loads and index builds.
    Load,
}

/// Number of [`Class`]es.
pub const CLASSES: usize = 4;

impl Primitive {
    fn from_bits(bits: u16) -> Option<Self> {
        Some(match bits {
            1 => Self::Insert,
            2 => Self::UnorderedScan,
            3 => Self::Lookup,
            4 => Self::ConditionalInsert,
            5 => Self::OrderedScan,
            6 => Self::Attach,
            7 => Self::Pin,
            8 => Self::BuildIndex,
            9 => Self::Alter,
            _ => return None,
        })
    }

    /// The class in which a partition schedules it.
    pub fn class(self) -> Class {
        match self {
            Self::Pin | Self::Alter => Class::Control,
            Self::Insert | Self::Lookup | Self::ConditionalInsert => Class::Point,
            Self::UnorderedScan | Self::OrderedScan => Class::Scan,
            Self::Attach | Self::BuildIndex => Class::Load,
        }
    }
}

/// The fixed part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub primitive: Primitive,
    pub operator: OperatorIndex,
    /// `None`: every partition of the container in `table_version`.
    pub target: Option<PartitionId>,
    pub container: ContainerId,
    pub schema_version: SchemaVersion,
    pub table_version: TableVersion,
    pub dataflow: DataflowId,
    pub transaction: TransactionId,
    pub statement: StatementNumber,
    /// The node that sent it first.
    pub source: NodeId,
    /// Passed on by a partition that had given rows away.
    pub forwarded: bool,
}

/// One decoded message; its commands stay in their bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub header: Header,
    pub command_count: u32,
    commands: Box<[u8]>,
}

/// Bytes that are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MessageError {
    #[error("{0} bytes are too few for a message header")]
    Truncated(usize),
    #[error("message length {length} does not fit {available} available bytes")]
    Length { length: usize, available: usize },
    #[error("unknown access primitive {0}")]
    Primitive(u16),
    #[error("command {0} runs over the end of its message")]
    Command(u32),
}

impl Message {
    /// A message from its commands.
    pub fn new(header: Header, commands: &[&[u8]]) -> Self {
        let bytes = commands.iter().map(|command| 4 + command.len()).sum();
        let mut buffer = Vec::with_capacity(bytes);
        for command in commands {
            buffer.extend_from_slice(&(command.len() as u32).to_le_bytes());
            buffer.extend_from_slice(command);
        }
        Self { header, command_count: commands.len() as u32, commands: buffer.into_boxed_slice() }
    }

    /// The commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.commands;
        (0..self.command_count).map(move |_| {
            let (length, after) = rest.split_at(4);
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let (command, after) = after.split_at(length);
            rest = after;
            command
        })
    }

    /// Appends the message to a buffer.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let header = &self.header;
        let length = (HEADER_BYTES + self.commands.len()).next_multiple_of(8);
        let start = buffer.len();
        buffer.extend_from_slice(&(length as u32).to_le_bytes());
        buffer.extend_from_slice(&(header.primitive as u16).to_le_bytes());
        buffer.extend_from_slice(&header.operator.0.to_le_bytes());
        buffer.extend_from_slice(&header.target.map_or(BROADCAST, |target| target.0).to_le_bytes());
        buffer.extend_from_slice(&header.container.0.to_le_bytes());
        buffer.extend_from_slice(&header.schema_version.0.to_le_bytes());
        buffer.extend_from_slice(&header.table_version.0.to_le_bytes());
        buffer.extend_from_slice(&self.command_count.to_le_bytes());
        buffer.extend_from_slice(&header.dataflow.0.to_le_bytes());
        buffer.extend_from_slice(&header.transaction.0.to_le_bytes());
        buffer.extend_from_slice(&header.statement.0.to_le_bytes());
        buffer.extend_from_slice(&header.source.0.to_le_bytes());
        let flags = if header.forwarded { FLAG_FORWARDED } else { 0 };
        buffer.extend_from_slice(&flags.to_le_bytes());
        buffer.extend_from_slice(&0_u64.to_le_bytes());
        assert_eq!(buffer.len() - start, HEADER_BYTES, "the header picture and its encoder agree");
        buffer.extend_from_slice(&self.commands);
        buffer.resize(start + length, 0);
    }

    /// Decodes the message at the start of `bytes`; also returns its length.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), MessageError> {
        if bytes.len() < HEADER_BYTES {
            return Err(MessageError::Truncated(bytes.len()));
        }
        let length = u32_at(bytes, 0) as usize;
        if length < HEADER_BYTES || length > bytes.len() || !length.is_multiple_of(8) {
            return Err(MessageError::Length { length, available: bytes.len() });
        }
        let primitive = u16_at(bytes, 4);
        let primitive = Primitive::from_bits(primitive).ok_or(MessageError::Primitive(primitive))?;
        let target = u64_at(bytes, 8);
        let command_count = u32_at(bytes, 28);
        let header = Header {
            primitive,
            operator: OperatorIndex(u16_at(bytes, 6)),
            target: (target != BROADCAST).then_some(PartitionId(target)),
            container: ContainerId(u32_at(bytes, 16)),
            schema_version: SchemaVersion(u32_at(bytes, 20)),
            table_version: TableVersion(u32_at(bytes, 24)),
            dataflow: DataflowId(u64_at(bytes, 32)),
            transaction: TransactionId(u64_at(bytes, 40)),
            statement: StatementNumber(u32_at(bytes, 48)),
            source: NodeId(u16_at(bytes, 52)),
            forwarded: u16_at(bytes, 54) & FLAG_FORWARDED != 0,
        };
        let body = &bytes[HEADER_BYTES..length];
        let mut used = 0;
        for command in 0..command_count {
            if body.len() - used < 4 {
                return Err(MessageError::Command(command));
            }
            let command_bytes = u32_at(body, used) as usize;
            used += 4;
            if body.len() - used < command_bytes {
                return Err(MessageError::Command(command));
            }
            used += command_bytes;
        }
        Ok((Self { header, command_count, commands: body[..used].into() }, length))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;

    fn random_message(random: &mut SeededRandom) -> Message {
        let primitives = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|bits| Primitive::from_bits(bits).expect("known"));
        let header = Header {
            primitive: primitives[random.index(9)],
            operator: OperatorIndex(random.next_u64() as u16),
            target: (random.below(2) == 0).then(|| PartitionId(random.next_u64() >> 1)),
            container: ContainerId(random.next_u64() as u32),
            schema_version: SchemaVersion(random.next_u64() as u32),
            table_version: TableVersion(random.next_u64() as u32),
            dataflow: DataflowId(random.next_u64()),
            transaction: TransactionId(random.next_u64()),
            statement: StatementNumber(random.next_u64() as u32),
            source: NodeId(random.next_u64() as u16),
            forwarded: random.below(2) == 0,
        };
        let commands: Vec<Vec<u8>> =
            (0..random.below(5)).map(|_| (0..random.below(40)).map(|_| random.next_u64() as u8).collect()).collect();
        Message::new(header, &commands.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn messages_survive_the_round_trip() {
        let mut random = SeededRandom::new(7);
        let mut buffer = Vec::new();
        let messages: Vec<Message> = (0..500).map(|_| random_message(&mut random)).collect();
        for message in &messages {
            message.encode(&mut buffer);
        }
        let mut at = 0;
        for expected in &messages {
            let (message, length) = Message::decode(&buffer[at..]).expect("decodes");
            assert_eq!(&message, expected);
            assert_eq!(message.commands().count(), expected.command_count as usize);
            at += length;
        }
        assert_eq!(at, buffer.len());
    }

    #[test]
    fn damaged_messages_are_errors() {
        let mut random = SeededRandom::new(11);
        for _ in 0..2_000 {
            let mut buffer = Vec::new();
            random_message(&mut random).encode(&mut buffer);
            for _ in 0..3 {
                let at = random.below(buffer.len() as u64) as usize;
                buffer[at] = random.next_u64() as u8;
            }
            buffer.truncate(random.below(buffer.len() as u64 + 1) as usize);
            if let Ok((message, length)) = Message::decode(&buffer) {
                assert!(length <= buffer.len());
                assert!(message.commands().count() as u32 == message.command_count);
            }
        }
    }
}
