//! A hash table of (key, handle) pairs that grows a bucket at a time: extendible hashing.
//!
//! ```text
//! directory (by the first bits of the hash)     buckets (arrays in hash order, see hash_bucket.rs)
//!   00 ──────────────> bucket 0, 2 bits           spilled: a tree of pairs, ordered alike, for what no bucket
//!   01 ──────────────> bucket 3, 2 bits                    can take
//!   10 ─┬────────────> bucket 1, 1 bit
//!   11 ─┘
//! ```
//! * A full bucket grows by a quarter; one at the maximum splits in two by the next bit of the hash. Either touches one
//!   bucket of at most 32 KiB of keys. Only the directory is ever copied as a whole: four bytes for thousands of pairs.
//! * Because buckets divide the hashes by their leading bits and lie in hash order inside, the whole table is in the
//!   order of (key, handle), keys being ordered by hash: a walk can stop anywhere and go on later, whatever grew,
//!   split or was removed meanwhile.
//! * What splitting cannot help goes to the tree: more than a few pairs with one key, and buckets whose hashes agree in
//!   so many bits that the directory would become much larger than the pairs ask for (keys chosen to collide).
//!
//! Memory is reserved before it is taken; a refused insert leaves the table as it was.

use super::btree::{Placed, Position, Tree};
use super::hash_bucket::{Bucket, Hashed, Plan, prefetch};
use eris_platform::memory::{MemoryExceeded, MemoryPool, Reservation};
use std::borrow::Cow;
use std::sync::Arc;

/// Keys of a bucket take at most this many bytes: a bucket that grows or splits is copied in about ten microseconds, a
/// small part of a quantum, and ten million keys need few enough buckets that their heads stay in the cache.
const BUCKET_BYTES_MAX: usize = 32 << 10;

/// Pairs with one key that a bucket holds; others go to the tree. Keys behind a run wait for it to be passed.
const RUN_MAX: usize = 16;

/// Bits by which the directory may be deeper than evenly spread pairs ask for.
const DEPTH_EXCESS_MAX: u32 = 4;

/// Searches whose memory is asked for together: more than a core has misses under way at once.
pub(super) const SEARCHES_MAX: usize = 16;

/// See the module's documentation.
pub(super) struct HashTable<K> {
    directory: Vec<u32>,
    /// The directory has two to the power of this entries, unless it is empty.
    depth: u32,
    buckets: Vec<Bucket<K>>,
    spilled: Tree<K>,
    len: u64,
    memory: Reservation,
    pool: Arc<MemoryPool>,
}

/// Where a walk is.
pub(super) struct Walk {
    entry: usize,
    at: usize,
    tree: Option<Position>,
}

impl<K: Hashed> HashTable<K> {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self {
            directory: Vec::new(),
            depth: 0,
            buckets: Vec::new(),
            spilled: Tree::new(memory.reserve("indexes")),
            len: 0,
            memory: memory.reserve("indexes"),
            pool: Arc::clone(memory),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes reserved.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes() + self.spilled.memory().bytes()
    }

    /// Where keys that hold memory of their own account for it.
    pub(super) fn memory(&self) -> &Reservation {
        &self.memory
    }

    fn capacity_max() -> usize {
        BUCKET_BYTES_MAX / size_of::<K>()
    }

