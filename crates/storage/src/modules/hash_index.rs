//! Storage module *hash index*: a local index over one partition for equality on all key attributes.
//!
//! A key is packed as in the ordered index and then scrambled into its own hash by a permutation, which can be undone:
//! so the table stores one word for key and hash. Packed keys of at most 4, 8 and 16 bytes have a table each; longer
//! ones and text are stored with a hash beside them. What the table does with hashes is told in `hash_table.rs`.
//!
//! Entries come out in the order of their hashes. A scan of one key is a search; of a range, a walk over everything
//! that leaves out what does not belong. The micro-QEP compiler asks for the former only.

use super::btree::NodeKey;
use super::hash_bucket::Hashed;
use super::hash_table::{HashTable, SEARCHES_MAX};
use super::ordered_index::TreeKey;
use super::{
    AccessPathFactory, AddressingMode, Count, HASH_INDEX, IndexPath, IndexScanState, Inserted, PathAttribute,
    PathConfiguration, PathInstance, Properties,
};
use crate::address::RowAddress;
use crate::batch::Column;
use crate::error::StorageError;
use crate::key::{Key, KeyPart};
use crate::types::Physical;
use eris_platform::hash::DeterministicState;
use eris_platform::memory::MemoryPool;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The factory.
pub(super) struct HashIndexModule;

impl AccessPathFactory for HashIndexModule {
    fn name(&self) -> &'static str {
        HASH_INDEX
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Value,
            attributes: Count::None,
            keys: Count::Any,
            key_order: false,
            nulls: true,
            undefined: false,
            variable_length: true,
            shares_frozen_columns: false,
            updates_in_place: false,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        let parts = parts_of(configuration.attributes);
        let memory = configuration.memory;
        PathInstance::Index(match width_of(&parts) {
            Some(..=4) => Box::new(HashIndex::<u32>::new(parts, memory)),
            Some(..=8) => Box::new(HashIndex::<u64>::new(parts, memory)),
            Some(..=16) => Box::new(HashIndex::<u128>::new(parts, memory)),
            Some(_) | None => Box::new(HashIndex::<HashedBytes>::new(parts, memory)),
        })
    }
}

fn parts_of(attributes: &[PathAttribute]) -> Vec<KeyPart> {
    attributes.iter().map(|attribute| attribute.key_part()).collect()
}

/// Bytes of a packed key at most, if there is a bound.
fn width_of(parts: &[KeyPart]) -> Option<usize> {
    parts.iter().map(|part| part.bytes_max()).sum()
}

/// The rows of some columns in the order in which a table likes to take them: by their hashes.
pub(crate) fn hashed_order(attributes: &[PathAttribute], columns: &[Column], rows: usize) -> Box<[u32]> {
    fn sort<K: HashedKey>(parts: &[KeyPart], columns: &[Column], rows: usize) -> Box<[u32]> {
        let key = |row| K::of_plain(&K::Plain::of_row(parts, columns, row)).hash();
        let mut keys: Vec<(u64, u32)> = (0..rows).map(|row| (key(row), row as u32)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, row)| row).collect()
    }
    let parts = parts_of(attributes);
    match width_of(&parts) {
        Some(..=4) => sort::<u32>(&parts, columns, rows),
        Some(..=8) => sort::<u64>(&parts, columns, rows),
        Some(..=16) => sort::<u128>(&parts, columns, rows),
        Some(_) | None => sort::<HashedBytes>(&parts, columns, rows),
    }
}

/// A key and its hash in one, and the way back.
trait HashedKey: Hashed {
    /// The key as the ordered index has it: in key order.
    type Plain: TreeKey;
    fn of_plain(plain: &Self::Plain) -> Self;
    fn plain(&self) -> Self::Plain;
}

/// The multiplicative inverse of an odd number modulo 2^64: Newton's iteration doubles the right bits.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

