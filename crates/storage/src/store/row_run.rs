//! Rows of one segment that lie close together: what transactions have locked, and what is dying, is kept as such runs,
//! so that each row of a full database may be deleted, or each second.
//!
//! ```text
//! rows     10 11 12 .. 900        all of them                    first 10, span 891
//! rows     10    12       15      some, within 64 of the first   first 10, span 6, chosen 100101
//! ```

use crate::address::RowAddress;
use crate::ids::RowOffset;

/// Rows that a run can leave some out of.
const CHOICE: u32 = u64::BITS;

/// At least one row, in the order of their addresses. There may be one for each row of a large transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct RowRun {
    first: RowAddress,
    /// From the first row to the last.
    span: u32,
    /// Which rows of a span up to [`CHOICE`], the first at the right; all of a longer one.
    chosen: u64,
}

const _: () = assert!(size_of::<RowRun>() == 20, "no padding, so that a lock has 24 bytes");

/// The first `span` rows.
fn all(span: u32) -> u64 {
    if span >= CHOICE { u64::MAX } else { (1 << span) - 1 }
}

impl RowRun {
    /// `rows` rows, one after the other.
    pub(super) fn new(first: RowAddress, rows: u32) -> Self {
        assert!(rows > 0, "a run has rows");
        Self { first, span: rows, chosen: all(rows) }
    }

    /// The first row.
    pub(super) fn first(&self) -> RowAddress {
        self.first
    }

    /// How many rows.
    pub(super) fn rows(&self) -> u32 {
        if self.span > CHOICE { self.span } else { self.chosen.count_ones() }
    }

    fn is_whole(&self) -> bool {
        self.chosen == all(self.span)
    }

    /// Takes in a later run of the same segment; false if it does not fit.
    pub(super) fn append(&mut self, later: RowRun) -> bool {
        let Some(distance) = self.distance_to(later) else { return false };
        let span = distance.saturating_add(later.span);
        if span <= CHOICE {
            self.chosen |= later.chosen << distance;
        } else if distance == self.span && self.is_whole() && later.is_whole() {
            self.chosen = u64::MAX;
        } else {
            return false;
        }
        self.span = span;
        true
    }

    /// Takes in an earlier run of the same segment; false if it does not fit.
    pub(super) fn prepend(&mut self, mut earlier: RowRun) -> bool {
        let fits = earlier.append(*self);
        if fits {
            *self = earlier;
        }
        fits
    }

    /// From the first row to that of a run that begins in the same segment where this one has ended.
    fn distance_to(&self, later: RowRun) -> Option<u32> {
        if self.first.segment() != later.first.segment() {
            return None;
        }
        later.first.offset().0.checked_sub(self.first.offset().0).filter(|distance| *distance >= self.span)
    }

    /// The rows, in order.
    pub(super) fn addresses(self) -> impl DoubleEndedIterator<Item = RowAddress> {
        let is_in = move |at: &u32| self.span > CHOICE || self.chosen >> at & 1 != 0;
        let first = self.first.offset().0;
        let row = move |at| RowAddress::new(self.first.segment(), RowOffset(first + at));
        (0..self.span).filter(is_in).map(row)
    }

    /// What is left without the last rows; none if all are taken.
    pub(super) fn without_last(self, rows: u32) -> Option<Self> {
        let left = self.rows().checked_sub(rows).filter(|left| *left > 0)?;
        if self.is_whole() {
            return Some(Self::new(self.first, left));
        }
        let mut chosen = self.chosen;
        for _ in 0..rows {
            chosen &= !(1 << chosen.ilog2());
        }
        Some(Self { first: self.first, span: chosen.ilog2() + 1, chosen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SegmentNumber;
    use eris_platform::random::SeededRandom;

    fn row(segment: u32, offset: u32) -> RowAddress {
        RowAddress::new(SegmentNumber(segment), RowOffset(offset))
    }

    /// Runs that random rows are put in, from the first to the last and the other way round, have those rows.
    #[test]
    fn a_run_has_the_rows_that_were_put_in() {
        for seed in 0..200 {
            let mut random = SeededRandom::new(seed);
            let (mut rows, mut offset) = (Vec::new(), random.below(100) as u32);
            for _ in 0..100 {
                let count = if random.chance(0.1) { 1 + random.below(100) as u32 } else { 1 };
                rows.push((row(3, offset), count));
                offset += count + if random.chance(0.5) { 0 } else { random.below(20) as u32 };
            }
            let (mut forwards, mut backwards): (Vec<RowRun>, Vec<RowRun>) = (Vec::new(), Vec::new());
            for (first, count) in rows.iter().copied() {
                let run = RowRun::new(first, count);
                if !forwards.last_mut().is_some_and(|last| last.append(run)) {
                    forwards.push(run);
                }
            }
            for (first, count) in rows.iter().rev().copied() {
                let run = RowRun::new(first, count);
                if !backwards.last_mut().is_some_and(|last| last.prepend(run)) {
                    backwards.push(run);
                }
            }
            let expected: Vec<RowAddress> =
                rows.iter().flat_map(|(first, count)| (0..*count).map(|at| row(3, first.offset().0 + at))).collect();
            backwards.reverse();
            for runs in [forwards, backwards] {
                assert!(runs.len() < rows.len(), "seed {seed}: none was taken in");
                assert!(runs.iter().all(|run| run.addresses().count() as u32 == run.rows()), "seed {seed}");
                let mut found = Vec::new();
                for run in runs.into_iter().rev() {
                    let mut left = Some(run);
                    while let Some(run) = left {
                        let taken = 1 + random.below(10) as u32;
                        found.extend(run.addresses().rev().take(taken as usize));
                        left = run.without_last(taken);
                    }
                }
                found.reverse();
                assert_eq!(found, expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn rows_that_lie_far_apart_or_elsewhere_or_are_there_already_are_not_taken_in() {
        let mut run = RowRun::new(row(1, 10), 1);
        assert!(!run.append(RowRun::new(row(1, 74), 1)), "65 rows");
        assert!(!run.append(RowRun::new(row(2, 11), 1)), "another segment");
        assert!(run.append(RowRun::new(row(1, 73), 1)));
        assert!(!run.append(RowRun::new(row(1, 73), 1)), "it is there already");
        assert!(!run.append(RowRun::new(row(1, 40), 1)) && !run.prepend(RowRun::new(row(1, 9), 1)));
        assert_eq!((run.first(), run.rows()), (row(1, 10), 2));
        let mut long = RowRun::new(row(1, 100), 65);
        assert!(!long.append(RowRun::new(row(1, 166), 1)), "a long run leaves none out");
        assert!(long.append(RowRun::new(row(1, 165), 10)));
        assert_eq!((long.rows(), long.without_last(15).map(|run| run.rows())), (75, Some(60)));
        assert_eq!(RowRun::new(row(1, 100), 1).without_last(1), None);
    }
}
