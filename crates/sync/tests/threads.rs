//! The pieces under real threads: what loom cannot explore for size, by sheer number.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use eris_sync::{Claimed, Counter, DoubleBuffer, Drain, Full, RawTryLatch, Sleepers, TryLatch, WatermarkRing};

/// Xorshift, enough to vary sizes.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A message: length in bytes, writer, number, then bytes that follow from those.
fn message(writer: u64, number: u64, payload: u64) -> Vec<u8> {
    let header = [24 + payload, writer, number].map(u64::to_le_bytes).concat();
    let body = (0..payload).map(|index| (writer * 31 + number * 7 + index) as u8);
    header.into_iter().chain(body).collect()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(*bytes[8 * index..].first_chunk().unwrap_or_else(|| panic!("half a word")))
}

/// Four writers and an owner: everything arrives once, whole, aligned, and each writer's in order.
#[test]
fn double_buffer_delivers_under_load() {
    const WRITERS: u64 = 4;
    const MESSAGES: u64 = 20_000;
    for capacity in [64, 512, 1 << 16] {
        let (producer, mut consumer) = DoubleBuffer::new(capacity);
        let refused = AtomicU64::new(0);
        let mut next = [0; WRITERS as usize];
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (producer, refused) = (producer.clone(), &refused);
                scope.spawn(move || {
                    let mut random = Random(writer + 1);
                    for number in 0..MESSAGES {
                        let message = message(writer, number, random.below(capacity as u64 - 24 + 1).min(200));
                        let (first, second) = message.split_at(random.below(message.len() as u64) as usize);
                        while producer.append_parts(&[first, &[], second]).is_err() {
                            refused.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                        }
                    }
                });
            }
            while next.iter().sum::<u64>() < WRITERS * MESSAGES {
                let drained = consumer.try_drain(|mut bytes| {
                    assert_eq!(bytes.as_ptr().addr() % 8, 0);
                    while !bytes.is_empty() {
                        let (length, writer, number) = (word(bytes, 0), word(bytes, 1), word(bytes, 2));
                        assert_eq!(number, next[writer as usize], "a message of writer {writer} is missing or late");
                        next[writer as usize] += 1;
                        let (found, rest) = bytes.split_at((length as usize).next_multiple_of(8));
                        let mut expected = message(writer, number, length - 24);
                        expected.resize(found.len(), 0);
                        assert_eq!(found, expected, "a message was damaged");
                        bytes = rest;
                    }
                });
                if !matches!(drained, Drain::Drained(_)) {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(consumer.try_drain(|_| panic!("something is left")), Drain::Empty);
        if capacity == 64 {
            assert!(refused.into_inner() > 0, "the small buffer was never full");
        }
    }
}

#[test]
fn double_buffer_refuses_what_does_not_fit_and_recovers() {
    let (producer, mut consumer) = DoubleBuffer::new(32);
    assert_eq!(consumer.try_drain(|_| panic!("nothing was appended")), Drain::Empty);
    let too_large = producer.append(&[1; 33]).unwrap_err();
    assert!(too_large.is_too_large());
    assert_eq!(too_large.to_string(), "33 bytes do not fit into a buffer of 32 bytes");
    producer.append(&[]).unwrap();
    assert!(!consumer.has_work());
    producer.append(&[1; 9]).unwrap();
    producer.append(&[2; 16]).unwrap();
    let full = Full { asked_bytes: 1, capacity_bytes: 32 };
    assert_eq!(producer.append(&[3]), Err(full));
    assert!(!full.is_too_large());
    assert!(consumer.has_work());
    let mut taken = Vec::new();
    assert_eq!(consumer.try_drain(|bytes| taken.extend_from_slice(bytes)), Drain::Drained(32));
    assert_eq!(taken, [&[1; 9][..], &[0; 7], &[2; 16]].concat());
    assert!(!consumer.has_work());
    producer.append(&[4; 32]).unwrap();
    assert_eq!(consumer.try_drain(|bytes| assert_eq!(bytes, [4; 32])), Drain::Drained(32));
}

/// A handler that panics loses the bytes it was given and nothing else.
#[test]
fn double_buffer_survives_a_panicking_handler() {
    let (producer, mut consumer) = DoubleBuffer::new(32);
    producer.append(&[1]).unwrap();
    let handled =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| consumer.try_drain(|_| panic!("on purpose"))));
    assert!(handled.is_err());
    assert_eq!(consumer.try_drain(|_| panic!("handed over twice")), Drain::Empty);
    for round in 0..10 {
        producer.append(&[round; 32]).unwrap();
        assert_eq!(consumer.try_drain(|bytes| assert_eq!(bytes, [round; 32])), Drain::Drained(32));
    }
}

