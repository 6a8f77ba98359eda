//! A sink that sorts.

use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::Batch;

use crate::error::OperatorError;
use crate::pipeline::{Collector, Emitting, Sink};
use crate::sort::SortKeys;

/// Sorts what it gets; with a limit only so many rows are kept.
#[derive(Debug)]
pub struct SortSink {
    keys: SortKeys,
    limit: Option<usize>,
    memory: Arc<MemoryPool>,
    rows: Collector,
}

impl SortSink {
    /// An empty one, for as many workers.
    pub fn new(keys: SortKeys, limit: Option<usize>, memory: &Arc<MemoryPool>, _workers: usize) -> Self {
        Self { keys, limit, memory: Arc::clone(memory), rows: Collector::new(memory) }
    }
}

impl Sink for SortSink {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        self.rows.consume(batch, emit)
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        self.rows.finish_job(job)
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let (batches, _charged) = self.rows.take_output()?;
        if batches.is_empty() {
            return Ok((batches, None));
        }
        let (sorted, reservation) = self.keys.sort(&batches, self.limit, &self.memory)?;
        Ok((vec![sorted], Some(reservation)))
    }
}
