//! The message format: ids and command bytes, nothing that points into memory (figure 3.24 of the sources, with ids).
//!
//! ```text
//!  byte 0        4       6       8               16          20          24          28          32
//!       +--------+-------+-------+---------------+-----------+-----------+-----------+-----------+
//!       | length | prim  | oper. | target LP     | container | schema    | table     | commands  |
//!       |  u32   |  u16  |  u16  | u64, MAX=many |   u32     | version   | version   |   u32     |
//!       +--------+-------+-------+---------------+-----------+-----------+-----------+-----------+
//!  byte 32               40              48          52      54      56          60          64
//!       +----------------+---------------+-----------+-------+-------+-----------+-----------+
//!       | dataflow u64   | transaction   | statement | node  | flags | width u32 | range u32 |
//!       +----------------+---------------+-----------+-------+-------+-----------+-----------+
//!       commands, `width` bytes each; with width 0 each one is preceded by its length (u32)
//!       zeros to the next multiple of 8
//! ```
//!
//! `range` is for messages that are passed on, to partitions that own a part of what their sender meant: it names an
//! attachment of the dataflow, one more than its index, that says which positions the message concerns; 0 is none. It
//! is here and not among the commands, so that messages of every kind can have one, keys of one width as well as scans.
//!
//! Commands of one width, such as the keys of a lookup, need no length each and can be read in a loop without
//! branches. Bytes have at most one meaning: whatever decodes is encoded to the same bytes again. A length that does
//! not fit the bytes, an unknown primitive, a command that runs over the end, or a bit that has no meaning is an error,
//! not a panic: the same decoder reads messages in tests and fuzzers.
//!
//! Messages are read where they are ([`MessageView`]); only a command that has to wait is copied out ([`Message`]).

use eris_platform::NodeId;
use eris_storage::{ContainerId, PartitionId, SchemaVersion, StatementNumber, TransactionId};
use thiserror::Error;

use crate::ids::{DataflowId, OperatorIndex, TableVersion};

/// Size of a header: one cache line.
pub const HEADER_BYTES: usize = 64;
/// Messages begin at multiples of this.
pub const ALIGNMENT_BYTES: usize = 8;
/// The length in front of a command that has one.
const LENGTH_BYTES: usize = 4;
/// The fields of the picture, in its order.
const FIELD_BYTES: usize = 4 + 2 + 2 + 8 + 4 * 4 + 2 * 8 + 4 + 2 + 2 + 4 + 4;
const _: () = assert!(HEADER_BYTES == FIELD_BYTES, "the picture of the header adds up");
const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGNMENT_BYTES), "headers keep messages aligned");

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
    /// Control: other layouts for the segments.
    SetLayout = 10,
    /// Commands that touch no row: what remains is the cost of the message layer.
    Probe = 11,
    /// Rows with the key values of each command: many keys to a message.
    LookupKeys = 12,
}

/// All of them, in the order of their numbers.
pub const PRIMITIVES: [Primitive; 12] = [
    Primitive::Insert,
    Primitive::UnorderedScan,
    Primitive::Lookup,
    Primitive::ConditionalInsert,
    Primitive::OrderedScan,
    Primitive::Attach,
    Primitive::Pin,
    Primitive::BuildIndex,
    Primitive::Alter,
    Primitive::SetLayout,
    Primitive::Probe,
    Primitive::LookupKeys,
];

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
            10 => Self::SetLayout,
            11 => Self::Probe,
            12 => Self::LookupKeys,
            _ => return None,
        })
    }

    /// Its place in [`PRIMITIVES`].
    pub(crate) fn index(self) -> usize {
        self as usize - 1
    }

    /// Name in views and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::UnorderedScan => "unordered_scan",
            Self::Lookup => "lookup",
            Self::ConditionalInsert => "conditional_insert",
            Self::OrderedScan => "ordered_scan",
            Self::Attach => "attach",
            Self::Pin => "pin",
            Self::BuildIndex => "build_index",
            Self::Alter => "alter",
            Self::SetLayout => "set_layout",
            Self::Probe => "probe",
            Self::LookupKeys => "lookup_keys",
        }
    }

    /// The class in which a partition schedules it.
    pub fn class(self) -> Class {
        match self {
            Self::Pin | Self::Alter | Self::SetLayout => Class::Control,
            Self::Insert | Self::Lookup | Self::ConditionalInsert | Self::Probe | Self::LookupKeys => Class::Point,
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
    /// `None`: every partition of `table_version` that the operator is for, which are all without a predicate.
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
    /// The attachment that says which positions it concerns; only of messages that were passed on, and below
    /// `u32::MAX`.
    pub range: Option<u32>,
}

/// A message where it lies, its commands in their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageView<'a> {
    pub header: Header,
    pub command_count: u32,
    /// Bytes of each command; 0 if each is preceded by its length.
    width: u32,
    commands: &'a [u8],
}

