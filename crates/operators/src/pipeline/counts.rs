//! How many rows passed each place of a pipeline, for EXPLAIN ANALYZE.

use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that left the source and each step of a pipeline; shared by all threads that run it.
#[derive(Debug)]
pub struct RowCounts(Box<[AtomicU64]>);

impl RowCounts {
    /// Of a pipeline with so many steps.
    pub fn new(steps: usize) -> Self {
        Self((0..=steps).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn add(&self, place: usize, rows: usize) {
        self.0[place].fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Rows in front of a step: place 0 is behind the source, place n behind the n-th step.
    pub fn at(&self, place: usize) -> u64 {
        self.0[place].load(Ordering::Relaxed)
    }

    /// Rows that came to the sink.
    pub fn into_sink(&self) -> u64 {
        self.at(self.0.len() - 1)
    }
}
