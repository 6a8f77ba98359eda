//! Rows whose end is decided, by the timestamp of the end: what can be vacated once no snapshot sees it. Rows that lie
//! close together are one run, so that all rows of a full database may die at once.

use super::row_run::RowRun;
use crate::address::RowAddress;
use crate::mvcc::Timestamp;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct Dying {
    by_end: BTreeMap<u64, Vec<RowRun>>,
    rows: u64,
    memory: Reservation,
}

const RUN_BYTES: u64 = size_of::<RowRun>() as u64;

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
        let run = RowRun::new(row, 1);
        // Ends are stamped from the last row to the first.
        if !runs.last_mut().is_some_and(|last| last.prepend(run) || last.append(run)) {
            let _ = self.memory.grow(RUN_BYTES);
            runs.push(run);
        }
    }

    /// Takes up to `rows_max` rows that ended at or before `oldest`; none if there are none.
    pub(super) fn take(&mut self, oldest: Timestamp, rows_max: usize) -> Vec<RowAddress> {
        let Some(mut entry) = self.by_end.first_entry().filter(|entry| *entry.key() <= oldest.0) else {
            return Vec::new();
        };
        let (runs, mut rows) = (entry.get_mut(), Vec::<RowAddress>::new());
        while let Some(run) = runs.last_mut()
            && rows.len() < rows_max
        {
            let wanted = rows_max - rows.len();
            let before = rows.len();
            rows.extend(run.addresses().rev().take(wanted));
            // In their order their values are read fastest.
            rows[before..].reverse();
            if let Some(left) = run.without_last(wanted as u32) {
                *run = left;
            } else {
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
    use crate::ids::{RowOffset, SegmentNumber};

    #[test]
    fn rows_that_lie_close_together_are_one_run_and_come_out_once() {
        let memory = MemoryPool::unlimited();
        let mut dying = Dying::new(&memory);
        let row = |segment, offset| RowAddress::new(SegmentNumber(segment), RowOffset(offset));
        (100..200).for_each(|offset| dying.add(Timestamp(3), row(1, offset)));
        (0..100).rev().for_each(|offset| dying.add(Timestamp(3), row(1, offset)));
        (0..640).rev().step_by(3).for_each(|offset| dying.add(Timestamp(3), row(2, offset)));
        dying.add(Timestamp(4), row(1, 300));
        assert_eq!((memory.used(), dying.rows()), (12 * RUN_BYTES, 415));
        assert!(!dying.has(Timestamp(2)) && dying.take(Timestamp(2), 10).is_empty());
        let mut taken = Vec::new();
        while dying.has(Timestamp(3)) {
            let rows = dying.take(Timestamp(3), 64);
            assert!(!rows.is_empty() && rows.len() <= 64);
            taken.extend(rows);
        }
        taken.sort_unstable();
        let expected: Vec<RowAddress> =
            (0..200).map(|offset| row(1, offset)).chain((0..640).step_by(3).map(|offset| row(2, offset))).collect();
        assert_eq!(taken, expected);
        assert!(!dying.is_empty());
        assert_eq!(dying.take(Timestamp(4), 64), [row(1, 300)]);
        assert_eq!((dying.is_empty(), dying.rows(), memory.used()), (true, 0, 0));
    }
}
