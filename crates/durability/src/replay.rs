//! Doing again what the log says, in an engine that nobody else uses yet.
//!
//! ```text
//!   record ─> operation ─> its rows by key ─┬─> lane: transactions of many operations
//!   record ─> definition: all lanes wait    └─> lane
//! ```
//! Nobody looks before all is done, so transactions need not be what they were: what counts is that the changes of each
//! row are done in their order. Those of a row with a primary key are found by that, in whichever lane; those of other
//! containers follow each other in one lane. Loads are spread over all lanes, segment by segment. Where a container
//! goes from one manner to another, all lanes come to an end first.

mod apply;
mod lanes;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use eris_engine::{Definition, Engine, EngineError, RedoChange, RedoFormats, RedoOperation, redo_operations};
use eris_platform::memory::Mover;
use eris_platform::{DeterministicMap, DeterministicState};
use eris_storage::{
    AttributeId, ContainerId, DataType, KeyEncoder, PackedRows, Schema, StatementNumber, Timestamp, TransactionId,
    Value,
};

use crate::definitions;
use crate::error::DurabilityError;
use crate::log::{LogFiles, Record, RecordKind};
use crate::options::DurabilityOptions;
use crate::room::{make_room, vacate_for_sessions};

use apply::Step;
use lanes::Lanes;

/// What the log said so far.
pub(crate) struct Replay<'e> {
    engine: &'e Engine,
    lanes: Lanes,
    /// See [`DurabilityOptions::replay_key_bits`].
    key_bits: u32,
    /// What is known of containers, until a definition changes; none: it was dropped later on.
    containers: DeterministicMap<ContainerId, Option<Known>>,
    formats: RedoFormats,
    key: KeyEncoder,
    /// The lane that gets the next load.
    next_lane: usize,
    log: LogFiles<'e>,
    /// Where the parts of transactions are that are not decided yet.
    parts: BTreeMap<TransactionId, Vec<u64>>,
    /// Made at the end, of the rows that are there then.
    global_indexes: BTreeMap<ContainerId, Definition>,
    foreign_keys: BTreeMap<(ContainerId, Box<str>), Definition>,
    /// Held, so that no partition moves rows without room: what is done again needs it.
    mover: Option<Mover>,
    /// What a checkpoint has is left out: commits up to this timestamp, definitions in front of this position.
    covered: (Timestamp, u64),
    pub last: Timestamp,
    pub transactions: u64,
}

/// A container as operations find it.
struct Known {
    schema: Arc<Schema>,
    /// The attributes by which rows are given to lanes; none: all go to the same one.
    key: Option<Box<[AttributeId]>>,
    /// How its rows were given to lanes since these were all at an end.
    manner: Option<Manner>,
}

/// How the rows of an operation are given to lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Each to the lane of its key.
    ByKey,
    /// All to the lane of their container.
    Together,
    /// To any lane: new rows, and nothing else happens to them meanwhile.
    Anywhere,
}

/// Why a record cannot be done again.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It does not say what a record says.
    Malformed { position: u64, reason: String },
    /// The engine cannot: no memory, as a rule.
    Engine(EngineError),
    /// A part of a transaction cannot be read again.
    File(DurabilityError),
}

impl From<EngineError> for Unusable {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<DurabilityError> for Unusable {
    fn from(error: DurabilityError) -> Self {
        Self::File(error)
    }
}

impl Unusable {
    pub fn malformed(position: u64, reason: &(impl ToString + ?Sized)) -> Self {
        Self::Malformed { position, reason: reason.to_string() }
    }
}

impl<'e> Replay<'e> {
    pub fn new(engine: &'e Engine, log: LogFiles<'e>, options: &DurabilityOptions) -> Self {
        Self {
            engine,
            log,
            lanes: Lanes::start(engine, options.replay_rows),
            mover: engine.memory().of_store().move_without_room(),
            key_bits: options.replay_key_bits,
            containers: DeterministicMap::default(),
            formats: RedoFormats::default(),
            key: KeyEncoder::new(),
            next_lane: 0,
            covered: (Timestamp(0), 0),
            parts: BTreeMap::new(),
            global_indexes: BTreeMap::new(),
            foreign_keys: BTreeMap::new(),
            last: Timestamp(0),
            transactions: 0,
        }
    }

