//! What became of something that somebody asked for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::lock::{Lock, lock};

/// The two ends of an order: whoever carries it out resolves it, whoever asked waits.
#[derive(Debug)]
pub(crate) struct Ticket<T>(Arc<Lock<(Option<T>, Option<Waker>)>>);

impl<T: Clone> Ticket<T> {
    pub fn new() -> Self {
        Self(Arc::new(Lock::new((None, None))))
    }

    /// The first outcome counts.
    pub fn resolve(&self, outcome: T) {
        let waker = {
            let mut state = lock(&self.0);
            state.0.get_or_insert(outcome);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn outcome(&self) -> T {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if let Some(outcome) = &state.0 {
                return Poll::Ready(outcome.clone());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Clone for Ticket<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
