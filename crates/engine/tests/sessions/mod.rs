//! Sessions that a test steers one operation at a time: it gives an operation to a session, lets the simulated engine
//! run until nobody has work, and looks whether the session answered or waits.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::needless_pass_by_value, reason = "orders read better where they are given than borrowed")]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use eris_engine::{
    CancelHandle, ContainerSpec, Engine, EngineError, EngineOptions, IsolationLevel, LockWait, Partitioning, Read,
    Savepoint, Simulation, Transaction,
};
use eris_storage::{
    Batch, Comparison, Condition, ContainerId, DataType, Layout, Predicate, ReadRequest, RowLock, StorageError, Test,
    Value,
};

use crate::accounts::{AMOUNT, KEY, SetAmount, SetKey, by_key, everything, pairs, row, schema};

/// What a session is told to do. Each is a statement of its own.
#[derive(Clone, Debug)]
pub enum Do {
    Begin(IsolationLevel),
    Timeout(Option<Duration>),
    Get(i64),
    All,
    /// Rows with this amount.
    Having(i64),
    Set(i64, i64),
    /// Adds to the amounts of all rows.
    AddToAll(i64),
    SetAll(i64),
    Delete(i64),
    DeleteHaving(i64),
    Insert(i64, i64),
    InsertMany(Vec<i64>),
    /// As a bulk load.
    Load(Vec<i64>),
    /// Gives a row another key.
    Rename(i64, i64),
    Lock(i64, RowLock, LockWait),
    LockAll(RowLock, LockWait),
    Savepoint,
    /// To the n-th savepoint.
    RollbackTo(usize),
    Release(usize),
    Commit,
    Rollback,
    /// Goes away in the middle of whatever comes: the transaction is dropped.
    Drop,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Rows(Vec<(i64, i64)>),
    Count(u64),
    /// 40001.
    Lost,
    /// 40001, among SERIALIZABLE ones.
    Unserializable,
    /// 23505.
    Duplicate,
    /// 40P01.
    Deadlock,
    /// 55P03, after a while.
    Timeout,
    /// 55P03, at once.
    NotAvailable,
    Cancelled,
    NoSuchSavepoint,
    /// By the log.
    Refused,
}

#[derive(Default)]
struct Mailbox {
    orders: VecDeque<Do>,
    answers: VecDeque<Answer>,
    waker: Option<Waker>,
    cancel: Option<CancelHandle>,
}

pub struct Session {
    mailbox: Arc<Mutex<Mailbox>>,
}

pub struct Bench {
    pub simulation: Simulation,
    pub container: ContainerId,
}

impl Bench {
    /// Accounts 1 and 2 with 10 and 20, in partitions and segments so small that everything happens.
    pub fn new(seed: u64) -> Self {
        let options = EngineOptions {
            workers: 2,
            nodes: 1 + (seed % 2) as usize,
            in_place: !seed.is_multiple_of(3),
            quantum: Duration::from_micros([0, 200][(seed / 2 % 2) as usize]),
            ..EngineOptions::default()
        };
        let partitions = 1 + (seed % 4) as usize;
        Self::with(seed, options, Partitioning::Hash { attributes: Box::new([KEY]), partitions })
    }

    pub fn with(seed: u64, options: EngineOptions, partitioning: Partitioning) -> Self {
        let simulation = Simulation::new(seed, options).expect("a simulated engine starts");
        let engine = simulation.engine().clone();
        let container = engine.next_container_id();
        let schema = Arc::new(schema(container, Layout::Default, 4));
        engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
        let mut bench = Self { simulation, container };
        let loader = bench.session();
        for order in [Do::Begin(IsolationLevel::RepeatableRead), Do::Insert(1, 10), Do::Insert(2, 20), Do::Commit] {
            assert!(bench.run(&loader, order).is_some());
        }
        loader.tell(Do::Drop);
        bench
    }

    pub fn engine(&self) -> &Engine {
        self.simulation.engine()
    }

