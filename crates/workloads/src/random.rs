//! Seeded random numbers for data and inputs: `SplitMix64`, whose streams from different seeds are independent enough that
//! every subscriber, client and part can have its own.

/// Golden-ratio increment of the sequence.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Clone)]
pub struct Generator {
    state: u64,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// A generator of its own for item `index` of a seeded whole.
    pub fn for_item(seed: u64, index: u64) -> Self {
        Self { state: mix(mix(seed).wrapping_add(index.wrapping_mul(INCREMENT))) }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mix(self.state)
    }

    /// Uniform between `low` and `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range: {low}..={high}");
        let width = u128::from(high - low) + 1;
        // The high half of the product is uniform up to 2^-64 * width, far below what any check can see.
        low + ((u128::from(self.next_u64()) * width) >> 64) as u64
    }

    /// True with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last as u64) as usize);
        }
    }
}

fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_uniform_and_complete() {
        let mut generator = Generator::new(1);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[(generator.between(10, 16) - 10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert_eq!(generator.between(5, 5), 5);
        generator.between(0, u64::MAX);
    }

    #[test]
    fn items_have_streams_of_their_own() {
        let first: Vec<u64> = (0..1_000).map(|item| Generator::for_item(9, item).next_u64()).collect();
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 1_000);
        assert_eq!(Generator::for_item(9, 3).next_u64(), first[3]);
    }
}
