//! mimalloc, counting what is allocated, thread by thread; the system's allocator where there is no glibc.
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

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

#[cfg(target_env = "gnu")]
use mimalloc::MiMalloc as Inner;
#[cfg(not(target_env = "gnu"))]
use std::alloc::System as Inner;

mod mapped;

/// Threads with a slot of their own; more than workers and fallback lane have on most machines.
const SLOTS: usize = 128;
const SHARED: usize = SLOTS - 1;

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
static ASKED: AtomicUsize = AtomicUsize::new(0);
static KEEPS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread's slot; `SLOTS`: it has none yet. Constant and without a destructor, so that reading it neither
    /// allocates nor fails while a thread ends.
    static SLOT: Cell<usize> = const { Cell::new(SLOTS) };
}

/// mimalloc, counting. See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// Bytes allocated and not freed, over all threads; none if no [`CountingAllocator`] is in use. A sum over threads that
/// go on, so a block on its way between two of them may be missed or counted once too often.
pub fn heap_bytes() -> Option<u64> {
    let threads = THREADS.load(Ordering::Acquire);
    let sum = COUNTS.iter().take(threads).map(|slot| slot.bytes.load(Ordering::Relaxed)).sum::<i64>();
    (threads > 0).then(|| u64::try_from(sum).unwrap_or(0))
}

/// Whether freed memory is kept for whoever wants some next, as a fresh page costs a microsecond or two. Else it goes
/// back to the system when it is freed. What is kept when this changes stays so until it is [given back](give_back).
pub fn keep(keeps: bool) {
    // Asked at each look; threads that allocate read what is written here.
    if KEEPS.swap(keeps, Ordering::Relaxed) != keeps {
        #[cfg(target_env = "gnu")]
        purges::update();
    }
}

/// mimalloc's purge delay: how long freed memory stays before it returns to the system.
#[cfg(target_env = "gnu")]
mod purges {
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, PoisonError};

    use super::KEEPS;

    /// For parts of a segment; ten times as long for whole segments.
    const KEPT_MS: libc::c_long = 10_000;
    /// The number of `mi_option_purge_delay`.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

    /// Serialises collections, because one beside another would miss pages, and changes of the delay.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn set_delay(milliseconds: libc::c_long) {
        // SAFETY: a word is written that threads read when they free: they see the delay before or the one after.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) };
    }

    fn set_delay_as_kept() {
        set_delay(if KEEPS.load(Ordering::Relaxed) { KEPT_MS } else { 0 });
    }

    /// Adopts a change of [`KEEPS`].
    pub fn update() {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        set_delay_as_kept();
    }

    /// Returns all freed memory that this thread can reach to the system.
    pub fn collect() {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // With a delay of 0 mimalloc assumes that its arenas have nothing to purge, and skips pages freed before.
        set_delay(1);
        // SAFETY: it concerns no block that is in use.
        unsafe { libmimalloc_sys::mi_collect(true) };
        set_delay_as_kept();
    }
}

/// For a program to call before it allocates anything (from `.init_array`), so that address space is there for threads
/// and statements where it is limited. It allocates nothing.
///
/// * glibc's own allocator, which only the C library uses, takes 64 MiB (for a moment 128) for every thread that
///   allocates with it, and starting a thread of Rust does. It is given one arena for all.
/// * mimalloc takes a GiB at once, whatever a process needs of it, so that little is left for threads. Where the
///   address space is limited it takes the least it can: a segment.
pub extern "C" fn take_little_address_space() {
    #[cfg(target_env = "gnu")]
    {
        /// The number of `mi_option_arena_reserve`.
        const ARENA_RESERVE: libmimalloc_sys::mi_option_t = 23;
        /// A segment, in KiB.
        const SEGMENT_KIB: libc::c_long = 32 << 10;
        // SAFETY: the call changes how many arenas are made from now on; there is one, of the only thread.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        if crate::limits::address_space().is_some() {
            // SAFETY: a word is written that is read when an arena is made. There is one thread.
            unsafe { libmimalloc_sys::mi_option_set(ARENA_RESERVE, SEGMENT_KIB) };
        }
    }
}

