//! What became of rings: committed operations in the order of their timestamps, and what everybody saw at its snapshot.
//!
//! Errors are looked at, too: who was told that a key is taken or that it lost must have met somebody who committed.

use std::collections::BTreeMap;

use eris_storage::{RowLock, Timestamp};

use super::{Row, Write};

/// What a transaction did to a ring.
#[derive(Clone, Debug)]
pub enum Operation {
    /// To all rows of the ring, or to the one with an id.
    Wrote {
        write: Write,
        id: Option<i64>,
    },
    Deleted,
    Inserted {
        turns: i64,
    },
}

/// One step of a transaction, with the snapshot of its statement.
#[derive(Clone, Debug)]
enum Step {
    /// So many rows were concerned.
    Did(Operation, u64),
    Saw(Vec<Row>),
    /// Some of the rows, and nobody changes them until a timestamp.
    Locked {
        lock: RowLock,
        rows: Vec<Row>,
        until: Option<u64>,
    },
    /// The key is taken: seen between the snapshot and this timestamp.
    Refused(u64),
    /// Somebody was faster: between the snapshot and this timestamp.
    Lost(u64),
    RolledBack(usize),
}

#[derive(Clone, Debug)]
struct Entry {
    snapshot: u64,
    ring: i64,
    step: Step,
}

/// One transaction.
#[derive(Default, Debug)]
pub struct RingTransaction {
    entries: Vec<Entry>,
    committed: Option<u64>,
}

impl RingTransaction {
    fn push(&mut self, snapshot: Timestamp, ring: i64, step: Step) {
        self.entries.push(Entry { snapshot: snapshot.0, ring, step });
    }

    pub fn did(&mut self, snapshot: Timestamp, ring: i64, operation: Operation, rows: u64) {
        self.push(snapshot, ring, Step::Did(operation, rows));
    }

    pub fn saw(&mut self, snapshot: Timestamp, ring: i64, rows: Vec<Row>) {
        self.push(snapshot, ring, Step::Saw(rows));
    }

    pub fn locked(&mut self, snapshot: Timestamp, ring: i64, lock: RowLock, rows: Vec<Row>) {
        self.push(snapshot, ring, Step::Locked { lock, rows, until: None });
    }

    pub fn refused(&mut self, snapshot: Timestamp, ring: i64, now: Timestamp) {
        self.push(snapshot, ring, Step::Refused(now.0));
    }

    pub fn lost(&mut self, snapshot: Timestamp, ring: i64, now: Timestamp) {
        self.push(snapshot, ring, Step::Lost(now.0));
    }

    pub fn length(&self) -> usize {
        self.entries.len()
    }

    pub fn roll_back_to(&mut self, length: usize, now: Timestamp) {
        self.end_locks(length, now);
        self.push(Timestamp(0), 0, Step::RolledBack(length));
    }

    /// The locks of what came from `length` on end.
    pub fn end_locks(&mut self, length: usize, now: Timestamp) {
        for entry in &mut self.entries[length..] {
            if let Step::Locked { until: until @ None, .. } = &mut entry.step {
                *until = Some(now.0);
            }
        }
    }

    pub fn commit(&mut self, timestamp: Timestamp) {
        self.committed = Some(timestamp.0);
    }

    /// The operations on a ring before an entry that were not rolled back, and concerned something.
    fn own(&self, ring: i64, at: usize) -> Vec<&Operation> {
        let mut alive: Vec<usize> = Vec::new();
        for (number, entry) in self.entries[..at].iter().enumerate() {
            match &entry.step {
                Step::RolledBack(length) => alive.retain(|other| other < length),
                Step::Did(_, rows) if *rows > 0 && entry.ring == ring => alive.push(number),
                Step::Did(..) | Step::Saw(_) | Step::Locked { .. } | Step::Refused(_) | Step::Lost(_) => {}
            }
        }
        let operation = |number: usize| match &self.entries[number].step {
            Step::Did(operation, _) => Some(operation),
            Step::Saw(_) | Step::Locked { .. } | Step::Refused(_) | Step::Lost(_) | Step::RolledBack(_) => None,
        };
        alive.into_iter().filter_map(operation).collect()
    }
}

impl Operation {
    fn apply(&self, ring: i64, size: i64, rows: &mut Vec<Row>) {
        match self {
            Self::Wrote { write, id } => {
                rows.iter_mut().filter(|row| id.is_none_or(|id| row.id == id)).for_each(|row| write.apply(row));
            }
            Self::Deleted => rows.clear(),
            Self::Inserted { turns } => {
                *rows = (0..size).map(|id| Row::new(ring, id, *turns)).collect();
            }
        }
    }

