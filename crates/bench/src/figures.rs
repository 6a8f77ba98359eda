//! The few summaries that reports need.

/// The middle of the values, or the mean of the two in the middle. Zero when there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The geometric mean of positive values. Zero when there are none.
pub fn geometric_mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let logarithms: f64 = values.iter().map(|value| value.max(f64::MIN_POSITIVE).ln()).sum();
    (logarithms / values.len() as f64).exp()
}

/// The value that a share `quantile` of all values does not exceed. Zero when there are none.
pub fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-12);
        assert!(median(&[]).abs() < 1e-12);
    }

    #[test]
    fn quantiles() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert!((quantile(&values, share) - expected).abs() < 1e-12, "{share}");
        }
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }

    #[test]
    fn geometric_means() {
        assert!((geometric_mean(&[1.0, 100.0]) - 10.0).abs() < 1e-9);
        assert!((geometric_mean(&[7.0]) - 7.0).abs() < 1e-9);
        assert!(geometric_mean(&[]).abs() < 1e-12);
    }
}
