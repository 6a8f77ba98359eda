//! Tasks of a node that are ready: a queue for each worker, and one for all threads that are no workers of it.
//!
//! ```text
//!   worker 0 makes ready ──> its queue ──────────> worker 0, in turn with the queue of the others
//!   worker 1 makes ready ──> its queue ──────────> worker 1
//!                                   └ steals ────> worker 0, when it has none, and now and then
//!   anybody else ──────────> queue of the others ─> whoever comes first
//! ```
//! What a task has just touched lies with the worker that made it ready, and workers with tasks of their own do not
//! meet at a lock, whose holder may have lost its processor. A worker that is at something long does not keep its tasks
//! from being polled: who has none steals, and who always has some does so with every [`STEAL_SHARE`]-th.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::counters::own_slot;
use crate::node::Queue;

/// Every n-th task that a worker takes comes from the other queues, if they have any: their guaranteed share.
const STEAL_SHARE: u32 = 64;

/// A queue on cache lines of its own.
#[repr(align(128))]
struct Lane<T> {
    tasks: Queue<T>,
    /// How many its worker has taken.
    taken: AtomicU32,
}

/// See the module.
pub(crate) struct Ready<T> {
    /// Engine-wide numbers of the workers, in order.
    workers: Box<[usize]>,
    /// One for each worker, and a last one.
    lanes: Box<[Lane<T>]>,
}

impl<T> Ready<T> {
    /// For a node with these workers, in the order of their numbers.
    pub fn new(workers: &[usize]) -> Self {
        let lane = |_| Lane { tasks: Queue::new(), taken: AtomicU32::new(0) };
        Self { workers: workers.into(), lanes: (0..=workers.len()).map(lane).collect() }
    }

    /// The lane of the current thread.
    fn own(&self) -> usize {
        self.workers.binary_search(&own_slot(usize::MAX)).unwrap_or(self.lanes.len() - 1)
    }

    pub fn push(&self, task: T) {
        self.lanes[self.own()].tasks.push(task);
    }

    /// A task for the current thread.
    pub fn pop(&self) -> Option<T> {
        let (own, last) = (self.own(), self.lanes.len() - 1);
        let lane = &self.lanes[own];
        let foreign = || {
            let mut others = (own + 1..last).chain(0..own).map(|other| &self.lanes[other].tasks);
            self.lanes[last].tasks.pop().or_else(|| others.find_map(Queue::pop_unless_locked))
        };
        let turn = lane.taken.load(Ordering::Relaxed).wrapping_add(1);
        lane.taken.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(STEAL_SHARE) {
            return foreign().or_else(|| lane.tasks.pop());
        }
        lane.tasks.pop().or_else(foreign)
    }

    /// How many there are that the current thread has to see to: those of its own lane and of the last, or if there are
    /// none all others.
    pub fn due(&self) -> usize {
        let own = self.own_len();
        if own > 0 { own } else { self.len() }
    }

    /// How many there are in the current thread's lane and the last.
    pub fn own_len(&self) -> usize {
        let (own, last) = (self.own(), self.lanes.len() - 1);
        let len = self.lanes[own].tasks.len();
        if own == last { len } else { len + self.lanes[last].tasks.len() }
    }

    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.tasks.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.tasks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::count_as;

    fn push_as(ready: &Ready<usize>, worker: usize, tasks: impl Iterator<Item = usize>) {
        count_as(worker);
        tasks.for_each(|task| ready.push(task));
    }

    #[test]
    fn a_worker_takes_its_own_first_then_those_of_no_worker_then_the_others() {
        let ready = Ready::new(&[4, 5, 6]);
        // 9 is a worker of another node.
        for (worker, task) in [(4, 40), (5, 50), (6, 60), (9, 90)] {
            push_as(&ready, worker, [task, task + 1].into_iter());
        }
        count_as(5);
        assert_eq!((ready.len(), ready.own_len(), ready.due()), (8, 4, 4));
        let taken: Vec<usize> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(taken, [50, 51, 90, 91, 60, 61, 40, 41]);
        assert!(ready.is_empty());
        push_as(&ready, 4, [40].into_iter());
        count_as(5);
        assert_eq!((ready.own_len(), ready.due()), (0, 1), "it has none, so the others' are its own to see to");
    }

    #[test]
    fn who_always_has_some_takes_a_share_from_others() {
        let ready = Ready::new(&[0, 1]);
        push_as(&ready, 1, 1_000..1_002);
        push_as(&ready, 7, 2_000..2_002);
        push_as(&ready, 0, 0..300);
        count_as(0);
        let foreign = |taken: &usize| (*taken >= 1_000).then_some(*taken);
        let taken: Vec<usize> = (0..4 * STEAL_SHARE).filter_map(|_| ready.pop()).collect();
        assert_eq!(taken.len() as u32, 4 * STEAL_SHARE);
        assert_eq!(taken.iter().filter_map(foreign).collect::<Vec<_>>(), [2_000, 2_001, 1_000, 1_001]);
    }

    #[test]
    fn a_thief_does_not_wait_for_who_is_at_the_queue() {
        let ready = Ready::new(&[0, 1]);
        push_as(&ready, 1, [10].into_iter());
        let held = ready.lanes[1].tasks.hold();
        count_as(0);
        assert_eq!(ready.pop(), None);
        drop(held);
        assert_eq!(ready.pop(), Some(10));
    }
}
