//! Memory that is exhausted at any reservation, for the simulator.
//!
//! A [pool](crate::MemoryPool) that has such faults asks them at every reservation that takes bytes, and refuses as if
//! the operating system had nothing left. A seed decides which reservations; the chance may change while the pool is in
//! use, so that a run can end in peace. A pool without faults pays one load for the question. Who asked and who was
//! refused is counted, so that a run can tell which reservations it never saw fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::random::SeededRandom;

/// Refuses reservations at random.
#[derive(Debug)]
pub struct MemoryFaults {
    random: Mutex<(SeededRandom, Refusals)>,
    /// Bits of the probability (`f64`) with which one reservation is refused.
    chance: AtomicU64,
}

/// By consumer, also of those who asked and always got.
type Refusals = BTreeMap<&'static str, u64>;

impl MemoryFaults {
    /// Faults that refuse nothing yet.
    pub fn new(seed: u64) -> Self {
        Self { random: Mutex::new((SeededRandom::new(seed), Refusals::new())), chance: AtomicU64::new(0) }
    }

    /// From now on one reservation is refused with this probability, from 0 to 1.
    pub fn set_chance(&self, probability: f64) {
        assert!((0.0..=1.0).contains(&probability), "{probability} is no probability");
        self.chance.store(probability.to_bits(), Ordering::Relaxed);
    }

    /// Reservations refused so far.
    pub fn refused(&self) -> u64 {
        self.refusals().values().sum()
    }

    /// The same by consumer, with those who asked and always got.
    pub fn refusals(&self) -> Refusals {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Whether the next reservation of a consumer is refused.
    pub(crate) fn refuses(&self, consumer: &'static str) -> bool {
        let chance = f64::from_bits(self.chance.load(Ordering::Relaxed));
        if chance <= 0.0 {
            return false;
        }
        let (random, refusals) = &mut *self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let refuses = random.chance(chance);
        *refusals.entry(consumer).or_default() += u64::from(refuses);
        refuses
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::MemoryFaults;
    use crate::memory::{MemoryPool, RefusedBy};

    #[test]
    fn a_refused_reservation_takes_nothing_anywhere() {
        let pool = MemoryPool::new(1_000);
        let faults = Arc::new(MemoryFaults::new(1));
        pool.inject_faults(&faults);
        let statement = pool.child(500);
        let rows = statement.reserve("rows");
        rows.grow(100).unwrap();
        faults.set_chance(1.0);
        let refused = rows.grow(1).unwrap_err();
        assert_eq!((refused.consumer, refused.asked, refused.refused_by), ("rows", 1, RefusedBy::System));
        assert_eq!((pool.used(), statement.used(), rows.bytes(), faults.refused()), (100, 100, 100, 1));
        rows.grow(0).expect("nothing is asked for");
        rows.shrink(100);
        faults.set_chance(0.0);
        rows.grow(500).unwrap();
        assert_eq!((pool.used(), faults.refused()), (500, 1));
        faults.set_chance(f64::MIN_POSITIVE);
        pool.reserve("words").grow(1).unwrap();
        assert_eq!(faults.refusals().into_iter().collect::<Vec<_>>(), [("rows", 1), ("words", 0)]);
    }

    #[test]
    fn a_seed_decides_which_reservations_are_refused() {
        let run = |seed| {
            let pool = MemoryPool::unlimited();
            let faults = Arc::new(MemoryFaults::new(seed));
            faults.set_chance(0.5);
            pool.inject_faults(&faults);
            let rows = pool.reserve("rows");
            (0..64).map(|_| rows.grow(1).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert!(run(3).contains(&true) && run(3).contains(&false));
    }
}
