//! A sink that keeps what it gets.

use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::Batch;

use super::{Emitting, Sink, Slots, lock};
use crate::error::OperatorError;
use std::sync::Mutex;

/// What the pool calls it.
const CONSUMER: &str = "intermediate result";

/// Keeps batches for a later stage, charged to the query.
#[derive(Debug)]
pub struct Collector {
    slots: Slots<Vec<Batch>>,
    reservation: Mutex<Option<Reservation>>,
}

impl Collector {
    /// An empty one.
    pub fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { slots: Slots::new(1, Vec::new), reservation: Mutex::new(Some(memory.reserve(CONSUMER))) }
    }
}

impl Sink for Collector {
    fn consume(&self, batch: Batch, _emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        if let Some(reservation) = &*lock(&self.reservation) {
            reservation.grow(batch.bytes() as u64)?;
        }
        self.slots.any().push(batch);
        Ok(())
    }

    fn finish_jobs(&self) -> Result<usize, OperatorError> {
        Ok(0)
    }

    fn finish_job(&self, job: usize) -> Result<(), OperatorError> {
        unreachable!("job {job} of a sink without jobs")
    }

    fn take_output(&self) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
        let batches = self.slots.iter().flat_map(|mut slot| std::mem::take(&mut *slot)).collect();
        Ok((batches, lock(&self.reservation).take()))
    }
}