    /// Begins behind a checkpoint, with what is to be made of its rows.
    pub fn begin_behind(&mut self, timestamp: u64, position: u64, left: Vec<Definition>) {
        self.covered = (Timestamp(timestamp), position);
        // Planted: only commits in the log move the clock.
        if !cfg!(feature = "bug_timestamps_restart") {
            self.last = Timestamp(timestamp);
        }
        for definition in left {
            let is_put_off = self.put_off(&definition);
            assert!(is_put_off, "the rest was made with the checkpoint");
        }
    }

    pub async fn record(&mut self, record: Record<'_>) -> Result<(), Unusable> {
        match record.kind {
            RecordKind::Start => {
                // Whoever wrote parts before is gone.
                self.parts.clear();
                Ok(())
            }
            RecordKind::Closed => Ok(()),
            // Planted: the record at the position itself counts as in front of it.
            RecordKind::Definition
                if record.position < self.covered.1 + u64::from(cfg!(feature = "bug_definition_at_checkpoint")) =>
            {
                Ok(())
            }
            RecordKind::Definition => {
                let definition = definitions::from_text(record.body)
                    .map_err(|reason| Unusable::malformed(record.position, &reason))?;
                self.define(definition).await
            }
            RecordKind::Part => {
                let (transaction, _) = split_transaction(&record)?;
                self.parts.entry(transaction).or_default().push(record.position);
                Ok(())
            }
            RecordKind::Commit if record.timestamp <= self.covered.0.0 => Ok(()),
            RecordKind::Commit => {
                self.committed(record.timestamp);
                self.apply(record.position, record.body, &[]).await
            }
            RecordKind::CommitWithParts => {
                let (transaction, body) = split_transaction(&record)?;
                let (void, operations) = split_void(record.position, body)?;
                let parts = self.parts.remove(&transaction).unwrap_or_default();
                if record.timestamp <= self.covered.0.0 {
                    return Ok(());
                }
                self.committed(record.timestamp);
                for position in parts {
                    // Read again: a transaction may be larger than memory has room for beside its rows.
                    let bytes = self.log.read_at(position)?;
                    let part = self.log.record(position, &bytes)?;
                    self.apply(position, split_transaction(&part)?.1, &void).await?;
                }
                self.apply(record.position, operations, &void).await
            }
        }
    }

    fn committed(&mut self, timestamp: u64) {
        self.last = self.last.max(Timestamp(timestamp));
        self.transactions += 1;
    }

    async fn define(&mut self, definition: Definition) -> Result<(), Unusable> {
        if self.put_off(&definition) {
            return Ok(());
        }
        // Nothing that rows depend on, and there are many.
        let is_of_rows = !matches!(definition, Definition::Sequence(..) | Definition::SequenceDropped(_));
        if is_of_rows {
            self.lanes.drain().await?;
            self.containers.clear();
        }
        Ok(self.engine.make(&definition).await?)
    }

    /// Notes what is made at the end; false if the definition is to be made now.
    fn put_off(&mut self, definition: &Definition) -> bool {
        match definition {
            Definition::GlobalIndex(_, hidden) => {
                self.global_indexes.insert(*hidden, definition.clone());
                true
            }
            Definition::ForeignKey(spec) => {
                self.foreign_keys.insert((spec.child.container, spec.name.clone()), definition.clone());
                true
            }
            Definition::ForeignKeyDropped(child, name) => {
                // Planted: what was dropped stays on the list of what is made.
                if !cfg!(feature = "bug_foreign_key_drop_ignored") {
                    self.foreign_keys.remove(&(*child, name.clone()));
                }
                true
            }
            // Planted: what was dropped stays.
            Definition::ContainerDropped(_) if cfg!(feature = "bug_container_drop_ignored") => true,
            Definition::ContainerDropped(id) => {
                self.foreign_keys.retain(|(child, _), _| child != id);
                self.global_indexes
                    .retain(|_, index| !matches!(index, Definition::GlobalIndex(spec, _) if spec.container == *id));
                false
            }
            Definition::Container { .. }
            | Definition::Schema(_)
            | Definition::Layouts(..)
            | Definition::Sequence(..)
            | Definition::SequenceDropped(_) => false,
        }
    }

