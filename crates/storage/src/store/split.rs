//! Handing rows over to another store: those on the far side of a boundary (a split) or all of them (a move, a merge)
//! are copied while this store goes on; a switch at the end makes them gone here.
//!
//! ```text
//!   begin_split, begin_handover      what leaves
//!   copy_step ... copy_step          quanta of copies; later changes of copied words are repeated in the target
//!   prepare_switch                   all that may fail
//!   switch                           copies count, originals are gone; cannot fail
//! ```
//!
//! The target of a split or a move is a store that nobody else knows. A merge copies into one that is in use: there the
//! copies lie among other rows under words that nobody sees, and get their own at the switch. Row locks go with their
//! rows. So do layouts set by hand; a target in use keeps its own, if it has some.

use super::Store;
use super::row_run::RowRun;
use super::transactions::{Locked, Locks};
use crate::address::RowAddress;
use crate::batch::{BATCH_ROWS, Batch};
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::key::{Key, KeyEncoder, key_of_row};
use crate::modules::IndexScanState;
use crate::mvcc::{Timestamp, TransactionId, Word, WordKind};
use crate::segment::{NewRows, link_window};
use crate::value::Value;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row's place in the container's partitioning: from a batch of the boundary's attributes.
pub type PositionOf = Arc<dyn Fn(&Batch, usize) -> Key + Send + Sync>;

/// Rows whose position is at or above `at` leave.
#[derive(Clone)]
pub struct SplitBoundary {
    /// The attributes that `position` wants, in this order.
    pub attributes: Box<[AttributeId]>,
    pub position: PositionOf,
    pub at: Key,
}

/// How far a split is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitStep {
    /// Call again; `blocked_by_cursors`: everything is copied, only saved cursors (or an unfinished attach) stand in
    /// the way of the switch.
    More { blocked_by_cursors: bool },
    /// From now on rows at or above the boundary are in the target, and there only.
    Done(SplitMoved),
}

/// What a split moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitMoved {
    pub rows: u64,
    /// Undecided transactions that now have lock words in the target: it will report them as settled, too.
    pub transactions_now_in_target: Vec<TransactionId>,
}

/// Which rows of a segment moved where.
pub(super) struct Moved {
    /// Target address by offset; `NOT_MOVED`: it stays.
    targets: Vec<u64>,
    memory: Reservation,
}

const NOT_MOVED: u64 = u64::MAX;

/// The words of a copy that nobody may see yet.
const HIDDEN: (Word, Word) = (Word::NEVER, Word::ALWAYS);

impl Moved {
    fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { targets: Vec::new(), memory: memory.reserve("splits") }
    }

    /// Reserves for `rows` rows.
    fn reserve(&self, rows: u32) -> Result<(), StorageError> {
        Ok(self.memory.resize(u64::from(rows) * size_of::<u64>() as u64)?)
    }

    pub(super) fn has(&self, offset: u32) -> bool {
        self.target(offset).is_some()
    }

    pub(super) fn target(&self, offset: u32) -> Option<RowAddress> {
        let bits = self.targets.get(offset as usize).copied().filter(|bits| *bits != NOT_MOVED)?;
        Some(RowAddress::from_bits(bits))
    }
}

/// Rows that are gone but have index entries still.
pub(super) struct Departed {
    pub number: SegmentNumber,
    pub next: u32,
    /// Which rows; none: all.
    pub moved: Option<Moved>,
}

/// A handover under way.
pub(super) struct Split {
    /// None: all rows leave.
    boundary: Option<SplitBoundary>,
    /// The target is in use: copies are hidden until the switch.
    hidden: bool,
    /// Rows looked at, by segment. The tail need not be the last one, and grows meanwhile.
    copied: BTreeMap<SegmentNumber, u32>,
    pub(super) moved: BTreeMap<SegmentNumber, Moved>,
    rows: u64,
    /// Copied rows whose words changed since.
    changed: Vec<RowAddress>,
    /// The locks that the target gets at the switch; it has reserved memory for them.
    prepared: Vec<(TransactionId, Locks)>,
}

