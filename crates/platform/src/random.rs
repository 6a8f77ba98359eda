//! Seeded pseudo-random numbers: xoshiro256** (Blackman and Vigna, 2018), its state filled by `SplitMix64`.
//!
//! Fast and of good statistical quality; not for secrets. The sequence of a seed never changes: seeds are kept in test
//! ledgers.

/// A generator whose whole future is given by its seed.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: [u64; 4],
}

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        let mut mixer = seed;
        let mut next = || {
            mixer = mixer.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = mixer;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        };
        SeededRandom { state: [next(), next(), next(), next()] }
    }

    pub fn next_u64(&mut self) -> u64 {
        let [first, second, third, fourth] = &mut self.state;
        let result = second.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *second << 17;
        *third ^= *first;
        *fourth ^= *second;
        *second ^= *third;
        *first ^= *fourth;
        *third ^= shifted;
        *fourth = fourth.rotate_left(45);
        result
    }

    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Uniform in `0..bound` (Lemire's multiplication with rejection, so without bias).
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0 does not exist");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in `low..=high`.
    ///
    /// # Panics
    /// If `low > high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "an empty range has no random number: {low}..={high}");
        let span = high.wrapping_sub(low) as u64;
        let offset = if span == u64::MAX { self.next_u64() } else { self.below(span + 1) };
        low.wrapping_add(offset as i64)
    }

    /// Uniform index of a collection of `length` things.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }

    /// An independent generator, for a part that must not disturb the sequence of the whole.
    #[must_use]
    pub fn fork(&mut self) -> SeededRandom {
        SeededRandom::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of the reference implementation for the state `{1, 2, 3, 4}`.
    #[test]
    fn follows_the_published_sequence() {
        let mut random = SeededRandom { state: [1, 2, 3, 4] };
        let expected = [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240, 1_216_172_134_540_287_360];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn same_seed_same_sequence_and_other_seed_another() {
        let sequence = |seed| {
            let mut random = SeededRandom::new(seed);
            (0..100).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(sequence(42), sequence(42));
        assert_ne!(sequence(42), sequence(43));
    }

    #[test]
    fn bounded_numbers_stay_in_bounds_and_reach_them() {
        let mut random = SeededRandom::new(7);
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[random.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "not uniform: {seen:?}");
        for _ in 0..1_000 {
            assert!((-3..=3).contains(&random.between(-3, 3)));
            assert!((0.0..1.0).contains(&random.fraction()));
        }
        assert_eq!(random.between(5, 5), 5);
        random.between(i64::MIN, i64::MAX);
        assert!(!random.chance(0.0) && random.chance(1.0));
    }

    #[test]
    fn shuffle_keeps_the_elements() {
        let mut items: Vec<u32> = (0..100).collect();
        SeededRandom::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
