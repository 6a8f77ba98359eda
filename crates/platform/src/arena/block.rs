//! Bytes owned by whoever holds the block.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;
use super::spans::SlotId;
use super::{BLOCK_ALIGN, Shared};
use crate::ids::NodeId;

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
            // The mapping itself goes with the field.
            Place::Mapping { arena, mapping } => arena.reservation.shrink(mapping.bytes() as u64),
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
