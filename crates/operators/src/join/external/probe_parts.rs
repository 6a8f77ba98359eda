//! The sink that divides probe rows as the build side was divided.

use std::sync::Arc;
use std::task::Poll;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column, Value};

use super::divide::Dividing;
use super::stream::{JoinedRows, Joining};
use crate::assembly::own_texts;
use crate::error::OperatorError;
use crate::join::{JoinKind, Probe};
use crate::pipeline::{Emitting, Sink, Slots};
use crate::spill::{Awaited, RowStream, SpillingSink};

/// What the pool calls it.
const CONSUMER: &str = "join";
/// Rows that are gathered before they are written: some for each worker.
const HELD_BYTES_MAX: u64 = 8 << 20;

/// Divides rows that are to be looked up in a build side in files. What is read from it are the rows of the join.
#[derive(Debug)]
pub struct ProbeParts {
    probe: Arc<Probe>,
    parameters: Arc<[Value]>,
    slots: Slots<Vec<(Batch, u64)>>,
    held: Reservation,
    dividing: Dividing,
}

impl ProbeParts {
    /// For what a probe, for as many workers, would have looked up in memory.
    pub fn new(
        probe: Probe,
        parameters: Arc<[Value]>,
        memory: &Arc<MemoryPool>,
        workers: usize,
    ) -> Result<Self, OperatorError> {
        let files = probe.build.in_files();
        let spill = &files.ok_or_else(|| OperatorError::Internal("a build side that is in memory".to_string()))?.spill;
        let keys = probe.keys.len();
        if probe.keys.iter().map(|key| key.data_type().physical()).ne(probe.build.key_types()) {
            return Err(OperatorError::Internal("the keys of a join differ in type".to_string()));
        }
        Ok(Self {
            dividing: Dividing::new(spill, keys),
            probe: Arc::new(probe),
            parameters,
            slots: Slots::new(workers, Vec::new),
            held: memory.reserve_spillable(CONSUMER),
        })
    }

    /// A batch with its keys, without rows that leave no trace.
    fn with_keys(&self, batch: Batch) -> Result<Batch, OperatorError> {
        let keys = self.probe.keys.iter().map(|key| key.column(&batch, &self.parameters));
        let keys = keys.collect::<Result<Vec<Column>, _>>()?;
        let (rows, key_count) = (batch.rows, keys.len());
        let columns: Vec<Column> = batch.columns.into_iter().chain(keys).map(own_texts).collect();
        let batch = Batch::new(columns, rows);
        let leave_no_trace = matches!(self.probe.kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Build);
        let keys = &batch.columns[batch.columns.len() - key_count..];
        if !leave_no_trace || self.probe.build.spec.null_equal || keys.iter().all(|key| key.null_count() == 0) {
            return Ok(batch);
        }
        let is_known = |row: &u32| !keys.iter().any(|key| key.is_null(*row as usize));
        let known: Vec<u32> = (0..rows as u32).filter(is_known).collect();
        Ok(batch.take(&known))
    }
}

impl Sink for ProbeParts {
    fn consume(&self, batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        let with_keys = self.with_keys(batch.clone())?;
        let (bytes, held) = (with_keys.bytes() as u64, self.held.bytes());
        let is_enough = held + bytes > HELD_BYTES_MAX || self.dividing.spill.is_enough(held + bytes);
        if held > 0 && is_enough || self.held.grow(bytes).is_err() {
            return emit(batch);
        }
        if with_keys.rows > 0 {
            self.slots.any().push((with_keys, bytes));
        } else {
            self.held.shrink(bytes);
        }
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
        Err(OperatorError::Internal("rows of a join in files are streamed".to_string()))
    }
}

impl SpillingSink for ProbeParts {
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
        let batch = self.with_keys(batch)?;
        if batch.rows == 0 { Ok(()) } else { self.dividing.take_anyway(batch) }
    }

    fn ends_in_files(&self) -> bool {
        true
    }

    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError> {
        let (lanes, file) = self.dividing.finish()?;
        let joining = Joining {
            build: Arc::clone(&self.probe.build),
            probe: Arc::clone(&self.probe),
            parameters: Arc::clone(&self.parameters),
            turn: self.dividing.spill.turn(),
        };
        Ok(Box::new(JoinedRows::new(joining, lanes, file)?))
    }
}
