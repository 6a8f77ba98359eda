//! Sealing and thawing: another representation of the same rows and versions, at the same addresses.

use super::Store;
use crate::error::StorageError;
use crate::ids::SegmentNumber;
use crate::mvcc::Word;
use crate::segment::{DeleteMap, OpenRows, OpenWords, SealedBuilder, Segment, State};
use std::sync::Arc;

/// A segment being sealed.
pub(super) struct Sealing {
    pub number: SegmentNumber,
    /// None if the rows are in a sealed segment already (it was thawed).
    builder: Option<SealedBuilder>,
}

impl Store {
    /// Whether the database is being opened: no store gets the right to move rows without room then, so that values for
    /// whose encoding there is no memory stay plain at once.
    pub fn set_opening(&mut self, is_opening: bool) {
        self.is_opening = is_opening;
    }

    /// Prepares sealing; none if there is nothing to seal.
    pub(super) fn start_sealing(&mut self, number: SegmentNumber) -> Option<Sealing> {
        let segment = self.segment(number)?;
        let builder = match &segment.state {
            State::Sealed { .. } => return None,
            State::Open { rows: OpenRows::Thawed(_), .. } => None,
            State::Open { rows: OpenRows::Own { layout, .. }, .. } => {
                let target = self.layouts.sealed(number);
                let rows = segment.rows();
                let copy = (*layout != target).then(|| self.new_path(&target, rows));
                Some(SealedBuilder::new(target, copy, self.schema.attributes.len(), rows))
            }
        };
        Some(Sealing { number, builder })
    }

    /// Continues; true when done (or the segment is gone). A store that may still ask for the right to move rows
    /// without room is refused memory instead of leaving values plain.
    pub(super) fn seal_step(&mut self, sealing: &mut Sealing, budget: &mut usize) -> Result<bool, StorageError> {
        let may_stay_plain = self.mover.is_some() || self.is_opening || !self.memory.is_of_store();
        while let Some(builder) = &mut sealing.builder
            && !builder.is_complete()
        {
            if *budget == 0 {
                return Ok(false);
            }
            let Some(segment) = self.segment(sealing.number) else { return Ok(true) };
            let rows = builder.step(&self.schema, segment.path(), self.arena.as_ref(), may_stay_plain)?;
            *budget = budget.saturating_sub(rows as usize);
        }
        self.seal(sealing)?;
        Ok(true)
    }

    /// The swap: begins become one word, ends become a delete map.
    fn seal(&mut self, sealing: &mut Sealing) -> Result<(), StorageError> {
        let number = sealing.number;
        let deletes = match self.segment(number) {
            None => return Ok(()),
            Some(segment) => deletes_of(segment, &self.memory)?,
        };
        let Some(slot) = self.segments[number.0 as usize].take() else { return Ok(()) };
        let (begin, deletes) = (Word::ALWAYS, Arc::new(deletes));
        // By value, because the path moves from the old state to the new one.
        let mut slot = *slot;
        slot.state = match (slot.state, sealing.builder.take()) {
            (State::Open { rows: OpenRows::Own { path, .. }, .. }, Some(builder)) => {
                State::Sealed { segment: builder.finish(path), begin, deletes }
            }
            (State::Open { rows: OpenRows::Thawed(segment), .. }, None) => State::Sealed { segment, begin, deletes },
            _ => unreachable!("segment {number} was prepared for sealing"),
        };
        if !self.layouts.suits(&slot) || slot.path().refused_encoding().is_some() {
            // It was thawed, and another layout was set meanwhile; or its values are to be encoded when there is room.
            self.candidates.insert(number);
        }
        self.segments[number.0 as usize] = Some(Box::new(slot));
        self.counters.sealed += 1;
        Ok(())
    }

    /// Gives a sealed segment per-row words again; gives the rows' worth of work.
    pub(super) fn thaw(&mut self, number: SegmentNumber) -> Result<usize, StorageError> {
        let memory = Arc::clone(&self.memory);
        let Some(slot) = self.segment_mut(number) else { return Ok(0) };
        let rows = slot.rows();
        let State::Sealed { segment, begin, deletes } = &slot.state else { return Ok(0) };
        let (segment, begin) = (Arc::clone(segment), *begin);
        let mut words = OpenWords::filled(&memory, rows as usize, begin)?;
        for (offset, end) in deletes.iter_ends() {
            if cfg!(feature = "bug_thaw_drops_locks") && end.is_lock() {
                // Planted: ends that are undecided at this moment are forgotten.
                continue;
            }
            words.set_end(offset, end);
            if slot.is_vacated(offset) {
                words.set_begin(offset, Word::NEVER);
            }
        }
        if let crate::mvcc::WordKind::Timestamp(timestamp) = begin.kind() {
            slot.newest_begin = timestamp.0;
        }
        slot.state = State::Open { rows: OpenRows::Thawed(segment), words };
        // It wants to be sealed again when it is cold.
        self.candidates.insert(number);
        self.counters.thawed += 1;
        // Filling words is far cheaper than moving rows.
        Ok(rows as usize / 16)
    }
}

/// The delete map that says what the words of an open segment say. Its begins are all seen by everyone, except those of
/// rows that never were.
fn deletes_of(segment: &Segment, memory: &Arc<eris_platform::memory::MemoryPool>) -> Result<DeleteMap, StorageError> {
    let mut deletes = DeleteMap::new(memory, segment.rows());
    for offset in 0..segment.rows() {
        if segment.is_vacated(offset) {
            deletes.set_gone(offset);
            continue;
        }
        let (begin, end) = (segment.begin(offset), segment.end(offset));
        assert!(!begin.is_lock(), "row {}:{offset} is undecided and cannot be sealed", segment.number);
        let never_was = begin == Word::NEVER;
        assert!(!never_was || end == Word::ALWAYS, "row {}:{offset} never was and must have ended", segment.number);
        if end != Word::NEVER {
            deletes.set_end(offset, end)?;
        }
    }
    Ok(deletes)
}
