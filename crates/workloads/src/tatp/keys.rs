//! Which subscriber a transaction asks for: uniform, or TATP's skewed NURand(A, 1, P).

use eris_platform::SeededRandom;

/// Results under the two distributions are not comparable; reports name the one that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyDistribution {
    /// ((U(0, A) | U(1, P)) mod P) + 1: the standard's.
    #[default]
    NonUniform,
    Uniform,
}

impl KeyDistribution {
    pub fn name(self) -> &'static str {
        match self {
            Self::NonUniform => "nurand",
            Self::Uniform => "uniform",
        }
    }

    /// An id between 1 and `subscribers`.
    pub fn draw(self, subscribers: u32, random: &mut SeededRandom) -> u32 {
        let uniform = random.between(1, i64::from(subscribers)) as u32;
        match self {
            Self::Uniform => uniform,
            Self::NonUniform => {
                let hot = random.below(u64::from(spread(subscribers)) + 1) as u32;
                (hot | uniform) % subscribers + 1
            }
        }
    }
}

/// The constant A for a population of P.
fn spread(subscribers: u32) -> u32 {
    match subscribers {
        0..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of_hottest(distribution: KeyDistribution, subscribers: u32, share: f64) -> f64 {
        let mut random = SeededRandom::new(3);
        let mut counts = vec![0u32; subscribers as usize];
        for _ in 0..1_000_000 {
            counts[distribution.draw(subscribers, &mut random) as usize - 1] += 1;
        }
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let hottest = (f64::from(subscribers) * share) as usize;
        counts[..hottest].iter().map(|count| f64::from(*count)).sum::<f64>() / 1_000_000.0
    }

    /// The exact shares of the reference: 35.4 % on the hottest 1 % of 100,000, 12.9 % on the hottest 1 % of 10,000.
    #[test]
    fn the_skew_is_the_published_one() {
        for (subscribers, expected) in [(100_000, 0.354), (10_000, 0.129)] {
            let share = share_of_hottest(KeyDistribution::NonUniform, subscribers, 0.01);
            // Ranking by observed counts favours lucky ids a little where all are cold: hence one-sided room above.
            assert!(share > expected - 0.005 && share < expected + 0.01, "{share} on the hottest of {subscribers}");
        }
        assert!(share_of_hottest(KeyDistribution::Uniform, 1_000, 0.01) < 0.012);
    }

    #[test]
    fn every_id_can_be_drawn_and_no_other() {
        let mut random = SeededRandom::new(5);
        for distribution in [KeyDistribution::NonUniform, KeyDistribution::Uniform] {
            for subscribers in [1, 2, 7] {
                let mut seen = vec![false; subscribers as usize];
                for _ in 0..10_000 {
                    seen[distribution.draw(subscribers, &mut random) as usize - 1] = true;
                }
                assert!(seen.iter().all(|seen| *seen), "{} of {subscribers}", distribution.name());
            }
        }
    }
}
