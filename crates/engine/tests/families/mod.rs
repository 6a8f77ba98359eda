//! Parents and children, and what sessions do to them: for tests of foreign keys.
//!
//! All tables have one schema, `id` (the primary key), `other` and a note, so that one set of accesses does:
//! ```text
//!   shape     parents                                children: `other` refers to
//!   Local     key = id, which names the partition    parents.id
//!   Global    key = other, by a global index         parents.other
//!   Own       key = id, the children themselves      id
//! ```

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::needless_pass_by_value, reason = "orders read better where they are given than borrowed")]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use eris_engine::{
    Change, ContainerSpec, Engine, EngineError, EngineOptions, ForeignKeySpec, GlobalIndexSpec, IsolationLevel,
    KeySide, Partitioning, Read, ReferentialAction, RowChange, Savepoint, Simulation, Transaction,
};
use eris_storage::{
    Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, Layout, Predicate,
    ReadRequest, Schema, SchemaVersion, StorageError, Value,
};

pub const ID: AttributeId = AttributeId(0);
pub const OTHER: AttributeId = AttributeId(1);

/// How parents are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Local,
    Global,
    Own,
}

pub const SHAPES: [Shape; 3] = [Shape::Local, Shape::Global, Shape::Own];

/// Two tables, or one.
#[derive(Clone, Debug)]
pub struct Family {
    pub shape: Shape,
    pub parents: ContainerId,
    pub children: ContainerId,
    /// The hidden container of the global index.
    pub hidden: Option<ContainerId>,
    /// For parents whose key is not their id.
    next_id: Arc<AtomicI64>,
}

/// How the tables are made.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub shape: Shape,
    /// Whether children are found by an index.
    pub indexed: bool,
    /// None: by ranges of the id.
    pub hash_partitions: Option<usize>,
    pub segment_rows: u32,
}

impl Family {
    pub fn create(engine: &Engine, making: Making) -> Self {
        let create = |indexed: bool| {
            let container = engine.next_container_id();
            let partitioning = match making.hash_partitions {
                Some(partitions) => Partitioning::Hash { attributes: Box::new([ID]), partitions },
                None => Partitioning::Range(Box::new([ID])),
            };
            let schema = Arc::new(schema(container, making.segment_rows, indexed));
            engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
            container
        };
        let children = create(making.indexed);
        let parents = if making.shape == Shape::Own { children } else { create(false) };
        let hidden = (making.shape == Shape::Global).then(|| {
            let name = "parents_other_key".into();
            let spec = GlobalIndexSpec { container: parents, name, attributes: Box::new([OTHER]), partitions: 2 };
            engine.create_global_index(&spec).expect("the container is empty")
        });
        Self { shape: making.shape, parents, children, hidden, next_id: Arc::new(AtomicI64::new(1_000_000)) }
    }

    /// The attribute that is referred to.
    pub fn key(&self) -> AttributeId {
        if self.shape == Shape::Global { OTHER } else { ID }
    }

    pub fn spec(&self, action: ReferentialAction) -> ForeignKeySpec {
        let side = |container, name: &str, attribute| KeySide {
            container,
            name: name.into(),
            attributes: Box::new([attribute]),
        };
        ForeignKeySpec {
            name: "children_parent_fkey".into(),
            child: side(self.children, "children", OTHER),
            parent: side(self.parents, if self.shape == Shape::Own { "children" } else { "parents" }, self.key()),
            on_delete: action,
            on_update: action,
        }
    }

    /// All containers, each once.
    pub fn containers(&self) -> Vec<ContainerId> {
        let parents = (self.shape != Shape::Own).then_some(self.parents);
        std::iter::once(self.children).chain(parents).chain(self.hidden).collect()
    }

    /// A row of the parents.
    pub fn parent(&self, key: i64) -> Batch {
        match self.shape {
            Shape::Local | Shape::Own => row(key, None),
            Shape::Global => row(self.next_id.fetch_add(1, Ordering::Relaxed), Some(key)),
        }
    }

    pub fn find_parent(&self, key: i64) -> Read {
        equal(self.parents, self.key(), key)
    }

