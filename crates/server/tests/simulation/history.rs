//! The history of a run, and its checker for snapshot isolation.
//!
//! Clients note what they asked and what came of it; the database tells with which snapshot each transaction ran and
//! when it committed. Commit timestamps order the commits, so the rows at every snapshot are known exactly, and each
//! statement is evaluated again by the model:
//!
//! - an answer is the model's at the transaction's snapshot with its own earlier writes;
//! - an error is one the model demands, or follows from a cancel or from a concurrent transaction that touched the same
//!   key;
//! - a truncation takes all rows that were committed before it, and no later ones; who used the table before its
//!   snapshot knew of that is refused;
//! - memory and the disk of temporary files fail a statement where they are unreliable, and nothing else;
//! - nobody else commits a row between a writer's snapshot and its commit;
//! - a transaction that failed, was rolled back or lost its client before COMMIT leaves nothing;
//! - what was acknowledged before a transaction began lies in its snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use eris_sql::{EndedTransaction, TransactionObserver};

use crate::model::{
    Answer, CANCELED, DEADLOCK, DISK_FULL, Expectation, FAILED_BLOCK, IO_ERROR, Key, OUT_OF_MEMORY, READ_ONLY,
    SERIALIZATION, TextRow, UNIQUE, Versions, View, expect,
};
use crate::statement::{Row, Statement, Table};

/// What a client knows of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Answered(Answer),
    /// Rows that came before the client lost interest.
    Partly(Vec<TextRow>),
    Failed {
        sqlstate: String,
        /// Rows that came before the error.
        rows: Vec<TextRow>,
    },
    /// The connection ended first.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub statement: Statement,
    pub outcome: Outcome,
    /// Whether a cancel request was sent meanwhile.
    pub cancelled: bool,
    /// The last step that was sent before the client was told of the outcome: this one, unless rows were fetched in
    /// pieces.
    pub told_after: usize,
}

/// What a client knows of the end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Committed,
    RolledBack,
    /// The connection ended first.
    Unknown,
}

/// One transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    pub connection: String,
    pub read_only: bool,
    pub steps: Vec<Step>,
    pub end: End,
    /// Moments of the run, as numbers that grow.
    pub began: u64,
    pub ended: u64,
    /// The last commit that somebody had heard of when it began.
    pub acknowledged: u64,
    /// Its place among the transactions of its connection that the database told of.
    pub told_from: usize,
    /// `None`: all that follow.
    pub told_until: Option<usize>,
}

/// A transaction as the database tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    pub snapshot: u64,
    pub committed: Option<u64>,
}

/// The transactions of each connection, by the name with which it introduced itself.
#[derive(Default)]
pub struct Observed(Mutex<BTreeMap<String, Vec<Told>>>);

impl Observed {
    pub fn count(&self, connection: &str) -> usize {
        self.all().get(connection).map_or(0, Vec::len)
    }

