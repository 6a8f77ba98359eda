//! Accesses of a tracked transaction on their way into registry and graph.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_storage::{AttributeId, Batch, Comparison, Condition, DataType, Key, Predicate, Test, Value, key_of_row};

use super::access::RowWrite;
use super::graph::Judged;
use super::tracked::TrackedTransaction;
use crate::container::Container;
use crate::counters::Event;
use crate::runtime::Runtime;
use crate::transactions::TransactionObject;

/// One transaction's accesses to one container.
#[derive(Clone, Copy)]
pub(crate) struct Tracking<'a> {
    runtime: &'a Runtime,
    container: &'a Container,
    tracked: &'a Arc<TrackedTransaction>,
}

impl<'a> Tracking<'a> {
    /// None if the transaction is not tracked, or the container is not: a global index follows from its table, whose
    /// accesses are entered there.
    #[inline]
    pub fn of(runtime: &'a Runtime, container: &'a Container, object: &'a TransactionObject) -> Option<Self> {
        let tracked = object.tracked()?;
        container.is_logged().then_some(Self { runtime, container, tracked })
    }

    /// Rows that a predicate leaves are about to be read.
    #[cold]
    pub fn read(self, predicate: &Predicate) {
        let schema = self.container.schema();
        let met = self.tracked.read(self.container.accesses(), &schema, predicate, self.entries_max());
        self.count_coarsened(met.coarsened);
        self.count(self.runtime.transactions.serializable.add_writers(self.tracked.id, &met.others));
    }

    /// Rows were inserted.
    #[cold]
    pub fn inserted(self, rows: &Batch) {
        let write = |row| RowWrite { transaction: self.tracked.id, old: None, new: Some(rows.row(row).into()) };
        self.write(rows.rows, |place| write(place));
    }

    /// Rows that were these are gone; of `old`, those at `gone`.
    #[cold]
    pub fn deleted(self, old: &Batch, gone: &[u32]) {
        let write =
            |row: u32| RowWrite { transaction: self.tracked.id, old: Some(old.row(row as usize).into()), new: None };
        self.write(gone.len(), |place| write(gone[place]));
    }

    /// Rows that were `old` have other values, those at `changed`.
    #[cold]
    pub fn updated(self, old: &Batch, changed: &[u32], attributes: &[AttributeId], values: &Batch) {
        let write = |row: u32| {
            let old = old.row(row as usize);
            let mut new = old.clone();
            for (place, id) in attributes.iter().enumerate() {
                new[id.index()] = values.value(row as usize, place);
            }
            RowWrite { transaction: self.tracked.id, old: Some(old.into()), new: Some(new.into()) }
        };
        self.write(changed.len(), |place| write(changed[place]));
    }

    fn write(self, rows: usize, write: impl Fn(usize) -> RowWrite) {
        if rows == 0 {
            return;
        }
        // A load of more rows than may be entered is not looked at row by row.
        let writes = (rows <= self.entries_max()).then(|| (0..rows).map(write).collect());
        let container = self.container.id();
        let met = self.tracked.write(self.container.accesses(), container, writes, self.entries_max());
        self.count_coarsened(met.coarsened);
        self.count(self.runtime.transactions.serializable.add_readers(self.tracked.id, &met.others));
    }

    /// Whether a row with one of these keys came or went since the snapshot, by transactions that committed.
    #[cold]
    pub fn missed_a_key(self, attributes: &[AttributeId], keys: &Batch) -> bool {
        let writers = self.runtime.transactions.serializable.committed_since(self.tracked.id);
        if writers.is_empty() {
            return false;
        }
        let columns: Vec<usize> = (0..keys.columns.len()).collect();
        let types: Vec<DataType> = keys.data_types();
        let keys: BTreeSet<Key> = (0..keys.rows).map(|row| key_of_row(keys, row, &columns)).collect();
        self.container.accesses().moved_a_key(&writers, attributes, &types, &keys)
    }

    fn entries_max(self) -> usize {
        self.runtime.options.tracked_entries_max
    }

    fn count_coarsened(self, coarsened: bool) {
        if coarsened {
            self.runtime.counters.add(Event::TrackedCoarsely, 1);
        }
    }

    fn count(self, judged: Judged) {
        judged.count(self.runtime);
    }
}

impl Judged {
    pub fn count(self, runtime: &Runtime) {
        if self != Self::default() {
            runtime.counters.add(Event::DangerousStructures, self.doomed);
            runtime.counters.add(Event::ReadOnlySpared, self.spared);
        }
    }
}

/// The predicates of a lookup's keys, those without NULL.
pub(crate) fn predicates_of_keys<'k>(
    attributes: &'k [AttributeId],
    keys: &'k Batch,
) -> impl Iterator<Item = Predicate> + 'k {
    let full = |row: &usize| !keys.columns.iter().any(|column| column.is_null(*row));
    (0..keys.rows).filter(full).map(move |row| {
        let condition = |(id, value): (&AttributeId, Value)| Condition {
            attribute: *id,
            test: Test::Compare(Comparison::Equal, value),
        };
        Predicate::new(attributes.iter().zip(keys.row(row)).map(condition).collect::<Vec<_>>())
    })
}