/// Digits of pi, made odd.
const FACTORS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0xA409_3822_299F_31D1];
const INVERSES: [u64; 2] = [inverse(FACTORS[0]), inverse(FACTORS[1])];
const _: () = assert!(FACTORS[0].wrapping_mul(INVERSES[0]) == 1 && FACTORS[1].wrapping_mul(INVERSES[1]) == 1);

/// A permutation of the words: products carry every bit upwards, shifts bring the upper half down. A shift by half the
/// width is its own inverse.
#[inline]
fn scramble(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(FACTORS[0]);
    let word = (word ^ word >> 32).wrapping_mul(FACTORS[1]);
    word ^ word >> 32
}

fn unscramble(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(INVERSES[1]);
    let word = (word ^ word >> 32).wrapping_mul(INVERSES[0]);
    word ^ word >> 32
}

/// The same for 32 bits.
#[inline]
fn scramble_half(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(FACTORS[0] as u32);
    let word = (word ^ word >> 16).wrapping_mul(FACTORS[1] as u32);
    word ^ word >> 16
}

fn unscramble_half(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(INVERSES[1] as u32);
    let word = (word ^ word >> 16).wrapping_mul(INVERSES[0] as u32);
    word ^ word >> 16
}

impl HashedKey for u32 {
    type Plain = u64;

    #[inline]
    fn of_plain(plain: &u64) -> Self {
        scramble_half((*plain >> 32) as Self)
    }

    fn plain(&self) -> u64 {
        u64::from(unscramble_half(*self)) << 32
    }
}

impl HashedKey for u64 {
    type Plain = Self;

    #[inline]
    fn of_plain(plain: &Self) -> Self {
        scramble(*plain)
    }

    fn plain(&self) -> Self {
        unscramble(*self)
    }
}

impl HashedKey for u128 {
    type Plain = Self;

    /// Two rounds of a Feistel network: the upper half becomes the hash of both.
    #[inline]
    fn of_plain(plain: &Self) -> Self {
        let (upper, lower) = ((*plain >> 64) as u64, *plain as u64);
        let lower = lower ^ scramble(upper ^ FACTORS[1]);
        let upper = upper ^ scramble(lower);
        Self::from(upper) << 64 | Self::from(lower)
    }

    fn plain(&self) -> Self {
        let (upper, lower) = ((*self >> 64) as u64, *self as u64);
        let upper = upper ^ scramble(lower);
        let lower = lower ^ scramble(upper ^ FACTORS[1]);
        Self::from(upper) << 64 | Self::from(lower)
    }
}

/// A long key beside its hash.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct HashedBytes {
    /// Even: the greatest hash is left to gaps.
    hash: u64,
    key: Key,
}

impl NodeKey for HashedBytes {}

impl Hashed for HashedBytes {
    fn gap() -> Self {
        Self { hash: u64::MAX, key: Key::lowest() }
    }

    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }

    fn lowest_of(hash: u64) -> Self {
        Self { hash, key: Key::lowest() }
    }
}

impl HashedKey for HashedBytes {
    type Plain = Key;

    fn of_plain(plain: &Key) -> Self {
        let mut hasher = DeterministicState::default().build_hasher();
        hasher.write(plain.as_bytes());
        Self { hash: hasher.finish() & !1, key: plain.clone() }
    }

    fn plain(&self) -> Key {
        self.key.clone()
    }
}

/// Entries of one key counted at most.
const EXACT_SHARE_MAX: usize = 4_096;

/// Keys looked at for an estimate.
const SAMPLE_KEYS: usize = 256;

struct HashIndex<K: HashedKey> {
    parts: Vec<KeyPart>,
    table: HashTable<K>,
    /// No key is greater; keys that went may have been.
    highest: Option<K::Plain>,
}

impl<K: HashedKey> HashIndex<K> {
    fn new(parts: Vec<KeyPart>, memory: &Arc<MemoryPool>) -> Self {
        Self { parts, table: HashTable::new(memory), highest: None }
    }

