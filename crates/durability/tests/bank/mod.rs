//! A bank whose books can be checked: every transaction notes what it did in rows of its own, so that whatever is left
//! after a crash says which transactions are there, and each of them must be there as a whole.
//!
//! ```text
//!   accounts   id* | balance | note        balance = START + deltas of the entries of the account
//!   movers     place* | mover              a key that moves; place = where it began + deltas of its entries
//!   tokens     value                       no key; rows of a value = its entries
//!   parents    key* | note                 there, if its entries say so
//!   children   key* | home | guest | note  the same; home is the key of a parent by a foreign key ([`kin`])
//!   entries    txn | kind | subject | delta | text     no key; what transactions did
//!   journal    txn* | client | ticket | entries        one row a transaction; `code` = txn is unique by a global index
//! ```
//! Each text says of which row it is, so that one that is wrong, or of another row, is noticed.

mod kin;

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{
    Change, Container, ContainerSpec, Durability, Engine, EngineError, GlobalIndexSpec, IsolationLevel, LockWait,
    Partitioning, Read, RowChange, RowFilter, Sequence, SequenceSpec, Transaction,
};
use eris_platform::SeededRandom;
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, Predicate, ReadRequest, RowLock, Test,
    Timestamp, Value,
};

use crate::books::{Row, Tables, is_full};
use crate::schemas::{attribute, schema};

pub use kin::{CHILD_HOME, child_note, parent_note};

pub const ACCOUNTS: i64 = 24;
pub const MOVERS: i64 = 6;
pub const START: i64 = 1_000;
pub const TOKENS: i64 = 5;
const PLACES: i64 = 1_000;
/// How often a definition is tried again that the log has no room for: there may never be some.
const TRIES_MAX: usize = 1_000;

/// What an entry is about.
pub const OF_ACCOUNT: i64 = 0;
pub const OF_MOVER: i64 = 1;
pub const OF_TOKEN: i64 = 2;
/// The note of an account.
pub const OF_NOTE: i64 = 3;
pub const OF_PARENT: i64 = 4;
pub const OF_CHILD: i64 = 5;

/// The containers, by the order in which they are made.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    pub accounts: ContainerId,
    pub movers: ContainerId,
    pub tokens: ContainerId,
    pub children: ContainerId,
    pub parents: ContainerId,
    pub entries: ContainerId,
    pub journal: ContainerId,
}

