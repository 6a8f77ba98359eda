//! What the clients of truncated tables saw and did, and its checker.

use std::collections::BTreeSet;

use eris_engine::IsolationLevel;
use eris_storage::Timestamp;

use super::TABLES;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Insert {
        table: usize,
        element: i64,
    },
    /// All elements, in their order, at a snapshot.
    Read {
        table: usize,
        snapshot: u64,
        found: Vec<i64>,
    },
    Truncate {
        table: usize,
    },
}

impl Operation {
    fn table(&self) -> usize {
        let (Self::Insert { table, .. } | Self::Read { table, .. } | Self::Truncate { table }) = self;
        *table
    }

    fn writes(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Record {
    pub level: IsolationLevel,
    pub operations: Vec<Operation>,
    pub committed: Option<Timestamp>,
}

#[derive(Default)]
pub struct TruncationHistory {
    records: Vec<Record>,
}

/// The commits that changed a table, in their order: what they added, and whether they truncated it before.
type Commits = Vec<(u64, bool, Vec<i64>)>;

fn apply(elements: &mut BTreeSet<i64>, truncates: bool, added: &[i64]) {
    if truncates {
        elements.clear();
    }
    elements.extend(added);
}

/// What a transaction does to a table with these operations.
fn effect(operations: &[Operation], of: usize) -> (bool, Vec<i64>) {
    let (mut truncates, mut added) = (false, Vec::new());
    for operation in operations.iter().filter(|operation| operation.table() == of) {
        match operation {
            Operation::Insert { element, .. } => added.push(*element),
            Operation::Read { .. } => {}
            Operation::Truncate { .. } => {
                truncates = true;
                added.clear();
            }
        }
    }
    (truncates, added)
}

impl TruncationHistory {
    pub fn add(&mut self, record: Record) {
        self.records.push(record);
    }

    fn commits(&self, table: usize) -> Commits {
        let committed = self.records.iter().filter_map(|record| Some((record.committed?.0, record)));
        let effects = committed.map(|(at, record)| (at, effect(&record.operations, table)));
        let changes = effects.filter(|(_, (truncates, added))| *truncates || !added.is_empty());
        let mut commits: Commits = changes.map(|(at, (truncates, added))| (at, truncates, added)).collect();
        commits.sort_unstable();
        commits
    }

    /// Checks all reads; what the tables must hold at the end, and the number of truncations.
    pub fn check(&self) -> Result<([Vec<i64>; TABLES], usize), String> {
        let commits: Vec<Commits> = (0..TABLES).map(|table| self.commits(table)).collect();
        for record in &self.records {
            for (at, operation) in record.operations.iter().enumerate() {
                let Operation::Read { table, snapshot, found } = operation else { continue };
                let mut expected = BTreeSet::new();
                for (_, truncates, added) in commits[*table].iter().take_while(|(at, _, _)| at <= snapshot) {
                    apply(&mut expected, *truncates, added);
                }
                let (truncates, added) = effect(&record.operations[..at], *table);
                apply(&mut expected, truncates, &added);
                if !expected.iter().eq(found) {
                    return Err(format!(
                        "table {table} at {snapshot} is {found:?}, the history says {expected:?} in {record:?}"
                    ));
                }
            }
        }
        self.check_serializable()?;
        let last = std::array::from_fn(|table| {
            let mut elements = BTreeSet::new();
            commits[table].iter().for_each(|(_, truncates, added)| apply(&mut elements, *truncates, added));
            elements.into_iter().collect()
        });
        let committed = self.records.iter().filter(|record| record.committed.is_some());
        let operations = committed.flat_map(|record| &record.operations);
        Ok((last, operations.filter(|operation| matches!(operation, Operation::Truncate { .. })).count()))
    }

    /// Whether committed transactions at SERIALIZABLE have an order: each one that reads a table follows those that
    /// changed it before the snapshot, and comes before those that changed it later.
    fn check_serializable(&self) -> Result<(), String> {
        let is_serializable = |record: &&Record| record.level == IsolationLevel::Serializable;
        let committed = self.records.iter().filter(is_serializable);
        let all: Vec<(u64, &Record)> = committed.filter_map(|record| Some((record.committed?.0, record))).collect();
        let mut later: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
        for (one, (_, reader)) in all.iter().enumerate() {
            for operation in &reader.operations {
                for (other, (committed, writer)) in all.iter().enumerate() {
                    let table = operation.table();
                    let meets = |written: &Operation| written.writes() && written.table() == table;
                    if one == other || !writer.operations.iter().any(meets) {
                        continue;
                    }
                    match operation {
                        Operation::Read { snapshot, .. } if committed > snapshot => later[one].push(other),
                        Operation::Read { .. } => later[other].push(one),
                        // A truncation has its place among all that changed the table.
                        Operation::Truncate { .. } if *committed > all[one].0 => later[one].push(other),
                        Operation::Truncate { .. } => later[other].push(one),
                        Operation::Insert { .. } => {}
                    }
                }
            }
        }
        // Takes away whoever nobody comes before, until none is left.
        let mut before = vec![0; all.len()];
        later.iter().flatten().for_each(|to| before[*to] += 1);
        let mut free: Vec<usize> = (0..all.len()).filter(|at| before[*at] == 0).collect();
        let mut ordered = 0;
        while let Some(first) = free.pop() {
            ordered += 1;
            for to in &later[first] {
                before[*to] -= 1;
                if before[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        if ordered == all.len() {
            return Ok(());
        }
        let circle: Vec<_> = (0..all.len()).filter(|at| before[*at] > 0).map(|at| all[at].1).collect();
        Err(format!("SERIALIZABLE transactions over truncated tables have no order: {circle:?}"))
    }
}
