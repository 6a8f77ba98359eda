//! The sum over a column: a micro-operator in every partition, one addition of their sums in the task.

use super::{VALUE, value_of};
use eris_engine::{Engine, EngineError, MicroOperator, OperatorState, Output, Read};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Gateway, Predicate, ReadRequest, Value, Values};
use std::sync::Arc;

struct SumValues;

struct Sum(i64);

impl MicroOperator for SumValues {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(Sum(0))
    }
}

impl OperatorState for Sum {
    fn batch(&mut self, gateway: Gateway, _output: &mut Output<'_>) -> Result<(), EngineError> {
        let Values::Int64(values) = &gateway.batch.columns[0].values else {
            unreachable!("values are 64-bit integers");
        };
        self.0 = self.0.wrapping_add(values.iter().fold(0, |sum, value| i64::wrapping_add(sum, *value)));
        Ok(())
    }

    fn finish(&mut self, output: &mut Output<'_>) -> Result<(), EngineError> {
        output.emit(Batch::from_rows(&[DataType::Int64], &[vec![Value::Int64(self.0)]]))
    }
}

/// The sum of all values of a container.
pub async fn sum_values(engine: &Engine, container: ContainerId) -> Result<i64, EngineError> {
    let attributes = engine.container(container).map_or(0, |container| container.schema().attributes.len());
    let value = if attributes == 1 { AttributeId(0) } else { VALUE };
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::new([value]), order: None };
    let mut transaction = engine.begin();
    let sums = transaction.scan(Read { container, request }, Some(Arc::new(SumValues)))?.collect().await?;
    let sums = sums.iter().flat_map(|batch| (0..batch.rows).map(|row| batch.value(row, 0)));
    Ok(sums.fold(0, |sum, value| match value {
        Value::Int64(value) => i64::wrapping_add(sum, value),
        other => unreachable!("a sum is a 64-bit integer, not {other}"),
    }))
}

/// What [`sum_values`] has to find in a container of `rows` rows.
pub fn expected_sum(rows: u64) -> i64 {
    (0..rows).map(value_of).fold(0, i64::wrapping_add)
}