    fn key(&self, columns: &[Column], row: usize) -> K {
        K::of_plain(&K::Plain::of_row(&self.parts, columns, row))
    }

    /// The key of a range that holds only one.
    fn only_key(&self, lower: &Key, upper: Option<&Key>) -> Option<K> {
        let one = is_whole_key(&self.parts, lower.as_bytes()) && lower.successor_of_prefix().as_ref() == upper;
        one.then(|| K::of_plain(&K::Plain::of_bytes(lower.as_bytes())))
    }

    fn scan_key(&self, key: &K, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        if state.after.is_none() && self.table.pairs_max(key).is_some_and(|pairs| pairs <= rows_max) {
            self.table.equal(key, |handle| found.push(RowAddress::from_bits(handle)));
            return false;
        }
        let mut last = state.after.as_ref().map(|(_, handle)| *handle);
        let mut walk = self.table.walk_from(key, last.map_or(0, |last| last + 1));
        let until = found.len() + rows_max;
        while let Some((other, handle)) = self.table.next(&mut walk)
            && *other == *key
        {
            if found.len() == until {
                state.after = last.map(|last| (state.lower.clone(), last));
                return true;
            }
            found.push(RowAddress::from_bits(handle));
            last = Some(handle);
        }
        false
    }

    fn scan_range(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        let of_bytes = |key: &Key| K::Plain::of_bytes(key.as_bytes());
        let (lower, upper) = (of_bytes(&state.lower), state.upper.as_ref().map(of_bytes));
        let mut walk = match &state.after {
            None => self.table.walk(),
            Some((key, handle)) => self.table.walk_from(&K::of_plain(&of_bytes(key)), handle + 1),
        };
        let mut last = None;
        let mut taken = 0;
        while let Some((key, handle)) = self.table.next(&mut walk) {
            let plain = key.plain();
            if plain < lower || upper.as_ref().is_some_and(|upper| plain >= *upper) {
                continue;
            }
            if taken == rows_max {
                state.after = last;
                return true;
            }
            found.push(RowAddress::from_bits(handle));
            taken += 1;
            last = Some((plain.to_key(), handle));
        }
        false
    }
}

/// Whether these are the bytes of a value for every part. Then no other key begins with them.
fn is_whole_key(parts: &[KeyPart], mut bytes: &[u8]) -> bool {
    for part in parts {
        if part.tagged {
            let Some((tag, rest)) = bytes.split_first() else { return false };
            bytes = rest;
            if *tag == Key::NULL_TAG {
                continue;
            }
        }
        let value = match part.data_type.physical() {
            // A zero is followed by 0xFF inside a value and by 0x01 at its end.
            Physical::Bytes => bytes.windows(2).position(|pair| pair == [0, 1]).map(|end| end + 2),
            physical => Some(physical.width()),
        };
        let Some(rest) = value.and_then(|len| bytes.get(len..)) else { return false };
        bytes = rest;
    }
    bytes.is_empty()
}

