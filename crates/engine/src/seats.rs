//! Degree of parallelism: how many commands of a dataflow are under way at the same time.
//!
//! A command that reads takes a seat before it starts and has it until it is done, through all of its quanta; without
//! one it is put aside in its partition, as one without room for results is. Whoever leaves a seat has one of those
//! that wait visited. Nobody waits while it holds anything, so there is no order to obey: a command that has a seat
//! goes on whatever the others do.
//!
//! A partition may be noted though its command has found a seat since, in a visit that came for another reason. Calling
//! it is calling none. So the last one that leaves calls all that are noted: while a command sits another call follows,
//! and when none does, each that waits has been called.

use eris_storage::PartitionId;

use crate::lock::{Lock, lock};

/// The seats of one dataflow.
pub(crate) struct Seats {
    limit: usize,
    inner: Lock<Inner>,
}

#[derive(Default)]
struct Inner {
    taken: usize,
    /// Partitions with commands that found no seat.
    waiting: Vec<PartitionId>,
}

impl Seats {
    /// So many, at least one.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), inner: Lock::default() }
    }

    /// A seat for a command of `partition`; without one the partition is told when there may be.
    pub fn take(&self, partition: PartitionId) -> bool {
        let inner = &mut *lock(&self.inner);
        if inner.taken < self.limit {
            inner.taken += 1;
            return true;
        }
        if !inner.waiting.contains(&partition) {
            inner.waiting.push(partition);
        }
        false
    }

    /// Gives a seat back; whom to tell.
    pub fn leave(&self) -> Vec<PartitionId> {
        let inner = &mut *lock(&self.inner);
        assert!(inner.taken > 0, "a command that leaves a seat has one");
        inner.taken -= 1;
        if inner.taken == 0 {
            return std::mem::take(&mut inner.waiting);
        }
        inner.waiting.pop().into_iter().collect()
    }

    /// All that wait, once it no longer matters who sits.
    pub fn dismiss(&self) -> Vec<PartitionId> {
        std::mem::take(&mut lock(&self.inner).waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_calls_one_of_those_that_wait() {
        let seats = Seats::new(2);
        let [a, b, c, d] = [1, 2, 3, 4].map(PartitionId);
        assert!(seats.take(a) && seats.take(b));
        assert!(!seats.take(c) && !seats.take(d) && !seats.take(c));
        assert_eq!(seats.leave(), [d]);
        assert!(seats.take(d));
        assert_eq!((seats.leave(), seats.leave()), (vec![c], Vec::new()));
        assert!(seats.take(a) && seats.take(b) && !seats.take(c));
        assert_eq!((seats.dismiss(), seats.dismiss()), (vec![c], Vec::new()));
    }

    /// The command of `c` may have found a seat since, in a visit that came for another reason: to call it alone would
    /// leave `b` waiting for ever.
    #[test]
    fn the_last_one_that_leaves_calls_all() {
        let seats = Seats::new(1);
        let [a, b, c] = [1, 2, 3].map(PartitionId);
        assert!(seats.take(a) && !seats.take(b) && !seats.take(c));
        assert_eq!((seats.leave(), seats.dismiss()), (vec![b, c], Vec::new()));
    }

    #[test]
    #[should_panic(expected = "a command that leaves a seat has one")]
    fn no_seat_is_left_twice() {
        let seats = Seats::new(1);
        assert!(seats.take(PartitionId(1)));
        seats.leave();
        seats.leave();
    }
}
