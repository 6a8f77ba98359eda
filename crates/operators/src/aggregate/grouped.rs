//! Groups and their states, within the room they have.
//!
//! Partial groups, as they travel between partitions, slots and the one who merges:
//!
//! ```text
//!   | g1 g2 | rows | count | sum count | ...      one row a group; states as their accumulators lay them out
//! ```

use std::sync::Arc;

use eris_platform::{MemoryExceeded, MemoryPool};
use eris_storage::{Batch, Column, DataType, Value, Values};

use super::accumulator::{Accumulator, grow};
use super::carried::Carried;
use super::chosen::Chosen;
use super::distinct::Distinct;
use super::groups::Groups;
use super::room::Room;
use super::sums::count_rows;
use super::{Aggregate, AggregateFunction, GroupCall};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::filter_project::select;
use crate::settings::AggregationInput;

/// One call's states.
#[derive(Debug)]
pub(super) enum CallState {
    Plain(Accumulator),
    Distinct(Box<Distinct>),
}

/// Whether nothing but rows is counted, all together.
pub(super) fn only_counts(groups: &[Expression], calls: &[GroupCall]) -> bool {
    let counts_rows =
        |call: &GroupCall| call.call.function == AggregateFunction::CountAll && !call.distinct && call.filter.is_none();
    groups.is_empty() && calls.iter().all(counts_rows)
}

#[derive(Debug)]
pub(super) struct Grouped {
    expressions: Arc<[Expression]>,
    /// So many of the first expressions determine the others.
    determining: usize,
    calls: Arc<[GroupCall]>,
    pub groups: Groups,
    carried: Carried,
    /// Rows of each group.
    rows: Vec<i64>,
    pub states: Vec<CallState>,
    pub room: Room,
    input: AggregationInput,
}

impl Grouped {
    pub fn new(
        expressions: Arc<[Expression]>,
        determining: usize,
        calls: Arc<[GroupCall]>,
        memory: &Arc<MemoryPool>,
        input: AggregationInput,
    ) -> Self {
        let (compared, carried) = expressions.split_at(determining);
        let groups = Groups::new(compared.iter().map(Expression::data_type).collect());
        let carried = Carried::new(carried.iter().map(Expression::data_type).collect());
        let state = |call: &GroupCall| {
            if call.distinct {
                CallState::Distinct(Box::new(Distinct::new(&call.call, memory)))
            } else {
                CallState::Plain(Accumulator::new(call.call.function, call.call.input_type()))
            }
        };
        let states: Vec<CallState> = calls.iter().map(state).collect();
        let bytes = states.iter().map(|state| match state {
            CallState::Plain(accumulator) => accumulator.group_bytes(),
            CallState::Distinct(_) => 0,
        });
        let key_bytes = groups.group_bytes() + carried.group_bytes();
        let room = Room::new(memory, key_bytes + size_of::<i64>() + bytes.sum::<usize>());
        Self { expressions, determining, calls, groups, carried, rows: Vec::new(), states, room, input }
    }

