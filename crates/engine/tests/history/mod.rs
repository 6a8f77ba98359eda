//! A history of transactions and its checker, for all isolation levels.
//!
//! Commit timestamps order the committed transactions, so the state at every snapshot is known exactly and each
//! observation can be compared with it: the strongest check there is, and a simple one. Each step names the snapshot of
//! its statement: one for the whole transaction under REPEATABLE READ, a newer one each time under READ COMMITTED.
//! Those that committed under SERIALIZABLE have a serial order, besides (`crate::serial`).
//!
//! A transaction may roll back to a savepoint: what it wrote and locked from there on counts no more, what it observed
//! before was true then.

mod client;

use std::collections::{BTreeMap, BTreeSet};

use eris_storage::{RowLock, Timestamp};

pub use client::run_client;

use crate::serial::{self, Looked, Party};

/// What a statement saw.
pub enum Observation {
    /// All rows with this key: none or one.
    Key { key: i64, found: Vec<(i64, i64)> },
    /// All rows.
    All(Vec<(i64, i64)>),
    /// All rows with this amount.
    Amount { amount: i64, found: Vec<(i64, i64)> },
    /// Some rows, those that nobody else had.
    Some(Vec<(i64, i64)>),
}

/// What a statement wrote.
pub enum Write {
    /// A row that was not there.
    Insert { key: i64, amount: i64 },
    /// A new amount for a key, or its end, if it was there.
    Change { key: i64, amount: Option<i64>, rows: u64 },
    /// Another key for a row, if it was there.
    Rename { from: i64, to: i64, rows: u64 },
    /// A new amount for every row.
    ChangeAll { amount: i64, rows: u64 },
}

enum Step {
    Observed(Observation),
    Wrote(Write),
    Locked(RowLock, Vec<i64>),
    /// Back to before this step.
    RolledBack(usize),
}

/// One transaction as its client saw it.
pub struct TransactionRecord {
    committed: Option<Timestamp>,
    serializable: bool,
    /// With the snapshot of the statement.
    steps: Vec<(u64, Step)>,
}

type Rows = BTreeMap<i64, i64>;
/// What a transaction made of the keys that it wrote.
type Own = BTreeMap<i64, Option<i64>>;

impl TransactionRecord {
    pub fn new(serializable: bool) -> Self {
        Self { committed: None, serializable, steps: Vec::new() }
    }

    pub fn observe(&mut self, snapshot: Timestamp, observation: Observation) {
        self.steps.push((snapshot.0, Step::Observed(observation)));
    }

    pub fn write(&mut self, snapshot: Timestamp, write: Write) {
        self.steps.push((snapshot.0, Step::Wrote(write)));
    }

    pub fn lock(&mut self, snapshot: Timestamp, lock: RowLock, rows: &[(i64, i64)]) {
        self.steps.push((snapshot.0, Step::Locked(lock, rows.iter().map(|(key, _)| *key).collect())));
    }

    /// A place to roll back to.
    pub fn savepoint(&self) -> usize {
        self.steps.len()
    }

    pub fn roll_back_to(&mut self, savepoint: usize) {
        self.steps.push((0, Step::RolledBack(savepoint)));
    }

    pub fn commit(&mut self, timestamp: Timestamp) {
        self.committed = Some(timestamp);
    }

    /// Whether it committed after it had rolled back a part.
    pub fn committed_in_part(&self) -> bool {
        self.committed.is_some() && self.steps.iter().any(|(_, step)| matches!(step, Step::RolledBack(_)))
    }

    /// Which steps count when `at` is reached.
    fn alive(&self, at: usize) -> Vec<usize> {
        let mut alive = Vec::new();
        for (number, (_, step)) in self.steps[..at].iter().enumerate() {
            match step {
                Step::RolledBack(to) => alive.retain(|step| step < to),
                Step::Observed(_) | Step::Wrote(_) | Step::Locked(..) => alive.push(number),
            }
        }
        alive
    }

    /// What its writes before step `at` come to.
    fn own(&self, at: usize, versions: &Versions) -> Result<Own, String> {
        let mut own = Own::new();
        for number in self.alive(at) {
            let (snapshot, step) = &self.steps[number];
            if let Step::Wrote(write) = step {
                write.apply(*snapshot, versions, &mut own)?;
            }
        }
        Ok(own)
    }
}

