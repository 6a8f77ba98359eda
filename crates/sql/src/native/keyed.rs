//! UPDATE and DELETE of rows that a query finds: first all of them, then they are changed by key.
//!
//! ```text
//!   query: key columns, new values --> key -> row of new values
//!   requests for keys: the partitions look every row up that they read; what is not found stays
//! ```
//! Both happen at one snapshot and statement number, so a row that was found is there, and what this statement has
//! written is not. If a join finds a row more than once, the first find counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use eris_engine::{Change, Engine, EngineError, Read, RowChange, RowFilter, Transaction, yield_to_tasks};
use eris_platform::Reservation;
use eris_storage::{AttributeId, Batch, Column, Condition, Key, Predicate, ReadRequest, Test, Value, key_of_row};

use super::write::{DeletePlan, UpdatePlan, store_as};
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::plan::engine_error;
use crate::session::QueryPlan;

/// Keys that one request asks for.
const REQUEST_KEYS: usize = 512;
/// If a table has fewer rows than this for each one found, it is read as a whole rather than key by key.
const ROWS_PER_KEY_MIN: u64 = 8;
/// Keys that are noted or forgotten in a fraction of a millisecond: then others go first.
const PIECE_KEYS: usize = 1_024;
/// What an entry of the map takes besides the row's values, about.
const ENTRY_BYTES: u64 = 64;

/// How rows are changed.
#[derive(Clone, Debug)]
pub enum ChangePlan {
    /// UPDATE in the partitions.
    Update(UpdatePlan),
    /// DELETE in the partitions.
    Delete(DeletePlan),
    /// Rows are found by a query and changed by key.
    Keyed(KeyedPlan),
}

/// Rows that a query finds.
#[derive(Clone, Debug)]
pub struct KeyedPlan {
    /// Whose rows.
    pub table: Arc<Table>,
    /// Its columns are the key, then the new values.
    pub query: Arc<QueryPlan>,
    /// What identifies a row.
    pub key: Arc<[AttributeId]>,
    /// Whether it is a key of the table, so that rows can be reached by it.
    pub unique: bool,
    /// UPDATE: what gets new values. DELETE: `None`.
    pub attributes: Option<Arc<[AttributeId]>>,
}

/// Keys, and at which place each was found first. Many are freed by a task of their own, in pieces: they are dropped
/// by a session that has an answer to give, or by a partition.
struct Keys {
    engine: Engine,
    places: BTreeMap<Key, u32>,
    memory: Reservation,
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.places.len() <= PIECE_KEYS {
            return;
        }
        let (mut places, memory) = (std::mem::take(&mut self.places), self.memory.split(self.memory.bytes()));
        self.engine.spawn(async move {
            while !places.is_empty() {
                for _ in 0..PIECE_KEYS {
                    places.pop_first();
                }
                yield_to_tasks().await;
            }
            drop(memory);
        });
    }
}

/// Rows found so far.
pub struct FoundRows<'p> {
    plan: &'p KeyedPlan,
    keys: Keys,
    count: usize,
    /// The first columns of keys.
    leading: Vec<Column>,
    values: Vec<Batch>,
}

/// All rows found, as the partitions see them.
struct Found {
    plan: KeyedPlan,
    keys: Keys,
    values: Batch,
    /// The positions of the key in the batches that partitions hand over.
    positions: Box<[usize]>,
}

impl<'p> FoundRows<'p> {
    /// None yet. What is kept counts against the engine's memory.
    pub fn new(plan: &'p KeyedPlan, engine: &Engine) -> Self {
        let memory = engine.memory().reserve("changes");
        let keys = Keys { engine: engine.clone(), places: BTreeMap::new(), memory };
        Self { plan, keys, count: 0, leading: Vec::new(), values: Vec::new() }
    }

