//! Sums of floating point that leave its range: 22003, where DataFusion gives infinity.
//!
//! Infinity is the right result of a sum that infinity or NaN went into. So it is noted whether one did, for all groups
//! together: as long as none did, an infinite sum has left the range.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType as ArrowType, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::errors::SqlError;

fn overflow() -> DataFusionError {
    DataFusionError::External(Box::new(SqlError::out_of_range("double precision")))
}

fn has_special(arrays: &[ArrayRef]) -> bool {
    arrays.iter().filter(|array| *array.data_type() == ArrowType::Float64).any(|array| {
        let values = array.as_primitive::<Float64Type>();
        values.values().iter().any(|value| !value.is_finite())
            && values.iter().flatten().any(|value| !value.is_finite())
    })
}

/// An accumulator of DataFusion over values of floating point.
#[derive(Debug)]
pub(super) struct CheckedFloats {
    pub inner: Box<dyn Accumulator>,
    pub special: bool,
}

impl CheckedFloats {
    fn check(&self, value: &ScalarValue) -> Result<()> {
        match value {
            ScalarValue::Float64(Some(sum)) if !sum.is_finite() && !self.special => Err(overflow()),
            _ => Ok(()),
        }
    }
}

impl Accumulator for CheckedFloats {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.special = self.special || has_special(values);
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        self.check(&value)?;
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.inner.state()?;
        state.iter().try_for_each(|value| self.check(value))?;
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.special = self.special || has_special(states);
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// The same for many groups.
pub(super) struct CheckedFloatGroups {
    pub inner: Box<dyn GroupsAccumulator>,
    pub special: bool,
}

impl CheckedFloatGroups {
    fn check(&self, arrays: &[ArrayRef]) -> Result<()> {
        if !self.special && has_special(arrays) { Err(overflow()) } else { Ok(()) }
    }
}

impl GroupsAccumulator for CheckedFloatGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.special = self.special || has_special(values);
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let values = self.inner.evaluate(emit_to)?;
        self.check(std::slice::from_ref(&values))?;
        Ok(values)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let state = self.inner.state(emit_to)?;
        self.check(&state)?;
        Ok(state)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.special = self.special || has_special(values);
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