    pub fn list(&self, connection: &str) -> Vec<Told> {
        self.all().get(connection).cloned().unwrap_or_default()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TransactionObserver for Observed {
    fn transaction_ended(&self, ended: &EndedTransaction<'_>) {
        let told = Told { snapshot: ended.snapshot.0, committed: ended.committed.map(|timestamp| timestamp.0) };
        self.all().entry(ended.session.application_name.clone()).or_default().push(told);
    }
}

/// What the two together say about a transaction.
struct Fate {
    snapshot: Option<u64>,
    committed: Option<u64>,
    /// It ran several times; only the last one is known.
    repeated: bool,
}

/// An error that only a concurrent transaction explains.
struct Claim {
    record: usize,
    sqlstate: String,
    snapshot: u64,
    touched: BTreeSet<Key>,
    tables: TablesUsed,
}

/// Which tables a transaction, or a statement of it, used in which way.
#[derive(Clone, Default)]
struct TablesUsed {
    used: BTreeSet<Table>,
    /// As a whole.
    whole: BTreeSet<Table>,
    /// Changed names.
    defines: bool,
}

impl TablesUsed {
    fn add(&mut self, statement: &Statement) {
        self.used.extend(statement.tables());
        self.whole.extend(statement.takes_whole());
        self.defines |= statement.defines();
    }

    /// Whether one of the two keeps a table from the other.
    fn meets(&self, other: &Self) -> bool {
        let (one, two) = (!self.whole.is_disjoint(&other.used), !self.used.is_disjoint(&other.whole));
        one || two || (self.defines && other.defines)
    }
}

/// What may fail a statement whatever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreliable {
    pub memory: bool,
    /// The disk of temporary files.
    pub disk: bool,
}

impl Unreliable {
    fn explains(self, sqlstate: &str, statement: &Statement) -> bool {
        let disk = self.disk && statement.may_spill() && [DISK_FULL, IO_ERROR].contains(&sqlstate);
        disk || (self.memory && sqlstate == OUT_OF_MEMORY)
    }
}

/// What evaluating a record again gives.
#[derive(Default)]
struct Replay {
    writes: BTreeMap<Key, Option<Row>>,
    touched: BTreeSet<Key>,
    truncated: BTreeSet<Table>,
    tables: TablesUsed,
}

/// A history that was found clean.
pub struct Checked {
    pub rows: Vec<(crate::statement::Table, Row)>,
    pub counts: BTreeMap<String, u64>,
}

struct Checker<'h> {
    records: &'h [Record],
    unreliable: Unreliable,
    fates: Vec<Fate>,
    replays: Vec<Replay>,
    claims: Vec<Claim>,
    counts: BTreeMap<String, u64>,
}

/// Checks a history; the first violation is the error.
pub fn check(records: &[Record], observed: &Observed, unreliable: Unreliable) -> Result<Checked, String> {
    let fates = records.iter().map(|record| fate(record, observed)).collect::<Result<Vec<_>, _>>()?;
    let replays = records.iter().map(|_| Replay::default()).collect();
    let mut checker = Checker { records, unreliable, fates, replays, claims: Vec::new(), counts: BTreeMap::new() };
    let versions = checker.commits()?;
    checker.others(&versions)?;
    for claim in &checker.claims {
        checker.justify(claim)?;
    }
    Ok(Checked { rows: versions.last(), counts: checker.counts })
}

fn fate(record: &Record, observed: &Observed) -> Result<Fate, String> {
    let told = observed.list(&record.connection);
    let told = &told[record.told_from..record.told_until.unwrap_or(told.len())];
    let commits = told.iter().filter(|told| told.committed.is_some()).count();
    let last = told.last();
    let committed = last.and_then(|told| told.committed);
    let repeated = told.len() > 1;
    // To drop a table that is not there, or to make one that is, is nothing.
    let is_nothing = told.is_empty() && record.steps.iter().all(|step| step.statement.tables().is_empty());
    let consistent = match record.end {
        End::Committed if is_nothing => true,
        End::Committed => commits == 1 && committed.is_some(),
        End::RolledBack => commits == 0,
        End::Unknown => commits == usize::from(committed.is_some()),
    };
    if !consistent {
        return Err(format!("the client and the database disagree: {record:?}\nthe database says {told:?}"));
    }
    if let Some(told) = last
        && told.snapshot < record.acknowledged
    {
        return Err(format!("a snapshot misses commit {}: {told:?} of {record:?}", record.acknowledged));
    }
    Ok(Fate { snapshot: last.map(|told| told.snapshot), committed, repeated })
}

