//! Sealed columns follow their partition: after its home changed, they are copied to the new home's memory, one segment
//! after the other and one attribute at a time, and swapped in. Rows, addresses and versions stay what they are, and
//! pins keep the columns they have.

use super::Store;
use crate::batch::BATCH_ROWS;
use crate::ids::SegmentNumber;
use crate::modules::AccessPath;
use crate::segment::{SealedSegment, State};
use eris_platform::arena::Arena;
use std::sync::Arc;

/// A walk over all segments, each of which is copied if it can be.
pub(super) struct Relocation {
    /// Segments before this one are done; those sealed later are placed when they are sealed.
    next: SegmentNumber,
    under_way: Option<UnderWay>,
}

/// A segment that is being copied.
struct UnderWay {
    number: SegmentNumber,
    original: Arc<SealedSegment>,
    /// The same values, of which more and more lie in the new place.
    path: Box<dyn AccessPath>,
}

impl Store {
    /// Where columns go that are sealed from now on. If that is another node's memory than before, those sealed already
    /// follow by maintenance.
    pub fn set_arena(&mut self, arena: Option<Arena>) {
        let node = |arena: &Option<Arena>| arena.as_ref().map(Arena::node);
        if node(&arena) != node(&self.arena) {
            let start = || Relocation { next: SegmentNumber(0), under_way: None };
            self.relocation = arena.is_some().then(start);
        }
        self.arena = arena;
    }

    /// Goes on while the budget lasts; true if there is more to do.
    pub(super) fn relocate(&mut self, budget: &mut usize) -> bool {
        while self.relocation.is_some() {
            if *budget == 0 {
                return true;
            }
            if self.relocate_step() {
                *budget = budget.saturating_sub(BATCH_ROWS);
            }
        }
        false
    }

    /// Copies one attribute of one sealed segment to where the partition's home is; false at the end of the walk.
    fn relocate_step(&mut self) -> bool {
        let (Some(arena), Some(mut relocation)) = (self.arena.clone(), self.relocation.take()) else { return false };
        let Some(mut under_way) =
            relocation.under_way.take().or_else(|| self.next_to_relocate(&mut relocation, &arena))
        else {
            return false;
        };
        if under_way.path.place(&arena) {
            relocation.under_way = Some(under_way);
        } else {
            self.swap_in(under_way);
        }
        self.relocation = Some(relocation);
        true
    }

    fn next_to_relocate(&self, relocation: &mut Relocation, arena: &Arena) -> Option<UnderWay> {
        while (relocation.next.0 as usize) < self.segments.len() {
            let number = relocation.next;
            relocation.next = SegmentNumber(number.0 + 1);
            // Whoever attaches a segment holds it, and its rows in the order of the indexes.
            if !self.attaching.contains(&number)
                && let Some(segment) = self.segment(number)
                && let State::Sealed { segment, .. } = &segment.state
                && segment.path().home() != Some(arena.node())
                && let Some(path) = segment.path().share()
            {
                return Some(UnderWay { number, original: Arc::clone(segment), path });
            }
        }
        None
    }

    /// Swaps the copy in, unless the segment was thawed or dropped meanwhile, or there was no room for all of it.
    fn swap_in(&mut self, under_way: UnderWay) {
        let UnderWay { number, original, path } = under_way;
        if path.home().is_none() {
            return;
        }
        if let Some(segment) = self.segment_mut(number)
            && let State::Sealed { segment, .. } = &mut segment.state
            && Arc::ptr_eq(segment, &original)
        {
            *segment = original.with_path(path);
            self.counters.relocated += 1;
        }
    }
}
