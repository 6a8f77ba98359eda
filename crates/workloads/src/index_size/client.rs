//! What tasks do: insert-or-update by key and lookup by key, many keys at once, over the engine's task API.

use std::sync::Arc;

use eris_engine::{Change, Coalescing, EngineError, Read, RowChange};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, Condition, Predicate, ReadRequest, Test, Value};

use super::{DRAWS_PER_TRANSACTION, Draws, Expected, is_loaded, upserted_value_of};
use crate::kv::{KEY, KvError, KvStore, VALUE, columns, integers, look_up_checked};

/// Fills a store with the keys below `domain` that are there before the first upsert.
pub async fn load(store: &KvStore, domain: u64) -> Result<(), EngineError> {
    store.fill((0..domain).filter(|key| is_loaded(*key as i64))).await
}

/// What upserts did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Upserted {
    pub inserted: u64,
    pub updated: u64,
    pub transactions: u64,
}

impl Upserted {
    pub fn add(&mut self, other: Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.transactions += other.transactions;
    }
}

/// Writes the value that belongs to the key.
struct NewValues;

impl RowChange for NewValues {
    fn inputs(&self) -> usize {
        1
    }

    fn attributes(&self) -> &[AttributeId] {
        &[VALUE]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let keys = (0..batch.rows).map(|row| match batch.value(row, 0) {
            Value::Int64(key) => key,
            other => unreachable!("keys are 64-bit integers, not {other}"),
        });
        let values = Batch::new([integers(keys.map(upserted_value_of).collect())], batch.rows);
        Ok(Change { rows: None, attributes: Box::new([VALUE]), values })
    }
}

/// Inserts or updates the pairs of keys, each of which is given once, in one transaction. The keys that are there are
/// found by a lookup first: nobody else writes them.
pub async fn upsert(store: &KvStore, keys: &[i64]) -> Result<Upserted, KvError> {
    let mut transaction = store.engine().begin();
    let mut present = vec![false; keys.len()];
    let mut results = store.look_up(&mut transaction, keys.to_vec(), Coalescing::Sender)?;
    while let Some(batch) = results.next().await? {
        for position in columns(&batch)?.0 {
            present[*position as usize] = true;
        }
    }
    drop(results);
    transaction.next_statement();
    let chosen =
        |wanted: bool| keys.iter().zip(&present).filter(move |(_, found)| **found == wanted).map(|(key, _)| *key);
    let old: Arc<[Value]> = chosen(true).map(Value::Int64).collect();
    let new: Vec<i64> = chosen(false).collect();
    let mut done = Upserted { transactions: 1, ..Upserted::default() };
    if !old.is_empty() {
        let expected = old.len() as u64;
        let predicate = Predicate::new([Condition { attribute: KEY, test: Test::In(old) }]);
        let request = ReadRequest { predicate, desired: Arc::new([KEY]), order: None };
        let read = Read { container: store.container(), request };
        done.updated = transaction.update(&read, Arc::new(NewValues)).await?;
        if done.updated != expected {
            return Err(KvError::WrongAnswer(format!("{} of {expected} keys are updated", done.updated)));
        }
        transaction.next_statement();
    }
    if !new.is_empty() {
        let (rows, values) = (new.len(), new.iter().map(|key| upserted_value_of(*key)).collect());
        let pairs = Batch::new([integers(new), integers(values)], rows);
        done.inserted = transaction.insert(store.container(), pairs).await?;
    }
    transaction.commit().await?;
    Ok(done)
}

/// One task's upserts.
#[derive(Debug, Clone)]
pub struct Upserter {
    pub store: KvStore,
    pub draws: Draws,
}

impl Upserter {
    /// Upserts the next keys until `goes_on` says no, which is asked before each transaction.
    pub async fn run(mut self, mut goes_on: impl FnMut(&Upserted) -> bool) -> Result<Upserted, KvError> {
        let mut done = Upserted::default();
        while goes_on(&done) {
            done.add(upsert(&self.store, &self.draws.next_keys()).await?);
        }
        Ok(done)
    }
}

/// Looks up random keys that are there in one transaction, and checks their values.
pub async fn look_up(store: &KvStore, expected: &Expected, random: &mut SeededRandom) -> Result<u64, KvError> {
    let keys: Vec<i64> = (0..DRAWS_PER_TRANSACTION).map(|_| expected.draw(random)).collect();
    // A key that is not there has no value that could be right.
    let value = |key| expected.value(key).unwrap_or_else(|| unreachable!("key {key} is drawn as one that is there"));
    let mut transaction = store.engine().begin();
    let found = look_up_checked(store, &mut transaction, &keys, Coalescing::Sender, value).await?;
    transaction.commit().await?;
    Ok(found.keys)
}
