//! Upserts and lookups over the size of the index (004, section 3.3, figure 3.11), for each kind of index and for one
//! table that all threads write with atomic instructions.
//!
//! ```text
//!   domain   0 1 2 3 4 5 ...  2n-1     about half of the keys are loaded: n pairs before the first upsert
//!   task t   of T tasks writes keys whose remainder by T is t: no task waits for a row of another
//! ```
//! A run has two phases. First tasks upsert random keys of the domain, 1,000 draws to a transaction: keys that are
//! there get a new value, the others are inserted. Then tasks look up random keys that are there. What was upserted
//! follows from the seed and the number of transactions of each task, so every value is checked, and so is the sum over
//! the store.

mod client;
mod report;

use crate::kv::value_of;
use eris_platform::SeededRandom;

pub use client::{Upserted, Upserter, load, look_up, upsert};
pub use report::{IndexSizeReport, SizeReport, SizeStep, run};

/// Draws of one transaction, of upserts and of lookups.
pub const DRAWS_PER_TRANSACTION: usize = 1_000;

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexSizeOptions {
    /// Pairs that are loaded, about: the steps, one run each.
    pub sizes: Vec<u64>,
    /// Of each phase of each step.
    pub seconds: f64,
    pub workers: usize,
    pub partitions: usize,
    pub tasks_per_worker: usize,
    pub memory_limit_bytes: u64,
    pub seed: u64,
}

impl Default for IndexSizeOptions {
    fn default() -> Self {
        Self {
            sizes: vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            seconds: 2.0,
            workers: 2,
            partitions: 2,
            tasks_per_worker: 4,
            memory_limit_bytes: 8 << 30,
            seed: 1,
        }
    }
}

impl IndexSizeOptions {
    pub fn tasks(&self) -> usize {
        self.workers * self.tasks_per_worker
    }
}

/// Whether a key is there before the first upsert.
#[inline]
pub fn is_loaded(key: i64) -> bool {
    value_of(key) & 1 == 0
}

/// The value that an upsert writes: not the one that is loaded.
#[inline]
pub fn upserted_value_of(key: i64) -> i64 {
    !value_of(key)
}

/// The keys of one task, drawn at random.
#[derive(Debug, Clone)]
pub struct Draws {
    task: u64,
    tasks: u64,
    keys: u64,
    random: SeededRandom,
}

impl Draws {
    /// Of task `task` of `tasks`, from the keys below `domain`.
    ///
    /// # Panics
    /// If there are fewer keys than tasks.
    pub fn new(domain: u64, task: usize, tasks: usize, seed: u64) -> Self {
        let (task, tasks) = (task as u64, tasks as u64);
        assert!(task < tasks && tasks <= domain, "each task has a key");
        let keys = (domain - task).div_ceil(tasks);
        Self { task, tasks, keys, random: SeededRandom::new(seed.wrapping_mul(1_000_003).wrapping_add(task)) }
    }

    /// The keys of one transaction, each once.
    pub fn next_keys(&mut self) -> Vec<i64> {
        let draw = |_| (self.random.below(self.keys) * self.tasks + self.task) as i64;
        let mut keys: Vec<i64> = (0..DRAWS_PER_TRANSACTION).map(draw).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// What a store holds after its upserts.
#[derive(Debug, Clone)]
pub struct Expected {
    domain: u64,
    /// A bit for each key.
    upserted: Vec<u64>,
}

impl Expected {
    /// Repeats what each task drew for its transactions.
    pub fn after(domain: u64, transactions: &[u64], seed: u64) -> Self {
        let mut upserted = vec![0; domain.div_ceil(64) as usize];
        for (task, count) in transactions.iter().enumerate() {
            let mut draws = Draws::new(domain, task, transactions.len(), seed);
            for key in (0..*count).flat_map(|_| draws.next_keys()) {
                upserted[key as usize / 64] |= 1 << (key % 64);
            }
        }
        Self { domain, upserted }
    }

    fn is_upserted(&self, key: i64) -> bool {
        self.upserted[key as usize / 64] & 1 << (key % 64) != 0
    }

    /// The value of a key, if it is there.
    #[inline]
    pub fn value(&self, key: i64) -> Option<i64> {
        if self.is_upserted(key) { Some(upserted_value_of(key)) } else { is_loaded(key).then(|| value_of(key)) }
    }

    /// How many pairs there are, and the sum of their values.
    pub fn sum(&self) -> (u64, i64) {
        let values = (0..self.domain as i64).filter_map(|key| self.value(key));
        values.fold((0, 0), |(pairs, sum), value| (pairs + 1, i64::wrapping_add(sum, value)))
    }

    /// A key that is there.
    pub fn draw(&self, random: &mut SeededRandom) -> i64 {
        loop {
            let key = random.below(self.domain) as i64;
            if self.value(key).is_some() {
                return key;
            }
        }
    }
}
