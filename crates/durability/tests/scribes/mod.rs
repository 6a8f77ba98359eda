//! Lists that clients append to and read, at every level of isolation, in all lives of a database: one history, which
//! the checker of the engine's simulation ([`elle`](crate::elle)) looks at when the last life is over.
//!
//! ```text
//!   lists     key* | list | length
//! ```
//! A transaction that appends has a row in the bank's journal, too, so after a crash it is known whether it is there.
//! What a crash took never happened: neither did reads that saw it, unless who read it is there, which nobody may.

mod client;

use std::collections::BTreeSet;

use eris_engine::{ContainerSpec, Engine, EngineError, Partitioning, Read};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Predicate, ReadRequest, Value};

use crate::bank::patiently;
use crate::elle::{Element, Ending, Level, ListHistory, ListTransaction, Operation};
use crate::schemas::{attribute, schema};

pub use client::Scribe;

/// Few: transactions must meet.
const KEYS: i64 = 5;
/// A list that nobody appends to.
const NO_LIST: i64 = -1;

/// All that was ever done to the lists.
#[derive(Default)]
pub struct Scribes {
    history: ListHistory,
    /// Of each transaction its number in the journal, once it has one, and whether others see it before it is durable.
    journaled: Vec<Option<Journaled>>,
    /// Where the transactions of this life begin.
    life: usize,
    ticks: u64,
    pub counts: Counts,
}

/// What SERIALIZABLE transactions came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub committed: u64,
    pub unserializable: u64,
}

impl Counts {
    pub fn add(&mut self, other: Self) {
        self.committed += other.committed;
        self.unserializable += other.unserializable;
    }
}

#[derive(Clone, Copy, Debug)]
struct Journaled {
    txn: i64,
    asynchronous: bool,
}

fn number(name: &str) -> eris_storage::Attribute {
    attribute(name, DataType::Int64, false)
}

/// Makes the table, with lists of nothing.
pub async fn make_lists(engine: &Engine) -> Result<ContainerId, EngineError> {
    let attributes = [number("key"), attribute("list", DataType::Text, false), number("length")];
    let make = || {
        let schema = schema(engine.next_container_id(), &attributes, true, 8);
        let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 2 };
        engine.create_container(ContainerSpec { schema, partitioning })
    };
    let container = patiently(engine, make).await?.id();
    let rows: Vec<_> = (0..KEYS).map(|key| vec![Value::Int64(key), Value::Text("".into()), Value::Int64(0)]).collect();
    let mut transaction = engine.begin();
    let types = [DataType::Int64, DataType::Text, DataType::Int64];
    transaction.insert(container, Batch::from_rows(&types, &rows)).await?;
    transaction.commit().await?;
    Ok(container)
}

fn lists(container: ContainerId, predicate: Predicate) -> Read {
    let desired = [0, 1, 2].map(AttributeId);
    Read { container, request: ReadRequest { predicate, desired: std::sync::Arc::new(desired), order: None } }
}

/// Keys with their lists, in the order of keys.
fn lists_of(batches: &[Batch]) -> Vec<(i64, Vec<Element>)> {
    let mut lists = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let (Value::Int64(key), Value::Text(text), Value::Int64(length)) =
                (batch.value(row, 0), batch.value(row, 1), batch.value(row, 2))
            else {
                panic!("a list has a key, a text and a length")
            };
            let elements = text.split(',').filter(|element| !element.is_empty());
            let list: Vec<Element> = elements.map(|element| element.parse().expect("a number")).collect();
            assert_eq!(list.len() as i64, length, "list {key} is {text}: each append counts once");
            lists.push((key, list));
        }
    }
    lists.sort_unstable();
    lists
}

/// All lists, for whoever looks at a database that nobody else uses.
pub async fn all_lists(engine: &Engine, container: ContainerId) -> Result<Vec<(i64, Vec<Element>)>, EngineError> {
    let mut reader = engine.begin();
    let found = reader.scan(lists(container, Predicate::all()), None)?.collect().await?;
    Ok(lists_of(&found))
}

impl Scribes {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// Who begins is taken to be rolled back until something else is known.
    fn begin(&mut self, level: Level) -> usize {
        let begun = self.tick();
        let (operations, ending) = (Vec::new(), Ending::RolledBack);
        self.history.transactions.push(ListTransaction { level, operations, ending, begun, ended: None });
        self.journaled.push(None);
        self.history.transactions.len() - 1
    }

    fn record(&mut self, number: usize) -> &mut ListTransaction {
        &mut self.history.transactions[number]
    }

    fn committed(&mut self, number: usize) {
        let ended = self.tick();
        let record = self.record(number);
        (record.ending, record.ended) = (Ending::Committed, Some(ended));
        self.counts.committed += u64::from(record.level == Level::Serializable);
    }

    /// Behind a crash: what became of the transactions of the last life, and what the lists are now.
    pub fn recovered(&mut self, found: Vec<(i64, Vec<Element>)>, present: &BTreeSet<i64>) {
        let crashed = self.tick();
        let is_there = |journaled: &Option<Journaled>| journaled.is_some_and(|it| present.contains(&it.txn));
        // What others may have seen, and is gone.
        let mut lost: BTreeSet<Element> = BTreeSet::new();
        for number in self.life..self.history.transactions.len() {
            let journaled = self.journaled[number];
            let record = self.record(number);
            match record.ending {
                Ending::RolledBack => {}
                Ending::Unknown if is_there(&journaled) => {
                    (record.ending, record.ended) = (Ending::Committed, Some(crashed));
                }
                Ending::Committed if journaled.is_none() || is_there(&journaled) => {}
                Ending::Committed | Ending::Unknown => {
                    (record.ending, record.ended) = (Ending::RolledBack, None);
                    if journaled.is_some_and(|journaled| journaled.asynchronous) {
                        lost.extend(record.operations.iter().filter_map(|operation| match operation {
                            Operation::Append { element, undone: None, .. } => Some(*element),
                            _ => None,
                        }));
                    }
                }
            }
        }
        for number in self.life..self.history.transactions.len() {
            // Whoever is there in the journal may have seen nothing that is lost.
            if is_there(&self.journaled[number]) {
                continue;
            }
            for operation in &mut self.record(number).operations {
                if matches!(operation, Operation::Read { list, .. } if list.iter().any(|it| lost.contains(it))) {
                    *operation = Operation::Read { key: NO_LIST, list: Vec::new() };
                }
            }
        }
        let observer = self.begin(Level::Serializable);
        let reads = found.into_iter().map(|(key, list)| Operation::Read { key, list });
        self.record(observer).operations = reads.collect();
        let ended = self.tick();
        let record = self.record(observer);
        (record.ending, record.ended) = (Ending::Committed, Some(ended));
        self.life = self.history.transactions.len();
    }

    /// Whether anybody saw what nobody may see.
    pub fn check(&self) {
        if let Err(wrong) = self.history.check() {
            panic!("{wrong}");
        }
    }
}
