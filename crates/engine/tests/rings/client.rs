//! A client of rings: turns, touches, deletes, inserts, locks that are held, and looks in every way.

use std::time::Duration;

use eris_engine::{CancelHandle, EngineError, IsolationLevel, LockWait, Savepoint, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{RowLock, StorageError, Timestamp};

use super::history::{Operation, RingTransaction};
use super::look::look;
use super::{CODE, DUETS, KEY, RING, Rings, Row, SPAN, Write, batch, between, equal, rows_of};
use crate::chaos::{Chaos, Doom, drop_after};

/// How long a lock is held at most: long enough for splits, moves and other layouts.
const HELD_MICROS_MAX: u64 = 5_000;

struct Client<'a> {
    rings: &'a Rings,
    transaction: &'a mut Transaction,
    record: &'a mut RingTransaction,
    random: &'a mut SeededRandom,
    savepoints: Vec<(Savepoint, usize)>,
    /// A load is under way, which does not begin again when it loses.
    loads: bool,
}

/// Runs transactions and adds their records to the history.
pub async fn run_ring_client(rings: Rings, transactions: u64, seed: u64) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let level = Chaos::level(&mut random);
        let mut transaction = rings.engine.begin_with(level);
        transaction.set_lock_timeout(Chaos::lock_timeout(&mut random));
        let doom = rings.chaos.doom(&rings.engine, &mut transaction, &mut random);
        let mut record = RingTransaction::default();
        let commits = random.chance(0.85);
        let mut client = Client {
            rings: &rings,
            transaction: &mut transaction,
            record: &mut record,
            random: &mut random,
            savepoints: Vec::new(),
            loads: false,
        };
        let result = match doom {
            Doom::None | Doom::Cancelled => Some(client.run().await),
            Doom::DroppedAfter(span) => drop_after(&rings.engine, span, client.run()).await,
        };
        record.end_locks(0, now(&rings));
        match result {
            Some(Ok(())) if commits => {
                if let Some(timestamp) = rings.chaos.committed(transaction.commit().await) {
                    record.commit(timestamp);
                    rings.chaos.count("ring committed");
                }
            }
            Some(Err(error)) => {
                rings.chaos.expect(&error);
                transaction.rollback();
            }
            Some(Ok(())) | None => transaction.rollback(),
        }
        rings.history.lock().expect("one thread").transactions.push(record);
        rings.chaos.finished();
    }
}

/// All that has committed by now is at or below this.
fn now(rings: &Rings) -> Timestamp {
    let transaction = rings.engine.begin();
    let now = transaction.snapshot_timestamp();
    transaction.rollback();
    now
}