impl TransactionRecord {
    /// What it read and wrote as a whole; none if that was nothing. What a rollback took back was read all the same.
    fn party(&self, versions: &Versions) -> Result<Option<Party>, String> {
        let mut looks = BTreeSet::new();
        let mut snapshot = None;
        for (at, step) in &self.steps {
            match step {
                Step::Observed(Observation::Key { key, .. }) => drop(looks.insert(Looked::Key(*key))),
                Step::Observed(Observation::Amount { amount, .. }) => drop(looks.insert(Looked::Amount(*amount))),
                Step::Observed(Observation::All(_)) => drop(looks.insert(Looked::All)),
                // What others had is left out, so that it depends on nobody.
                Step::Observed(Observation::Some(_)) => {}
                Step::Wrote(write) => looks.extend(write.looked()),
                Step::Locked(..) | Step::RolledBack(_) => continue,
            }
            snapshot = Some(*at);
        }
        let (Some(snapshot), Some(committed)) = (snapshot, self.committed) else { return Ok(None) };
        let own = self.own(self.steps.len(), versions)?;
        let before = |key: i64| versions.at(key, committed.0 - 1);
        let writes = own.into_iter().map(|(key, amount)| (key, (before(key), amount))).collect();
        Ok(Some(Party { snapshot, committed: committed.0, looks: looks.into_iter().collect(), writes }))
    }
}

impl Write {
    /// Which rows it looked for, to change them.
    fn looked(&self) -> Option<Looked> {
        match *self {
            Self::Insert { .. } => None,
            Self::Change { key, .. } | Self::Rename { from: key, .. } => Some(Looked::Key(key)),
            Self::ChangeAll { .. } => Some(Looked::All),
        }
    }

    fn apply(&self, snapshot: u64, versions: &Versions, own: &mut Own) -> Result<(), String> {
        let amount_of = |key: i64, own: &Own| own.get(&key).copied().unwrap_or_else(|| versions.at(key, snapshot));
        let check = |what: &str, key: i64, there: bool, rows: u64| {
            if rows == u64::from(there) {
                return Ok(());
            }
            Err(format!("{what} of key {key} at snapshot {snapshot} concerned {rows} rows; it was there: {there}"))
        };
        match *self {
            Self::Insert { key, amount } => {
                own.insert(key, Some(amount));
            }
            Self::Change { key, amount, rows } => {
                let there = amount_of(key, own).is_some();
                check("a change", key, there, rows)?;
                if there {
                    own.insert(key, amount);
                }
            }
            Self::Rename { from, to, rows } => {
                let found = amount_of(from, own);
                check("a renaming", from, found.is_some(), rows)?;
                if found.is_some() {
                    own.insert(from, None);
                    own.insert(to, found);
                }
            }
            Self::ChangeAll { amount, rows } => {
                let state = versions.state_with(snapshot, own);
                if rows != state.len() as u64 {
                    return Err(format!("a change of all at {snapshot} concerned {rows} of {} rows", state.len()));
                }
                own.extend(state.keys().map(|key| (*key, Some(amount))));
            }
        }
        Ok(())
    }

    fn keys(&self, snapshot: u64, versions: &Versions) -> Vec<i64> {
        match *self {
            Self::Insert { key, .. } => vec![key],
            Self::Change { key, rows, .. } => {
                if rows > 0 {
                    vec![key]
                } else {
                    Vec::new()
                }
            }
            Self::Rename { from, to, rows } => {
                if rows > 0 {
                    vec![from, to]
                } else {
                    Vec::new()
                }
            }
            Self::ChangeAll { .. } => versions.state_with(snapshot, &Own::new()).into_keys().collect(),
        }
    }
}

/// The committed versions of each key, by commit timestamp.
#[derive(Default)]
struct Versions(BTreeMap<i64, BTreeMap<u64, Option<i64>>>);

impl Versions {
    fn at(&self, key: i64, timestamp: u64) -> Option<i64> {
        self.0.get(&key)?.range(..=timestamp).next_back().and_then(|(_, amount)| *amount)
    }

    fn state_with(&self, timestamp: u64, own: &Own) -> Rows {
        let mut state: Rows = self.0.keys().filter_map(|key| Some((*key, self.at(*key, timestamp)?))).collect();
        for (key, amount) in own {
            match amount {
                Some(amount) => state.insert(*key, *amount),
                None => state.remove(key),
            };
        }
        state
    }

    /// Commits of a key strictly between two timestamps.
    fn between(&self, key: i64, after: u64, before: u64) -> impl Iterator<Item = (u64, Option<i64>)> {
        let range = self.0.get(&key).filter(|_| after + 1 < before).map(|versions| versions.range(after + 1..before));
        range.into_iter().flatten().map(|(timestamp, amount)| (*timestamp, *amount))
    }
}

/// All transactions of a run.
#[derive(Default)]
pub struct History {
    records: Vec<TransactionRecord>,
    newest: u64,
}

impl History {
    pub fn add(&mut self, record: TransactionRecord) {
        self.newest = self.newest.max(record.committed.map_or(0, |timestamp| timestamp.0));
        self.records.push(record);
    }

