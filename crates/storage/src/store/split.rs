//! Splitting a partition: rows on the far side of a boundary are copied to another store while this one goes on; a
//! switch at the end makes them gone here.

use super::Store;
use super::transactions::{Locked, Locks};
use crate::address::RowAddress;
use crate::batch::{BATCH_ROWS, Batch};
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::key::{Key, KeyEncoder, key_of_row};
use crate::mvcc::{TransactionId, Word, WordKind};
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

/// A split under way.
pub(super) struct Split {
    boundary: SplitBoundary,
    /// Rows looked at, by segment. The tail need not be the last one, and grows meanwhile.
    copied: BTreeMap<SegmentNumber, u32>,
    pub(super) moved: BTreeMap<SegmentNumber, Moved>,
    rows: u64,
    /// Copied rows whose words changed since.
    changed: Vec<RowAddress>,
}

/// Keys sampled for a boundary.
const SAMPLE_KEYS: usize = 255;

impl Store {
    /// A key of these attributes that cuts the rows into about equal halves: rows at or above it would leave. None if
    /// all rows looked at have the same key.
    pub fn split_key(&self, attributes: &[AttributeId]) -> Option<Key> {
        let mut keys = Vec::new();
        let rows: u64 = self.live_segments().map(|segment| u64::from(segment.rows())).sum();
        let step = (rows / SAMPLE_KEYS as u64).max(1) as u32;
        let mut skip = 0;
        for segment in self.live_segments() {
            let mut offset = skip;
            while offset < segment.rows() {
                if segment.end(offset) == Word::NEVER && segment.begin(offset) != Word::NEVER {
                    keys.push(RowAddress::new(segment.number, RowOffset(offset)));
                }
                offset += step;
            }
            skip = offset - segment.rows();
        }
        let columns = self.link_attributes(attributes, &keys);
        let batch = Batch { rows: keys.len(), columns: columns.into() };
        let positions: Vec<usize> = (0..attributes.len()).collect();
        let mut keys: Vec<Key> = (0..batch.rows).map(|row| key_of_row(&batch, row, &positions)).collect();
        keys.sort_unstable();
        let middle = keys.get(keys.len() / 2)?.clone();
        if keys.first() < Some(&middle) {
            return Some(middle);
        }
        // The lower half is one key: cut behind it.
        keys.into_iter().find(|key| *key > middle)
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
        if self.has_saved_cursors() {
            return Err(StorageError::Busy { reason: "cursors are saved" });
        }
        if self.split.is_some() {
            return Err(StorageError::Busy { reason: "the partition is being split already" });
        }
        if !self.building.is_empty() {
            return Err(StorageError::Busy { reason: "an index is being created" });
        }
        if !self.departed.is_empty() {
            return Err(StorageError::Busy { reason: "an earlier split is being cleaned up" });
        }
        // A job half done would go on with rows that have left.
        if let Some(job) = self.job.take() {
            self.candidates.insert(job.number());
        }
        let split = Split { boundary, copied: BTreeMap::new(), moved: BTreeMap::new(), rows: 0, changed: Vec::new() };
        self.split = Some(Box::new(split));
        Ok(())
    }

    /// Whether a split is under way.
    pub fn is_splitting(&self) -> bool {
        self.split.is_some()
    }

    /// Gives up a split; the target must be dropped.
    pub fn abandon_split(&mut self) {
        self.split = None;
    }

