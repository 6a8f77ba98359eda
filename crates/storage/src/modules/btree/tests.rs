//! Trees beside sorted sets, and what packing leaves saves, keeps and asks for.

use super::*;
use eris_platform::SeededRandom;
use eris_platform::memory::MemoryPool;
use std::collections::BTreeSet;
use std::sync::Arc;

fn all(tree: &Tree<u64>) -> Vec<(u64, u64)> {
    let Some(mut position) = tree.seek(&0, 0) else { return Vec::new() };
    std::iter::from_fn(|| tree.next(&mut position).map(|(key, handle)| (*key, handle))).collect()
}

#[test]
fn agrees_with_a_sorted_set() {
    for seed in 0..20 {
        let mut random = SeededRandom::new(seed);
        let pool = MemoryPool::unlimited();
        let mut tree = Tree::new(pool.reserve("tree"));
        let mut reference = BTreeSet::new();
        let keys = [10, 1_000, 100_000][seed as usize % 3];
        for round in 0..12_000_u64 {
            let growing = (round / 3_000) % 2 == 0;
            let key = if seed % 4 == 3 { round } else { random.below(keys) };
            let handle = random.below(50);
            if random.chance(if growing { 0.8 } else { 0.2 }) {
                let shared = reference.range((key, 0)..=(key, u64::MAX)).any(|pair| *pair != (key, handle));
                let placed = tree.insert(&key, handle).unwrap();
                let new = reference.insert((key, handle));
                assert_eq!(placed.new, new);
                assert!(placed.key_shared == shared || !new, "seed {seed} round {round}");
            } else if let Some(pair) = reference.range((key, handle)..).next().copied() {
                assert!(tree.remove(&pair.0, pair.1));
                reference.remove(&pair);
            } else {
                assert!(!tree.remove(&key, handle));
            }
            if round % 100 == 0 {
                let keys: Vec<u64> = (0..=random.below(15)).map(|_| random.below(keys + 2)).collect();
                let sought = tree.seek_many(&keys).map(Iterator::collect::<Vec<_>>);
                for (number, key) in keys.iter().enumerate() {
                    let next = |position: Option<Position>| {
                        position.and_then(|mut position| tree.next(&mut position).map(|(key, handle)| (*key, handle)))
                    };
                    let together = next(sought.as_ref().map(|sought| sought[number]));
                    assert_eq!(together, next(tree.seek(key, 0)), "seed {seed} round {round}");
                }
            }
            if round % 500 == 0 {
                assert_eq!(all(&tree), reference.iter().copied().collect::<Vec<_>>());
            }
        }
        let mut position = tree.end();
        let backwards: Vec<(u64, u64)> = std::iter::from_fn(|| {
            position.as_mut().and_then(|position| tree.previous(position)).map(|(key, handle)| (*key, handle))
        })
        .collect();
        assert_eq!(backwards, reference.iter().rev().copied().collect::<Vec<_>>());
        for pair in reference.clone() {
            assert!(tree.remove(&pair.0, pair.1));
        }
        assert_eq!((tree.len(), tree.root), (0, NONE));
        drop(tree);
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn ascending_pairs_fill_leaves() {
    let pool = MemoryPool::unlimited();
    let mut tree = Tree::new(pool.reserve("tree"));
    for key in 0..100_000_u64 {
        tree.insert(&key, key).unwrap();
    }
    let leaves = tree.leaves().count();
    assert!(leaves <= 100_000 / NODE_MAX + 1, "{leaves} leaves");
}

/// A tree of ascending pairs with handles that rise by one, as a bulk load makes it.
fn loaded(pool: &Arc<MemoryPool>, pairs: u64) -> Tree<u64> {
    let mut tree = Tree::new(pool.reserve("tree"));
    for number in 0..pairs {
        tree.insert(&key_of(number), number).unwrap();
    }
    tree
}

/// Four rows to a number, as lines of orders.
fn key_of(number: u64) -> u64 {
    ((number / 4) << 32) + number % 4
}

fn packed_leaves(tree: &Tree<u64>) -> usize {
    tree.nodes.iter().filter(|node| matches!(node, Node::Packed(_))).count()
}

#[test]
fn ascending_pairs_are_packed_into_a_tenth() {
    let pool = MemoryPool::unlimited();
    let tree = loaded(&pool, 100_000);
    let leaves = tree.leaves().count();
    assert_eq!(packed_leaves(&tree), leaves - 1, "all but the last of {leaves}");
    assert!(pool.used() < 3 * 100_000, "{} bytes for 100,000 pairs", pool.used());
    assert_eq!(all(&tree), (0..100_000).map(|number| (key_of(number), number)).collect::<Vec<_>>());
}

/// As several loads bring them side by side.
#[test]
fn runs_that_come_between_others_are_packed_too() {
    const RUN: u64 = 1_000;
    let pool = MemoryPool::unlimited();
    let mut tree = Tree::new(pool.reserve("indexes"));
    let runs = || (0..50).map(|half| 2 * half + 1).chain((0..50).rev().map(|half| 2 * half));
    for run in runs() {
        for number in run * RUN..(run + 1) * RUN {
            assert!(tree.insert(&key_of(number), number).unwrap().new);
        }
    }
    assert_eq!(all(&tree), (0..100 * RUN).map(|number| (key_of(number), number)).collect::<Vec<_>>());
    let ascending = loaded(&MemoryPool::unlimited(), 100 * RUN).memory().bytes();
    assert!(tree.memory().bytes() < 2 * ascending, "{} of {ascending}", tree.memory().bytes());
}

#[test]
fn packed_leaves_take_changes_as_others() {
    for seed in 0..10 {
        let mut random = SeededRandom::new(seed);
        let pool = MemoryPool::unlimited();
        let mut tree = loaded(&pool, 5_000);
        let mut reference: BTreeSet<(u64, u64)> = (0..5_000).map(|number| (key_of(number), number)).collect();
        for round in 0..20_000 {
            // Pairs may come and go while rows move, as many as they are.
            match random.below(400) {
                0 => tree.begin_moving(),
                1 | 2 => tree.end_moving(),
                _ => {}
            }
            let (key, handle) = (key_of(random.below(5_400)) + random.below(3), random.below(5_400));
            let pair = match random.below(4) {
                0 => (key, handle),
                _ => reference.range((key, handle)..).next().copied().unwrap_or((key, handle)),
            };
            if random.chance(if seed % 2 == 0 { 0.9 } else { 0.3 }) {
                assert_eq!(tree.remove(&pair.0, pair.1), reference.remove(&pair), "seed {seed} round {round}");
            } else {
                let shared = reference.range((pair.0, 0)..=(pair.0, u64::MAX)).any(|other| *other != pair);
                let placed = tree.insert(&pair.0, pair.1).unwrap();
                let new = reference.insert(pair);
                assert_eq!(placed.new, new, "seed {seed} round {round}");
                assert!(placed.key_shared == shared || !new, "seed {seed} round {round}: {pair:?}");
            }
            let next = tree.seek(&key, handle).and_then(|mut position| tree.next(&mut position));
            let next = next.map(|(key, handle)| (key.into_owned(), handle));
            assert_eq!(next, reference.range((key, handle)..).next().copied(), "seed {seed} round {round}");
            if round % 1_000 == 0 {
                let backwards = {
                    let mut position = tree.end();
                    let mut step = || position.as_mut().and_then(|position| tree.previous(position));
                    std::iter::from_fn(|| step().map(|(key, handle)| (key.into_owned(), handle))).collect::<Vec<_>>()
                };
                assert_eq!(backwards, reference.iter().rev().copied().collect::<Vec<_>>());
                assert!(tree.sample(50).iter().all(|key| reference.range((*key, 0)..).next().unwrap().0 == *key));
            }
        }
        assert!(seed % 2 == 1 || packed_leaves(&tree) > 0 || tree.len() < 500, "removals leave leaves packed");
        for (key, handle) in reference {
            assert!(tree.remove(&key, handle));
        }
        drop(tree);
        assert_eq!(pool.used(), 0);
    }
}

/// Of three rows two are gone, and the rest get new addresses, a few at a time: in the order of their keys, as if they
/// had been inserted in any order, and where many have the same key.
#[test]
fn pairs_of_rows_that_moved_take_no_more_than_before() {
    const ROWS: u64 = 64_000;
    let pool = MemoryPool::unlimited();
    let keys: [fn(u64) -> u64; 3] = [key_of, |row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15), |row| row % 97];
    for (name, key) in ["rising", "random", "few"].into_iter().zip(keys) {
        let mut pairs: Vec<(u64, u64)> = (0..ROWS).map(|row| (key(row), row)).collect();
        pairs.sort_unstable();
        let mut tree = Tree::new(pool.reserve("indexes"));
        for (key, row) in &pairs {
            assert!(tree.insert(key, *row).unwrap().new);
        }
        let before = tree.memory().bytes();
        for row in (0..ROWS).filter(|row| row % 3 > 0) {
            assert!(tree.remove(&key(row), row));
        }
        let left: Vec<u64> = (0..ROWS).step_by(3).collect();
        let mut moved = Vec::new();
        for rows in left.chunks(256) {
            tree.begin_moving();
            for row in rows {
                assert!(tree.insert(&key(*row), ROWS + moved.len() as u64).unwrap().new);
                moved.push((key(*row), ROWS + moved.len() as u64));
            }
            for row in rows {
                assert!(tree.remove(&key(*row), *row));
            }
            tree.end_moving();
        }
        moved.sort_unstable();
        assert_eq!(all(&tree), moved, "{name}");
        assert!(tree.memory().bytes() <= before, "{name}: {} bytes, {before} before", tree.memory().bytes());
    }
}

#[test]
fn without_memory_packed_pairs_can_be_removed_but_none_added() {
    let pool = MemoryPool::unlimited();
    let mut tree = loaded(&pool, 6_400);
    pool.set_limit(pool.used());
    assert!(tree.remove(&key_of(7), 7));
    tree.insert(&key_of(7), 7).unwrap_err();
    assert!(!tree.insert(&key_of(8), 8).unwrap().new, "a pair that is there needs no memory");
    assert_eq!(all(&tree).len(), 6_399);
    for number in (0..6_400).filter(|number| *number != 7) {
        assert!(tree.remove(&key_of(number), number));
    }
    assert_eq!((tree.len(), tree.root), (0, NONE));
}
