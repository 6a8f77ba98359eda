//! Aggregates of different values: the values of each group are kept once, and aggregated when all are known.

use std::ops::Range;
use std::sync::Arc;

use eris_platform::MemoryPool;
use eris_storage::{BATCH_ROWS, Column, DataType, Values};

use super::AggregateCall;
use super::accumulator::Accumulator;
use super::chosen::Chosen;
use super::groups::Groups;
use super::room::Room;
use crate::error::OperatorError;

#[derive(Debug)]
pub(super) struct Distinct {
    /// Pairs of a group's number and a value.
    pairs: Groups,
    room: Room,
    accumulator: Accumulator,
    /// Values of each group, when they are complete.
    counts: Vec<i64>,
}

fn numbers(groups: &[u32]) -> Column {
    let values = groups.iter().map(|group| *group as i32).collect();
    Column { data_type: DataType::Int32, validity: None, values: Values::Int32(values) }
}

impl Distinct {
    pub fn new(call: &AggregateCall, memory: &Arc<MemoryPool>) -> Self {
        let pairs = Groups::new(vec![DataType::Int32, call.input_type()]);
        let room = Room::new(memory, pairs.group_bytes());
        let accumulator = Accumulator::new(call.function, call.input_type());
        Self { pairs, room, accumulator, counts: Vec::new() }
    }

    /// The same, empty, for values that can be written to files.
    pub fn spill(&mut self) {
        self.room = self.room.spilling();
    }

    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Takes the values of rows that are not NULL. Again, it changes nothing.
    pub fn update(&mut self, input: Option<&Column>, group_of_row: &[u32]) -> Result<(), OperatorError> {
        let input = input.ok_or_else(|| OperatorError::Internal("DISTINCT without an argument".to_string()))?;
        let valid: Vec<u32>;
        let groups: Vec<u32>;
        let values;
        let (values, groups) = if input.null_count() == 0 {
            (input, group_of_row)
        } else {
            valid = (0..input.len() as u32).filter(|row| !input.is_null(*row as usize)).collect();
            groups = valid.iter().map(|row| group_of_row[*row as usize]).collect();
            values = input.take(&valid).without_idle_validity();
            (&values, &groups[..])
        };
        if !groups.is_empty() {
            self.pairs.assign(&[numbers(groups), values.clone()], groups.len(), &mut self.room)?;
            self.room.texts(self.pairs.text_bytes())?;
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The groups and values of some pairs.
    pub fn pairs(&self, pairs: Range<usize>) -> (Vec<u32>, Column) {
        let mut columns = self.pairs.columns(&pairs.into()).into_iter();
        match (columns.next(), columns.next()) {
            (Some(Column { values: Values::Int32(groups), .. }), Some(values)) => {
                (groups.iter().map(|group| *group as u32).collect(), values)
            }
            _ => unreachable!("a pair has a number and a value"),
        }
    }

    /// Aggregates the values of so many groups.
    pub fn complete(&mut self, groups: usize) -> Result<(), OperatorError> {
        self.room.add(groups * (self.accumulator.group_bytes() + size_of::<i64>()))?;
        self.counts = vec![0; groups];
        self.accumulator.grow(groups, groups);
        for start in (0..self.len()).step_by(BATCH_ROWS) {
            let (group_of_row, values) = self.pairs(start..(start + BATCH_ROWS).min(self.len()));
            for group in &group_of_row {
                self.counts[*group as usize] += 1;
            }
            self.accumulator.update(Some(&values), &group_of_row, groups)?;
            self.room.texts(self.pairs.text_bytes() + self.accumulator.text_bytes())?;
        }
        Ok(())
    }

    /// The results of some groups.
    pub fn results(&self, groups: &Chosen<'_>, result: DataType) -> Result<Column, OperatorError> {
        self.accumulator.results(&self.counts, groups, result)
    }
}
