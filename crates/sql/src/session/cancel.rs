//! Cancelling whatever a session runs.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use eris_engine::CancelHandle;

use crate::activity::Activity;
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
#[derive(Clone)]
pub struct SessionCancel {
    activity: Arc<Activity>,
}

impl fmt::Debug for SessionCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionCancel({})", self.activity.process)
    }
}

impl SessionCancel {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        Self { activity: Arc::clone(activity) }
    }

    /// Asks the running statement to stop.
    pub fn cancel(&self) {
        self.activity.cancel_for_client();
    }
}
