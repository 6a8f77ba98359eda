//! The rows of a native plan, as they come.

use std::sync::Arc;

use eris_engine::Results;
use eris_operators::RowStream;
use eris_storage::Batch;

use super::held::Held;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::plan::{engine_error, operator_error};

/// Batches that are there, that arrive from partitions, or that are read from files, with OFFSET and LIMIT applied.
pub struct NativeRows {
    source: Source,
    skip: u64,
    left: u64,
}

enum Source {
    Ready(Held),
    Streaming { results: Results, table: Arc<Table> },
    InFiles(Box<dyn RowStream>),
}

impl NativeRows {
    /// Batches that are there.
    pub fn ready(batches: Held) -> Self {
        Self { source: Source::Ready(batches), skip: 0, left: u64::MAX }
    }

    /// Batches that arrive.
    pub(super) fn streaming(results: Results, table: Arc<Table>) -> Self {
        Self { source: Source::Streaming { results, table }, skip: 0, left: u64::MAX }
    }

    /// Rows that are read from files.
    pub(super) fn in_files(stream: Box<dyn RowStream>) -> Self {
        Self { source: Source::InFiles(stream), skip: 0, left: u64::MAX }
    }

    pub(super) fn limited(mut self, skip: u64, fetch: Option<u64>) -> Self {
        self.skip = skip;
        self.left = fetch.unwrap_or(u64::MAX);
        self
    }

    /// The next batch that has rows; `None` after the last. What the limit leaves out is cancelled.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        while self.left > 0 {
            let batch = match &mut self.source {
                Source::Ready(batches) => batches.pop(),
                Source::Streaming { results, table } => {
                    results.next().await.map_err(|error| engine_error(&error, Some(table)))?
                }
                Source::InFiles(stream) => stream.next().await.map_err(|error| operator_error(&error))?,
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