impl Bank {
    /// Makes it, with its first rows; durable when it returns.
    pub async fn create(engine: &Engine, random: &mut SeededRandom) -> Result<Self, EngineError> {
        let number = |name| attribute(name, DataType::Int64, false);
        let text = |name| attribute(name, DataType::Text, true);
        let by_key = || Partitioning::Range(Box::new([AttributeId(0)]));
        let segment_rows = [8, 16, 64][random.index(3)];
        let make = async |attributes: &[Attribute], partitioning: Partitioning, keyed| {
            let make = || {
                let schema = schema(engine.next_container_id(), attributes, keyed, segment_rows);
                engine.create_container(ContainerSpec { schema, partitioning: partitioning.clone() })
            };
            patiently(engine, make).await.map(|container| container.id())
        };
        let by_size = || Partitioning::Size { partitions: 2 };
        let by_hash = |partitions| Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions };
        let account = [number("id"), number("balance"), text("note")];
        let child = [number("key"), number("home"), attribute("guest", DataType::Int64, true), text("note")];
        let entry = [number("txn"), number("kind"), number("subject"), number("delta"), text("text")];
        let line = ["txn", "client", "ticket", "entries", "code"].map(number);
        let bank = Self {
            accounts: make(&account, by_key(), true).await?,
            movers: make(&[number("place"), number("mover")], by_key(), true).await?,
            tokens: make(&[number("value")], by_size(), false).await?,
            children: make(&child, by_hash(2), true).await?,
            parents: make(&[number("key"), text("note")], by_key(), true).await?,
            entries: make(&entry, by_size(), false).await?,
            journal: make(&line, by_hash(3), true).await?,
        };
        let spec = GlobalIndexSpec {
            container: bank.journal,
            name: "journal_code_key".into(),
            attributes: Box::new([AttributeId(4)]),
            partitions: 2,
        };
        patiently(engine, || engine.create_global_index(&spec)).await?;
        kin::make_home(engine, bank).await?;
        let mut first = engine.begin();
        let accounts: Vec<_> =
            (0..ACCOUNTS).map(|id| vec![Value::Int64(id), Value::Int64(START), Value::Null]).collect();
        let types = [DataType::Int64, DataType::Int64, DataType::Text];
        first.insert(bank.accounts, Batch::from_rows(&types, &accounts)).await?;
        let movers: Vec<_> = (0..MOVERS).map(|mover| vec![Value::Int64(mover), Value::Int64(mover)]).collect();
        first.insert(bank.movers, Batch::from_rows(&types[..2], &movers)).await?;
        first.commit().await?;
        Ok(bank)
    }

    /// What all containers hold.
    pub async fn tables(&self, engine: &Engine) -> Result<Tables, EngineError> {
        Ok(Tables {
            journal: self.rows(engine, self.journal).await?,
            entries: self.rows(engine, self.entries).await?,
            accounts: self.rows(engine, self.accounts).await?,
            movers: self.rows(engine, self.movers).await?,
            tokens: self.rows(engine, self.tokens).await?,
            parents: self.rows(engine, self.parents).await?,
            children: self.rows(engine, self.children).await?,
        })
    }

    /// A container's rows, sorted.
    pub async fn rows(&self, engine: &Engine, container: ContainerId) -> Result<Vec<Row>, EngineError> {
        let mut reader = engine.begin();
        let there: Arc<Container> = engine.container(container).ok_or(EngineError::NoSuchContainer(container))?;
        let attributes = there.schema().attributes.len() as u16;
        let read = read(container, &[], &(0..attributes).collect::<Vec<_>>());
        let mut rows = Vec::new();
        for batch in reader.scan(read, None)?.collect().await? {
            rows.extend((0..batch.rows).map(|row| Row::of(batch.row(row))));
        }
        rows.sort_unstable();
        Ok(rows)
    }
}

/// Defines something, as often as the log is too slow with its next file.
pub async fn patiently<T>(
    engine: &Engine,
    mut define: impl FnMut() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    for _ in 0..TRIES_MAX {
        match define() {
            Ok(made) => return Ok(made),
            Err(error) => wait_for_room(engine, error).await?,
        }
    }
    define()
}

/// Waits a little, if it was only the room that was missing.
async fn wait_for_room(engine: &Engine, error: EngineError) -> Result<(), EngineError> {
    if !is_full(&error) {
        return Err(error);
    }
    engine.sleep_until(engine.env().now() + Duration::from_millis(1)).await;
    Ok(())
}

pub fn read(container: ContainerId, key: &[(u16, i64)], desired: &[u16]) -> Read {
    let conditions = key.iter().map(|(attribute, value)| Condition {
        attribute: AttributeId(*attribute),
        test: Test::Compare(Comparison::Equal, Value::Int64(*value)),
    });
    let request = ReadRequest {
        predicate: Predicate { conditions: conditions.collect() },
        desired: desired.iter().copied().map(AttributeId).collect(),
        order: None,
    };
    Read { container, request }
}

fn between(container: ContainerId, low: i64, high: i64) -> Read {
    let condition = |comparison, value| Condition {
        attribute: AttributeId(0),
        test: Test::Compare(comparison, Value::Int64(value)),
    };
    let conditions = Arc::new([condition(Comparison::GreaterOrEqual, low), condition(Comparison::LessOrEqual, high)]);
    let request = ReadRequest {
        predicate: Predicate { conditions },
        desired: Arc::new([AttributeId(0), AttributeId(1)]),
        order: None,
    };
    Read { container, request }
}

/// Adds to the last of the desired attributes.
struct Add {
    inputs: usize,
    attribute: AttributeId,
    delta: i64,
}

impl RowChange for Add {
    fn inputs(&self) -> usize {
        self.inputs
    }

    fn attributes(&self) -> &[AttributeId] {
        std::slice::from_ref(&self.attribute)
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let new = |row| match batch.value(row, self.inputs - 1) {
            Value::Int64(value) => vec![Value::Int64(value + self.delta)],
            other => panic!("a number, not {other:?}"),
        };
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(new).collect();
        let values = Batch::from_rows(&[DataType::Int64], &rows);
        Ok(Change { rows: None, attributes: Box::new([self.attribute]), values })
    }
}