/// A message of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub header: Header,
    pub command_count: u32,
    width: u32,
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
    #[error("bits without a meaning are set")]
    Reserved,
}

impl Message {
    /// A message from its commands.
    pub fn new(header: Header, commands: &[&[u8]]) -> Self {
        let bytes = commands.iter().map(|command| LENGTH_BYTES + command.len()).sum();
        let mut buffer = Vec::with_capacity(bytes);
        for command in commands {
            buffer.extend_from_slice(&(command.len() as u32).to_le_bytes());
            buffer.extend_from_slice(command);
        }
        Self { header, command_count: commands.len() as u32, width: 0, commands: buffer.into_boxed_slice() }
    }

    /// The message, without its bytes.
    pub fn view(&self) -> MessageView<'_> {
        let Self { header, command_count, width, commands } = self;
        MessageView { header: *header, command_count: *command_count, width: *width, commands }
    }

    /// The commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = &[u8]> {
        self.view().commands()
    }

    /// Appends the message to a buffer.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        self.view().encode(buffer);
    }
}

/// Writes a message with commands of one width to the end of a buffer, command by command.
#[derive(Debug)]
pub struct MessageWriter<'b> {
    buffer: &'b mut Vec<u8>,
    start: usize,
    width: usize,
    count: u32,
}

impl<'b> MessageWriter<'b> {
    /// Begins a message. Width 0: each command is preceded by its length.
    pub fn new(buffer: &'b mut Vec<u8>, header: &Header, width: usize) -> Self {
        let start = buffer.len();
        write_header(buffer, header, 0, 0, width as u32);
        Self { buffer, start, width, count: 0 }
    }

    /// Adds a command: what `write` appends.
    #[inline]
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        if self.width == 0 {
            self.buffer.extend_from_slice(&[0; LENGTH_BYTES]);
            write(self.buffer);
            let length = (self.buffer.len() - start - LENGTH_BYTES) as u32;
            self.buffer[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        } else {
            write(self.buffer);
            debug_assert_eq!(self.buffer.len() - start, self.width, "a command has the width of its message");
        }
        self.count += 1;
    }

    /// Ends the message.
    pub fn finish(self) {
        let Self { buffer, start, width, count } = self;
        let bytes = buffer.len() - start - HEADER_BYTES;
        assert!(width == 0 || bytes == width * count as usize, "{count} commands of {width} bytes take {bytes}");
        let length = (HEADER_BYTES + bytes).next_multiple_of(ALIGNMENT_BYTES);
        buffer.resize(start + length, 0);
        buffer[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        buffer[start + 28..start + 32].copy_from_slice(&count.to_le_bytes());
    }
}

fn write_header(buffer: &mut Vec<u8>, header: &Header, length: u32, command_count: u32, width: u32) {
    let flags = if header.forwarded { FLAG_FORWARDED } else { 0 };
    let mut bytes = [0; HEADER_BYTES];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    put(&length.to_le_bytes());
    put(&(header.primitive as u16).to_le_bytes());
    put(&header.operator.0.to_le_bytes());
    put(&header.target.map_or(BROADCAST, |target| target.0).to_le_bytes());
    put(&header.container.0.to_le_bytes());
    put(&header.schema_version.0.to_le_bytes());
    put(&header.table_version.0.to_le_bytes());
    put(&command_count.to_le_bytes());
    put(&header.dataflow.0.to_le_bytes());
    put(&header.transaction.0.to_le_bytes());
    put(&header.statement.0.to_le_bytes());
    put(&header.source.0.to_le_bytes());
    put(&flags.to_le_bytes());
    put(&width.to_le_bytes());
    put(&header.range.map_or(0, |index| index + 1).to_le_bytes());
    debug_assert_eq!(at, HEADER_BYTES, "the picture of the header and its encoder agree");
    buffer.extend_from_slice(&bytes);
}

/// What moving a message needs to know, without a look at its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub length: usize,
    pub target: Option<PartitionId>,
}

