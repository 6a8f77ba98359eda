//! Pairs of probe rows and build rows, a batch of them at a time.

use eris_storage::BATCH_ROWS;

use super::kept::{Kept, NULL_ROW};
use super::table::{Found, NO_ROW};

/// Rows that meet: position by position.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub probe: Vec<u32>,
    pub build: Vec<u32>,
}

impl Pairs {
    pub fn len(&self) -> usize {
        self.probe.len()
    }

    pub fn push(&mut self, probe: u32, build: u32) {
        self.probe.push(probe);
        self.build.push(build);
    }

    /// Those at `rows`.
    pub fn take(&self, rows: &[u32]) -> Self {
        let of = |all: &[u32]| rows.iter().map(|row| all[*row as usize]).collect();
        Self { probe: of(&self.probe), build: of(&self.build) }
    }

    /// Whether the probe rows are all rows of a batch, in order.
    pub fn is_whole(&self, rows: usize) -> bool {
        self.probe.len() == rows && self.probe.iter().enumerate().all(|(at, row)| at == *row as usize)
    }

    /// The first row of each chain, for unique keys.
    pub fn of_found(found: Found) -> Self {
        let Found { rows, mut firsts } = found;
        for first in &mut firsts {
            *first -= 1;
        }
        Self { probe: rows, build: firsts }
    }

    /// The first row of each probe row's chain, for unique keys; with `unmatched` also probe rows without.
    pub fn of_firsts(firsts: &[u32], unmatched: bool) -> Self {
        if unmatched {
            let probe = (0..firsts.len() as u32).collect();
            // No row becomes the row of NULLs.
            const { assert!(NO_ROW.wrapping_sub(1) == NULL_ROW, "a number minus one is the row") };
            return Self { probe, build: firsts.iter().map(|first| first.wrapping_sub(1)).collect() };
        }
        let (mut probe, mut build) = (vec![0; firsts.len()], vec![0; firsts.len()]);
        let mut len = 0;
        for (row, first) in firsts.iter().enumerate() {
            probe[len] = row as u32;
            build[len] = first.wrapping_sub(1);
            len += usize::from(*first != NO_ROW);
        }
        probe.truncate(len);
        build.truncate(len);
        Self { probe, build }
    }
}

/// Which build rows follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order<'a> {
    /// Those of one key.
    Chain(&'a Kept),
    /// All of so many.
    All(u32),
}

impl Order<'_> {
    /// Whether a row has at most one partner.
    pub fn is_unique(self) -> bool {
        match self {
            Self::Chain(kept) => kept.is_unique(),
            Self::All(rows) => rows <= 1,
        }
    }

    /// The row behind, plus one.
    #[inline]
    pub fn behind(self, row: u32) -> u32 {
        match self {
            Self::Chain(kept) => kept.behind(row),
            Self::All(rows) => {
                if row + 1 < rows {
                    row + 2
                } else {
                    NO_ROW
                }
            }
        }
    }
}

/// Walks the partners of the rows of a batch.
#[derive(Debug)]
pub(super) struct Walk {
    /// Which rows; `None`: all.
    rows: Option<Vec<u32>>,
    firsts: Vec<u32>,
    row: usize,
    /// The next partner of `row`, plus one.
    at: u32,
}

impl Walk {
    pub fn new(rows: Option<Vec<u32>>, firsts: Vec<u32>) -> Self {
        let at = firsts.first().copied().unwrap_or(NO_ROW);
        Self { rows, firsts, row: 0, at }
    }

    /// The next pairs, at most a batch; `None` behind the last.
    pub fn next(&mut self, order: Order<'_>) -> Option<Pairs> {
        let capacity = (self.firsts.len() - self.row).min(BATCH_ROWS);
        let mut pairs = Pairs { probe: Vec::with_capacity(capacity), build: Vec::with_capacity(capacity) };
        while self.row < self.firsts.len() {
            let probe = self.rows.as_ref().map_or(self.row as u32, |rows| rows[self.row]);
            while self.at != NO_ROW {
                if pairs.len() == BATCH_ROWS {
                    return Some(pairs);
                }
                let build = self.at - 1;
                pairs.push(probe, build);
                self.at = order.behind(build);
            }
            self.row += 1;
            self.at = self.firsts.get(self.row).copied().unwrap_or(NO_ROW);
        }
        (pairs.len() > 0).then_some(pairs)
    }
}
