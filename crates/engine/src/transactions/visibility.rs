//! Waiting until a timestamp that was taken is visible.
//!
//! Without a log its predecessors are between two instructions of other workers: whoever waits looks again in the next
//! round. With a log they may be on their way to disk: whoever waits sleeps, and whoever decides a timestamp wakes
//! those that are through.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::task::{Context, Poll, Waker};

use eris_storage::Timestamp;

use crate::lock::{Lock, lock};

/// See the [module](self).
#[derive(Default)]
pub(super) struct VisibilityWaits {
    /// Whether anybody sleeps here at all.
    expected: AtomicBool,
    /// Whether somebody does now.
    has_waiters: AtomicBool,
    waiters: Lock<Vec<(Timestamp, Waker)>>,
}

impl VisibilityWaits {
    /// From now on waits may be long.
    pub fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    pub fn poll(&self, timestamp: Timestamp, visible: impl Fn() -> Timestamp, context: &mut Context<'_>) -> Poll<()> {
        if visible() >= timestamp {
            return Poll::Ready(());
        }
        if !self.expected.load(Ordering::Relaxed) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        {
            let mut waiters = lock(&self.waiters);
            waiters.push((timestamp, context.waker().clone()));
            self.has_waiters.store(true, Ordering::Relaxed);
        }
        // Whoever decides looks for waiters behind a fence, too: the later of the two sees the other.
        fence(Ordering::SeqCst);
        if visible() >= timestamp { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Something was decided: wakes those whose timestamps are visible.
    pub fn wake(&self, visible: impl FnOnce() -> Timestamp) {
        if !self.expected.load(Ordering::Relaxed) {
            return;
        }
        fence(Ordering::SeqCst);
        if !self.has_waiters.load(Ordering::Relaxed) {
            return;
        }
        let visible = visible();
        let mut through = Vec::new();
        {
            let mut waiters = lock(&self.waiters);
            waiters.retain(|(timestamp, waker)| {
                let waits = *timestamp > visible;
                if !waits {
                    through.push(waker.clone());
                }
                waits
            });
            self.has_waiters.store(!waiters.is_empty(), Ordering::Relaxed);
        }
        through.into_iter().for_each(Waker::wake);
    }
}
