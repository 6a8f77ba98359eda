//! The states of one aggregate over all groups, by column.
//!
//! How many rows a group has is known beside; a state only counts those that are missing in it, because they are NULL
//! or were filtered, and does not even do that before there is one.

use eris_storage::{Column, ColumnBuilder, DataType, Physical, Value, Values};

use super::AggregateFunction;
use super::chosen::Chosen;
use super::extremes::Extremes;
use super::sums::Sums;
use crate::arithmetic::{exact_average, rescale};
use crate::error::OperatorError;

#[derive(Debug)]
enum State {
    /// Rows, or values that are not NULL.
    Count,
    /// Sums of integers and decimals at the input's scale.
    Exact { sums: Sums, scale: u8, average: bool },
    /// Sums of floating point.
    Approximate { sums: Vec<f64>, average: bool },
    /// The smallest or largest value.
    Extreme { best: Extremes, data_type: DataType },
}

/// States by group.
#[derive(Debug)]
pub(super) struct Accumulator {
    state: State,
    /// Whether all rows count, whatever the argument.
    rows_only: bool,
    /// Rows of each group that are missing; empty: none.
    missing: Vec<i64>,
    groups: usize,
}

/// The type in which exact sums travel.
fn sum_type(scale: u8) -> DataType {
    DataType::Decimal { precision: 38, scale }
}

/// What has left its type.
pub(crate) fn overflow(data_type: DataType) -> OperatorError {
    let type_name = match data_type {
        DataType::Int64 => "bigint",
        DataType::Float64 => "double precision",
        _ => "numeric",
    };
    OperatorError::Overflow { type_name }
}

/// Makes room for groups that have been added, and with the first that does not fit for `room` groups.
pub(super) fn grow<T: Clone>(states: &mut Vec<T>, groups: usize, room: usize, empty: T) {
    if groups > states.capacity() {
        states.reserve_exact(room.max(groups) - states.len());
    }
    states.resize(groups, empty);
}

impl Accumulator {
    pub fn new(function: AggregateFunction, input: DataType) -> Self {
        let average = function == AggregateFunction::Average;
        let state = match function {
            AggregateFunction::CountAll | AggregateFunction::Count => State::Count,
            AggregateFunction::Sum | AggregateFunction::Average => match input {
                DataType::Float32 | DataType::Float64 => State::Approximate { sums: Vec::new(), average },
                DataType::Decimal { scale, .. } => State::Exact { sums: Sums::new(), scale, average },
                _ => State::Exact { sums: Sums::new(), scale: 0, average },
            },
            AggregateFunction::Min => State::Extreme { best: Extremes::new(false, input), data_type: input },
            AggregateFunction::Max => State::Extreme { best: Extremes::new(true, input), data_type: input },
        };
        let rows_only = function == AggregateFunction::CountAll;
        Self { state, rows_only, missing: Vec::new(), groups: 0 }
    }

    /// Bytes of a group's state. Texts come on top.
    pub fn group_bytes(&self) -> usize {
        let missing = size_of::<i64>();
        missing
            + match &self.state {
                State::Count => 0,
                State::Exact { .. } => Sums::GROUP_BYTES,
                State::Approximate { .. } => size_of::<f64>(),
                State::Extreme { best, .. } => best.group_bytes(),
            }
    }

    /// Bytes of texts.
    pub fn text_bytes(&self) -> u64 {
        match &self.state {
            State::Extreme { best, .. } => best.text_bytes(),
            State::Count | State::Exact { .. } | State::Approximate { .. } => 0,
        }
    }

