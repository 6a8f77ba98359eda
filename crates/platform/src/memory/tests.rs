//! What pools refuse, and to whom.

use super::shares::{KEPT_BYTES_MAX, KEPT_SHARE};
use super::*;
use crate::random::SeededRandom;

#[test]
fn what_can_be_spilled_leaves_room_for_that() {
    let limit = 160 << 20;
    let pool = MemoryPool::new(limit);
    let unkept = limit - limit / KEPT_SHARE;
    let (sort, join) = (pool.reserve_spillable("sort"), pool.reserve("join"));
    let room = room_of(limit, unkept);
    let most = unkept - room;
    assert!(sort.grow(most + 1).is_err());
    sort.grow(most).unwrap();
    assert!(sort.grow(1).is_err());
    // A second one has at least a little, others have the rest.
    let group = pool.reserve_spillable("aggregate");
    group.grow(SPILL_FLOOR_BYTES).unwrap();
    assert!(group.grow(1).is_err());
    join.grow(room - SPILL_FLOOR_BYTES).unwrap();
    assert!(join.grow(1).is_err());
    drop((sort, group, join));
    assert_eq!(pool.used(), 0);
    let child = pool.child(16 << 20);
    assert!(child.reserve_spillable("sort").grow(15 << 20).is_err());
    assert!(child.reserve_spillable("sort").grow(14 << 20).is_ok());
}

/// However much a sort holds that could be written to files, other long statements start beside it, and short ones have
/// their part.
#[test]
fn beside_what_can_be_spilled_others_start() {
    for limit in (64_u64..2_048).step_by(61).chain([4_096, 16_384, 1 << 20]) {
        let pool = MemoryPool::new(limit << 20);
        let (working, short) = (pool.working(), pool.short());
        let started = working.reserve("statements");
        started.grow(pool.floor_of_statement()).unwrap();
        let sort = working.reserve_spillable("sort");
        let mut step = limit << 20;
        while step > 0 {
            while sort.grow(step).is_ok() {}
            step /= 2;
        }
        assert!(sort.bytes() >= (limit << 20) * 4 / 5, "a sort has {} of {limit} MiB", sort.bytes());
        for statement in 0..2 {
            assert!(started.grow(pool.floor_of_statement()).is_ok(), "statement {statement} at {limit} MiB");
        }
        let row = short.reserve("row versions");
        row.grow(short_of(limit << 20)).unwrap();
    }
}

#[test]
fn refuses_beyond_the_limit_and_says_why() {
    let pool = MemoryPool::new(1_000);
    let scan = pool.reserve("scan");
    scan.grow(700).unwrap();
    let join = pool.reserve("hash join");
    let refused = join.grow(301).unwrap_err();
    let expected = (("hash join", 301), (700, 1_000), RefusedBy::Limit);
    assert_eq!(((refused.consumer, refused.asked), (refused.used, refused.limit), refused.refused_by), expected);
    assert!(refused.to_string().contains("hash join asked for 301 bytes"), "{refused}");
    assert!(refused.to_string().contains("memory_limit"), "{refused}");
    join.grow(300).unwrap();
    assert_eq!(pool.by_consumer(), [("hash join", 300), ("scan", 700)]);
    drop(scan);
    assert_eq!((pool.used(), pool.peak()), (300, 1_000));
    assert!(join.grow(u64::MAX).is_err(), "an overflowing sum is beyond the limit");
    assert_eq!(pool.used(), 300);
    drop(join);
    assert_eq!(pool.used(), 0);
}

#[test]
fn what_is_only_counted_is_not_refused() {
    let pool = MemoryPool::new(16 << 20);
    pool.reserve("rows").grow(17 << 20).unwrap_err();
    let (rows, counted) = (pool.reserve("rows"), pool.counted());
    rows.grow(15 << 20).unwrap();
    pool.set_limit(1 << 20);
    let names = counted.reserve("names");
    names.grow(2 << 20).unwrap();
    assert_eq!((pool.used(), counted.used(), counted.limit()), (17 << 20, 2 << 20, u64::MAX));
    rows.grow(1).expect_err("others are refused as before");
    assert_eq!(pool.by_consumer(), [("names", 2 << 20), ("rows", 15 << 20)]);
    pool.working().counted().reserve("temporary files").grow(1 << 20).expect("whoever it works for");
    drop(names);
    assert_eq!((pool.used(), counted.used()), (15 << 20, 0));
}

