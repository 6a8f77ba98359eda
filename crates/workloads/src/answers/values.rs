//! Numbers as texts: their canonical spelling, their order, and when two are equal.

use std::cmp::Ordering;

/// Largest relative difference of approximate values.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// Numbers that differ by 1e-9 of the expected one at most, or the same text.
pub(super) fn approximately_equal(expected: &str, actual: &str) -> bool {
    match (expected.parse::<f64>(), actual.parse::<f64>()) {
        (Ok(expected), Ok(actual)) => (expected - actual).abs() <= RELATIVE_TOLERANCE * expected.abs(),
        // NULL on both sides.
        _ => expected == actual,
    }
}

/// The same, or by one unit of the actual one's last place.
pub(super) fn equal_as_printed(expected: &str, actual: &str) -> bool {
    let decimals = actual.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unit = 0.1f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX));
    match (expected.parse::<f64>(), actual.parse::<f64>()) {
        (Ok(expected_value), Ok(actual_value)) => {
            approximately_equal(expected, actual)
                || (expected_value - actual_value).abs() <= unit * (1.0 + RELATIVE_TOLERANCE)
        }
        _ => expected == actual,
    }
}

/// A decimal number without leading or trailing zeros: `0012.300` is `12.3`, `-0.0` is `0`. Other text stays.
pub(super) fn canonical_decimal(text: &str) -> String {
    let text = text.trim();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let numeric = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !numeric || digits.is_empty() {
        return text.to_owned();
    }
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    match (whole, fraction) {
        ("", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{}.{fraction}", if whole.is_empty() { "0" } else { whole }),
    }
}

/// Numeric order of two canonical decimals of any length.
pub(super) fn compare_decimals(left: &str, right: &str) -> Ordering {
    fn magnitude(text: &str) -> (usize, &str, &str) {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        (whole.len(), whole, fraction)
    }
    match (left.strip_prefix('-'), right.strip_prefix('-')) {
        (None, None) => magnitude(left).cmp(&magnitude(right)),
        (Some(left), Some(right)) => magnitude(right).cmp(&magnitude(left)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_decimals_are_enough_only_where_they_are_all_one_gets() {
        assert!(equal_as_printed("0.05014459706340077", "0.050144"));
        assert!(equal_as_printed("0.05014459706340077", "0.050145"));
        assert!(!equal_as_printed("0.05014459706340077", "0.050146"));
        assert!(!equal_as_printed("0.05014459706340077", "0.0501444"));
        assert!(!equal_as_printed("NULL", "0.05"));
    }

    #[test]
    fn decimals_compare_as_numbers() {
        let sorted = ["-12.5", "-12.25", "-1", "-0.3", "0", "0.25", "0.3", "2", "2.000001", "10", "99999999999999.01"];
        for (i, left) in sorted.iter().enumerate() {
            assert_eq!(&canonical_decimal(left), left);
            for (j, right) in sorted.iter().enumerate() {
                assert_eq!(compare_decimals(left, right), i.cmp(&j), "{left} {right}");
            }
        }
        for (spelling, canonical) in [("007.50", "7.5"), ("-0.00", "0"), ("-.5", "-0.5"), ("NULL", "NULL"), ("", "")] {
            assert_eq!(canonical_decimal(spelling), canonical);
        }
    }
}
