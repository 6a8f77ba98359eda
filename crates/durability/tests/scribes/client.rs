//! A client that appends to lists and reads them, and notes what it saw.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Change, Durability, Engine, EngineError, IsolationLevel, RowChange, Sequence, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Predicate, Value};

use super::{Journaled, KEYS, Scribes, lists, lists_of};
use crate::bank::{Bank, journal_row};
use crate::books::{Books, Told};
use crate::elle::{Element, Ending, Level, Operation};

/// What a client works with.
pub struct Scribe {
    pub engine: Engine,
    pub bank: Bank,
    pub lists: ContainerId,
    pub sequence: Arc<Sequence>,
    pub books: Arc<Mutex<Books>>,
    pub scribes: Arc<Mutex<Scribes>>,
    /// Its number among all clients.
    pub client: i64,
    pub random: SeededRandom,
}

/// Appends an element and counts it.
struct Append(Element);

impl RowChange for Append {
    fn inputs(&self) -> usize {
        3
    }

    fn attributes(&self) -> &[AttributeId] {
        &[AttributeId(1), AttributeId(2)]
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let longer = |row| {
            let (Value::Text(list), Value::Int64(length)) = (batch.value(row, 1), batch.value(row, 2)) else {
                panic!("a list has a text and a length")
            };
            let comma = if length > 0 { "," } else { "" };
            vec![Value::Text(format!("{list}{comma}{}", self.0).into()), Value::Int64(length + 1)]
        };
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(longer).collect();
        let values = Batch::from_rows(&[DataType::Text, DataType::Int64], &rows);
        Ok(Change { rows: None, attributes: self.attributes().into(), values })
    }
}

impl Scribe {
    /// One transaction. Gives an error behind which the client has no more to do.
    pub async fn transact(&mut self) -> Result<(), EngineError> {
        let (isolation, level) = match self.random.index(5) {
            0 => (IsolationLevel::ReadCommitted, Level::ReadCommitted),
            1 => (IsolationLevel::RepeatableRead, Level::Snapshot),
            _ => (IsolationLevel::Serializable, Level::Serializable),
        };
        let number = self.scribes(|scribes| scribes.begin(level));
        let mut transaction = self.engine.begin_with(isolation);
        let durability = [Durability::Synchronous, Durability::Asynchronous][self.random.index(2)];
        transaction.set_durability(durability);
        transaction.set_lock_timeout(Some(Duration::from_millis(20)));
        let mut txn = None;
        let ended = self.work(&mut transaction, number, durability, &mut txn).await;
        let outcome = match ended {
            Ok(()) if self.random.index(12) > 0 => {
                self.scribes(|scribes| scribes.record(number).ending = Ending::Unknown);
                if let Some(txn) = txn {
                    self.books(|books| books.committing(txn));
                }
                transaction.commit().await
            }
            Ok(()) => {
                transaction.rollback();
                return self.rolled_back(txn, Ok(()));
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(timestamp) => {
                self.scribes(|scribes| scribes.committed(number));
                if let Some(txn) = txn {
                    self.books(|books| books.committed(txn, timestamp, durability == Durability::Synchronous));
                }
                Ok(())
            }
            // It may be there or not.
            Err(error) if Told::by(&error) == Told::Nothing => Err(error),
            Err(error) => {
                self.scribes(|scribes| {
                    let record = scribes.record(number);
                    record.ending = Ending::RolledBack;
                    let is_victim = matches!(error, EngineError::Unserializable { .. });
                    scribes.counts.unserializable += u64::from(is_victim);
                });
                let goes_on = Told::by(&error) == Told::RolledBack;
                self.rolled_back(txn, if goes_on { Ok(()) } else { Err(error) })
            }
        }
    }

    fn rolled_back(&self, txn: Option<i64>, outcome: Result<(), EngineError>) -> Result<(), EngineError> {
        if let Some(txn) = txn {
            self.books(|books| books.rolled_back(txn));
        }
        outcome
    }

    /// All but the commit.
    async fn work(
        &mut self,
        transaction: &mut Transaction,
        number: usize,
        durability: Durability,
        txn: &mut Option<i64>,
    ) -> Result<(), EngineError> {
        for _ in 0..=self.random.index(4) {
            let savepoint = (self.random.index(8) == 0).then(|| transaction.savepoint());
            transaction.next_statement();
            let key = self.random.below(KEYS as u64) as i64;
            let before = self.scribes(|scribes| scribes.record(number).operations.len());
            match self.random.index(10) {
                0..5 => self.append(transaction, number, key).await?,
                5..9 => {
                    let read = lists(self.lists, Predicate::equal(AttributeId(0), Value::Int64(key)));
                    self.note_reads(number, &transaction.read(&read).await?);
                }
                _ => {
                    let all = lists(self.lists, Predicate::all());
                    self.note_reads(number, &transaction.scan(all, None)?.collect().await?);
                }
            }
            if let Some(savepoint) = savepoint {
                transaction.rollback_to(&savepoint)?;
                self.scribes(|scribes| {
                    let operations = &mut scribes.record(number).operations;
                    let length = operations.len();
                    for operation in &mut operations[before..] {
                        if let Operation::Append { undone, .. } = operation {
                            *undone = Some(length);
                        }
                    }
                });
            }
        }
        let appends = self.scribes(|scribes| {
            let is_append = |operation: &Operation| matches!(operation, Operation::Append { undone: None, .. });
            scribes.record(number).operations.iter().any(is_append)
        });
        if appends {
            let new = self.books(|books| books.begin(self.client));
            *txn = Some(new);
            let asynchronous = durability == Durability::Asynchronous;
            self.scribes(|scribes| scribes.journaled[number] = Some(Journaled { txn: new, asynchronous }));
            transaction.next_statement();
            let ticket = self.sequence.next()?;
            transaction.insert(self.bank.journal, journal_row(new, self.client, ticket, 0)).await?;
        }
        Ok(())
    }

    async fn append(&mut self, transaction: &mut Transaction, number: usize, key: i64) -> Result<(), EngineError> {
        let element = self.scribes(Scribes::tick);
        let read = lists(self.lists, Predicate::equal(AttributeId(0), Value::Int64(key)));
        let rows = transaction.update(&read, Arc::new(Append(element))).await?;
        assert_eq!(rows, 1, "list {key} is there");
        let append = Operation::Append { key, element, undone: None };
        self.scribes(|scribes| scribes.record(number).operations.push(append));
        Ok(())
    }

    fn note_reads(&self, number: usize, found: &[Batch]) {
        let reads = lists_of(found).into_iter().map(|(key, list)| Operation::Read { key, list });
        self.scribes(|scribes| scribes.record(number).operations.extend(reads));
    }

    fn scribes<T>(&self, with: impl FnOnce(&mut Scribes) -> T) -> T {
        with(&mut self.scribes.lock().expect("not poisoned"))
    }

    fn books<T>(&self, with: impl FnOnce(&mut Books) -> T) -> T {
        with(&mut self.books.lock().expect("not poisoned"))
    }
}