#[test]
fn a_part_is_kept_for_what_gives_memory_back() {
    let pool = MemoryPool::new(16 << 20);
    assert_eq!(pool.kept(), 1 << 20);
    let rows = pool.reserve("rows");
    rows.grow(15 << 20).unwrap();
    let refused = rows.grow(1).unwrap_err();
    assert_eq!((refused.used, refused.limit), (15 << 20, 15 << 20));
    let deletes = pool.reserve_for_release("deletes");
    deletes.grow(1 << 20).unwrap();
    assert_eq!(deletes.grow(1).unwrap_err().limit, 16 << 20);
    rows.shrink(1 << 20);
    assert!(rows.grow(1).is_err(), "what deletes took is missing elsewhere");
    drop(deletes);
    rows.grow(1 << 20).unwrap();
    pool.set_limit(1 << 40);
    assert_eq!(pool.kept(), KEPT_BYTES_MAX);
}

/// Beyond the line of long statements, where rows fill all that they may have, and beyond the limit because of what is
/// only counted, short ones still get a little.
#[test]
fn short_statements_get_a_little_in_a_full_database() {
    let pool = MemoryPool::new(32 << 20);
    let (rows, short) = (pool.reserve("rows"), pool.short());
    rows.grow(30 << 20).unwrap();
    pool.working().reserve("sort").grow(1 << 20).unwrap_err();
    let results = short.reserve("results");
    results.grow(1 << 20).unwrap();
    results.grow(1).expect_err("of all short ones together");
    rows.grow(1).unwrap_err();
    let counted = pool.counted().reserve("files");
    counted.grow(8 << 20).unwrap();
    results.shrink(512 << 10);
    short.reserve("results of another").grow(512 << 10).unwrap();
    // Where there is room they may have it.
    drop(counted);
    rows.shrink(8 << 20);
    results.grow(4 << 20).unwrap();
}

/// Each long statement has a little that is its own, whatever rows and others hold.
#[test]
fn the_first_bytes_of_a_long_statement_are_given_in_a_full_database() {
    let pool = MemoryPool::new(32 << 20);
    let rows = pool.reserve("rows");
    rows.grow(30 << 20).unwrap();
    for _ in 0..4 {
        let working = pool.working();
        let (count, sort) = (working.reserve("aggregate"), working.reserve_spillable("sort"));
        count.grow(128 << 10).unwrap();
        sort.grow(128 << 10).unwrap();
        sort.grow(1).expect_err("beyond that as before");
        count.grow(1).unwrap_err();
    }
    let tiny = MemoryPool::new(1_000);
    tiny.reserve("rows").grow(1_000).unwrap();
    tiny.tighten(0, 0, u64::MAX);
    tiny.working().reserve("aggregate").grow(1).expect_err("a limit below which no database runs keeps nothing");
}

#[test]
fn a_statement_fails_at_its_own_limit_before_it_starves_others() {
    let database = MemoryPool::new(1_000);
    let statement = database.child(300);
    assert_eq!((statement.limit(), statement.kept()), (300, 0));
    let join = statement.reserve("hash join");
    join.grow(300).unwrap();
    let refused = join.grow(1).unwrap_err();
    let expected = (("hash join", 1), (300, 300), RefusedBy::Statement);
    assert_eq!(((refused.consumer, refused.asked), (refused.used, refused.limit), refused.refused_by), expected);
    assert!(refused.to_string().contains("300 of 300 bytes are in use; this is the limit of one"), "{refused}");
    // What it holds counts above, under its consumer's name.
    assert_eq!((database.used(), statement.used()), (300, 300));
    assert_eq!(database.by_consumer(), statement.by_consumer());
    let other = database.reserve("scan");
    other.grow(600).unwrap();
    // The limit above holds, too, and nothing stays counted below.
    let second = database.child(500);
    assert_eq!((second.limit(), second.peak()), (500, 0));
    let sort = second.reserve("sort");
    let refused = sort.grow(101).unwrap_err();
    assert_eq!((refused.consumer, refused.limit, refused.refused_by), ("sort", 1_000, RefusedBy::Limit));
    assert_eq!((second.used(), second.peak(), database.used()), (0, 0, 900));
    sort.grow(100).unwrap();
    drop((join, other));
    assert_eq!(database.by_consumer(), [("hash join", 0), ("scan", 0), ("sort", 100)]);
    drop(sort);
    assert_eq!((database.used(), second.used(), statement.used()), (0, 0, 0));
}

