//! Whether a task panicked: the engine goes on without it, and the test must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clones watch together.
#[derive(Clone, Default)]
pub struct Watch(Arc<AtomicBool>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Watch {
    /// The task, watched.
    pub async fn over<T>(self, task: impl Future<Output = T>) -> T {
        let value = task.await;
        drop(self);
        value
    }

    pub fn check(&self) {
        assert!(!self.0.load(Ordering::Relaxed), "a client or a builder panicked");
    }
}
