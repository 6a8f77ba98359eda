//! One exact sum: ungrouped aggregates and windows.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Decimal128Type, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::Accumulator;
use eris_operators::exact_average;

use super::Shape;
use crate::errors::SqlError;

/// Sum and count.
#[derive(Debug)]
pub(super) struct ExactAccumulator {
    shape: Shape,
    sum: i128,
    count: i64,
}

pub(super) fn overflow() -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::out_of_range("numeric")))
}

impl ExactAccumulator {
    pub fn new(shape: Shape) -> Self {
        Self { shape, sum: 0, count: 0 }
    }

    fn add(&mut self, values: &ArrayRef, sign: i128) -> Result<()> {
        let mut sum = self.sum;
        let mut count = 0;
        each_value(values, |_, value| {
            count += 1;
            match sum.checked_add(sign * value) {
                Some(next) => {
                    sum = next;
                    true
                }
                None => false,
            }
        })?;
        self.sum = sum;
        self.count += count * sign as i64;
        Ok(())
    }
}

/// Visits the values that are not NULL; the visitor says false on overflow.
pub(super) fn each_value(values: &ArrayRef, mut visit: impl FnMut(usize, i128) -> bool) -> Result<()> {
    let mut all = true;
    match values.data_type() {
        ArrowType::Int64 => {
            let values = values.as_primitive::<Int64Type>();
            match values.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => values.values().iter().enumerate().for_each(|(row, v)| all &= visit(row, i128::from(*v))),
                Some(nulls) => nulls.valid_indices().for_each(|row| all &= visit(row, i128::from(values.value(row)))),
            }
        }
        ArrowType::Decimal128(..) => {
            let values = values.as_primitive::<Decimal128Type>();
            match values.nulls().filter(|nulls| nulls.null_count() > 0) {
                None => values.values().iter().enumerate().for_each(|(row, v)| all &= visit(row, *v)),
                Some(nulls) => nulls.valid_indices().for_each(|row| all &= visit(row, values.value(row))),
            }
        }
        other => return exec_err!("an exact sum over {other}"),
    }
    if all { Ok(()) } else { Err(overflow()) }
}

/// The result of a sum and a count.
pub(super) fn finish(shape: Shape, sum: i128, count: i64) -> Result<Option<i128>> {
    if count == 0 {
        return Ok(None);
    }
    let Some((precision, scale)) = shape.result else {
        return match i64::try_from(sum) {
            Ok(sum) => Ok(Some(i128::from(sum))),
            Err(_) => Err(DataFusionError::External(Box::new(SqlError::out_of_range("bigint")))),
        };
    };
    let value = if shape.average {
        exact_average(sum, count, shape.scale, scale).map_err(|_| overflow())?
    } else {
        let factor = 10_i128.checked_pow(u32::from(scale - shape.scale)).ok_or_else(overflow)?;
        sum.checked_mul(factor).ok_or_else(overflow)?
    };
    let limit = 10_u128.pow(u32::from(precision));
    if value.unsigned_abs() >= limit { Err(overflow()) } else { Ok(Some(value)) }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = finish(self.shape, self.sum, self.count)?;
        Ok(match self.shape.result {
            None => ScalarValue::Int64(value.map(|value| value as i64)),
            Some((precision, scale)) => ScalarValue::Decimal128(value, precision, scale as i8),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = ScalarValue::Decimal128(Some(self.sum), 38, self.shape.scale as i8);
        Ok(vec![sum, ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let counts = states[1].as_primitive::<Int64Type>();
        let mut sum = self.sum;
        each_value(&states[0], |_, value| match sum.checked_add(value) {
            Some(next) => {
                sum = next;
                true
            }
            None => false,
        })?;
        self.sum = sum;
        self.count += counts.iter().flatten().sum::<i64>();
        Ok(())
    }
}
