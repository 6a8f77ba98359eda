//! Node-local memory for columns and buffers.
//!
//! An arena gives out zeroed, 64-byte aligned [`Block`]s. Small ones are slots in *regions* of 2 MiB that are mapped
//! directly from the operating system and bound to the arena's NUMA node; large ones have a mapping of their own. A
//! block returns its bytes on drop; a region without blocks is unmapped, except one that is kept for the next.
//!
//! Every block is reserved in the [`MemoryPool`] at the size it really takes, so the pool is back at zero when the last
//! block is gone. An operating system that refuses memory is an error, like the pool's limit, and never an abort.

mod block;
mod mapping;
mod spans;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::NodeId;
use crate::memory::{MemoryExceeded, MemoryPool, RefusedBy, Reservation};

pub use block::Block;
use block::Place;
pub use mapping::NumaPlacement;
use mapping::{MapOptions, Mapping};
use spans::{SLOT_BYTES_MAX, Spans};

/// The alignment of every block: a cache line, and what Arrow asks of buffers.
pub const BLOCK_ALIGN: usize = 64;

/// The name under which arenas reserve.
const CONSUMER: &str = "columns";

/// How an arena maps memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaOptions {
    /// The NUMA node of the operating system to bind to; `None`: no binding.
    pub memory_node: Option<NodeId>,
    /// Ask for transparent huge pages (`MADV_HUGEPAGE`). Fewer TLB misses on scans, up to 2 MiB more resident memory
    /// for each mapping.
    pub huge_pages: bool,
    /// The consumer to reserve for.
    pub consumer: &'static str,
}

/// A source of blocks on one node; cheap to clone, shared by threads.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

/// What an arena's clones and blocks have in common.
struct Shared {
    node: NodeId,
    options: MapOptions,
    reservation: Reservation,
    spans: Mutex<Spans>,
}

impl Shared {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operating system's refusal, as the error a caller handles anyway.
    fn refused(&self, bytes: usize) -> MemoryExceeded {
        let pool = self.reservation.pool();
        MemoryExceeded {
            consumer: self.reservation.consumer(),
            asked: bytes as u64,
            used: pool.used(),
            limit: pool.limit(),
            refused_by: RefusedBy::System,
        }
    }
}

impl Arena {
    /// An arena on `node`, bound to the NUMA node of the same number if there is one.
    pub fn new(node: NodeId, pool: &Arc<MemoryPool>) -> Arena {
        let options = ArenaOptions { memory_node: Some(node), huge_pages: false, consumer: CONSUMER };
        Arena::with_options(node, pool, options)
    }

    pub fn with_options(node: NodeId, pool: &Arc<MemoryPool>, options: ArenaOptions) -> Arena {
        let map = MapOptions { memory_node: options.memory_node, huge_pages: options.huge_pages };
        Arena {
            shared: Arc::new(Shared {
                node,
                options: map,
                reservation: pool.reserve(options.consumer),
                spans: Mutex::new(Spans::new(map)),
            }),
        }
    }

    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// A zeroed block of `length` bytes, aligned to `align`.
    ///
    /// # Panics
    /// If `align` is not a power of two or is above [`BLOCK_ALIGN`].
    pub fn allocate_bytes(&self, length: usize, align: usize) -> Result<Block, MemoryExceeded> {
        assert!(align.is_power_of_two() && align <= BLOCK_ALIGN, "a block cannot be aligned to {align} bytes");
        if length == 0 {
            return Ok(Block::empty(self.shared.node));
        }
        if length > SLOT_BYTES_MAX {
            return self.allocate_mapping(length);
        }
        let bytes = spans::slot_bytes(length);
        self.shared.reservation.grow(bytes as u64)?;
        let slot = self.shared.spans().allocate(length);
        let Ok(slot) = slot else {
            self.shared.reservation.shrink(bytes as u64);
            return Err(self.shared.refused(bytes));
        };
        if slot.dirty {
            // SAFETY: the slot is ours alone and `bytes` long.
            unsafe { slot.start.as_ptr().write_bytes(0, length) };
        }
        Ok(Block::new(slot.start, length, Place::Slot { arena: Arc::clone(&self.shared), slot: slot.id, bytes }))
    }

    fn allocate_mapping(&self, length: usize) -> Result<Block, MemoryExceeded> {
        let Some(bytes) = mapping::round_to_pages(length) else {
            return Err(self.shared.refused(length));
        };
        self.shared.reservation.grow(bytes as u64)?;
        let Ok(mapping) = Mapping::new(bytes, mapping::PAGE_BYTES, self.shared.options) else {
            self.shared.reservation.shrink(bytes as u64);
            return Err(self.shared.refused(bytes));
        };
        Ok(Block::new(mapping.start(), length, Place::Mapping { arena: Arc::clone(&self.shared), mapping }))
    }

    /// Bytes of all living blocks at the size they take.
    pub fn allocated_bytes(&self) -> u64 {
        self.shared.reservation.bytes()
    }

    /// Bytes mapped for small blocks, used or not.
    pub fn region_bytes(&self) -> u64 {
        self.shared.spans().region_bytes()
    }

    /// Whether memory is bound to a NUMA node, or why not. Known after the first small block.
    pub fn numa_placement(&self) -> Option<NumaPlacement> {
        self.shared.spans().numa_placement()
    }
}
