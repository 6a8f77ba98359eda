//! What is looked at when most is over: a few transactions that stay open while nobody has work, and nothing else.
//!
//! ```text
//!   idle at READ COMMITTED     holds back what its last statement saw; nothing, when another one begins
//!   idle at REPEATABLE READ    holds back what is newer than its snapshot, and reads it unchanged in every way
//!   changes, maintenance       what both do not see any more goes, and no more than that
//! ```

use eris_engine::{EngineError, IsolationLevel, Transaction};
use eris_platform::SeededRandom;
use eris_storage::Timestamp;

use super::{Run, everything, hidden, pairs};
use crate::rings::{self, Row, look};

/// How often all rings change while the reader is idle.
const ROUNDS: u64 = 4;

impl Run {
    fn settle(&mut self) -> Result<(), String> {
        self.simulation.run_until_idle().map_err(|error| error.to_string())
    }

    fn run_to_end<T: Send + 'static>(
        &mut self,
        future: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, String> {
        let result = self.simulation.block_on(future).map_err(|error| error.to_string())?;
        result.map_err(|error| error.to_string())
    }

    /// All rows of the rings, read in every way.
    fn look(&mut self, mut transaction: Transaction, seed: u64) -> Result<(Transaction, Vec<Row>), String> {
        let container = self.rings.container;
        self.run_to_end(async move {
            transaction.next_statement();
            let rows = look(&mut transaction, container, u64::MAX, &mut SeededRandom::new(seed)).await?;
            Ok((transaction, rows))
        })
    }

    /// The rings are what their history says; their global index has an entry for each row, and no others.
    pub(super) fn check_rings(&mut self) -> Result<(), String> {
        let expected = self.rings.history.lock().expect("one thread").check()?;
        let (_, rows) = self.look(self.engine.begin(), 1)?;
        let found: Vec<Row> = rows.iter().filter(|row| row.ring < self.rings.count).copied().collect();
        if found != expected {
            return Err(format!("at the end the rings are {found:?}, the history says {expected:?}"));
        }
        let mut entries = pairs(&self.read(everything(hidden(self.rings.container)))?);
        entries.sort_unstable();
        let mut expected: Vec<(i64, i64)> = rows.iter().map(|row| (row.code, row.key)).collect();
        expected.sort_unstable();
        if entries == expected {
            Ok(())
        } else {
            Err(format!("the global index of rings has {entries:?}, the rows have {expected:?}"))
        }
    }

    /// Families are whole.
    pub(super) fn check_families(&mut self) -> Result<(), String> {
        let kin = self.kin.clone();
        self.run_to_end(async move { kin.look(IsolationLevel::RepeatableRead).await })
    }

    /// Truncated tables hold what was inserted after their last truncation, and the catalog each truncation.
    pub(super) fn check_truncations(&mut self) -> Result<(), String> {
        let (expected, truncations) = self.truncations.history.lock().expect("one thread").check()?;
        for (table, container) in self.truncations.containers() {
            let mut found: Vec<i64> = pairs(&self.read(everything(container))?).iter().map(|(key, _)| *key).collect();
            found.sort_unstable();
            match table {
                None if found.len() != truncations => {
                    return Err(format!("the catalog has {found:?}, the history {truncations} truncations"));
                }
                Some(table) if found != expected[table] => {
                    let expected = &expected[table];
                    return Err(format!("at the end table {table} is {found:?}, the history says {expected:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn change_rings(&mut self, rounds: u64) -> Result<(), String> {
        let rings = self.rings.clone();
        self.run_to_end(async move { rings::change_all(&rings, rounds).await })?;
        self.settle()
    }

    /// Which snapshots hold back what, and which do not.
    pub(super) fn check_quiet_states(&mut self, random: &mut SeededRandom) -> Result<(), String> {
        self.settle()?;
        self.check_nothing_is_kept("before the quiet states")?;
        if self.engine.old_version_limit().is_some() {
            // What is to be held here would be revoked.
            return Ok(());
        }
        let seed = random.below(1 << 20);
        let (mut idle, _) = self.look(self.engine.begin_with(IsolationLevel::ReadCommitted), seed)?;
        self.change_rings(1)?;
        let (reader, before) = self.look(self.engine.begin(), seed)?;
        let held = reader.snapshot_timestamp();
        self.change_rings(ROUNDS)?;
        self.check_oldest("an idle transaction at READ COMMITTED", Some(idle.snapshot_timestamp()))?;
        // Each statement withdraws the snapshot of the one before.
        idle.next_statement();
        self.settle()?;
        self.check_oldest("an idle reader at REPEATABLE READ", Some(held))?;
        let (reader, again) = self.look(reader, seed)?;
        if again != before {
            return Err(format!("an idle reader at {held:?} reads {again:?}, and {before:?} before"));
        }
        let (mut idle, _) = self.look(idle, seed)?;
        self.change_rings(1)?;
        drop(reader);
        self.settle()?;
        self.check_oldest("an idle transaction at READ COMMITTED, alone", Some(idle.snapshot_timestamp()))?;
        idle.next_statement();
        self.check_oldest("a transaction at READ COMMITTED that begins a statement", None)?;
        // Maintenance that could do nothing goes on when some transaction ends.
        self.engine.begin().rollback();
        self.settle()?;
        self.check_nothing_is_kept("with an idle transaction at READ COMMITTED")?;
        let (idle, now) = self.look(idle, seed)?;
        drop(idle);
        let expected = self.rings.history.lock().expect("one thread").check()?;
        let found: Vec<Row> = now.into_iter().filter(|row| row.ring < self.rings.count).collect();
        if found != expected {
            return Err(format!("READ COMMITTED reads {found:?}, the history says {expected:?}"));
        }
        self.settle()?;
        self.check_nothing_is_kept("behind the quiet states")
    }

    /// The oldest snapshot is this one, or as new as any.
    fn check_oldest(&self, who: &str, held: Option<Timestamp>) -> Result<(), String> {
        let statistics = self.engine.statistics();
        let expected = held.map_or(statistics.newest_snapshot, |held| held.0);
        if statistics.oldest_snapshot == expected {
            return Ok(());
        }
        let (oldest, newest) = (statistics.oldest_snapshot, statistics.newest_snapshot);
        Err(format!("{who}: the oldest snapshot is {oldest} and not {expected}, the newest {newest}"))
    }

    /// Nobody has work, and nobody needs an old version: none is left, nor a lock or its memory.
    fn check_nothing_is_kept(&self, when: &str) -> Result<(), String> {
        let statistics = self.engine.statistics();
        for (consumer, bytes) in &statistics.memory_by_consumer {
            if ["row locks", "before-images"].contains(consumer) && *bytes > 0 {
                return Err(format!("{when}: {bytes} bytes of {consumer} are reserved"));
            }
        }
        let (mut live, mut entries, mut images) = (0, 0, 0);
        for partition in self.engine.partitions() {
            if partition.container != self.rings.container {
                continue;
            }
            let Some(store) = &partition.store else { return Err(format!("{:?} is latched", partition.id)) };
            live += store.rows_live_estimate;
            entries += store.index_entries;
            images += store.before_images;
        }
        if images > 0 {
            return Err(format!("{when}: {images} before-images are kept for nobody"));
        }
        if entries != live * rings::INDEXES {
            return Err(format!("{when}: {live} rows of rings have {entries} index entries"));
        }
        Ok(())
    }
}