    /// Takes rows of the query.
    pub async fn add(&mut self, batch: &Batch) -> Result<(), SqlError> {
        let width = self.plan.key.len();
        let positions: Vec<usize> = (0..width).collect();
        let types = self.plan.query.types();
        let mut new = Vec::new();
        for (at, attribute) in self.plan.attributes.iter().flat_map(|attributes| attributes.iter()).enumerate() {
            let target = &self.plan.table.columns[attribute.index()];
            let stored = store_as(&batch.columns[width + at], types[width + at], target.sql_type)?;
            if target.not_null && stored.null_count() > 0 {
                return Err(SqlError::not_null(&target.name, &self.plan.table.name));
            }
            new.push(stored);
        }
        let new = Batch::new(new, batch.rows);
        let leading = batch.columns[0].clone();
        let bytes = new.bytes() + leading.bytes();
        self.keys.memory.grow(bytes as u64 + batch.rows as u64 * ENTRY_BYTES).map_err(SqlError::out_of_memory)?;
        for row in 0..batch.rows {
            let number = (self.count + row) as u32;
            self.keys.places.entry(key_of_row(batch, row, &positions)).or_insert(number);
            if (row + 1) % PIECE_KEYS == 0 {
                yield_to_tasks().await;
            }
        }
        self.count += batch.rows;
        self.leading.push(leading);
        self.values.push(new);
        Ok(())
    }

    /// Changes them; `table_rows` is how many the table has, about.
    pub async fn change(self, transaction: &mut Transaction, table_rows: u64) -> Result<u64, SqlError> {
        if self.keys.places.is_empty() {
            return Ok(0);
        }
        let by_key = self.plan.unique && self.keys.places.len() as u64 * ROWS_PER_KEY_MIN < table_rows;
        let predicates = if by_key { self.requests() } else { vec![Predicate::all()] };
        let plan = self.plan.clone();
        let table = Arc::clone(&plan.table);
        let desired = Arc::clone(&plan.key);
        let is_update = plan.attributes.is_some();
        let found = Arc::new(Found {
            positions: (0..plan.key.len()).collect(),
            plan,
            keys: self.keys,
            values: Batch::concat(&self.values),
        });
        let mut changed = 0;
        for predicate in predicates {
            let request = ReadRequest { predicate, desired: Arc::clone(&desired), order: None };
            let read = Read { container: table.container(), request };
            let written = if is_update {
                transaction.update(&read, Arc::clone(&found) as Arc<dyn RowChange>).await
            } else {
                transaction.delete(&read, Some(Arc::clone(&found) as Arc<dyn RowFilter>)).await
            };
            changed += written.map_err(|error| engine_error(&error, Some(&table)))?;
        }
        Ok(changed)
    }

    /// Requests for the first column of the keys; which rows of those are meant is decided in the partitions.
    fn requests(&self) -> Vec<Predicate> {
        let leading = Column::concat(&self.leading);
        let mut values: Vec<Value> = self.keys.places.values().map(|row| leading.value(*row as usize)).collect();
        // Rows are in the order of their keys, so equal values are neighbours.
        values.dedup();
        values
            .chunks(REQUEST_KEYS)
            .map(|chunk| Predicate::new([Condition { attribute: self.plan.key[0], test: Test::In(chunk.into()) }]))
            .collect()
    }
}

impl Found {
    /// The rows of a batch that were found, and where their new values are.
    fn look_up(&self, batch: &Batch) -> (Vec<u32>, Vec<u32>) {
        let mut rows = Vec::new();
        let mut values = Vec::new();
        for row in 0..batch.rows {
            if let Some(value) = self.keys.places.get(&key_of_row(batch, row, &self.positions)) {
                rows.push(row as u32);
                values.push(*value);
            }
        }
        (rows, values)
    }
}

impl RowChange for Found {
    fn inputs(&self) -> usize {
        self.plan.key.len()
    }

    fn attributes(&self) -> &[AttributeId] {
        self.plan.attributes.as_deref().unwrap_or_default()
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let (rows, values) = self.look_up(batch);
        Ok(Change { rows: Some(rows), attributes: self.attributes().into(), values: self.values.take(&values) })
    }
}

impl RowFilter for Found {
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError> {
        Ok(self.look_up(batch).0)
    }
}