    /// Bytes that are allocated for anything but texts.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        let states = match &self.state {
            State::Count => 0,
            State::Exact { sums, .. } => sums.allocated_bytes(),
            State::Approximate { sums, .. } => sums.capacity() * size_of::<f64>(),
            State::Extreme { best, .. } => best.allocated_bytes(),
        };
        states + self.missing.capacity() * size_of::<i64>()
    }

    /// Makes room for groups that have been added, of `room` for which memory is reserved.
    pub fn grow(&mut self, groups: usize, room: usize) {
        self.groups = groups;
        if !self.missing.is_empty() {
            grow(&mut self.missing, groups, room, 0);
        }
        match &mut self.state {
            State::Count => {}
            State::Exact { sums, .. } => sums.grow(groups, room),
            State::Approximate { sums, .. } => grow(sums, groups, room, 0.0),
            State::Extreme { best, .. } => best.grow(groups, room),
        }
    }

    /// Notes rows that are missing, `count` says how many in each place.
    fn miss(&mut self, group: u32, count: i64, room: usize) {
        if self.missing.is_empty() {
            grow(&mut self.missing, self.groups, room, 0);
        }
        self.missing[group as usize] += count;
    }

    /// Rows that a filter took away.
    pub fn skip(&mut self, group_of_row: &[u32], room: usize) {
        for group in group_of_row {
            self.miss(*group, 1, room);
        }
    }

    /// Takes rows of groups that have been [grown](Self::grow) for: `input` is the argument's column, `group_of_row`
    /// says where each row goes.
    pub fn update(&mut self, input: Option<&Column>, group_of_row: &[u32], room: usize) -> Result<(), OperatorError> {
        if self.rows_only {
            return Ok(());
        }
        let input = input.ok_or_else(|| OperatorError::Internal("an aggregate without argument".to_string()))?;
        if input.null_count() > 0 {
            for (row, group) in group_of_row.iter().enumerate() {
                if input.is_null(row) {
                    self.miss(*group, 1, room);
                }
            }
        }
        self.add(input, group_of_row)
    }

    /// Whether decimals may come as 64-bit values, whatever their type says.
    pub fn takes_narrow(&self) -> bool {
        matches!(self.state, State::Exact { .. })
    }

    /// Adds values that are not NULL to the states.
    fn add(&mut self, input: &Column, group_of_row: &[u32]) -> Result<(), OperatorError> {
        let wrong = || OperatorError::Internal(format!("sum of {}", input.data_type));
        match &mut self.state {
            State::Count => Ok(()),
            State::Exact { sums, .. } => {
                let added = sums.update(input, group_of_row).ok_or_else(wrong)?;
                added.map_err(|_| overflow(input.data_type))
            }
            State::Approximate { sums, .. } => {
                let mut failed = false;
                let mut add = |row: usize, value: f64, group: u32| {
                    if !input.is_null(row) {
                        let sum = &mut sums[group as usize];
                        let before = *sum;
                        *sum += value;
                        failed |= sum.is_infinite() && value.is_finite() && before.is_finite();
                    }
                };
                let groups = group_of_row.iter().copied().enumerate();
                match &input.values {
                    Values::Float32(v) => groups.for_each(|(row, group)| add(row, f64::from(v[row]), group)),
                    Values::Float64(v) => groups.for_each(|(row, group)| add(row, v[row], group)),
                    _ => return Err(wrong()),
                }
                if failed { Err(overflow(DataType::Float64)) } else { Ok(()) }
            }
            State::Extreme { best, .. } => {
                best.update(input, group_of_row);
                Ok(())
            }
        }
    }

    /// How many of a group's rows count.
    #[inline]
    fn count(&self, rows: &[i64], group: usize) -> i64 {
        rows[group] - self.missing.get(group).copied().unwrap_or(0)
    }

    fn counts(&self, rows: &[i64], groups: &Chosen<'_>) -> Column {
        let counts: Vec<i64> = groups.iter().map(|group| self.count(rows, group)).collect();
        Column { data_type: DataType::Int64, validity: None, values: Values::Int64(counts.into()) }
    }

    /// How many columns its partial state has.
    pub fn state_columns(&self) -> usize {
        match self.state {
            State::Count | State::Extreme { .. } => 1,
            State::Exact { .. } | State::Approximate { .. } => 2,
        }
    }

    /// Appends the partial state's columns for some groups; `rows` says how many rows each of all groups has.
    pub fn states(&self, rows: &[i64], groups: &Chosen<'_>, columns: &mut Vec<Column>) {
        match &self.state {
            State::Count => {}
            State::Exact { sums, scale, .. } => {
                let sums: Vec<i128> = groups.iter().map(|group| sums.get(group)).collect();
                columns.push(Column {
                    data_type: sum_type(*scale),
                    validity: None,
                    values: Values::Int128(sums.into()),
                });
            }
            State::Approximate { sums, .. } => {
                columns.push(Column {
                    data_type: DataType::Float64,
                    validity: None,
                    values: Values::Float64(groups.of(sums).into()),
                });
            }
            State::Extreme { best, data_type } => {
                columns.push(best.column(*data_type, groups, |group| self.count(rows, group) > 0));
                return;
            }
        }
        columns.push(self.counts(rows, groups));
    }

    /// Takes partial states of groups of so many `rows`, as [`Self::update`] takes rows.
    pub fn merge(
        &mut self,
        states: &[Column],
        rows: &[i64],
        group_of_row: &[u32],
        room: usize,
    ) -> Result<(), OperatorError> {
        let wrong = || OperatorError::Internal("a partial state of another aggregate".to_string());
        let (values, counts) = match (&self.state, states) {
            (State::Count, [counts]) => (None, Some(counts)),
            (State::Exact { .. } | State::Approximate { .. }, [values, counts]) => (Some(values), Some(counts)),
            (State::Extreme { .. }, [values]) => (Some(values), None),
            _ => return Err(wrong()),
        };
        for (at, group) in group_of_row.iter().enumerate() {
            let missing = match (counts, values) {
                (Some(Column { values: Values::Int64(counts), .. }), _) => rows[at] - counts[at],
                (None, Some(values)) if values.is_null(at) => rows[at],
                (None, Some(_)) => 0,
                _ => return Err(wrong()),
            };
            if missing > 0 {
                self.miss(*group, missing, room);
            }
        }
        match values {
            Some(values) => self.add(values, group_of_row),
            None => Ok(()),
        }
    }

    /// The results of some groups; `rows` says how many rows each of all groups has.
    pub fn results(&self, rows: &[i64], groups: &Chosen<'_>, result: DataType) -> Result<Column, OperatorError> {
        let mut builder = ColumnBuilder::with_capacity(result, groups.len());
        match &self.state {
            State::Count => return Ok(self.counts(rows, groups)),
            State::Extreme { best, .. } => {
                return Ok(best.column(result, groups, |group| self.count(rows, group) > 0));
            }
            State::Approximate { sums, average } => {
                for group in groups.iter() {
                    let count = self.count(rows, group);
                    let value = if *average { sums[group] / count as f64 } else { sums[group] };
                    match (count, result) {
                        (0, _) => builder.push_null(),
                        (_, DataType::Float32) => builder.push(&Value::Float32(value as f32)),
                        _ => builder.push(&Value::Float64(value)),
                    }
                }
            }
            State::Exact { sums, scale, average } => {
                if let Some(column) = self.plain_sums(sums, *scale, rows, groups, result) {
                    return Ok(column);
                }
                for group in groups.iter() {
                    let (sum, count) = (sums.get(group), self.count(rows, group));
                    if count == 0 {
                        builder.push_null();
                    } else if *average {
                        builder.push(&average_of(sum, count, *scale, result)?);
                    } else {
                        builder.push(&sum_of(sum, *scale, result)?);
                    }
                }
            }
        }
        Ok(builder.finish())
    }
}

