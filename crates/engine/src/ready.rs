//! Tasks of a node that are ready: a queue for each worker, and one for all threads that are no workers of it.
//!
//! ```text
//!   worker 0 makes ready ──> its lane ───────> worker 0, in turn with the lane of the others
//!   worker 1 makes ready ──> its lane ───────> worker 1
//!                                └ steals ───> worker 0, when it has none, and now and then
//!   anybody else ──────────> the last lane ──> whoever comes first
//! ```
//! What a task has just touched lies with the worker that made it ready, and workers with tasks of their own do not
//! meet at a lock, whose holder may have lost its processor. Nobody's tasks wait for a worker that is at something
//! long: who has none takes them one by one, and who always has some takes them all over when it sees that they stay.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::counters::own_slot;
use crate::node::Queue;

/// Every n-th task that a worker takes is one of the last lane, if that has any: its guaranteed share.
const LAST_SHARE: u32 = 4;
/// Every n-th time that a worker asks for a task it looks whether another worker's tasks stay where they are.
const LOOK_SHARE: u32 = 64;
/// So many tasks are not waiting for a moment only.
const BEHIND: usize = 4;

/// A queue on cache lines of its own, and what its worker knows.
#[repr(align(128))]
struct Lane<T> {
    tasks: Queue<T>,
    /// How often its worker has asked for a task.
    asked: AtomicU32,
    /// The lane that its worker looks at, and how often that one's had asked at the last look.
    watched: AtomicU32,
    seen: AtomicU32,
    /// How often all others had asked when its worker looked whether they are behind.
    others_asked: AtomicU32,
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
        let zero = || AtomicU32::new(0);
        let lane = |_| Lane { tasks: Queue::new(), asked: zero(), watched: zero(), seen: zero(), others_asked: zero() };
        Self { workers: workers.into(), lanes: (0..=workers.len()).map(lane).collect() }
    }

    fn last(&self) -> usize {
        self.lanes.len() - 1
    }

    /// The lane of the current thread.
    fn own(&self) -> usize {
        self.workers.binary_search(&own_slot(usize::MAX)).unwrap_or(self.last())
    }

    pub fn push(&self, task: T) {
        self.lanes[self.own()].tasks.push(task);
    }

    /// A task for the worker that runs on this thread.
    pub fn pop(&self) -> Option<T> {
        let (own, last) = (self.own(), self.last());
        let (lane, last_lane) = (&self.lanes[own], &self.lanes[last]);
        let turn = lane.asked.load(Ordering::Relaxed).wrapping_add(1);
        lane.asked.store(turn, Ordering::Relaxed);
        if turn.is_multiple_of(LOOK_SHARE) {
            self.take_over_what_stays(own);
        }
        let near = if turn.is_multiple_of(LAST_SHARE) {
            last_lane.tasks.pop().or_else(|| lane.tasks.pop())
        } else {
            lane.tasks.pop().or_else(|| last_lane.tasks.pop())
        };
        let mut others = (own + 1..last).chain(0..own).map(|other| &self.lanes[other].tasks);
        near.or_else(|| others.find_map(Queue::pop_unless_locked))
    }

    /// Looks at another worker's lane; if that has asked for nothing since the last look, its tasks become this one's.
    fn take_over_what_stays(&self, own: usize) {
        let (lane, last) = (&self.lanes[own], self.last());
        if last == 1 {
            return;
        }
        let watched = lane.watched.load(Ordering::Relaxed) as usize;
        let other = &self.lanes[watched];
        if watched != own && other.asked.load(Ordering::Relaxed) == lane.seen.load(Ordering::Relaxed) {
            lane.tasks.take_over(&other.tasks);
        }
        let next = (watched + 1..last).chain(0..=watched).find(|next| *next != own).unwrap_or(own);
        lane.watched.store(next as u32, Ordering::Relaxed);
        lane.seen.store(self.lanes[next].asked.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A task of any lane, for who is no worker of the node.
    pub fn pop_any(&self) -> Option<T> {
        self.lanes.iter().find_map(|lane| lane.tasks.pop())
    }

    /// How many there are that the current thread has to see to: those of its own lane and of the last, or if there are
    /// none all others.
    pub fn due(&self) -> usize {
        let own = self.own_len();
        if own > 0 { own } else { self.len() }
    }

    /// The same for a worker that has something else to do: those of others only if they are many, or nobody has asked
    /// for any since this worker's last look.
    pub fn due_if_behind(&self) -> usize {
        let (own, last) = (self.own(), self.last());
        let others = (0..last).filter(|other| *other != own);
        let asked = others.fold(0_u32, |sum, other| sum.wrapping_add(self.lanes[other].asked.load(Ordering::Relaxed)));
        let stand_still = self.lanes[own].others_asked.swap(asked, Ordering::Relaxed) == asked;
        let (near, all) = (self.own_len(), self.len());
        if near == 0 && (stand_still || all >= BEHIND) { all } else { near }
    }

    /// How many there are in the current thread's lane and the last.
    pub fn own_len(&self) -> usize {
        let (own, last) = (self.own(), self.last());
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
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::counters::count_as;

    fn push_as(ready: &Ready<usize>, worker: usize, tasks: impl Iterator<Item = usize>) {
        count_as(worker);
        tasks.for_each(|task| ready.push(task));
    }

    #[test]
    fn a_worker_takes_its_own_in_turn_with_those_of_no_worker_then_the_others() {
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
    fn who_has_something_else_to_do_sees_to_those_that_are_behind() {
        let ready = Ready::new(&[0, 1]);
        push_as(&ready, 0, 0..3);
        let due_after = |asks| {
            count_as(0);
            (0..asks).for_each(|_| assert!(ready.pop().is_some()));
            count_as(1);
            ready.due_if_behind()
        };
        assert_eq!(due_after(1), 0, "their worker is at them");
        assert_eq!(due_after(0), 2, "it is at something long");
        assert_eq!(due_after(1), 0);
        push_as(&ready, 0, 0..BEHIND);
        assert_eq!(due_after(1), BEHIND, "it has too many");
        push_as(&ready, 1, 0..1);
        assert_eq!(due_after(0), 1, "its own first");
    }

    /// A task that makes itself ready again is ahead of nobody for long.
    #[test]
    fn who_always_has_some_takes_a_share_of_those_of_no_worker() {
        let ready = Ready::new(&[0, 1]);
        push_as(&ready, 7, 2_000..2_100);
        push_as(&ready, 0, 0..1);
        count_as(0);
        let mut from_last = 0;
        for _ in 0..100 * LAST_SHARE {
            match ready.pop() {
                Some(0) => ready.push(0),
                Some(_) => from_last += 1,
                None => panic!("there is one"),
            }
        }
        assert_eq!(from_last, 100);
    }

    #[test]
    fn who_always_has_some_takes_over_what_stays_with_another() {
        let ready = Ready::new(&[0, 1, 2]);
        for worker in [1, 2] {
            push_as(&ready, worker, worker * 1_000..worker * 1_000 + 50);
        }
        push_as(&ready, 0, 0..1);
        let mut taken = Vec::new();
        for _ in 0..6 * LOOK_SHARE {
            count_as(0);
            match ready.pop() {
                Some(0) => ready.push(0),
                Some(task) => taken.push(task),
                None => panic!("there is one"),
            }
            // This one asks, and is at none of its tasks for long.
            count_as(2);
            let own = ready.pop();
            push_as(&ready, 2, own.into_iter());
        }
        taken.sort_unstable();
        assert_eq!(taken, (1_000..1_050).collect::<Vec<_>>());
    }

    #[test]
    fn a_thief_does_not_wait_for_who_is_at_the_queue() {
        let ready = Ready::new(&[0, 1]);
        push_as(&ready, 1, [10].into_iter());
        let held = ready.lanes[1].tasks.hold();
        let (sender, receiver) = mpsc::channel();
        let pop = || {
            count_as(0);
            sender.send(ready.pop())
        };
        thread::scope(|scope| {
            scope.spawn(pop);
            let popped = receiver.recv_timeout(Duration::from_mins(1));
            // Before the comparison, so that a thief who waits comes to an end.
            drop(held);
            assert_eq!(popped, Ok(None));
        });
        count_as(0);
        assert_eq!(ready.pop(), Some(10));
    }
}
