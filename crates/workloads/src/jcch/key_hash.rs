//! The bijection that scatters the keys of a table: which keys are populous looks random, and is known to everyone.
//!
//! Keys are `1..=N`, hashes `0..N`. With a prime `p`, its inverse `i` modulo `N` and an offset `x` below `N`:
//!
//! ```text
//! hash(key) = ((key - 1) * p + x) mod N          key(hash) = ((hash + N - x) * i mod N) + 1
//! ```
//! The rules of the benchmark are written on hashes: the populous rows of a table are those with the lowest hash, or
//! the lowest hash of each region.

const MULTIPLIER: u64 = 1_442_968_193;

/// The offset is this number's low bits, as many as stay below the number of keys.
const OFFSET_BITS: u64 = 792_606_555_396_977;

/// More keys than this and the products no longer fit 64 bits.
pub(super) const KEYS_MAX: u64 = 1 << 31;

/// The bijection of one table's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    count: u64,
    inverse: u64,
    offset: u64,
}

impl KeyHash {
    /// # Panics
    /// Without keys, with more than `KEYS_MAX` of them, or with a multiple of the multiplier.
    pub fn new(count: u64) -> Self {
        assert!(count > 0 && count <= KEYS_MAX, "{count} keys cannot be scattered");
        // The smallest power of two that is at least half the number of keys; an offset below it is below the number.
        let bound = count.div_ceil(2).next_power_of_two();
        Self { count, inverse: inverse(MULTIPLIER, count), offset: OFFSET_BITS & (bound - 1) }
    }

    /// How many keys there are.
    pub fn count(self) -> u64 {
        self.count
    }

    pub fn hash(self, key: u64) -> u64 {
        debug_assert!((1..=self.count).contains(&key), "{key} is not one of {} keys", self.count);
        ((key - 1) * MULTIPLIER + self.offset) % self.count
    }

    pub fn key(self, hash: u64) -> u64 {
        debug_assert!(hash < self.count, "{hash} is not a hash of {} keys", self.count);
        (hash + self.count - self.offset) * self.inverse % self.count + 1
    }
}

/// The inverse of a number modulo another one, by the extended Euclidean algorithm.
fn inverse(number: u64, modulus: u64) -> u64 {
    let (mut remainders, mut factors) = ((modulus as i64, (number % modulus) as i64), (0i64, 1i64));
    while remainders.1 != 0 {
        let quotient = remainders.0 / remainders.1;
        remainders = (remainders.1, remainders.0 - quotient * remainders.1);
        factors = (factors.1, factors.0 - quotient * factors.1);
    }
    assert_eq!(remainders.0, 1, "{number} has no inverse modulo {modulus}");
    factors.0.rem_euclid(modulus as i64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_hash_and_every_hash_its_key() {
        for count in [1, 2, 25, 500, 10_000, 150_000, 1_500_000] {
            let keys = KeyHash::new(count);
            let mut seen = vec![false; count as usize];
            for key in 1..=count {
                let hash = keys.hash(key);
                assert_eq!(keys.key(hash), key, "{count} keys");
                assert!(!std::mem::replace(&mut seen[hash as usize], true), "two keys of {count} have hash {hash}");
            }
        }
    }

    #[test]
    fn inverse_and_offset_are_those_of_the_benchmark() {
        let parts = |scale_factor: u64| KeyHash::new(200_000 * scale_factor);
        assert_eq!((parts(1).inverse, parts(1).offset), (141_057, 23_409));
        assert_eq!((parts(10).inverse, parts(10).offset), (1_341_057, 940_913));
    }

    #[test]
    fn products_fit_the_largest_number_of_keys() {
        let keys = KeyHash::new(KEYS_MAX - 1);
        for key in [1, 2, KEYS_MAX / 2, KEYS_MAX - 1] {
            assert_eq!(keys.key(keys.hash(key)), key);
        }
    }
}
