//! Rebuilding a segment in another layout, in quanta, while it is read and written: the same rows at the same
//! addresses, held by other access paths.
//!
//! ```text
//!   old path  [ copied ........ | to copy ..... ]      rows never change, only their words do
//!   new path  [ ............... ]
//!   swap: the segment's state gets the new path; words, delete map, zones stay
//! ```
//! Rows are copied a window at a time and swapped inside the call that copied the last ones, so a tail may grow
//! meanwhile. Pins hold the old sealed segment and read on.

use super::Store;
use crate::batch::BATCH_ROWS;
use crate::error::StorageError;
use crate::ids::SegmentNumber;
use crate::modules::AccessPath;
use crate::physical::PhysicalLayout;
use crate::segment::{OpenRows, State, link_window};

/// A segment being rebuilt.
pub(super) struct Rebuild {
    pub number: SegmentNumber,
    layout: PhysicalLayout,
    path: Box<dyn AccessPath>,
    /// Whether the segment was open when it was begun: what the layout is for.
    open: bool,
    /// Whether the path is in the form it keeps: an open one takes more rows.
    frozen: bool,
    /// Whether the values of a frozen path are in the memory of the partition's home, or need not be.
    placed: bool,
}

impl Store {
    /// Whether sealed segments keep the layout that they have for now, whatever it is to be: rebuilding takes time that
    /// somebody waits for.
    pub fn let_rebuilds_wait(&mut self, wait: bool) {
        self.rebuilds_wait = wait;
    }

    /// Prepares a rebuild; none if there is no such segment, or its rows are in a sealed one that was thawed.
    pub(super) fn start_rebuilding(&self, number: SegmentNumber) -> Option<Rebuild> {
        let segment = self.segment(number)?;
        let (layout, rows_max) = match &segment.state {
            State::Open { rows: OpenRows::Thawed(_), .. } => return None,
            // The tail takes more.
            State::Open { rows: OpenRows::Own { .. }, .. } => (self.layouts.open(number), segment.rows_max),
            State::Sealed { .. } => (self.layouts.sealed(number), segment.rows()),
        };
        let path = self.new_path(&layout, rows_max);
        let open = segment.is_open();
        Some(Rebuild { number, layout, path, open, frozen: open, placed: open || self.arena.is_none() })
    }

    /// Continues; true when done (or the segment is gone).
    pub(super) fn rebuild_step(&mut self, rebuild: &mut Rebuild, budget: &mut usize) -> Result<bool, StorageError> {
        loop {
            let Some(segment) = self.segment(rebuild.number) else { return Ok(true) };
            assert!(segment.is_open() == rebuild.open, "a segment is sealed or thawed by one job at a time");
            let (from, rows) = (rebuild.path.rows(), segment.rows());
            if *budget == 0 && !(from == rows && rebuild.frozen && rebuild.placed) {
                return Ok(false);
            }
            if from == rows {
                if !rebuild.frozen {
                    rebuild.frozen = !rebuild.path.freeze_step();
                    if let Some(refused) = rebuild.path.refused_encoding() {
                        return Err(refused.clone().into());
                    }
                } else if !rebuild.placed {
                    rebuild.placed = !self.arena.as_ref().is_some_and(|arena| rebuild.path.place(arena));
                } else {
                    return Ok(true);
                }
                *budget = budget.saturating_sub(rows as usize);
                continue;
            }
            let window = from..rows.min(from + BATCH_ROWS.min(*budget) as u32);
            let batch = link_window(&self.schema, segment.path(), window);
            rebuild.path.insert(&batch, 0..batch.rows)?;
            *budget = budget.saturating_sub(batch.rows);
        }
    }

    /// The swap, when all rows are copied.
    pub(super) fn finish_rebuilding(&mut self, rebuild: Rebuild) {
        let Rebuild { number, layout, path, open: _, frozen: _, placed: _ } = rebuild;
        let Some(segment) = self.segment_mut(number) else { return };
        assert!(path.rows() == segment.rows(), "rebuilt {} of {} rows", path.rows(), segment.rows());
        segment.overwrites_paused = false;
        match &mut segment.state {
            State::Open { rows: OpenRows::Own { layout: old_layout, path: old_path }, .. } => {
                (*old_layout, *old_path) = (layout, path);
            }
            State::Sealed { segment, .. } => *segment = segment.rebuilt(layout, path),
            State::Open { rows: OpenRows::Thawed(_), .. } => unreachable!("a thawed segment is not rebuilt"),
        }
        // It may want something else.
        self.candidates.insert(number);
        self.counters.rebuilt += 1;
    }
}