    pub fn session(&mut self) -> Session {
        let mailbox = Arc::new(Mutex::new(Mailbox::default()));
        let (engine, container) = (self.engine().clone(), self.container);
        self.engine().spawn(serve(engine, container, Arc::clone(&mailbox)));
        Session { mailbox }
    }

    pub fn begin(&mut self, level: IsolationLevel) -> Session {
        let session = self.session();
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
        assert_eq!(found, Some(answer), "{order:?}");
    }

    /// Gives an order that must wait.
    pub fn waits(&mut self, session: &Session, order: Do) {
        let found = self.run(session, order.clone());
        assert_eq!(found, None, "{order:?} waits");
    }

    /// All rows as a new transaction sees them.
    pub fn state(&mut self) -> Vec<(i64, i64)> {
        let reader = self.begin(IsolationLevel::ReadCommitted);
        let Some(Answer::Rows(rows)) = self.run(&reader, Do::All) else { panic!("a read waits for nobody") };
        reader.tell(Do::Drop);
        rows
    }

    /// Ends every session and shows that nothing is left: locks, waits, snapshots, memory.
    pub fn finish(mut self, sessions: Vec<Session>) {
        for session in &sessions {
            session.tell(Do::Drop);
        }
        self.settle();
        let statistics = self.engine().statistics();
        assert_eq!((statistics.snapshots, statistics.waiting_transactions), (0, 0));
        assert_eq!(statistics.tracked_transactions, 0);
        let row_locks = statistics.memory_by_consumer.iter().find(|(consumer, _)| *consumer == "row locks");
        assert!(row_locks.is_none_or(|(_, bytes)| *bytes == 0), "row locks are left: {row_locks:?}");
        let engine = self.engine().clone();
        engine.drop_container(self.container).expect("it exists");
        self.settle();
        drop(self);
        let memory = Arc::clone(engine.memory());
        drop(engine);
        assert_eq!(memory.used(), 0, "{:?}", memory.by_consumer());
    }
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

