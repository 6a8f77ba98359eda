//! The reference: a list of versions and the plainest possible MVCC. Nothing is ever stamped, sealed or removed.

use eris_storage::{
    AttributeId, Outcome, Outcomes, Predicate, Snapshot, StatementNumber, Timestamp, TransactionId, Value,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Who wrote something, and in which of its statements.
pub type Mark = (u64, u32);

#[derive(Clone, Debug)]
pub struct Version {
    pub row: Vec<Value>,
    pub begin: Mark,
    pub end: Option<Mark>,
}

/// How transactions ended; shared by the reference and the store.
#[derive(Default)]
pub struct Table {
    outcomes: Mutex<BTreeMap<u64, Outcome>>,
    /// Statements that were rolled back, of transactions that went on.
    voided: Mutex<BTreeSet<Mark>>,
}

impl Table {
    pub fn set(&self, transaction: u64, outcome: Outcome) {
        self.outcomes.lock().unwrap().insert(transaction, outcome);
    }

    pub fn get(&self, transaction: u64) -> Outcome {
        *self.outcomes.lock().unwrap().get(&transaction).expect("the store asks only for transactions it must know")
    }

    pub fn void(&self, mark: Mark) {
        self.voided.lock().unwrap().insert(mark);
    }

    pub fn forget(&self, transaction: u64) {
        self.outcomes.lock().unwrap().remove(&transaction);
    }
}

impl Outcomes for Table {
    fn outcome(&self, transaction: TransactionId, statement: StatementNumber) -> Outcome {
        let outcome = self.get(transaction.0);
        let voided = self.voided.lock().unwrap().contains(&(transaction.0, statement.0));
        if voided { Outcome::Aborted } else { outcome }
    }
}

/// A reader's point of view, in the reference's terms.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub visible: u64,
    pub transaction: u64,
    pub statement: u32,
}

impl View {
    pub fn snapshot<'a>(&self, outcomes: &'a Table) -> Snapshot<'a> {
        Snapshot {
            visible: Timestamp(self.visible),
            transaction: TransactionId(self.transaction),
            statement: StatementNumber(self.statement),
            outcomes,
        }
    }
}

/// What a write must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Duplicate,
    Conflict,
}

#[derive(Default)]
pub struct Reference {
    pub versions: Vec<Version>,
    /// Every outcome for ever: the store's table forgets what was settled.
    pub outcomes: BTreeMap<u64, Outcome>,
    pub voided: BTreeSet<Mark>,
}

impl Reference {
    pub fn outcome(&self, mark: Mark) -> Outcome {
        if self.voided.contains(&mark) { Outcome::Aborted } else { self.outcomes[&mark.0] }
    }

    fn sees(&self, view: View, mark: Mark) -> bool {
        if mark.0 == view.transaction {
            return mark.1 < view.statement && !self.voided.contains(&mark);
        }
        matches!(self.outcome(mark), Outcome::Committed(timestamp) if timestamp.0 <= view.visible)
    }

    pub fn visible(&self, view: View) -> impl Iterator<Item = &Version> {
        self.versions.iter().filter(move |version| {
            self.sees(view, version.begin) && !version.end.is_some_and(|end| self.sees(view, end))
        })
    }

    /// The desired attributes of visible rows that qualify, sorted.
    pub fn read(&self, view: View, predicate: &Predicate, desired: &[AttributeId]) -> Vec<Vec<Value>> {
        let rows = self.visible(view).filter(|version| predicate.accepts(&version.row));
        let mut rows: Vec<Vec<Value>> =
            rows.map(|version| desired.iter().map(|id| version.row[id.index()].clone()).collect()).collect();
        rows.sort();
        rows
    }

    pub fn by_serial(&mut self, serial: &Value) -> &mut Version {
        self.versions.iter_mut().find(|version| version.row[0] == *serial).expect("serials are never forgotten")
    }

    /// Whether a transaction may end a version; false: it has done so already.
    pub fn may_end(&self, version: &Version, transaction: u64) -> Result<bool, Refusal> {
        match version.end {
            None => Ok(true),
            Some(mark) => match self.outcome(mark) {
                Outcome::Aborted => Ok(true),
                Outcome::Active if mark.0 == transaction => Ok(false),
                Outcome::Active | Outcome::Committed(_) => Err(Refusal::Conflict),
            },
        }
    }

    /// Everything that speaks against inserting a row.
    pub fn refusals(&self, row: &[Value], view: View, unique: &[Vec<AttributeId>]) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for key in unique {
            let of = |row: &[Value]| -> Vec<Value> { key.iter().map(|id| row[id.index()].clone()).collect() };
            let wanted = of(row);
            if wanted.iter().any(Value::is_null) {
                continue;
            }
            for version in self.versions.iter().filter(|version| of(&version.row) == wanted) {
                let own = version.begin.0 == view.transaction;
                match self.outcome(version.begin) {
                    Outcome::Aborted => continue,
                    Outcome::Active if !own => {
                        refusals.push(Refusal::Conflict);
                        continue;
                    }
                    Outcome::Active | Outcome::Committed(_) => {}
                }
                match version.end {
                    None => refusals.push(Refusal::Duplicate),
                    Some(end) => match self.outcome(end) {
                        Outcome::Active if end.0 == view.transaction => {}
                        Outcome::Active => refusals.push(Refusal::Conflict),
                        Outcome::Aborted => refusals.push(Refusal::Duplicate),
                        // The snapshot still has the key: with the new row it would have it twice.
                        Outcome::Committed(_) if self.sees(view, version.begin) && !self.sees(view, end) => {
                            refusals.push(Refusal::Conflict);
                        }
                        Outcome::Committed(_) => {}
                    },
                }
            }
        }
        refusals
    }
}
