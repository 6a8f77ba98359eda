//! What a task sees of a running dataflow: its batches, in the order they arrive, and its end.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

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
        poll_fn(|context| {
            self.cancel.register(context.waker());
            let (polled, resumed) = self.dataflow.poll_result(&self.runtime, context);
            self.runtime.visit_all(&resumed);
            match polled {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
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
        Ok(self.dataflow.take_summary())
    }

    /// Like [`Self::finish`], keeping the batches.
    pub(crate) async fn finish_with_batches(mut self) -> Result<(Vec<Batch>, Summary), EngineError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await? {
            batches.push(batch);
        }
        Ok((batches, self.dataflow.take_summary()))
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
