//! Updates in place: the life of a before-image.
//!
//! ```text
//!   update     values -> image ──── begin -> image ──── new values, begin = lock ──── pending: begin
//!   rollback   (nothing here; readers pass over the void begin to the image)
//!   restore    the newest image goes back into the row: by the next writer, or by settling
//!   settle     locks in the row's and the images' begin words become timestamps
//!   free       when the oldest snapshot sees a version, the images before it go
//!   spill      images become rows of their own, as if updates had appended all along
//! ```
//! A row is overwritten if its module says it can be, no index holds one of the attributes, and its segment is an open
//! one that no job is at. Otherwise the update appends a version, as it does when images are too many, or memory is
//! short, or the partition's rows are being copied elsewhere.
//!
//! **Restoring comes before writing.** A writer restores what was rolled back before it looks at a row. So the versions
//! of a row that were rolled back are its newest ones, always, and an image is never below one of them: void statement
//! numbers of a transaction are its last ones, and nobody else writes over an undecided version.
//!
//! **Spilling** is for what needs one address per version: copying rows elsewhere, and entering them into a new index.
//! It moves versions, so no cursor may be saved.

use super::before_images::{Image, OldField, all_of};
use super::row_locks::RowLock;
use super::transactions::{Locked, Locks, statement_of};
use super::{Store, with_scratch};
use crate::address::RowAddress;
use crate::batch::{Batch, Column, FixedValue, PackedRows};
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::mvcc::{Outcome, Outcomes, Snapshot, Timestamp, TransactionId, Word, WordKind};
use crate::segment::{NewRows, Segment};

/// The rows that an update got, by position: those that await a new version, and those that have their new values.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub ended: Vec<u32>,
    pub overwritten: Vec<u32>,
}

impl Taken {
    /// All of them, ascending.
    pub(super) fn into_rows(self) -> Vec<u32> {
        let Self { ended, mut overwritten } = self;
        if overwritten.is_empty() {
            return ended;
        }
        if !ended.is_empty() {
            overwritten.extend(ended);
            overwritten.sort_unstable();
        }
        overwritten
    }
}

impl Store {
    /// Takes rows for an update: overwrites those that can be, takes the end words of the others. If somebody undecided
    /// holds one of them, none is taken.
    pub(super) fn take_for_update(
        &mut self,
        snapshot: &Snapshot<'_>,
        addresses: &[RowAddress],
        attributes: &[AttributeId],
        new: &Batch,
    ) -> Result<Taken, StorageError> {
        let mode = self.update_mode(attributes);
        let mut taken = Taken::default();
        if !self.may_overwrite(attributes) {
            taken.ended = self.lock_ends(snapshot, addresses, mode)?;
            return Ok(taken);
        }
        for (row, address) in addresses.iter().enumerate() {
            let written = self.may_write(snapshot, *address, mode).and_then(|may| {
                if !may {
                    return Ok(());
                }
                if self.overwrite(snapshot, *address, attributes, new, row)? {
                    taken.overwritten.push(row as u32);
                } else {
                    self.take_end(snapshot, *address, mode)?;
                    taken.ended.push(row as u32);
                }
                Ok(())
            });
            if let Err(error) = written {
                if error.undecided().is_some() {
                    self.give_back(snapshot, addresses, &taken);
                }
                return Err(error);
            }
        }
        Ok(taken)
    }