impl Client<'_> {
    async fn run(&mut self) -> Result<(), EngineError> {
        for _ in 0..=self.random.below(4) {
            self.transaction.next_statement();
            self.loads = false;
            let ring = self.random.below(self.rings.count as u64) as i64;
            match self.statement(ring).await {
                Ok(()) => {}
                Err(error) => {
                    self.failed(ring, &error);
                    if self.savepoints.is_empty() || self.random.chance(0.2) {
                        return Err(error);
                    }
                    self.rings.chaos.expect(&error);
                    self.transaction.set_cancel(CancelHandle::default());
                    self.roll_back();
                }
            }
        }
        Ok(())
    }

    /// An error that says something about others is looked at in the end.
    fn failed(&mut self, ring: i64, error: &EngineError) {
        let (snapshot, now) = (self.transaction.snapshot_timestamp(), now(self.rings));
        match error {
            EngineError::Storage(StorageError::DuplicateKey { .. }) => self.record.refused(snapshot, ring, now),
            EngineError::Storage(StorageError::Conflict { .. }) => {
                let level = self.transaction.isolation_level();
                assert!(
                    level != IsolationLevel::ReadCommitted || self.loads,
                    "a statement at READ COMMITTED begins again"
                );
                self.record.lost(snapshot, ring, now);
            }
            _ => {}
        }
    }

    fn roll_back(&mut self) {
        let place = self.random.index(self.savepoints.len());
        let (savepoint, length) = self.savepoints[place];
        self.savepoints.truncate(place + 1);
        self.record.roll_back_to(length, now(self.rings));
        self.transaction.rollback_to(&savepoint).expect("it was not released");
    }

    async fn statement(&mut self, ring: i64) -> Result<(), EngineError> {
        match self.random.below(24) {
            0..7 => self.turn(ring).await,
            7..10 => {
                let write = Write::Touch { noted: self.random.chance(0.3) };
                self.write(ring, write, None).await
            }
            10..13 => self.touch_one(ring).await,
            13..15 => self.replace(ring).await,
            15 => self.delete(ring).await.map(drop),
            16 => self.insert(ring).await,
            17..19 => self.hold(ring).await,
            19..21 => self.look().await,
            21 if !self.savepoints.is_empty() => {
                self.roll_back();
                Ok(())
            }
            _ => {
                self.savepoints.push((self.transaction.savepoint(), self.record.length()));
                Ok(())
            }
        }
    }

    /// The rows of a ring: by an index, or by the range of its keys or codes.
    fn rows(&mut self, ring: i64) -> eris_engine::Read {
        let container = self.rings.container;
        let (from, below) = (ring * SPAN, (ring + 1) * SPAN);
        match self.random.below(4) {
            0 => between(container, KEY, from, below),
            1 => between(container, CODE, from, below),
            _ => equal(container, RING, ring),
        }
    }

    async fn turn(&mut self, ring: i64) -> Result<(), EngineError> {
        let size = self.rings.size;
        let mut places = || self.random.below(2 * size as u64 - 1) as i64 - (size - 1);
        let (keys, codes) = (places(), places());
        let write = match self.random.below(4) {
            0 => Write::Turn { keys, codes: 0, size },
            1 => Write::Turn { keys, codes, size },
            _ => Write::Turn { keys: 0, codes, size },
        };
        if self.random.chance(0.2) {
            // Which may meet newer versions than a change of all rows at once does.
            self.lock(ring, RowLock::Update, LockWait::Wait).await?;
        }
        match self.write(ring, write, None).await {
            Err(EngineError::Storage(StorageError::DuplicateKey { key, .. }))
                if matches!(write, Write::Turn { keys: 0, .. }) =>
            {
                panic!("codes that go round in one statement meet nobody: {key:?}")
            }
            result => result,
        }
    }

    async fn write(&mut self, ring: i64, write: Write, id: Option<i64>) -> Result<(), EngineError> {
        let read = self.rows(ring);
        let rows = self.transaction.update(&read, write.change()).await?;
        self.record.did(self.transaction.snapshot_timestamp(), ring, Operation::Wrote { write, id }, rows);
        Ok(())
    }

    /// One row by its key or code, as it was read before; it may have another one by now.
    async fn touch_one(&mut self, ring: i64) -> Result<(), EngineError> {
        let rows = rows_of(&self.transaction.read(&equal(self.rings.container, RING, ring)).await?, 0);
        self.record.saw(self.transaction.snapshot_timestamp(), ring, rows.clone());
        let Some(last) = rows.len().checked_sub(1) else { return Ok(()) };
        let row = rows[self.random.index(last + 1)];
        let (attribute, value) = if self.random.chance(0.5) { (KEY, row.key) } else { (CODE, row.code) };
        let found = equal(self.rings.container, attribute, value);
        // Whoever has the key now is touched: at READ COMMITTED it may be another row than before.
        let repeatable = self.transaction.isolation_level() != IsolationLevel::ReadCommitted;
        let id = if repeatable {
            row.id
        } else {
            self.transaction.next_statement();
            let locked = rows_of(&self.transaction.lock_rows(&found, RowLock::Update, LockWait::Wait).await?, 0);
            let [locked] = locked[..] else { return Ok(()) };
            locked.id
        };
        self.transaction.next_statement();
        let write = Write::Touch { noted: self.random.chance(0.3) };
        let rows = self.transaction.update(&found, write.change()).await?;
        let operation = Operation::Wrote { write, id: Some(id) };
        self.record.did(self.transaction.snapshot_timestamp(), ring, operation, rows);
        Ok(())
    }

    async fn delete(&mut self, ring: i64) -> Result<u64, EngineError> {
        let read = self.rows(ring);
        let rows = self.transaction.delete(&read, None).await?;
        self.record.did(self.transaction.snapshot_timestamp(), ring, Operation::Deleted, rows);
        Ok(rows)
    }

    /// All rows with keys that are free, at once or one after the other, or as a load.
    async fn insert(&mut self, ring: i64) -> Result<(), EngineError> {
        let turns = self.rings.chaos.tick() as i64;
        let rows: Vec<Row> = (0..self.rings.size).map(|id| Row::new(ring, id, turns)).collect();
        let container = self.rings.container;
        match self.random.below(3) {
            0 => {
                self.loads = true;
                let mut bulk = self.transaction.bulk(container)?;
                bulk.append(batch(&rows)).await?;
                assert_eq!(bulk.finish().await?, rows.len() as u64, "every row arrives once");
            }
            1 => assert_eq!(self.transaction.insert(container, batch(&rows)).await?, rows.len() as u64),
            _ => {
                // A transaction that cannot be taken back to here would commit half a ring.
                let savepoint = self.transaction.savepoint();
                for row in &rows {
                    self.transaction.next_statement();
                    if let Err(error) = self.transaction.insert(container, batch(&[*row])).await {
                        self.failed(ring, &error);
                        self.rings.chaos.expect(&error);
                        self.transaction.set_cancel(CancelHandle::default());
                        self.transaction.rollback_to(&savepoint).expect("it is there");
                        self.transaction.release(&savepoint).expect("it is there");
                        return Ok(());
                    }
                }
                self.transaction.release(&savepoint).expect("it is there");
            }
        }
        self.record.did(self.transaction.snapshot_timestamp(), ring, Operation::Inserted { turns }, rows.len() as u64);
        Ok(())
    }

    /// The same keys end and begin in one transaction.
    async fn replace(&mut self, ring: i64) -> Result<(), EngineError> {
        if self.random.chance(0.5) {
            self.savepoints.push((self.transaction.savepoint(), self.record.length()));
        }
        self.delete(ring).await?;
        self.transaction.next_statement();
        self.insert(ring).await
    }

    async fn lock(&mut self, ring: i64, lock: RowLock, wait: LockWait) -> Result<Vec<Row>, EngineError> {
        let read = self.rows(ring);
        let rows = rows_of(&self.transaction.lock_rows(&read, lock, wait).await?, 0);
        let snapshot = self.transaction.snapshot_timestamp();
        if wait != LockWait::SkipLocked {
            self.record.saw(snapshot, ring, rows.clone());
        }
        self.record.locked(snapshot, ring, lock, rows.clone());
        self.transaction.next_statement();
        Ok(rows)
    }

    /// What is locked stays as it is, wherever it goes meanwhile.
    async fn hold(&mut self, ring: i64) -> Result<(), EngineError> {
        let lock = [RowLock::KeyShare, RowLock::Share, RowLock::NoKeyUpdate, RowLock::Update][self.random.index(4)];
        let wait = [LockWait::Wait, LockWait::Wait, LockWait::NoWait, LockWait::SkipLocked][self.random.index(4)];
        let locked = self.lock(ring, lock, wait).await?;
        let engine = &self.rings.engine;
        engine.sleep_until(engine.env().now() + Duration::from_micros(self.random.below(HELD_MICROS_MAX))).await;
        self.rings.chaos.count("row locks held");
        self.transaction.next_statement();
        let read = self.rows(ring);
        let found = rows_of(&self.transaction.read(&read).await?, 0);
        self.record.saw(self.transaction.snapshot_timestamp(), ring, found.clone());
        for row in &locked {
            let kept = found.iter().find(|other| other.id == row.id);
            let kept = kept.is_some_and(|other| other.key == row.key && (lock == RowLock::KeyShare || other == row));
            assert!(kept, "{row:?} is locked ({lock:?}), and the ring is {found:?}");
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), EngineError> {
        let ways = if self.random.chance(0.15) { u64::MAX } else { 2 };
        let rows = look(self.transaction, self.rings.container, ways, self.random).await?;
        let snapshot = self.transaction.snapshot_timestamp();
        for ring in 0..self.rings.count {
            let seen: Vec<Row> = rows.iter().filter(|row| row.ring == ring).copied().collect();
            self.record.saw(snapshot, ring, seen);
        }
        assert!(rows.iter().all(|row| row.ring < self.rings.count || row.ring >= DUETS), "{rows:?}");
        self.rings.chaos.count("ways of reading compared");
        Ok(())
    }
}

