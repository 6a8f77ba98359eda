//! What a test of values means for codes: found once per segment, then only codes are compared.
//!
//! ```text
//! dictionary   a  c  f  k       c < 'g'  ->  codes 0..=2        c IN ('a','k','z')  ->  codes {0, 3}
//! code         0  1  2  3       c = 'd'  ->  nothing            c LIKE '%'          ->  everything
//! ```

use super::kernels::CodeRange;

/// A test of codes.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::modules) enum CodeTest {
    /// No code qualifies.
    Nothing,
    /// Every code does (of rows that are not NULL).
    Everything,
    /// Those of a range, or all others.
    Range(CodeRange),
    /// Those of a few ranges, none negated.
    AnyOf(Box<[CodeRange]>),
    /// Those whose bit is set; every code has one.
    Set(Box<[u64]>),
    /// Those of a long list, ascending, when codes are too wide for a bit each.
    Sorted(Box<[u64]>),
    /// Strings whose codes are one of these, or none of them.
    Strings { any_of: Box<[Box<[u8]>]>, wanted: bool },
}

/// Ranges up to this many are compared one after the other, if a set of codes would have to be looked up code by code.
const RANGES_MAX: usize = 16;

/// The same where a set fits in a register and is looked up for many codes at once.
const RANGES_OF_BYTES_MAX: usize = 2;

/// Sets of codes have a bit for each of up to this many codes.
const SET_CODES_MAX: u64 = 1 << 16;

impl CodeTest {
    /// Codes from `low` to `high`, both included, of those up to `max`.
    pub(super) fn between(low: u64, high: u64, max: u64) -> Self {
        match low..=high.min(max) {
            range if range.is_empty() => Self::Nothing,
            range if low == 0 && *range.end() == max => Self::Everything,
            range => Self::Range(CodeRange { low, span: range.end() - low, negated: false }),
        }
    }

    /// All others.
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Nothing => Self::Everything,
            Self::Everything => Self::Nothing,
            Self::Range(range) => Self::Range(CodeRange { negated: !range.negated, ..range }),
            Self::AnyOf(_) | Self::Set(_) | Self::Sorted(_) | Self::Strings { .. } => {
                unreachable!("only ranges are negated")
            }
        }
    }

    /// What is left to do for all of some tests: ranges become the one in which they overlap.
    pub(super) fn all_of(tests: Vec<Self>) -> Vec<Self> {
        let mut left: Vec<Self> = Vec::with_capacity(tests.len());
        for test in tests {
            match (&test, left.iter_mut().find_map(Self::as_range)) {
                (Self::Everything, _) => {}
                (Self::Nothing, _) => return vec![Self::Nothing],
                (Self::Range(range), Some(other)) if !range.negated => {
                    let low = range.low.max(other.low);
                    let high = (range.low + range.span).min(other.low + other.span);
                    let Some(span) = high.checked_sub(low) else { return vec![Self::Nothing] };
                    *other = CodeRange { low, span, negated: false };
                }
                _ => left.push(test),
            }
        }
        left
    }

    fn as_range(&mut self) -> Option<&mut CodeRange> {
        match self {
            Self::Range(range) if !range.negated => Some(range),
            _ => None,
        }
    }

    /// Whether many codes are compared at once.
    pub(super) fn is_of_ranges(&self) -> bool {
        match self {
            Self::Nothing | Self::Everything | Self::Range(_) | Self::AnyOf(_) => true,
            Self::Set(_) | Self::Sorted(_) | Self::Strings { .. } => false,
        }
    }

    /// These codes, ascending, of those up to `max`.
    pub(super) fn any_of(codes: &[u64], max: u64) -> Self {
        let ranges_max = if u8::try_from(max).is_ok() { RANGES_OF_BYTES_MAX } else { RANGES_MAX };
        let mut ranges: Vec<CodeRange> = Vec::new();
        for code in codes.iter().copied() {
            match ranges.last_mut() {
                Some(last) if last.low + last.span + 1 == code => last.span += 1,
                Some(_) | None => ranges.push(CodeRange { low: code, span: 0, negated: false }),
            }
            if ranges.len() > ranges_max {
                break;
            }
        }
        match ranges.as_slice() {
            [] => Self::Nothing,
            [only] => Self::between(only.low, only.low + only.span, max),
            ranges if ranges.len() <= ranges_max => Self::AnyOf(ranges.into()),
            _ if max < SET_CODES_MAX => {
                let mut set = vec![0; max as usize / 64 + 1];
                for code in codes {
                    set[(code >> 6) as usize] |= 1 << (code & 63);
                }
                Self::Set(set.into())
            }
            _ => Self::Sorted(codes.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_what_is_compared_fastest() {
        let range = |low, span| CodeRange { low, span, negated: false };
        assert_eq!(CodeTest::any_of(&[], 9), CodeTest::Nothing);
        assert_eq!(CodeTest::any_of(&[3, 4, 5], 9), CodeTest::Range(range(3, 2)));
        assert_eq!(CodeTest::any_of(&[0, 1, 2], 2), CodeTest::Everything);
        assert_eq!(CodeTest::any_of(&[0, 1, 7], 9), CodeTest::AnyOf([range(0, 1), range(7, 0)].into()));
        let spread: Vec<u64> = (0..20).map(|code| code * 5).collect();
        assert!(matches!(CodeTest::any_of(&spread, 100), CodeTest::Set(set) if set.len() == 2));
        assert_eq!(CodeTest::any_of(&spread, 1 << 20), CodeTest::Sorted(spread.into()));
    }

    #[test]
    fn tests_of_one_attribute_become_the_range_in_which_they_overlap() {
        let range = |low, span| CodeTest::Range(CodeRange { low, span, negated: false });
        let other_than = |code| CodeTest::Range(CodeRange { low: code, span: 0, negated: true });
        assert_eq!(CodeTest::all_of(vec![range(3, 6), range(5, 10)]), [range(5, 4)]);
        assert_eq!(CodeTest::all_of(vec![range(5, 10), CodeTest::Everything, range(3, 2)]), [range(5, 0)]);
        assert_eq!(CodeTest::all_of(vec![range(3, 1), range(5, 1)]), [CodeTest::Nothing]);
        assert_eq!(CodeTest::all_of(vec![range(3, 1), other_than(9), CodeTest::Nothing]), [CodeTest::Nothing]);
        let kept = vec![other_than(4), range(3, 6), other_than(7)];
        assert_eq!(CodeTest::all_of(kept.clone()), kept);
        assert_eq!(CodeTest::all_of(vec![]), []);
    }

    #[test]
    fn ranges_end_with_the_domain() {
        assert_eq!(CodeTest::between(3, 2, 9), CodeTest::Nothing);
        assert_eq!(CodeTest::between(10, 20, 9), CodeTest::Nothing);
        assert_eq!(CodeTest::between(0, 20, 9), CodeTest::Everything);
        let upper = CodeRange { low: 4, span: 5, negated: false };
        assert_eq!(CodeTest::between(4, u64::MAX, 9), CodeTest::Range(upper));
        assert_eq!(CodeTest::between(4, 20, 9).negated(), CodeTest::Range(CodeRange { negated: true, ..upper }));
    }
}