    /// Keys that parents have, and the children with what they refer to, as one snapshot shows them.
    pub async fn rows(&self, transaction: &mut Transaction) -> Result<Rows, EngineError> {
        let key = usize::from(self.key().0);
        let parents = transaction.scan(everything(self.parents), None)?.collect().await?;
        let children = transaction.scan(everything(self.children), None)?.collect().await?;
        let mut keys: Vec<i64> = pairs(&parents).into_iter().filter_map(|pair| [Some(pair.0), pair.1][key]).collect();
        let mut children = pairs(&children);
        keys.sort_unstable();
        children.sort_unstable();
        Ok((keys, children))
    }
}

/// Keys of parents; children.
pub type Rows = (Vec<i64>, Vec<(i64, Option<i64>)>);

/// The children whose parent is not there.
pub fn orphans(rows: &Rows) -> Vec<(i64, Option<i64>)> {
    rows.1.iter().copied().filter(|(_, parent)| parent.is_some_and(|parent| !rows.0.contains(&parent))).collect()
}

pub fn schema(container: ContainerId, segment_rows: u32, indexed: bool) -> Schema {
    let attribute = |name: &str, data_type, nullable| Attribute { name: name.into(), data_type, nullable };
    let index = |id, name: &str, attribute, unique| IndexDefinition {
        id: IndexId(id),
        name: name.into(),
        attributes: Box::new([attribute]),
        unique,
        primary: unique,
        kind: IndexKind::Ordered,
    };
    let primary = index(1, "pkey", ID, true);
    Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([
            attribute("id", DataType::Int64, false),
            attribute("other", DataType::Int64, true),
            attribute("note", DataType::Text, true),
        ]),
        indexes: if indexed { Box::new([primary, index(2, "other_index", OTHER, false)]) } else { Box::new([primary]) },
        layout: Layout::Default,
        physical: None,
        segment_rows,
    }
}

fn value(value: Option<i64>) -> Value {
    value.map_or(Value::Null, Value::Int64)
}

pub fn row(id: i64, other: Option<i64>) -> Batch {
    Batch::from_rows(
        &[DataType::Int64, DataType::Int64, DataType::Text],
        &[vec![Value::Int64(id), value(other), Value::Text("a note that is longer than twelve bytes".into())]],
    )
}

pub fn everything(container: ContainerId) -> Read {
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::new([ID, OTHER]), order: None };
    Read { container, request }
}

pub fn equal(container: ContainerId, attribute: AttributeId, key: i64) -> Read {
    let predicate = Predicate::equal(attribute, Value::Int64(key));
    Read { container, request: ReadRequest { predicate, desired: Arc::new([ID, OTHER]), order: None } }
}

pub fn pairs(batches: &[Batch]) -> Vec<(i64, Option<i64>)> {
    let integer = |value: Value| match value {
        Value::Int64(integer) => Some(integer),
        Value::Null => None,
        other => panic!("both attributes are integers: {other:?}"),
    };
    let pair =
        |batch: &Batch, row| (integer(batch.value(row, 0)).expect("it is not null"), integer(batch.value(row, 1)));
    batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| pair(batch, row))).collect()
}

/// Sets an attribute to a value, or adds to it.
pub struct Write {
    pub attribute: AttributeId,
    pub value: Option<i64>,
    pub adds: bool,
}

impl RowChange for Write {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        std::slice::from_ref(&self.attribute)
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let old = |row| match batch.value(row, usize::from(self.attribute.0)) {
            Value::Int64(old) if self.adds => old,
            _ => 0,
        };
        let rows: Vec<Vec<Value>> =
            (0..batch.rows).map(|row| vec![value(self.value.map(|value| value + old(row)))]).collect();
        let values = Batch::from_rows(&[DataType::Int64], &rows);
        Ok(Change { rows: None, attributes: Box::new([self.attribute]), values })
    }
}

