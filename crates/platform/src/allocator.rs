//! The system's allocator, counting what is allocated, thread by thread; large blocks that grow are copied here.
//!
//! ```text
//! thread 1 -> slot 0   +  +  -  +      each slot has a cache line and one writer: a load, an addition, a store
//! thread 2 -> slot 1   +  -
//!   ...
//! later ones -> slot 127               shared, added to atomically
//! heap_bytes() = sum of all slots      a block may be freed by another thread: a single slot may be negative
//! ```
//! Limits do not need it: consumers reserve before they allocate, and the [controller](crate::memory_controller) sees
//! the rest as unaccounted. It tells *what kind* the rest is: allocated and not reserved (a consumer that does not
//! account for itself), or resident and not allocated (code, stacks, what the allocator keeps). A binary turns it on:
//!
//! ```
//! use eris_platform::CountingAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = eris_platform::allocator::heap_bytes().unwrap();
//! let held = vec![0_u8; 1 << 20];
//! assert!(eris_platform::allocator::heap_bytes().unwrap() >= before + held.len() as u64);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Threads with a slot of their own; more than workers and fallback lane have on most machines.
const SLOTS: usize = 128;
const SHARED: usize = SLOTS - 1;

/// Bytes of blocks that are copied here when they grow. glibc copies under the lock of the block's arena, and whoever
/// frees a block of that arena meanwhile waits: workers stood still for up to two milliseconds. Smaller blocks are
/// copied soon, larger ones lie alone as a rule, and the system moves their pages instead.
const COPIED_HERE: Range<usize> = 16 << 10..32 << 20;

/// A line of its own, so that threads do not take it from each other.
#[repr(align(64))]
struct Slot {
    /// Bytes this slot's threads allocated, less those they freed.
    bytes: AtomicI64,
}

// A global allocator has no place but statics to count in.
static COUNTS: [Slot; SLOTS] = [const { Slot { bytes: AtomicI64::new(0) } }; SLOTS];
/// How many threads have counted.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's slot; `SLOTS`: it has none yet. Constant and without a destructor, so that reading it neither
    /// allocates nor fails while a thread ends.
    static SLOT: Cell<usize> = const { Cell::new(SLOTS) };
}

/// The system's allocator, counting. See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Bytes allocated and not freed, over all threads; none if no [`CountingAllocator`] is in use. A sum over threads that
/// go on, so a block on its way between two of them may be missed or counted once too often.
pub fn heap_bytes() -> Option<u64> {
    let threads = THREADS.load(Ordering::Acquire);
    let sum = COUNTS.iter().take(threads).map(|slot| slot.bytes.load(Ordering::Relaxed)).sum::<i64>();
    (threads > 0).then(|| u64::try_from(sum).unwrap_or(0))
}

#[inline]
fn count(bytes: i64) {
    let slot = SLOT.get();
    if slot < SHARED {
        // Only this thread writes here, so no other addition can come between.
        let counted = &COUNTS[slot].bytes;
        counted.store(counted.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    } else {
        count_elsewhere(slot, bytes);
    }
}

/// A thread without a slot of its own, or not yet with one.
#[cold]
fn count_elsewhere(slot: usize, bytes: i64) {
    let slot = if slot == SLOTS {
        let given = THREADS.fetch_add(1, Ordering::AcqRel).min(SHARED);
        SLOT.set(given);
        given
    } else {
        slot
    };
    COUNTS[slot].bytes.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every block is one of the system's allocator, with the layout that was asked for; counting neither allocates
// nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    // SAFETY: by the caller, as the system's allocator demands.
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            count(layout.size() as i64);
        }
        block
    }

    // SAFETY: by the caller, as the system's allocator demands.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(layout.size() as i64);
        }
        block
    }

    // SAFETY: by the caller, as the system's allocator demands.
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(block, layout) };
        count(-(layout.size() as i64));
    }

    // SAFETY: by the caller, as the system's allocator demands.
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() && COPIED_HERE.contains(&layout.size()) {
            // SAFETY: by the caller.
            return unsafe { self.move_to_another(block, layout, size) };
        }
        // SAFETY: by the caller.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

impl CountingAllocator {
    /// What `realloc` does for a block that grows, with the copy outside of the system's locks.
    ///
    /// # Safety
    ///
    /// That of `realloc`.
    #[inline(never)]
    unsafe fn move_to_another(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that `size` is one of this alignment's.
        let other = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !other.is_null() {
            // SAFETY: both have so many bytes, and they are two blocks; the old one is freed once.
            unsafe {
                std::ptr::copy_nonoverlapping(block, other, layout.size());
                self.dealloc(block, layout);
            }
        }
        other
    }
}
