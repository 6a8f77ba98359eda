//! The postings of all keys, by code: an array of slots of 16 bytes, in pieces, so that growing copies little.
//!
//! ```text
//! code    0            1         2         3
//! slot    list ──┐     address   free, 5   list ──> ...       one row: the address itself; more: a posting list
//!                └──> ...
//! ```
//! The code of a key that went is given to a later one; such codes form a chain.

use super::super::hash_bucket::prefetch;
use super::list::List;
use eris_platform::memory::{MemoryExceeded, Reservation};

/// A key's number while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(u32);

impl Code {
    /// As the tree of keys holds it.
    pub(super) fn handle(self) -> u64 {
        u64::from(self.0)
    }

    pub(super) fn of_handle(handle: u64) -> Self {
        Self(handle as u32)
    }
}

/// Slots of a piece: 64 KiB, which a growing index copies in some microseconds.
const PIECE_SLOTS: usize = 4_096;

/// Slots of the first piece at first.
const SLOTS_FIRST: usize = 4;

enum Slot {
    /// The next free one.
    Free(Option<Code>),
    One(u64),
    Many(Box<List>),
}

const _: () = assert!(size_of::<Slot>() == 16, "a key with one row has its address in the slot");

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Absent,
    /// Others are left.
    Taken,
    /// It was the last; the code is free.
    Last,
}

/// See the module's documentation.
pub(super) struct Postings {
    pieces: Vec<Vec<Slot>>,
    free: Option<Code>,
    memory: Reservation,
}

impl Postings {
    pub(super) fn new(memory: Reservation) -> Self {
        Self { pieces: Vec::new(), free: None, memory }
    }

    pub(super) fn memory(&self) -> &Reservation {
        &self.memory
    }

    #[inline]
    fn slot(&self, code: Code) -> &Slot {
        &self.pieces[code.0 as usize / PIECE_SLOTS][code.0 as usize % PIECE_SLOTS]
    }

    fn slot_mut(&mut self, code: Code) -> &mut Slot {
        &mut self.pieces[code.0 as usize / PIECE_SLOTS][code.0 as usize % PIECE_SLOTS]
    }

    /// A code for a new key with one row.
    pub(super) fn add(&mut self, address: u64) -> Result<Code, MemoryExceeded> {
        if let Some(code) = self.free {
            let Slot::Free(next) = *self.slot(code) else { unreachable!("free codes are chained") };
            *self.slot_mut(code) = Slot::One(address);
            self.free = next;
            return Ok(code);
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE_SLOTS) {
            self.add_piece()?;
        }
        let last = self.pieces.len() - 1;
        let piece = &mut self.pieces[last];
        if piece.len() == piece.capacity() {
            let more = piece.len().clamp(SLOTS_FIRST, PIECE_SLOTS - piece.len());
            self.memory.grow((more * size_of::<Slot>()) as u64)?;
            piece.reserve_exact(more);
        }
        piece.push(Slot::One(address));
        let code = last * PIECE_SLOTS + piece.len() - 1;
        assert!(code < u32::MAX as usize, "a partition has fewer rows than there are codes");
        Ok(Code(code as u32))
    }

    /// An empty piece at the end, all of it at once unless it is the first.
    fn add_piece(&mut self) -> Result<(), MemoryExceeded> {
        if self.pieces.len() == self.pieces.capacity() {
            let more = self.pieces.len().max(1);
            self.memory.grow((more * size_of::<Vec<Slot>>()) as u64)?;
            self.pieces.reserve_exact(more);
        }
        let slots = if self.pieces.is_empty() { 0 } else { PIECE_SLOTS };
        self.memory.grow((slots * size_of::<Slot>()) as u64)?;
        self.pieces.push(Vec::with_capacity(slots));
        Ok(())
    }

