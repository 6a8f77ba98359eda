//! A batch on its way through a pipeline, which can stop and go on later.
//!
//! Most steps make one batch of one. Some make many: a batch that is cut, lists of expressions, joins. A chain of joins
//! makes as many rows as the product of all sides, which may take hours, so what is left of each such step is kept on a
//! stack. The top goes first, and its rows go on to the next such step or the sink:
//!
//! ```text
//!   pairs of the second join that are left     <- next
//!   pairs of the first join that are left
//!   rows of the batch that are left
//! ```

use eris_engine::MicroOperator;
use eris_storage::{BATCH_ROWS, Batch};

use super::{Emitting, Pipeline, Step};
use crate::error::OperatorError;
use crate::filter_project::select;
use crate::join::{Probed, Probing, Walked};

/// What is left of a batch. Goes on by [`Pipeline::advance`].
#[derive(Debug, Default)]
pub struct Flow {
    rests: Vec<Rest>,
}

impl Flow {
    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.rests.is_empty()
    }

    /// What it holds.
    pub fn bytes(&self) -> usize {
        let bytes = |rest: &Rest| match &rest.of {
            RestOf::Rows { batch, .. } | RestOf::Lists { batch, .. } => batch.bytes(),
            RestOf::Pairs(probing) => probing.bytes(),
        };
        self.rests.iter().map(bytes).sum()
    }
}

/// What is left of a step.
#[derive(Debug)]
struct Rest {
    /// The step that its rows go to.
    to: usize,
    of: RestOf,
}

#[derive(Debug)]
enum RestOf {
    /// The rows of a batch from `start` on, so many at a time.
    Rows { batch: Batch, start: usize, rows: usize },
    /// A batch, once for each list of columns of the step before from this one on.
    Lists { batch: Batch, list: usize },
    /// Pairs of a join.
    Pairs(Box<Probing>),
}

impl Pipeline {
    /// A batch in front of the first step.
    pub fn start(&self, batch: Batch) -> Flow {
        let rows = if MicroOperator::only_counts(self) { usize::MAX } else { self.batch_rows };
        let of = RestOf::Rows { batch, start: 0, rows };
        Flow { rests: vec![Rest { to: 0, of }] }
    }

    /// Sends what is left of a batch through. `emit` hands a batch to the waiting task. Between the batches
    /// that a step makes of one, of at most [`BATCH_ROWS`] pairs each where it joins, `pauses` is asked whether to stop
    /// for now; whether anything is left is said by the flow.
    ///
    /// After an error nothing goes on.
    pub fn advance(
        &self,
        flow: &mut Flow,
        emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
        pauses: &mut dyn FnMut() -> bool,
    ) -> Result<(), OperatorError> {
        while let Some(rest) = flow.rests.last_mut() {
            let to = rest.to;
            let (batch, is_last) = self.next_of(rest)?;
            if is_last {
                flow.rests.pop();
            }
            self.run_steps(to, batch, flow, emit)?;
            if !flow.is_over() && pauses() {
                break;
            }
        }
        Ok(())
    }

    /// Sends a batch through without a pause.
    pub fn push(
        &self,
        batch: Batch,
        emit: &mut dyn FnMut(Batch) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        self.advance(&mut self.start(batch), emit, &mut || false)
    }

    /// The next batch of a rest, and whether it is the last one.
    fn next_of(&self, rest: &mut Rest) -> Result<(Batch, bool), OperatorError> {
        match &mut rest.of {
            RestOf::Rows { batch, start, rows } => {
                let left = batch.rows - *start;
                if *start == 0 && left <= *rows {
                    return Ok((std::mem::replace(batch, Batch::new([], 0)), true));
                }
                let piece = batch.slice(*start, left.min(*rows));
                *start += piece.rows;
                Ok((piece, left <= *rows))
            }
            RestOf::Lists { batch, list } => {
                let Step::Expand(lists) = &self.steps[rest.to - 1] else {
                    return Err(OperatorError::Internal("lists of a step that has none".to_string()));
                };
                let Some(columns) = lists.get(*list) else { return Ok((Batch::new([], 0), true)) };
                *list += 1;
                let columns = columns.iter().map(|expression| expression.column(batch, &self.parameters));
                let expanded = Batch::new(columns.collect::<Result<Vec<_>, _>>()?, batch.rows);
                Ok((expanded, *list == lists.len()))
            }
            RestOf::Pairs(probing) => Ok(match probing.next(&self.parameters)? {
                Walked::Piece(batch) => (batch, false),
                Walked::Last(batch) => (batch, true),
            }),
        }
    }

    /// Sends a batch through the steps from `first` on, to the first that makes many of it or to the sink.
    fn run_steps(
        &self,
        first: usize,
        mut batch: Batch,
        flow: &mut Flow,
        emit: &mut Emitting<'_>,
    ) -> Result<(), OperatorError> {
        for (at, step) in self.steps.iter().enumerate().skip(first) {
            if batch.rows == 0 {
                return Ok(());
            }
            if matches!(step, Step::Probe(_)) && batch.rows > BATCH_ROWS {
                flow.rests.push(Rest { to: at, of: RestOf::Rows { batch, start: 0, rows: BATCH_ROWS } });
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
                Step::Expand(_) => {
                    flow.rests.push(Rest { to: at + 1, of: RestOf::Lists { batch, list: 0 } });
                    return Ok(());
                }
                Step::Passed(filter) => batch = filter.apply(batch),
                Step::Probe(probe) => match probe.start(batch, &self.parameters)? {
                    Probed::Batch(probed) => batch = probed,
                    Probed::Pairs(probing) => {
                        flow.rests.push(Rest { to: at + 1, of: RestOf::Pairs(probing) });
                        return Ok(());
                    }
                },
            }
        }
        if batch.rows == 0 {
            return Ok(());
        }
        self.count(self.steps.len(), batch.rows);
        self.sink.consume(batch, emit)
    }
}
