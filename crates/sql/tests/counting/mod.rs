//! An allocator that counts, for tests of what statements allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is allocated, and the most that ever was.
struct Counting;

/// What is allocated now.
pub static ALLOCATED: AtomicU64 = AtomicU64::new(0);
/// The most that was allocated since it was set.
pub static MOST: AtomicU64 = AtomicU64::new(0);

impl Counting {
    fn grew(bytes: usize) {
        let now = ALLOCATED.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: by the caller, as the inner allocator demands.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::grew(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: by the caller, as the inner allocator demands.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    // SAFETY: by the caller, as the inner allocator demands.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::grew(size);
        // SAFETY: as above. While it moves, both may be there.
        let moved = unsafe { System.realloc(block, layout, size) };
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        moved
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
