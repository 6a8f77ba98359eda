//! All interleavings of few writers and the owner.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_double_buffer` for NAME in
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

/// What a thread of the model ends with.
enum Ended {
    Writer(Vec<u64>),
    Owner(Owner),
}

type Body = Box<dyn FnOnce() -> Ended + Send>;
/// Appends, and returns the words that were accepted.
type Writer = fn(&Producer) -> Vec<u64>;

/// Runs the writers and an owner that drains `drains` times beside them, then drains the rest. What arrived is what was
/// accepted, in each writer's order.
fn deliver(capacity: usize, drains: usize, writers: &[Writer], owner_first: bool) -> (Vec<u64>, Producer, Owner) {
    let (producer, consumer) = DoubleBuffer::new(capacity);
    let mut threads: Vec<Body> = Vec::new();
    for &writer in writers {
        let producer = producer.clone();
        threads.push(Box::new(move || Ended::Writer(writer(&producer))));
    }
    let owner: Body = Box::new(move || {
        let mut owner = Owner { consumer, words: Vec::new() };
        for _ in 0..drains {
            owner.drain();
        }
        Ended::Owner(owner)
    });
    threads.insert(if owner_first { 0 } else { writers.len() }, owner);
    let (mut accepted, mut owner) = (Vec::new(), None);
    for ended in run(threads) {
        match ended {
            Ended::Writer(words) => accepted.push(words),
            Ended::Owner(ended) => owner = Some(ended),
        }
    }
    let mut owner = owner.unwrap();
    // At most one half is retired and one active.
    owner.drain();
    owner.drain();
    assert!(!owner.consumer.has_work());
    assert_eq!(owner.drain(), Drain::Empty);
    let arrived = std::mem::take(&mut owner.words);
    for words in &accepted {
        let theirs: Vec<u64> = arrived.iter().copied().filter(|word| words.contains(word)).collect();
        assert_eq!(&theirs, words, "{accepted:?} were accepted, and {arrived:?} arrived");
    }
    assert_eq!(arrived.len(), accepted.concat().len(), "{accepted:?} were accepted, and {arrived:?} arrived");
    (arrived, producer, owner)
}

fn append(producer: &Producer, words: &[u64]) -> bool {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let (first, second) = bytes.split_at(3);
    producer.append_parts(&[first, second]).is_ok()
}

/// Two writers, and an owner that drains meanwhile: everything arrives once, each writer's in order.
#[test]
fn loom_double_buffer_hands_over_everything_once() {
    fn one_two(producer: &Producer) -> Vec<u64> {
        assert!(append(producer, &[1]) && append(producer, &[2]));
        vec![1, 2]
    }
    fn three(producer: &Producer) -> Vec<u64> {
        assert!(append(producer, &[3]));
        vec![3]
    }
    explore(|owner_first| {
        deliver(32, 2, &[one_two, three], owner_first);
    });
}

/// A half is written again after it was drained: the owner's reads come before.
#[test]
fn loom_double_buffer_reuses_a_half_only_when_it_is_empty() {
    fn one_to_three(producer: &Producer) -> Vec<u64> {
        (1..=3).for_each(|word| assert!(append(producer, &[word])));
        vec![1, 2, 3]
    }
    explore(|owner_first| {
        deliver(24, 3, &[one_to_three], owner_first);
    });
}

/// Appends that do not fit fail without a trace, whoever else is under way.
#[test]
fn loom_double_buffer_undoes_overflow() {
    fn small(producer: &Producer) -> Vec<u64> {
        [1, 2].into_iter().filter(|&word| append(producer, &[word])).collect()
    }
    fn large(producer: &Producer) -> Vec<u64> {
        if append(producer, &[3, 4]) { vec![3, 4] } else { Vec::new() }
    }
    explore(|owner_first| {
        let (arrived, producer, mut owner) = deliver(16, 1, &[small, large], owner_first);
        assert!(!arrived.is_empty(), "one of them fits");
        // Nothing is left over from the failure: a full half fits again, twice.
        for _ in 0..2 {
            assert!(append(&producer, &[7, 7]));
            assert_eq!(owner.drain(), Drain::Drained(16));
        }
    });
}
