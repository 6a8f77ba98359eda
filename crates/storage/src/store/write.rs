//! Insert, delete, update by new versions. Updates in place are in `overwrite.rs`.

use super::before_images::Newer;
use super::overwrite::Taken;
use super::row_locks::RowLock;
use super::row_run::RowRun;
use super::transactions::{Locked, Locks};
use super::undo::Appended;
use super::{Store, with_scratch};
use crate::address::RowAddress;
use crate::batch::Batch;
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset};
use crate::mvcc::{Holder, Outcome, Snapshot, Word, WordKind};
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

/// A statement that changes no more rows than this here may do so in a full database: what it replaces goes soon.
const FEW_ROWS: usize = 16;

impl Store {
    /// Inserts rows with the schema's columns. If it fails, the statement must be rolled back, unless somebody
    /// undecided has one of the keys ([`StorageError::undecided`]): then nothing was inserted.
    pub fn insert(&mut self, snapshot: &Snapshot<'_>, rows: &Batch) -> Result<Written, StorageError> {
        rows_check(&self.schema, rows)?;
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        self.insert_versions(snapshot, NewRows::Columns(rows))?;
        self.counters.inserted += rows.rows as u64;
        Ok(Written { rows: rows.rows as u64, first_of_transaction })
    }

    /// Appends rows to the tail with the statement's lock, enters them into all indexes, checks uniqueness. If somebody
    /// undecided has one of the keys, none of the rows was ever there.
    fn insert_versions(&mut self, snapshot: &Snapshot<'_>, rows: NewRows<'_>) -> Result<Appended, StorageError> {
        let mut appended = Appended::default();
        match self.append_versions(snapshot, rows, &mut appended) {
            Ok(()) => Ok(appended),
            Err(error) => {
                if error.undecided().is_some() {
                    self.undo_appended(&appended)?;
                }
                Err(error)
            }
        }
    }

