//! Handles of threads that [`Env::spawn`](crate::Env::spawn) started.

use std::any::Any;

/// A running thread. Dropping the handle detaches it.
pub trait ThreadHandle: Send {
    /// Waits for the end of the thread.
    fn join(self: Box<Self>) -> Result<(), ThreadPanicked>;

    fn is_finished(&self) -> bool;
}

/// The thread ended by a panic.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("thread \"{thread}\" panicked: {message}")]
pub struct ThreadPanicked {
    pub thread: String,
    pub message: String,
}

/// What a panic said.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
