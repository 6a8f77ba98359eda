//! A sink that keeps the rows of a join in files: in memory, or in one file where they are too many.

use std::sync::Arc;
use std::task::Poll;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::Batch;

use super::divide::Dividing;
use crate::error::OperatorError;
use crate::pipeline::{Emitting, Sink, Slots};
use crate::spill::{Awaited, RowStream, Spill, SpillFile, SpillingSink};

/// What the pool calls it.
const CONSUMER: &str = "intermediate result";

/// Keeps batches, in any order, for a later stage or the client.
#[derive(Debug)]
pub struct SpillingCollector {
    slots: Slots<Vec<(Batch, u64)>>,
    held: Reservation,
    dividing: Dividing,
}

impl SpillingCollector {
    /// An empty one, for as many workers.
    pub fn new(memory: &Arc<MemoryPool>, workers: usize, spill: &Spill) -> Self {
        let held = memory.reserve_spillable(CONSUMER);
        Self { slots: Slots::new(workers, Vec::new), held, dividing: Dividing::new(spill, 0) }
    }
}

impl Sink for SpillingCollector {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        let (bytes, held) = (batch.bytes() as u64, self.held.bytes());
        if held > 0 && self.dividing.spill.is_enough(held + bytes) || self.held.grow(bytes).is_err() {
            return emit(batch);
        }
        self.slots.any().push((batch, bytes));
        Ok(())
    }

    fn spilling(&self) -> Option<&dyn SpillingSink> {
        Some(self)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        unreachable!("job {job} of a sink without jobs")
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let batches = self.slots.iter().flat_map(|mut slot| std::mem::take(&mut *slot));
        let batches = batches.map(|(batch, _)| batch).collect();
        let charged = self.dividing.spill.reserve_counted();
        charged.grow(self.held.bytes())?;
        self.held.shrink(charged.bytes());
        Ok((batches, Some(charged)))
    }
}

impl SpillingSink for SpillingCollector {
    fn spill_jobs(&self) -> Result<usize, OperatorError> {
        self.dividing.plan(|| self.slots.free().flat_map(|mut slot| std::mem::take(&mut *slot)).collect())
    }

    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError> {
        self.dividing.run(job, &self.held)
    }

    fn written(&self) -> Awaited<'_, ()> {
        self.dividing.written()
    }

    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError> {
        self.dividing.take_anyway(batch)
    }

    fn ends_in_files(&self) -> bool {
        self.dividing.is_used()
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        let (lanes, file) = self.dividing.finish()?;
        let [lane] = &lanes[..] else { return Err(OperatorError::Internal("rows in several parts".to_string())) };
        Ok(Box::new(Written { file, rows: Box::new(lane.reader()) }))
    }
}

/// Rows of a file, which may not be written yet.
struct Written {
    file: Arc<SpillFile>,
    rows: Box<dyn RowStream>,
}

impl RowStream for Written {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            self.file.written().await?;
            self.rows.next().await
        })
    }
}
