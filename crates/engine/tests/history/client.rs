//! A client of the simulated engine: transactions at random, each with a record of what it saw and did.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    CancelHandle, Coalescing, Engine, EngineError, IsolationLevel, LockWait, MicroOperator, Probes, Savepoint,
    Transaction,
};
use eris_platform::SeededRandom;
use eris_storage::{Batch, ContainerId, DataType, RowLock, Value};

use super::{History, Observation, TransactionRecord, Write};
use crate::accounts::{AMOUNT, KEY, SetAmount, SetKey, by_key, by_position, everything, integers, lookup, pairs, row};
use crate::chaos::{Chaos, Doom, Panicking, drop_after};

/// Few enough that lookups by amount find something.
const AMOUNTS: u64 = 500;

/// What a slow reader does between two batches: longer than a change of a partition waits for cursors.
const SLOW_READER: Duration = Duration::from_millis(15);
/// What some do between two statements.
const THINKING_MICROS_MAX: u64 = 500;

/// One transaction under way.
struct Client<'a> {
    engine: &'a Engine,
    transaction: &'a mut Transaction,
    container: ContainerId,
    keys: i64,
    random: &'a mut SeededRandom,
    chaos: &'a Chaos,
    history: &'a Mutex<History>,
    record: &'a mut TransactionRecord,
    /// With the length of the record when they were set.
    savepoints: Vec<(Savepoint, usize)>,
}

impl Client<'_> {
    /// Statements at random. After an error that a savepoint can heal, some are taken back.
    async fn run(&mut self) -> Result<(), EngineError> {
        for _ in 0..=self.random.below(5) {
            if self.random.chance(0.1) {
                // Others commit meanwhile.
                let pause = Duration::from_micros(self.random.below(THINKING_MICROS_MAX));
                self.engine.sleep_until(self.engine.env().now() + pause).await;
            }
            match self.statement().await {
                Ok(()) => {}
                Err(error) if !self.savepoints.is_empty() && self.random.chance(0.7) => {
                    self.chaos.expect(&error);
                    self.transaction.set_cancel(CancelHandle::default());
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

    /// Under READ COMMITTED it sees whatever was committed before it began, whoever was told of it.
    fn next_statement(&mut self) {
        self.transaction.next_statement();
        if self.transaction.isolation_level() == IsolationLevel::ReadCommitted {
            let newest = self.history.lock().expect("one thread").newest();
            let snapshot = self.transaction.snapshot_timestamp();
            assert!(snapshot.0 >= newest, "a statement at {snapshot:?} began after the commit {newest}");
        }
    }

    async fn statement(&mut self) -> Result<(), EngineError> {
        self.next_statement();
        let key = self.key();
        match self.random.below(47) {
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
            45 => self.load().await,
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
            let repeatable = self.transaction.isolation_level() != IsolationLevel::ReadCommitted;
            return Ok((rows > 0 || repeatable).then_some(rows));
        }
        let rows = self.read(key).await?;
        Ok((self.transaction.isolation_level() != IsolationLevel::ReadCommitted).then_some(rows))
    }

    async fn update(&mut self, key: i64) -> Result<(), EngineError> {
        let found = self.find(key).await?;
        self.next_statement();
        let amount = self.random.below(AMOUNTS) as i64;
        let rows = self.transaction.update(&by_key(self.container, key), Arc::new(SetAmount(amount))).await?;
        assert!(found.is_none_or(|found| found as u64 == rows), "an update concerns the rows that were found");
        self.wrote(Write::Change { key, amount: Some(amount), rows });
        Ok(())
    }

    async fn rename(&mut self, key: i64) -> Result<(), EngineError> {
        let found = self.find(key).await?;
        self.next_statement();
        let to = self.key();
        let rows = self.transaction.update(&by_key(self.container, key), Arc::new(SetKey(to))).await?;
        assert!(found.is_none_or(|found| found as u64 == rows), "an update concerns the rows that were found");
        self.wrote(Write::Rename { from: key, to, rows });
        Ok(())
    }

    /// A bulk load of a few rows, some of which may be there.
    async fn load(&mut self) -> Result<(), EngineError> {
        let rows: BTreeSet<i64> = (0..self.random.below(12)).map(|_| self.key()).collect();
        let rows: Vec<(i64, i64)> = rows.into_iter().map(|key| (key, self.random.below(AMOUNTS) as i64)).collect();
        let values: Vec<Vec<Value>> =
            rows.iter().map(|(key, amount)| vec![Value::Int64(*key), Value::Int64(*amount), Value::Null]).collect();
        let mut bulk = self.transaction.bulk(self.container)?;
        if !rows.is_empty() {
            bulk.append(Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &values)).await?;
        }
        assert_eq!(bulk.finish().await?, rows.len() as u64, "every row arrives once");
        for (key, amount) in rows {
            self.wrote(Write::Insert { key, amount });
        }
        Ok(())
    }

    async fn scan(&mut self) -> Result<(), EngineError> {
        if self.chaos.strikes("operator panicked", 0.05, self.random) {
            // An empty table gives it no batch to panic at.
            let results = self.transaction.scan(everything(self.container), Some(Arc::new(Panicking)))?;
            return results.collect().await.map(drop);
        }
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
        if self.chaos.strikes("operator panicked", 0.05, self.random) {
            let panics = Some(Arc::new(Panicking) as Arc<dyn MicroOperator>);
            return self.transaction.lookup_many(lookup, &integers(&wanted), panics)?.collect().await.map(drop);
        }
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
    chaos: Arc<Chaos>,
) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let level = Chaos::level(&mut random);
        let mut transaction = engine.begin_with(level);
        transaction.set_lock_timeout(Chaos::lock_timeout(&mut random));
        let doom = chaos.doom(&engine, &mut transaction, &mut random);
        let mut ends = random.fork();
        let mut record = TransactionRecord::new(level == IsolationLevel::Serializable);
        let mut client = Client {
            engine: &engine,
            transaction: &mut transaction,
            container,
            keys,
            random: &mut random,
            chaos: &chaos,
            history: &history,
            record: &mut record,
            savepoints: Vec::new(),
        };
        let result = match doom {
            Doom::None | Doom::Cancelled => Some(client.run().await),
            Doom::DroppedAfter(span) => drop_after(&engine, span, client.run()).await,
        };
        match result {
            None => {
                chaos.count("statement dropped");
                transaction.rollback();
            }
            Some(Ok(())) if ends.below(10) == 0 => transaction.rollback(),
            Some(Ok(())) => {
                if let Some(timestamp) = chaos.committed(transaction.commit().await) {
                    record.commit(timestamp);
                }
            }
            Some(Err(error)) => {
                chaos.expect(&error);
                transaction.rollback();
            }
        }
        history.lock().expect("one thread").add(record);
        chaos.finished();
    }
}
