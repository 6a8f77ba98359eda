//! A client that appends to lists and reads them, and tells the history what it saw, whatever goes wrong meanwhile.

use std::sync::{Arc, Mutex};

use eris_engine::{Engine, EngineError, IsolationLevel, Savepoint, StatementClass, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, PinnedCursor};

use super::{
    Append, BY_LENGTH, CODE, KEY, SetCode, by, codes, every_list, lists_by_length, lists_in_order, lists_of, row,
};
use crate::chaos::{Chaos, Doom, drop_after, panicking_append};
use crate::elle::{Element, Ending, Level, ListHistory, ListTransaction, Operation};

/// What the clients of one table of lists share.
#[derive(Clone)]
pub struct Lists {
    pub engine: Engine,
    pub container: ContainerId,
    pub keys: u64,
    pub chaos: Arc<Chaos>,
    pub history: Arc<Mutex<ListHistory>>,
}

/// One transaction under way.
struct Client {
    lists: Lists,
    transaction: Transaction,
    record: Arc<Mutex<ListTransaction>>,
    random: SeededRandom,
    savepoints: Vec<(Savepoint, usize)>,
}

/// Runs transactions and adds what it saw to the history.
pub async fn run_list_client(lists: Lists, transactions: u64, seed: u64) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let level = Chaos::level(&mut random);
        // A place among the running statements comes first, as for every statement of a session.
        let Ok(permit) = lists.engine.admit(StatementClass::Point).await else {
            lists.chaos.count("admission refused");
            lists.chaos.finished();
            continue;
        };
        let record = Arc::new(Mutex::new(ListTransaction {
            level: match level {
                IsolationLevel::ReadCommitted => Level::ReadCommitted,
                IsolationLevel::RepeatableRead => Level::Snapshot,
                IsolationLevel::Serializable => Level::Serializable,
            },
            operations: Vec::new(),
            ending: Ending::RolledBack,
            begun: lists.chaos.tick(),
            ended: None,
        }));
        let mut transaction = lists.engine.begin_with(level);
        transaction.set_lock_timeout(Chaos::lock_timeout(&mut random));
        // Three in four read few partitions at a time.
        transaction.limit_parallelism(Some(transaction.id().0 as usize % 4).filter(|limit| *limit > 0));
        let doom = lists.chaos.doom(&lists.engine, &mut transaction, &mut random);
        let client = Client {
            lists: lists.clone(),
            transaction,
            record: Arc::clone(&record),
            random: random.fork(),
            savepoints: Vec::new(),
        };
        match doom {
            Doom::DroppedAfter(span) => {
                if drop_after(&lists.engine, span, client.run()).await.is_none() {
                    lists.chaos.count("task dropped");
                }
            }
            Doom::None | Doom::Cancelled => client.run().await,
        }
        let record = record.lock().expect("one thread").clone();
        lists.history.lock().expect("one thread").transactions.push(record);
        lists.chaos.finished();
        drop(permit);
    }
}

impl Client {
    async fn run(mut self) {
        let result = self.statements().await;
        let Self { lists, transaction, record, mut random, .. } = self;
        match result {
            Ok(()) if !random.chance(0.1) => {
                record.lock().expect("one thread").ending = Ending::Unknown;
                let committed = lists.chaos.committed(transaction.commit().await).is_some();
                let mut record = record.lock().expect("one thread");
                record.ending = if committed { Ending::Committed } else { Ending::RolledBack };
                record.ended = committed.then(|| lists.chaos.tick());
            }
            Ok(()) => transaction.rollback(),
            Err(error) => {
                lists.chaos.expect(&error);
                transaction.rollback();
            }
        }
    }