#[test]
fn try_latch_excludes() {
    let latch = TryLatch::new((0_u64, 0_u64));
    let raised = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    if let Some(mut pair) = latch.try_lock() {
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                        raised.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(latch.try_lock().unwrap().0, raised.into_inner());
    let held = latch.try_lock().unwrap();
    assert!(latch.try_lock().is_none() && latch.is_locked());
    drop(held);
    assert!(!latch.is_locked());
}

#[test]
#[should_panic(expected = "nobody holds")]
fn a_latch_is_released_by_its_holder_only() {
    // SAFETY: not upheld, on purpose; nothing is protected by this latch.
    unsafe { RawTryLatch::new().unlock() };
}

/// Workers that really block, and work that is really published: the test ends only if no wake-up is lost.
#[test]
fn sleepers_wake_whoever_has_work() {
    const WORKERS: usize = 3;
    const ROUNDS: u64 = 30_000;
    let sleepers = Sleepers::new(WORKERS);
    let work: Vec<AtomicU64> = (0..WORKERS).map(|_| AtomicU64::new(0)).collect();
    let done: Vec<AtomicU64> = (0..WORKERS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (sleepers, work, done) = (&sleepers, &work, &done);
                scope.spawn(move || {
                    while done[worker].load(Ordering::Relaxed) < ROUNDS {
                        let taken = work[worker].swap(0, Ordering::Relaxed);
                        done[worker].fetch_add(taken, Ordering::Relaxed);
                        if taken == 0 {
                            sleepers.announce(worker);
                            if work[worker].load(Ordering::Relaxed) == 0
                                && done[worker].load(Ordering::Relaxed) < ROUNDS
                            {
                                thread::park();
                            }
                            sleepers.retract(worker);
                        }
                    }
                })
            })
            .map(|handle| handle.thread().clone())
            .collect();
        let mut random = Random(9);
        for round in 0..ROUNDS {
            for worker in 0..WORKERS {
                work[worker].fetch_add(1, Ordering::Relaxed);
                if sleepers.claim(worker) {
                    threads[worker].unpark();
                }
            }
            if round % 64 == random.below(64) {
                thread::yield_now();
            }
        }
    });
    assert_eq!(done.iter().map(|done| done.load(Ordering::Relaxed)).collect::<Vec<_>>(), [ROUNDS; WORKERS]);
}

#[test]
fn one_worker_watches_and_is_claimed_first() {
    let sleepers = Sleepers::new(3);
    sleepers.announce(0);
    assert!(sleepers.watch(2) && sleepers.watch(2) && !sleepers.watch(1));
    assert_eq!([sleepers.claim_one(), sleepers.claim_one()], [Some(Claimed::Watcher), Some(Claimed::Sleeper(0))]);
    sleepers.stop_watching(2);
    assert!(sleepers.watch(1));
    sleepers.stop_watching(2);
    assert!(!sleepers.watch(0), "one that does not watch ends no other's watch");
    sleepers.stop_watching(1);
    assert_eq!((sleepers.claim_one(), sleepers.claims()), (None, 1));
}

#[test]
fn sleepers_are_claimed_from_the_lowest_within_the_range() {
    let sleepers = Sleepers::new(200);
    assert_eq!(sleepers.claim_one(), None);
    for worker in [3, 63, 64, 130, 199] {
        sleepers.announce(worker);
    }
    assert_eq!(sleepers.asleep(), 5);
    assert_eq!(sleepers.claim_one_of(4..63), None);
    assert_eq!(sleepers.claim_one_of(4..64), Some(63));
    assert_eq!(sleepers.claim_one_of(65..130), None);
    assert_eq!(sleepers.claim_one_of(65..131), Some(130));
    assert_eq!(sleepers.claim_one_of(10..10), None);
    assert!(sleepers.claim(64) && !sleepers.claim(64) && !sleepers.retract(64));
    assert!(sleepers.is_asleep(199) && !sleepers.is_asleep(0));
    let claimed = [sleepers.claim_one(), sleepers.claim_one(), sleepers.claim_one()];
    assert_eq!(claimed, [Some(Claimed::Sleeper(3)), Some(Claimed::Sleeper(199)), None]);
    assert_eq!((sleepers.claims(), sleepers.asleep()), (5, 0));
}

#[test]
fn counter_sums_all_shards() {
    let counter = Counter::new(3);
    thread::scope(|scope| {
        for worker in 0..3 {
            let counter = &counter;
            scope.spawn(move || (0..10_000).for_each(|_| counter.add(worker, 2)));
            scope.spawn(move || (0..10_000).for_each(|_| counter.add_shared(1)));
        }
    });
    assert_eq!((counter.sum(), counter.of(1)), (90_000, 20_000));
}

/// Many take and finish in random order; the watermark never falls, never passes an open timestamp, and ends at the
/// last.
#[test]
fn watermark_follows_the_lowest_open_timestamp() {
    const THREADS: u64 = 4;
    let ring = WatermarkRing::new(64, 1_000);
    let open: Vec<AtomicBool> = (0..64).map(|_| AtomicBool::new(false)).collect();
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (ring, open) = (&ring, &open);
            scope.spawn(move || {
                let mut random = Random(seed + 77);
                let mut mine = Vec::new();
                let mut seen = 0;
                for _ in 0..50_000 {
                    if let Some(timestamp) = ring.take() {
                        open[timestamp as usize % 64].store(true, Ordering::SeqCst);
                        mine.push(timestamp);
                    }
                    if mine.len() > 3 || random.below(2) == 0 {
                        if mine.is_empty() {
                            continue;
                        }
                        let timestamp = mine.swap_remove(random.below(mine.len() as u64) as usize);
                        let visible = ring.visible();
                        assert!(visible < timestamp, "the watermark {visible} passed the open {timestamp}");
                        assert!(visible >= seen, "the watermark fell");
                        seen = visible;
                        assert!(open[timestamp as usize % 64].swap(false, Ordering::SeqCst), "a slot has two owners");
                        ring.finish(timestamp);
                    }
                }
                for timestamp in mine {
                    assert!(open[timestamp as usize % 64].swap(false, Ordering::SeqCst), "a slot has two owners");
                    ring.finish(timestamp);
                }
            });
        }
    });
    assert_eq!(ring.visible(), ring.taken());
    assert!(ring.taken() > 2_000);
}

#[test]
#[should_panic(expected = "not in flight")]
fn a_timestamp_is_finished_once() {
    let ring = WatermarkRing::new(2, 0);
    let timestamp = ring.take().unwrap();
    ring.finish(timestamp);
    ring.finish(timestamp);
}
