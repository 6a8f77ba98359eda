//! Monotonic time as a number of nanoseconds since the environment started.
//!
//! A plain number rather than `std::time::Instant`, because the simulated clock has to be able to make one. Spans are
//! `std::time::Duration`.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in monotonic time: nanoseconds since an arbitrary start that is fixed for one [`Env`](crate::Env).
/// 64 bits last for 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    /// Later than everything; a deadline that never comes.
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros.saturating_mul(1_000))
    }

    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time that passed from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long from `self` until `deadline`; zero if it has passed.
    pub const fn until(self, deadline: Nanos) -> Duration {
        deadline.since(self)
    }

    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Nanos {
        Nanos(self.0.saturating_add(nanoseconds_of(span)))
    }

    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(nanoseconds_of(span)))
    }
}

/// Spans beyond 584 years saturate.
fn nanoseconds_of(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Nanos {
    type Output = Nanos;

    /// Saturates: a deadline beyond the end of time is the end of time.
    fn add(self, span: Duration) -> Nanos {
        self.saturating_add(span)
    }
}

impl AddAssign<Duration> for Nanos {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Nanos> for Nanos {
    type Output = Duration;

    /// Zero if `earlier` is later, like [`Nanos::since`].
    fn sub(self, earlier: Nanos) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:06} s", self.0 / 1_000_000_000, self.as_micros() % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let start = Nanos::from_micros(5);
        assert_eq!(start + Duration::from_nanos(7), Nanos(5_007));
        assert_eq!(Nanos(3) - Nanos(10), Duration::ZERO);
        assert_eq!(Nanos(10) - Nanos(3), Duration::from_nanos(7));
        assert_eq!(Nanos::MAX + Duration::from_secs(1), Nanos::MAX);
        assert_eq!(Nanos(5).saturating_sub(Duration::from_secs(1)), Nanos::ZERO);
        assert_eq!(Nanos::ZERO + Duration::MAX, Nanos::MAX);
        assert_eq!(Nanos(1_999).as_micros(), 1);
        assert_eq!(Nanos::from_millis(1_500).to_string(), "1.500000 s");
    }
}