    fn append_versions(
        &mut self,
        snapshot: &Snapshot<'_>,
        rows: NewRows<'_>,
        appended: &mut Appended,
    ) -> Result<(), StorageError> {
        let lock = snapshot.lock();
        self.usage.inserted(rows);
        let mut from = 0;
        while from < rows.len() {
            self.pending.reserve(1)?;
            let tail = match self.tail() {
                Ok(tail) => tail,
                Err(error) => {
                    self.pending.unreserve(1);
                    return Err(error);
                }
            };
            let first = RowAddress::new(tail.number, RowOffset(tail.rows()));
            let until = rows.len().min(from + (tail.rows_max - tail.rows()) as usize);
            if let Err(error) = tail.append(rows, from..until, |_| (lock, Word::NEVER)) {
                self.pending.unreserve(1);
                return Err(error);
            }
            let count = (until - from) as u32;
            tail.locks += count;
            appended.push(first, count);
            self.pending.add(snapshot.transaction, Locks { rows: RowRun::new(first, count), locked: Locked::Begin });
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
        for position in 0..self.index_count() {
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

    /// Deletes rows that a read of the same statement delivered: all, or none if somebody undecided holds one of them.
    pub fn delete(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) -> Result<Written, StorageError> {
        let first_of_transaction = self.pending.enter(snapshot.transaction);
        self.usage.wrote();
        let rows = self.lock_ends(snapshot, addresses, RowLock::Update)?.len() as u64;
        self.counters.deleted += rows;
        Ok(Written { rows, first_of_transaction })
    }

    /// As [`Store::update_rows`].
    pub fn update(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Written, StorageError> {
        let first_of_transaction = !self.has_pending(snapshot.transaction);
        let rows = self.update_rows(snapshot, addresses, attributes, new)?.len() as u64;
        Ok(Written { rows, first_of_transaction })
    }

    /// Gives rows that a read of the same transaction delivered new values for some attributes: each is overwritten, or
    /// a new version is appended and the old one ends. Row `i` of `new` belongs to `addresses[i]`; the positions of the
    /// rows that this statement had not changed before are returned. If somebody undecided holds one of the rows or of
    /// the new keys, nothing was changed.
    pub fn update_rows(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Vec<u32>, StorageError> {
        if new.rows != addresses.len() || new.columns.len() != attributes.len() {
            let reason = format!("{} new rows of {} columns for {}", new.rows, new.columns.len(), addresses.len());
            return Err(StorageError::InvalidRequest { reason });
        }
        for (id, column) in attributes.iter().zip(&new.columns) {
            attribute_check(&self.schema, *id, column, new.rows)?;
        }
        let _may_take_what_is_kept = (new.rows <= FEW_ROWS).then(|| self.memory.change_few_rows());
        self.pending.enter(snapshot.transaction);
        // All old versions are locked before the first new one is inserted, so that keys may be permuted.
        let taken = self.take_for_update(snapshot, addresses, attributes, new)?;
        if !taken.ended.is_empty() {
            self.append_updated(snapshot, addresses, &taken, attributes, new)?;
        } else if !taken.overwritten.is_empty() {
            self.usage.wrote();
        }
        self.counters.updated_in_place += taken.overwritten.len() as u64;
        let changed = taken.into_rows();
        self.counters.updated += changed.len() as u64;
        Ok(changed)
    }

    /// Appends new versions of the rows whose ends were taken. If somebody undecided has one of the new keys, nothing
    /// of the update is left.
    fn append_updated(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        taken: &Taken,
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<(), StorageError> {
        let mut versions = with_scratch(|scratch| std::mem::take(&mut scratch.rows));
        versions.clear(&self.row_format);
        for (row, version) in taken.ended.iter().zip(0..) {
            self.pack_all(addresses[*row as usize], &mut versions);
            for (id, column) in attributes.iter().zip(&new.columns) {
                versions.overwrite(version, id.index(), &column.view(), *row as usize);
            }
        }
        let inserted = self.insert_versions(snapshot, NewRows::Packed(&versions));
        with_scratch(|scratch| scratch.rows = versions);
        match inserted {
            Ok(appended) => {
                let old: Vec<RowAddress> = taken.ended.iter().map(|row| addresses[*row as usize]).collect();
                self.pass_locks_on(snapshot, &old, &appended)
            }
            Err(error) => {
                if error.undecided().is_some() {
                    self.give_back(snapshot, addresses, taken);
                }
                Err(error)
            }
        }
    }

    /// Takes a row's end word; false if this statement has it already.
    pub(super) fn lock_end(
        &mut self,
        snapshot: &Snapshot<'_>,
        address: RowAddress,
        mode: RowLock,
    ) -> Result<bool, StorageError> {
        let may = self.may_write(snapshot, address, mode)?;
        if may {
            self.take_end(snapshot, address, mode)?;
        }
        Ok(may)
    }

    /// Whether a statement may end or overwrite a row; false if it has done so already.
    pub(super) fn may_write(
        &mut self,
        snapshot: &Snapshot<'_>,
        address: RowAddress,
        mode: RowLock,
    ) -> Result<bool, StorageError> {
        self.restore_void(snapshot.outcomes, address);
        let offset = address.offset().0;
        let gone = StorageError::Conflict { with: None };
        let Some(segment) = self.segment(address.segment()) else { return Err(gone) };
        if offset >= segment.rows() || segment.is_vacated(offset) {
            return Err(gone);
        }
        match self.newer_version(snapshot, address) {
            None => {}
            Some(Newer::Own) => return Ok(false),
            Some(Newer::Undecided(holder)) => return Err(StorageError::Conflict { with: Some(holder) }),
            Some(Newer::Committed) => return Err(gone),
        }
        let end = segment.end(offset);
        match end.kind() {
            WordKind::Timestamp(_) if end == Word::NEVER => {}
            WordKind::Timestamp(_) => return Err(gone),
            WordKind::Lock { transaction, statement } => match snapshot.outcomes.outcome(transaction, statement) {
                Outcome::Aborted => {}
                Outcome::Active if transaction == snapshot.transaction => return Ok(false),
                Outcome::Active => {
                    return Err(StorageError::Conflict { with: Some(Holder { transaction, statement }) });
                }
                Outcome::Committed(_) => return Err(gone),
            },
        }
        if !snapshot.sees(segment.begin(offset)) {
            let reason = format!("row {address:?} is not visible to the writer");
            return Err(StorageError::InvalidRequest { reason });
        }
        if !self.row_locks.is_empty()
            && let Some(holder) = self.row_locks.conflict(snapshot, address, mode)
        {
            return Err(StorageError::Conflict { with: Some(holder) });
        }
        Ok(true)
    }

    /// Takes the end word of a row that may be written.
    pub(super) fn take_end(
        &mut self,
        snapshot: &Snapshot<'_>,
        address: RowAddress,
        mode: RowLock,
    ) -> Result<(), StorageError> {
        let offset = address.offset().0;
        self.pending.reserve(1)?;
        let lock = mode.word(snapshot);
        let number = address.segment();
        let Some(segment) = self.segment_mut(number) else { unreachable!("row {address:?} may be written") };
        if let Err(error) = segment.set_end(offset, lock) {
            self.pending.unreserve(1);
            return Err(error);
        }
        segment.locks += 1;
        let (runs, rows, open) = (segment.ending_runs(), segment.rows(), segment.is_open());
        if !open && runs * super::maintain::THAW_SHARE > rows {
            self.candidates.insert(number);
        }
        self.pending.add(snapshot.transaction, Locks::of(address, Locked::End));
        self.note_change(address);
        Ok(())
    }
}