    async fn statements(&mut self) -> Result<(), EngineError> {
        for _ in 0..=self.random.below(4) {
            self.transaction.next_statement();
            match self.statement().await {
                Ok(()) => {}
                Err(error) if !self.savepoints.is_empty() && self.random.chance(0.7) => {
                    self.lists.chaos.expect(&error);
                    self.transaction.set_cancel(eris_engine::CancelHandle::default());
                    self.roll_back();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn statement(&mut self) -> Result<(), EngineError> {
        let key = self.random.below(self.lists.keys) as i64;
        match self.random.below(20) {
            0..8 => self.append(key).await,
            8..13 => self.read(key).await,
            13 => self.read_all(false).await,
            14 => self.read_all(true).await,
            15 => self.read_pinned().await,
            16 => self.recode(key).await,
            17 => self.read_by_code().await,
            _ => {
                let length = self.record.lock().expect("one thread").operations.len();
                self.savepoints.push((self.transaction.savepoint(), length));
                Ok(())
            }
        }
    }

    fn roll_back(&mut self) {
        let place = self.random.index(self.savepoints.len());
        let (savepoint, length) = self.savepoints[place];
        self.savepoints.truncate(place + 1);
        self.transaction.rollback_to(&savepoint).expect("it was not released");
        let mut record = self.record.lock().expect("one thread");
        let before = record.operations.len();
        for operation in &mut record.operations[length..] {
            if let Operation::Append { undone: undone @ None, .. } = operation {
                *undone = Some(before);
            }
        }
    }

    fn note(&self, operation: Operation) {
        self.record.lock().expect("one thread").operations.push(operation);
    }

    async fn append(&mut self, key: i64) -> Result<(), EngineError> {
        let element = self.lists.chaos.tick() as Element;
        let read = by(self.lists.container, KEY, key);
        if self.lists.chaos.strikes("operator panicked", 0.02, &mut self.random) {
            return self.transaction.update(&read, panicking_append()).await.map(drop);
        }
        let rows = self.transaction.update(&read, Arc::new(Append(element))).await?;
        if rows == 0 {
            self.transaction.next_statement();
            let code = self.random.below(4 * self.lists.keys) as i64;
            self.transaction.insert(self.lists.container, row(key, element, code)).await?;
        }
        assert!(rows <= 1, "key {key} is unique, and {rows} rows have it");
        self.note(Operation::Append { key, element, undone: None });
        Ok(())
    }

    async fn read(&mut self, key: i64) -> Result<(), EngineError> {
        let found = lists_of(&self.transaction.read(&by(self.lists.container, KEY, key)).await?);
        assert!(found.len() <= 1, "key {key} is unique");
        let list = found.into_iter().next().map_or(Vec::new(), |(_, list)| list);
        self.note(Operation::Read { key, list });
        Ok(())
    }

    /// Notes all lists, also those that are not there.
    fn note_all(&self, mut found: Vec<(i64, Vec<Element>)>) {
        found.sort_unstable();
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "each key is there once: {found:?}");
        let mut found = found.into_iter().peekable();
        for key in 0..self.lists.keys as i64 {
            let list = found.next_if(|(found, _)| *found == key).map_or(Vec::new(), |(_, list)| list);
            self.note(Operation::Read { key, list });
        }
    }

    async fn read_all(&mut self, in_order: bool) -> Result<(), EngineError> {
        let container = self.lists.container;
        let schema = self.lists.engine.container(container).expect("it is dropped at the end").schema();
        let read = match in_order {
            // By the index that comes and goes, if it is there now: the statement may be told that it went.
            true if schema.index(BY_LENGTH).is_some() => lists_by_length(container),
            true => lists_in_order(container),
            false => every_list(container),
        };
        let found = lists_of(&self.transaction.scan(read, None)?.collect().await?);
        self.note_all(found);
        Ok(())
    }

    /// The same by pins, which need no latch.
    async fn read_pinned(&mut self) -> Result<(), EngineError> {
        let request = every_list(self.lists.container).request;
        let pinned = self.transaction.pin(self.lists.container, &request).await?;
        let handle = self.transaction.snapshot_handle();
        let mut batches = pinned.open;
        for segment in &pinned.segments {
            let mut cursor = PinnedCursor::default();
            while let Some(batch) = segment.scan(&handle.snapshot(), &request, &mut cursor, 7)? {
                batches.push(batch);
            }
        }
        self.note_all(lists_of(&batches));
        Ok(())
    }

    async fn recode(&mut self, key: i64) -> Result<(), EngineError> {
        let code = self.random.below(4 * self.lists.keys) as i64;
        let rows = self.transaction.update(&by(self.lists.container, KEY, key), Arc::new(SetCode(code))).await?;
        assert!(rows <= 1, "key {key} is unique, and {rows} rows have it");
        Ok(())
    }

    /// By the global index; what it finds is what a read by the key finds.
    async fn read_by_code(&mut self) -> Result<(), EngineError> {
        let read = codes(self.lists.container);
        let all = self.transaction.scan(read, None)?.collect().await?;
        let codes = crate::accounts::pairs(&all);
        let Some((key, code)) = (!codes.is_empty()).then(|| codes[self.random.index(codes.len())]) else {
            return Ok(());
        };
        let found = lists_of(&self.transaction.read(&by(self.lists.container, CODE, code)).await?);
        // The read is of the same statement, so it sees the same rows.
        let [(found_key, list)] = found.as_slice() else { panic!("code {code} of key {key} finds {found:?}") };
        assert_eq!(*found_key, key, "code {code} belongs to key {key}");
        self.note(Operation::Read { key, list: list.clone() });
        Ok(())
    }
}
