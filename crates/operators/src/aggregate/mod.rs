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
mod groups;
mod room;
mod sink;

use std::sync::Arc;

use eris_engine::{EngineError, MicroOperator, OperatorState, Output};
use eris_platform::MemoryPool;
use eris_storage::{Batch, Column, DataType, Gateway, Value};

use crate::error::OperatorError;
use crate::expression::Expression;
use crate::logic::true_rows;
use accumulator::Accumulator;
use groups::Groups;
use room::Room;
pub use sink::{GroupBy, GroupCall};

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
}

/// Groups and their states, within the room they have.
#[derive(Debug)]
struct Grouped {
    groups: Groups,
    accumulators: Vec<Accumulator>,
    room: Room,
}

impl Grouped {
    fn new(plan: &Aggregate) -> Self {
        let types: Vec<DataType> = plan.groups.iter().map(Expression::data_type).collect();
        let accumulators: Vec<Accumulator> =
            plan.calls.iter().map(|call| Accumulator::new(call.function, call.input_type())).collect();
        let states: usize = accumulators.iter().map(Accumulator::group_bytes).sum();
        let room = Room::new(&plan.memory, Groups::group_bytes(&types) + states);
        Self { groups: Groups::new(types), accumulators, room }
    }

    /// The group of each row, with a state for each.
    fn assign(&mut self, keys: &[Column], rows: usize) -> Result<Vec<u32>, OperatorError> {
        let group_of_row = self.groups.assign(keys, rows, &mut self.room)?;
        for accumulator in &mut self.accumulators {
            accumulator.grow(self.groups.len(), self.room.groups());
        }
        Ok(group_of_row)
    }

    /// Reserves for the texts of the batch that was taken.
    fn count_texts(&mut self) -> Result<(), OperatorError> {
        let states: u64 = self.accumulators.iter().map(Accumulator::text_bytes).sum();
        Ok(self.room.texts(self.groups.text_bytes() + states)?)
    }
}

struct Aggregating {
    plan: Aggregate,
    grouped: Grouped,
}

impl MicroOperator for Aggregate {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Aggregating { plan: self.clone(), grouped: Grouped::new(self) })
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
        let keys = self
            .plan
            .groups
            .iter()
            .map(|group| group.column(&batch, &parameters))
            .collect::<Result<Vec<Column>, _>>()?;
        let group_of_row = self.grouped.assign(&keys, batch.rows)?;
        for (call, accumulator) in self.plan.calls.iter().zip(&mut self.grouped.accumulators) {
            let input = call.input.as_ref().map(|input| input.column(&batch, &parameters)).transpose()?;
            accumulator.update(input.as_ref(), &group_of_row)?;
        }
        self.grouped.count_texts()
    }

    /// The partial groups, if there are any.
    fn partial(&mut self) -> Option<Batch> {
        let grouped = &mut self.grouped;
        let rows = grouped.groups.len();
        if rows == 0 {
            return None;
        }
        let mut columns = grouped.groups.take_columns();
        for accumulator in &mut grouped.accumulators {
            accumulator.states(&mut columns);
        }
        Some(Batch::new(columns, rows))
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
    calls: Arc<[AggregateCall]>,
    grouped: Grouped,
    group_columns: usize,
}

impl AggregateMerge {
    /// For the partial groups of this aggregate.
    pub fn new(plan: &Aggregate) -> Self {
        Self { calls: Arc::clone(&plan.calls), grouped: Grouped::new(plan), group_columns: plan.groups.len() }
    }

    /// Takes the partial groups of one partition.
    pub fn merge(&mut self, partial: &Batch) -> Result<(), OperatorError> {
        // Until it is merged the batch is held by the task, and charged nowhere else.
        let held = partial.bytes();
        self.grouped.room.add(held)?;
        let group_of_row = self.grouped.assign(&partial.columns[..self.group_columns], partial.rows)?;
        let mut at = self.group_columns;
        for accumulator in &mut self.grouped.accumulators {
            let width = accumulator.state_columns();
            accumulator.merge(&partial.columns[at..at + width], &group_of_row)?;
            at += width;
        }
        assert_eq!(at, partial.columns.len(), "partial groups have the columns of their accumulators");
        self.grouped.count_texts()?;
        self.grouped.room.give_back(held);
        Ok(())
    }

    /// The group columns and results. Without group columns there is always exactly one row.
    pub fn finish(mut self) -> Result<Batch, OperatorError> {
        if self.group_columns == 0 {
            self.grouped.assign(&[], 1)?;
        }
        let rows = self.grouped.groups.len();
        let mut columns = self.grouped.groups.take_columns();
        for (call, accumulator) in self.calls.iter().zip(&mut self.grouped.accumulators) {
            self.grouped.room.add(rows * call.result.physical().width())?;
            columns.push(accumulator.results(call.result)?);
        }
        Ok(Batch::new(columns, rows))
    }
}

#[cfg(test)]
mod tests;