/// The first row, of many alike.
struct One(std::sync::atomic::AtomicBool);

impl RowFilter for One {
    fn select(&self, batch: &Batch) -> Result<Vec<u32>, EngineError> {
        let first = batch.rows > 0 && !self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
        Ok(if first { vec![0] } else { Vec::new() })
    }
}

/// What a transaction did, in the form of its entries.
#[derive(Default)]
struct Book {
    txn: i64,
    entries: Vec<(i64, i64, i64)>,
}

impl Book {
    fn note(&mut self, kind: i64, subject: i64, delta: i64) {
        self.entries.push((kind, subject, delta));
    }

    fn rows(&self, entries: &[(i64, i64, i64)]) -> Batch {
        let types = [DataType::Int64, DataType::Int64, DataType::Int64, DataType::Int64, DataType::Text];
        let rows: Vec<Vec<Value>> = entries
            .iter()
            .map(|(kind, subject, delta)| {
                let text = entry_text(self.txn, *kind, *subject, *delta);
                let note = text.map_or(Value::Null, |text| Value::Text(text.into()));
                vec![Value::Int64(self.txn), Value::Int64(*kind), Value::Int64(*subject), Value::Int64(*delta), note]
            })
            .collect();
        Batch::from_rows(&types, &rows)
    }
}

/// The text of an entry: none, short, or long, as its transaction wants it.
pub fn entry_text(txn: i64, kind: i64, subject: i64, delta: i64) -> Option<String> {
    let bytes = [0, 5, 40, 900][(txn / 100 % 4) as usize];
    let words = format!("{delta} of {subject} ({kind}) by {txn}, ");
    (bytes > 0).then(|| words.chars().cycle().take(bytes).collect())
}

/// What says that a transaction is there, with so many entries.
pub fn journal_row(txn: i64, client: i64, ticket: i64, entries: i64) -> Batch {
    let row = [txn, client, ticket, entries, txn].map(Value::Int64).to_vec();
    Batch::from_rows(&[DataType::Int64; 5], &[row])
}

/// The note of an account that a transaction took out and put back.
pub fn account_note(id: i64, txn: i64) -> String {
    format!("account {id} since transaction {txn}")
}

/// How a transaction ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Told to be committed.
    Committed { timestamp: Timestamp, durability: Durability },
    /// Certainly not there.
    RolledBack,
}

/// A transaction of some kind. An error is of its last step; `Ok(None)`: it was rolled back on purpose.
pub async fn transact(
    engine: &Engine,
    bank: Bank,
    sequence: &Sequence,
    txn: i64,
    client: i64,
    random: &mut SeededRandom,
    committing: impl FnOnce(),
) -> Result<End, EngineError> {
    let level = match random.index(5) {
        0 | 1 => IsolationLevel::ReadCommitted,
        2 | 3 => IsolationLevel::RepeatableRead,
        _ => IsolationLevel::Serializable,
    };
    let mut transaction = engine.begin_with(level);
    let durability = [Durability::Synchronous, Durability::Asynchronous][random.index(3) / 2];
    transaction.set_durability(durability);
    transaction.set_lock_timeout(Some(Duration::from_millis(20)));
    let mut book = Book { txn, ..Book::default() };
    for _ in 0..=random.index(3) {
        let savepoint = transaction.savepoint();
        let before = book.entries.len();
        let rolls_back = random.index(6) == 0;
        match step(&mut transaction, bank, &mut book, random).await {
            Ok(()) if !rolls_back => {}
            Ok(()) => {
                transaction.rollback_to(&savepoint)?;
                book.entries.truncate(before);
            }
            Err(error) if kin::is_refused(&error) => {
                transaction.rollback_to(&savepoint)?;
                book.entries.truncate(before);
            }
            Err(error) => return Err(error),
        }
    }
    if random.index(10) == 0 {
        transaction.rollback();
        return Ok(End::RolledBack);
    }
    let count = book.entries.len() as i64;
    transaction.next_statement();
    if count > 0 {
        let rows = book.rows(&book.entries);
        if random.index(4) == 0 {
            let mut load = transaction.bulk(bank.entries)?;
            load.append(rows).await?;
            load.finish().await?;
        } else {
            transaction.insert(bank.entries, rows).await?;
        }
    }
    transaction.next_statement();
    let ticket = sequence.next()?;
    transaction.insert(bank.journal, journal_row(txn, client, ticket, count)).await?;
    committing();
    let timestamp = transaction.commit().await?;
    Ok(End::Committed { timestamp, durability })
}

