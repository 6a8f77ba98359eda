//! Bytes owned by whoever holds the block.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::{Mapping, PAGE_BYTES};
use super::pages::{self, Location};
use super::spans::SlotId;
use super::{Arena, BLOCK_ALIGN, Shared};
use crate::ids::NodeId;
use crate::memory::MemoryExceeded;

/// Zeroed bytes from an [`Arena`](super::Arena), aligned to [`BLOCK_ALIGN`]; returned on drop.
pub struct Block {
    start: NonNull<u8>,
    length: usize,
    place: Place,
}

/// Where the bytes came from.
pub(super) enum Place {
    Nowhere { node: NodeId },
    Slot { arena: Arc<Shared>, slot: SlotId, bytes: usize },
    Mapping { arena: Arc<Shared>, mapping: Mapping },
}

// SAFETY: the bytes belong to the block alone, as those of a Box<[u8]> do.
unsafe impl Send for Block {}
// SAFETY: a shared block only gives out shared slices.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(start: NonNull<u8>, length: usize, place: Place) -> Block {
        assert!(start.as_ptr().addr().is_multiple_of(BLOCK_ALIGN), "a block starts at {start:?}, which is not aligned");
        Block { start, length, place }
    }

    /// A block without bytes, aligned all the same.
    pub(super) fn empty(node: NodeId) -> Block {
        #[repr(align(64))]
        struct Line;
        const _: () = assert!(align_of::<Line>() == BLOCK_ALIGN);
        Block { start: NonNull::<Line>::dangling().cast(), length: 0, place: Place::Nowhere { node } }
    }

    /// The node whose arena it came from.
    pub fn node(&self) -> NodeId {
        match &self.place {
            Place::Nowhere { node } => *node,
            Place::Slot { arena, .. } | Place::Mapping { arena, .. } => arena.node,
        }
    }

    /// Where its pages lie, those it shares with neighbours included.
    pub fn location(&self) -> Location {
        if self.length == 0 {
            return Location::default();
        }
        let before = self.start.as_ptr().addr() % PAGE_BYTES;
        // SAFETY: regions and mappings are whole pages, so the first page of the block begins within its own.
        let first = unsafe { self.start.sub(before) };
        pages::locate(first, before + self.length)
    }

    /// Moves the pages that belong to the block alone to another NUMA node, while its bytes may be read; says where
    /// they lie then. Pages shared with neighbours stay: a block below two pages may have no other.
    pub fn migrate(&self, node: NodeId) -> Location {
        let taken = self.footprint_bytes();
        let before = self.start.as_ptr().align_offset(PAGE_BYTES);
        let whole = taken.saturating_sub(before) / PAGE_BYTES * PAGE_BYTES;
        if whole == 0 {
            return Location::default();
        }
        // SAFETY: `before + whole` bytes lie within what the block takes.
        let first = unsafe { self.start.add(before) };
        pages::migrate(first, whole, node)
    }

    /// A block of the same bytes in another arena: the other way to move, where pages cannot.
    pub fn copy_to(&self, arena: &Arena) -> Result<Block, MemoryExceeded> {
        let mut copy = arena.allocate_bytes(self.length, BLOCK_ALIGN)?;
        copy.copy_from_slice(self);
        Ok(copy)
    }

    /// What the block takes in memory, its rounding included.
    pub fn footprint_bytes(&self) -> usize {
        match &self.place {
            Place::Nowhere { .. } => 0,
            Place::Slot { bytes, .. } => *bytes,
            Place::Mapping { mapping, .. } => mapping.bytes(),
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised (zeroed) bytes at `start` belong to this block until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the block is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match &self.place {
            Place::Nowhere { .. } => {}
            Place::Slot { arena, slot, bytes } => {
                arena.spans().free(*slot);
                arena.reservation.shrink(*bytes as u64);
            }
            // The mapping itself goes with the field, after nobody can find it any more.
            Place::Mapping { arena, mapping } => {
                arena.forget_large(mapping.start());
                arena.reservation.shrink(mapping.bytes() as u64);
            }
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Block")
            .field("length", &self.length)
            .field("node", &self.node())
            .finish_non_exhaustive()
    }
}