/// Keys sampled for a boundary.
const SAMPLE_KEYS: usize = 255;

/// Fewer sampled keys say nothing about their order.
const RISING_KEYS_MIN: usize = 8;

/// Keys rise if at most one in this many is below its predecessor.
const RISING_SHARE: usize = 32;

impl Store {
    /// A key of these attributes that cuts the rows into about equal halves: rows at or above it would leave. None if
    /// all rows looked at have the same key.
    pub fn split_key(&self, attributes: &[AttributeId]) -> Option<Key> {
        let mut keys = self.sample_keys(attributes);
        keys.sort_unstable();
        let middle = keys.get(keys.len() / 2)?.clone();
        if keys.first() < Some(&middle) {
            return Some(middle);
        }
        // The lower half is one key: cut behind it.
        keys.into_iter().find(|key| *key > middle)
    }

    /// Whether rows came with rising keys of these attributes, so that the next ones will probably lie above all.
    pub fn has_rising_keys(&self, attributes: &[AttributeId]) -> bool {
        let keys = self.sample_keys(attributes);
        let falls = keys.windows(2).filter(|pair| pair[1] < pair[0]).count();
        keys.len() >= RISING_KEYS_MIN && falls * RISING_SHARE <= keys.len()
    }

    /// Keys of live rows spread over the partition, in the order in which the rows lie.
    fn sample_keys(&self, attributes: &[AttributeId]) -> Vec<Key> {
        let mut rows_looked_at = Vec::new();
        let rows: u64 = self.live_segments().map(|segment| u64::from(segment.rows())).sum();
        let step = (rows / SAMPLE_KEYS as u64).max(1) as u32;
        let mut skip = 0;
        for segment in self.live_segments() {
            let mut offset = skip;
            while offset < segment.rows() {
                if segment.end(offset) == Word::NEVER && segment.begin(offset) != Word::NEVER {
                    rows_looked_at.push(RowAddress::new(segment.number, RowOffset(offset)));
                }
                offset += step;
            }
            skip = offset - segment.rows();
        }
        let columns = self.link_attributes(attributes, &rows_looked_at);
        let batch = Batch { rows: rows_looked_at.len(), columns: columns.into() };
        let positions: Vec<usize> = (0..attributes.len()).collect();
        (0..batch.rows).map(|row| key_of_row(&batch, row, &positions)).collect()
    }

    /// The highest key of these attributes that an index knows, of whatever version; none if there is no entry, or no
    /// ordered index that starts with these attributes.
    pub fn highest_key(&self, attributes: &[AttributeId]) -> Option<Key> {
        let index = self.indexes.iter().find(|index| {
            index.definition.kind.has_key_order() && index.definition.attributes.starts_with(attributes)
        })?;
        let mut found = Vec::new();
        IndexScanState::new(Key::lowest(), None, true).advance(&*index.path, 1, &mut found);
        found.truncate(1);
        let columns = self.link_attributes(attributes, &found);
        let batch = Batch { rows: found.len(), columns: columns.into() };
        let positions: Vec<usize> = (0..attributes.len()).collect();
        (batch.rows > 0).then(|| key_of_row(&batch, 0, &positions))
    }

    /// Whether an index that starts with these attributes has an entry, of whatever version, at or above these values;
    /// none if there is no such index. A hash index may say yes although none has.
    pub fn has_entries_from(&self, attributes: &[AttributeId], values: &[Value]) -> Option<bool> {
        let index = self.indexes.iter().find(|index| index.definition.attributes.starts_with(attributes))?;
        let mut encoder = KeyEncoder::new();
        for (value, part) in values.iter().zip(index.path.parts()) {
            encoder.push_part(value, *part);
        }
        Some(index.path.may_reach(&encoder.finish()))
    }

