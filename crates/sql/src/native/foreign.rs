//! DataFusion's expressions on our batches.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result as FusionResult, ScalarValue};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use eris_operators::{ForeignExpr, OperatorError};
use eris_storage::{Batch, Column, DataType, Value};

use crate::arrow_view::{column_from_arrow, column_to_arrow, column_to_arrow_as};
use crate::errors::SqlError;
use crate::plan::{HeldConstants, constant_texts, datafusion_error};
use crate::types::SqlType;

/// A physical expression over some columns of a batch, followed by some parameters.
#[derive(Clone, Debug)]
pub struct PhysicalForeign {
    /// The expression; its columns are numbered as `columns`, then `parameters`.
    pub expression: Arc<dyn PhysicalExpr>,
    /// Whether it may give another result for the same values.
    pub is_volatile: bool,
    /// What its functions reserve from before they make texts; `None`: they make none.
    pub memory: Option<Arc<dyn MemoryPool>>,
    /// Which columns of the batch it reads.
    pub columns: Box<[usize]>,
    /// Which parameters it reads, with their types.
    pub parameters: Box<[(usize, DataType)]>,
    /// The schema it was made for.
    pub schema: SchemaRef,
    /// The type of its result.
    pub result: SqlType,
    /// How it is shown.
    pub text: String,
}

impl fmt::Display for PhysicalForeign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PhysicalForeign {
    /// The values of all rows. A text that is the same in all is there once.
    fn rows_of(&self, value: ColumnarValue, rows: usize) -> FusionResult<ArrayRef> {
        use ScalarValue::{LargeUtf8, Utf8, Utf8View};
        match (value, &self.memory) {
            (ColumnarValue::Scalar(Utf8(Some(text)) | LargeUtf8(Some(text)) | Utf8View(Some(text))), Some(memory)) => {
                Ok(Arc::new(constant_texts(text, rows, memory)?))
            }
            (value, _) => value.into_array(rows),
        }
    }
}

fn foreign(error: SqlError) -> OperatorError {
    OperatorError::Foreign(Arc::new(error))
}

impl ForeignExpr for PhysicalForeign {
    fn evaluate(&self, input: &Batch, parameters: &[Value]) -> Result<Column, OperatorError> {
        let internal = |error: ArrowError| OperatorError::Internal(error.to_string());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len() + self.parameters.len());
        for (column, field) in self.columns.iter().zip(self.schema.fields()) {
            arrays.push(column_to_arrow_as(&input.columns[*column], field.data_type()).map_err(internal)?);
        }
        for (index, data_type) in &self.parameters {
            let value = parameters
                .get(*index)
                .ok_or_else(|| OperatorError::Internal(format!("parameter {} is not bound", index + 1)))?;
            arrays.push(column_to_arrow(&Column::constant(*data_type, value, input.rows)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(input.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options).map_err(internal)?;
        let held = HeldConstants::open();
        let value = self.expression.evaluate(&batch);
        // The value itself is reserved where it becomes a column.
        drop(held);
        let array = value
            .and_then(|value| self.rows_of(value, input.rows))
            .map_err(|error| foreign(datafusion_error(&error)))?;
        column_from_arrow(&array, self.result).map_err(foreign)
    }

    fn data_type(&self) -> DataType {
        self.result.data_type()
    }

    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn parameters(&self) -> &[(usize, DataType)] {
        &self.parameters
    }

    fn over(&self, columns: Box<[usize]>) -> Arc<dyn ForeignExpr> {
        Arc::new(Self { columns, ..self.clone() })
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile
    }
}
