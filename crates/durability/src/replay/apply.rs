//! Changes of one container, done again in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eris_engine::{Change, EngineError, Read, RedoChange, RowChange, RowFilter, Transaction};
use eris_storage::{
    AttributeId, Batch, Column, Comparison, Condition, ContainerId, PackedRows, Predicate, ReadRequest, Schema, Test,
    Value,
};

use super::Unusable;

/// More new rows at once are loaded as a segment.
const BULK_ROWS_MIN: usize = 1_024;

/// A change, or those of its rows that a lane has to do with.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Where the record stands that it is from.
    pub position: u64,
    pub schema: Arc<Schema>,
    pub change: Arc<RedoChange>,
    /// None: all.
    pub rows: Option<Box<[u32]>>,
}

/// New rows that have not been inserted yet.
struct Gathered {
    schema: Arc<Schema>,
    batches: Vec<Batch>,
}

/// Does steps of one container.
pub(super) struct Applier<'t> {
    transaction: &'t mut Transaction,
    /// Rows that come one behind the other go in together.
    gathered: Option<Gathered>,
    /// The statement goes on: it has deleted rows, and more may follow.
    is_deleting: bool,
}

impl<'t> Applier<'t> {
    pub fn new(transaction: &'t mut Transaction) -> Self {
        Self { transaction, gathered: None, is_deleting: false }
    }

    pub async fn apply(&mut self, step: Step) -> Result<(), Unusable> {
        let Step { position, schema, change, rows } = step;
        let container = schema.container;
        let rows = rows.as_deref();
        match &*change {
            RedoChange::Insert { rows: new } => return self.gather(schema, selected(new.to_batch(), rows)).await,
            RedoChange::Load { rows: new } => return self.gather(schema, selected(new.clone(), rows)).await,
            RedoChange::Delete { identity, rows: old } => {
                self.insert_gathered().await?;
                let together = are_independent(&schema, identity, &[]);
                if !together {
                    self.end_deleting();
                }
                for row in each(old.len(), rows) {
                    let read = named(container, identity, old, row);
                    let found = self.transaction.delete(&read, Some(Arc::new(First::default()))).await;
                    check_found(found, container, position)?;
                    if !together {
                        self.transaction.next_statement();
                    }
                }
                self.is_deleting = together;
            }
            RedoChange::Update { identity, rows: old, changed, new } => {
                self.insert_gathered().await?;
                self.end_deleting();
                let together = are_independent(&schema, identity, changed);
                let new = new.to_batch();
                for row in each(old.len(), rows) {
                    let read = named(container, identity, old, row);
                    let values = new.take(&[row as u32]);
                    let change = Arc::new(Set { attributes: changed.clone(), values, first: First::default() });
                    let found = self.transaction.update(&read, change).await;
                    check_found(found, container, position)?;
                    if !together {
                        self.transaction.next_statement();
                    }
                }
                self.transaction.next_statement();
            }
        }
        Ok(())
    }

    /// Nothing more of this container comes.
    pub async fn finish(mut self) -> Result<(), Unusable> {
        self.end_deleting();
        self.insert_gathered().await
    }

    fn end_deleting(&mut self) {
        if std::mem::take(&mut self.is_deleting) {
            self.transaction.next_statement();
        }
    }

    async fn gather(&mut self, schema: Arc<Schema>, rows: Batch) -> Result<(), Unusable> {
        let rows = widened(rows, &schema);
        if is_bulk(&rows, &schema) {
            self.insert_gathered().await?;
        }
        self.gathered.get_or_insert_with(|| Gathered { schema, batches: Vec::new() }).batches.push(rows);
        Ok(())
    }

    async fn insert_gathered(&mut self) -> Result<(), Unusable> {
        let Some(Gathered { schema, mut batches }) = self.gathered.take() else { return Ok(()) };
        self.end_deleting();
        let rows = if batches.len() == 1 { batches.remove(0) } else { Batch::concat(&batches) };
        let inserted = if is_bulk(&rows, &schema) {
            load(self.transaction, schema.container, rows).await
        } else {
            self.transaction.insert(schema.container, rows).await
        };
        inserted?;
        self.transaction.next_statement();
        Ok(())
    }
}

/// Whether rows that are named so, and get new values of these attributes, are changed by one statement, as they were:
/// each is another row, and no unique index sees an order. Then those beside each other have one end, a few bytes, and
/// many of a segment a bitmap. Rows that are deleted by several operations, with no other between them, are so, too.
fn are_independent(schema: &Schema, identity: &[AttributeId], changed: &[AttributeId]) -> bool {
    let is_key = schema.primary_key().is_some_and(|key| *key.attributes == *identity);
    let mut unique = schema.indexes.iter().filter(|index| index.unique);
    is_key && unique.all(|index| index.attributes.iter().all(|id| !changed.contains(id)))
}

fn check_found(found: Result<u64, EngineError>, container: ContainerId, position: u64) -> Result<(), Unusable> {
    if found? == 1 {
        return Ok(());
    }
    let reason = format!("a row that it changes is not in container {}", container.0);
    Err(Unusable::malformed(position, &reason))
}

/// These rows of a batch, or all.
fn selected(batch: Batch, rows: Option<&[u32]>) -> Batch {
    match rows {
        Some(rows) => batch.take(rows),
        None => batch,
    }
}

/// These rows, or all of so many.
fn each(count: usize, rows: Option<&[u32]>) -> Vec<usize> {
    rows.map_or_else(|| (0..count).collect(), |rows| rows.iter().map(|row| *row as usize).collect())
}

fn is_bulk(rows: &Batch, schema: &Schema) -> bool {
    rows.rows >= BULK_ROWS_MIN.min(schema.segment_rows as usize)
}

async fn load(transaction: &mut Transaction, container: ContainerId, rows: Batch) -> Result<u64, EngineError> {
    let mut load = transaction.bulk(container)?.encode_later();
    load.append(rows).await?;
    load.finish().await
}

/// The rows with attributes that were added since.
fn widened(rows: Batch, schema: &Schema) -> Batch {
    let added = &schema.attributes[rows.columns.len()..];
    let null = |data_type| Column::constant(data_type, &Value::Null, rows.rows);
    let added = added.iter().map(|attribute| null(attribute.data_type));
    Batch { columns: rows.columns.into_iter().chain(added).collect(), rows: rows.rows }
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