    /// Begins to split. Cursors may be opened and rows written while it goes on; only the switch waits for cursors.
    pub fn begin_split(&mut self, boundary: SplitBoundary) -> Result<(), StorageError> {
        self.begin(Some(boundary), false)
    }

    /// Begins to give all rows away: to a store that nobody else uses yet, or to one that is in use and has begun to
    /// absorb ([`Store::begin_absorbing`]).
    pub fn begin_handover(&mut self, target_in_use: bool) -> Result<(), StorageError> {
        self.begin(None, target_in_use)
    }

    fn begin(&mut self, boundary: Option<SplitBoundary>, hidden: bool) -> Result<(), StorageError> {
        if self.has_saved_cursors() {
            return Err(StorageError::Busy { reason: "cursors are saved" });
        }
        if self.split.is_some() || self.absorbing {
            return Err(StorageError::Busy { reason: "the partition is being split or merged already" });
        }
        if !self.building.is_empty() {
            return Err(StorageError::Busy { reason: "an index is being created" });
        }
        if !self.departed.is_empty() {
            return Err(StorageError::Busy { reason: "an earlier split is being cleaned up" });
        }
        self.put_job_back();
        // A copy has the words of its row and no images; rows are not overwritten until the end of it.
        self.spill_images()?;
        self.split = Some(Box::new(Split {
            boundary,
            hidden,
            copied: BTreeMap::new(),
            moved: BTreeMap::new(),
            rows: 0,
            changed: Vec::new(),
            prepared: Vec::new(),
        }));
        Ok(())
    }

    /// A job half done would go on with rows that have left, or come.
    fn put_job_back(&mut self) {
        if let Some(job) = self.job.take() {
            self.candidates.insert(job.number());
        }
    }

    /// Prepares to take all rows of another store; until the end of it no segment is sealed, thawed or evacuated.
    pub fn begin_absorbing(&mut self) -> Result<(), StorageError> {
        if self.split.is_some() || self.absorbing {
            return Err(StorageError::Busy { reason: "the partition is being split or merged already" });
        }
        if !self.building.is_empty() {
            return Err(StorageError::Busy { reason: "an index is being created" });
        }
        self.put_job_back();
        self.absorbing = true;
        Ok(())
    }

    /// After the switch, or after the handover was abandoned.
    pub fn end_absorbing(&mut self) {
        self.absorbing = false;
    }

    /// Whether rows are on their way from here or to here.
    pub fn is_splitting(&self) -> bool {
        self.split.is_some() || self.absorbing
    }

    /// Gives up a split or a handover to a store that nobody else uses; the target must be dropped.
    pub fn abandon_split(&mut self) {
        self.split = None;
    }

    /// Gives up a handover to a store in use: what was copied is void there.
    pub fn abandon_handover(&mut self, target: &mut Self) {
        let Some(split) = self.split.take() else { return };
        target.pending.unreserve(split.prepared.len());
        let copies = split.moved.values().flat_map(|moved| moved.targets.iter().filter(|bits| **bits != NOT_MOVED));
        for bits in copies {
            target.dying.add(Timestamp(0), RowAddress::from_bits(*bits));
        }
    }

    /// Copies up to `rows_budget` rows to `target`, a store of the same schema; when all is copied, switches.
    pub fn split_step(&mut self, target: &mut Self, rows_budget: usize) -> Result<SplitStep, StorageError> {
        let complete = self.copy_step(target, rows_budget)?;
        if !complete || !self.may_switch() {
            return Ok(SplitStep::More { blocked_by_cursors: complete });
        }
        self.prepare_switch(target)?;
        Ok(SplitStep::Done(self.switch(target)))
    }

    /// Copies up to `rows_budget` rows; true when all that there is now is copied.
    pub fn copy_step(&mut self, target: &mut Self, rows_budget: usize) -> Result<bool, StorageError> {
        let mut split = self.take_split()?;
        if !split.hidden {
            target.inherit_layouts(self);
        }
        let copied = self.copy_rows(&mut split, target, rows_budget);
        let result = match copied {
            Ok(complete) => self.repeat_changes(&mut split, target).map(|()| complete),
            Err(error) => Err(error),
        };
        self.split = Some(split);
        result
    }

