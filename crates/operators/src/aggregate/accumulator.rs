//! The states of one aggregate over all groups, by column.

use eris_storage::{Column, ColumnBuilder, DataType, Value, Values};

use super::AggregateFunction;
use crate::arithmetic::{divide_rounded, rescale};
use crate::error::OperatorError;

/// States by group.
#[derive(Debug)]
pub(super) enum Accumulator {
    /// Rows, or values that are not NULL.
    Count { counts: Vec<i64>, all: bool },
    /// Sums of integers and decimals at the input's scale, with how many values went in (none: NULL).
    Exact { sums: Vec<i128>, counts: Vec<i64>, scale: u8, average: bool },
    /// Sums of floating point.
    Approximate { sums: Vec<f64>, counts: Vec<i64>, average: bool },
    /// The smallest or largest value; how many bytes their texts have.
    Extreme { values: Vec<Value>, largest: bool, data_type: DataType, text_bytes: u64 },
}

/// The type in which exact sums travel.
fn sum_type(scale: u8) -> DataType {
    DataType::Decimal { precision: 38, scale }
}

fn overflow(data_type: DataType) -> OperatorError {
    let type_name = match data_type {
        DataType::Int64 => "bigint",
        DataType::Float64 => "double precision",
        _ => "numeric",
    };
    OperatorError::Overflow { type_name }
}

impl Accumulator {
    pub fn new(function: AggregateFunction, input: DataType) -> Self {
        let average = function == AggregateFunction::Average;
        match function {
            AggregateFunction::CountAll => Self::Count { counts: Vec::new(), all: true },
            AggregateFunction::Count => Self::Count { counts: Vec::new(), all: false },
            AggregateFunction::Sum | AggregateFunction::Average => match input {
                DataType::Float32 | DataType::Float64 => {
                    Self::Approximate { sums: Vec::new(), counts: Vec::new(), average }
                }
                DataType::Decimal { scale, .. } => Self::Exact { sums: Vec::new(), counts: Vec::new(), scale, average },
                _ => Self::Exact { sums: Vec::new(), counts: Vec::new(), scale: 0, average },
            },
            AggregateFunction::Min => Self::extreme(false, input),
            AggregateFunction::Max => Self::extreme(true, input),
        }
    }

    fn extreme(largest: bool, data_type: DataType) -> Self {
        Self::Extreme { values: Vec::new(), largest, data_type, text_bytes: 0 }
    }

    /// Bytes of a group's state. Texts come on top.
    pub fn group_bytes(&self) -> usize {
        match self {
            Self::Count { .. } => size_of::<i64>(),
            Self::Exact { .. } => size_of::<i128>() + size_of::<i64>(),
            Self::Approximate { .. } => size_of::<f64>() + size_of::<i64>(),
            Self::Extreme { .. } => size_of::<Value>(),
        }
    }

    /// Bytes of texts.
    pub fn text_bytes(&self) -> u64 {
        match self {
            Self::Extreme { text_bytes, .. } => *text_bytes,
            _ => 0,
        }
    }