#[test]
fn a_tightened_limit_says_so_and_is_never_above_the_one_set() {
    let pool = MemoryPool::new(1_000);
    pool.tighten(600, 600, u64::MAX);
    assert_eq!((pool.limit(), pool.configured_limit()), (600, 1_000));
    let scan = pool.reserve("scan");
    let refused = scan.grow(601).unwrap_err();
    assert_eq!((refused.limit, refused.refused_by), (600, RefusedBy::Unaccounted));
    assert!(refused.to_string().contains("more than is accounted"), "{refused}");
    pool.tighten(5_000, 5_000, u64::MAX);
    assert_eq!(pool.limit(), 1_000);
    assert_eq!(scan.grow(1_001).unwrap_err().refused_by, RefusedBy::Limit);
}

#[test]
fn threads_never_pass_the_limit_together_and_return_to_zero() {
    let pool = MemoryPool::new(10_000);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                let mut random = SeededRandom::new(seed);
                let reservation = pool.reserve(if seed % 2 == 0 { "even" } else { "odd" });
                for _ in 0..20_000 {
                    if random.chance(0.5) {
                        let _ = reservation.grow(random.below(4_000));
                    } else {
                        reservation.shrink(random.below(reservation.bytes() + 1));
                    }
                }
            });
        }
    });
    assert_eq!(pool.used(), 0);
    assert!(pool.peak() <= 10_000, "peak {}", pool.peak());
    assert_eq!(pool.by_consumer(), [("even", 0), ("odd", 0)]);
}

#[test]
#[should_panic(expected = "gives back 2 of 1")]
fn giving_back_more_than_held_is_a_bug() {
    let pool = MemoryPool::unlimited();
    let reservation = pool.reserve("test");
    reservation.grow(1).unwrap();
    reservation.shrink(2);
}

#[test]
fn what_is_split_off_stays_reserved_and_goes_back_once() {
    let pool = MemoryPool::new(1_000);
    let child = pool.child(1_000);
    let whole = child.reserve("rows");
    whole.grow(900).unwrap();
    let part = whole.split(600);
    assert_eq!((whole.bytes(), part.bytes(), part.consumer()), (300, 600, "rows"));
    assert_eq!((pool.used(), child.used(), pool.peak()), (900, 900, 900));
    assert!(part.grow(200).is_err(), "what was split off has the same limit");
    drop(whole);
    assert_eq!((pool.used(), pool.by_consumer()), (600, vec![("rows", 600)]));
    drop(part);
    assert_eq!((pool.used(), child.used()), (0, 0));
}

#[test]
#[should_panic(expected = "hands over 2 of 1")]
fn splitting_off_more_than_held_is_a_bug() {
    let pool = MemoryPool::unlimited();
    let reservation = pool.reserve("test");
    reservation.grow(1).unwrap();
    drop(reservation.split(2));
}

#[test]
fn one_store_at_a_time_moves_rows_without_room() {
    let pool = MemoryPool::new(16 << 20);
    let (one, other) = (pool.of_store(), pool.of_store());
    let (rows, moved) = (one.reserve("rows"), other.reserve("rows"));
    rows.grow(8 << 20).unwrap();
    // The process holds more than is accounted.
    pool.tighten(8 << 20, 16 << 20, u64::MAX);
    let mover = other.move_without_room().unwrap();
    assert!(one.move_without_room().is_none() && other.move_without_room().is_none(), "there is one");
    assert!(moved.grow(1 << 20).is_err(), "it does not move anything yet");
    let moving = mover.moving();
    moved.grow(1 << 20).unwrap();
    assert!(rows.grow(1).is_err(), "others are refused as before");
    assert!(moved.grow(8 << 20).is_err(), "the limit as it was set holds");
    drop(moving);
    assert!(moved.grow(1).is_err(), "it has moved what it had to");
    drop(mover);
    assert_eq!(pool.moves(), 0, "a mover that moved nothing does not count");
    let mut mover = one.move_without_room().unwrap();
    assert!(pool.move_without_room().is_none(), "it is no store");
    mover.note_moved();
    drop(mover);
    assert_eq!((pool.moves(), one.moves(), other.moves()), (1, 1, 1));
}
