//! Hashing that gives the same result in every run.
//!
//! `std`'s default hasher is seeded at random, so the iteration order of its maps differs from run to run, which the
//! simulator must not see. [`DeterministicState`] hashes by folded multiplication (the core of wyhash): a word is
//! mixed by a 64 x 64 -> 128-bit product whose halves are xored. It is faster than the default and makes **no** claim
//! against keys chosen to collide: where a client picks the keys of a large map, use an ordered map.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

pub type DeterministicMap<K, V> = HashMap<K, V, DeterministicState>;
pub type DeterministicSet<T> = HashSet<T, DeterministicState>;

/// Builds hashers that all start alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeterministicState {
    seed: u64,
}

impl DeterministicState {
    /// Another family of hash values, for example for the second table of a scheme that needs two.
    pub const fn with_seed(seed: u64) -> DeterministicState {
        DeterministicState { seed }
    }
}

impl BuildHasher for DeterministicState {
    type Hasher = DeterministicHasher;

    fn build_hasher(&self) -> DeterministicHasher {
        DeterministicHasher { state: self.seed ^ FIRST }
    }
}

/// Digits of pi: odd, and half of the bits set.
const FIRST: u64 = 0x243F_6A88_85A3_08D3;
const SECOND: u64 = 0x1319_8A2E_0370_7345;

const fn folded_product(left: u64, right: u64) -> u64 {
    let product = (left as u128) * (right as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct DeterministicHasher {
    state: u64,
}

impl DeterministicHasher {
    fn mix(&mut self, word: u64) {
        self.state = folded_product(self.state ^ word ^ FIRST, SECOND.wrapping_add(self.state.rotate_left(23)) | 1);
    }
}

impl Hasher for DeterministicHasher {
    fn finish(&self) -> u64 {
        folded_product(self.state ^ SECOND, FIRST)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length keeps `a` and `a\0` apart.
        self.mix(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_u128(&mut self, value: u128) {
        self.mix(value as u64);
        self.mix((value >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(value: impl std::hash::Hash) -> u64 {
        DeterministicState::default().hash_one(value)
    }

    /// A changed value here changes the order of every map, and with it every recorded simulation.
    #[test]
    fn values_are_the_same_in_every_run() {
        assert_eq!(hash_of(42_u64), hash_of(42_u64));
        let order: Vec<u64> = (0..50).collect::<DeterministicSet<u64>>().into_iter().collect();
        let again: Vec<u64> = (0..50).collect::<DeterministicSet<u64>>().into_iter().collect();
        assert_eq!(order, again);
        assert_ne!(hash_of(1_u64), DeterministicState::with_seed(1).hash_one(1_u64));
    }

    #[test]
    fn similar_keys_spread_over_buckets() {
        for shift in [0, 3, 12, 20, 32, 48] {
            let mut low = vec![0_u32; 1024];
            let mut high = [0_u32; 128];
            for key in 0..16_384_u64 {
                let hash = hash_of(key << shift);
                low[(hash % 1024) as usize] += 1;
                high[(hash >> 57) as usize] += 1;
            }
            assert!(low.iter().all(|&count| count < 48), "low bits cluster at shift {shift}");
            assert!(high.iter().all(|&count| (64..224).contains(&count)), "high bits cluster at shift {shift}");
        }
    }

    #[test]
    fn different_strings_differ() {
        let texts = ["", "\0", "a", "a\0", "abcdefgh", "abcdefgh\0", "abcdefghi", "bacdefgh"];
        let hashes: std::collections::BTreeSet<u64> = texts.iter().map(|text| hash_of(text.as_bytes())).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