impl Envelope {
    /// Of the message at the start of bytes that this process encoded.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let length = u32_at(bytes, 0) as usize;
        assert!((HEADER_BYTES..=bytes.len()).contains(&length), "buffers hold whole messages");
        let target = u64_at(bytes, 8);
        Self { length, target: (target != BROADCAST).then_some(PartitionId(target)) }
    }

    /// Whether the message at the start of the bytes is as urgent as a point access, or more.
    #[inline]
    pub fn is_urgent(bytes: &[u8]) -> bool {
        Primitive::from_bits(u16_at(bytes, 4)).is_some_and(|primitive| primitive.class() <= Class::Point)
    }

    /// Gives the message at the start of the bytes another target.
    pub fn readdress(bytes: &mut [u8], target: PartitionId) {
        bytes[8..16].copy_from_slice(&target.0.to_le_bytes());
    }
}

impl<'a> MessageView<'a> {
    /// Appends the message to a buffer.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let length = (HEADER_BYTES + self.commands.len()).next_multiple_of(ALIGNMENT_BYTES);
        let start = buffer.len();
        write_header(buffer, &self.header, length as u32, self.command_count, self.width);
        buffer.extend_from_slice(self.commands);
        buffer.resize(start + length, 0);
    }

    /// A copy that owns its commands.
    pub fn to_message(&self) -> Message {
        let Self { header, command_count, width, commands } = *self;
        Message { header, command_count, width, commands: commands.into() }
    }

    /// The commands, in order.
    pub fn commands(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut rest, width) = (self.commands, self.width as usize);
        (0..self.command_count).map(move |_| {
            let (length, after) = if width > 0 { (width, rest) } else { split_length(rest) };
            let (command, after) = after.split_at(length);
            rest = after;
            command
        })
    }

    /// All commands in one piece and the width of each; none if they differ in width.
    pub fn commands_of_one_width(&self) -> Option<(&'a [u8], usize)> {
        (self.width > 0).then_some((self.commands, self.width as usize))
    }

    /// Decodes the message at the start of `bytes`; also returns its length.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), MessageError> {
        if bytes.len() < HEADER_BYTES {
            return Err(MessageError::Truncated(bytes.len()));
        }
        let length = u32_at(bytes, 0) as usize;
        if length < HEADER_BYTES || length > bytes.len() || !length.is_multiple_of(ALIGNMENT_BYTES) {
            return Err(MessageError::Length { length, available: bytes.len() });
        }
        let primitive = u16_at(bytes, 4);
        let primitive = Primitive::from_bits(primitive).ok_or(MessageError::Primitive(primitive))?;
        let target = u64_at(bytes, 8);
        let command_count = u32_at(bytes, 28);
        let flags = u16_at(bytes, 54);
        let width = u32_at(bytes, 56);
        let (forwarded, range) = (flags & FLAG_FORWARDED != 0, u32_at(bytes, 60));
        if flags & !FLAG_FORWARDED != 0 || range != 0 && !forwarded {
            return Err(MessageError::Reserved);
        }
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
            forwarded,
            range: range.checked_sub(1),
        };
        let body = &bytes[HEADER_BYTES..length];
        let used = if width > 0 {
            let used = u64::from(width) * u64::from(command_count);
            if used > body.len() as u64 {
                return Err(MessageError::Command(body.len() as u32 / width));
            }
            used as usize
        } else {
            prefixed_bytes(body, command_count)?
        };
        let padding = &body[used..];
        if padding.len() >= ALIGNMENT_BYTES {
            return Err(MessageError::Length { length, available: bytes.len() });
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Err(MessageError::Reserved);
        }
        Ok((Self { header, command_count, width, commands: &body[..used] }, length))
    }
}

