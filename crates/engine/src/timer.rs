//! Timers of a node: a heap of deadlines and the wakers that wait for them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use eris_platform::{Nanos, NodeId};

use crate::lock::{Lock, lock};
use crate::near::Near;
use crate::runtime::{Runtime, current_node};

pub(crate) struct Timers {
    next_deadline: AtomicU64,
    heap: Lock<Heap>,
}

struct Heap {
    /// Of the last timer that began here. No two nodes give the same number, so that timers keep theirs when they move.
    sequence: u64,
    entries: BinaryHeap<Reverse<(u64, u64)>>,
    wakers: std::collections::BTreeMap<u64, Waker>,
}

/// How far the numbers of two nodes are apart.
const SEQUENCES_OF_NODE: u32 = 48;

impl Timers {
    pub fn new(node: NodeId) -> Self {
        let sequence = u64::from(node.0) << SEQUENCES_OF_NODE;
        let heap = Heap { sequence, entries: BinaryHeap::new(), wakers: std::collections::BTreeMap::new() };
        Self { next_deadline: AtomicU64::new(u64::MAX), heap: Lock::new(heap) }
    }

    /// Wakes `waker` at the deadline. Gives a number for [`Self::remove`].
    pub fn add(&self, deadline: Nanos, waker: Waker) -> u64 {
        let mut heap = lock(&self.heap);
        heap.sequence += 1;
        let sequence = heap.sequence;
        self.enter(&mut heap, deadline.0, sequence, waker);
        sequence
    }

    fn enter(&self, heap: &mut Heap, deadline: u64, sequence: u64, waker: Waker) {
        heap.entries.push(Reverse((deadline, sequence)));
        heap.wakers.insert(sequence, waker);
        self.next_deadline.fetch_min(deadline, Ordering::AcqRel);
    }

    /// Forgets a timer that nobody waits for any more.
    pub fn remove(&self, sequence: u64) {
        let mut heap = lock(&self.heap);
        if heap.wakers.remove(&sequence).is_none() {
            return;
        }
        // Others in the heap are dropped when they come to its top.
        while let Some(Reverse((_, first))) = heap.entries.peek().copied()
            && !heap.wakers.contains_key(&first)
        {
            heap.entries.pop();
        }
        let next = heap.entries.peek().map_or(u64::MAX, |Reverse((deadline, _))| *deadline);
        self.next_deadline.store(next, Ordering::Release);
    }

    /// Wakes what is due; returns whether anything was.
    pub fn fire(&self, now: Nanos) -> bool {
        if now.0 < self.next_deadline.load(Ordering::Acquire) {
            return false;
        }
        let mut due = Vec::new();
        {
            let mut heap = lock(&self.heap);
            while let Some(Reverse((deadline, sequence))) = heap.entries.peek().copied() {
                if deadline > now.0 {
                    break;
                }
                heap.entries.pop();
                due.extend(heap.wakers.remove(&sequence));
            }
            let next = heap.entries.peek().map_or(u64::MAX, |Reverse((deadline, _))| *deadline);
            self.next_deadline.store(next, Ordering::Release);
        }
        let any = !due.is_empty();
        due.into_iter().for_each(Waker::wake);
        any
    }

    /// Gives all timers to another node, where they have the same numbers.
    pub fn move_to(&self, other: &Self) {
        let (mut entries, mut wakers) = {
            let mut heap = lock(&self.heap);
            self.next_deadline.store(u64::MAX, Ordering::Release);
            (std::mem::take(&mut heap.entries), std::mem::take(&mut heap.wakers))
        };
        let mut heap = lock(&other.heap);
        while let Some(Reverse((deadline, sequence))) = entries.pop() {
            if let Some(waker) = wakers.remove(&sequence) {
                other.enter(&mut heap, deadline, sequence, waker);
            }
        }
    }

    /// The next deadline, if any.
    pub fn next(&self) -> Option<Nanos> {
        let next = self.next_deadline.load(Ordering::Acquire);
        (next != u64::MAX).then_some(Nanos(next))
    }
}

/// Resolves at its deadline.
pub(crate) struct Sleep {
    runtime: Near<Runtime>,
    node: NodeId,
    deadline: Nanos,
    /// Its number among the node's timers, once it runs.
    timer: Option<u64>,
}

impl Sleep {
    /// The timer runs on the node of the caller.
    pub fn until(runtime: &Arc<Runtime>, deadline: Nanos) -> Self {
        let node = current_node().unwrap_or(runtime.nodes[0].id);
        Self { runtime: runtime.near().0, node, deadline, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.env.now() >= self.deadline {
            return Poll::Ready(());
        }
        if self.timer.is_none() {
            self.node = self.runtime.acting_node(self.node).id;
            let timer = self.runtime.node(self.node).timers.add(self.deadline, context.waker().clone());
            self.timer = Some(timer);
            self.runtime.wake_for_timer(self.node);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.runtime.remove_timer(self.node, timer);
        }
    }
}
