//! A client of the simulated engine: transactions at random, each with a record of what it saw and did.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Coalescing, Engine, EngineError, IsolationLevel, LockWait, Probes, Savepoint, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, RowLock, StorageError};

use super::{History, Observation, TransactionRecord, Write};
use crate::accounts::{AMOUNT, KEY, SetAmount, SetKey, by_key, by_position, everything, integers, lookup, pairs, row};

/// Few enough that lookups by amount find something.
const AMOUNTS: u64 = 500;

/// What a slow reader does between two batches: longer than a change of a partition waits for cursors.
const SLOW_READER: Duration = Duration::from_millis(15);

/// One transaction under way.
struct Client<'a> {
    engine: &'a Engine,
    transaction: &'a mut Transaction,
    container: ContainerId,
    keys: i64,
    random: &'a mut SeededRandom,
    record: &'a mut TransactionRecord,
    /// With the length of the record when they were set.
    savepoints: Vec<(Savepoint, usize)>,
}

impl Client<'_> {
    /// Statements at random. After an error that a savepoint can heal, some are taken back.
    async fn run(&mut self) -> Result<(), EngineError> {
        for _ in 0..=self.random.below(5) {
            match self.statement().await {
                Ok(()) => {}
                Err(error) if is_expected(&error) && !self.savepoints.is_empty() && self.random.chance(0.7) => {
                    self.roll_back();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        let position = self.random.index(self.savepoints.len());
        let (savepoint, length) = self.savepoints[position];
        self.savepoints.truncate(position + 1);
        self.transaction.rollback_to(&savepoint).expect("it was not released");
        self.record.roll_back_to(length);
    }

    fn key(&mut self) -> i64 {
        self.random.below(self.keys as u64) as i64
    }

    async fn statement(&mut self) -> Result<(), EngineError> {
        self.transaction.next_statement();
        let key = self.key();
        match self.random.below(45) {
            0..10 => self.read(key).await.map(drop),
            10..19 => self.update(key).await,
            19..22 => {
                let rows = self.transaction.delete(&by_key(self.container, key), None).await?;
                self.wrote(Write::Change { key, amount: None, rows });
                Ok(())
            }
            22..26 => {
                let amount = self.random.below(AMOUNTS) as i64;
                let note = self.random.chance(0.5).then_some("ein Konto, größer als zwölf Bytes");
                self.transaction.insert(self.container, row(key, amount, note)).await?;
                self.wrote(Write::Insert { key, amount });
                Ok(())
            }
            26..29 => self.rename(key).await,
            29..31 => self.scan().await,
            31..34 => {
                self.savepoints.push((self.transaction.savepoint(), self.record.savepoint()));
                Ok(())
            }
            34..35 => {
                match self.savepoints.len() {
                    0 => {}
                    1 => {
                        let (savepoint, _) = self.savepoints.remove(0);
                        self.transaction.release(&savepoint).expect("it is there");
                    }
                    _ => self.roll_back(),
                }
                Ok(())
            }
            35..36 => {
                if !self.savepoints.is_empty() {
                    self.roll_back();
                }
                Ok(())
            }
            36..40 => self.lock(key).await,
            40..44 => self.look_up().await,
            44 => self.probe().await,
            _ => {
                let amount = self.random.below(AMOUNTS) as i64;
                let rows = self.transaction.update(&everything(self.container), Arc::new(SetAmount(amount))).await?;
                self.wrote(Write::ChangeAll { amount, rows });
                Ok(())
            }
        }
    }

    /// The statement may have begun again with a newer snapshot, which counts.
    fn wrote(&mut self, write: Write) {
        self.record.write(self.transaction.snapshot_timestamp(), write);
    }

    fn observed(&mut self, observation: Observation) {
        self.record.observe(self.transaction.snapshot_timestamp(), observation);
    }

    async fn read(&mut self, key: i64) -> Result<usize, EngineError> {
        let found = pairs(&self.transaction.read(&by_key(self.container, key)).await?);
        let rows = found.len();
        self.observed(Observation::Key { key, found });
        Ok(rows)
    }

    /// Reads a row or locks it; what is locked, or seen by the one snapshot of the transaction, a change concerns.
    async fn find(&mut self, key: i64) -> Result<Option<usize>, EngineError> {
        if self.random.chance(0.3) {
            let read = by_key(self.container, key);
            let found = pairs(&self.transaction.lock_rows(&read, RowLock::Update, LockWait::Wait).await?);
            let rows = found.len();
            self.record.lock(self.transaction.snapshot_timestamp(), RowLock::Update, &found);
            self.observed(Observation::Key { key, found });
            // A row that is not there cannot be locked.
            let repeatable = self.transaction.isolation_level() == IsolationLevel::RepeatableRead;
            return Ok((rows > 0 || repeatable).then_some(rows));
        }
        let rows = self.read(key).await?;
        Ok((self.transaction.isolation_level() == IsolationLevel::RepeatableRead).then_some(rows))
    }

    async fn update(&mut self, key: i64) -> Result<(), EngineError> {
        let found = self.find(key).await?;
        self.transaction.next_statement();
        let amount = self.random.below(AMOUNTS) as i64;
        let rows = self.transaction.update(&by_key(self.container, key), Arc::new(SetAmount(amount))).await?;
        assert!(found.is_none_or(|found| found as u64 == rows), "an update concerns the rows that were found");
        self.wrote(Write::Change { key, amount: Some(amount), rows });
        Ok(())
    }

    async fn rename(&mut self, key: i64) -> Result<(), EngineError> {
        let found = self.find(key).await?;
        self.transaction.next_statement();
        let to = self.key();
        let rows = self.transaction.update(&by_key(self.container, key), Arc::new(SetKey(to))).await?;
        assert!(found.is_none_or(|found| found as u64 == rows), "an update concerns the rows that were found");
        self.wrote(Write::Rename { from: key, to, rows });
        Ok(())
    }

    async fn scan(&mut self) -> Result<(), EngineError> {
        let mut results = self.transaction.scan(everything(self.container), None)?;
        let mut batches = Vec::new();
        let slow = self.random.chance(0.05);
        while let Some(batch) = results.next().await? {
            batches.push(batch);
            if slow {
                // Its cursors stand in the way of splits, merges and moves, and it pins an old table.
                self.engine.sleep_until(self.engine.env().now() + SLOW_READER).await;
            }
        }
        self.observed(Observation::All(pairs(&batches)));
        Ok(())
    }

    /// Looks up many keys, by the partitioning attribute or by another one, which no index has.
    async fn look_up(&mut self) -> Result<(), EngineError> {
        let coalescing = [Coalescing::None, Coalescing::Partition, Coalescing::Sender][self.random.index(3)];
        let by_key = self.random.chance(0.8);
        let below = if by_key { self.keys as u64 } else { AMOUNTS };
        let wanted: Vec<i64> = (0..self.random.below(40)).map(|_| self.random.below(below) as i64).collect();
        let lookup = lookup(self.container, if by_key { KEY } else { AMOUNT }, coalescing);
        let batches = self.transaction.lookup_many(lookup, &integers(&wanted), None)?.collect().await?;
        for (value, found) in wanted.iter().zip(by_position(wanted.len(), &batches)) {
            self.observed(if by_key {
                Observation::Key { key: *value, found }
            } else {
                Observation::Amount { amount: *value, found }
            });
        }
        Ok(())
    }

    /// Messages that touch nothing arrive all, once.
    async fn probe(&mut self) -> Result<(), EngineError> {
        let probes = Probes {
            container: self.container,
            commands: self.random.index(50),
            command_bytes: 16,
            commands_per_message: 1 + self.random.index(2),
        };
        let report = self.transaction.probe(&probes).await?;
        let expected = (probes.commands as u64, report.sent_sum);
        assert_eq!((report.commands, report.sum), expected, "every command arrives once");
        Ok(())
    }

    async fn lock(&mut self, key: i64) -> Result<(), EngineError> {
        let lock = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update][self.random.index(4)];
        let wait = [LockWait::Wait, LockWait::NoWait, LockWait::SkipLocked][self.random.index(3)];
        let all = self.random.chance(0.3);
        let read = if all { everything(self.container) } else { by_key(self.container, key) };
        let found = pairs(&self.transaction.lock_rows(&read, lock, wait).await?);
        self.record.lock(self.transaction.snapshot_timestamp(), lock, &found);
        self.observed(match (wait, all) {
            (LockWait::SkipLocked, _) => Observation::Some(found),
            (_, true) => Observation::All(found),
            (_, false) => Observation::Key { key, found },
        });
        Ok(())
    }
}

/// Runs transactions and adds their records to the history.
pub async fn run_client(
    engine: Engine,
    container: ContainerId,
    keys: i64,
    transactions: u64,
    seed: u64,
    history: Arc<Mutex<History>>,
) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let level = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead][random.index(2)];
        let mut transaction = engine.begin_with(level);
        let timeouts = [None, None, None, Some(0), Some(1), Some(50)];
        transaction.set_lock_timeout(timeouts[random.index(6)].map(Duration::from_millis));
        let mut record = TransactionRecord::new();
        let mut client = Client {
            engine: &engine,
            transaction: &mut transaction,
            container,
            keys,
            random: &mut random,
            record: &mut record,
            savepoints: Vec::new(),
        };
        match client.run().await {
            Ok(()) if random.below(10) == 0 => transaction.rollback(),
            Ok(()) => {
                let timestamp = transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
                record.commit(timestamp);
            }
            Err(error) if is_expected(&error) => transaction.rollback(),
            Err(error) => panic!("unexpected error: {error}"),
        }
        history.lock().expect("one thread").add(record);
    }
}

/// What is part of the game: conflicts, deadlocks, timeouts and duplicate keys.
fn is_expected(error: &EngineError) -> bool {
    error.is_retryable()
        || matches!(
            error,
            EngineError::LockTimeout
                | EngineError::LockNotAvailable
                | EngineError::Storage(StorageError::DuplicateKey { .. })
        )
}