/// What a session is told to do. Each is a statement of its own unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Do {
    Begin(IsolationLevel),
    Timeout(Option<Duration>),
    /// Parents with these keys.
    Parents(Vec<i64>),
    /// Children with what they refer to.
    Children(Vec<(i64, Option<i64>)>),
    /// Children as a bulk load.
    Load(Vec<(i64, Option<i64>)>),
    /// The parent with this key.
    DeleteParent(i64),
    DeleteAllParents,
    /// Gives a parent another key.
    Rename(i64, i64),
    /// Adds to the keys of all parents.
    Shift(i64),
    DeleteChild(i64),
    /// Gives a child another parent.
    Adopt(i64, Option<i64>),
    /// Changes neither key of a parent.
    Touch(i64),
    /// See `Transaction::hold_checks`.
    Hold(bool),
    /// See `Transaction::check_now`.
    Check,
    /// What follows is part of the same statement, until the next `Statement`.
    Together,
    Statement,
    /// Keys of parents and children.
    Rows,
    Savepoint,
    /// To the n-th savepoint.
    RollbackTo(usize),
    Commit,
    Rollback,
    /// Goes away in the middle of whatever comes: the transaction is dropped.
    Drop,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Count(u64),
    Rows(Rows),
    /// 23503: no parent has this key.
    Missing(i64),
    /// 23503: children refer to this key.
    Referenced(i64),
    /// 40001.
    Lost,
    /// 23505.
    Duplicate,
    /// 40P01.
    Deadlock,
    /// 55P03.
    Timeout,
}

pub fn answer_of(error: &EngineError) -> Answer {
    match error {
        EngineError::ForeignKeyViolation(violation) => {
            let [(_, Value::Int64(key))] = violation.key[..] else { panic!("the key is an integer: {violation:?}") };
            if violation.still_referenced { Answer::Referenced(key) } else { Answer::Missing(key) }
        }
        EngineError::Storage(StorageError::DuplicateKey { .. }) => Answer::Duplicate,
        EngineError::Deadlock => Answer::Deadlock,
        EngineError::LockTimeout => Answer::Timeout,
        error if error.is_retryable() => Answer::Lost,
        other => panic!("unexpected: {other}"),
    }
}

fn batch(rows: impl Iterator<Item = Batch>) -> Batch {
    Batch::concat(&rows.collect::<Vec<_>>())
}

/// Does one of the orders that concern rows or checks.
pub async fn obey(transaction: &mut Transaction, family: &Family, order: &Do) -> Result<Answer, EngineError> {
    let children = |rows: &[(i64, Option<i64>)]| batch(rows.iter().map(|(id, parent)| row(*id, *parent)));
    let set = |attribute, value| Arc::new(Write { attribute, value, adds: false });
    Ok(match order {
        Do::Timeout(timeout) => {
            transaction.set_lock_timeout(*timeout);
            Answer::Done
        }
        Do::Parents(keys) => {
            let rows = batch(keys.iter().map(|key| family.parent(*key)));
            Answer::Count(transaction.insert(family.parents, rows).await?)
        }
        Do::Children(rows) => Answer::Count(transaction.insert(family.children, children(rows)).await?),
        Do::Load(rows) => {
            let mut load = transaction.bulk(family.children)?;
            for part in rows.chunks(2) {
                load.append(children(part)).await?;
            }
            Answer::Count(load.finish().await?)
        }
        Do::DeleteParent(key) => Answer::Count(transaction.delete(&family.find_parent(*key), None).await?),
        Do::DeleteAllParents => Answer::Count(transaction.delete(&everything(family.parents), None).await?),
        Do::Rename(from, to) => {
            Answer::Count(transaction.update(&family.find_parent(*from), set(family.key(), Some(*to))).await?)
        }
        Do::Shift(by) => {
            let change = Write { attribute: family.key(), value: Some(*by), adds: true };
            Answer::Count(transaction.update(&everything(family.parents), Arc::new(change)).await?)
        }
        Do::DeleteChild(id) => Answer::Count(transaction.delete(&equal(family.children, ID, *id), None).await?),
        Do::Adopt(id, parent) => {
            Answer::Count(transaction.update(&equal(family.children, ID, *id), set(OTHER, *parent)).await?)
        }
        Do::Touch(key) => {
            let note = AttributeId(2);
            Answer::Count(transaction.update(&family.find_parent(*key), Arc::new(Note(note))).await?)
        }
        Do::Hold(held) => {
            transaction.hold_checks(*held);
            Answer::Done
        }
        Do::Check => {
            transaction.check_now().await?;
            Answer::Done
        }
        Do::Rows => Answer::Rows(family.rows(transaction).await?),
        Do::Begin(_)
        | Do::Together
        | Do::Statement
        | Do::Savepoint
        | Do::RollbackTo(_)
        | Do::Commit
        | Do::Rollback
        | Do::Drop => unreachable!("{order:?} concerns no rows"),
    })
}

