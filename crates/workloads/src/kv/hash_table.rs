//! Baseline *shared*: one structure without partitions that all threads read, as a transaction-oriented system would
//! have it. Lookups go through an open-addressed hash table of atomic words, scans over one array of keys.
//!
//! ```text
//!   slot = high bits of key * constant     | key + 1 | value |   key + 1 = 0: empty, ends a search
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use eris_engine::Coalescing;
use eris_platform::SeededRandom;

use super::driver::Run;
use super::limit::on_threads;
use super::options::{Access, KvError, KvOptions};
use super::processor::spent_while;
use super::{LOOKUPS_PER_TRANSACTION, value_of};

/// See the module's documentation.
#[derive(Debug)]
pub struct SharedStore {
    pairs: u64,
    /// Two words a pair. At most two thirds are taken.
    slots: Vec<[AtomicU64; 2]>,
    shift: u32,
    access: Access,
}

impl SharedStore {
    /// A table with room for the keys below `pairs`; for scans an array in the order of keys.
    pub fn empty(pairs: u64, access: Access) -> Self {
        let slots = match access {
            Access::Index | Access::OrderedIndex => (pairs + pairs / 2).next_power_of_two().max(2),
            Access::Scan => pairs,
        };
        let mut table = Vec::new();
        table.resize_with(slots as usize, || [AtomicU64::new(0), AtomicU64::new(0)]);
        Self { pairs, shift: 64 - slots.ilog2(), slots: table, access }
    }

    /// Fills a table with all pairs.
    pub fn load(pairs: u64, access: Access) -> Self {
        let store = Self::empty(pairs, access);
        for key in 0..pairs as i64 {
            store.upsert(key, value_of(key));
        }
        store
    }

    /// Writes the value of a key below `pairs` and returns whether the key is new. A thread that reads the key while it
    /// is entered may see the value 0: the benchmarks read what is there.
    #[inline]
    pub fn upsert(&self, key: i64, value: i64) -> bool {
        let wanted = key as u64 + 1;
        let mut slot = if self.access == Access::Scan { key as usize } else { self.slot_of(key) };
        loop {
            let [taken, place] = &self.slots[slot];
            let before = match taken.load(Ordering::Acquire) {
                0 => match taken.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(before) | Err(before) => before,
                },
                before => before,
            };
            if before == 0 || before == wanted {
                place.store(value as u64, Ordering::Release);
                return before == 0;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.slots.len() as u64 * 16
    }

    #[inline]
    fn slot_of(&self, key: i64) -> usize {
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: i64) -> Option<i64> {
        let wanted = key as u64 + 1;
        let mut slot = self.slot_of(key);
        loop {
            let [key, value] = &self.slots[slot];
            match key.load(Ordering::Acquire) {
                0 => return None,
                found if found == wanted => return Some(value.load(Ordering::Relaxed) as i64),
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Finds the values of keys by one scan, or by one for each key.
    fn scan(&self, keys: &[i64], coalescing: Coalescing, mut found: impl FnMut(i64, i64)) {
        if coalescing == Coalescing::None {
            for key in keys {
                for [other, value] in &self.slots {
                    if other.load(Ordering::Relaxed) == *key as u64 + 1 {
                        found(*key, value.load(Ordering::Relaxed) as i64);
                    }
                }
            }
            return;
        }
        let mut sorted: Vec<u64> = keys.iter().map(|key| *key as u64 + 1).collect();
        sorted.sort_unstable();
        for [other, value] in &self.slots {
            let key = other.load(Ordering::Relaxed);
            let first = sorted.partition_point(|wanted| *wanted < key);
            for _ in sorted[first..].iter().take_while(|wanted| **wanted == key) {
                found(key as i64 - 1, value.load(Ordering::Relaxed) as i64);
            }
        }
    }

    /// One transaction: finds and checks keys that exist; gives the sum of their values.
    pub(super) fn look_up_checked(&self, keys: &[i64], coalescing: Coalescing) -> Result<i64, KvError> {
        let (mut count, mut wrong, mut sum) = (0, false, 0_i64);
        let mut check = |key: i64, value: i64| {
            wrong |= value_of(key) != value;
            sum = sum.wrapping_add(value);
            count += 1;
        };
        match self.access {
            Access::Index | Access::OrderedIndex => {
                for key in keys {
                    if let Some(value) = self.get(*key) {
                        check(*key, value);
                    }
                }
            }
            Access::Scan => self.scan(keys, coalescing, &mut check),
        }
        if wrong || count != keys.len() {
            return Err(KvError::WrongAnswer(format!("{count} of {} keys are found, one wrong: {wrong}", keys.len())));
        }
        Ok(sum)
    }

    /// The keys that a thread looks up. Nothing is at home anywhere here, but threads of a node have the same keys as
    /// where they are partitioned.
    fn keys_for(&self, thread: usize, options: &KvOptions) -> Range<u64> {
        let nodes = options.nodes;
        let share = |node: usize| (u128::from(self.pairs) * node as u128 / nodes as u128) as u64;
        let home = options.locality.home(thread * nodes / options.workers, nodes);
        home.map_or(0..self.pairs, |home| share(home)..share(home + 1))
    }

    /// Lookups of all threads within the measured time.
    fn count_lookups(&self, options: &KvOptions, begin: Instant, failure: &Mutex<Option<KvError>>) -> f64 {
        let end = begin + Duration::from_secs_f64(options.seconds);
        on_threads(options.workers, |thread| {
            let mut random = SeededRandom::new(options.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64));
            let own = self.keys_for(thread, options);
            let mut lookups = 0_u32;
            while Instant::now() < end {
                let key = |_| (own.start + random.below(own.end - own.start)) as i64;
                let keys: Vec<i64> = (0..LOOKUPS_PER_TRANSACTION).map(key).collect();
                if let Err(error) = self.look_up_checked(&keys, options.coalescing) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    break;
                }
                let now = Instant::now();
                lookups += u32::from(now >= begin && now < end);
            }
            f64::from(lookups) * LOOKUPS_PER_TRANSACTION as f64
        })
    }

    /// As many threads as workers, each with transactions of 1,000 lookups, until the time is over.
    pub fn drive(&self, options: &KvOptions) -> Result<Run, KvError> {
        let measured = Duration::from_secs_f64(options.seconds);
        let begin = Instant::now() + Duration::from_secs_f64(options.warm_up_seconds);
        let failure = Mutex::new(None);
        let (lookups, processor) = std::thread::scope(|scope| {
            let watching = scope.spawn(move || spent_while(begin.saturating_duration_since(Instant::now()), measured));
            let lookups = self.count_lookups(options, begin, &failure);
            (lookups, watching.join().ok().flatten())
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(Run { lookups: lookups as u64, measured, processor }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Locality;
    use super::*;

    #[test]
    fn threads_of_a_node_share_its_keys() {
        let store = SharedStore::empty(10, Access::Index);
        let keys = |locality| {
            let options = KvOptions { nodes: 3, workers: 6, locality, ..KvOptions::default() };
            [0, 1, 2, 3, 4, 5].map(|thread| store.keys_for(thread, &options))
        };
        assert_eq!(keys(Locality::Local), [0..3, 0..3, 3..6, 3..6, 6..10, 6..10]);
        assert_eq!(keys(Locality::Shifted), [3..6, 3..6, 6..10, 6..10, 0..3, 0..3]);
        assert_eq!(keys(Locality::Random), [const { 0..10 }; 6]);
    }
}