    /// Copies up to `rows_budget` rows to `target`, a store of the same schema that nobody else uses yet; when all is
    /// copied, switches.
    pub fn split_step(&mut self, target: &mut Self, rows_budget: usize) -> Result<SplitStep, StorageError> {
        let Some(mut split) = self.split.take() else {
            return Err(StorageError::InvalidRequest { reason: "no split was begun".to_owned() });
        };
        target.inherit_layouts(self);
        let copied = self.copy_rows(&mut split, target, rows_budget);
        let complete = match copied {
            Ok(complete) => complete,
            Err(error) => {
                self.split = Some(split);
                return Err(error);
            }
        };
        self.repeat_changes(&mut split, target)?;
        // An attach checks uniqueness as it goes: its rows stay until all are checked.
        if !complete || self.has_saved_cursors() || !self.attaching.is_empty() {
            self.split = Some(split);
            return Ok(SplitStep::More { blocked_by_cursors: complete });
        }
        Ok(SplitStep::Done(self.switch(*split, target)?))
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
        let columns: Vec<usize> = split.boundary.attributes.iter().map(|id| id.index()).collect();
        let keys = batch.project(&columns);
        let dead = |offset| segment.is_departed(offset) || segment.begin(offset) == Word::NEVER;
        let leaves = |row: &u32| {
            !dead(window.start + row) && (split.boundary.position)(&keys, *row as usize) >= split.boundary.at
        };
        let leaving: Vec<u32> = (0..batch.rows as u32).filter(leaves).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let words = leaving.iter().map(|row| (segment.begin(window.start + row), segment.end(window.start + row)));
        let words: Vec<(Word, Word)> = words.collect();
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
    fn take_rows(&mut self, rows: &Batch, words: &[(Word, Word)]) -> Result<Vec<RowAddress>, StorageError> {
        self.usage.received(rows);
        let mut addresses = Vec::with_capacity(rows.rows);
        while addresses.len() < rows.rows {
            let from = addresses.len();
            let tail = self.tail();
            let first = RowAddress::new(tail.number, RowOffset(tail.rows()));
            let until = rows.rows.min(from + (tail.rows_max - tail.rows()) as usize);
            tail.append(NewRows::Columns(rows), from..until, |row| words[row])?;
            let offsets = first.offset().0..first.offset().0 + (until - from) as u32;
            addresses.extend(offsets.map(|offset| RowAddress::new(first.segment(), RowOffset(offset))));
            self.close_tail_if_full();
            self.enter_into_indexes(NewRows::Columns(rows), from..until, first, None)?;
        }
        for (address, (begin, end)) in addresses.iter().zip(words) {
            self.note_words(*address, *begin, *end);
        }
        Ok(addresses)
    }

    /// Keeps what depends on a row's words: when its segment is cold, when it can be vacated.
    fn note_words(&mut self, address: RowAddress, begin: Word, end: Word) {
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
        for address in split.changed.drain(..) {
            let offset = address.offset().0;
            let Some(at) = split.moved.get(&address.segment()).and_then(|moved| moved.target(offset)) else { continue };
            let (begin, end) = match self.segment(address.segment()) {
                Some(segment) if !segment.is_vacated(offset) && segment.begin(offset) != Word::NEVER => {
                    (segment.begin(offset), segment.end(offset))
                }
                Some(_) | None => (Word::NEVER, Word::ALWAYS),
            };
            let Some(copy) = target.segment_mut(at.segment()) else { continue };
            if copy.end(at.offset().0) == end && copy.begin(at.offset().0) == begin {
                continue;
            }
            // An end is noted once, though begin and end may be settled at different times.
            let new_end = if copy.end(at.offset().0) == end { Word::NEVER } else { end };
            copy.set_begin(at.offset().0, begin);
            copy.set_end(at.offset().0, end)?;
            target.note_words(at, begin, new_end);
        }
        Ok(())
    }

    /// Makes moved rows gone here and registers their locks there.
    fn switch(&mut self, split: Split, target: &mut Self) -> Result<SplitMoved, StorageError> {
        let mut transactions_now_in_target = self.register_locks(&split, target)?;
        self.hand_locks_over(&split, target, &mut transactions_now_in_target);
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
        self.counters.splits += 1;
        Ok(SplitMoved { rows: split.rows, transactions_now_in_target })
    }

    fn register_locks(&self, split: &Split, target: &mut Self) -> Result<Vec<TransactionId>, StorageError> {
        let mut transactions = Vec::new();
        for (transaction, list) in self.pending.iter() {
            for locks in list {
                let number = locks.first.segment();
                let Some(moved) = split.moved.get(&number) else { continue };
                let (offsets, locked) = match locks.locked {
                    Locked::Segment => (0..moved.targets.len() as u32, Locked::Begin),
                    other => (locks.first.offset().0..locks.first.offset().0 + locks.rows, other),
                };
                for at in offsets.filter_map(|offset| moved.target(offset)) {
                    let Some(copy) = target.segment(at.segment()) else { continue };
                    let word =
                        if locked == Locked::Begin { copy.begin(at.offset().0) } else { copy.end(at.offset().0) };
                    if word.transaction() != Some(transaction) {
                        continue;
                    }
                    target.pending.reserve(1)?;
                    if target.pending.enter(transaction) {
                        transactions.push(transaction);
                    }
                    target.pending.add(transaction, Locks { first: at, rows: 1, locked });
                    if let Some(copy) = target.segment_mut(at.segment()) {
                        copy.locks += 1;
                    }
                }
            }
        }
        Ok(transactions)
    }
}
