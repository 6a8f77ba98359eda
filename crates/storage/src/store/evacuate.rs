//! Compaction: the rows of a segment with many dead ones move to the tail, each with its words and index entries in one
//! step, so that there is no state in between.

use super::Store;
use crate::address::RowAddress;
use crate::batch::Column;
use crate::error::StorageError;
use crate::ids::{RowOffset, SegmentNumber};
use crate::mvcc::{Timestamp, Word, WordKind};
use crate::segment::NewRows;

/// Rows moved in one go.
const MOVE_ROWS: usize = 256;

/// A segment being evacuated.
pub(super) struct Evacuation {
    pub number: SegmentNumber,
    next: u32,
    /// Whether a row could not move because a transaction has it locked.
    blocked: bool,
}

impl Evacuation {
    pub(super) fn new(number: SegmentNumber) -> Self {
        Self { number, next: 0, blocked: false }
    }
}

impl Store {
    /// Continues; true when done. No cursor may be saved.
    pub(super) fn evacuate_step(
        &mut self,
        evacuation: &mut Evacuation,
        oldest: Timestamp,
        budget: &mut usize,
    ) -> Result<bool, StorageError> {
        while *budget > 0 {
            let Some(segment) = self.segment(evacuation.number) else {
                self.counters.compacted += 1;
                return Ok(true);
            };
            let (mut moving, mut dead) = (Vec::new(), Vec::new());
            let mut offset = evacuation.next;
            while moving.len() + dead.len() < MOVE_ROWS.min(*budget)
                && let Some(next) = segment.next_occupied(offset)
            {
                let (begin, end) = (segment.begin(next), segment.end(next));
                let address = RowAddress::new(evacuation.number, RowOffset(next));
                if begin.is_lock() || end.is_lock() {
                    evacuation.blocked = true;
                } else if begin == Word::NEVER || end.is_at_or_before(oldest) {
                    dead.push(address);
                } else {
                    moving.push(address);
                }
                offset = next + 1;
            }
            if moving.is_empty() && dead.is_empty() {
                if segment.vacated_count() == segment.rows() {
                    // It was the tail when its last row left.
                    self.drop_segment(evacuation.number);
                    self.counters.compacted += 1;
                } else if evacuation.blocked {
                    self.candidates.insert(evacuation.number);
                }
                return Ok(true);
            }
            evacuation.next = offset;
            *budget -= (moving.len() + dead.len()).min(*budget);
            self.vacate(&dead);
            self.move_rows(&moving)?;
        }
        Ok(false)
    }

    /// Moves unlocked rows to the tail.
    fn move_rows(&mut self, rows: &[RowAddress]) -> Result<(), StorageError> {
        let mut from = 0;
        while from < rows.len() {
            let tail = self.tail()?;
            let room = (tail.rows_max - tail.rows()) as usize;
            let first = RowAddress::new(tail.number, RowOffset(tail.rows()));
            let moving = &rows[from..rows.len().min(from + room)];
            self.move_run(moving, first)?;
            from += moving.len();
        }
        Ok(())
    }

    fn move_run(&mut self, moving: &[RowAddress], first: RowAddress) -> Result<(), StorageError> {
        let batch = self.link_all(moving);
        let words: Vec<(Word, Word)> = moving
            .iter()
            .map(|address| {
                let Some(segment) = self.segment(address.segment()) else {
                    unreachable!("rows move out of segments that exist");
                };
                (segment.begin(address.offset().0), segment.end(address.offset().0))
            })
            .collect();
        let tail = self.tail()?;
        tail.append(NewRows::Columns(&batch), 0..batch.rows, |row| words[row])?;
        for (begin, _) in &words {
            tail.newest_begin = tail.newest_begin.max(begin.bits());
        }
        // Also if memory ends below: nobody appends to a full one.
        self.close_tail_if_full();
        let new = |row: usize| RowAddress::new(first.segment(), RowOffset(first.offset().0 + row as u32));
        (0..self.index_count()).for_each(|position| self.index_at_mut(position).path.begin_moving());
        if let Err(error) = self.enter_into_indexes(NewRows::Columns(&batch), 0..batch.rows, first, None) {
            // The copies must not be seen beside the originals.
            let copies: Vec<RowAddress> = (0..batch.rows).map(new).collect();
            self.vacate(&copies);
            (0..self.index_count()).for_each(|position| self.index_at_mut(position).path.end_moving());
            return Err(error);
        }
        for position in 0..self.index_count() {
            let index = self.index_at_mut(position);
            let attributes = &index.definition.attributes;
            let columns: Vec<Column> = attributes.iter().map(|id| batch.columns[id.index()].clone()).collect();
            for (row, address) in moving.iter().enumerate() {
                index.path.remove(&columns, row, *address);
            }
            index.path.end_moving();
        }
        for (row, address) in moving.iter().enumerate() {
            if let WordKind::Timestamp(timestamp) = words[row].1.kind()
                && words[row].1 != Word::NEVER
            {
                self.dying.add(timestamp, new(row));
            }
            self.row_locks.moved(*address, new(row));
            self.leave(*address);
        }
        self.counters.rows_moved += moving.len() as u64;
        Ok(())
    }
}
