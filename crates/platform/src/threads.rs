//! Handles of threads that [`Env::spawn`](crate::Env::spawn) started.

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
