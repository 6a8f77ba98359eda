//! Cancelling whatever a session runs.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use eris_engine::CancelHandle;

use crate::errors::SqlError;

/// What `work` gives, unless `end` comes first: then `work` is dropped.
pub(super) async fn before<T>(end: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut work) = (pin!(end), pin!(work));
    poll_fn(|context| match end.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// What `work` gives, unless the statement is cancelled first: for what does not hear of that itself.
pub(super) async fn unless_cancelled<T>(cancel: &CancelHandle, work: impl Future<Output = T>) -> Result<T, SqlError> {
    let cancelled = poll_fn(|context| {
        cancel.register(context.waker());
        if cancel.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    });
    before(cancelled, work).await.ok_or_else(SqlError::cancelled)
}

/// Cancels the running statement of a session from anywhere; with none running it does nothing.
#[derive(Clone, Debug, Default)]
pub struct SessionCancel {
    running: Arc<Mutex<Option<CancelHandle>>>,
}

impl SessionCancel {
    /// Asks the running statement to stop.
    pub fn cancel(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handle) = running {
            handle.cancel();
        }
    }

    /// A statement begins: what was asked of the one before is over.
    pub(super) fn begin(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(CancelHandle::default());
    }

    /// The handle of the running statement: one for all it does, so that whoever cancels it while it is planned has
    /// cancelled what it would have read.
    pub(super) fn handle(&self) -> CancelHandle {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().clone()
    }

    /// No statement runs any more.
    pub(super) fn end(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_statement_does_is_cancelled_and_nothing_of_the_next() {
        let session = SessionCancel::default();
        session.begin();
        let planning = session.handle();
        session.cancel();
        let reading = session.handle();
        assert!(planning.is_cancelled() && reading.is_cancelled());
        session.end();
        session.cancel();
        assert!(!session.handle().is_cancelled(), "none ran");
        session.cancel();
        session.begin();
        assert!(!session.handle().is_cancelled(), "it was asked of the one before");
    }
}
