//! Doing again what the log says, in an engine that nobody else uses yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eris_engine::{
    Change, Definition, Engine, EngineError, Read, RedoChange, RedoOperation, RowChange, RowFilter, Transaction,
    redo_operations,
};
use eris_storage::{
    AttributeId, Batch, Column, Comparison, Condition, ContainerId, PackedRows, Predicate, ReadRequest, Schema,
    StatementNumber, Test, Timestamp, TransactionId, Value,
};

use crate::definitions;
use crate::log::{Record, RecordKind};

/// More rows of one insert are loaded as a segment.
const BULK_ROWS_MIN: usize = 1_024;

/// What the log said so far.
pub(crate) struct Replay<'e> {
    engine: &'e Engine,
    /// Of transactions that are not decided yet.
    parts: BTreeMap<TransactionId, Vec<u8>>,
    /// Made at the end, of the rows that are there then.
    global_indexes: BTreeMap<ContainerId, Definition>,
    foreign_keys: BTreeMap<(ContainerId, Box<str>), Definition>,
    /// What a checkpoint has is left out: commits up to this timestamp, definitions in front of this position.
    covered: (Timestamp, u64),
    pub last: Timestamp,
    pub transactions: u64,
}

/// Why a record cannot be done again.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It does not say what a record says.
    Malformed(String),
    /// The engine cannot: no memory, as a rule.
    Engine(EngineError),
}

impl From<EngineError> for Unusable {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl<'e> Replay<'e> {
    pub fn new(engine: &'e Engine) -> Self {
        Self {
            covered: (Timestamp(0), 0),
            engine,
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
            // Planted: the record at the position itself counts as in front of it.
            RecordKind::Definition
                if record.position < self.covered.1 + u64::from(cfg!(feature = "bug_definition_at_checkpoint")) =>
            {
                Ok(())
            }
            RecordKind::Definition => {
                let definition = definitions::from_text(record.body).map_err(Unusable::Malformed)?;
                self.define(definition).await
            }
            RecordKind::Part => {
                let (transaction, operations) = split_transaction(record.body)?;
                self.parts.entry(transaction).or_default().extend_from_slice(operations);
                Ok(())
            }
            RecordKind::Commit if record.timestamp <= self.covered.0.0 => Ok(()),
            RecordKind::Commit => {
                self.committed(record.timestamp);
                self.apply(record.body, &[]).await
            }
            RecordKind::CommitWithParts => {
                let (transaction, body) = split_transaction(record.body)?;
                let (void, operations) = split_void(body)?;
                let mut all = self.parts.remove(&transaction).unwrap_or_default();
                if record.timestamp <= self.covered.0.0 {
                    return Ok(());
                }
                all.extend_from_slice(operations);
                self.committed(record.timestamp);
                self.apply(&all, &void).await
            }
        }
    }

    fn committed(&mut self, timestamp: u64) {
        self.last = self.last.max(Timestamp(timestamp));
        self.transactions += 1;
    }

    async fn define(&mut self, definition: Definition) -> Result<(), Unusable> {
        if self.put_off(&definition) { Ok(()) } else { Ok(self.engine.make(&definition).await?) }
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
                self.foreign_keys.remove(&(*child, name.clone()));
                true
            }
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
    pub async fn finish(mut self) -> Result<(), EngineError> {
        for definition in std::mem::take(&mut self.global_indexes).values() {
            self.engine.make(definition).await?;
        }
        for definition in std::mem::take(&mut self.foreign_keys).values() {
            self.engine.make(definition).await?;
        }
        Ok(())
    }

