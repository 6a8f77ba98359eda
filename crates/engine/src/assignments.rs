//! Partitions of a node that have commands, for the next worker with time.
//!
//! ```text
//!   urgent: points, control messages   [4][9]        first, but every eighth step begins with the others
//!   later:  scans, loads               [1][2][3]
//! ```
//! With one queue a point access that comes to a partition in the middle of a scan would wait for a quantum of each
//! partition before it. A partition may be in both; whoever visits it takes the most urgent command first anyway.

use crate::node::Queue;
use crate::options::LOW_CLASS_SHARE;

/// How soon a partition is to be visited, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Urgency {
    /// Something waits there that is as urgent as a point access, or more.
    Urgent,
    /// Scans and loads wait there, or go on.
    Later,
}

/// See the [module](self).
pub(crate) struct Assignments<T> {
    urgent: Queue<T>,
    later: Queue<T>,
}

impl<T> Assignments<T> {
    pub fn new() -> Self {
        Self { urgent: Queue::new(), later: Queue::new() }
    }

    /// Appends a partition; it is not in this queue.
    pub fn push(&self, partition: T, urgency: Urgency) {
        match urgency {
            Urgency::Urgent => self.urgent.push(partition),
            Urgency::Later => self.later.push(partition),
        }
    }

    /// The next partition in a worker's step of this number, and out of which queue; none that is less urgent.
    pub fn pop(&self, step: u64, least: Urgency) -> Option<(T, Urgency)> {
        let urgent = || Some((self.urgent.pop()?, Urgency::Urgent));
        let later = || Some((self.later.pop()?, Urgency::Later));
        if least == Urgency::Urgent {
            return urgent();
        }
        if step.is_multiple_of(u64::from(LOW_CLASS_SHARE)) { later().or_else(urgent) } else { urgent().or_else(later) }
    }

    pub fn len(&self) -> usize {
        self.urgent.len() + self.later.len()
    }

    pub fn has_later(&self) -> bool {
        !self.later.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_partitions_come_first_except_every_eighth_step() {
        let assignments = Assignments::new();
        for (partition, urgency) in
            [(1, Urgency::Later), (2, Urgency::Later), (3, Urgency::Urgent), (4, Urgency::Urgent), (5, Urgency::Later)]
        {
            assignments.push(partition, urgency);
        }
        assert_eq!(assignments.len(), 5);
        let pop = |step| assignments.pop(step, Urgency::Later);
        assert_eq!(pop(7), Some((3, Urgency::Urgent)));
        assert_eq!(pop(8), Some((1, Urgency::Later)));
        // Nothing else is urgent after this one, and nobody waits for what is not there.
        assert_eq!([9, 10].map(pop), [(4, Urgency::Urgent), (2, Urgency::Later)].map(Some));
        assert_eq!(assignments.pop(16, Urgency::Urgent), None);
        assert_eq!([16, 24].map(pop), [Some((5, Urgency::Later)), None]);
        assert!(assignments.is_empty());
    }
}