    /// Whether nothing but copying stands in the way of the switch: no saved cursor, no unfinished attach (it checks
    /// uniqueness as it goes: its rows stay until all are checked).
    pub fn may_switch(&self) -> bool {
        !self.has_saved_cursors() && self.attaching.is_empty()
    }

    /// Rows copied so far by the handover under way.
    pub fn rows_copied(&self) -> u64 {
        self.split.as_ref().map_or(0, |split| split.rows)
    }

    /// Notes the locks that move along and reserves memory for them in the target. Everything must be copied.
    pub fn prepare_switch(&mut self, target: &mut Self) -> Result<(), StorageError> {
        let mut split = self.take_split()?;
        assert!(split.prepared.is_empty(), "a switch is prepared once");
        let prepared = self.locks_of_copies(&split);
        let reserved = target.pending.reserve(prepared.len());
        if reserved.is_ok() {
            split.prepared = prepared;
        }
        self.split = Some(split);
        reserved
    }

    fn take_split(&mut self) -> Result<Box<Split>, StorageError> {
        self.split.take().ok_or_else(|| StorageError::InvalidRequest { reason: "no split was begun".to_owned() })
    }

    fn copy_rows(&self, split: &mut Split, target: &mut Self, rows_budget: usize) -> Result<bool, StorageError> {
        let mut budget = rows_budget as u32;
        for number in (0..self.segments.len() as u32).map(SegmentNumber) {
            let rows = self.segment(number).map_or(0, crate::segment::Segment::rows);
            let mut from = split.copied.get(&number).copied().unwrap_or(0);
            while from < rows {
                if budget == 0 {
                    return Ok(false);
                }
                let until = rows.min(from + budget.min(BATCH_ROWS as u32));
                budget -= until - from;
                self.copy_window(split, target, number, from..until)?;
                split.copied.insert(number, until);
                from = until;
            }
        }
        Ok(true)
    }

    fn copy_window(
        &self,
        split: &mut Split,
        target: &mut Self,
        number: SegmentNumber,
        window: std::ops::Range<u32>,
    ) -> Result<(), StorageError> {
        let Some(segment) = self.segment(number) else { return Ok(()) };
        let batch = link_window(&self.schema, segment.path(), window.clone());
        let dead = |offset| {
            // Planted: whoever ended before the copy stays behind, though an older snapshot may still see it.
            let ended = cfg!(feature = "bug_move_leaves_ended")
                && segment.end(offset) != Word::NEVER
                && !segment.end(offset).is_lock();
            segment.is_departed(offset) || segment.begin(offset) == Word::NEVER || ended
        };
        let mut leaving: Vec<u32> = (0..batch.rows as u32).filter(|row| !dead(window.start + row)).collect();
        if let Some(SplitBoundary { attributes, position, at }) = &split.boundary {
            let columns: Vec<usize> = attributes.iter().map(|id| id.index()).collect();
            let keys = batch.project(&columns);
            leaving.retain(|row| position(&keys, *row as usize) >= *at);
        }
        if leaving.is_empty() {
            return Ok(());
        }
        let words = |row: &u32| {
            if split.hidden { HIDDEN } else { (segment.begin(window.start + row), segment.end(window.start + row)) }
        };
        let words: Vec<(Word, Word)> = leaving.iter().map(words).collect();
        let moved = split.moved.entry(number).or_insert_with(|| Moved::new(&self.memory));
        moved.reserve(window.end)?;
        let addresses = target.take_rows(&batch.take(&leaving), &words)?;
        moved.targets.resize(window.end as usize, NOT_MOVED);
        for (row, address) in leaving.iter().zip(&addresses) {
            moved.targets[(window.start + row) as usize] = address.to_bits();
        }
        split.rows += leaving.len() as u64;
        Ok(())
    }

