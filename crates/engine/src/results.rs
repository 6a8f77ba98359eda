//! What a task sees of a running dataflow: its batches, in the order they arrive, and its end.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use eris_storage::Batch;

use crate::cancel::CancelHandle;
use crate::dataflow::{Dataflow, Summary};
use crate::error::EngineError;
use crate::runtime::Runtime;
use crate::transactions::StreamGuard;

/// The results of a dataflow. Dropping them early cancels the rest of it.
pub struct Results {
    runtime: Arc<Runtime>,
    dataflow: Arc<Dataflow>,
    cancel: CancelHandle,
    _stream: StreamGuard,
}

impl Results {
    pub(crate) fn new(
        runtime: &Arc<Runtime>,
        dataflow: Arc<Dataflow>,
        cancel: CancelHandle,
        stream: StreamGuard,
    ) -> Self {
        Self { runtime: Arc::clone(runtime), dataflow, cancel, _stream: stream }
    }

    /// The next batch; `None` after the last. An error is final.
    pub async fn next(&mut self) -> Result<Option<Batch>, EngineError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// See [`Self::next`].
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Batch>, EngineError>> {
        self.cancel.register(context.waker());
        let (polled, resumed) = self.dataflow.poll_result(&self.runtime, context);
        self.runtime.visit_all(&resumed);
        polled
    }

    /// What a dataflow tells that has come to its end.
    pub(crate) fn summary(&self) -> Summary {
        self.dataflow.take_summary()
    }

    /// Takes all batches.
    pub async fn collect(mut self) -> Result<Vec<Batch>, EngineError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Waits for the end of a dataflow whose batches nobody wants.
    pub(crate) async fn finish(mut self) -> Result<Summary, EngineError> {
        while self.next().await?.is_some() {}
        Ok(self.summary())
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        if !self.dataflow.is_finished() {
            let stalled = self.dataflow.abandon();
            self.runtime.visit_all(&stalled);
        }
    }
}

impl fmt::Debug for Results {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Results({})", self.dataflow.id)
    }
}