    /// How many rows it finds.
    fn concerns(&self, size: i64, rows: &[Row]) -> u64 {
        match self {
            Self::Wrote { id, .. } => rows.iter().filter(|row| id.is_none_or(|id| row.id == id)).count() as u64,
            Self::Deleted => rows.len() as u64,
            Self::Inserted { .. } => size as u64,
        }
    }
}

/// All transactions of a run.
pub struct RingHistory {
    pub transactions: Vec<RingTransaction>,
    size: i64,
}

/// The states of each ring, by commit timestamp.
type States = BTreeMap<i64, BTreeMap<u64, Vec<Row>>>;

fn at(states: &States, ring: i64, timestamp: u64) -> &[Row] {
    let state = states.get(&ring).and_then(|states| states.range(..=timestamp).next_back());
    state.map_or(&[], |(_, rows)| rows)
}

impl RingHistory {
    /// Of rings with so many rows.
    pub fn new(size: i64) -> Self {
        Self { transactions: Vec::new(), size }
    }

    /// Checks everything; gives all rows at the end.
    pub fn check(&self) -> Result<Vec<Row>, String> {
        let states = self.states();
        for transaction in &self.transactions {
            for (number, entry) in transaction.entries.iter().enumerate() {
                self.check_entry(transaction, number, entry, &states)?;
            }
        }
        let mut rows: Vec<Row> = states.keys().flat_map(|ring| at(&states, *ring, u64::MAX).to_vec()).collect();
        rows.sort_unstable();
        Ok(rows)
    }

    fn states(&self) -> States {
        let mut committed: Vec<(u64, &RingTransaction)> =
            self.transactions.iter().filter_map(|one| Some((one.committed?, one))).collect();
        committed.sort_unstable_by_key(|(timestamp, _)| *timestamp);
        let mut states = States::new();
        for (timestamp, transaction) in committed {
            let rings: std::collections::BTreeSet<i64> = transaction.entries.iter().map(|entry| entry.ring).collect();
            for ring in rings {
                let operations = transaction.own(ring, transaction.entries.len());
                if operations.is_empty() {
                    continue;
                }
                let mut rows = at(&states, ring, timestamp).to_vec();
                for operation in operations {
                    operation.apply(ring, self.size, &mut rows);
                }
                states.entry(ring).or_default().insert(timestamp, rows);
            }
        }
        states
    }

    fn check_entry(
        &self,
        transaction: &RingTransaction,
        number: usize,
        entry: &Entry,
        states: &States,
    ) -> Result<(), String> {
        let Entry { snapshot, ring, step } = entry;
        let expected = || {
            let mut rows = at(states, *ring, *snapshot).to_vec();
            let own = transaction.own(*ring, number);
            for operation in own {
                operation.apply(*ring, self.size, &mut rows);
            }
            rows
        };
        let commits = |until: u64| {
            let commits =
                states.get(ring).filter(|_| *snapshot < until).map(|states| states.range(snapshot + 1..=until));
            commits.into_iter().flatten().map(|(timestamp, _)| *timestamp).collect::<Vec<_>>()
        };
        match step {
            Step::Saw(rows) => {
                let expected = expected();
                if *rows != expected {
                    return Err(format!("ring {ring} at {snapshot} is seen as {rows:?}, and was {expected:?}"));
                }
            }
            Step::Did(operation, rows) => {
                let before = expected();
                if matches!(operation, Operation::Inserted { .. }) && !before.is_empty() {
                    return Err(format!("ring {ring} was inserted at {snapshot} though it was there: {before:?}"));
                }
                let concerned = operation.concerns(self.size, &before);
                if *rows != concerned {
                    let what = format!("{operation:?} on ring {ring} at {snapshot}");
                    return Err(format!("{what} concerned {rows} rows instead of {concerned}"));
                }
            }
            Step::Locked { lock, rows, until } => {
                let until = until.unwrap_or(*snapshot);
                let (before, now) = (at(states, *ring, *snapshot), at(states, *ring, until));
                // What the transaction inserted itself is in neither.
                for row in before.iter().filter(|row| rows.iter().any(|locked| locked.id == row.id)) {
                    let kept = now
                        .iter()
                        .find(|other| other.id == row.id)
                        .is_some_and(|other| other.key == row.key && (*lock == RowLock::KeyShare || other == row));
                    if !kept {
                        let what = format!("{row:?} was locked ({lock:?}) from {snapshot} to {until}");
                        return Err(format!("{what}, and then the ring was {now:?}"));
                    }
                }
            }
            Step::Refused(until) => {
                if expected().is_empty() && commits(*until).is_empty() {
                    return Err(format!("ring {ring} was not there from {snapshot} to {until}: its keys were free"));
                }
            }
            Step::Lost(until) => {
                if commits(*until).is_empty() {
                    return Err(format!("nobody changed ring {ring} from {snapshot} to {until}: nobody was faster"));
                }
            }
            Step::RolledBack(_) => {}
        }
        Ok(())
    }
}
