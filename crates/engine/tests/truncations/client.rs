//! A client of truncated tables.

use std::sync::Arc;

use eris_engine::{CancelHandle, EngineError, Savepoint, TableLockMode, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, Timestamp};

use super::history::{Operation, Record};
use super::{OwnLocks, TABLES, Truncations};
use crate::accounts::{everything, pairs, row};
use crate::chaos::{Chaos, Doom, drop_after};

/// What some do between two statements, and how long a table stays dropped at most.
const PAUSE_MICROS_MAX: u64 = 500;

/// Containers that take the place of others when the transaction commits.
#[derive(Default)]
struct Replacements(Vec<Replacement>);

#[derive(Clone, Copy)]
struct Replacement {
    table: usize,
    old: ContainerId,
    new: ContainerId,
    /// The name means nothing for a while.
    drops: bool,
}

impl Replacements {
    fn of(&self, table: usize) -> Option<ContainerId> {
        self.0.iter().rev().find(|made| made.table == table).map(|made| made.new)
    }

    /// Takes back all but the first ones.
    fn truncate(&mut self, shared: &Truncations, count: usize) {
        for made in self.0.drain(count..) {
            shared.engine.drop_container(made.new).expect("nobody else knows it");
        }
    }

    /// Has the names mean the new containers, now that a transaction has committed and still holds its locks.
    fn publish(&self, shared: &Truncations, committed: Timestamp) {
        for (at, made) in self.0.iter().enumerate() {
            // One that was truncated twice leaves one that was never named.
            if self.0[at + 1..].iter().all(|later| later.old != made.new) {
                let new = shared.engine.container(made.new).expect("it was made before");
                new.set_visible_from(committed);
                shared.set_meaning(made.table, (!made.drops).then_some(made.new));
            }
        }
        for made in &self.0 {
            shared.engine.drop_container(made.old).expect("nobody else drops it");
        }
    }
}

/// One transaction under way.
struct Client<'a> {
    shared: &'a Truncations,
    transaction: &'a mut Transaction,
    random: &'a mut SeededRandom,
    operations: &'a mut Vec<Operation>,
    replacements: &'a mut Replacements,
    locks: OwnLocks,
    savepoint: Option<(Savepoint, usize, usize, usize)>,
}

