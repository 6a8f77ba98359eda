//! Memory that the allocator keeps is given back before anybody is refused. One test, because everything in a process
//! counts.
#![cfg(target_env = "gnu")]

use std::path::Path;

use eris_platform::memory::RefusedBy;
use eris_platform::{CountingAllocator, MemoryController, MemoryPool};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;

/// So many bytes in blocks that are freed one by one.
fn blocks(bytes: u64) -> Vec<Vec<u8>> {
    (0..bytes / (32 << 10)).map(|_| vec![7_u8; 32 << 10]).collect()
}

#[test]
fn kept_memory_is_given_back_before_anybody_is_refused() {
    let pool = MemoryPool::new(1_024 * MIB);
    let held = pool.reserve("columns");
    held.grow(300 * MIB).unwrap();
    let columns = blocks(300 * MIB);
    let controller = MemoryController::new(&pool, Path::new("/"));

    drop(blocks(400 * MIB));
    let kept = controller.look().kept_bytes();
    assert!(kept > 300 * MIB, "the allocator keeps what was freed: {kept} bytes");
    let asked = eris_platform::allocator::asked();
    held.grow(500 * MIB).unwrap();
    let kept = controller.look().kept_bytes();
    assert!(kept < 100 * MIB, "{kept} bytes are kept");
    assert_eq!(eris_platform::allocator::asked(), asked + 1, "other threads are asked, too");
    held.shrink(500 * MIB);

    // What is held is not kept, and nobody is asked for what nobody can give.
    let unaccounted = blocks(400 * MIB);
    controller.look();
    assert_eq!(held.grow(500 * MIB).unwrap_err().refused_by, RefusedBy::Unaccounted);
    assert_eq!(eris_platform::allocator::asked(), asked + 1);
    assert_eq!((columns.len(), unaccounted.len()), (9_600, 12_800));

    // A database that is opened and finds no room is given most of what is left free otherwise.
    let limit = controller.look().limit_bytes;
    pool.take_what_is_kept(true);
    let of_opening = controller.look().limit_bytes;
    assert!((limit + 20 * MIB..=limit + 28 * MIB).contains(&of_opening), "{of_opening} bytes, {limit} before");
    pool.take_what_is_kept(false);
}