/// The rings as they are at the beginning: every other one is there.
pub async fn fill(rings: &Rings) -> Result<(), EngineError> {
    let mut record = RingTransaction::default();
    let mut transaction = rings.engine.begin();
    for ring in (0..rings.count).step_by(2) {
        let rows: Vec<Row> = (0..rings.size).map(|id| Row::new(ring, id, 0)).collect();
        transaction.next_statement();
        transaction.insert(rings.container, batch(&rows)).await?;
        record.did(transaction.snapshot_timestamp(), ring, Operation::Inserted { turns: 0 }, rows.len() as u64);
    }
    record.commit(transaction.commit().await?);
    rings.history.lock().expect("one thread").transactions.push(record);
    Ok(())
}

/// Turns and touches of all rings, for who wants them to have happened.
pub async fn change_all(rings: &Rings, rounds: u64) -> Result<(), EngineError> {
    for round in 0..rounds {
        for ring in 0..rings.count {
            let mut record = RingTransaction::default();
            let mut transaction = rings.engine.begin();
            let write = match round % 3 {
                // Whose keys go round may meet its own, in another partition.
                0 => Write::Turn { keys: 0, codes: 1, size: rings.size },
                1 => Write::Touch { noted: false },
                _ => Write::Touch { noted: true },
            };
            let read = equal(rings.container, RING, ring);
            let rows = transaction.update(&read, write.change()).await?;
            record.did(transaction.snapshot_timestamp(), ring, Operation::Wrote { write, id: None }, rows);
            record.commit(transaction.commit().await?);
            rings.history.lock().expect("one thread").transactions.push(record);
        }
    }
    Ok(())
}
