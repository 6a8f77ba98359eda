//! Counters that each worker raises without sharing, and readers sum.

use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::AtomicU64;

/// A number that only grows. Each worker has a shard on a cache line of its own; one more takes what others count.
pub struct Counter {
    shards: Box<[Line<AtomicU64>]>,
}

impl Counter {
    /// For workers `0..workers`.
    pub fn new(workers: usize) -> Counter {
        Counter { shards: (0..=workers).map(|_| Line(AtomicU64::new(0))).collect() }
    }

    /// Adds to the shard of `worker`; called by that worker's thread only (two threads in one shard would lose counts,
    /// so anybody else calls [`add_shared`](Self::add_shared)).
    #[inline]
    pub fn add(&self, worker: usize, amount: u64) {
        assert!(worker < self.shards.len() - 1, "worker {worker} has no shard");
        let shard = &self.shards[worker];
        // No read-modify-write: there is one writer.
        shard.store(shard.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds from a thread that is no worker.
    pub fn add_shared(&self, amount: u64) {
        self.shards[self.shards.len() - 1].fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum. Not a moment's snapshot, but every later sum of the same reader is at least as large.
    pub fn sum(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.load(Ordering::Relaxed)))
    }

    /// What `worker` counted.
    pub fn of(&self, worker: usize) -> u64 {
        assert!(worker < self.shards.len() - 1, "worker {worker} has no shard");
        self.shards[worker].load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Counter({})", self.sum())
    }
}