impl Client<'_> {
    /// Statements at random; what came after a savepoint may be taken back. The locks, which are noted until the
    /// transaction ends.
    async fn run(mut self) -> Result<OwnLocks, EngineError> {
        for _ in 0..=self.random.below(4) {
            if self.random.chance(0.2) {
                self.shared.pause(self.random, PAUSE_MICROS_MAX).await;
            }
            if self.savepoint.is_none() && self.random.chance(0.15) {
                let savepoint = self.transaction.savepoint();
                let (operations, made) = (self.operations.len(), self.replacements.0.len());
                self.savepoint = Some((savepoint, operations, made, self.locks.count()));
            }
            self.transaction.next_statement();
            let done = self.statement().await;
            let back = self.savepoint.is_some() && self.random.chance(if done.is_ok() { 0.1 } else { 0.7 });
            match done {
                Err(error) if back => self.shared.chaos.expect(&error),
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            if back {
                self.roll_back();
            }
        }
        Ok(self.locks)
    }

    fn roll_back(&mut self) {
        let Some((savepoint, operations, made, locks)) = self.savepoint else { return };
        self.transaction.set_cancel(CancelHandle::default());
        self.locks.truncate(locks);
        self.transaction.rollback_to(&savepoint).expect("it was not released");
        self.operations.truncate(operations);
        self.replacements.truncate(self.shared, made);
        self.shared.chaos.count("truncation taken back");
    }

    async fn statement(&mut self) -> Result<(), EngineError> {
        let table = self.random.index(TABLES);
        match self.random.below(12) {
            0..5 => self.insert(table).await,
            5..8 => self.read(table).await,
            8..10 => {
                let mode = TableLockMode::ALL[self.random.index(TableLockMode::ALL.len())];
                self.lock(table, mode).await.map(drop)
            }
            _ => self.replace(table).await,
        }
    }

    fn meaning(&self, table: usize) -> Option<ContainerId> {
        self.replacements.of(table).or_else(|| self.shared.meaning(table))
    }

    /// Locks what a name means, and what it means then if that is another container. None: the table is dropped.
    async fn lock(&mut self, table: usize, mode: TableLockMode) -> Result<Option<ContainerId>, EngineError> {
        let mut gone = None;
        while let Some(container) = self.meaning(table) {
            if gone == Some(container) {
                return Err(EngineError::NoSuchContainer(container));
            }
            let locked = if self.random.chance(0.1) {
                self.transaction.lock_table_now(container, mode)
            } else {
                self.transaction.lock_table(container, mode).await
            };
            match locked {
                Ok(()) => {
                    self.locks.add(container, mode);
                    self.shared.chaos.count("table locked");
                    return Ok(Some(container));
                }
                Err(EngineError::NoSuchContainer(_)) => gone = Some(container),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Most lock before they use a table, as sessions do; the others leave it to the access.
    async fn table_for(&mut self, table: usize, mode: TableLockMode) -> Result<Option<ContainerId>, EngineError> {
        if self.random.chance(0.3) { Ok(self.meaning(table)) } else { self.lock(table, mode).await }
    }

    async fn insert(&mut self, table: usize) -> Result<(), EngineError> {
        let Some(container) = self.table_for(table, TableLockMode::RowExclusive).await? else { return Ok(()) };
        let element = self.shared.chaos.tick() as i64;
        self.transaction.insert(container, row(element, table as i64, None)).await?;
        self.locks.add(container, TableLockMode::RowExclusive);
        self.operations.push(Operation::Insert { table, element });
        Ok(())
    }

    async fn read(&mut self, table: usize) -> Result<(), EngineError> {
        let Some(container) = self.table_for(table, TableLockMode::AccessShare).await? else { return Ok(()) };
        let found = pairs(&self.transaction.read(&everything(container)).await?);
        self.locks.add(container, TableLockMode::AccessShare);
        let mut found: Vec<i64> = found.into_iter().map(|(element, _)| element).collect();
        found.sort_unstable();
        let snapshot = self.transaction.snapshot_timestamp().0;
        self.operations.push(Operation::Read { table, snapshot, found });
        Ok(())
    }

    /// TRUNCATE or DROP.
    async fn replace(&mut self, table: usize) -> Result<(), EngineError> {
        let mut gone = None;
        while let Some(old) = self.meaning(table) {
            if gone == Some(old) {
                return Err(EngineError::NoSuchContainer(old));
            }
            match self.transaction.lock_to_replace(old).await {
                Ok(()) => {}
                Err(EngineError::NoSuchContainer(_)) => {
                    gone = Some(old);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.locks.add(old, TableLockMode::AccessExclusive);
            let noted = row(self.shared.chaos.tick() as i64, table as i64, None);
            self.transaction.insert(self.shared.catalog, noted).await?;
            let new = self.shared.container().expect("the id is fresh").id();
            self.replacements.0.push(Replacement { table, old, new, drops: self.random.chance(0.2) });
            self.operations.push(Operation::Truncate { table });
            break;
        }
        Ok(())
    }
}

/// Commits; what replaces other containers is published before the locks are given back.
async fn commit(
    shared: &Truncations,
    mut transaction: Transaction,
    replacements: &mut Replacements,
    random: &mut SeededRandom,
) -> Option<Timestamp> {
    if replacements.0.is_empty() {
        return shared.chaos.committed(transaction.commit().await);
    }
    let locks = transaction.keep_locks();
    let timestamp = match transaction.commit().await {
        Ok(timestamp) => timestamp,
        Err(error) => return shared.chaos.committed(Err(error)),
    };
    if random.chance(0.3) {
        shared.pause(random, PAUSE_MICROS_MAX).await;
    }
    replacements.publish(shared, timestamp);
    drop(locks);
    shared.chaos.count("table truncated");
    for made in replacements.0.iter().filter(|made| made.drops) {
        if replacements.of(made.table) != Some(made.new) {
            continue;
        }
        shared.pause(random, PAUSE_MICROS_MAX).await;
        shared.set_meaning(made.table, Some(made.new));
        shared.chaos.count("table dropped and made anew");
    }
    Some(timestamp)
}

pub async fn run_truncation_client(shared: Truncations, transactions: u64, mut random: SeededRandom) {
    for _ in 0..transactions {
        let level = Chaos::level(&mut random);
        let mut transaction = shared.engine.begin_with(level);
        transaction.set_lock_timeout(Chaos::lock_timeout(&mut random));
        let doom = shared.chaos.doom(&shared.engine, &mut transaction, &mut random);
        let mut ends = random.fork();
        let (mut operations, mut replacements) = (Vec::new(), Replacements::default());
        let locks = OwnLocks { holders: Arc::clone(&shared.holders), owner: shared.chaos.tick() };
        let client = Client {
            shared: &shared,
            transaction: &mut transaction,
            random: &mut random,
            operations: &mut operations,
            replacements: &mut replacements,
            locks,
            savepoint: None,
        };
        let result = match doom {
            Doom::None | Doom::Cancelled => Some(client.run().await),
            Doom::DroppedAfter(span) => drop_after(&shared.engine, span, client.run()).await,
        };
        let mut committed = None;
        match result {
            None => {
                shared.chaos.count("statement dropped");
                transaction.rollback();
            }
            Some(Ok(locks)) => {
                drop(locks);
                if ends.below(10) == 0 {
                    transaction.rollback();
                } else {
                    committed = commit(&shared, transaction, &mut replacements, &mut ends).await;
                }
            }
            Some(Err(error)) => {
                shared.chaos.expect(&error);
                transaction.rollback();
            }
        }
        if committed.is_none() {
            replacements.truncate(&shared, 0);
        }
        shared.history.lock().expect("one thread").add(Record { level, operations, committed });
        shared.chaos.finished();
    }
}