impl Accumulator {
    /// The sums of some groups as they are, if no group is without a value and none has to be scaled or refused.
    fn plain_sums(
        &self,
        sums: &Sums,
        scale: u8,
        rows: &[i64],
        groups: &Chosen<'_>,
        result: DataType,
    ) -> Option<Column> {
        let State::Exact { average: false, .. } = &self.state else { return None };
        let sums = sums.narrow()?;
        let limit = match result {
            DataType::Int64 => i64::MAX as u64,
            DataType::Decimal { precision, scale: wanted } if wanted == scale => {
                // More digits than there are.
                10_u64.checked_pow(u32::from(precision)).map_or(u64::MAX, |above| above - 1)
            }
            _ => return None,
        };
        let valued = self.missing.is_empty() && groups.iter().all(|group| rows[group] > 0);
        let fits = valued && groups.iter().all(|group| sums[group].unsigned_abs() <= limit);
        let values = || match result.physical() {
            Physical::Int128 => Values::Int128(groups.iter().map(|group| i128::from(sums[group])).collect()),
            _ => Values::Int64(groups.of(sums).into()),
        };
        fits.then(|| Column { data_type: result, validity: None, values: values() })
    }
}

/// A sum at a scale, as a value of a type.
pub(crate) fn sum_of(sum: i128, scale: u8, result: DataType) -> Result<Value, OperatorError> {
    match result {
        DataType::Int64 => i64::try_from(sum).map(Value::Int64).map_err(|_| overflow(result)),
        DataType::Decimal { precision, scale: wanted } => decimal(rescale(sum, scale, wanted), precision, wanted),
        other => Err(OperatorError::Internal(format!("an exact sum as {other}"))),
    }
}

/// The average of so many values with this sum, as a value of a type.
pub(crate) fn average_of(sum: i128, count: i64, scale: u8, result: DataType) -> Result<Value, OperatorError> {
    match result {
        DataType::Float64 => Ok(Value::Float64(sum as f64 / 10_f64.powi(i32::from(scale)) / count as f64)),
        DataType::Decimal { precision, scale: wanted } => {
            decimal(Some(exact_average(sum, count, scale, wanted)?), precision, wanted)
        }
        other => Err(OperatorError::Internal(format!("an exact average as {other}"))),
    }
}

fn decimal(unscaled: Option<i128>, precision: u8, scale: u8) -> Result<Value, OperatorError> {
    let limit = 10_u128.pow(u32::from(precision.min(38)));
    match unscaled {
        Some(unscaled) if unscaled.unsigned_abs() < limit => Ok(Value::Decimal { unscaled, scale }),
        _ => Err(OperatorError::Overflow { type_name: "numeric" }),
    }
}
