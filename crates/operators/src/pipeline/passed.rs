//! A filter that a join further on passed sideways to where its rows come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use eris_storage::Batch;

use crate::join::KeyFilter;

/// A filter that lets more than this share of a batch pass, in per cent, was not worth its time...
const PASSING_PERCENT_MAX: usize = 80;
/// ... and the next batches go by untested.
const IDLE_BATCHES: u32 = 15;

/// Takes out rows whose value in a column is not among the keys of a build side. Rows that stay may still have no
/// partner: the join itself comes later, and decides.
#[derive(Debug)]
pub struct PassedFilter {
    filter: Arc<KeyFilter>,
    column: usize,
    /// Batches that are not tested, because the last one that was lost few rows. A hint: updates may be lost.
    idle: AtomicU32,
}

impl PassedFilter {
    /// A filter of this column of batches, whose type is that of the key.
    pub fn new(filter: Arc<KeyFilter>, column: usize) -> Self {
        Self { filter, column, idle: AtomicU32::new(0) }
    }

    /// What the filter says of keys.
    pub fn filter(&self) -> &KeyFilter {
        &self.filter
    }

    /// Which column it is about.
    pub fn column(&self) -> usize {
        self.column
    }

    pub(crate) fn apply(&self, batch: Batch) -> Batch {
        let idle = self.idle.load(Ordering::Relaxed);
        if idle > 0 {
            self.idle.store(idle - 1, Ordering::Relaxed);
            return batch;
        }
        let rows = self.filter.passing(&batch.columns[self.column]);
        if rows.len() * 100 > batch.rows * PASSING_PERCENT_MAX {
            self.idle.store(IDLE_BATCHES, Ordering::Relaxed);
        }
        if rows.len() < batch.rows { batch.take(&rows) } else { batch }
    }
}
