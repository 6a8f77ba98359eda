//! Exact sums of many groups, by column.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::Shape;
use super::exact::{each_value, finish, overflow};

/// Sums and counts by group.
#[derive(Debug)]
pub(super) struct ExactGroups {
    shape: Shape,
    sums: Vec<i128>,
    counts: Vec<i64>,
}

impl ExactGroups {
    pub fn new(shape: Shape) -> Self {
        Self { shape, sums: Vec::new(), counts: Vec::new() }
    }

    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn sums_array(&self, sums: Vec<i128>) -> Result<ArrayRef> {
        Ok(Arc::new(Decimal128Array::from(sums).with_precision_and_scale(38, self.shape.scale as i8)?))
    }
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let (sums, counts) = (&mut self.sums, &mut self.counts);
        let mut add = |row: usize, value: i128| {
            let group = group_indices[row];
            let (sum, over) = sums[group].overflowing_add(value);
            sums[group] = sum;
            counts[group] += 1;
            !over
        };
        match opt_filter {
            Some(filter) => {
                each_value(&values[0], |row, value| !(filter.is_valid(row) && filter.value(row)) || add(row, value))
            }
            None => match values[0].data_type() {
                // The two loops that matter, without a closure call per value in between.
                ArrowType::Decimal128(..) if values[0].null_count() == 0 => {
                    let mut over = false;
                    for (value, group) in values[0].as_primitive::<Decimal128Type>().values().iter().zip(group_indices)
                    {
                        let (sum, carried) = sums[*group].overflowing_add(*value);
                        sums[*group] = sum;
                        counts[*group] += 1;
                        over |= carried;
                    }
                    if over { Err(overflow()) } else { Ok(()) }
                }
                ArrowType::Int64 if values[0].null_count() == 0 => {
                    for (value, group) in values[0].as_primitive::<Int64Type>().values().iter().zip(group_indices) {
                        // 2^63 values of 64 bits fit 127 bits: this addition cannot overflow.
                        sums[*group] += i128::from(*value);
                        counts[*group] += 1;
                    }
                    Ok(())
                }
                _ => each_value(&values[0], add),
            },
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let mut values = Vec::with_capacity(sums.len());
        for (sum, count) in sums.into_iter().zip(&counts) {
            values.push(finish(self.shape, sum, *count)?.unwrap_or(0));
        }
        let nulls: NullBuffer = counts.iter().map(|count| *count > 0).collect();
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        if let Some((precision, scale)) = self.shape.result {
            let array = Decimal128Array::new(values.into(), nulls);
            Ok(Arc::new(array.with_precision_and_scale(precision, scale as i8)?))
        } else {
            let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
            Ok(Arc::new(Int64Array::new(values.into(), nulls)))
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        Ok(vec![self.sums_array(sums)?, Arc::new(Int64Array::from(counts))])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.grow(total_num_groups);
        let (sums, counts) = (values[0].as_primitive::<Decimal128Type>(), values[1].as_primitive::<Int64Type>());
        for (row, group) in group_indices.iter().enumerate() {
            if sums.is_valid(row) && counts.is_valid(row) {
                self.sums[*group] = self.sums[*group].checked_add(sums.value(row)).ok_or_else(overflow)?;
                self.counts[*group] += counts.value(row);
            }
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        if values.len() != 1 {
            return exec_err!("an exact sum takes one argument");
        }
        let mut sums = vec![0; rows];
        let mut counts = vec![0; rows];
        each_value(&values[0], |row, value| {
            if opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                sums[row] = value;
                counts[row] = 1;
            }
            true
        })?;
        Ok(vec![self.sums_array(sums)?, Arc::new(Int64Array::from(counts))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}
