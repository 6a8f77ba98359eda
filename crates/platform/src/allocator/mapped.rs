//! Large blocks that are mappings of their own.
//!
//! ```text
//! grown    | block | . . . . |  ->  | the same pages | more |      moved by the kernel (mremap), not copied: the old
//!                                                                  and the new block are never resident both
//! freed    back at the system at once
//! ```
//! A fresh page costs a microsecond or two, so what does not grow is mapped only while memory is tight. Which blocks
//! are mapped says a table of their addresses: the other allocator has blocks of the same sizes.
//!
//! Relaxed accesses of the table are enough. Only the owner of a block looks for its address, and whatever hands a
//! block to another thread orders its entry, too. An address is used again after the kernel has unmapped it, and an
//! entry is cleared before that.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this a system call costs more than a mapping of its own saves.
const BYTES_MIN: usize = 1 << 20;
/// Below this a growing block is not moved into a mapping.
const GROWN_BYTES_MIN: usize = 4 << 20;
/// Slots of the table. When all are taken, further blocks are the other allocator's, which copies them as they grow.
const BLOCKS: usize = 1 << 12;
/// The least size of a page: larger alignments are the other allocator's business.
const PAGE_BYTES: usize = 4_096;

/// Entries that are no address of a block: a free one, and that of a block which is being mapped or moved.
const FREE: usize = 0;
const MOVING: usize = 1;

/// The least block that becomes a mapping when it grows; until it is set, none is mapped. It never rises.
static GROWN_LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
static ADDRESSES: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(FREE) }; BLOCKS];
/// Slots that have ever been used are the first of the table: only these are searched for an address.
static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);

/// A mapped block's slot in the table.
pub(super) struct Mapped(usize);

/// From now on blocks may be mapped: fresh ones, and those that grow to at least `bytes`.
pub(super) fn map_grown_from(bytes: usize) {
    GROWN_LEAST.fetch_min(bytes.max(GROWN_BYTES_MIN), Ordering::Relaxed);
}

/// Whether a block of this size may be mapped. Small ones, which are nearly all, come no further.
#[inline]
pub(super) fn may_be(bytes: usize) -> bool {
    bytes >= BYTES_MIN && GROWN_LEAST.load(Ordering::Relaxed) < usize::MAX
}

/// Whether a block that grows to this size becomes a mapping.
pub(super) fn grows_into(bytes: usize) -> bool {
    bytes >= GROWN_LEAST.load(Ordering::Relaxed)
}

/// A block of zeros; none: the other allocator may have one.
#[cold]
pub(super) fn map(layout: Layout) -> Option<*mut u8> {
    if layout.align() > PAGE_BYTES {
        return None;
    }
    let claim = |address: &AtomicUsize| {
        address.load(Ordering::Relaxed) == FREE
            && address.compare_exchange(FREE, MOVING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let slot = ADDRESSES.iter().position(claim)?;
    USED_SLOTS.fetch_max(slot + 1, Ordering::Relaxed);
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh pages at an address that the kernel chooses.
    let block = unsafe { libc::mmap(ptr::null_mut(), layout.size(), protection, flags, -1, 0) };
    let mapped = block != libc::MAP_FAILED;
    ADDRESSES[slot].store(if mapped { block as usize } else { FREE }, Ordering::Relaxed);
    mapped.then_some(block.cast())
}

/// The block's slot, if it is mapped. To be called by the owner of the block.
#[cold]
pub(super) fn find(block: *mut u8) -> Option<Mapped> {
    let used = &ADDRESSES[..USED_SLOTS.load(Ordering::Relaxed)];
    used.iter().position(|address| address.load(Ordering::Relaxed) == block as usize).map(Mapped)
}

impl Mapped {
    /// Gives the block back to the system.
    ///
    /// # Safety
    /// `block` is the block of this slot, `bytes` long, and is not used afterwards.
    pub unsafe fn unmap(self, block: *mut u8, bytes: usize) {
        // First: as soon as it is unmapped, another thread may have a block at this address.
        ADDRESSES[self.0].store(FREE, Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { libc::munmap(block.cast(), bytes) };
    }

    /// The same block with another size, elsewhere if need be; none: it is as it was.
    ///
    /// # Safety
    /// `block` is the block of this slot, `before` bytes long. If it moves, the old address is not used afterwards.
    pub unsafe fn resize(self, block: *mut u8, before: usize, bytes: usize) -> Option<*mut u8> {
        // First, as in `unmap`.
        ADDRESSES[self.0].store(MOVING, Ordering::Relaxed);
        // SAFETY: by the caller.
        let moved: *mut c_void = unsafe { libc::mremap(block.cast(), before, bytes, libc::MREMAP_MAYMOVE) };
        let done = moved != libc::MAP_FAILED;
        ADDRESSES[self.0].store(if done { moved as usize } else { block as usize }, Ordering::Relaxed);
        done.then_some(moved.cast())
    }
}