    /// The place of a hash in the directory.
    #[inline]
    fn entry_of(&self, hash: u64) -> usize {
        // In two steps: a shift by all 64 bits is none.
        (hash >> 1 >> (63 - self.depth)) as usize
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> Option<&Bucket<K>> {
        let bucket = *self.directory.get(self.entry_of(hash))?;
        Some(&self.buckets[bucket as usize])
    }

    /// Asks for the head of the bucket of a hash; first step of a group of searches.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        if let Some(bucket) = self.bucket_of(hash) {
            prefetch(bucket);
        }
    }

    /// Asks for the slots of a hash; second step.
    #[inline]
    pub(super) fn prefetch_slots(&self, hash: u64) {
        if let Some(bucket) = self.bucket_of(hash) {
            bucket.prefetch(hash);
        }
    }

    /// Calls `visit` with the handles of a key, ascending.
    #[inline]
    pub(super) fn equal(&self, key: &K, mut visit: impl FnMut(u64)) {
        let Some(bucket) = self.bucket_of(key.hash()) else { return };
        if !bucket.spilled {
            return bucket.equal(key, visit);
        }
        let mut walk = self.walk_from(key, 0);
        while let Some((other, handle)) = self.next(&mut walk)
            && *other == *key
        {
            visit(handle);
        }
    }

    /// How many pairs a key may have, if no more than a bucket takes of one key.
    pub(super) fn pairs_max(&self, key: &K) -> Option<usize> {
        self.bucket_of(key.hash()).is_none_or(|bucket| !bucket.spilled).then_some(RUN_MAX)
    }

    /// Adds a pair.
    pub(super) fn insert(&mut self, key: &K, handle: u64) -> Result<Placed, MemoryExceeded> {
        let hash = key.hash();
        if self.directory.is_empty() {
            self.make_first()?;
        }
        loop {
            let number = self.directory[self.entry_of(hash)] as usize;
            let bucket = &self.buckets[number];
            let place = bucket.place(key, handle);
            let (mut present, mut key_shared) = (place.present, place.others > 0);
            if bucket.spilled {
                present |= self.is_spilled(key, handle, true);
                key_shared |= self.is_spilled(key, 0, false);
            }
            if present {
                return Ok(Placed { new: false, key_shared: true });
            }
            if place.others >= RUN_MAX {
                self.spill(number, key, handle)?;
                return Ok(Placed { new: true, key_shared });
            }
            if !bucket.fits(handle) {
                let plan = bucket.plan_fitting(true);
                self.rebuild(number, plan)?;
                continue;
            }
            if self.buckets[number].insert(place.at, key, handle) {
                self.len += 1;
                return Ok(Placed { new: true, key_shared });
            }
            if !self.make_room(number, hash)? {
                self.spill(number, key, handle)?;
                return Ok(Placed { new: true, key_shared });
            }
        }
    }

    /// Removes a pair; false if it was not there.
    pub(super) fn remove(&mut self, key: &K, handle: u64) -> bool {
        let hash = key.hash();
        let Some(number) = self.directory.get(self.entry_of(hash)).map(|number| *number as usize) else {
            return false;
        };
        let place = self.buckets[number].place(key, handle);
        if place.present {
            self.buckets[number].remove(place.at);
        } else if self.buckets[number].spilled && self.spilled.remove(key, handle) {
            self.buckets[number].spilled = self.has_spilled(hash, self.buckets[number].depth);
        } else {
            return false;
        }
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        } else if self.buckets[number].is_sparse() {
            let plan = self.buckets[number].plan_fitting(self.buckets[number].is_wide());
            // Without memory for the smaller array the larger one stays.
            let _ = self.rebuild(number, plan);
        }
        true
    }

    /// The last pair went: all memory goes back.
    fn clear(&mut self) {
        let arrays: u64 = self.buckets.iter().map(Bucket::bytes).sum();
        let heads = self.buckets.capacity() * size_of::<Bucket<K>>() + self.directory.capacity() * size_of::<u32>();
        self.directory = Vec::new();
        self.buckets = Vec::new();
        self.depth = 0;
        // The tree keeps what it has reserved for its next nodes.
        self.spilled = Tree::new(self.pool.reserve("indexes"));
        self.memory.shrink(arrays + heads as u64);
    }

    fn make_first(&mut self) -> Result<(), MemoryExceeded> {
        let plan = Bucket::<K>::first_plan(false);
        let heads = size_of::<Bucket<K>>() + size_of::<u32>();
        self.memory.grow(plan.bytes::<K>() + heads as u64)?;
        self.buckets.reserve_exact(1);
        self.buckets.push(Bucket::new(plan, 0));
        self.directory.reserve_exact(1);
        self.directory.push(0);
        Ok(())
    }

    /// Puts a bucket's entries into another array.
    fn rebuild(&mut self, number: usize, plan: Plan) -> Result<(), MemoryExceeded> {
        self.memory.grow(plan.bytes::<K>())?;
        let bucket = &mut self.buckets[number];
        let before = bucket.bytes();
        let mut new = bucket.move_to(0..bucket.slots(), plan, bucket.depth);
        new.spilled = bucket.spilled;
        *bucket = new;
        self.memory.shrink(before);
        Ok(())
    }

    /// Makes a full bucket larger, or two of it; false if neither is sensible.
    fn make_room(&mut self, number: usize, hash: u64) -> Result<bool, MemoryExceeded> {
        let bucket = &self.buckets[number];
        if bucket.capacity() < Self::capacity_max() {
            let plan = bucket.plan_larger(Self::capacity_max());
            self.rebuild(number, plan)?;
            return Ok(true);
        }
        let even = (self.len * 2 / Self::capacity_max() as u64 + 1).ilog2();
        let depth = u32::from(bucket.depth);
        if depth >= even + DEPTH_EXCESS_MAX || depth >= 32 {
            return Ok(false);
        }
        self.split(number, hash)?;
        Ok(true)
    }

    /// Splits a bucket by the next bit of the hash.
    fn split(&mut self, number: usize, hash: u64) -> Result<(), MemoryExceeded> {
        let (cut, lower, upper) = self.buckets[number].plan_split();
        let arrays = lower.bytes::<K>() + upper.bytes::<K>();
        self.memory.grow(arrays)?;
        if let Err(exceeded) = self.reserve_heads(number) {
            self.memory.shrink(arrays);
            return Err(exceeded);
        }
        let bucket = &mut self.buckets[number];
        let (depth, spilled, before) = (bucket.depth, bucket.spilled, bucket.bytes());
        let slots = bucket.slots();
        let mut right = bucket.move_to(cut..slots, upper, depth + 1);
        let mut left = bucket.move_to(0..cut, lower, depth + 1);
        if spilled {
            let bit = 1 << (63 - depth);
            left.spilled = self.has_spilled(hash & !bit, depth + 1);
            right.spilled = self.has_spilled(hash | bit, depth + 1);
        }
        self.buckets[number] = left;
        self.memory.shrink(before);
        let new = self.buckets.len() as u32;
        self.buckets.push(right);
        // The entries of the directory that lead to the old bucket: the upper half of them leads to the new one.
        let span = 1_usize << (self.depth - u32::from(depth));
        let first = self.entry_of(hash) & !(span - 1);
        assert!(self.directory[first] as usize == number, "the directory leads to the bucket of a hash");
        self.directory[first + span / 2..first + span].fill(new);
        Ok(())
    }

    /// Room for one more bucket's head, and for its entry in the directory.
    fn reserve_heads(&mut self, number: usize) -> Result<(), MemoryExceeded> {
        if self.buckets.len() == self.buckets.capacity() {
            let more = self.buckets.len().max(1);
            self.memory.grow((more * size_of::<Bucket<K>>()) as u64)?;
            self.buckets.reserve_exact(more);
        }
        if u32::from(self.buckets[number].depth) == self.depth {
            self.memory.grow((self.directory.len() * size_of::<u32>()) as u64)?;
            let mut doubled = Vec::with_capacity(self.directory.len() * 2);
            doubled.extend(self.directory.iter().flat_map(|bucket| [*bucket, *bucket]));
            self.directory = doubled;
            self.depth += 1;
        }
        Ok(())
    }

    /// Puts a pair into the tree.
    fn spill(&mut self, number: usize, key: &K, handle: u64) -> Result<(), MemoryExceeded> {
        let placed = self.spilled.insert(key, handle)?;
        assert!(placed.new, "a pair is in the table once");
        self.buckets[number].spilled = true;
        self.len += 1;
        Ok(())
    }

    /// Whether the tree has this pair (`exactly`) or one with the key.
    fn is_spilled(&self, key: &K, handle: u64, exactly: bool) -> bool {
        let Some(mut position) = self.spilled.seek(key, handle) else { return false };
        let next = self.spilled.next(&mut position);
        next.is_some_and(|(other, found)| *other == *key && (!exactly || found == handle))
    }

    /// Whether the tree has a pair whose hash begins with the first `depth` bits of this one.
    fn has_spilled(&self, hash: u64, depth: u8) -> bool {
        let rest = u64::MAX.checked_shr(u32::from(depth)).unwrap_or(0);
        let Some(mut position) = self.spilled.seek(&K::lowest_of(hash & !rest), 0) else { return false };
        self.spilled.next(&mut position).is_some_and(|(key, _)| key.hash() <= hash | rest)
    }

    /// A walk over all pairs in order.
    pub(super) fn walk(&self) -> Walk {
        Walk { entry: 0, at: 0, tree: self.spilled.seek(&K::lowest_of(0), 0) }
    }

    /// A walk over the pairs at or after (key, handle).
    pub(super) fn walk_from(&self, key: &K, handle: u64) -> Walk {
        let tree = self.spilled.seek(key, handle);
        let entry = self.entry_of(key.hash());
        let Some(bucket) = self.bucket_of(key.hash()) else { return Walk { entry, at: 0, tree } };
        let mut at = bucket.lower_bound(key);
        while let Some((other, found)) = bucket.entry(at)
            && other == key
            && found < handle
        {
            at += 1;
        }
        Walk { entry: entry & !(self.span_of(bucket) - 1), at, tree }
    }

    /// Entries of the directory that lead to a bucket.
    fn span_of(&self, bucket: &Bucket<K>) -> usize {
        1 << (self.depth - u32::from(bucket.depth))
    }

    /// The next pair of a walk.
    pub(super) fn next(&self, walk: &mut Walk) -> Option<(Cow<'_, K>, u64)> {
        let mut in_bucket = None;
        while let Some(number) = self.directory.get(walk.entry) {
            let bucket = &self.buckets[*number as usize];
            while walk.at < bucket.slots() && in_bucket.is_none() {
                in_bucket = bucket.entry(walk.at).map(|(key, handle)| (Cow::Borrowed(key), handle));
                walk.at += usize::from(in_bucket.is_none());
            }
            if in_bucket.is_some() {
                break;
            }
            walk.entry += self.span_of(bucket);
            walk.at = 0;
        }
        if let Some(position) = &mut walk.tree {
            let mut behind = *position;
            match (self.spilled.next(&mut behind), &in_bucket) {
                (Some(pair), Some(other)) if pair > *other => {}
                (Some(pair), _) => {
                    *position = behind;
                    return Some(pair);
                }
                (None, _) => walk.tree = None,
            }
        }
        walk.at += usize::from(in_bucket.is_some());
        in_bucket
    }

    /// About `count` keys of all pairs alike, in no order: hashes are as good as chance.
    pub(super) fn sample(&self, count: usize) -> Vec<K> {
        let per_bucket = count.div_ceil(self.buckets.len().max(1));
        let step = (self.buckets.len() / count.max(1)).max(1);
        let mut keys: Vec<K> = Vec::with_capacity(count * 2);
        for bucket in self.buckets.iter().step_by(step) {
            let entries = (0..bucket.slots()).filter_map(|at| bucket.entry(at));
            let skip = (bucket.len() / per_bucket.max(1)).max(1);
            keys.extend(entries.step_by(skip).take(per_bucket).map(|(key, _)| key.clone()));
        }
        if self.spilled.len() > 0 {
            let share = self.spilled.len() as f64 / self.len as f64;
            keys.extend(self.spilled.sample((keys.len() as f64 * share / (1.0 - share).max(0.01)).ceil() as usize));
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::{SeededRandom, test_load};
    use std::collections::BTreeSet;

    fn all<K: Hashed>(table: &HashTable<K>) -> Vec<(K, u64)> {
        let mut walk = table.walk();
        std::iter::from_fn(|| table.next(&mut walk).map(|(key, handle)| (key.into_owned(), handle))).collect()
    }

    /// Keys as the caller's hash makes them: spread, in runs, such that agree in many leading bits, and mixtures.
    fn key(random: &mut SeededRandom, kind: u64, keys: u64) -> u64 {
        let number = random.below(keys);
        match kind {
            0 => number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            1 => u64::MAX - number % 40,
            2 => 0x7777_7777_7700_0000 + number,
            // Few keys with many pairs among many keys with few: buckets split that have spilled.
            3 if random.chance(0.3) => random.below(8) << 61 | 5,
            3 => number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            _ => random.below(3).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number << 30),
        }
    }

    fn check(seed: u64, rounds: u64) {
        let mut random = SeededRandom::new(seed);
        let pool = MemoryPool::unlimited();
        let mut table = HashTable::<u64>::new(&pool);
        let mut reference = BTreeSet::new();
        let kind = seed % 5;
        let keys = [50, 2_000, 100_000][(seed / 5) as usize % 3];
        let segments = [3, 0x1_0010][(seed / 15) as usize % 2];
        for round in 0..rounds {
            let growing = (round / (rounds / 4)).is_multiple_of(2);
            let key = key(&mut random, kind, keys);
            let handle = random.below(segments) << 32 | random.below(30);
            if random.chance(if growing { 0.9 } else { 0.2 }) {
                let shared = reference.range((key, 0)..=(key, u64::MAX)).any(|pair| *pair != (key, handle));
                let placed = table.insert(&key, handle).unwrap();
                assert_eq!(placed.new, reference.insert((key, handle)), "seed {seed} round {round}");
                assert!(placed.key_shared == shared || !placed.new, "seed {seed} round {round}");
            } else if let Some(pair) = reference.range((key, handle)..).next().copied() {
                assert!(table.remove(&pair.0, pair.1), "seed {seed} round {round}");
                assert!(!table.remove(&pair.0, pair.1));
                reference.remove(&pair);
            }
            let mut found = Vec::new();
            table.equal(&key, |handle| found.push((key, handle)));
            let expected: Vec<(u64, u64)> = reference.range((key, 0)..=(key, u64::MAX)).copied().collect();
            assert_eq!(found, expected, "seed {seed} round {round}");
            assert_eq!(table.len(), reference.len() as u64);
            if round % 997 == 0 {
                assert_eq!(all(&table), reference.iter().copied().collect::<Vec<_>>(), "seed {seed} round {round}");
                let mut walk = table.walk_from(&key, handle);
                let next = table.next(&mut walk).map(|(key, handle)| (*key, handle));
                assert_eq!(next, reference.range((key, handle)..).next().copied(), "seed {seed} round {round}");
            }
        }
        for pair in reference.clone() {
            assert!(table.remove(&pair.0, pair.1));
        }
        assert_eq!((table.len(), table.bytes(), pool.used()), (0, 0, 0), "seed {seed}");
    }

    #[test]
    fn agrees_with_a_sorted_set() {
        for seed in 0..test_load(30) {
            check(seed, 24_000);
        }
    }

    #[test]
    fn holds_many_keys_compactly_and_takes_each_insert_little() {
        let pool = MemoryPool::unlimited();
        let mut table = HashTable::<u64>::new(&pool);
        for number in 0..400_000_u64 {
            table
                .insert(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15), ((number / 1_000) << 32) | (number % 1_000))
                .unwrap();
        }
        let per_pair = table.bytes() as f64 / 400_000.0;
        assert!((12.0..17.5).contains(&per_pair), "{per_pair} bytes for 12 bytes of key and handle");
        assert_eq!(pool.used(), table.bytes());
        assert!(table.directory.len() <= 1_024 && table.spilled.len() == 0);
        // What a single insert may copy is one bucket, and the directory.
        assert!(table.buckets.iter().all(|bucket| bucket.slots() <= HashTable::<u64>::capacity_max() * 5 / 4));
    }

    /// Keys that agree in their first forty bits could only be told apart by a directory of astronomic size.
    #[test]
    fn keys_chosen_to_collide_do_not_blow_up_the_directory() {
        let pool = MemoryPool::unlimited();
        let mut table = HashTable::<u64>::new(&pool);
        for number in 0..50_000_u64 {
            table.insert(&(0xABCD_EF01_2300_0000 + number), number).unwrap();
        }
        assert!(table.directory.len() <= 1_024, "{} entries", table.directory.len());
        assert!(table.bytes() < 50_000 * 40);
        let mut found = 0;
        for number in 0..50_000_u64 {
            table.equal(&(0xABCD_EF01_2300_0000 + number), |handle| found += usize::from(handle == number));
        }
        assert_eq!(found, 50_000);
    }

    #[test]
    fn a_refused_insert_changes_nothing() {
        for limit in (0..400_000).step_by(400_000 / test_load(133) as usize) {
            let pool = MemoryPool::new(limit);
            let mut table = HashTable::<u64>::new(&pool);
            let mut random = SeededRandom::new(limit);
            let mut reference = BTreeSet::new();
            for round in 0..20_000_u64 {
                let key = random.next_u64() >> (round % 3 * 30);
                match table.insert(&key, round) {
                    Ok(_) => assert!(reference.insert((key, round))),
                    Err(_) => break,
                }
            }
            assert!(pool.used() <= limit);
            assert_eq!(all(&table), reference.into_iter().collect::<Vec<_>>());
        }
    }
}