    /// The newest commit that a client knows of.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Committed and rolled-back transactions, and those that committed a part.
    pub fn counts(&self) -> (u64, u64, u64) {
        let committed = self.records.iter().filter(|record| record.committed.is_some()).count() as u64;
        let in_part = self.records.iter().filter(|record| record.committed_in_part()).count() as u64;
        (committed, self.records.len() as u64 - committed, in_part)
    }

    /// Checks everything; gives the rows that exist after all commits, by key.
    pub fn check(&self) -> Result<Vec<(i64, i64)>, String> {
        let versions = self.versions()?;
        for record in &self.records {
            check_observations(record, &versions)?;
            if let Some(committed) = record.committed {
                check_held(record, committed.0, &versions)?;
            }
        }
        let parties: Result<Vec<Party>, String> = self
            .records
            .iter()
            .filter(|record| record.serializable && record.committed.is_some())
            .filter_map(|record| record.party(&versions).transpose())
            .collect();
        serial::check(&parties?)?;
        Ok(versions.state_with(u64::MAX, &Own::new()).into_iter().collect())
    }

    fn versions(&self) -> Result<Versions, String> {
        let mut committed: Vec<(u64, &TransactionRecord)> =
            self.records.iter().filter_map(|record| Some((record.committed?.0, record))).collect();
        // Who wrote nothing may have the timestamp of a commit that its snapshot saw.
        let newest = |record: &TransactionRecord| record.steps.iter().map(|(snapshot, _)| *snapshot).max();
        committed.sort_by_key(|(timestamp, record)| (*timestamp, newest(record)));
        let mut versions = Versions::default();
        for (timestamp, record) in committed {
            for (key, amount) in record.own(record.steps.len(), &versions)? {
                let before = versions.0.entry(key).or_default().insert(timestamp, amount);
                assert!(before.is_none(), "two transactions committed key {key} at {timestamp}");
            }
        }
        Ok(versions)
    }
}

/// Between a statement's snapshot and the commit nobody else commits what it wrote, or what it locked against that.
fn check_held(record: &TransactionRecord, committed: u64, versions: &Versions) -> Result<(), String> {
    let mut written: BTreeSet<i64> = BTreeSet::new();
    for number in record.alive(record.steps.len()) {
        match &record.steps[number] {
            (snapshot, Step::Wrote(write)) => {
                for key in write.keys(*snapshot, versions) {
                    // An insert of a key that was free may follow another transaction's insert and delete of it.
                    let existed = versions.at(key, *snapshot).is_some();
                    let between = versions.between(key, *snapshot, committed).next();
                    if let Some((other, _)) = between
                        && existed
                        && !written.contains(&key)
                    {
                        return Err(format!(
                            "lost update: key {key} was written at {other}, between snapshot {snapshot} and commit \
                             {committed}"
                        ));
                    }
                    written.insert(key);
                }
            }
            (snapshot, Step::Locked(lock, keys)) => {
                for key in keys {
                    let own_insert = versions.at(*key, *snapshot).is_none();
                    let mut between = versions.between(*key, *snapshot, committed);
                    let broken = between.find(|(_, amount)| *lock > RowLock::KeyShare || amount.is_none());
                    if let Some((other, _)) = broken
                        && !own_insert
                    {
                        return Err(format!(
                            "key {key} was locked ({lock:?}) at snapshot {snapshot} until {committed}, and written at \
                             {other}"
                        ));
                    }
                }
            }
            (_, Step::Observed(_) | Step::RolledBack(_)) => {}
        }
    }
    Ok(())
}

fn check_observations(record: &TransactionRecord, versions: &Versions) -> Result<(), String> {
    for (number, (snapshot, step)) in record.steps.iter().enumerate() {
        let Step::Observed(observation) = step else { continue };
        let own = record.own(number, versions)?;
        let expected = versions.state_with(*snapshot, &own);
        let (what, found, expected) = match observation {
            Observation::Key { key, found } => {
                let expected: Vec<(i64, i64)> = expected.get(key).map(|amount| (*key, *amount)).into_iter().collect();
                (format!("key {key}"), found.clone(), expected)
            }
            Observation::Amount { amount, found } => {
                let expected = expected.into_iter().filter(|(_, other)| other == amount).collect();
                (format!("a lookup of amount {amount}"), found.clone(), expected)
            }
            Observation::All(found) => ("a scan".to_owned(), found.clone(), expected.into_iter().collect()),
            Observation::Some(found) => {
                let known = found.iter().filter(|(key, amount)| expected.get(key) == Some(amount)).copied();
                ("a scan of what is free".to_owned(), found.clone(), known.collect())
            }
        };
        let mut found = found;
        found.sort_unstable();
        let mut expected: Vec<(i64, i64)> = expected;
        expected.sort_unstable();
        if found != expected {
            return Err(format!("{what} at snapshot {snapshot} reads {found:?}, the history says {expected:?}"));
        }
    }
    Ok(())
}
