//! Windows over rows that do not fit: they are sorted in files, and computed partition by partition as they are read.
//!
//! ```text
//!   sorted rows   | partition a | partition b | c ...       some whole partitions at a time, by the code for memory
//! ```
//! One partition has to fit.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column};

use super::sink::CONSUMER;
use super::{WindowSink, WindowSpec};
use crate::error::OperatorError;
use crate::hash::rows_equal;
use crate::pipeline::Sink;
use crate::spill::{Awaited, RowStream, Spill, Turn};

/// Bytes of partitions that are computed at once, if one has not more.
const GATHERED_BYTES: u64 = 1 << 20;

/// Sorted rows with the results of window functions.
pub(super) struct WindowRows {
    spec: WindowSpec,
    memory: Arc<MemoryPool>,
    sorted: Box<dyn RowStream>,
    /// Rows of partitions that are not complete, or are to be computed.
    gathered: Vec<Batch>,
    held: Reservation,
    /// Where the last partition begins that was gathered: the batch, and the row in it.
    last: (usize, usize),
    /// Results, and what is charged for them.
    results: VecDeque<Batch>,
    charged: Option<Reservation>,
    is_over: bool,
    turn: Turn,
}

impl WindowRows {
    pub fn new(spec: &WindowSpec, memory: &Arc<MemoryPool>, sorted: Box<dyn RowStream>, spill: &Spill) -> Self {
        Self {
            spec: spec.clone(),
            memory: Arc::clone(memory),
            sorted,
            gathered: Vec::new(),
            held: memory.reserve(CONSUMER),
            last: (0, 0),
            results: VecDeque::new(),
            charged: None,
            is_over: false,
            turn: spill.turn(),
        }
    }

    fn partition_keys(&self, batch: &Batch) -> Vec<Column> {
        let keys = &self.spec.keys.0[..self.spec.partition_keys];
        keys.iter().map(|key| batch.columns[key.column].clone()).collect()
    }

    /// Takes a batch, and notes where its last partition begins.
    fn gather(&mut self, batch: Batch) -> Result<(), OperatorError> {
        self.held.grow(batch.bytes() as u64)?;
        let keys = self.partition_keys(&batch);
        let begins = (1..batch.rows).rev().find(|row| !rows_equal(&keys, row - 1, &keys, *row));
        let begins = begins.or_else(|| {
            let before = self.gathered.last()?;
            (!rows_equal(&self.partition_keys(before), before.rows - 1, &keys, 0)).then_some(0)
        });
        if let Some(row) = begins {
            self.last = (self.gathered.len(), row);
        }
        self.gathered.push(batch);
        Ok(())
    }

    /// All but the last partition.
    fn complete(&mut self) -> Vec<Batch> {
        let (at, row) = std::mem::take(&mut self.last);
        let mut rest = self.gathered.split_off(at);
        let mut complete = std::mem::take(&mut self.gathered);
        if row > 0
            && let Some(first) = rest.first_mut()
        {
            complete.push(first.slice(0, row));
            *first = first.slice(row, first.rows - row);
        }
        self.gathered = rest;
        complete
    }

    async fn compute(&mut self, batches: Vec<Batch>) -> Result<(), OperatorError> {
        let sink = WindowSink::new(self.spec.clone(), &self.memory, 1);
        for batch in batches {
            sink.consume(batch, &mut |_| Ok(()))?;
            self.turn.give_way().await?;
        }
        // The sink has charged them.
        self.held.resize(self.gathered.iter().map(|batch| batch.bytes() as u64).sum())?;
        loop {
            let jobs = sink.finish_jobs()?;
            if jobs == 0 {
                break;
            }
            for job in 0..jobs {
                sink.finish_job(job)?;
                self.turn.give_way().await?;
            }
        }
        let (results, charged) = sink.take_output()?;
        (self.results, self.charged) = (results.into(), charged);
        Ok(())
    }
}

impl RowStream for WindowRows {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.results.pop_front() {
                    return Ok(Some(batch));
                }
                self.charged = None;
                if self.is_over {
                    return Ok(None);
                }
                let Some(batch) = self.sorted.next().await? else {
                    self.is_over = true;
                    let last = std::mem::take(&mut self.gathered);
                    self.compute(last).await?;
                    continue;
                };
                if batch.rows == 0 {
                    continue;
                }
                self.gather(batch)?;
                self.turn.give_way().await?;
                if self.last != (0, 0) && self.held.bytes() >= GATHERED_BYTES {
                    let complete = self.complete();
                    self.compute(complete).await?;
                }
            }
        })
    }
}
