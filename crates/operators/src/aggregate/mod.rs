//! Grouped and ungrouped aggregates.
//!
//! Each partition aggregates its own rows and emits one batch of *partial* groups: the group columns, then the state
//! columns of each aggregate. The task merges partial groups of all partitions and computes the results.
//!
//! ```text
//!   partition:  rows --Aggregate--> | g1 g2 | count | sum | sum count (avg) |      one row a group
//!   task:       partial groups of all partitions --AggregateMerge--> | g1 g2 | results |
//! ```

mod accumulator;
mod carried;
mod chosen;
mod coded;
mod dense;
mod distinct;
mod encoded;
mod external;
mod extremes;
mod grouped;
mod groups;
mod layout;
mod partial;
mod ranges;
mod room;
mod sink;
mod sums;

use std::sync::Arc;

use eris_engine::{EngineError, MicroOperator, OperatorState, Output};
use eris_platform::MemoryPool;
use eris_storage::{Batch, Column, DataType, Gateway, Value};

use crate::error::OperatorError;
use crate::expression::Expression;
use crate::logic::true_rows;
use crate::settings::AggregationInput;
pub(crate) use accumulator::{average_of, overflow, sum_of};
use grouped::Grouped;
pub use sink::GroupBy;

/// What an aggregate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    /// count(*)
    CountAll,
    /// count(x)
    Count,
    /// sum(x), checked
    Sum,
    /// min(x)
    Min,
    /// max(x)
    Max,
    /// avg(x)
    Average,
}

/// One aggregate of a query.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Which.
    pub function: AggregateFunction,
    /// Its argument; `None` for count(*).
    pub input: Option<Expression>,
    /// The type of its result.
    pub result: DataType,
}

impl AggregateCall {
    fn input_type(&self) -> DataType {
        self.input.as_ref().map_or(DataType::Int64, Expression::data_type)
    }
}

/// One aggregate of a grouping, with what SQL may say of its rows.
#[derive(Clone, Debug)]
pub struct GroupCall {
    /// What is computed.
    pub call: AggregateCall,
    /// Of different values only.
    pub distinct: bool,
    /// Of the rows for which this is true; `None`: all.
    pub filter: Option<Expression>,
}

impl From<AggregateCall> for GroupCall {
    fn from(call: AggregateCall) -> Self {
        Self { call, distinct: false, filter: None }
    }
}

/// The aggregates of one query; runs inside a partition.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which rows count; `None`: all.
    pub filter: Option<Arc<Expression>>,
    /// What is computed before grouping; `None`: the columns as they are.
    pub projection: Option<Arc<[Expression]>>,
    /// What rows are grouped by; empty: one group.
    pub groups: Arc<[Expression]>,
    /// What is computed of each group.
    pub calls: Arc<[AggregateCall]>,
    /// The statement's parameters.
    pub parameters: Arc<[Value]>,
    /// Where groups and their states are reserved.
    pub memory: Arc<MemoryPool>,
    /// What groups and states are made of.
    pub input: AggregationInput,
}

struct Aggregating {
    plan: Aggregate,
    grouped: Grouped,
}

impl MicroOperator for Aggregate {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Aggregating { plan: self.clone(), grouped: Grouped::of(self) })
    }
}

impl Aggregating {
    fn update(&mut self, batch: Batch) -> Result<(), OperatorError> {
        let parameters = Arc::clone(&self.plan.parameters);
        let batch = match &self.plan.filter {
            None => batch,
            Some(filter) => {
                let rows = true_rows(&filter.evaluate(&batch, &parameters)?, batch.rows);
                if rows.len() == batch.rows { batch } else { batch.take(&rows) }
            }
        };
        if batch.rows == 0 {
            return Ok(());
        }
        let batch = match &self.plan.projection {
            None => batch,
            Some(projection) => {
                let columns = projection
                    .iter()
                    .map(|expression| expression.column(&batch, &parameters))
                    .collect::<Result<Vec<Column>, _>>()?;
                Batch::new(columns, batch.rows)
            }
        };
        self.grouped.update(&batch, &parameters)
    }

    /// The partial groups, if there are any.
    fn partial(&mut self) -> Option<Batch> {
        let groups = self.grouped.len();
        (groups > 0).then(|| self.grouped.partial(&(0..groups).into()))
    }
}

impl OperatorState for Aggregating {
    fn batch(&mut self, gateway: Gateway, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(self.update(gateway.batch)?)
    }

    fn finish(&mut self, output: &mut Output<'_>) -> Result<(), EngineError> {
        match self.partial() {
            None => Ok(()),
            // What is emitted is charged to the query; until this state is dropped, here as well.
            Some(batch) => output.emit(batch),
        }
    }
}

/// Merges the partial groups of all partitions.
#[derive(Debug)]
pub struct AggregateMerge {
    grouped: Grouped,
}

impl AggregateMerge {
    /// For the partial groups of this aggregate.
    pub fn new(plan: &Aggregate) -> Self {
        Self { grouped: Grouped::of(plan) }
    }

    /// Takes the partial groups of one partition.
    pub fn merge(&mut self, partial: &Batch) -> Result<(), OperatorError> {
        // Until it is merged the batch is held by the task, and charged nowhere else.
        let held = partial.bytes();
        self.grouped.room.add(held)?;
        self.grouped.merge(partial)?;
        self.grouped.room.give_back(held);
        Ok(())
    }

    /// The group columns and results. Without group columns there is always exactly one row.
    pub fn finish(mut self) -> Result<Batch, OperatorError> {
        self.grouped.complete()?;
        let groups = self.grouped.len();
        self.grouped.room.add(groups * self.grouped.result_bytes())?;
        self.grouped.results(&(0..groups).into())
    }
}

#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod spill_tests;
#[cfg(test)]
mod tests;
