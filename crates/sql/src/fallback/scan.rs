//! The scan operator of the lane: partitions take morsels from one queue, so that none idles while another has work.
//!
//! A morsel is a pinned segment or a batch of open rows. Segments whose bounds exclude the predicate never become one.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use eris_engine::{CancelHandle, PinnedScan, SnapshotHandle};
use eris_storage::{Batch, PinnedCursor, PinnedSegment};
use futures_core::Stream;

use super::sample::Sample;
use super::statistics::scan_statistics;
use crate::arrow_view::batch_to_arrow;
use crate::errors::SqlError;
use crate::plan::{ScanTarget, storage_error};

/// Rows of a batch that a scan hands out.
const SCAN_BATCH_ROWS: usize = 8_192;

/// A scan of one pinned table.
pub(super) struct SegmentScan {
    target: Arc<ScanTarget>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
    source: Arc<Source>,
    /// One queue per time that the partitions are executed: an operator may run its input again.
    rounds: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
    executed: Arc<[AtomicUsize]>,
}

/// What morsels are cut from.
struct Source {
    segments: Vec<Arc<PinnedSegment>>,
    open: Vec<Batch>,
    snapshot: Arc<SnapshotHandle>,
    cancel: CancelHandle,
    /// Segments in all, with the pruned ones.
    segments_total: usize,
}

impl SegmentScan {
    pub fn new(
        target: ScanTarget,
        pinned: &PinnedScan,
        snapshot: Arc<SnapshotHandle>,
        cancel: CancelHandle,
        partitions: usize,
    ) -> Result<Self> {
        let positions: Vec<usize> = target.request.desired.iter().map(|attribute| attribute.index()).collect();
        let schema = Arc::new(target.table.arrow().project(&positions)?);
        let conditions = &target.request.predicate.conditions;
        let segments: Vec<Arc<PinnedSegment>> =
            pinned.segments.iter().filter(|segment| segment.segment().may_qualify(conditions)).cloned().collect();
        let statistics = scan_statistics(&target, &segments, &pinned.open, &schema, &snapshot);
        let morsels = segments.len() + pinned.open.len();
        let partitions = partitions.min(morsels).max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let source =
            Source { segments, open: pinned.open.clone(), snapshot, cancel, segments_total: pinned.segments.len() };
        Ok(Self {
            target: Arc::new(target),
            schema,
            properties: Arc::new(properties),
            statistics: Arc::new(statistics),
            source: Arc::new(source),
            rounds: Arc::default(),
            executed: (0..partitions).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Some of its rows.
    pub fn sample(&self) -> Sample {
        Sample::take(&self.target, &self.source.segments, &self.source.snapshot)
    }

    /// The queue of a partition's next round.
    fn queue(&self, partition: usize) -> Arc<AtomicUsize> {
        let round = self.executed[partition].fetch_add(1, Ordering::Relaxed);
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        while rounds.len() <= round {
            rounds.push(Arc::default());
        }
        Arc::clone(&rounds[round])
    }
}

impl fmt::Debug for SegmentScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentScan({})", self.target.table.name)
    }
}

impl DisplayAs for SegmentScan {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.target.table;
        write!(f, "ErisScan {}", table.name)?;
        let conditions = &self.target.request.predicate.conditions;
        if !conditions.is_empty() {
            let list: Vec<String> = conditions.iter().map(|condition| condition.describe(&table.schema)).collect();
            write!(f, " where {}", list.join(" and "))?;
        }
        write!(
            f,
            ": pinned, {} of {} segments after pruning, {} open batches, filter native",
            self.source.segments.len(),
            self.source.segments_total,
            self.source.open.len()
        )
    }
}

impl ExecutionPlan for SegmentScan {
    fn name(&self) -> &'static str {
        "ErisScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(ScanStream {
            target: Arc::clone(&self.target),
            schema: Arc::clone(&self.schema),
            source: Arc::clone(&self.source),
            queue: self.queue(partition),
            current: None,
        }))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        match partition {
            None => Ok(Arc::clone(&self.statistics)),
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.schema))),
        }
    }
}

/// One partition's stream.
struct ScanStream {
    target: Arc<ScanTarget>,
    schema: SchemaRef,
    source: Arc<Source>,
    queue: Arc<AtomicUsize>,
    current: Option<(Arc<PinnedSegment>, PinnedCursor)>,
}

impl ScanStream {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let external = |error: SqlError| DataFusionError::External(Box::new(error));
        loop {
            if self.source.cancel.is_cancelled() {
                return Err(external(SqlError::cancelled()));
            }
            if let Some((segment, cursor)) = &mut self.current {
                let snapshot = self.source.snapshot.snapshot();
                let found = segment
                    .scan(&snapshot, &self.target.request, cursor, SCAN_BATCH_ROWS)
                    .map_err(|error| external(storage_error(&error, Some(&self.target.table))))?;
                // Only now is it known that the segment's words said what they say to this snapshot.
                if self.source.snapshot.is_revoked() {
                    return Err(external(SqlError::snapshot_too_old()));
                }
                match found {
                    Some(batch) if batch.rows > 0 => {
                        return Ok(Some(batch_to_arrow(&batch, Arc::clone(&self.schema))?));
                    }
                    Some(_) => continue,
                    None => self.current = None,
                }
            }
            let next = self.queue.fetch_add(1, Ordering::Relaxed);
            if let Some(segment) = self.source.segments.get(next) {
                self.current = Some((Arc::clone(segment), PinnedCursor::default()));
            } else if let Some(batch) = self.source.open.get(next - self.source.segments.len()) {
                if batch.rows > 0 {
                    return Ok(Some(batch_to_arrow(batch, Arc::clone(&self.schema))?));
                }
            } else {
                return Ok(None);
            }
        }
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.next_batch().transpose())
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