    /// Makes what is made of the rows.
    pub async fn finish(mut self) -> Result<(), Unusable> {
        self.lanes.drain().await?;
        if !self.global_indexes.is_empty() || !self.foreign_keys.is_empty() {
            make_room(self.engine).await;
        }
        for definition in std::mem::take(&mut self.global_indexes).values() {
            self.engine.make(definition).await?;
        }
        // Planted: nobody makes them.
        if cfg!(feature = "bug_foreign_keys_not_made") {
            return Ok(());
        }
        for definition in std::mem::take(&mut self.foreign_keys).values() {
            self.engine.make(definition).await?;
        }
        self.mover = None;
        vacate_for_sessions(self.engine).await;
        Ok(())
    }

    /// Has done what a transaction did, without the statements that it rolled back.
    async fn apply(&mut self, position: u64, operations: &[u8], void: &[(u32, u32)]) -> Result<(), Unusable> {
        let is_void =
            |statement: StatementNumber| void.iter().any(|(first, last)| (*first..=*last).contains(&statement.0));
        for operation in redo_operations(operations) {
            let operation = operation.map_err(|error| Unusable::malformed(position, &error))?;
            if !is_void(operation.header.statement) {
                self.operation(position, operation).await?;
            }
        }
        Ok(())
    }

    async fn operation(&mut self, position: u64, operation: RedoOperation<'_>) -> Result<(), Unusable> {
        let id = operation.header.container;
        let engine = self.engine;
        let known = self.containers.entry(id).or_insert_with(|| Known::of(engine, id));
        let Some(known) = known else { return Ok(()) };
        let change = operation.change(&known.schema, &mut self.formats);
        let change = change.map_err(|error| Unusable::malformed(position, &error))?;
        let manner = known.manner_of(&change);
        if known.manner.is_some_and(|before| before != manner) {
            self.lanes.drain().await?;
            self.containers.values_mut().flatten().for_each(|known| known.manner = None);
        }
        let Some(Some(known)) = self.containers.get_mut(&id) else { unreachable!("it was there a moment ago") };
        known.manner = Some(manner);
        let (lanes, count, bytes) = (self.lanes.count(), change.rows(), operation.bytes.len());
        let step = Step { position, schema: Arc::clone(&known.schema), change: Arc::new(change), rows: None };
        let lane = match manner {
            Manner::Anywhere => {
                self.next_lane = (self.next_lane + 1) % lanes;
                self.next_lane
            }
            Manner::Together => id.0 as usize % lanes,
            Manner::ByKey if count == 1 => self.keys(&step, lanes)[0],
            Manner::ByKey => {
                let of_rows = self.keys(&step, lanes);
                for lane in 0..lanes {
                    let rows: Box<[u32]> = (0..count as u32).filter(|row| of_rows[*row as usize] == lane).collect();
                    if !rows.is_empty() {
                        // A lane that has few of its rows keeps all of the change.
                        let size = (rows.len(), bytes * rows.len().max(count / lanes) / count);
                        self.lanes.push(lane, Step { rows: Some(rows), ..step.clone() }, size).await?;
                    }
                }
                return Ok(());
            }
        };
        self.lanes.push(lane, step, (count, bytes)).await
    }