    /// Takes rows with their words from another store, without registering locks.
    pub(super) fn take_rows(&mut self, rows: &Batch, words: &[(Word, Word)]) -> Result<Vec<RowAddress>, StorageError> {
        self.usage.received(rows);
        let mut addresses = Vec::with_capacity(rows.rows);
        while addresses.len() < rows.rows {
            let from = addresses.len();
            let tail = match self.tail() {
                Ok(tail) => tail,
                Err(error) => {
                    self.vacate(&addresses);
                    return Err(error);
                }
            };
            let first = RowAddress::new(tail.number, RowOffset(tail.rows()));
            let until = rows.rows.min(from + (tail.rows_max - tail.rows()) as usize);
            if let Err(error) = tail.append(NewRows::Columns(rows), from..until, |row| words[row]) {
                self.vacate(&addresses);
                return Err(error);
            }
            let offsets = first.offset().0..first.offset().0 + (until - from) as u32;
            addresses.extend(offsets.map(|offset| RowAddress::new(first.segment(), RowOffset(offset))));
            self.close_tail_if_full();
            if let Err(error) = self.enter_into_indexes(NewRows::Columns(rows), from..until, first, None) {
                // The store may be in use: nothing of them may stay.
                self.vacate(&addresses);
                return Err(error);
            }
        }
        for (address, (begin, end)) in addresses.iter().zip(words).filter(|(_, words)| **words != HIDDEN) {
            self.note_words(*address, *begin, *end);
        }
        Ok(addresses)
    }

    /// Keeps what depends on a row's words: when its segment is cold, when it can be vacated.
    pub(super) fn note_words(&mut self, address: RowAddress, begin: Word, end: Word) {
        if let (WordKind::Timestamp(timestamp), Some(segment)) = (begin.kind(), self.segment_mut(address.segment()))
            && begin != Word::NEVER
        {
            segment.newest_begin = segment.newest_begin.max(timestamp.0);
        }
        if let WordKind::Timestamp(timestamp) = end.kind()
            && end != Word::NEVER
        {
            self.dying.add(timestamp, address);
        }
    }

    /// Notes that a row's words changed.
    pub(super) fn note_change(&mut self, address: RowAddress) {
        if let Some(split) = &mut self.split {
            split.changed.push(address);
        }
    }

    /// Notes that the begin of a whole segment changed.
    pub(super) fn note_segment_change(&mut self, number: SegmentNumber) {
        if let Some(split) = &mut self.split {
            let rows = split.moved.get(&number).map_or(0, |moved| moved.targets.len() as u32);
            split.changed.extend((0..rows).map(|offset| RowAddress::new(number, RowOffset(offset))));
        }
    }

    /// Repeats changes of copied rows' words in the target.
    fn repeat_changes(&self, split: &mut Split, target: &mut Self) -> Result<(), StorageError> {
        let changed = std::mem::take(&mut split.changed);
        if split.hidden {
            // Hidden copies get their words at the switch.
            return Ok(());
        }
        for address in changed {
            let Some(at) = split.moved.get(&address.segment()).and_then(|moved| moved.target(address.offset().0))
            else {
                continue;
            };
            target.set_words(at, self.words_of(address))?;
        }
        Ok(())
    }

    /// A row's words; those of a row that is gone say so.
    fn words_of(&self, address: RowAddress) -> (Word, Word) {
        let offset = address.offset().0;
        match self.segment(address.segment()) {
            Some(segment) if !segment.is_vacated(offset) && segment.begin(offset) != Word::NEVER => {
                (segment.begin(offset), segment.end(offset))
            }
            Some(_) | None => (Word::NEVER, Word::ALWAYS),
        }
    }

