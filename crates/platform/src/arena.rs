//! Node-local memory for columns and buffers.
//!
//! An arena gives out zeroed, 64-byte aligned [`Block`]s. Small ones are slots in *regions* of 2 MiB that are mapped
//! directly from the operating system and bound to the arena's NUMA node; large ones have a mapping of their own. A
//! block returns its bytes on drop; a region without blocks is unmapped, except one that is kept for the next.
//!
//! Every block is reserved in the [`MemoryPool`] at the size it really takes, so the pool is back at zero when the last
//! block is gone. An operating system that refuses memory is an error, like the pool's limit, and never an abort.
//!
//! A node without free memory is no error: the kernel takes pages from the nearest other one, [`Arena::location`] says
//! how much lies where, and [`Arena::remark`] says it in words. [`Arena::migrate`] moves everything to another node
//! while it is read.

mod block;
mod mapping;
mod pages;
mod spans;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::NodeId;
use crate::memory::{MemoryExceeded, MemoryPool, RefusedBy, Reservation};

pub use block::Block;
use block::Place;
pub use mapping::NumaPlacement;
use mapping::{MapOptions, Mapping};
pub use pages::Location;
use pages::Policy;
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
    reservation: Reservation,
    spans: Mutex<Spans>,
    /// Blocks with a mapping of their own: bytes by address. A block leaves it before its mapping goes.
    large: Mutex<BTreeMap<usize, Large>>,
}

/// A mapping that a block owns.
struct Large {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the address is only used while its block, which cannot go without the lock, is there.
unsafe impl Send for Large {}

impl Shared {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn large(&self) -> MutexGuard<'_, BTreeMap<usize, Large>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_large(&self, start: NonNull<u8>) {
        let known = self.large().remove(&start.as_ptr().addr());
        assert!(known.is_some(), "a mapping at {start:?} belongs to this arena");
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
        let policy = options.memory_node.map_or(Policy::Anywhere, Policy::Preferred);
        Arena::mapping(node, pool, MapOptions { policy, huge_pages: options.huge_pages }, options.consumer)
    }

    /// An arena of `node` whose pages come from each of the operating system's nodes `spread_over` in turn: for what
    /// all nodes read alike.
    pub fn interleaved(node: NodeId, pool: &Arc<MemoryPool>, spread_over: &[NodeId]) -> Arena {
        let policy = Policy::interleaved(spread_over);
        Arena::mapping(node, pool, MapOptions { policy, huge_pages: false }, CONSUMER)
    }

    fn mapping(node: NodeId, pool: &Arc<MemoryPool>, map: MapOptions, consumer: &'static str) -> Arena {
        Arena {
            shared: Arc::new(Shared {
                node,
                reservation: pool.reserve(consumer),
                spans: Mutex::new(Spans::new(map)),
                large: Mutex::default(),
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
        let options = self.shared.spans().options();
        let Ok(mapping) = Mapping::new(bytes, mapping::PAGE_BYTES, options) else {
            self.shared.reservation.shrink(bytes as u64);
            return Err(self.shared.refused(bytes));
        };
        let start = mapping.start();
        self.shared.large().insert(start.as_ptr().addr(), Large { start, bytes });
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

    /// The NUMA node its memory is to come from, if it is one.
    pub fn memory_node(&self) -> Option<NodeId> {
        match self.shared.spans().options().policy {
            Policy::Preferred(node) => Some(node),
            Policy::Anywhere | Policy::Interleaved(_) => None,
        }
    }

    /// Where its memory lies now, regions and large blocks. Asks the kernel about every page: for reports, not for
    /// decisions of every moment.
    pub fn location(&self) -> Location {
        let mut location = self.shared.spans().location();
        for large in self.shared.large().values() {
            location.add(&pages::locate(large.start, large.bytes));
        }
        location
    }

    /// Moves all its memory to another NUMA node, page by page, while its blocks may be read, and takes further memory
    /// from there. Says where everything lies then; pages for which there is no room stay.
    pub fn migrate(&self, node: NodeId) -> Location {
        // No block goes meanwhile: dropping one takes the lock.
        let mut location = self.shared.spans().migrate(node);
        for large in self.shared.large().values() {
            location.add(&pages::migrate(large.start, large.bytes, node));
        }
        location
    }

    /// What a user should know about the placement: memory that lies elsewhere, or that nothing can be said.
    pub fn remark(&self) -> Option<String> {
        let node = self.memory_node()?;
        if let Some(NumaPlacement::Unbound(reason)) = self.numa_placement() {
            return Some(format!("memory of {} is placed by the system: {reason}", self.node()));
        }
        let location = self.location();
        if let Some(reason) = &location.unavailable {
            return Some(format!("where memory of {} lies is unavailable: {reason}", self.node()));
        }
        let away = location.bytes_away_from(node);
        (away > 0).then(|| {
            let at_home = location.bytes_on(node);
            format!("NUMA {node} had no free memory: {away} bytes lie on other nodes, {at_home} bytes at home")
        })
    }
}