    /// Cancels what it does or waits for.
    pub fn cancel(&self) {
        self.mailbox.lock().expect("one thread").cancel.as_ref().expect("it has begun").cancel();
    }
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

async fn serve(engine: Engine, container: ContainerId, mailbox: Arc<Mutex<Mailbox>>) {
    let mut transaction: Option<Transaction> = None;
    let mut savepoints = Vec::new();
    loop {
        let answer = match next(&mailbox).await {
            Do::Drop => return,
            Do::Begin(level) => {
                let new = engine.begin_with(level);
                mailbox.lock().expect("one thread").cancel = Some(new.cancel_handle());
                transaction = Some(new);
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
            order => {
                let transaction = transaction.as_mut().expect("a transaction");
                transaction.next_statement();
                let done = obey(transaction, container, &mut savepoints, order).await;
                done.unwrap_or_else(|error| answer_of(&error))
            }
        };
        mailbox.lock().expect("one thread").answers.push_back(answer);
    }
}

async fn obey(
    transaction: &mut Transaction,
    container: ContainerId,
    savepoints: &mut Vec<Savepoint>,
    order: Do,
) -> Result<Answer, EngineError> {
    Ok(match order {
        Do::Timeout(timeout) => {
            transaction.set_lock_timeout(timeout);
            Answer::Done
        }
        Do::Get(key) => Answer::Rows(pairs(&transaction.read(&by_key(container, key)).await?)),
        Do::All => rows(&transaction.read(&everything(container)).await?),
        Do::Having(amount) => rows(&transaction.read(&by_amount(container, amount)).await?),
        Do::Set(key, amount) => {
            Answer::Count(transaction.update(&by_key(container, key), Arc::new(SetAmount(amount))).await?)
        }
        Do::AddToAll(amount) => Answer::Count(transaction.update(&everything(container), Arc::new(Add(amount))).await?),
        Do::SetAll(amount) => {
            Answer::Count(transaction.update(&everything(container), Arc::new(SetAmount(amount))).await?)
        }
        Do::Delete(key) => Answer::Count(transaction.delete(&by_key(container, key), None).await?),
        Do::DeleteHaving(amount) => Answer::Count(transaction.delete(&by_amount(container, amount), None).await?),
        Do::Insert(key, amount) => Answer::Count(transaction.insert(container, row(key, amount, None)).await?),
        Do::InsertMany(keys) => {
            let batches: Vec<Batch> = keys.iter().map(|key| row(*key, *key, None)).collect();
            Answer::Count(transaction.insert(container, Batch::concat(&batches)).await?)
        }
        Do::Load(keys) => {
            let batches: Vec<Batch> = keys.iter().map(|key| row(*key, *key, None)).collect();
            let mut load = transaction.bulk(container)?;
            load.append(Batch::concat(&batches)).await?;
            Answer::Count(load.finish().await?)
        }
        Do::Rename(from, to) => {
            Answer::Count(transaction.update(&by_key(container, from), Arc::new(SetKey(to))).await?)
        }
        Do::Lock(key, lock, wait) => rows(&transaction.lock_rows(&by_key(container, key), lock, wait).await?),
        Do::LockAll(lock, wait) => rows(&transaction.lock_rows(&everything(container), lock, wait).await?),
        Do::Savepoint => {
            savepoints.push(transaction.savepoint());
            Answer::Done
        }
        Do::RollbackTo(number) => {
            transaction.rollback_to(&savepoints[number])?;
            Answer::Done
        }
        Do::Release(number) => {
            transaction.release(&savepoints[number])?;
            Answer::Done
        }
        Do::Begin(_) | Do::Commit | Do::Rollback | Do::Drop => unreachable!("served before"),
    })
}

fn rows(batches: &[Batch]) -> Answer {
    let mut rows = pairs(batches);
    rows.sort_unstable();
    Answer::Rows(rows)
}

fn by_amount(container: ContainerId, amount: i64) -> Read {
    let condition = Condition { attribute: AMOUNT, test: Test::Compare(Comparison::Equal, Value::Int64(amount)) };
    let request = ReadRequest {
        predicate: Predicate { conditions: Arc::new([condition]) },
        desired: Arc::new([KEY, AMOUNT]),
        order: None,
    };
    Read { container, request }
}

/// Adds to the amounts.
struct Add(i64);

impl eris_engine::RowChange for Add {
    fn inputs(&self) -> usize {
        2
    }

    fn attributes(&self) -> &[eris_storage::AttributeId] {
        &[AMOUNT]
    }

    fn apply(&self, batch: &Batch) -> Result<eris_engine::Change, EngineError> {
        let amounts = pairs(std::slice::from_ref(batch)).into_iter().map(|(_, amount)| amount + self.0);
        let rows: Vec<Vec<Value>> = amounts.map(|amount| vec![Value::Int64(amount)]).collect();
        let values = Batch::from_rows(&[DataType::Int64], &rows);
        Ok(eris_engine::Change { rows: None, attributes: Box::new([AMOUNT]), values })
    }
}

fn answer_of(error: &EngineError) -> Answer {
    match error {
        EngineError::Storage(StorageError::Conflict { with: None }) => Answer::Lost,
        EngineError::Storage(StorageError::DuplicateKey { .. }) => Answer::Duplicate,
        EngineError::Unserializable { .. } => Answer::Unserializable,
        EngineError::Log(_) => Answer::Refused,
        EngineError::Deadlock => Answer::Deadlock,
        EngineError::LockTimeout => Answer::Timeout,
        EngineError::LockNotAvailable => Answer::NotAvailable,
        EngineError::Cancelled => Answer::Cancelled,
        EngineError::NoSuchSavepoint => Answer::NoSuchSavepoint,
        other => panic!("unexpected: {other}"),
    }
}
