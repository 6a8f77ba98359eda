//! A history of transactions and its checker for snapshot isolation.
//!
//! Commit timestamps order the committed transactions, so the state at every snapshot is known exactly and each
//! observation can be compared with it: the strongest check there is, and a simple one.

use std::collections::BTreeMap;

use eris_storage::Timestamp;

/// What a statement saw.
pub enum Observation {
    /// All rows with this key: none or one.
    Key { key: i64, found: Vec<(i64, i64)> },
    /// All rows.
    All(Vec<(i64, i64)>),
    /// All rows with this amount.
    Amount { amount: i64, found: Vec<(i64, i64)> },
}

enum Step {
    Observed(Observation),
    Wrote { key: i64, amount: Option<i64> },
}

/// One transaction as its client saw it.
pub struct TransactionRecord {
    snapshot: Timestamp,
    committed: Option<Timestamp>,
    steps: Vec<Step>,
}

impl TransactionRecord {
    pub fn new(snapshot: Timestamp) -> Self {
        Self { snapshot, committed: None, steps: Vec::new() }
    }

    pub fn observe(&mut self, observation: Observation) {
        self.steps.push(Step::Observed(observation));
    }

    pub fn write(&mut self, key: i64, amount: Option<i64>) {
        self.steps.push(Step::Wrote { key, amount });
    }

    pub fn commit(&mut self, timestamp: Timestamp) {
        self.committed = Some(timestamp);
    }

    fn written(&self) -> BTreeMap<i64, Option<i64>> {
        let mut written = BTreeMap::new();
        for step in &self.steps {
            if let Step::Wrote { key, amount } = step {
                written.insert(*key, *amount);
            }
        }
        written
    }
}

/// All transactions of a run.
#[derive(Default)]
pub struct History {
    records: Vec<TransactionRecord>,
}

/// The committed versions of each key, by commit timestamp.
type Versions = BTreeMap<i64, BTreeMap<u64, Option<i64>>>;

impl History {
    pub fn add(&mut self, record: TransactionRecord) {
        self.records.push(record);
    }

    /// Committed and rolled-back transactions.
    pub fn counts(&self) -> (u64, u64) {
        let committed = self.records.iter().filter(|record| record.committed.is_some()).count() as u64;
        (committed, self.records.len() as u64 - committed)
    }

    /// The rows that exist after all commits, by key.
    pub fn final_state(&self) -> Vec<(i64, i64)> {
        state_at(&self.versions(), u64::MAX).into_iter().collect()
    }

    /// The first violation of snapshot isolation, if any.
    pub fn check(&self) -> Result<(), String> {
        let versions = self.versions();
        self.check_lost_updates(&versions)?;
        for record in &self.records {
            check_observations(record, &versions)?;
        }
        Ok(())
    }

    fn versions(&self) -> Versions {
        let mut versions = Versions::new();
        for record in &self.records {
            let Some(committed) = record.committed else { continue };
            for (key, amount) in record.written() {
                let before = versions.entry(key).or_default().insert(committed.0, amount);
                assert!(before.is_none(), "two transactions committed key {key} at {}", committed.0);
            }
        }
        versions
    }

    /// First committer wins: between a writer's snapshot and its commit nobody else commits the same key.
    fn check_lost_updates(&self, versions: &Versions) -> Result<(), String> {
        for record in &self.records {
            let Some(committed) = record.committed else { continue };
            for key in record.written().keys() {
                let between = versions[key].range(record.snapshot.0 + 1..committed.0).next();
                let existed = version_at(versions, *key, record.snapshot.0).is_some();
                // An insert of a key that was free may follow another transaction's insert and delete of it.
                if let Some((other, _)) = between
                    && existed
                {
                    return Err(format!(
                        "lost update: key {key} was written at {other}, between snapshot {} and commit {}",
                        record.snapshot.0, committed.0
                    ));
                }
            }
        }
        Ok(())
    }
}

fn version_at(versions: &Versions, key: i64, timestamp: u64) -> Option<i64> {
    versions.get(&key)?.range(..=timestamp).next_back().and_then(|(_, amount)| *amount)
}

fn state_at(versions: &Versions, timestamp: u64) -> BTreeMap<i64, i64> {
    versions.keys().filter_map(|key| Some((*key, version_at(versions, *key, timestamp)?))).collect()
}

/// The rows a transaction sees, by key: those of its snapshot and what it wrote itself.
fn visible_to(record: &TransactionRecord, own: &BTreeMap<i64, Option<i64>>, versions: &Versions) -> Vec<(i64, i64)> {
    let mut visible = state_at(versions, record.snapshot.0);
    for (key, amount) in own {
        match amount {
            Some(amount) => visible.insert(*key, *amount),
            None => visible.remove(key),
        };
    }
    visible.into_iter().collect()
}

fn check_observations(record: &TransactionRecord, versions: &Versions) -> Result<(), String> {
    let mut own: BTreeMap<i64, Option<i64>> = BTreeMap::new();
    for step in &record.steps {
        match step {
            Step::Wrote { key, amount } => {
                own.insert(*key, *amount);
            }
            Step::Observed(Observation::Key { key, found }) => {
                let expected = own.get(key).copied().unwrap_or_else(|| version_at(versions, *key, record.snapshot.0));
                let expected: Vec<(i64, i64)> = expected.map(|amount| (*key, amount)).into_iter().collect();
                if *found != expected {
                    return Err(format!(
                        "key {key} at snapshot {} reads {found:?}, the history says {expected:?}",
                        record.snapshot.0
                    ));
                }
            }
            Step::Observed(Observation::Amount { amount, found }) => {
                let mut expected = visible_to(record, &own, versions);
                expected.retain(|(_, other)| other == amount);
                let mut found = found.clone();
                found.sort_unstable();
                if found != expected {
                    return Err(format!(
                        "a lookup of amount {amount} at snapshot {} returns {found:?}, the history says {expected:?}",
                        record.snapshot.0
                    ));
                }
            }
            Step::Observed(Observation::All(found)) => {
                let expected = visible_to(record, &own, versions);
                let mut found = found.clone();
                found.sort_unstable();
                if found != expected {
                    return Err(format!(
                        "a scan at snapshot {} returns {found:?}, the history says {expected:?}",
                        record.snapshot.0
                    ));
                }
            }
        }
    }
    Ok(())
}