    /// Bytes that are allocated for anything but texts.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        let states = match self {
            Self::Count { counts, .. } => counts.capacity(),
            Self::Exact { sums, .. } => sums.capacity(),
            Self::Approximate { sums, .. } => sums.capacity(),
            Self::Extreme { values, .. } => values.capacity(),
        };
        states * self.group_bytes()
    }

    /// Makes room for groups that have been added, and with the first that does not fit for `room` groups.
    pub fn grow(&mut self, groups: usize, room: usize) {
        fn grow<T: Clone>(states: &mut Vec<T>, groups: usize, room: usize, empty: T) {
            if groups > states.capacity() {
                states.reserve_exact(room.max(groups) - states.len());
            }
            states.resize(groups, empty);
        }
        match self {
            Self::Count { counts, .. } => grow(counts, groups, room, 0),
            Self::Exact { sums, counts, .. } => {
                grow(sums, groups, room, 0);
                grow(counts, groups, room, 0);
            }
            Self::Approximate { sums, counts, .. } => {
                grow(sums, groups, room, 0.0);
                grow(counts, groups, room, 0);
            }
            Self::Extreme { values, .. } => grow(values, groups, room, Value::Null),
        }
    }

    /// Takes rows of groups that have been [grown](Self::grow) for: `input` is the argument's column, `group_of_row`
    /// says where each row goes.
    pub fn update(&mut self, input: Option<&Column>, group_of_row: &[u32]) -> Result<(), OperatorError> {
        if let Self::Count { counts, all: true } = self {
            for group in group_of_row {
                counts[*group as usize] += 1;
            }
            return Ok(());
        }
        let input = input.ok_or_else(|| OperatorError::Internal("an aggregate without argument".to_string()))?;
        match self {
            Self::Count { counts, .. } => each_valid(input, group_of_row, |_, group| counts[group] += 1),
            Self::Exact { sums, counts, .. } => {
                let mut failed = false;
                let mut add = |value: i128, group: usize| {
                    let (sum, over) = sums[group].overflowing_add(value);
                    sums[group] = sum;
                    counts[group] += 1;
                    failed |= over;
                };
                match &input.values {
                    Values::Int16(v) => each_valid(input, group_of_row, |row, group| add(i128::from(v[row]), group)),
                    Values::Int32(v) => each_valid(input, group_of_row, |row, group| add(i128::from(v[row]), group)),
                    Values::Int64(v) => each_valid(input, group_of_row, |row, group| add(i128::from(v[row]), group)),
                    Values::Int128(v) => each_valid(input, group_of_row, |row, group| add(v[row], group)),
                    _ => return Err(OperatorError::Internal(format!("sum of {}", input.data_type))),
                }
                if failed {
                    return Err(overflow(input.data_type));
                }
            }
            Self::Approximate { sums, counts, .. } => {
                let mut failed = false;
                let mut add = |value: f64, group: usize| {
                    let sum = sums[group] + value;
                    failed |= sum.is_infinite() && value.is_finite() && sums[group].is_finite();
                    sums[group] = sum;
                    counts[group] += 1;
                };
                match &input.values {
                    Values::Float32(v) => each_valid(input, group_of_row, |row, group| add(f64::from(v[row]), group)),
                    Values::Float64(v) => each_valid(input, group_of_row, |row, group| add(v[row], group)),
                    _ => return Err(OperatorError::Internal(format!("sum of {}", input.data_type))),
                }
                if failed {
                    return Err(overflow(DataType::Float64));
                }
            }
            Self::Extreme { values, largest, text_bytes, .. } => {
                each_valid(input, group_of_row, |row, group| {
                    let value = input.value(row);
                    let best = &mut values[group];
                    if best.is_null() || if *largest { value > *best } else { value < *best } {
                        *text_bytes = *text_bytes + text_bytes_of(&value) - text_bytes_of(best);
                        *best = value;
                    }
                });
            }
        }
        Ok(())
    }

    /// How many columns its partial state has.
    pub fn state_columns(&self) -> usize {
        match self {
            Self::Count { .. } | Self::Extreme { .. } => 1,
            Self::Exact { .. } | Self::Approximate { .. } => 2,
        }
    }

    /// Appends the partial state's columns.
    pub fn states(&mut self, columns: &mut Vec<Column>) {
        match self {
            Self::Count { counts, .. } => columns.push(counts_column(counts)),
            Self::Exact { sums, counts, scale, .. } => {
                columns.push(Column {
                    data_type: sum_type(*scale),
                    validity: None,
                    values: Values::Int128(std::mem::take(sums).into()),
                });
                columns.push(counts_column(counts));
            }
            Self::Approximate { sums, counts, .. } => {
                columns.push(Column {
                    data_type: DataType::Float64,
                    validity: None,
                    values: Values::Float64(std::mem::take(sums).into()),
                });
                columns.push(counts_column(counts));
            }
            Self::Extreme { values, data_type, .. } => columns.push(values_column(values, *data_type)),
        }
    }

    /// Takes partial states, as [`Self::update`] takes rows.
    pub fn merge(&mut self, states: &[Column], group_of_row: &[u32]) -> Result<(), OperatorError> {
        let wrong = || OperatorError::Internal("a partial state of another aggregate".to_string());
        match self {
            Self::Count { counts, .. } => {
                let Values::Int64(partial) = &states[0].values else { return Err(wrong()) };
                for (group, count) in group_of_row.iter().zip(partial.iter()) {
                    counts[*group as usize] += count;
                }
            }
            Self::Exact { sums, counts, scale, .. } => {
                let (Values::Int128(partial), Values::Int64(partial_counts)) = (&states[0].values, &states[1].values)
                else {
                    return Err(wrong());
                };
                for (row, group) in group_of_row.iter().enumerate() {
                    let sum = &mut sums[*group as usize];
                    *sum = sum.checked_add(partial[row]).ok_or_else(|| overflow(sum_type(*scale)))?;
                    counts[*group as usize] += partial_counts[row];
                }
            }
            Self::Approximate { sums, counts, .. } => {
                let (Values::Float64(partial), Values::Int64(partial_counts)) = (&states[0].values, &states[1].values)
                else {
                    return Err(wrong());
                };
                for (row, group) in group_of_row.iter().enumerate() {
                    let sum = sums[*group as usize] + partial[row];
                    if sum.is_infinite() && partial[row].is_finite() && sums[*group as usize].is_finite() {
                        return Err(overflow(DataType::Float64));
                    }
                    sums[*group as usize] = sum;
                    counts[*group as usize] += partial_counts[row];
                }
            }
            Self::Extreme { .. } => self.update(Some(&states[0]), group_of_row)?,
        }
        Ok(())
    }

    /// The results, one per group.
    pub fn results(&mut self, result: DataType) -> Result<Column, OperatorError> {
        match self {
            Self::Count { counts, .. } => Ok(counts_column(counts)),
            Self::Extreme { values, .. } => Ok(values_column(values, result)),
            Self::Approximate { sums, counts, average } => {
                let mut builder = ColumnBuilder::with_capacity(result, sums.len());
                for (sum, count) in sums.iter().zip(counts.iter()) {
                    let value = if *average { *sum / *count as f64 } else { *sum };
                    match (*count, result) {
                        (0, _) => builder.push_null(),
                        (_, DataType::Float32) => builder.push(&Value::Float32(value as f32)),
                        _ => builder.push(&Value::Float64(value)),
                    }
                }
                Ok(builder.finish())
            }
            Self::Exact { sums, counts, scale, average } => {
                let mut builder = ColumnBuilder::with_capacity(result, sums.len());
                for (sum, count) in sums.iter().zip(counts.iter()) {
                    if *count == 0 {
                        builder.push_null();
                    } else if *average {
                        builder.push(&average_of(*sum, *count, *scale, result)?);
                    } else {
                        builder.push(&sum_of(*sum, *scale, result)?);
                    }
                }
                Ok(builder.finish())
            }
        }
    }
}