async fn step(
    transaction: &mut Transaction,
    bank: Bank,
    book: &mut Book,
    random: &mut SeededRandom,
) -> Result<(), EngineError> {
    transaction.next_statement();
    let account = random.below(ACCOUNTS as u64) as i64;
    match random.index(10) {
        7.. => return kin::step(transaction, bank, book, random).await,
        0 | 1 => {
            let (other, amount) = (random.below(ACCOUNTS as u64) as i64, random.below(20) as i64);
            for (id, delta) in [(account, -amount), (other, amount)] {
                add(transaction, bank, id, delta).await?;
                book.note(OF_ACCOUNT, id, delta);
                transaction.next_statement();
            }
        }
        2 => {
            let high = (account + 6).min(ACCOUNTS - 1);
            let change = Add { inputs: 2, attribute: AttributeId(1), delta: 3 };
            let rows = transaction.update(&between(bank.accounts, account, high), Arc::new(change)).await?;
            assert_eq!(rows as i64, high - account + 1, "accounts {account} to {high} exist");
            (account..=high).for_each(|id| book.note(OF_ACCOUNT, id, 3));
        }
        3 => {
            // Out and in again, with a note.
            let key = read(bank.accounts, &[(0, account)], &[0, 1]);
            let found = transaction.lock_rows(&key, RowLock::Update, LockWait::Wait).await?;
            let balance = found.iter().find(|batch| batch.rows > 0).map(|batch| batch.value(0, 1));
            let Some(Value::Int64(balance)) = balance else { panic!("account {account} exists") };
            transaction.next_statement();
            if transaction.delete(&key, None).await? == 1 {
                transaction.next_statement();
                let note = Value::Text(account_note(account, book.txn).into());
                let row = vec![Value::Int64(account), Value::Int64(balance), note];
                let types = [DataType::Int64, DataType::Int64, DataType::Text];
                transaction.insert(bank.accounts, Batch::from_rows(&types, &[row])).await?;
                book.note(OF_NOTE, account, 0);
            }
        }
        4 => {
            let mover = random.below(MOVERS as u64) as i64;
            let delta = random.below(PLACES as u64) as i64 * MOVERS;
            let change = Add { inputs: 1, attribute: AttributeId(0), delta };
            let rows = transaction.update(&read(bank.movers, &[(1, mover)], &[0]), Arc::new(change)).await?;
            assert_eq!(rows, 1, "mover {mover} exists");
            book.note(OF_MOVER, mover, delta);
        }
        5 => {
            let value = random.below(TOKENS as u64) as i64;
            let count = 1 + random.below(12) as i64;
            let rows: Vec<_> = (0..count).map(|_| vec![Value::Int64(value)]).collect();
            transaction.insert(bank.tokens, Batch::from_rows(&[DataType::Int64], &rows)).await?;
            book.note(OF_TOKEN, value, count);
        }
        _ => {
            let value = random.below(TOKENS as u64) as i64;
            let one = Arc::new(One(std::sync::atomic::AtomicBool::new(false)));
            let gone = transaction.delete(&read(bank.tokens, &[(0, value)], &[0]), Some(one)).await?;
            book.note(OF_TOKEN, value, -(gone as i64));
        }
    }
    Ok(())
}

async fn add(transaction: &mut Transaction, bank: Bank, id: i64, delta: i64) -> Result<(), EngineError> {
    let change = Add { inputs: 2, attribute: AttributeId(1), delta };
    let rows = transaction.update(&read(bank.accounts, &[(0, id)], &[0, 1]), Arc::new(change)).await?;
    assert_eq!(rows, 1, "account {id} exists");
    Ok(())
}

/// The tickets of the journal.
pub fn sequence_spec() -> SequenceSpec {
    SequenceSpec { cache: 2, ..SequenceSpec::new("tickets") }
}