    /// Gives the copy of a row, in an open segment, the words of the original.
    fn set_words(&mut self, at: RowAddress, (begin, end): (Word, Word)) -> Result<(), StorageError> {
        let offset = at.offset().0;
        let Some(copy) = self.segment_mut(at.segment()) else { return Ok(()) };
        if copy.end(offset) == end && copy.begin(offset) == begin {
            return Ok(());
        }
        // An end is noted once, though begin and end may be settled at different times.
        let new_end = if copy.end(offset) == end { Word::NEVER } else { end };
        copy.set_begin(offset, begin);
        copy.set_end(offset, end)?;
        self.note_words(at, begin, new_end);
        Ok(())
    }

    /// From now on the rows are in the target, and there only. Everything must be copied, prepared and without cursors.
    pub fn switch(&mut self, target: &mut Self) -> SplitMoved {
        let Some(mut split) = self.split.take() else { unreachable!("a switch was prepared") };
        assert!(self.may_switch(), "nothing holds the rows of a store that switches");
        if split.hidden {
            self.reveal(&split, target);
            if target.layouts().is_none() {
                target.inherit_layouts(self);
            }
        }
        let mut transactions_now_in_target = target.register_locks(std::mem::take(&mut split.prepared));
        self.hand_locks_over(&split, target, &mut transactions_now_in_target);
        self.counters.splits += u64::from(split.boundary.is_some());
        for (number, moved) in split.moved {
            if let Some(segment) = self.segment_mut(number) {
                let rows = (0..moved.targets.len() as u32).filter(|offset| moved.has(*offset));
                for offset in rows {
                    if !segment.is_vacated(offset) {
                        segment.depart(offset);
                    }
                }
                self.departed.push_back(Departed { number, next: 0, moved: Some(moved) });
            }
        }
        self.plans.clear();
        SplitMoved { rows: split.rows, transactions_now_in_target }
    }

    /// Gives hidden copies their words.
    fn reveal(&self, split: &Split, target: &mut Self) {
        for (number, moved) in &split.moved {
            for offset in 0..moved.targets.len() as u32 {
                let Some(at) = moved.target(offset) else { continue };
                let words = self.words_of(RowAddress::new(*number, RowOffset(offset)));
                if words == HIDDEN {
                    // Gone since it was copied.
                    target.dying.add(Timestamp(0), at);
                } else if target.set_words(at, words).is_err() {
                    unreachable!("copies lie in open segments, where a word needs no memory");
                }
            }
        }
    }

    /// The locks of undecided transactions on copied rows, as the target will have them.
    fn locks_of_copies(&self, split: &Split) -> Vec<(TransactionId, Locks)> {
        let mut found = Vec::new();
        for (transaction, list) in self.pending.iter() {
            for locks in list {
                let number = locks.rows.first().segment();
                let (Some(moved), Some(segment)) = (split.moved.get(&number), self.segment(number)) else { continue };
                // A segment becomes rows.
                let (rows, locked) = match locks.locked {
                    Locked::Segment => (RowRun::new(locks.rows.first(), segment.rows()), Locked::Begin),
                    other => (locks.rows, other),
                };
                for offset in rows.addresses().map(|row| row.offset().0) {
                    let Some(at) = moved.target(offset) else { continue };
                    let word = if locked == Locked::Begin { segment.begin(offset) } else { segment.end(offset) };
                    if word.transaction() == Some(transaction) {
                        found.push((transaction, Locks::of(at, locked)));
                    }
                }
            }
        }
        found
    }

    /// Takes over locks whose memory is reserved; gives the transactions that had none here.
    fn register_locks(&mut self, locks: Vec<(TransactionId, Locks)>) -> Vec<TransactionId> {
        let mut new = Vec::new();
        for (transaction, locks) in locks {
            if self.pending.enter(transaction) {
                new.push(transaction);
            }
            self.pending.add(transaction, locks);
            if let Some(copy) = self.segment_mut(locks.rows.first().segment()) {
                copy.locks += 1;
            }
        }
        new
    }
}
