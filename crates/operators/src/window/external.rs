//! Windows over rows that do not fit: they are sorted in files, and computed partition by partition as they are read.
//!
//! ```text
//!   sorted rows   | partition a | partition b | c ...       some whole partitions at a time
//!   looked at     what keys, functions and frames see stays in memory until their partition is complete
//!   kept          what goes on waits for the results, in a file if it is much
//! ```
//! What windows look at has to fit, for one partition.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::{Batch, Column};

use super::sink::CONSUMER;
use super::{WindowSink, WindowSpec};
use crate::error::OperatorError;
use crate::hash::rows_equal;
use crate::pipeline::Sink;
use crate::spill::{Awaited, RowStream, Spill, Turn, WaitingRows};

/// Bytes of partitions that are computed at once, if one has not more.
const GATHERED_BYTES: u64 = 1 << 20;
/// Kept rows in memory; what is more goes to a file.
const KEPT_BYTES: u64 = 1 << 20;

/// Sorted rows with the results of window functions.
pub(super) struct WindowRows {
    /// For rows as they are gathered.
    spec: WindowSpec,
    looked_at: Vec<usize>,
    sorted: Box<dyn RowStream>,
    /// What windows look at, of rows whose partitions are not complete, or are to be computed.
    gathered: Vec<Batch>,
    held: Reservation,
    /// Where the last partition begins that was gathered: the batch, and the row in it.
    last: (usize, usize),
    kept: KeptColumns,
    /// Results, and what is charged for them.
    results: VecDeque<Batch>,
    charged: Option<Reservation>,
    is_over: bool,
    turn: Turn,
}

/// The columns that go on, of rows whose results are not computed yet: first in, first out.
struct KeptColumns {
    columns: Arc<[usize]>,
    /// The rest of a batch of which [`Self::pop`] returned the beginning.
    first: Option<Batch>,
    written: WaitingRows,
    /// Rows that come after the written ones.
    recent: VecDeque<Batch>,
    held: Reservation,
}

impl KeptColumns {
    async fn push(&mut self, batch: &Batch) -> Result<(), OperatorError> {
        let batch = batch.project(&self.columns);
        self.held.grow(batch.bytes() as u64)?;
        self.recent.push_back(batch);
        if self.held.bytes() >= KEPT_BYTES {
            self.written.append(self.recent.make_contiguous()).await?;
            self.recent.clear();
            self.held.resize(0)?;
        }
        Ok(())
    }

    /// The next rows, at most `rows_max`.
    async fn pop(&mut self, rows_max: usize) -> Result<Batch, OperatorError> {
        let mut batch = self.first.take();
        if batch.is_none() {
            batch = self.written.next().await?;
        }
        if batch.is_none() {
            batch = self.recent.pop_front();
            self.held.shrink(batch.as_ref().map_or(0, |batch| batch.bytes() as u64));
        }
        let missing = || OperatorError::Internal("windows have more results than rows".to_string());
        let batch = batch.ok_or_else(missing)?;
        if batch.rows <= rows_max {
            return Ok(batch);
        }
        self.first = Some(batch.slice(rows_max, batch.rows - rows_max));
        Ok(batch.slice(0, rows_max))
    }
}

impl WindowRows {
    pub fn new(spec: &WindowSpec, memory: &Arc<MemoryPool>, sorted: Box<dyn RowStream>, spill: &Spill) -> Self {
        let looked_at = spec.looked_at();
        let kept = KeptColumns {
            columns: Arc::clone(&spec.kept),
            first: None,
            written: WaitingRows::new(spill),
            recent: VecDeque::new(),
            held: spill.reserve_counted(),
        };
        Self {
            spec: spec.narrowed(&looked_at),
            looked_at,
            sorted,
            gathered: Vec::new(),
            held: memory.reserve(CONSUMER),
            last: (0, 0),
            kept,
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

    /// Takes what windows look at of a batch, and notes where its last partition begins.
    fn gather(&mut self, batch: &Batch) -> Result<(), OperatorError> {
        let batch = batch.project(&self.looked_at);
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
        let bytes = |batches: &[Batch]| batches.iter().map(|batch| batch.bytes() as u64).sum::<u64>();
        let next = self.held.pool().reserve(CONSUMER);
        let charged = std::mem::replace(&mut self.held, next);
        charged.resize(bytes(&batches))?;
        self.held.resize(bytes(&self.gathered))?;
        let sink = WindowSink::of_sorted(self.spec.clone(), batches, charged);
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

    /// Rows whose results are there, with them.
    async fn computed(&mut self) -> Result<Option<Batch>, OperatorError> {
        let Some(results) = self.results.pop_front() else { return Ok(None) };
        let kept = self.kept.pop(results.rows).await?;
        let rows = kept.rows;
        if rows < results.rows {
            self.results.push_front(results.slice(rows, results.rows - rows));
        }
        let results = if rows < results.rows { results.slice(0, rows) } else { results };
        let columns = kept.columns.into_iter().chain(results.columns).collect::<Vec<_>>();
        Ok(Some(Batch::new(columns, rows)))
    }
}

impl RowStream for WindowRows {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            loop {
                if let Some(batch) = self.computed().await? {
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
                self.gather(&batch)?;
                self.kept.push(&batch).await?;
                self.turn.give_way().await?;
                if self.last != (0, 0) && self.held.bytes() >= GATHERED_BYTES {
                    let complete = self.complete();
                    self.compute(complete).await?;
                }
            }
        })
    }
}
