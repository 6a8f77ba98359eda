//! All interleavings of few writers and the owner.
//!
//! Must fail when weakened:
//! `RUSTFLAGS='--cfg loom --cfg loom_weak="NAME"' cargo test -p eris-sync --release loom_double_buffer` for NAME in
//! `double_buffer_reserve`, `double_buffer_leave`, `double_buffer_retire`, `double_buffer_collect`.
#![cfg(loom)]

mod explore;

use eris_sync::{Consumer, DoubleBuffer, Drain, Producer};
use explore::{explore, run};

/// What a consumer has taken.
struct Owner {
    consumer: Consumer,
    words: Vec<u64>,
}

impl Owner {
    fn drain(&mut self) -> Drain {
        let words = &mut self.words;
        self.consumer.try_drain(|bytes| {
            words.extend(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())));
        })
    }
}

/// Runs the writers and an owner that drains `drains` times beside them, then drains the rest. Returns what
/// arrived and the producer.
fn deliver(
    capacity: usize,
    drains: usize,
    writers: &[fn(&Producer)],
    owner_first: bool,
) -> (Vec<u64>, Producer, Owner) {
    let (producer, consumer) = DoubleBuffer::new(capacity);
    let mut threads: Vec<Box<dyn FnOnce() -> Option<Owner> + Send>> = Vec::new();
    for &writer in writers {
        let producer = producer.clone();
        threads.push(Box::new(move || {
            writer(&producer);
            None
        }));
    }
    let owner: Box<dyn FnOnce() -> Option<Owner> + Send> = Box::new(move || {
        let mut owner = Owner { consumer, words: Vec::new() };
        for _ in 0..drains {
            owner.drain();
        }
        Some(owner)
    });
    threads.insert(if owner_first { 0 } else { writers.len() }, owner);
    let mut owner = run(threads).into_iter().flatten().next().unwrap();
    // At most one half is retired and one active.
    owner.drain();
    owner.drain();
    assert!(!owner.consumer.has_work());
    assert_eq!(owner.drain(), Drain::Empty);
    (std::mem::take(&mut owner.words), producer, owner)
}

/// Two writers, and an owner that drains meanwhile: everything arrives once, each writer's in order.
#[test]
fn loom_double_buffer_hands_over_everything_once() {
    fn one_two(producer: &Producer) {
        producer.append(&1_u64.to_ne_bytes()).unwrap();
        producer.append(&2_u64.to_ne_bytes()).unwrap();
    }
    fn three(producer: &Producer) {
        producer.append_parts(&[&3_u64.to_ne_bytes()[..4], &3_u64.to_ne_bytes()[4..]]).unwrap();
    }
    explore(|owner_first| {
        let (words, ..) = deliver(32, 2, &[one_two, three], owner_first);
        let position = |word| words.iter().position(|&other| other == word).unwrap();
        assert!(position(1) < position(2), "one writer's appends changed places: {words:?}");
        position(3);
        assert_eq!(words.len(), 3, "something arrived twice: {words:?}");
    });
}

/// A half is written again after it was drained: the owner's reads come before.
#[test]
fn loom_double_buffer_reuses_a_half_only_when_it_is_empty() {
    fn one_to_three(producer: &Producer) {
        for word in 1..=3_u64 {
            producer.append(&word.to_ne_bytes()).unwrap();
        }
    }
    explore(|owner_first| {
        let (words, ..) = deliver(24, 3, &[one_to_three], owner_first);
        assert_eq!(words, [1, 2, 3]);
    });
}

/// Appends that do not fit fail without a trace, whoever else is under way.
#[test]
fn loom_double_buffer_undoes_overflow() {
    fn small(producer: &Producer) {
        let _ = producer.append(&1_u64.to_ne_bytes());
        let _ = producer.append(&1_u64.to_ne_bytes());
    }
    fn large(producer: &Producer) {
        let _ = producer.append(&2_u64.to_ne_bytes().repeat(2));
    }
    explore(|owner_first| {
        let (words, producer, mut owner) = deliver(16, 1, &[small, large], owner_first);
        let ones = words.iter().filter(|&&word| word == 1).count();
        let twos = words.iter().filter(|&&word| word == 2).count();
        assert!(ones <= 2 && (twos == 0 || twos == 2) && ones + twos == words.len(), "{words:?}");
        assert!(ones + twos > 0, "one of them fits");
        // Nothing is left over from the failure: a full half fits again, twice.
        for _ in 0..2 {
            producer.append(&[7; 16]).unwrap();
            assert_eq!(owner.drain(), Drain::Drained(16));
        }
    });
}