    pub fn of(plan: &Aggregate) -> Self {
        let calls = plan.calls.iter().map(|call| GroupCall::from(call.clone())).collect();
        Self::new(Arc::clone(&plan.groups), plan.groups.len(), calls, &plan.memory, plan.input)
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// The same, empty, for groups that can be written to files.
    pub fn spilling(mut self) -> Self {
        self.room = self.room.spilling();
        for state in &mut self.states {
            if let CallState::Distinct(distinct) = state {
                distinct.spill();
            }
        }
        self
    }

    /// Groups that have their states. When memory was refused in the middle of a batch there may be others behind them,
    /// of rows that were not taken.
    pub fn whole(&self) -> usize {
        self.rows.len()
    }

    fn rooms(&self) -> impl Iterator<Item = &Room> {
        let distinct = self.states.iter().filter_map(|state| match state {
            CallState::Plain(_) => None,
            CallState::Distinct(distinct) => Some(distinct.room()),
        });
        std::iter::once(&self.room).chain(distinct)
    }

    /// What is reserved.
    pub fn bytes(&self) -> u64 {
        self.rooms().map(Room::bytes).sum()
    }

    /// Whether no more rows should be taken.
    pub fn is_full(&self) -> bool {
        self.rooms().any(Room::is_full)
    }

    /// What was refused to texts that it has all the same.
    pub fn refused(&self) -> Option<MemoryExceeded> {
        self.rooms().find_map(Room::refused).cloned()
    }

    /// See [`Groups::make_dense`].
    pub fn make_dense(&mut self) -> bool {
        self.groups.make_dense(&mut self.room)
    }

    /// See [`Groups::leave_dense`].
    pub fn leave_dense(&mut self) {
        self.groups.leave_dense(&mut self.room);
    }

    fn accumulators(&self) -> impl Iterator<Item = &Accumulator> {
        self.states.iter().filter_map(|state| match state {
            CallState::Plain(accumulator) => Some(accumulator),
            CallState::Distinct(_) => None,
        })
    }

    /// The group of each row, with a state for each.
    pub fn assign(&mut self, keys: &[Column], rows: usize) -> Result<Vec<u32>, OperatorError> {
        let (compared, carried) = keys.split_at(self.determining);
        let group_of_row = self.groups.assign(compared, rows, &mut self.room)?;
        let (groups, room) = (self.groups.len(), self.room.groups());
        self.carried.follow(carried, &group_of_row, groups, room);
        if groups > self.rows.len() {
            grow(&mut self.rows, groups, room, 0);
            for state in &mut self.states {
                if let CallState::Plain(accumulator) = state {
                    accumulator.grow(groups, room);
                }
            }
        }
        Ok(group_of_row)
    }

    /// Takes rows.
    pub fn update(&mut self, batch: &Batch, parameters: &[Value]) -> Result<(), OperatorError> {
        if only_counts(&self.expressions, &self.calls) {
            self.assign(&[], 1)?;
            self.rows[0] += batch.rows as i64;
            return Ok(());
        }
        let (expressions, taken) = (Arc::clone(&self.expressions), self.input);
        let as_taken = |column: Column| match taken {
            AggregationInput::Codes => column,
            AggregationInput::Values => column.looked_up(),
        };
        let keys = expressions.iter().map(|group| group.column(batch, parameters).map(as_taken));
        let keys = keys.collect::<Result<Vec<Column>, _>>()?;
        let group_of_row = self.assign(&keys, batch.rows)?;
        // These alone may be refused memory: the batch can be given again, here or elsewhere.
        for (call, state) in self.calls.iter().zip(&mut self.states) {
            let CallState::Distinct(distinct) = state else { continue };
            let chosen = call.filter.as_ref().map(|filter| select(filter, batch, parameters)).transpose()?;
            let Some(input) = &call.call.input else { continue };
            match chosen.filter(|rows| rows.len() < batch.rows) {
                None => distinct.update(Some(&as_taken(input.column(batch, parameters)?)), &group_of_row)?,
                // What the filter takes away must not fail.
                Some(rows) => {
                    let groups: Vec<u32> = rows.iter().map(|row| group_of_row[*row as usize]).collect();
                    distinct.update(Some(&as_taken(input.column(&batch.take(&rows), parameters)?)), &groups)?;
                }
            }
        }
        if keys.is_empty() {
            self.rows[0] += batch.rows as i64;
        } else {
            count_rows(&mut self.rows, &group_of_row);
        }
        let room = self.room.groups();
        for (call, state) in self.calls.iter().zip(&mut self.states) {
            let CallState::Plain(accumulator) = state else { continue };
            let chosen = call.filter.as_ref().map(|filter| select(filter, batch, parameters)).transpose()?;
            let chosen = chosen.filter(|rows| rows.len() < batch.rows);
            let narrow = accumulator.takes_narrow();
            let input = call.call.input.as_ref().map(|input| match &chosen {
                None if narrow => {
                    let narrowed = input.evaluate_narrow(batch, parameters)?;
                    Ok(narrowed.datum.into_column(input.data_type(), batch.rows))
                }
                None => input.column(batch, parameters),
                // What the filter takes away must not fail.
                Some(rows) => input.column(&batch.take(rows), parameters),
            });
            let input = input.transpose()?.map(as_taken);
            let Some(rows) = chosen else {
                accumulator.update(input.as_ref(), &group_of_row, room)?;
                continue;
            };
            let groups: Vec<u32> = rows.iter().map(|row| group_of_row[*row as usize]).collect();
            let mut rows = rows.iter().peekable();
            let skipped = |row: &u32| rows.next_if(|next| *next == row).is_none();
            let skipped: Vec<u32> = (0..batch.rows as u32).filter(skipped).collect();
            let skipped: Vec<u32> = skipped.into_iter().map(|row| group_of_row[row as usize]).collect();
            accumulator.skip(&skipped, room);
            accumulator.update(input.as_ref(), &groups, room)?;
        }
        self.count_texts()
    }

    /// Takes partial groups.
    pub fn merge(&mut self, partial: &Batch) -> Result<(), OperatorError> {
        let keys = self.expressions.len();
        let group_of_row = self.assign(&partial.columns[..keys], partial.rows)?;
        let Values::Int64(rows) = &partial.columns[keys].values else {
            return Err(OperatorError::Internal("partial groups without their rows".to_string()));
        };
        for (group, rows) in group_of_row.iter().zip(rows.iter()) {
            self.rows[*group as usize] += rows;
        }
        let (mut at, room) = (keys + 1, self.room.groups());
        for state in &mut self.states {
            if let CallState::Plain(accumulator) = state {
                let width = accumulator.state_columns();
                accumulator.merge(&partial.columns[at..at + width], rows, &group_of_row, room)?;
                at += width;
            }
        }
        assert_eq!(at, partial.columns.len(), "partial groups have the columns of their accumulators");
        self.count_texts()
    }

    /// Takes values of a DISTINCT call, behind the columns of groups that are there.
    pub fn merge_distinct(&mut self, call: usize, values: &Batch) -> Result<(), OperatorError> {
        let keys = self.expressions.len();
        let group_of_row = self.assign(&values.columns[..keys], values.rows)?;
        match &mut self.states[call] {
            CallState::Distinct(distinct) => distinct.update(Some(&values.columns[keys]), &group_of_row),
            CallState::Plain(_) => Err(OperatorError::Internal("values of a call without DISTINCT".to_string())),
        }
    }

    /// Reserves for the texts of the batch that was taken.
    fn count_texts(&mut self) -> Result<(), OperatorError> {
        let states: u64 = self.accumulators().map(Accumulator::text_bytes).sum();
        Ok(self.room.texts(self.groups.text_bytes() + self.carried.text_bytes() + states)?)
    }

    /// The group columns of some groups.
    pub fn key_columns(&self, groups: &Chosen<'_>) -> Vec<Column> {
        let mut columns = self.groups.columns(groups);
        columns.extend(self.carried.columns(groups));
        columns
    }

    /// Some groups, to be merged elsewhere. DISTINCT calls are not among it.
    pub fn partial(&self, groups: &Chosen<'_>) -> Batch {
        let count = groups.len();
        let mut columns = self.key_columns(groups);
        let rows = groups.of(&self.rows);
        columns.push(Column { data_type: DataType::Int64, validity: None, values: Values::Int64(rows.into()) });
        self.accumulators().for_each(|accumulator| accumulator.states(&self.rows, groups, &mut columns));
        Batch::new(columns, count)
    }

    /// Behind the last row: the one group that there is without group columns, the results of DISTINCT calls.
    pub fn complete(&mut self) -> Result<(), OperatorError> {
        if self.expressions.is_empty() {
            self.assign(&[], 1)?;
        }
        let groups = self.len();
        for state in &mut self.states {
            if let CallState::Distinct(distinct) = state {
                distinct.complete(groups)?;
            }
        }
        Ok(())
    }

    /// Bytes of a group's results and its group columns, without texts.
    pub fn result_bytes(&self) -> usize {
        let results = self.calls.iter().map(|call| call.call.result.physical().width() + 1).sum::<usize>();
        let keys = self.expressions.iter().map(|group| group.data_type().physical().width() + 1).sum::<usize>();
        keys + results
    }

    /// The group columns and results of some groups.
    pub fn results(&self, groups: &Chosen<'_>) -> Result<Batch, OperatorError> {
        let count = groups.len();
        let mut columns = self.key_columns(groups);
        for (call, state) in self.calls.iter().zip(&self.states) {
            columns.push(match state {
                CallState::Plain(accumulator) => accumulator.results(&self.rows, groups, call.call.result)?,
                CallState::Distinct(distinct) => distinct.results(groups, call.call.result)?,
            });
        }
        Ok(Batch::new(columns, count))
    }

    /// Bytes that are allocated for anything but texts, and those of texts.
    #[cfg(test)]
    pub fn allocated(&self) -> (usize, u64) {
        let states: usize = self.accumulators().map(Accumulator::allocated_bytes).sum();
        let texts: u64 = self.accumulators().map(Accumulator::text_bytes).sum();
        let rows = self.rows.capacity() * size_of::<i64>();
        let keys = self.groups.allocated_bytes() + self.carried.allocated_bytes();
        (keys + states + rows, self.groups.text_bytes() + self.carried.text_bytes() + texts)
    }
}