fn sum_of(sum: i128, scale: u8, result: DataType) -> Result<Value, OperatorError> {
    match result {
        DataType::Int64 => i64::try_from(sum).map(Value::Int64).map_err(|_| overflow(result)),
        DataType::Decimal { precision, scale: wanted } => decimal(rescale(sum, scale, wanted), precision, wanted),
        other => Err(OperatorError::Internal(format!("an exact sum as {other}"))),
    }
}

fn average_of(sum: i128, count: i64, scale: u8, result: DataType) -> Result<Value, OperatorError> {
    match result {
        DataType::Float64 => Ok(Value::Float64(sum as f64 / 10_f64.powi(i32::from(scale)) / count as f64)),
        DataType::Decimal { precision, scale: wanted } => {
            let scaled = rescale(sum, scale, wanted).map(|sum| divide_rounded(sum, i128::from(count)));
            decimal(scaled, precision, wanted)
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

fn text_bytes_of(value: &Value) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn counts_column(counts: &mut Vec<i64>) -> Column {
    Column { data_type: DataType::Int64, validity: None, values: Values::Int64(std::mem::take(counts).into()) }
}

fn values_column(values: &[Value], data_type: DataType) -> Column {
    let mut builder = ColumnBuilder::with_capacity(data_type, values.len());
    for value in values {
        builder.push(value);
    }
    builder.finish()
}

#[inline]
fn each_valid(input: &Column, group_of_row: &[u32], mut visit: impl FnMut(usize, usize)) {
    match &input.validity {
        None => {
            for (row, group) in group_of_row.iter().enumerate() {
                visit(row, *group as usize);
            }
        }
        Some(validity) => {
            for (row, group) in group_of_row.iter().enumerate() {
                if validity.get(row) {
                    visit(row, *group as usize);
                }
            }
        }
    }
}
