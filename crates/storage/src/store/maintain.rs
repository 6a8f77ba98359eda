//! The life cycle in quanta: settle, vacate, seal, thaw, evacuate, rebuild.

use super::Store;
use super::evacuate::Evacuation;
use super::overwrite::is_cool;
use super::rebuild::Rebuild;
use super::seal::Sealing;
use crate::batch::BATCH_ROWS;
use crate::error::StorageError;
use crate::ids::SegmentNumber;
use crate::mvcc::{Outcomes, Timestamp, TransactionId};
use crate::segment::{OpenRows, Segment, State};
use eris_platform::memory::{MemoryExceeded, Mover};

/// What maintenance may assume.
#[derive(Clone, Copy)]
pub struct Horizon<'a> {
    /// No published snapshot, now or later, sees less than this.
    pub oldest: Timestamp,
    pub outcomes: &'a dyn Outcomes,
}

/// What maintenance did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Decided transactions that have no lock word here any more; each is reported once.
    pub settled: Vec<TransactionId>,
    /// Whether the budget ended before the work.
    pub more: bool,
    /// Whether rows would move if no cursor were saved.
    pub blocked_by_cursors: bool,
    /// Whether there was no room for something: it is worth another try when others gave memory back, or have read what
    /// they read.
    pub has_no_room: bool,
}

/// A sealed segment is thawed if its delete map has more runs than one in this many rows. Below, the map is cheaper
/// than two words a row (32 bytes a run against 16 a row), and scans look up few of them. A segment whose rows a few
/// statements ended is not thawed: they are few runs or have bitmaps, and there may be no room for words.
pub(super) const THAW_SHARE: u32 = 16;

/// An open segment is not sealed while more than one row in this many is ending: half of the share at which it would be
/// thawed again, so that it does not go to and fro.
const SEAL_SHARE: u32 = 2 * THAW_SHARE;

/// A segment with more than one row in this many vacated is evacuated.
pub(super) const EVACUATE_SHARE: u32 = 4;

/// Values that stayed plain are encoded when so many times the bytes of their segment are free, and what was refused:
/// the copy may take twice as much while it grows. With less, copies would be made in vain.
const ENCODE_ROOM_FACTOR: u64 = 4;

/// Work on one segment that takes several quanta.
pub(super) enum Job {
    Seal(Sealing),
    Evacuate(Evacuation),
    Rebuild(Rebuild),
}

impl Job {
    /// The segment.
    pub(super) fn number(&self) -> SegmentNumber {
        match self {
            Self::Seal(sealing) => sealing.number,
            Self::Evacuate(evacuation) => evacuation.number,
            Self::Rebuild(rebuild) => rebuild.number,
        }
    }
}

/// The jobs that leave less than they find and were refused memory all the same: with the right to move rows without
/// room, or while another store has it. Those of the same kind wait until a job of either kind is done and leaves some.
#[derive(Default)]
pub(super) struct Refused {
    seals: bool,
    evacuations: bool,
}

/// What a segment wants.
enum Wish {
    Nothing,
    /// Something, but not now: it stays a candidate.
    Later,
    /// Something for which there is no room now.
    NoRoom,
    Seal,
    Thaw,
    Evacuate,
    Rebuild,
    /// Before-images to go, and no new ones to come.
    Pause,
}

impl Store {
    /// Whether [`Store::maintain`] may find work; perhaps only after transactions were decided or the horizon moved.
    pub fn wants_maintenance(&self) -> bool {
        !self.pending.is_empty()
            || !self.dying.is_empty()
            || !self.before_images.superseded.is_empty()
            || !self.candidates.is_empty()
            || !self.departed.is_empty()
            || self.job.is_some()
            || self.relocation.is_some()
    }

    /// Does up to about `rows_budget` rows of maintenance.
    pub fn maintain(&mut self, horizon: &Horizon<'_>, rows_budget: usize) -> Maintained {
        let mut maintained = Maintained::default();
        // Out of memory: what was done is done, the rest waits for the next call.
        let done = self.maintain_steps(horizon, rows_budget, &mut maintained);
        self.counters.maintenance_out_of_memory += u64::from(done.is_err());
        maintained.has_no_room |= done.is_err();
        if !maintained.more {
            self.stop_moving();
        }
        maintained
    }

    /// Lets another store move rows without room.
    pub fn stop_moving(&mut self) {
        (self.mover, self.refused) = (None, Refused::default());
    }

