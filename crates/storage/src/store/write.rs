//! Insert, delete, update.

use super::Store;
use super::transactions::{Locked, Locks};
use crate::address::RowAddress;
use crate::batch::Batch;
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset};
use crate::mvcc::{Outcome, Snapshot, Word, WordKind};
use crate::segment::{NewRows, attribute_check, rows_check};
use std::ops::Range;

/// What a write did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub rows: u64,
    /// Whether the transaction had nothing pending here before: this store will report it as settled once.
    pub first_of_transaction: bool,
}

/// How far a resumable operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// Call again.
    More,
    Done(T),
}

impl Store {
    /// Inserts rows with the schema's columns. If it fails, the transaction must abort.
    pub fn insert(&mut self, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<Written, StorageError> {
        rows_check(&self.schema, rows)?;
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        let result = self.insert_versions(snapshot, NewRows::Columns(rows));
        self.counters.inserted += rows.rows as u64;
        result.map(|()| Written { rows: rows.rows as u64, first_of_transaction })
    }

    /// Appends rows to the tail with the statement's lock, enters them into all indexes, checks uniqueness.
    fn insert_versions(&mut self, snapshot: &Snapshot<'_>, rows: NewRows<'_>) -> Result<(), StorageError> {
        let lock = snapshot.lock();
        self.usage.inserted(rows);
        let mut from = 0;
        while from < rows.len() {
            self.pending.reserve(1)?;
            let tail = self.tail();
            let first = RowAddress::new(tail.number, RowOffset(tail.rows()));
            let until = rows.len().min(from + (tail.rows_max - tail.rows()) as usize);
            if let Err(error) = tail.append(rows, from..until, |_| (lock, Word::NEVER)) {
                self.pending.unreserve(1);
                return Err(error);
            }
            let count = (until - from) as u32;
            tail.locks += count;
            self.pending.add(snapshot.transaction, Locks { first, rows: count, locked: Locked::Begin });
            self.close_tail_if_full();
            self.enter_into_indexes(rows, from..until, first, Some(snapshot))?;
            from = until;
        }
        Ok(())
    }

    /// Enters rows `range` of new rows, which lie at `first` and behind it, into all indexes.
    pub(super) fn enter_into_indexes(
        &mut self,
        rows: NewRows<'_>,
        range: Range<usize>,
        first: RowAddress,
        check: Option<&Snapshot<'_>>,
    ) -> Result<(), StorageError> {
        for position in 0..self.indexes.len() + self.building.len() {
            let index = self.index_at_mut(position);
            let unique = index.definition.unique;
            let columns = rows.columns(&index.definition.attributes);
            for row in range.clone() {
                let offset = first.offset().0 + (row - range.start) as u32;
                let address = RowAddress::new(first.segment(), RowOffset(offset));
                let inserted = self.index_at_mut(position).path.insert(&columns, row, address)?;
                if unique
                    && inserted.key_shared
                    && let Some(snapshot) = check
                {
                    self.check_unique(snapshot, position, &columns, row, address)?;
                }
            }
        }
        Ok(())
    }

    /// Deletes rows that a read of the same transaction delivered.
    pub fn delete(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) -> Result<Written, StorageError> {
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        self.usage.wrote();
        let mut rows = 0;
        for address in addresses {
            rows += u64::from(self.lock_end(snapshot, *address)?);
        }
        self.counters.deleted += rows;
        Ok(Written { rows, first_of_transaction })
    }

    /// Gives rows that a read of the same transaction delivered new values for some attributes: a new version in the
    /// tail each, the old one ends. Row `i` of `new` belongs to `addresses[i]`.
    pub fn update(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Written, StorageError> {
        if new.rows != addresses.len() || new.columns.len() != attributes.len() {
            let reason = format!("{} new rows of {} columns for {}", new.rows, new.columns.len(), addresses.len());
            return Err(StorageError::InvalidRequest { reason });
        }
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        // All old versions are locked before the first new one is inserted, so that keys may be permuted.
        let mut changed = Vec::with_capacity(addresses.len());
        for (row, address) in addresses.iter().enumerate() {
            if self.lock_end(snapshot, *address)? {
                changed.push(row as u32);
            }
        }
        for (id, column) in attributes.iter().zip(&new.columns) {
            attribute_check(&self.schema, *id, column, new.rows)?;
        }
        let mut versions = std::mem::take(&mut self.scratch.rows);
        versions.clear(&self.row_format);
        for (row, version) in changed.iter().zip(0..) {
            self.pack_all(addresses[*row as usize], &mut versions);
            for (id, column) in attributes.iter().zip(&new.columns) {
                versions.write(version, id.index(), &column.view(), *row as usize);
            }
        }
        let inserted = self.insert_versions(snapshot, NewRows::Packed(&versions));
        self.scratch.rows = versions;
        inserted?;
        self.counters.updated += changed.len() as u64;
        Ok(Written { rows: changed.len() as u64, first_of_transaction })
    }

    /// Takes a row's end word; false if this statement has it already.
    fn lock_end(&mut self, snapshot: &Snapshot<'_>, address: RowAddress) -> Result<bool, StorageError> {
        let offset = address.offset().0;
        let gone = StorageError::Conflict { with: None };
        let Some(segment) = self.segment(address.segment()) else { return Err(gone) };
        if offset >= segment.rows() || segment.is_vacated(offset) {
            return Err(gone);
        }
        let end = segment.end(offset);
        match end.kind() {
            WordKind::Timestamp(_) if end == Word::NEVER => {}
            WordKind::Timestamp(_) => return Err(gone),
            WordKind::Lock { transaction, .. } if transaction == snapshot.transaction => return Ok(false),
            WordKind::Lock { transaction, .. } => match snapshot.outcomes.outcome(transaction) {
                Outcome::Aborted => {}
                Outcome::Active => return Err(StorageError::Conflict { with: Some(transaction) }),
                Outcome::Committed(_) => return Err(gone),
            },
        }
        if !snapshot.sees(segment.begin(offset)) {
            let reason = format!("row {address:?} is not visible to the writer");
            return Err(StorageError::InvalidRequest { reason });
        }
        self.pending.reserve(1)?;
        let lock = snapshot.lock();
        let number = address.segment();
        let Some(segment) = self.segment_mut(number) else { return Err(gone) };
        if let Err(error) = segment.set_end(offset, lock) {
            self.pending.unreserve(1);
            return Err(error);
        }
        segment.locks += 1;
        let (ending, rows, open) = (segment.ending(), segment.rows(), segment.is_open());
        if !open && ending * super::maintain::THAW_SHARE > rows {
            self.candidates.insert(number);
        }
        self.pending.add(snapshot.transaction, Locks { first: address, rows: 1, locked: Locked::End });
        self.note_change(address);
        Ok(true)
    }
}
