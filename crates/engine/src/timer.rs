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
use crate::runtime::{Runtime, current_node};

#[derive(Default)]
pub(crate) struct Timers {
    next_deadline: AtomicU64,
    heap: Lock<Heap>,
}

#[derive(Default)]
struct Heap {
    sequence: u64,
    entries: BinaryHeap<Reverse<(u64, u64)>>,
    wakers: std::collections::BTreeMap<u64, Waker>,
}

impl Timers {
    pub fn new() -> Self {
        Self { next_deadline: AtomicU64::new(u64::MAX), heap: Lock::default() }
    }

    pub fn add(&self, deadline: Nanos, waker: Waker) {
        let mut heap = lock(&self.heap);
        heap.sequence += 1;
        let sequence = heap.sequence;
        heap.entries.push(Reverse((deadline.0, sequence)));
        heap.wakers.insert(sequence, waker);
        self.next_deadline.fetch_min(deadline.0, Ordering::AcqRel);
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

    /// Gives all timers to another node.
    pub fn move_to(&self, other: &Self) {
        let moved = std::mem::take(&mut *lock(&self.heap));
        self.next_deadline.store(u64::MAX, Ordering::Release);
        let Heap { mut entries, mut wakers, .. } = moved;
        while let Some(Reverse((deadline, sequence))) = entries.pop() {
            if let Some(waker) = wakers.remove(&sequence) {
                other.add(Nanos(deadline), waker);
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
    runtime: Arc<Runtime>,
    node: NodeId,
    deadline: Nanos,
    registered: bool,
}

impl Sleep {
    /// The timer runs on the node of the caller.
    pub fn until(runtime: &Arc<Runtime>, deadline: Nanos) -> Self {
        let node = current_node().unwrap_or(runtime.nodes[0].id);
        Self { runtime: Arc::clone(runtime), node, deadline, registered: false }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.env.now() >= self.deadline {
            return Poll::Ready(());
        }
        if !self.registered {
            self.registered = true;
            self.runtime.acting_node(self.node).timers.add(self.deadline, context.waker().clone());
            // A sleeping worker has to shorten its sleep.
            self.runtime.wake_node(self.runtime.acting_node(self.node).id);
        }
        Poll::Pending
    }
}
