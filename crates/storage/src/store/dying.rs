//! Rows whose end is decided, by the timestamp of the end: what can be vacated once no snapshot sees it. Rows that lie
//! one after the other are one run, so that all rows of a full database may die at once.

use crate::address::RowAddress;
use crate::ids::RowOffset;
use crate::mvcc::Timestamp;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of one segment, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: RowAddress,
    rows: u32,
}

/// See the module's documentation.
pub(super) struct Dying {
    by_end: BTreeMap<u64, Vec<Run>>,
    rows: u64,
    memory: Reservation,
}

const RUN_BYTES: u64 = size_of::<Run>() as u64;

impl Run {
    /// Takes in a row right before or after; false if it lies elsewhere.
    fn extend(&mut self, row: RowAddress) -> bool {
        if row.segment() != self.first.segment() {
            return false;
        }
        let (first, offset) = (self.first.offset().0, row.offset().0);
        if offset.checked_add(1) == Some(first) {
            // Ends are stamped from the last row to the first.
            self.first = row;
        } else if first.checked_add(self.rows) != Some(offset) {
            return false;
        }
        self.rows += 1;
        true
    }
}

impl Dying {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { by_end: BTreeMap::new(), rows: 0, memory: memory.reserve_for_release("dying rows") }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// Rows that wait until no snapshot sees them.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row that ended at `end` (0: it never was). Cannot be refused: forgetting the row would keep it for ever;
    /// beyond the limit it goes unaccounted.
    pub(super) fn add(&mut self, end: Timestamp, row: RowAddress) {
        self.rows += 1;
        let runs = self.by_end.entry(end.0).or_default();
        if !runs.last_mut().is_some_and(|run| run.extend(row)) {
            let _ = self.memory.grow(RUN_BYTES);
            runs.push(Run { first: row, rows: 1 });
        }
    }

    /// Takes up to `rows_max` rows that ended at or before `oldest`; none if there are none.
    pub(super) fn take(&mut self, oldest: Timestamp, rows_max: usize) -> Vec<RowAddress> {
        let Some(mut entry) = self.by_end.first_entry().filter(|entry| *entry.key() <= oldest.0) else {
            return Vec::new();
        };
        let (runs, mut rows) = (entry.get_mut(), Vec::new());
        while let Some(run) = runs.last_mut()
            && rows.len() < rows_max
        {
            let taken = run.rows.min((rows_max - rows.len()) as u32);
            run.rows -= taken;
            let (number, from) = (run.first.segment(), run.first.offset().0 + run.rows);
            rows.extend((from..from + taken).map(|offset| RowAddress::new(number, RowOffset(offset))));
            if run.rows == 0 {
                runs.pop();
                self.memory.shrink(RUN_BYTES.min(self.memory.bytes()));
            }
        }
        if runs.is_empty() {
            entry.remove();
        }
        self.rows -= rows.len() as u64;
        rows
    }

    /// Whether rows ended at or before `oldest`.
    pub(super) fn has(&self, oldest: Timestamp) -> bool {
        self.by_end.first_key_value().is_some_and(|(end, _)| *end <= oldest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentNumber;

    #[test]
    fn rows_that_follow_one_another_are_one_run_and_come_out_once() {
        let memory = MemoryPool::unlimited();
        let mut dying = Dying::new(&memory);
        let row = |segment, offset| RowAddress::new(SegmentNumber(segment), RowOffset(offset));
        (100..200).for_each(|offset| dying.add(Timestamp(3), row(1, offset)));
        (0..100).rev().for_each(|offset| dying.add(Timestamp(3), row(1, offset)));
        dying.add(Timestamp(3), row(2, 200));
        dying.add(Timestamp(4), row(1, 300));
        assert_eq!((memory.used(), dying.rows()), (3 * RUN_BYTES, 202));
        assert!(!dying.has(Timestamp(2)) && dying.take(Timestamp(2), 10).is_empty());
        let mut taken = Vec::new();
        while dying.has(Timestamp(3)) {
            let rows = dying.take(Timestamp(3), 64);
            assert!(!rows.is_empty() && rows.len() <= 64);
            taken.extend(rows);
        }
        taken.sort_unstable();
        let expected: Vec<RowAddress> = (0..200).map(|offset| row(1, offset)).chain([row(2, 200)]).collect();
        assert_eq!(taken, expected);
        assert!(!dying.is_empty());
        assert_eq!(dying.take(Timestamp(4), 64), [row(1, 300)]);
        assert_eq!((dying.is_empty(), dying.rows(), memory.used()), (true, 0, 0));
    }
}
