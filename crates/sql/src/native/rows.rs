//! The rows of a native plan, as they come.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_engine::Results;
use eris_operators::{OperatorError, RowStream, Spill, WaitingRows};
use eris_platform::Reservation;
use eris_storage::Batch;

use super::dataflows::ComputedRows;
use super::held::Held;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::plan::{engine_error, operator_error};

/// A result that holds less memory than this is not set aside.
const ASIDE_BYTES_MIN: u64 = 1 << 20;
/// Bytes that one call of [`NativeRows::set_aside`] writes.
const ASIDE_STEP_BYTES: u64 = 4 << 20;

/// Batches that are there, that arrive from partitions, or that are read from files, with OFFSET and LIMIT applied.
pub struct NativeRows {
    source: Source,
    skip: u64,
    left: u64,
    /// Rows that were set aside; `None` if they cannot be.
    aside: Option<Box<Aside>>,
}

enum Source {
    Ready(Held),
    Streaming {
        results: Results,
        table: Arc<Table>,
        /// Bytes of the build sides that the scan's pipeline probes.
        held_bytes: u64,
    },
    InFiles(Box<dyn RowStream>),
    Computed(Box<ComputedRows>),
}

/// Rows that were taken from the source before the client asked for them.
struct Aside {
    spill: Spill,
    written: WaitingRows,
    /// Rows after the written ones, which a failed write left in memory. After that no other write is tried.
    kept: VecDeque<Batch>,
    charged: Option<Reservation>,
}

impl NativeRows {
    fn of(source: Source) -> Self {
        Self { source, skip: 0, left: u64::MAX, aside: None }
    }

    /// Batches that are there.
    pub fn ready(batches: Held) -> Self {
        Self::of(Source::Ready(batches))
    }

    /// Batches that arrive from a scan whose pipeline holds `held_bytes`.
    pub(super) fn streaming(results: Results, table: Arc<Table>, held_bytes: u64) -> Self {
        Self::of(Source::Streaming { results, table, held_bytes })
    }

    /// Rows that are read from files.
    pub(super) fn in_files(stream: Box<dyn RowStream>) -> Self {
        Self::of(Source::InFiles(stream))
    }

    /// Rows that are computed as they are asked for.
    pub(super) fn computed(rows: ComputedRows) -> Self {
        Self::of(Source::Computed(Box::new(rows)))
    }

    pub(super) fn limited(mut self, skip: u64, fetch: Option<u64>) -> Self {
        self.skip = skip;
        self.left = fetch.unwrap_or(u64::MAX);
        self
    }

    /// Allows them to be [set aside](Self::set_aside).
    pub(super) fn spilling_to(mut self, spill: Option<&Spill>) -> Self {
        let aside = |spill: &Spill| Aside {
            spill: spill.clone(),
            written: WaitingRows::new(spill),
            kept: VecDeque::new(),
            charged: None,
        };
        self.aside = spill.map(aside).map(Box::new);
        self
    }

    /// The next batch that has rows; `None` after the last. What the limit leaves out is cancelled.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        if let Some(aside) = &mut self.aside
            && let Some(batch) = aside.next().await?
        {
            return Ok(Some(batch));
        }
        self.next_of_source().await
    }

    /// What the rows that are still to come hold in memory.
    fn held_bytes(&self) -> u64 {
        match &self.source {
            Source::Ready(batches) => batches.bytes(),
            Source::Streaming { held_bytes, .. } => *held_bytes,
            Source::InFiles(_) => 0,
            Source::Computed(rows) => rows.held_bytes(),
        }
    }

    /// Whether the rows that are still to come hold no memory.
    pub fn hold_nothing(&self) -> bool {
        self.held_bytes() == 0
    }

    /// Whether they hold memory that [`Self::set_aside`] would give back.
    pub fn can_be_set_aside(&self) -> bool {
        let Some(aside) = &self.aside else { return false };
        let bytes_min = if aside.written.is_empty() { ASIDE_BYTES_MIN } else { 1 };
        self.held_bytes() >= bytes_min && aside.kept.is_empty()
    }

    /// Whether they are to be set aside even if memory is not short: because some already are, and the rest would keep
    /// the statement's admission, or because they exceed `work_mem`.
    pub fn must_be_set_aside(&self) -> bool {
        match (&self.source, &self.aside) {
            (_, Some(aside)) if !aside.written.is_empty() => true,
            (Source::Ready(_) | Source::Computed(_), Some(aside)) => aside.spill.is_enough(self.held_bytes()),
            _ => false,
        }
    }

    /// Puts some of the rows that are still to come into a file. What cannot be written stays in memory.
    pub async fn set_aside(&mut self) -> Result<(), SqlError> {
        let (mut batches, mut bytes) = (VecDeque::new(), 0);
        let Some(charged) = self.aside.as_ref().map(|aside| aside.spill.chunk().1) else { return Ok(()) };
        while bytes < ASIDE_STEP_BYTES
            && let Some(batch) = self.next_of_source().await?
        {
            bytes += batch.bytes() as u64;
            charged.grow(batch.bytes() as u64).map_err(SqlError::out_of_memory)?;
            batches.push_back(batch);
        }
        let Some(aside) = self.aside.as_mut().filter(|_| !batches.is_empty()) else { return Ok(()) };
        match aside.written.append(batches.make_contiguous()).await {
            Ok(()) => Ok(()),
            Err(OperatorError::Cancelled) => Err(operator_error(&OperatorError::Cancelled)),
            Err(_) => {
                (aside.kept, aside.charged) = (batches, Some(charged));
                Ok(())
            }
        }
    }

    async fn next_of_source(&mut self) -> Result<Option<Batch>, SqlError> {
        while self.left > 0 {
            let batch = match &mut self.source {
                Source::Ready(batches) => batches.pop(),
                Source::Streaming { results, table, .. } => {
                    results.next().await.map_err(|error| engine_error(&error, Some(table)))?
                }
                Source::InFiles(stream) => stream.next().await.map_err(|error| operator_error(&error))?,
                Source::Computed(rows) => rows.next().await?,
            };
            let Some(mut batch) = batch else { break };
            if self.skip > 0 {
                let skipped = self.skip.min(batch.rows as u64);
                self.skip -= skipped;
                batch = batch.slice(skipped as usize, batch.rows - skipped as usize);
            }
            if batch.rows as u64 > self.left {
                batch = batch.slice(0, self.left as usize);
            }
            self.left -= batch.rows as u64;
            if batch.rows > 0 {
                return Ok(Some(batch));
            }
        }
        self.source = Source::Ready(Held::default());
        Ok(None)
    }
}

impl Aside {
    async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        if let Some(batch) = self.written.next().await.map_err(|error| operator_error(&error))? {
            return Ok(Some(batch));
        }
        let batch = self.kept.pop_front();
        if batch.is_none() {
            self.charged = None;
        }
        Ok(batch)
    }
}