    fn maintain_steps(
        &mut self,
        horizon: &Horizon<'_>,
        rows_budget: usize,
        maintained: &mut Maintained,
    ) -> Result<(), StorageError> {
        // Rows are moved and sealed so that there is more room after it.
        let _may_take_what_is_kept = self.memory.change_few_rows();
        let mut budget = rows_budget;
        let settled = self.settle(horizon.outcomes, &mut budget);
        maintained.settled = settled?;
        if self.vacate_dying(horizon.oldest, &mut budget)
            || self.free_images(horizon.oldest, &mut budget)
            || self.vacate_departed(&mut budget)
        {
            // A store that is busy with other things does not keep others from moving rows.
            if self.job.is_none() {
                self.stop_moving();
            }
            maintained.more = true;
            return Ok(());
        }
        loop {
            if budget == 0 {
                maintained.more = true;
                return Ok(());
            }
            // While rows are copied from here or to here, segments stay what they are.
            if self.is_splitting() {
                return Ok(());
            }
            if self.job.is_none() {
                let started = self.start_job(horizon, &mut budget, maintained);
                if !matches!(started, Ok(true)) {
                    // What moved without room is sealed before another store moves more.
                    if self.mover.as_ref().is_some_and(Mover::has_moved) && self.sealable_tail().is_some() {
                        self.close_tail();
                        continue;
                    }
                    started?;
                    maintained.more = self.relocate(&mut budget);
                    return Ok(());
                }
            }
            if !self.job_step(horizon, &mut budget, maintained)? {
                return Ok(());
            }
        }
    }

    /// Continues the job; false if it must wait.
    fn job_step(
        &mut self,
        horizon: &Horizon<'_>,
        budget: &mut usize,
        maintained: &mut Maintained,
    ) -> Result<bool, StorageError> {
        match self.job.take() {
            None => Ok(true),
            Some(Job::Seal(mut sealing)) => {
                let _moving = self.mover.as_ref().map(Mover::moving);
                match self.seal_step(&mut sealing, budget) {
                    Ok(true) => self.note_moved(),
                    Ok(false) => self.job = Some(Job::Seal(sealing)),
                    Err(_) => {
                        self.candidates.insert(sealing.number);
                        self.refused.seals = self.waits_for_room(budget);
                    }
                }
                Ok(true)
            }
            Some(Job::Rebuild(mut rebuild)) => {
                match self.rebuild_step(&mut rebuild, budget) {
                    Ok(true) => self.finish_rebuilding(rebuild),
                    Ok(false) => self.job = Some(Job::Rebuild(rebuild)),
                    Err(error) => {
                        self.candidates.insert(rebuild.number);
                        return Err(error);
                    }
                }
                Ok(true)
            }
            Some(Job::Evacuate(mut evacuation)) => {
                if self.has_saved_cursors() {
                    maintained.blocked_by_cursors = true;
                    self.job = Some(Job::Evacuate(evacuation));
                    return Ok(false);
                }
                let is_pinned = self.segment(evacuation.number).is_some_and(Segment::is_pinned);
                let _moving = self.mover.as_ref().filter(|_| !is_pinned).map(Mover::moving);
                match self.evacuate_step(&mut evacuation, horizon.oldest, budget) {
                    Ok(true) => self.note_moved(),
                    Ok(false) => self.job = Some(Job::Evacuate(evacuation)),
                    Err(_) => {
                        self.candidates.insert(evacuation.number);
                        // One that is being read is left for later.
                        if self.mover.is_none() || !is_pinned {
                            self.refused.evacuations = self.waits_for_room(budget);
                        }
                    }
                }
                Ok(true)
            }
        }
    }

    /// A job that leaves less than it found was refused memory. False if it may take what there is from now on, and is
    /// tried again; true if it did so already, or another store does: then it waits, while other jobs are tried.
    fn waits_for_room(&mut self, budget: &mut usize) -> bool {
        if self.mover.is_none() {
            self.mover = self.memory.move_without_room();
            if self.mover.is_some() {
                return false;
            }
        }
        self.counters.maintenance_out_of_memory += 1;
        // The attempt in vain was work, too.
        *budget = budget.saturating_sub(BATCH_ROWS);
        true
    }

    /// A job that leaves less than it found is done.
    fn note_moved(&mut self) {
        self.refused = Refused::default();
        self.mover.iter_mut().for_each(Mover::note_moved);
    }

