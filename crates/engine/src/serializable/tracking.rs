//! Accesses of a tracked transaction on their way into registry and graph.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_storage::{
    AttributeId, Batch, Column, Comparison, Condition, DataType, Key, Predicate, Schema, StorageError, Test, Value,
    key_of_row,
};

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

    /// Rows were inserted. Others may have had one of their keys in between: see [`Self::check_keys`].
    #[cold]
    pub fn inserted(self, schema: &Schema, rows: &Batch) {
        let write = |row| RowWrite { transaction: self.tracked.id, old: None, new: Some(rows.row(row).into()) };
        self.write(rows.rows, write);
        self.check_keys(schema, rows, |_| true);
    }

    /// Rows that were these are gone; of `old`, those at `gone`.
    #[cold]
    pub fn deleted(self, old: &Batch, gone: &[u32]) {
        let write =
            |row: u32| RowWrite { transaction: self.tracked.id, old: Some(old.row(row as usize).into()), new: None };
        self.write(gone.len(), |place| write(gone[place]));
    }

    /// Rows that were `old` have other values, those at `changed`. Keys as with [`Self::inserted`].
    #[cold]
    pub fn updated(self, schema: &Schema, old: &Batch, changed: &[u32], attributes: &[AttributeId], values: &Batch) {
        let mut columns: Vec<Column> = old.columns.iter().map(|column| column.take(changed)).collect();
        for (id, column) in attributes.iter().zip(&values.columns) {
            columns[id.index()] = column.take(changed);
        }
        let new = Batch { columns: columns.into(), rows: changed.len() };
        self.write(changed.len(), |place| RowWrite {
            transaction: self.tracked.id,
            old: Some(old.row(changed[place] as usize).into()),
            new: Some(new.row(place).into()),
        });
        self.check_keys(schema, &new, |key| key.iter().any(|id| attributes.contains(id)));
    }

    /// A unique key that nobody had in the snapshot, and nobody has now, may have come and gone in between. Then each
    /// of the two has missed the other's row, as if both had looked whether the key is free; and the other one has
    /// committed. (Where a row stays, the first updater wins; here none is left to meet.)
    fn check_keys(self, schema: &Schema, rows: &Batch, concerned: impl Fn(&[AttributeId]) -> bool) {
        let global = self.container.global_indexes();
        let global = global.iter().flat_map(|indexes| indexes.iter()).map(|index| index.key());
        let local = schema.indexes.iter().filter(|index| index.unique).map(|index| &*index.attributes);
        for key in local.chain(global).filter(|key| concerned(key)) {
            let columns: Vec<usize> = key.iter().map(|id| id.index()).collect();
            let keys = rows.project(&columns);
            if self.tracked.may_go_back() {
                self.learned(key, &keys);
            } else {
                self.must_not_have_missed(key, &keys);
            }
        }
    }

    /// An insertion or an update was refused.
    #[cold]
    pub fn refused(self, schema: &Schema, error: &StorageError) {
        let StorageError::DuplicateKey { index, key, .. } = error else { return };
        if let Some(index) = schema.indexes.iter().find(|definition| definition.id == *index) {
            self.refused_key(&index.attributes, key);
        }
    }

    /// Because of a unique key. Who goes on all the same knows that somebody has it.
    #[cold]
    pub fn refused_key(self, attributes: &[AttributeId], key: &[(Box<str>, Value)]) {
        let schema = self.container.schema();
        let types: Vec<DataType> = attributes.iter().map(|id| schema.attributes[id.index()].data_type).collect();
        let values: Vec<Value> = key.iter().map(|(_, value)| value.clone()).collect();
        self.learned(attributes, &Batch::from_rows(&types, &[values]));
    }

    /// The transaction knows who has these keys by now, and nothing that it leaves behind says so: as if it had read
    /// them. Whoever changed one since its snapshot is met, or has committed.
    #[cold]
    pub fn learned(self, attributes: &[AttributeId], keys: &Batch) {
        for predicate in predicates_of_keys(attributes, keys) {
            self.read(&predicate);
        }
        self.must_not_have_missed(attributes, keys);
    }

    /// All rows go at once, whoever wrote them. No row is left at which somebody could lose: who wrote one since the
    /// snapshot and committed is one that the transaction has missed.
    #[cold]
    pub fn replaced(self) {
        self.read(&Predicate::all());
        let container = self.container.id();
        let met = self.tracked.write(self.container.accesses(), container, None, self.entries_max());
        self.count_coarsened(met.coarsened);
        let serializable = &self.runtime.transactions.serializable;
        self.count(serializable.add_readers(self.tracked.id, &met.others));
        let writers = serializable.committed_since(self.tracked.id);
        if self.container.accesses().has_writes_of(&writers) {
            self.count(serializable.doom(self.tracked.id));
        }
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

    /// The transaction relies on who has these keys by now. If one came or went since its snapshot, by somebody who
    /// committed, it is doomed.
    #[cold]
    pub fn must_not_have_missed(self, attributes: &[AttributeId], keys: &Batch) {
        let serializable = &self.runtime.transactions.serializable;
        let writers = serializable.committed_since(self.tracked.id);
        if writers.is_empty() {
            return;
        }
        let columns: Vec<usize> = (0..keys.columns.len()).collect();
        let full = |row: &usize| !keys.columns.iter().any(|column| column.is_null(*row));
        let rows = (0..keys.rows).filter(full);
        let set: BTreeSet<Key> = rows.map(|row| key_of_row(keys, row, &columns)).collect();
        if self.container.accesses().moved_a_key(&writers, attributes, &keys.data_types(), &set) {
            self.count(serializable.doom(self.tracked.id));
        }
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