impl<K: HashedKey> IndexPath for HashIndex<K> {
    fn module(&self) -> &'static str {
        HASH_INDEX
    }

    fn insert(&mut self, columns: &[Column], row: usize, address: RowAddress) -> Result<Inserted, StorageError> {
        assert!(address.to_bits() != u64::MAX, "the last address of all stands for none");
        let plain = K::Plain::of_row(&self.parts, columns, row);
        let heap = plain.heap_bytes() as u64;
        if heap > 0 {
            self.table.memory().grow(heap)?;
        }
        let placed = self.table.insert(&K::of_plain(&plain), address.to_bits());
        if heap > 0 && !placed.as_ref().is_ok_and(|placed| placed.new) {
            self.table.memory().shrink(heap);
        }
        let placed = placed?;
        if self.highest.as_ref().is_none_or(|highest| *highest < plain) {
            self.highest = Some(plain);
        }
        Ok(Inserted { key_shared: placed.key_shared })
    }

    fn remove(&mut self, columns: &[Column], row: usize, address: RowAddress) -> bool {
        let plain = K::Plain::of_row(&self.parts, columns, row);
        let removed = self.table.remove(&K::of_plain(&plain), address.to_bits());
        if removed {
            self.table.memory().shrink(plain.heap_bytes() as u64);
        }
        if self.table.len() == 0 {
            self.highest = None;
        }
        removed
    }

    fn scan(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        match self.only_key(&state.lower, state.upper.as_ref()) {
            Some(key) => self.scan_key(&key, state, rows_max, found),
            None => self.scan_range(state, rows_max, found),
        }
    }

    fn equal(&self, columns: &[Column], row: usize, visit: &mut dyn FnMut(RowAddress)) {
        self.table.equal(&self.key(columns, row), |handle| visit(RowAddress::from_bits(handle)));
    }

    /// Three passes over a group of keys: hashes, and the heads of their buckets are asked for; where to look, and the
    /// slots are asked for; the searches.
    fn equal_many(&self, columns: &[Column], rows: Range<usize>, visit: &mut dyn FnMut(usize, RowAddress)) {
        let mut keys: [K; SEARCHES_MAX] = std::array::from_fn(|_| K::default());
        let mut start = rows.start;
        while start < rows.end {
            let count = SEARCHES_MAX.min(rows.end - start);
            let keys = &mut keys[..count];
            for (row, key) in (start..).zip(keys.iter_mut()) {
                *key = self.key(columns, row);
                self.table.prefetch_bucket(key.hash());
            }
            for key in keys.iter() {
                self.table.prefetch_slots(key.hash());
            }
            for (row, key) in (start..).zip(keys.iter()) {
                self.table.equal(key, |handle| visit(row, RowAddress::from_bits(handle)));
            }
            start += count;
        }
    }

    /// Exact for one key that has not very many entries, else by a sample.
    fn share(&self, lower: &Key, upper: Option<&Key>) -> f64 {
        if let Some(key) = self.only_key(lower, upper) {
            let mut walk = self.table.walk_from(&key, 0);
            let pairs = std::iter::from_fn(|| self.table.next(&mut walk)).take_while(|(other, _)| **other == key);
            let entries = pairs.take(EXACT_SHARE_MAX).count();
            if entries < EXACT_SHARE_MAX {
                return entries as f64 / self.table.len().max(1) as f64;
            }
        }
        let of_bytes = |key: &Key| K::Plain::of_bytes(key.as_bytes());
        let (lower, upper) = (of_bytes(lower), upper.map(of_bytes));
        let sample = self.table.sample(SAMPLE_KEYS);
        let within = |key: &&K| {
            let plain = key.plain();
            plain >= lower && upper.as_ref().is_none_or(|upper| plain < *upper)
        };
        sample.iter().filter(within).count() as f64 / sample.len().max(1) as f64
    }

    fn may_reach(&self, lower: &Key) -> bool {
        self.highest.as_ref().is_some_and(|highest| *highest >= K::Plain::of_bytes(lower.as_bytes()))
    }

    fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    fn sample(&self, count: usize) -> Vec<Key> {
        let mut keys: Vec<K::Plain> = self.table.sample(count.max(SAMPLE_KEYS)).iter().map(HashedKey::plain).collect();
        keys.sort_unstable();
        let step = keys.len().div_ceil(count.max(1)).max(1);
        keys.iter().step_by(step).map(TreeKey::to_key).collect()
    }

    fn entries(&self) -> u64 {
        self.table.len()
    }

    fn bytes(&self) -> u64 {
        self.table.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::types::DataType;
    use crate::value::Value;
    use eris_platform::SeededRandom;

    #[test]
    fn scrambling_can_be_undone_and_spreads() {
        let mut random = SeededRandom::new(3);
        for round in 0..10_000_u64 {
            for word in [round, round << 40, !round, random.next_u64()] {
                assert_eq!(unscramble(scramble(word)), word);
                assert_eq!(unscramble_half(scramble_half(word as u32)), word as u32);
                let double = u128::from(word) << 64 | u128::from(random.next_u64());
                assert_eq!(u128::of_plain(&double).plain(), double);
            }
        }
        for shift in [0, 3, 12, 20, 32, 44] {
            let mut high = [[0_u32; 128]; 4];
            for number in 0..16_384_u64 {
                let word = number << shift;
                high[0][(scramble(word) >> 57) as usize] += 1;
                high[1][(u128::of_plain(&u128::from(word)).hash() >> 57) as usize] += 1;
                high[2][(u128::of_plain(&(u128::from(word) << 64)).hash() >> 57) as usize] += 1;
                if shift <= 12 {
                    high[3][(scramble_half(word as u32) >> 25) as usize] += 1;
                }
            }
            let even = |counts: &[u32; 128]| counts.iter().all(|count| (64..224).contains(count));
            assert!(high[..3].iter().all(even) && (shift > 12 || even(&high[3])), "shift {shift}: {high:?}");
        }
    }

    #[test]
    fn knows_whole_keys() {
        let part = |data_type, tagged| KeyPart { data_type, tagged };
        let parts = [part(DataType::Text, true), part(DataType::Int16, false)];
        let whole: &[u8] = &[1, b'a', 0, 0xFF, 1, 0, 1, 7, 7];
        assert!(is_whole_key(&parts, whole));
        assert!((0..whole.len()).all(|len| !is_whole_key(&parts, &whole[..len])));
        assert!(is_whole_key(&parts, &[0xFF, 0, 1]) && !is_whole_key(&parts, &[0xFF, 0, 1, 2]));
    }

    #[test]
    fn batched_searches_find_what_single_ones_find() {
        for (data_type, wide) in [(DataType::Int32, false), (DataType::Int64, false), (DataType::Text, true)] {
            let memory = MemoryPool::unlimited();
            let mut random = SeededRandom::new(9);
            let value = |number: i64| match data_type {
                DataType::Int32 => Value::Int32(number as i32),
                DataType::Int64 => Value::Int64(number << 20),
                _ => Value::Text(format!("a key that is too long to lie inline {number}").into()),
            };
            let rows: Vec<Vec<Value>> = (0..9_000).map(|_| vec![value(random.between(0, 5_000))]).collect();
            let columns = Batch::from_rows(&[data_type], &rows).columns;
            let attribute = PathAttribute { id: crate::ids::AttributeId(0), data_type, nullable: wide };
            let configuration =
                PathConfiguration { attributes: &[attribute], rows_max: 0, memory: &memory, dictionaries: None };
            let PathInstance::Index(mut index) = HashIndexModule.create(configuration) else {
                unreachable!("the module makes indexes");
            };
            assert!(!index.may_reach(&Key::lowest()));
            let mut many = Vec::new();
            index.equal_many(&columns, 0..100, &mut |row, address| many.push((row, address)));
            assert_eq!(many, []);
            for row in 0..6_000 {
                assert!(index.insert(&columns, row, RowAddress::from_bits(row as u64)).is_ok());
            }
            let mut single = Vec::new();
            for row in 17..9_000 {
                index.equal(&columns, row, &mut |address| single.push((row, address)));
            }
            index.equal_many(&columns, 17..9_000, &mut |row, address| many.push((row, address)));
            assert_eq!(many, single);
            assert!(single.len() > 6_000);
            for row in 0..6_000 {
                assert!(index.remove(&columns, row, RowAddress::from_bits(row as u64)));
            }
            assert_eq!((index.bytes(), memory.used()), (0, 0));
        }
    }
}