/// Bytes that commands with a length each take.
fn prefixed_bytes(body: &[u8], command_count: u32) -> Result<usize, MessageError> {
    let mut used = 0;
    for command in 0..command_count {
        if body.len() - used < LENGTH_BYTES {
            return Err(MessageError::Command(command));
        }
        let command_bytes = u32_at(body, used) as usize;
        used += LENGTH_BYTES;
        if body.len() - used < command_bytes {
            return Err(MessageError::Command(command));
        }
        used += command_bytes;
    }
    Ok(used)
}

fn split_length(bytes: &[u8]) -> (usize, &[u8]) {
    let (length, after) = bytes.split_at(LENGTH_BYTES);
    (u32_at(length, 0) as usize, after)
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;

    fn random_header(random: &mut SeededRandom) -> Header {
        let forwarded = random.below(2) == 0;
        let primitives = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].map(|bits| Primitive::from_bits(bits).expect("known"));
        Header {
            primitive: primitives[random.index(12)],
            operator: OperatorIndex(random.next_u64() as u16),
            target: (random.below(2) == 0).then(|| PartitionId(random.next_u64() >> 1)),
            container: ContainerId(random.next_u64() as u32),
            schema_version: SchemaVersion(random.next_u64() as u32),
            table_version: TableVersion(random.next_u64() as u32),
            dataflow: DataflowId(random.next_u64()),
            transaction: TransactionId(random.next_u64()),
            statement: StatementNumber(random.next_u64() as u32),
            source: NodeId(random.next_u64() as u16),
            forwarded,
            range: (forwarded && random.below(2) == 0).then(|| random.below(u64::from(u32::MAX)) as u32),
        }
    }

    /// A message of commands of one width or of several, with its commands.
    fn random_message(random: &mut SeededRandom, buffer: &mut Vec<u8>) -> (Header, Vec<Vec<u8>>) {
        let header = random_header(random);
        let width = random.index(3) * 12;
        let commands: Vec<Vec<u8>> = (0..random.below(5))
            .map(|_| {
                let length = if width > 0 { width } else { random.index(40) };
                (0..length).map(|_| random.next_u64() as u8).collect()
            })
            .collect();
        if width == 0 && random.chance(0.5) {
            Message::new(header, &commands.iter().map(Vec::as_slice).collect::<Vec<_>>()).encode(buffer);
        } else {
            let mut writer = MessageWriter::new(buffer, &header, width);
            for command in &commands {
                writer.push(|bytes| bytes.extend_from_slice(command));
            }
            writer.finish();
        }
        (header, commands)
    }

    #[test]
    fn messages_survive_the_round_trip() {
        let mut random = SeededRandom::new(7);
        let mut buffer = Vec::new();
        let messages: Vec<_> = (0..500).map(|_| random_message(&mut random, &mut buffer)).collect();
        let mut at = 0;
        let mut again = Vec::new();
        for (header, commands) in &messages {
            let (message, length) = MessageView::decode(&buffer[at..]).expect("decodes");
            assert_eq!(message.header, *header);
            assert!(message.commands().eq(commands.iter().map(Vec::as_slice)));
            assert_eq!(Envelope::of(&buffer[at..]), Envelope { length, target: header.target });
            assert_eq!(message.to_message().view(), message);
            message.encode(&mut again);
            at += length;
        }
        assert_eq!((at, &again), (buffer.len(), &buffer));
    }

    #[test]
    fn damaged_messages_are_errors_or_other_messages() {
        let mut random = SeededRandom::new(11);
        let (mut errors, mut others) = (0, 0);
        for _ in 0..5_000 {
            let mut buffer = Vec::new();
            random_message(&mut random, &mut buffer);
            for _ in 0..3 {
                let at = random.below(buffer.len() as u64) as usize;
                buffer[at] = random.next_u64() as u8;
            }
            buffer.truncate(random.below(buffer.len() as u64 + 1) as usize);
            match MessageView::decode(&buffer) {
                Ok((message, length)) => {
                    others += 1;
                    let mut again = Vec::new();
                    message.encode(&mut again);
                    assert_eq!(again, buffer[..length], "bytes have one meaning");
                    assert_eq!(message.commands().count(), message.command_count as usize);
                }
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 1_000 && others > 10, "{errors} errors, {others} messages");
    }
}