    /// The lanes of the rows of a change, by their keys.
    fn keys(&mut self, step: &Step, lanes: usize) -> Vec<usize> {
        let Some(Some(Known { key: Some(key), .. })) = self.containers.get(&step.schema.container) else {
            unreachable!("rows go by their keys only if they have some")
        };
        let types = key.iter().map(|id| step.schema.attributes[id.index()].data_type);
        let (encoder, bits) = (&mut self.key, self.key_bits);
        let mut lanes_of = |rows: &PackedRows, columns: &[(usize, DataType)]| {
            let lane = |row| {
                encoder.clear();
                for (place, (column, data_type)) in (1..).zip(columns) {
                    let value = rows.value(row, *column);
                    let value = if place == columns.len() { block_of(value, bits) } else { value };
                    encoder.push(&value, *data_type);
                }
                let mut hasher = DeterministicState::default().build_hasher();
                hasher.write(encoder.as_bytes());
                (hasher.finish() >> 32) as usize % lanes
            };
            (0..rows.len()).map(lane).collect()
        };
        match &*step.change {
            RedoChange::Insert { rows } => {
                lanes_of(rows, &key.iter().map(|id| id.index()).zip(types).collect::<Vec<_>>())
            }
            // Their identity is the key.
            RedoChange::Delete { rows, .. } | RedoChange::Update { rows, .. } => {
                lanes_of(rows, &types.enumerate().collect::<Vec<_>>())
            }
            RedoChange::Load { .. } => unreachable!("loads go anywhere"),
        }
    }
}

/// Rows whose keys lie close together go to the same lane: an index of rising keys takes a tenth of the memory of one
/// of scattered ones.
fn block_of(value: Value, bits: u32) -> Value {
    match value {
        Value::Int16(value) => Value::Int16(value >> bits.min(i16::BITS - 1)),
        Value::Int32(value) => Value::Int32(value >> bits.min(i32::BITS - 1)),
        Value::Int64(value) => Value::Int64(value >> bits.min(i64::BITS - 1)),
        other => other,
    }
}

impl Known {
    fn of(engine: &Engine, id: ContainerId) -> Option<Self> {
        let schema = engine.container(id)?.schema();
        // Another unique index sees rows of different keys in an order.
        let is_free = schema.indexes.iter().all(|index| index.primary || !index.unique);
        let identity = schema.row_identity();
        let key = schema.primary_key().filter(|key| is_free && key.attributes == identity).map(|_| identity);
        Some(Self { schema, key, manner: None })
    }

    fn manner_of(&self, change: &RedoChange) -> Manner {
        let Some(key) = &self.key else {
            return if matches!(change, RedoChange::Load { .. }) { Manner::Anywhere } else { Manner::Together };
        };
        match change {
            RedoChange::Load { .. } => Manner::Anywhere,
            RedoChange::Insert { .. } => Manner::ByKey,
            // Written with another primary key in mind, or with none.
            RedoChange::Delete { identity, .. } | RedoChange::Update { identity, .. } if identity != key => {
                Manner::Together
            }
            RedoChange::Update { changed, .. } if changed.iter().any(|id| key.contains(id)) => Manner::Together,
            RedoChange::Delete { .. } | RedoChange::Update { .. } => Manner::ByKey,
        }
    }
}

/// What a record did; nothing, if it is of another kind.
pub(crate) fn operations_of<'r>(record: &Record<'r>) -> Result<&'r [u8], Unusable> {
    match record.kind {
        RecordKind::Start | RecordKind::Closed | RecordKind::Definition => Ok(&[]),
        RecordKind::Commit => Ok(record.body),
        RecordKind::Part => Ok(split_transaction(record)?.1),
        RecordKind::CommitWithParts => Ok(split_void(record.position, split_transaction(record)?.1)?.1),
    }
}

fn split_transaction<'r>(record: &Record<'r>) -> Result<(TransactionId, &'r [u8]), Unusable> {
    let (number, rest) = record.body.split_first_chunk::<8>().ok_or_else(|| too_short(record.position))?;
    Ok((TransactionId(u64::from_le_bytes(*number)), rest))
}

type VoidStatements = Vec<(u32, u32)>;

fn split_void(position: u64, body: &[u8]) -> Result<(VoidStatements, &[u8]), Unusable> {
    let too_short = || too_short(position);
    let (count, rest) = body.split_first_chunk::<4>().ok_or_else(too_short)?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(8).ok_or_else(too_short)?;
    let (pairs, rest) = rest.split_at_checked(bytes).ok_or_else(too_short)?;
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok((pairs.chunks_exact(8).map(|pair| (number(pair), number(&pair[4..]))).collect(), rest))
}

fn too_short(position: u64) -> Unusable {
    Unusable::malformed(position, "it is too short")
}