/// From now on the system gives this process small pages only, if its memory is counted: one of two megabytes stays
/// resident as a whole for a block of a few kilobytes. It is for good, and for programs that the process starts, too.
pub fn take_no_huge_pages() {
    if heap_bytes().is_some() {
        let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
        // SAFETY: it concerns how the kernel maps pages, not what they hold. If it is refused, nothing changes.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
    }
}

/// From now on a block that grows to at least `bytes` (and 4 MiB) becomes a [mapping](mapped) of its own. While freed
/// memory is not [kept](keep), new blocks of at least 1 MiB are mappings from the start.
pub fn map_blocks_grown_to(bytes: u64) {
    mapped::map_grown_from(usize::try_from(bytes).unwrap_or(usize::MAX));
}

/// Whether a fresh block is to be mapped.
#[inline]
fn maps(layout: Layout) -> bool {
    mapped::may_be(layout.size()) && !KEEPS.load(Ordering::Relaxed)
}

/// Gives memory that was freed back to the system at once: what blocks of this thread left, and what no thread has.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    purges::collect();
}

/// Has all threads that look at [`asked`] give back what they can.
pub fn ask() {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// How often threads were asked to [give memory back](give_back).
pub fn asked() -> usize {
    ASKED.load(Ordering::Relaxed)
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
        if given == 0 {
            keep(true);
        }
        SLOT.set(given);
        given
    } else {
        slot
    };
    COUNTS[slot].bytes.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every block is one of the inner allocator or a mapping, with the layout that was asked for; counting neither
// allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    // SAFETY: by the caller, as the inner allocator demands.
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mapped = if maps(layout) { mapped::map(layout) } else { None };
        // SAFETY: by the caller.
        let block = mapped.unwrap_or_else(|| unsafe { Inner.alloc(layout) });
        if !block.is_null() {
            count(layout.size() as i64);
        }
        block
    }

    // SAFETY: by the caller, as the inner allocator demands.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let mapped = if maps(layout) { mapped::map(layout) } else { None };
        // SAFETY: by the caller.
        let block = mapped.unwrap_or_else(|| unsafe { Inner.alloc_zeroed(layout) });
        if !block.is_null() {
            count(layout.size() as i64);
        }
        block
    }

    // SAFETY: by the caller, as the inner allocator demands.
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let mapped = if mapped::may_be(layout.size()) { mapped::find(block) } else { None };
        match mapped {
            // SAFETY: by the caller; the block was found to be mapped.
            Some(mapped) => unsafe { mapped.unmap(block, layout.size()) },
            // SAFETY: by the caller; what is not mapped is the inner allocator's.
            None => unsafe { Inner.dealloc(block, layout) },
        }
        count(-(layout.size() as i64));
    }

    // SAFETY: by the caller, as the inner allocator demands.
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if mapped::may_be(layout.size().max(size)) {
            // SAFETY: by the caller.
            return unsafe { self.realloc_large(block, layout, size) };
        }
        // SAFETY: by the caller.
        let moved = unsafe { Inner.realloc(block, layout, size) };
        if !moved.is_null() {
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

impl CountingAllocator {
    /// Where one of both sizes is large: a block that is mapped stays so, and one that becomes large is mapped.
    ///
    /// # Safety
    /// As of [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn realloc_large(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let mapped = if mapped::may_be(layout.size()) { mapped::find(block) } else { None };
        if let Some(mapped) = mapped
            && mapped::may_be(size)
            // SAFETY: by the caller; the block was found to be mapped.
            && let Some(moved) = unsafe { mapped.resize(block, layout.size(), size) }
        {
            count(size as i64 - layout.size() as i64);
            return moved;
        }
        // SAFETY: by the caller: `size`, rounded up to the alignment, is no more than a block may have.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let grown = if mapped::grows_into(size) && size > layout.size() { mapped::map(wanted) } else { None };
        let moved = match grown {
            Some(grown) => {
                count(size as i64);
                grown
            }
            // SAFETY: as above.
            None => unsafe { self.alloc(wanted) },
        };
        if !moved.is_null() {
            // SAFETY: both blocks have at least the smaller size, and they are different blocks.
            unsafe { ptr::copy_nonoverlapping(block, moved, layout.size().min(size)) };
            // SAFETY: by the caller, which uses the new block from here on.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}
