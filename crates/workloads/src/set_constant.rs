//! The change that most writing transactions of the task API make: one attribute of all qualifying rows is a constant.

use eris_engine::{Change, EngineError, RowChange};
use eris_storage::{AttributeId, Batch, Column, DataType, Value};
use std::sync::Arc;

struct SetConstant {
    attribute: [AttributeId; 1],
    data_type: DataType,
    value: Value,
}

impl RowChange for SetConstant {
    fn inputs(&self) -> usize {
        0
    }

    fn attributes(&self) -> &[AttributeId] {
        &self.attribute
    }

    fn apply(&self, batch: &Batch) -> Result<Change, EngineError> {
        let column = Column::constant(self.data_type, &self.value, batch.rows);
        Ok(Change { rows: None, attributes: Box::new(self.attribute), values: Batch::new([column], batch.rows) })
    }
}

/// Sets an attribute of this type to a value.
pub fn set_constant(attribute: AttributeId, data_type: DataType, value: Value) -> Arc<dyn RowChange> {
    Arc::new(SetConstant { attribute: [attribute], data_type, value })
}
