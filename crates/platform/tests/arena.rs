//! Arenas against a list of what should be in their blocks.

use std::collections::BTreeMap;

use eris_platform::arena::{BLOCK_ALIGN, NumaPlacement};
use eris_platform::memory::RefusedBy;
use eris_platform::{Arena, ArenaOptions, Block, MemoryPool, NodeId, SeededRandom, test_load};

/// Blocks come zeroed and aligned, overlap nobody, keep their bytes, and are all given back.
#[test]
fn blocks_keep_to_themselves() {
    for seed in 0..test_load(20) {
        let mut random = SeededRandom::new(seed);
        let pool = MemoryPool::unlimited();
        let arena = Arena::new(NodeId(0), &pool);
        let mut blocks: BTreeMap<u64, (Block, u8)> = BTreeMap::new();
        let small_only = random.chance(0.5);
        for step in 0..2_000_u64 {
            if random.chance(0.52) || blocks.is_empty() {
                let length = match random.below(if small_only { 2 } else { 8 }) {
                    0..=1 => random.below(300),
                    2..=4 => random.below(5_000),
                    5..=6 => random.below(200_000),
                    _ => random.below(700_000),
                } as usize;
                let mut block = arena.allocate_bytes(length, 64).unwrap();
                assert_eq!(block.len(), length);
                assert_eq!(block.as_ptr().addr() % BLOCK_ALIGN, 0);
                assert!(block.iter().all(|&byte| byte == 0), "seed {seed}: a block of {length} is not zeroed");
                block.fill(step as u8 | 1);
                blocks.insert(step, (block, step as u8 | 1));
            } else {
                let chosen = *blocks.keys().nth(random.index(blocks.len())).unwrap();
                let (block, fill) = blocks.remove(&chosen).unwrap();
                assert!(block.iter().all(|&byte| byte == fill), "seed {seed}: somebody wrote into a block");
            }
            if step % 500 == 0 {
                let footprint: usize = blocks.values().map(|(block, _)| block.footprint_bytes()).sum();
                assert_eq!((arena.allocated_bytes(), pool.used()), (footprint as u64, footprint as u64));
            }
        }
        let held: usize = blocks.values().map(|(block, _)| block.len()).sum();
        let footprint = arena.allocated_bytes() as usize;
        assert!(footprint <= held + held / 4 + 64 * blocks.len() + 4096 * blocks.len(), "{footprint} for {held}");
        blocks.clear();
        assert_eq!(pool.used(), 0);
        assert!(arena.region_bytes() <= 4 << 20, "{} bytes stay mapped for nothing", arena.region_bytes());
    }
}

#[test]
fn many_threads_share_an_arena() {
    let pool = MemoryPool::unlimited();
    let arena = Arena::new(NodeId(0), &pool);
    let (sender, receiver) = std::sync::mpsc::channel::<(Block, u8)>();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (arena, sender) = (arena.clone(), sender.clone());
            scope.spawn(move || {
                let mut random = SeededRandom::new(seed);
                for _ in 0..3_000 {
                    let mut block = arena.allocate_bytes(random.below(9_000) as usize, 8).unwrap();
                    assert!(block.iter().all(|&byte| byte == 0));
                    let fill = random.next_u64() as u8 | 1;
                    block.fill(fill);
                    sender.send((block, fill)).unwrap();
                }
            });
        }
        drop(sender);
        // Freed by another thread than the one that allocated.
        for (block, fill) in receiver {
            assert!(block.iter().all(|&byte| byte == fill));
        }
    });
    assert_eq!(pool.used(), 0);
}

#[test]
fn the_limit_is_an_error_and_nothing_is_kept() {
    let pool = MemoryPool::new(1 << 20);
    let options = ArenaOptions { memory_node: None, huge_pages: true, consumer: "dictionary" };
    let arena = Arena::with_options(NodeId(3), &pool, options);
    let block = arena.allocate_bytes(900_000, 64).unwrap();
    let refused = arena.allocate_bytes(200_000, 64).unwrap_err();
    assert_eq!((refused.consumer, refused.refused_by), ("dictionary", RefusedBy::Limit));
    assert!(arena.allocate_bytes(300_000, 64).is_err());
    drop(block);
    assert_eq!(arena.allocate_bytes(200_000, 64).unwrap().node(), NodeId(3));
    assert_eq!(pool.used(), 0);
}

#[test]
fn the_systems_refusal_is_an_error() {
    let pool = MemoryPool::unlimited();
    let arena = Arena::new(NodeId(0), &pool);
    for length in [1 << 50, isize::MAX as usize, usize::MAX - 10] {
        let refused = arena.allocate_bytes(length, 64).unwrap_err();
        assert_eq!(refused.refused_by, RefusedBy::System);
        assert!(refused.to_string().contains("the system has no more"), "{refused}");
    }
    assert_eq!(pool.used(), 0);
}

#[test]
fn binding_to_a_node_that_is_not_there_is_remembered() {
    let pool = MemoryPool::unlimited();
    for (memory_node, expected) in [
        (Some(NodeId(900)), "no NUMA node 900"),
        (Some(NodeId(u16::MAX)), "beyond"),
        (None, "no NUMA node was asked for"),
    ] {
        let options = ArenaOptions { memory_node, huge_pages: false, consumer: "columns" };
        let arena = Arena::with_options(NodeId(0), &pool, options);
        assert_eq!(arena.numa_placement(), None);
        let block = arena.allocate_bytes(1, 1).unwrap();
        let Some(NumaPlacement::Unbound(reason)) = arena.numa_placement() else {
            panic!("{memory_node:?} was bound");
        };
        assert!(reason.contains(expected), "{reason}");
        drop(block);
    }
}

#[test]
fn empty_blocks_cost_nothing() {
    let pool = MemoryPool::new(0);
    let arena = Arena::new(NodeId(1), &pool);
    let mut block = arena.allocate_bytes(0, 64).unwrap();
    block.fill(1);
    assert_eq!((block.len(), block.footprint_bytes(), block.node()), (0, 0, NodeId(1)));
    assert_eq!(block.as_ptr().addr() % 64, 0);
}