    /// Does what a transaction did, without the statements that it rolled back.
    async fn apply(&self, operations: &[u8], void: &[(u32, u32)]) -> Result<(), Unusable> {
        let is_void =
            |statement: StatementNumber| void.iter().any(|(first, last)| (*first..=*last).contains(&statement.0));
        let mut transaction = self.engine.begin();
        let mut statements = 0;
        for operation in redo_operations(operations) {
            let operation = operation.map_err(|error| Unusable::Malformed(error.to_string()))?;
            if is_void(operation.header.statement) {
                continue;
            }
            // Dropped later on.
            let Some(container) = self.engine.container(operation.header.container) else { continue };
            statements += 1;
            if statements == StatementNumber::MAX {
                // Nobody looks before all is done.
                transaction.commit().await?;
                transaction = self.engine.begin();
                statements = 1;
            }
            transaction.next_statement();
            apply(&mut transaction, &container.schema(), operation).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

fn split_transaction(body: &[u8]) -> Result<(TransactionId, &[u8]), Unusable> {
    let (number, rest) = body.split_first_chunk::<8>().ok_or_else(too_short)?;
    Ok((TransactionId(u64::from_le_bytes(*number)), rest))
}

type VoidStatements = Vec<(u32, u32)>;

fn split_void(body: &[u8]) -> Result<(VoidStatements, &[u8]), Unusable> {
    let (count, rest) = body.split_first_chunk::<4>().ok_or_else(too_short)?;
    let bytes = (u32::from_le_bytes(*count) as usize).checked_mul(8).ok_or_else(too_short)?;
    let (pairs, rest) = rest.split_at_checked(bytes).ok_or_else(too_short)?;
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok((pairs.chunks_exact(8).map(|pair| (number(pair), number(&pair[4..]))).collect(), rest))
}

fn too_short() -> Unusable {
    Unusable::Malformed("it is too short".to_owned())
}

async fn apply(transaction: &mut Transaction, schema: &Schema, operation: RedoOperation<'_>) -> Result<(), Unusable> {
    let change = operation.change(schema).map_err(|error| Unusable::Malformed(error.to_string()))?;
    let container = schema.container;
    match change {
        RedoChange::Insert { rows } => {
            let rows = widened(&rows, schema);
            if rows.rows >= BULK_ROWS_MIN {
                let mut load = transaction.bulk(container)?;
                load.append(rows).await?;
                load.finish().await?;
            } else {
                transaction.insert(container, rows).await?;
            }
        }
        RedoChange::Delete { identity, rows } => {
            for row in 0..rows.len() {
                let read = named(container, &identity, &rows, row);
                let found = transaction.delete(&read, Some(Arc::new(First::default()))).await?;
                check_found(found, container)?;
                transaction.next_statement();
            }
        }
        RedoChange::Update { identity, rows, changed, new } => {
            let new = new.to_batch();
            for row in 0..rows.len() {
                let read = named(container, &identity, &rows, row);
                let values = new.take(&[row as u32]);
                let change = Arc::new(Set { attributes: changed.clone(), values, first: First::default() });
                let found = transaction.update(&read, change).await?;
                check_found(found, container)?;
                transaction.next_statement();
            }
        }
    }
    Ok(())
}

fn check_found(found: u64, container: ContainerId) -> Result<(), Unusable> {
    if found == 1 {
        return Ok(());
    }
    Err(Unusable::Malformed(format!("a row that it changes is not in container {}", container.0)))
}

/// The rows with attributes that were added since.
fn widened(rows: &PackedRows, schema: &Schema) -> Batch {
    let rows = rows.to_batch();
    let added = &schema.attributes[rows.columns.len()..];
    let null = |data_type| Column::constant(data_type, &Value::Null, rows.rows);
    let columns = rows.columns.iter().cloned().chain(added.iter().map(|attribute| null(attribute.data_type)));
    Batch { columns: columns.collect(), rows: rows.rows }
}

/// The row with this identity.
fn named(container: ContainerId, identity: &[AttributeId], rows: &PackedRows, row: usize) -> Read {
    let condition = |(place, id): (usize, &AttributeId)| {
        let test = match rows.value(row, place) {
            Value::Null => Test::IsNull,
            value => Test::Compare(Comparison::Equal, value),
        };
        Condition { attribute: *id, test }
    };
    let conditions = identity.iter().enumerate().map(condition).collect();
    Read {
        container,
        request: ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None },
    }
}

/// Of rows that agree in everything one is as good as the other, and one was meant.
#[derive(Default)]
struct First(AtomicBool);

impl First {
    fn take(&self, batch: &Batch) -> Vec<u32> {
        if batch.rows > 0 && !self.0.swap(true, Ordering::AcqRel) { vec![0] } else { Vec::new() }
    }
}

impl RowFilter for First {
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError> {
        Ok(self.take(batch))
    }
}

/// New values for a row.
struct Set {
    attributes: Box<[AttributeId]>,
    values: Batch,
    first: First,
}

impl RowChange for Set {
    fn inputs(&self) -> usize {
        0
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.attributes
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows = self.first.take(batch);
        let values = if rows.is_empty() { self.values.slice(0, 0) } else { self.values.clone() };
        Ok(Change { rows: Some(rows), attributes: self.attributes.clone(), values })
    }
}
