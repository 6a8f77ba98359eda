//! Work in a task of the engine, and when it ended: for what is measured as long as the work takes.

use eris_engine::{Engine, EngineError};
use eris_platform::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// The end of work that has none yet, in nanoseconds of the engine's clock.
const NEVER: u64 = u64::MAX;

/// When some work ended.
#[derive(Clone, Debug)]
pub(crate) struct WorkEnd(Arc<AtomicU64>);

impl WorkEnd {
    /// Of no work.
    pub fn never() -> Self {
        Self(Arc::new(AtomicU64::new(NEVER)))
    }

    /// Whether the work had ended by then.
    pub fn is_by(&self, moment: Nanos) -> bool {
        moment.0 >= self.0.load(Ordering::Acquire)
    }
}

/// Work that was started.
pub(crate) struct Work<T> {
    end: WorkEnd,
    value: mpsc::Receiver<T>,
}

impl<T: Send + 'static> Work<T> {
    pub fn start(engine: &Engine, work: impl Future<Output = T> + Send + 'static) -> Self {
        let end = WorkEnd::never();
        let (sender, receiver) = mpsc::channel();
        let (env, told_end) = (Arc::clone(engine.env()), end.clone());
        engine.spawn(async move {
            let value = work.await;
            told_end.0.store(env.now().0, Ordering::Release);
            // The receiver waits for it; it is gone only if the run is.
            let _ = sender.send(value);
        });
        Self { end, value: receiver }
    }

    pub fn end(&self) -> &WorkEnd {
        &self.end
    }

    /// Waits for what it ends with. For threads that are not workers.
    pub fn value(self) -> Result<T, EngineError> {
        let lost = |_| EngineError::OperatorPanicked("the work ended without a result".to_owned());
        self.value.recv().map_err(lost)
    }
}
