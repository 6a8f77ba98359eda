//! Cancelling whatever a session runs.

use std::sync::{Arc, Mutex, PoisonError};

use eris_engine::CancelHandle;

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

    /// A statement begins; its handle.
    pub(super) fn begin(&self) -> CancelHandle {
        let handle = CancelHandle::default();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle.clone());
        handle
    }

    /// No statement runs any more.
    pub(super) fn end(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