/// Writes another note.
struct Note(AttributeId);

impl RowChange for Note {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[AttributeId] {
        std::slice::from_ref(&self.0)
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let rows: Vec<Vec<Value>> = (0..batch.rows).map(|_| vec![Value::Text("another note".into())]).collect();
        let values = Batch::from_rows(&[DataType::Text], &rows);
        Ok(Change { rows: None, attributes: Box::new([self.0]), values })
    }
}

#[derive(Default)]
struct Mailbox {
    orders: VecDeque<Do>,
    answers: VecDeque<Answer>,
    waker: Option<Waker>,
}

/// A client that a test steers one order at a time.
pub struct Session {
    mailbox: Arc<Mutex<Mailbox>>,
}

impl Session {
    pub fn tell(&self, order: Do) {
        let mut mailbox = self.mailbox.lock().expect("one thread");
        mailbox.orders.push_back(order);
        if let Some(waker) = mailbox.waker.take() {
            waker.wake();
        }
    }

    pub fn answer(&self) -> Option<Answer> {
        self.mailbox.lock().expect("one thread").answers.pop_front()
    }
}

/// An engine with a family, under a seed.
pub struct Bench {
    pub simulation: Simulation,
    pub family: Family,
}

impl Bench {
    /// Parents 1, 2 and 3; no child; the foreign key.
    pub fn new(seed: u64, shape: Shape, action: ReferentialAction) -> Self {
        let mut bench = Self::without_foreign_key(seed, shape);
        let (engine, spec) = (bench.engine().clone(), bench.family.spec(action));
        let made = bench.simulation.block_on(async move { engine.create_foreign_key(&spec).await });
        made.expect("it ends").expect("nothing refers to anything");
        bench
    }

    pub fn without_foreign_key(seed: u64, shape: Shape) -> Self {
        let options = EngineOptions {
            workers: 2,
            nodes: 1 + (seed % 2) as usize,
            in_place: !seed.is_multiple_of(3),
            quantum: Duration::from_micros([0, 200][(seed / 2 % 2) as usize]),
            ..EngineOptions::default()
        };
        let simulation = Simulation::new(seed, options).expect("a simulated engine starts");
        let hash_partitions = (!seed.is_multiple_of(3)).then_some(1 + (seed % 4) as usize);
        let making = Making { shape, indexed: seed.is_multiple_of(2), hash_partitions, segment_rows: 4 };
        let family = Family::create(simulation.engine(), making);
        let mut bench = Self { simulation, family };
        let loader = bench.begin(IsolationLevel::RepeatableRead);
        bench.expect(&loader, Do::Parents(vec![1, 2, 3]), Answer::Count(3));
        bench.expect(&loader, Do::Commit, Answer::Done);
        loader.tell(Do::Drop);
        bench
    }

    pub fn engine(&self) -> &Engine {
        self.simulation.engine()
    }

    pub fn begin(&mut self, level: IsolationLevel) -> Session {
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        self.engine().spawn(serve(self.engine().clone(), self.family.clone(), Arc::clone(&mailbox)));
        let session = Session { mailbox };
        assert_eq!(self.run(&session, Do::Begin(level)), Some(Answer::Done));
        session
    }

    /// Gives an order and runs until nobody has work; none: the session waits.
    pub fn run(&mut self, session: &Session, order: Do) -> Option<Answer> {
        session.tell(order);
        self.settle();
        session.answer()
    }

