//! Latencies in logarithmic buckets with linear steps inside: constant memory, no sorting, 1.6 % resolution.
//!
//! ```text
//! value 0..63        one bucket each
//! value 64..127      64 buckets of 1
//! value 128..255     64 buckets of 2
//! ...                64 buckets of 2^(k-6) from 2^k on
//! ```

/// Buckets per power of two; the width of a bucket is at most 1/64 of its value.
const STEPS: usize = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// All of u64: the linear start and one group for every power of two above it.
const BUCKETS: usize = STEPS * (64 - STEP_BITS as usize + 1);

/// A distribution of durations in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, duration_ns: u64) {
        self.counts[bucket_of(duration_ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(duration_ns);
    }

    pub fn merge(&mut self, other: &Self) {
        for (count, other) in self.counts.iter_mut().zip(&other.counts) {
            *count += other;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value that a share `quantile` of all values does not exceed: the upper end of its bucket. Zero when empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        assert!((0.0..=1.0).contains(&quantile), "a quantile lies between 0 and 1, not {quantile}");
        let rank = ((quantile * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket_of(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let group = (exponent - STEP_BITS + 1) as usize;
    // The leading one bit is implied by the group.
    let step = (value >> (exponent - STEP_BITS)) as usize - STEPS;
    group * STEPS + step
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (group, step) = (bucket / STEPS, bucket % STEPS);
    let shift = group as u32 - 1;
    let start = ((STEPS + step) as u64) << shift;
    start + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;

    #[test]
    fn buckets_tile_the_whole_range() {
        let mut expected_start = 0u64;
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(expected_start), bucket);
            let end = upper_end(bucket);
            assert_eq!(bucket_of(end), bucket);
            assert!(end - expected_start <= expected_start / 64, "bucket {bucket} is too wide");
            expected_start = end.wrapping_add(1);
        }
        assert_eq!(expected_start, 0, "the last bucket ends at u64::MAX");
    }

    #[test]
    fn quantiles_agree_with_sorting() {
        let mut random = SeededRandom::new(7);
        let mut values: Vec<u64> = (0..10_000).map(|_| 1 << random.below(31)).collect();
        for value in &mut values {
            *value += random.below(*value + 1);
        }
        let (mut left, mut right) = (Histogram::default(), Histogram::default());
        for (index, value) in values.iter().enumerate() {
            if index % 2 == 0 { left.record(*value) } else { right.record(*value) }
        }
        left.merge(&right);
        values.sort_unstable();
        assert_eq!(left.count(), 10_000);
        assert_eq!(left.max_ns(), values[9_999]);
        for quantile in [0.0, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((quantile * 10_000.0_f64).ceil() as usize).max(1);
            let (exact, found) = (values[rank - 1], left.quantile_ns(quantile));
            assert!(found >= exact && found - exact <= exact / 64, "quantile {quantile}: {found} for {exact}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_latency() {
        assert_eq!(Histogram::default().quantile_ns(0.5), 0);
    }
}