impl Checker<'_> {
    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// The committed transactions in the order of their commits; together they make the versions.
    fn commits(&mut self) -> Result<Versions, String> {
        let mut order: Vec<(u64, Option<u64>, usize)> = Vec::new();
        for (index, fate) in self.fates.iter().enumerate() {
            order.extend(fate.committed.map(|committed| (committed, fate.snapshot, index)));
        }
        // A transaction that wrote nothing "commits" at a timestamp of others; it may see the commit of that number.
        order.sort_unstable();
        let mut versions = Versions::default();
        for (committed, _, index) in order {
            self.replay(index, &versions)?;
            self.count(if self.records[index].end == End::Unknown { "commits nobody heard of" } else { "commits" });
            let Replay { writes, truncated, .. } = &self.replays[index];
            if writes.is_empty() && truncated.is_empty() {
                continue;
            }
            let truncations = truncated.len() as u64;
            let snapshot = self.fates[index].snapshot.unwrap_or_default();
            if snapshot >= committed {
                return Err(format!(
                    "commit {committed} within its own snapshot {snapshot}: {:?}",
                    self.records[index]
                ));
            }
            // Whoever wrote to a truncated table has committed before, and its rows go.
            for (key, row) in writes.iter().filter(|(key, _)| !truncated.contains(&key.0)) {
                let between: Vec<_> = versions.between(*key, snapshot, committed).collect();
                let existed = versions.at(*key, snapshot).is_some();
                let taken = row.is_some() && between.last().is_some_and(|(_, row)| row.is_some());
                if !between.is_empty() && (existed || taken) {
                    let record = &self.records[index];
                    return Err(format!(
                        "lost update: {key:?} has {between:?} between {snapshot} and {committed} of {record:?}"
                    ));
                }
            }
            let mut writes = writes.clone();
            for table in truncated {
                versions.truncate(*table, &mut writes);
            }
            versions.commit(committed, &writes);
            *self.counts.entry("tables truncated".to_owned()).or_default() += truncations;
        }
        Ok(versions)
    }

    /// The transactions that left nothing.
    fn others(&mut self, versions: &Versions) -> Result<(), String> {
        for index in 0..self.records.len() {
            if self.fates[index].committed.is_none() {
                self.replay(index, versions)?;
                let end = self.records[index].end;
                self.count(if end == End::Unknown { "lost with their client" } else { "rollbacks" });
            }
        }
        Ok(())
    }

    /// Evaluates the statements of a transaction again and compares.
    fn replay(&mut self, index: usize, versions: &Versions) -> Result<(), String> {
        let record = &self.records[index];
        let snapshot = self.fates[index].snapshot;
        let (own, truncated) = Default::default();
        let mut view = View { versions, snapshot: snapshot.unwrap_or(u64::MAX), own, truncated };
        let (mut touched, mut tables) = (BTreeSet::new(), TablesUsed::default());
        // After which step it had failed.
        let mut failed_after = None;
        for (at, step) in record.steps.iter().enumerate() {
            let violation = |what: String| {
                let (fate, statement) = (&self.fates[index], &step.statement);
                Err(format!(
                    "{what}\nsnapshot {:?}, commit {:?}, statement {statement:?}\nin {record:?}",
                    fate.snapshot, fate.committed
                ))
            };
            let mut expected = expect(&step.statement, &view);
            if record.read_only && step.statement.writes() {
                expected = Expectation { errors: vec![READ_ONLY], ..Expectation::default() };
            }
            if failed_after.is_some_and(|last| at > last) {
                match &step.outcome {
                    // Preparing a statement may be refused memory before the state of the block is checked.
                    Outcome::Failed { sqlstate, .. } if [FAILED_BLOCK, OUT_OF_MEMORY].contains(&&**sqlstate) => {
                        continue;
                    }
                    Outcome::Unknown => continue,
                    other => return violation(format!("a failed block goes on: {other:?}")),
                }
            }
            touched.extend(expected.touched.iter().copied());
            tables.add(&step.statement);
            match &step.outcome {
                Outcome::Answered(answer) => {
                    if snapshot.is_none() && !step.statement.tables().is_empty() {
                        return violation(format!("{answer:?} without a snapshot"));
                    }
                    if !expected.errors.is_empty() {
                        return violation(format!("{answer:?} instead of an error {:?}", expected.errors));
                    }
                    let (right, count) = match answer {
                        Answer::Rows(rows) => (contains(&expected.rows, rows), rows.len() as u64),
                        Answer::Changed(count) => (true, *count),
                    };
                    if !right || count != expected.count {
                        return violation(format!(
                            "{answer:?}, but the history says {} of {:?}",
                            expected.count, expected.rows
                        ));
                    }
                    expected.truncates.iter().for_each(|table| view.truncate(*table));
                    view.own.extend(expected.writes);
                }
                Outcome::Partly(rows) => {
                    if !contains(&expected.rows, rows) {
                        return violation(format!("{rows:?}, but the history says {:?}", expected.rows));
                    }
                }
                Outcome::Failed { sqlstate, rows } => {
                    failed_after = Some(step.told_after);
                    if !contains(&expected.rows, rows) {
                        return violation(format!("{rows:?}, but the history says {:?}", expected.rows));
                    }
                    *self.counts.entry(format!("error {sqlstate}")).or_default() += 1;
                    let state = sqlstate.as_str();
                    let demanded = expected.errors.contains(&state) || expected.tolerated.contains(&state);
                    let cancelled = state == CANCELED && step.cancelled;
                    if demanded || cancelled || self.unreliable.explains(state, &step.statement) {
                        continue;
                    }
                    let (true, Some(snapshot)) = ([SERIALIZATION, DEADLOCK, UNIQUE].contains(&state), snapshot) else {
                        return violation(format!("error {state} out of place, the model knows {:?}", expected.errors));
                    };
                    let (sqlstate, touched) = (sqlstate.clone(), expected.touched);
                    let mut tables = TablesUsed::default();
                    tables.add(&step.statement);
                    self.claims.push(Claim { record: index, sqlstate, snapshot, touched, tables });
                }
                Outcome::Unknown => {
                    if self.fates[index].committed.is_some() && !expected.errors.is_empty() {
                        return violation(format!("committed in spite of an error {:?}", expected.errors));
                    }
                    expected.truncates.iter().for_each(|table| view.truncate(*table));
                    view.own.extend(expected.writes);
                }
            }
        }
        if failed_after.is_some() && self.fates[index].committed.is_some() {
            return Err(format!("a transaction that failed is committed: {record:?}"));
        }
        self.replays[index] = Replay { writes: view.own, touched, truncated: view.truncated, tables };
        Ok(())
    }

    /// Looks for the concurrent transaction that explains an error.
    fn justify(&self, claim: &Claim) -> Result<(), String> {
        let own = &self.records[claim.record];
        let explained = self.records.iter().enumerate().any(|(index, other)| {
            let (fate, touched) = (&self.fates[index], &self.replays[index].touched);
            let overlaps = index != claim.record && other.began < own.ended && own.began < other.ended;
            let keys = claim.touched.iter().any(|key| touched.contains(key));
            let whole = claim.sqlstate != UNIQUE && claim.tables.meets(&self.replays[index].tables);
            let meets = fate.repeated || keys || whole;
            let decided = match claim.sqlstate.as_str() {
                // The key was committed after the snapshot.
                UNIQUE => fate.committed.is_some_and(|committed| committed > claim.snapshot),
                _ => true,
            };
            overlaps && meets && decided
        });
        if explained || self.fates[claim.record].repeated {
            return Ok(());
        }
        Err(format!("error {} without a concurrent writer of {:?}: {own:?}", claim.sqlstate, claim.touched))
    }
}

/// Whether all of `part` is in `whole`, each row at most as often; `whole` is in order.
fn contains(whole: &[TextRow], part: &[TextRow]) -> bool {
    let mut part: Vec<&TextRow> = part.iter().collect();
    part.sort();
    let mut left = whole.iter();
    part.into_iter().all(|row| left.by_ref().any(|candidate| candidate == row))
}
