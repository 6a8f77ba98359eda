//! Filter, projection and limit of one partition's batches.

use eris_engine::{EngineError, MicroOperator, OperatorState, Output};
use eris_storage::{Batch, Gateway, Value};
use std::sync::Arc;

use crate::error::OperatorError;
use crate::expression::Expression;

/// The rows of a batch for which a condition is true.
pub fn select(condition: &Expression, batch: &Batch, parameters: &[Value]) -> Result<Vec<u32>, OperatorError> {
    condition.true_rows(batch, parameters, None)
}

/// Filters, then computes. Immutable; one per execution because it holds the parameters.
#[derive(Clone, Debug)]
pub struct FilterProject {
    /// Which rows stay; `None`: all.
    pub filter: Option<Arc<Expression>>,
    /// What is computed; `None`: the columns as they are.
    pub projection: Option<Arc<[Expression]>>,
    /// At most this many rows leave one command.
    pub limit: Option<u64>,
    /// The statement's parameters.
    pub parameters: Arc<[Value]>,
}

impl FilterProject {
    /// Applies filter and projection to one batch.
    pub fn apply(&self, batch: Batch) -> Result<Batch, OperatorError> {
        let batch = match &self.filter {
            None => batch,
            Some(filter) => {
                let rows = select(filter, &batch, &self.parameters)?;
                if rows.len() == batch.rows { batch } else { batch.take(&rows) }
            }
        };
        match &self.projection {
            None => Ok(batch),
            Some(projection) => {
                let columns = projection
                    .iter()
                    .map(|expression| expression.column(&batch, &self.parameters))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Batch::new(columns, batch.rows))
            }
        }
    }
}

struct State {
    operator: FilterProject,
    left: u64,
}

impl MicroOperator for FilterProject {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(State { operator: self.clone(), left: self.limit.unwrap_or(u64::MAX) })
    }
}

impl OperatorState for State {
    fn batch(&mut self, gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        if self.left == 0 {
            return Ok(());
        }
        let mut batch = self.operator.apply(gateway.batch)?;
        if batch.rows as u64 > self.left {
            batch = batch.slice(0, self.left as usize);
        }
        self.left -= batch.rows as u64;
        if batch.rows == 0 { Ok(()) } else { output.emit(batch) }
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