    /// Picks the next segment that wants something; false if there is none. Sealing comes first: it leaves less than it
    /// finds, while what moves is held plain until it is sealed. Rebuilding comes last: maintenance ends with a rebuild
    /// that is refused memory, and the other jobs may leave some for it.
    fn start_job(
        &mut self,
        horizon: &Horizon<'_>,
        budget: &mut usize,
        maintained: &mut Maintained,
    ) -> Result<bool, StorageError> {
        let (mut refused, mut evacuates, mut rebuilds) = (None, None, None);
        let candidates: Vec<SegmentNumber> = self.candidates.iter().copied().collect();
        for number in candidates {
            if self.cut_gone_end(number) {
                continue;
            }
            match self.wish(number, horizon) {
                Wish::Later => continue,
                Wish::NoRoom => {
                    maintained.has_no_room = true;
                    continue;
                }
                Wish::Pause => {
                    if let Some(segment) = self.segment_mut(number) {
                        segment.overwrites_paused = true;
                    }
                    continue;
                }
                Wish::Nothing => {}
                Wish::Seal => {
                    self.candidates.remove(&number);
                    self.job = self.start_sealing(number).map(Job::Seal);
                    return Ok(true);
                }
                Wish::Evacuate => {
                    evacuates.get_or_insert(number);
                    continue;
                }
                Wish::Rebuild => {
                    rebuilds.get_or_insert(number);
                    continue;
                }
                Wish::Thaw => {
                    // It is to be sealed again when it is cold. Without memory it stays as it is.
                    match self.thaw(number) {
                        Ok(rows) => *budget = budget.saturating_sub(rows),
                        Err(error) => refused = Some(error),
                    }
                    continue;
                }
            }
            self.candidates.remove(&number);
        }
        let Some(number) = evacuates.or(rebuilds) else { return refused.map_or(Ok(false), Err) };
        self.candidates.remove(&number);
        self.job = if evacuates.is_some() {
            Some(Job::Evacuate(Evacuation::new(number)))
        } else {
            self.start_rebuilding(number).map(Job::Rebuild)
        };
        Ok(true)
    }

    fn wish(&self, number: SegmentNumber, horizon: &Horizon<'_>) -> Wish {
        let Some(segment) = self.segment(number) else { return Wish::Nothing };
        let plain = segment.path().refused_encoding();
        let encodes = plain.is_some_and(|refused| self.has_room_to_encode(segment, refused));
        let rebuild = (encodes || !self.layouts.suits(segment)) && !is_thawed(segment);
        // The rows' other versions; they lie beside the path, so no job may take the rows elsewhere.
        let has_images = self.before_images.has_any_in(number);
        if self.tail == Some(number) {
            return match rebuild && !segment.path().is_closed() {
                true if has_images => Wish::Pause,
                true => Wish::Rebuild,
                false => Wish::Nothing,
            };
        }
        let (rows, vacated, ending) = (segment.rows(), segment.vacated_count(), segment.ending());
        let undecided = match &segment.state {
            State::Open { .. } => false,
            State::Sealed { begin, .. } => begin.is_lock() || *begin == crate::mvcc::Word::NEVER,
        };
        if undecided {
            return Wish::Later;
        }
        if vacated * EVACUATE_SHARE > rows {
            return match segment.locks {
                _ if has_images => Wish::Pause,
                0 if self.refused.evacuations => Wish::NoRoom,
                // What they take would not be given back, so there has to be room for both.
                0 if self.mover.is_some() && segment.is_pinned() => Wish::NoRoom,
                0 => Wish::Evacuate,
                _ => Wish::Later,
            };
        }
        if segment.is_open() {
            let settled = segment.locks == 0 && segment.newest_begin <= horizon.oldest.0 && !has_images;
            let cold = settled && is_cool(segment, horizon.oldest);
            return match (cold && ending * SEAL_SHARE <= rows, rebuild) {
                (true, _) if self.refused.seals => Wish::NoRoom,
                (true, _) => Wish::Seal,
                (false, true) if has_images => Wish::Pause,
                (false, true) => Wish::Rebuild,
                (false, false) => Wish::Later,
            };
        }
        match (segment.ending_runs() * THAW_SHARE > rows, rebuild) {
            (true, _) => Wish::Thaw,
            (false, true) if self.rebuilds_wait => Wish::Later,
            (false, true) => Wish::Rebuild,
            (false, false) if plain.is_some() => Wish::Later,
            (false, false) => Wish::Nothing,
        }
    }

    /// Whether values that stayed plain, because this was refused, can probably be encoded now.
    fn has_room_to_encode(&self, segment: &Segment, refused: &MemoryExceeded) -> bool {
        self.memory.free() >= refused.asked.saturating_add(ENCODE_ROOM_FACTOR * segment.bytes())
    }
}

/// Whether an open segment's rows are in the sealed one it was: its layout changes when it is sealed again.
fn is_thawed(segment: &Segment) -> bool {
    matches!(segment.state, State::Open { rows: OpenRows::Thawed(_), .. })
}
