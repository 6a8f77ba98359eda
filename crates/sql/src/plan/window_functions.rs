//! DataFusion's window functions, numbers with PostgreSQL's types: DataFusion's have no sign.
//!
//! | function                          | type    |
//! |-----------------------------------|---------|
//! | `row_number`, `rank`, `dense_rank` | bigint  |
//! | `ntile`                           | integer |

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;

/// All window functions.
pub(super) fn window_functions() -> Vec<Arc<WindowUDF>> {
    SessionStateDefaults::default_window_functions().into_iter().map(typed).collect()
}

fn typed(function: Arc<WindowUDF>) -> Arc<WindowUDF> {
    let result = match function.name() {
        "row_number" | "rank" | "dense_rank" => ArrowType::Int64,
        "ntile" => ArrowType::Int32,
        _ => return function,
    };
    Arc::new(WindowUDF::new_from_impl(Typed { inner: function, result }))
}

/// The function that numbers rows.
pub(super) fn row_number() -> Arc<WindowUDF> {
    typed(datafusion::functions_window::row_number::row_number_udwf())
}

/// A function whose results are of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Typed {
    inner: Arc<WindowUDF>,
    result: ArrowType,
}

impl WindowUDFImpl for Typed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(TypedEvaluator { inner, result: self.result.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let name = args.name().to_string();
        let nullable = self.inner.field(args)?.is_nullable();
        Ok(Arc::new(Field::new(name, self.result.clone(), nullable)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct TypedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    result: ArrowType,
}

impl PartitionEvaluator for TypedEvaluator {
    fn get_range(&self, idx: usize, n_rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(idx, n_rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], num_rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, num_rows)?, &self.result)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.result)
    }

    fn evaluate_all_with_rank(&self, num_rows: usize, ranks_in_partition: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(num_rows, ranks_in_partition)?, &self.result)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
