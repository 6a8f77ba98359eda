//! Cancellation: a flag that commands look at between batches, and a list of who waits meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::lock::{Lock, lock};

/// Cancels a statement from outside. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    cancelled: AtomicBool,
    wakers: Lock<Vec<Waker>>,
}

impl CancelHandle {
    /// Asks the statement to stop; it ends within a quantum plus one batch.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Release);
        for waker in lock(&self.inner.wakers).drain(..) {
            waker.wake();
        }
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }

    /// Wakes `waker` when the statement is cancelled. Cheap to call again with the same waker.
    pub fn register(&self, waker: &Waker) {
        {
            let mut wakers = lock(&self.inner.wakers);
            if !wakers.iter().any(|known| known.will_wake(waker)) {
                wakers.push(waker.clone());
            }
        }
        if self.is_cancelled() {
            waker.wake_by_ref();
        }
    }
}