    /// Adds a row to a key; false if it was there.
    pub(super) fn insert(&mut self, code: Code, address: u64) -> Result<bool, MemoryExceeded> {
        let Self { pieces, memory, .. } = self;
        let slot = &mut pieces[code.0 as usize / PIECE_SLOTS][code.0 as usize % PIECE_SLOTS];
        match slot {
            Slot::Many(list) => list.insert(address, memory),
            Slot::One(other) if *other == address => Ok(false),
            Slot::One(other) => {
                memory.grow(size_of::<List>() as u64)?;
                let mut list = Box::<List>::default();
                let both = list.insert(*other, memory).and_then(|_| list.insert(address, memory));
                if let Err(exceeded) = both {
                    memory.shrink(list.bytes());
                    return Err(exceeded);
                }
                *slot = Slot::Many(list);
                Ok(true)
            }
            Slot::Free(_) => unreachable!("code {} belongs to a key", code.0),
        }
    }

    /// Removes a row from a key.
    pub(super) fn remove(&mut self, code: Code, address: u64) -> Removed {
        let Self { pieces, memory, .. } = self;
        let slot = &mut pieces[code.0 as usize / PIECE_SLOTS][code.0 as usize % PIECE_SLOTS];
        match slot {
            Slot::Many(list) => {
                if !list.remove(address, memory) {
                    return Removed::Absent;
                }
                if list.len() == 1 {
                    memory.shrink(list.bytes());
                    *slot = Slot::One(list.only());
                }
                Removed::Taken
            }
            Slot::One(only) if *only == address => {
                self.release(code);
                Removed::Last
            }
            Slot::One(_) => Removed::Absent,
            Slot::Free(_) => unreachable!("code {} belongs to a key", code.0),
        }
    }

    /// Takes the code of a key with one row back.
    pub(super) fn release(&mut self, code: Code) {
        *self.slot_mut(code) = Slot::Free(self.free);
        self.free = Some(code);
    }

    /// No key is left: the slots' memory goes back.
    pub(super) fn clear(&mut self) {
        let slots: usize = self.pieces.iter().map(Vec::capacity).sum();
        let bytes = slots * size_of::<Slot>() + self.pieces.capacity() * size_of::<Vec<Slot>>();
        self.pieces = Vec::new();
        self.free = None;
        self.memory.shrink(bytes as u64);
    }

    /// Rows of a key.
    #[inline]
    pub(super) fn len(&self, code: Code) -> u64 {
        match self.slot(code) {
            Slot::Free(_) => 0,
            Slot::One(_) => 1,
            Slot::Many(list) => list.len(),
        }
    }

    /// Asks for a key's slot; first step of a group of searches.
    #[inline]
    pub(super) fn prefetch(&self, code: Code) {
        prefetch(self.slot(code));
    }

    /// Asks for its list, if it has one; second step.
    #[inline]
    pub(super) fn prefetch_list(&self, code: Code) {
        if let Slot::Many(list) = self.slot(code) {
            prefetch(&raw const **list);
        }
    }

    /// Calls `visit` with all rows of a key, ascending.
    #[inline]
    pub(super) fn visit(&self, code: Code, mut visit: impl FnMut(u64)) {
        match self.slot(code) {
            Slot::Free(_) => {}
            Slot::One(address) => visit(*address),
            Slot::Many(list) => list.visit(visit),
        }
    }

    /// Calls `visit` with rows of a key, ascending above `from` or descending below it (none: all), until it gives
    /// false. False if it did.
    pub(super) fn visit_some(
        &self,
        code: Code,
        from: Option<u64>,
        descending: bool,
        mut visit: impl FnMut(u64) -> bool,
    ) -> bool {
        match self.slot(code) {
            Slot::Free(_) => true,
            Slot::One(address) => {
                let is_done = from.is_some_and(|from| if descending { *address >= from } else { *address <= from });
                is_done || visit(*address)
            }
            Slot::Many(list) if descending => list.visit_down(from, visit),
            Slot::Many(list) => list.visit_up(from, visit),
        }
    }
}
