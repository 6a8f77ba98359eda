//! Pipelines: what a stage of a query does with its input from a source to a sink.
//!
//! A stage has one pipeline. Its source is a scan, whose partitions run the pipeline inside their commands
//! ([`MicroOperator`]), or the batches of an earlier stage, pushed by tasks ([`Pipeline::advance`]). Each batch passes
//! the steps and ends in the sink, which all commands and tasks share:
//!
//! ```text
//!   partition --batch--> filter -> project -> probe -> ... --+
//!   partition --batch--> filter -> project -> probe -> ... --+--> sink: a few slots, each behind a try-lock
//!   task      --batch--> filter -> project -> probe -> ... --+          then rounds of independent jobs, then batches
//! ```
//!
//! Nothing is kept in a command, because hundreds of them may be open at a time, except what is left of a batch when
//! its time is up ([`Flow`]).

mod collector;
mod counts;
mod flow;
mod passed;
mod sink;
mod slots;
#[cfg(test)]
pub(crate) mod spilled;

use std::sync::Arc;

use eris_engine::{EngineError, MicroOperator, OperatorState, Output};
use eris_platform::Reservation;
use eris_storage::{Batch, Gateway, Value};

use crate::error::OperatorError;
use crate::expression::Expression;
use crate::join::Probe;
pub use collector::Collector;
pub use counts::RowCounts;
pub use flow::Flow;
pub use passed::PassedFilter;
#[cfg(test)]
pub(crate) use sink::finish;
pub use sink::{Emit, Sink};
pub(crate) use slots::{Slots, lock};

/// What the pool calls batches on their way.
const CONSUMER: &str = "pipeline";

/// Takes batches that leave a pipeline.
pub(crate) type Emitting<'a> = dyn FnMut(Batch) -> Result<(), OperatorError> + 'a;

/// What is done with a batch on its way.
#[derive(Clone, Debug)]
pub enum Step {
    /// Keeps the rows for which a condition is true.
    Filter(Arc<Expression>),
    /// Computes other columns.
    Project(Arc<[Expression]>),
    /// Each row once for each list of columns, which all have the same types.
    Expand(Arc<[Arc<[Expression]>]>),
    /// Keeps the rows that a later join might not drop.
    Passed(Arc<PassedFilter>),
    /// Looks rows up in what an earlier stage built.
    Probe(Arc<Probe>),
}

/// Steps and the sink behind them. Cheap to clone: everything is shared.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// In order.
    pub steps: Arc<[Step]>,
    /// Where the rows end.
    pub sink: Arc<dyn Sink>,
    /// The statement's parameters.
    pub parameters: Arc<[Value]>,
    /// Where rows are counted on their way, if anyone wants to know.
    pub counts: Option<Arc<RowCounts>>,
    /// The place of its source among them: not 0 if these are the last steps of several pipelines in a row.
    pub first_place: usize,
    /// Batches that come with more rows are cut.
    pub batch_rows: usize,
}

impl Pipeline {
    /// One that counts nothing, and takes batches as they come.
    pub fn new(steps: impl Into<Arc<[Step]>>, sink: Arc<dyn Sink>, parameters: impl Into<Arc<[Value]>>) -> Self {
        Self {
            steps: steps.into(),
            sink,
            parameters: parameters.into(),
            counts: None,
            first_place: 0,
            batch_rows: usize::MAX,
        }
    }

    fn count(&self, place: usize, rows: usize) {
        if let Some(counts) = &self.counts {
            counts.add(self.first_place + place, rows);
        }
    }
}

impl MicroOperator for Pipeline {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Running { pipeline: self.clone(), flow: Flow::default(), charged: None })
    }

    fn only_counts(&self) -> bool {
        self.steps.is_empty() && self.sink.only_counts()
    }
}

struct Running {
    pipeline: Pipeline,
    /// What is left of the last batch.
    flow: Flow,
    /// The bytes of it.
    charged: Option<Reservation>,
}

impl OperatorState for Running {
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        self.flow = self.pipeline.start(gateway.batch);
        self.go_on(output)
    }

    fn is_behind(&self) -> bool {
        !self.flow.is_over()
    }

    fn go_on(&mut self, output: &mut Output<'_>) -> Result<(), EngineError> {
        let output = &*output;
        // What the engine says is kept as it is, beside the error that passes through the steps.
        let mut refused = None;
        // A sink that goes on in files emits only what it cannot take.
        let hands_back = self.pipeline.sink.spilling().is_some();
        let mut emit = |batch| {
            let emitted = if hands_back { output.hand_back(batch) } else { output.emit(batch) };
            emitted.map_err(|error| {
                let error = refused.insert(error);
                OperatorError::Foreign(Arc::new(error.clone()))
            })
        };
        let advanced = self.pipeline.advance(&mut self.flow, &mut emit, &mut || output.pauses());
        match (refused, advanced) {
            (Some(error), _) => return Err(error),
            (None, advanced) => advanced?,
        }
        // Many partitions may have stopped.
        if self.flow.is_over() {
            self.charged = None;
        } else {
            self.charged.get_or_insert_with(|| output.reserve(CONSUMER)).resize(self.flow.bytes() as u64)?;
        }
        Ok(())
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
