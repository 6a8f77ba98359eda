//! Accesses of a tracked transaction on their way into registry and graph.

use std::collections::BTreeSet;
use std::sync::Arc;

use eris_storage::{
    AttributeId, Batch, Column, Comparison, Condition, Key, Predicate, Schema, StorageError, Test, TransactionId,
    Value, key_of_row,
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

    /// Rows were inserted. An error if others had one of their keys in between: see [`Self::check_keys`].
    #[cold]
    pub fn inserted(self, schema: &Schema, rows: &Batch) -> Result<(), StorageError> {
        let write = |row| RowWrite { transaction: self.tracked.id, old: None, new: Some(rows.row(row).into()) };
        self.write(rows.rows, |place| write(place));
        self.check_keys(schema, rows, |_| true)
    }

    /// Rows that were these are gone; of `old`, those at `gone`.
    #[cold]
    pub fn deleted(self, old: &Batch, gone: &[u32]) {
        let write =
            |row: u32| RowWrite { transaction: self.tracked.id, old: Some(old.row(row as usize).into()), new: None };
        self.write(gone.len(), |place| write(gone[place]));
    }

    /// Rows that were `old` have other values, those at `changed`. Errors as [`Self::inserted`].
    #[cold]
    pub fn updated(
        self,
        schema: &Schema,
        old: &Batch,
        changed: &[u32],
        attributes: &[AttributeId],
        values: &Batch,
    ) -> Result<(), StorageError> {
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
        self.check_keys(schema, &new, |key| key.iter().any(|id| attributes.contains(id)))
    }

    /// A unique key that nobody had in the snapshot, and nobody has now, may have come and gone in between. Then the
    /// new row comes behind somebody whose writes the snapshot does not see, as with an update of a row that others
    /// updated, and the transaction has lost as it does there.
    fn check_keys(
        self,
        schema: &Schema,
        rows: &Batch,
        concerned: impl Fn(&[AttributeId]) -> bool,
    ) -> Result<(), StorageError> {
        if rows.rows == 0 {
            return Ok(());
        }
        let writers = self.committed_since();
        if writers.is_empty() {
            return Ok(());
        }
        let global = self.container.global_indexes();
        let global = global.iter().flat_map(|indexes| indexes.iter()).map(|index| index.key());
        let local = schema.indexes.iter().filter(|index| index.unique).map(|index| &*index.attributes);
        for key in local.chain(global).filter(|key| concerned(key)) {
            let columns: Vec<usize> = key.iter().map(|id| id.index()).collect();
            if self.moved(&writers, key, &rows.project(&columns)) {
                return Err(StorageError::Conflict { with: None });
            }
        }
        Ok(())
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
        let writers = self.committed_since();
        !writers.is_empty() && self.moved(&writers, attributes, keys)
    }

    fn committed_since(self) -> BTreeSet<TransactionId> {
        self.runtime.transactions.serializable.committed_since(self.tracked.id)
    }

    fn moved(self, writers: &BTreeSet<TransactionId>, attributes: &[AttributeId], keys: &Batch) -> bool {
        let columns: Vec<usize> = (0..keys.columns.len()).collect();
        let full = |row: &usize| !keys.columns.iter().any(|column| column.is_null(*row));
        let rows = (0..keys.rows).filter(full);
        let set: BTreeSet<Key> = rows.map(|row| key_of_row(keys, row, &columns)).collect();
        let moved = self.container.accesses().moved_a_key(writers, attributes, &keys.data_types(), &set);
        moved.unwrap_or_else(|| {
            // Others have written some row or other. So both may have missed the other's row with the key.
            self.count(self.runtime.transactions.serializable.doom(self.tracked.id));
            false
        })
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
