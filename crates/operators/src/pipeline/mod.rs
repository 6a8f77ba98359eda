//! Pipelines: what a stage of a query does with its input from a source to a sink.
//!
//! A stage has one pipeline. Its source is a scan, whose partitions run the pipeline inside their commands
//! ([`MicroOperator`]), or the batches of an earlier stage, pushed by tasks ([`Pipeline::push`]). Each batch passes the
//! steps and ends in the sink, which all commands and tasks share:
//!
//! ```text
//!   partition --batch--> filter -> project -> probe -> ... --+
//!   partition --batch--> filter -> project -> probe -> ... --+--> sink: a few slots, each behind a try-lock
//!   task      --batch--> filter -> project -> probe -> ... --+          then rounds of independent jobs, then batches
//! ```
//!
//! Nothing is kept in a command, because hundreds of them may be open at a time.

mod collector;
mod counts;
mod passed;
mod sink;
mod slots;

use std::sync::Arc;

use eris_engine::{EngineError, MicroOperator, OperatorState, Output};
use eris_storage::{Batch, Gateway, Value};

use crate::error::OperatorError;
use crate::expression::Expression;
use crate::filter_project::select;
use crate::join::Probe;
pub use collector::Collector;
pub use counts::RowCounts;
pub use passed::PassedFilter;
#[cfg(test)]
pub(crate) use sink::finish;
pub use sink::{Emit, Sink};
pub(crate) use slots::{Slots, lock};

/// Takes batches that leave a pipeline; one of no rows and no columns only asks whether to go on.
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
    /// Batches that come with more rows are cut.
    pub batch_rows: usize,
}

impl Pipeline {
    /// One that counts nothing, and takes batches as they come.
    pub fn new(steps: impl Into<Arc<[Step]>>, sink: Arc<dyn Sink>, parameters: impl Into<Arc<[Value]>>) -> Self {
        Self { steps: steps.into(), sink, parameters: parameters.into(), counts: None, batch_rows: usize::MAX }
    }

    fn count(&self, place: usize, rows: usize) {
        if let Some(counts) = &self.counts {
            counts.add(place, rows);
        }
    }

    /// Sends a batch through. `emit` hands a batch to the waiting task and fails when the query is over; an empty batch
    /// without columns only asks.
    pub fn push(
        &self,
        batch: Batch,
        emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        if batch.rows <= self.batch_rows || self.only_counts() {
            return self.push_from(0, batch, emit);
        }
        for start in (0..batch.rows).step_by(self.batch_rows) {
            self.push_from(0, batch.slice(start, self.batch_rows.min(batch.rows - start)), emit)?;
        }
        Ok(())
    }

    fn push_from(&self, first: usize, mut batch: Batch, emit: &mut Emitting<'_>) -> Result<(), OperatorError> {
        for (at, step) in self.steps.iter().enumerate().skip(first) {
            if batch.rows == 0 {
                return Ok(());
            }
            self.count(at, batch.rows);
            match step {
                Step::Filter(condition) => {
                    let rows = select(condition, &batch, &self.parameters)?;
                    if rows.len() < batch.rows {
                        batch = batch.take(&rows);
                    }
                }
                Step::Project(expressions) => {
                    let narrow = at + 1 == self.steps.len() && self.sink.takes_narrow();
                    let columns = expressions.iter().map(|expression| {
                        if !narrow {
                            return expression.column(&batch, &self.parameters);
                        }
                        let narrowed = expression.evaluate_narrow(&batch, &self.parameters)?;
                        Ok(narrowed.datum.into_column(expression.data_type(), batch.rows))
                    });
                    batch = Batch::new(columns.collect::<Result<Vec<_>, _>>()?, batch.rows);
                }
                Step::Expand(lists) => {
                    for list in &**lists {
                        // There may be many lists: between them, too, whoever waits is asked whether to go on.
                        emit(Batch::new([], 0))?;
                        let columns = list.iter().map(|expression| expression.column(&batch, &self.parameters));
                        let expanded = Batch::new(columns.collect::<Result<Vec<_>, _>>()?, batch.rows);
                        self.push_from(at + 1, expanded, emit)?;
                    }
                    return Ok(());
                }
                Step::Passed(filter) => batch = filter.apply(batch),
                Step::Probe(probe) => {
                    return probe.run(&batch, &self.parameters, emit, &mut |joined, emit: &mut Emitting<'_>| {
                        self.push_from(at + 1, joined, emit)
                    });
                }
            }
        }
        if batch.rows == 0 {
            return Ok(());
        }
        self.count(self.steps.len(), batch.rows);
        self.sink.consume(batch, emit)
    }
}

impl MicroOperator for Pipeline {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Running(self.clone()))
    }

    fn only_counts(&self) -> bool {
        self.steps.is_empty() && self.sink.only_counts()
    }
}

struct Running(Pipeline);

impl OperatorState for Running {
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        // What the engine says is kept as it is, beside the error that passes through the steps.
        let mut refused = None;
        let pushed = self.0.push(gateway.batch, &mut |batch| {
            let emitted = if output.is_cancelled() { Err(EngineError::Cancelled) } else { output.emit(batch) };
            emitted.map_err(|error| {
                let error = refused.insert(error);
                OperatorError::Foreign(Arc::new(error.clone()))
            })
        });
        match (refused, pushed) {
            (Some(error), _) => Err(error),
            (None, pushed) => Ok(pushed?),
        }
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
