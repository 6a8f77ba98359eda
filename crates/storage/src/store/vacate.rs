//! Removing rows nobody can see any more: first their index entries, then the rows, and with the last row the segment.

use super::Store;
use super::maintain::EVACUATE_SHARE;
use super::split::Departed;
use crate::address::RowAddress;
use crate::ids::{RowOffset, SegmentNumber};
use crate::mvcc::Timestamp;

/// Rows vacated in one go: their key attributes are linked together.
const VACATE_ROWS: usize = 256;

impl Store {
    /// Vacates rows that ended at or before `oldest`, up to `budget`; true if more are waiting.
    pub(super) fn vacate_dying(&mut self, oldest: Timestamp, budget: &mut usize) -> bool {
        while self.dying.has(oldest) {
            if *budget == 0 {
                return true;
            }
            let rows = self.dying.take(oldest, VACATE_ROWS.min(*budget));
            *budget -= rows.len();
            self.vacate(&rows);
        }
        false
    }

    /// Vacates rows of a voided segment, or those that moved to another partition; true if more are waiting.
    pub(super) fn vacate_departed(&mut self, budget: &mut usize) -> bool {
        while let Some(Departed { number, next, moved }) = self.departed.front_mut() {
            if *budget == 0 {
                return true;
            }
            let number = *number;
            let rows = self.segments[number.0 as usize].as_ref().map_or(0, |segment| segment.rows());
            let until = rows.min(*next + VACATE_ROWS.min(*budget) as u32);
            let window = *next..until;
            let leave = window.clone().filter(|offset| moved.as_ref().is_none_or(|moved| moved.has(*offset)));
            let leave: Vec<RowAddress> = leave.map(|offset| RowAddress::new(number, RowOffset(offset))).collect();
            *next = until;
            if until >= rows {
                self.departed.pop_front();
            }
            *budget -= window.len();
            self.vacate(&leave);
        }
        false
    }

    /// All rows of a segment are to go (an attach that was aborted).
    pub(super) fn void_segment(&mut self, number: SegmentNumber, _rows: u32) {
        self.departed.push_back(Departed { number, next: 0, moved: None });
    }

    /// Removes the index entries of rows and makes them gone. Rows that are so already are skipped.
    pub(super) fn vacate(&mut self, rows: &[RowAddress]) {
        let occupied = |address: &&RowAddress| {
            self.segment(address.segment()).is_some_and(|segment| !segment.is_vacated(address.offset().0))
        };
        let rows: Vec<RowAddress> = rows.iter().filter(occupied).copied().collect();
        if rows.is_empty() {
            return;
        }
        for position in 0..self.index_count() {
            let attributes = self.index_at(position).definition.attributes.clone();
            let columns = self.link_attributes(&attributes, &rows);
            let index = self.index_at_mut(position);
            for (row, address) in rows.iter().enumerate() {
                // Planted: the entry of the last row stays.
                if cfg!(feature = "bug_index_keeps_entry") && !index.definition.unique && row + 1 == rows.len() {
                    continue;
                }
                index.path.remove(&columns, row, *address);
            }
        }
        for address in rows {
            self.leave(address);
        }
    }

    /// A row without index entries leaves its place.
    pub(super) fn leave(&mut self, address: RowAddress) {
        let number = address.segment();
        let is_tail = self.tail == Some(number);
        self.forget_images(address);
        let Some(segment) = self.segment_mut(number) else { return };
        segment.vacate(address.offset().0);
        let (vacated, rows) = (segment.vacated_count(), segment.rows());
        self.note_change(address);
        if is_tail {
            // What a statement appended that was rolled back. A few rows are not worth another segment.
            let is_worth = self.segment(number).is_some_and(|tail| vacated >= self.gone_of_worth(tail));
            if is_worth && vacated == rows {
                self.tail = None;
                self.drop_segment(number);
            } else if is_worth && vacated * EVACUATE_SHARE > rows {
                self.candidates.insert(number);
            }
            return;
        }
        if vacated == rows {
            self.drop_segment(number);
        } else if vacated * EVACUATE_SHARE > rows {
            self.candidates.insert(number);
        }
    }

    /// Cuts off the end of an open segment if many rows there are vacated: what a statement appended that was rolled
    /// back. The rows before it stay in place, so this needs no memory: a refused statement leaves none.
    /// True if it has to wait.
    pub(super) fn cut_gone_end(&mut self, number: SegmentNumber) -> bool {
        let (has_images, has_cursors) = (self.before_images.has_any_in(number), self.has_saved_cursors());
        let cuttable = self.segment(number).filter(|segment| segment.is_cuttable());
        let Some(worth) = cuttable.map(|segment| self.gone_of_worth(segment)) else { return false };
        let Some(segment) = self.segment_mut(number) else { return false };
        if segment.vacated_count() < worth {
            return false;
        }
        let gone = segment.gone_at_end();
        if gone < worth || gone * EVACUATE_SHARE <= segment.rows() {
            return false;
        }
        // These have addresses there.
        if segment.locks > 0 || has_images || has_cursors {
            return true;
        }
        segment.cut(gone);
        let is_empty = segment.rows() == 0;
        if self.tail == Some(number) {
            self.tail = None;
        }
        if is_empty {
            self.drop_segment(number);
        }
        self.counters.cut += 1;
        false
    }
}
