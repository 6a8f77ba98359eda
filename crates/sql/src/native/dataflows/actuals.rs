//! What a macro-QEP did when it ran, beside what was expected: for EXPLAIN ANALYZE.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eris_operators::RowCounts;

use super::MacroQep;

/// Of each stage, as long as it runs and afterwards.
#[derive(Debug)]
pub struct Actuals {
    stages: Vec<StageActuals>,
}

/// Of one stage.
#[derive(Debug)]
pub(super) struct StageActuals {
    /// Of each input, in order.
    pub inputs: Vec<Arc<RowCounts>>,
    /// From its first input to the end of its sink; 0 while it runs: the last one may do so until its rows are taken.
    nanos: AtomicU64,
}

impl Actuals {
    /// Nothing has run yet.
    pub fn new(qep: &MacroQep) -> Self {
        let stages = qep.stages.iter().map(|stage| StageActuals {
            inputs: stage.inputs.iter().map(|input| Arc::new(RowCounts::new(input.steps.len()))).collect(),
            nanos: AtomicU64::new(0),
        });
        Self { stages: stages.collect() }
    }

    pub(super) fn stage(&self, number: usize) -> &StageActuals {
        &self.stages[number]
    }
}

impl StageActuals {
    /// Rows that came to the sink.
    pub fn rows(&self) -> u64 {
        self.inputs.iter().map(|input| input.into_sink()).sum()
    }

    pub fn ended(&self, took: Duration) {
        self.nanos.store(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    pub fn took(&self) -> Option<Duration> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        (nanos > 0).then_some(Duration::from_nanos(nanos))
    }
}