    /// Takes back what `take_for_update` did.
    pub(super) fn give_back(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress], taken: &Taken) {
        for row in &taken.ended {
            self.unlock_end(snapshot, addresses[*row as usize]);
        }
        for row in taken.overwritten.iter().rev() {
            // The transaction's list of locks goes on naming the word; settling passes it over.
            self.restore(addresses[*row as usize]);
        }
    }

    /// Whether updates of these attributes may overwrite at all, now.
    fn may_overwrite(&self, attributes: &[AttributeId]) -> bool {
        let indexes = || self.indexes.iter().flat_map(|index| index.definition.attributes.iter());
        // What is copied elsewhere does not change here; and a new index wants its entries to be those of all versions.
        self.updates_in_place
            && self.split.is_none()
            && self.building.is_empty()
            && !indexes().any(|id| attributes.contains(id))
    }

    /// Whether rows of a segment take overwrites: it is open, no job copies its rows, none waits for its images to go.
    fn takes_overwrites(&self, number: SegmentNumber, attributes: &[AttributeId]) -> bool {
        let Some(segment) = self.segment(number) else { return false };
        segment.has_own_path()
            && !segment.overwrites_paused
            && self.job.as_ref().is_none_or(|job| job.number() != number)
            && attributes.iter().all(|id| segment.path().updates_in_place(*id))
    }

    /// Overwrites a row that the writer may write; false if a new version must be appended.
    fn overwrite(
        &mut self,
        snapshot: &Snapshot<'_>,
        address: RowAddress,
        attributes: &[AttributeId],
        new: &Batch,
        row: usize,
    ) -> Result<bool, StorageError> {
        let number = address.segment();
        if !self.takes_overwrites(number, attributes) || !self.before_images.reserve(attributes.len()) {
            return Ok(false);
        }
        if let Err(error) = self.pending.reserve(1) {
            self.before_images.unreserve(attributes.len());
            return Err(error);
        }
        let offset = address.offset().0;
        let Some(segment) = self.segment_mut(number) else { unreachable!("it takes overwrites") };
        let exchange = |(id, column): (&AttributeId, &Column)| {
            let value = FixedValue::of(column, row);
            OldField { attribute: *id, value: segment.exchange(*id, offset, value) }
        };
        let fields = attributes.iter().zip(&new.columns).map(exchange).collect();
        let begin = segment.begin(offset);
        segment.set_begin(offset, snapshot.lock());
        segment.locks += 1;
        segment.overwritten = true;
        self.before_images.push(address, Image { begin, fields });
        self.pending.add(snapshot.transaction, Locks::of(address, Locked::Begin));
        Ok(true)
    }

    /// Makes a row the version before the newest one again.
    fn restore(&mut self, address: RowAddress) {
        let Some(Image { begin, fields }) = self.before_images.pop(address) else {
            unreachable!("row {address:?} was overwritten");
        };
        let offset = address.offset().0;
        let Some(segment) = self.segment_mut(address.segment()) else {
            unreachable!("a row with before-images stays in its segment");
        };
        for field in fields.iter().rev() {
            segment.exchange(field.attribute, offset, field.value);
        }
        segment.set_begin(offset, begin);
        if let WordKind::Timestamp(timestamp) = begin.kind() {
            // It may have been settled while it was an image's.
            segment.newest_begin = segment.newest_begin.max(timestamp.0);
        }
        self.counters.images_restored += 1;
    }

    /// Restores a row whose newest versions were rolled back.
    #[inline]
    pub(super) fn restore_void(&mut self, outcomes: &dyn Outcomes, address: RowAddress) {
        if !self.before_images.is_empty() {
            self.restore_while(address, |word| match word.kind() {
                WordKind::Timestamp(_) => false,
                WordKind::Lock { transaction, statement } => {
                    outcomes.outcome(transaction, statement) == Outcome::Aborted
                }
            });
        }
    }

    fn restore_while(&mut self, address: RowAddress, is_void: impl Fn(Word) -> bool) {
        while self.before_images.has(address)
            && self.segment(address.segment()).is_some_and(|segment| is_void(segment.begin(address.offset().0)))
        {
            self.restore(address);
        }
    }

    /// Settles the versions of a row that a decided transaction wrote in place, except for the begin word of the newest
    /// one that is left.
    pub(super) fn settle_images(&mut self, transaction: TransactionId, address: RowAddress, outcomes: &dyn Outcomes) {
        if !self.before_images.has(address) {
            return;
        }
        let outcome = |word: Word| statement_of(word, transaction).map(|it| outcomes.outcome(transaction, it));
        self.restore_while(address, |word| outcome(word) == Some(Outcome::Aborted));
        let Some(newest) = self.segment(address.segment()).map(|segment| segment.begin(address.offset().0)) else {
            return;
        };
        let mut committed = match outcome(newest) {
            Some(Outcome::Committed(timestamp)) => Some(timestamp),
            Some(Outcome::Active | Outcome::Aborted) | None => None,
        };
        for begin in self.before_images.begins_mut(address) {
            match outcome(*begin) {
                None => {}
                Some(Outcome::Committed(timestamp)) => {
                    *begin = Word::timestamp(timestamp);
                    committed = Some(timestamp);
                }
                Some(Outcome::Active | Outcome::Aborted) => {
                    unreachable!("a version of {address:?} that was rolled back lies below one that was not")
                }
            }
        }
        if let Some(timestamp) = committed.filter(|_| self.before_images.has(address)) {
            self.before_images.superseded.add(timestamp, address);
        }
    }

    /// Whether before-images that are to become rows of their own must wait, because cursors are saved.
    pub fn images_await_cursors(&self) -> bool {
        !self.before_images.is_empty() && self.has_saved_cursors()
    }

    /// Makes all before-images rows of their own; from there it is as if updates had appended. No cursor may be saved.
    pub(super) fn spill_images(&mut self) -> Result<(), StorageError> {
        assert!(!self.images_await_cursors(), "no cursor is saved where versions move");
        while let Some(address) = self.before_images.first() {
            self.spill_oldest(address)?;
        }
        Ok(())
    }

    /// The oldest image of a row becomes a row that ends where the next version begins.
    fn spill_oldest(&mut self, address: RowAddress) -> Result<(), StorageError> {
        let mut rows = with_scratch(|scratch| std::mem::take(&mut scratch.rows));
        rows.clear(&self.row_format);
        self.pack_all(address, &mut rows);
        let images = self.before_images.of(address);
        all_of(images).write_over(&self.all_attributes, &mut rows);
        let newest = self.segment(address.segment()).map(|segment| segment.begin(address.offset().0));
        let next = images.get(1).map(|image| image.begin).or(newest);
        let (Some(oldest), Some(next)) = (images.first(), next) else {
            unreachable!("row {address:?} has before-images");
        };
        let end = if next.is_lock() { next.keeping_key() } else { next };
        let spilled = self.append_spilled(&rows, oldest.begin, end);
        with_scratch(|scratch| scratch.rows = rows);
        self.row_locks.copy(address, spilled?);
        self.before_images.drop_oldest(address, 1);
        self.counters.images_spilled += 1;
        Ok(())
    }

    /// Appends one row with its words, of which locks are noted for their transactions.
    fn append_spilled(&mut self, rows: &PackedRows, begin: Word, end: Word) -> Result<RowAddress, StorageError> {
        self.pending.reserve(2)?;
        let tail = match self.tail() {
            Ok(tail) => tail,
            Err(error) => {
                self.pending.unreserve(2);
                return Err(error);
            }
        };
        let at = RowAddress::new(tail.number, RowOffset(tail.rows()));
        let mut appended = tail.append(NewRows::Packed(rows), 0..1, |_| (begin, end));
        if appended.is_ok() {
            self.close_tail_if_full();
            appended = self.enter_into_indexes(NewRows::Packed(rows), 0..1, at, None);
            if appended.is_err() {
                self.vacate(&[at]);
            }
        }
        if let Err(error) = appended {
            self.pending.unreserve(2);
            return Err(error);
        }
        for (word, locked) in [(begin, Locked::Begin), (end, Locked::End)] {
            if let Some(transaction) = word.transaction() {
                self.pending.add(transaction, Locks::of(at, locked));
                if let Some(segment) = self.segment_mut(at.segment()) {
                    segment.locks += 1;
                }
            } else {
                self.pending.unreserve(1);
            }
        }
        self.note_words(at, begin, end);
        Ok(at)
    }

    /// How often rows were overwritten so far, if that keeps a segment open ([`Store::let_cool`]).
    pub fn overwrites_mark(&self) -> Option<u64> {
        let kept_open =
            |segment: &&Segment| segment.overwritten && segment.is_open() && self.tail != Some(segment.number);
        self.live_segments().find(kept_open).map(|_| self.counters.updated_in_place)
    }

    /// No row has been overwritten for a while: segments that were kept open for that may be sealed. A store that goes
    /// on being written finds out by itself which of its segments are left alone.
    pub fn let_cool(&mut self) {
        let tail = self.tail;
        let hot = self.segments.iter_mut().filter_map(Option::as_deref_mut).filter(|segment| segment.overwritten);
        for segment in hot.filter(|segment| tail != Some(segment.number)) {
            segment.overwritten = false;
            self.candidates.insert(segment.number);
        }
    }
}

/// Whether an open segment is worth sealing: it was not overwritten, or not for as many commits as it has rows. A row
/// of a sealed segment cannot be overwritten, so sealing one that still is would bring back what is to be saved.
pub(super) fn is_cool(segment: &Segment, oldest: Timestamp) -> bool {
    !segment.overwritten || oldest.0.saturating_sub(segment.newest_begin) >= u64::from(segment.rows())
}

/// The lock that an update in place holds on its row.
pub(super) const OVERWRITE_LOCK: RowLock = RowLock::NoKeyUpdate;
