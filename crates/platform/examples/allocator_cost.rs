//! A million allocations of 64 bytes, by the system's allocator or by what the binary uses, mimalloc and counted:
//! `allocator_cost system|counted`, to be run under callgrind, which counts instructions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use eris_platform::CountingAllocator;

const ALLOCATIONS: usize = 1_000_000;

fn allocate(allocator: &impl GlobalAlloc) {
    let layout = Layout::new::<[u64; 8]>();
    for _ in 0..ALLOCATIONS {
        // SAFETY: the layout has a size; the block is freed as it was allocated.
        unsafe { allocator.dealloc(black_box(allocator.alloc(black_box(layout))), layout) };
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("system") => allocate(&System),
        Some("counted") => allocate(&CountingAllocator),
        other => eprintln!("\"system\" or \"counted\", not {other:?}"),
    }
}
