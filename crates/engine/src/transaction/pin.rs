//! Pins: a consistent view of a container that needs no latch.

use std::sync::Arc;

use eris_storage::{Batch, ContainerId, PinnedSegment, ReadRequest};

use super::Transaction;
use crate::container::Container;
use crate::dataflow::Work;
use crate::error::EngineError;
use crate::message::Primitive;
use crate::results::Results;
use crate::table_locks::TableLockMode;

/// Sealed segments and copies of open rows.
pub struct PinnedScan {
    /// Sealed segments with their delete maps; scan them under the transaction's
    /// [`SnapshotHandle`](crate::SnapshotHandle).
    pub segments: Vec<Arc<PinnedSegment>>,
    /// The qualifying rows of open segments, desired attributes only.
    pub open: Vec<Batch>,
}

/// The same, with the open rows batch by batch.
#[derive(Debug)]
pub struct PinStream {
    results: Results,
}

impl Transaction {
    /// Pins the sealed segments of a container and copies the qualifying rows of its open ones. A SERIALIZABLE
    /// transaction counts as having read what qualifies, so it must not look at others in the segments.
    pub async fn pin(&mut self, container: ContainerId, request: &ReadRequest) -> Result<PinnedScan, EngineError> {
        let near = self.runtime.view(container)?.container.clone();
        self.use_table(&near, TableLockMode::AccessShare).await?;
        let container = self.runtime.container(container)?;
        let mut stream = self.pin_stream(&container, request)?;
        let mut open = Vec::new();
        while let Some(batch) = stream.next_open().await? {
            open.push(batch);
        }
        Ok(PinnedScan { segments: stream.into_segments().await?, open })
    }

    /// The same for who does not want all open rows at once. The container may be dropped by now: its rows are there
    /// for who has it.
    pub fn pin_stream(&mut self, container: &Arc<Container>, request: &ReadRequest) -> Result<PinStream, EngineError> {
        let near = self.runtime.view_of(container).container.clone();
        self.use_table_now(&near, TableLockMode::AccessShare)?;
        self.begin_operation()?;
        self.track_read(container, &request.predicate)?;
        let table = container.table();
        let work = Work::Pin { request: request.clone() };
        let operator = Self::operator(container, &table, work, Some(request));
        let dataflow = self.dataflow(vec![operator]);
        let messages = self.messages(&dataflow, Primitive::Pin);
        Ok(PinStream { results: self.start(dataflow, messages) })
    }
}

impl PinStream {
    /// The next rows of open segments; none behind the last.
    pub async fn next_open(&mut self) -> Result<Option<Batch>, EngineError> {
        self.results.next().await
    }

    /// The sealed segments.
    pub async fn into_segments(self) -> Result<Vec<Arc<PinnedSegment>>, EngineError> {
        let summary = self.results.finish().await?;
        Ok(summary.pinned.into_iter().flat_map(|pinned| pinned.segments).collect())
    }
}