    pub fn settle(&mut self) {
        self.simulation.run_until_idle().expect("the engine comes to rest");
    }

    /// Gives an order that must be answered like this.
    pub fn expect(&mut self, session: &Session, order: Do, answer: Answer) {
        let found = self.run(session, order.clone());
        assert_eq!(found, Some(answer), "{order:?} ({:?})", self.family.shape);
    }

    /// Gives an order that must wait.
    pub fn waits(&mut self, session: &Session, order: Do) {
        let found = self.run(session, order.clone());
        assert_eq!(found, None, "{order:?} waits ({:?})", self.family.shape);
    }

    /// Ends every session and shows that nothing is left: orphans, locks, waits, snapshots, memory.
    pub fn finish(mut self, sessions: Vec<Session>) {
        for session in &sessions {
            session.tell(Do::Drop);
        }
        self.settle();
        let reader = self.begin(IsolationLevel::RepeatableRead);
        let Some(Answer::Rows(rows)) = self.run(&reader, Do::Rows) else { panic!("a read waits for nobody") };
        assert_eq!(orphans(&rows), [], "every child has its parent");
        reader.tell(Do::Drop);
        self.settle();
        check_nothing_is_left(self.simulation, &self.family);
    }
}

/// Drops the tables and shows that nothing is left.
pub fn check_nothing_is_left(mut simulation: Simulation, family: &Family) {
    let engine = simulation.engine().clone();
    let statistics = engine.statistics();
    assert_eq!((statistics.snapshots, statistics.waiting_transactions), (0, 0));
    let row_locks = statistics.memory_by_consumer.iter().find(|(consumer, _)| *consumer == "row locks");
    assert!(row_locks.is_none_or(|(_, bytes)| *bytes == 0), "row locks are left: {row_locks:?}");
    engine.drop_container(family.children).expect("nobody refers to it");
    if family.parents != family.children {
        engine.drop_container(family.parents).expect("the foreign key went with the children");
    }
    simulation.run_until_idle().expect("the engine comes to rest");
    drop(simulation);
    let memory = Arc::clone(engine.memory());
    drop(engine);
    assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
}

async fn next(mailbox: &Mutex<Mailbox>) -> Do {
    poll_fn(|context| {
        let mut mailbox = mailbox.lock().expect("one thread");
        if let Some(order) = mailbox.orders.pop_front() {
            return Poll::Ready(order);
        }
        mailbox.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await
}

async fn serve(engine: Engine, family: Family, mailbox: Arc<Mutex<Mailbox>>) {
    let mut transaction: Option<Transaction> = None;
    let mut savepoints: Vec<Savepoint> = Vec::new();
    let mut together = false;
    loop {
        let answer = match next(&mailbox).await {
            Do::Drop => return,
            Do::Begin(level) => {
                transaction = Some(engine.begin_with(level));
                savepoints.clear();
                Answer::Done
            }
            Do::Commit => {
                let timestamp = transaction.take().expect("a transaction").commit().await;
                timestamp.map_or_else(|error| answer_of(&error), |_| Answer::Done)
            }
            Do::Rollback => {
                transaction.take().expect("a transaction").rollback();
                Answer::Done
            }
            Do::Savepoint => {
                savepoints.push(transaction.as_mut().expect("a transaction").savepoint());
                Answer::Done
            }
            Do::RollbackTo(number) => {
                let done = transaction.as_mut().expect("a transaction").rollback_to(&savepoints[number]);
                done.map_or_else(|error| answer_of(&error), |()| Answer::Done)
            }
            order @ (Do::Together | Do::Statement) => {
                together = order == Do::Together;
                transaction.as_mut().expect("a transaction").next_statement();
                Answer::Done
            }
            order => {
                let transaction = transaction.as_mut().expect("a transaction");
                if !together {
                    transaction.next_statement();
                }
                obey(transaction, &family, &order).await.unwrap_or_else(|error| answer_of(&error))
            }
        };
        mailbox.lock().expect("one thread").answers.push_back(answer);
    }
}
