//! Makes joins stop when nobody wants their rows any more.
//!
//! A cancelled plan is dropped at the next point where its operators give way. A join that compares everything with
//! everything does not for as long as no row qualifies, so its condition looks at the same flag as the scans; and what
//! joins hand on passes an operator that does.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use eris_engine::CancelHandle;
use futures_core::Stream;

use crate::errors::SqlError;

/// Whether an execution shall go on.
#[derive(Clone)]
pub struct Interrupt {
    cancel: CancelHandle,
    /// Set when the receiver of the rows is gone.
    abandoned: Arc<AtomicBool>,
}

impl Interrupt {
    pub fn new(cancel: CancelHandle) -> Self {
        Self { cancel, abandoned: Arc::default() }
    }

    /// Nobody takes the rows any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) || self.cancel.is_cancelled() {
            return Err(DataFusionError::External(Box::new(SqlError::cancelled())));
        }
        Ok(())
    }

    /// The plan with joins that stop.
    pub fn watch_joins(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| self.watch(node)).data()
    }

    fn watch(&self, node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let join: Arc<dyn ExecutionPlan> = if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            let Some(filter) = join.filter() else { return Ok(Transformed::yes(self.watched(node))) };
            let condition = WatchedCondition { condition: Arc::clone(filter.expression()), interrupt: self.clone() };
            let filter =
                JoinFilter::new(Arc::new(condition), filter.column_indices().to_vec(), Arc::clone(filter.schema()));
            let projection = join.projection().as_ref().map(|columns| columns.to_vec());
            Arc::new(NestedLoopJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                Some(filter),
                join.join_type(),
                projection,
            )?)
        } else if node.is::<CrossJoinExec>() || node.is::<HashJoinExec>() {
            node
        } else {
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::yes(self.watched(join)))
    }

    fn watched(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(WatchedRows { input, interrupt: self.clone() })
    }
}

/// A join condition that fails once the execution is interrupted.
struct WatchedCondition {
    condition: Arc<dyn PhysicalExpr>,
    interrupt: Interrupt,
}

impl PartialEq for WatchedCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for WatchedCondition {}

impl Hash for WatchedCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Debug for WatchedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedCondition({:?})", self.condition)
    }
}

impl fmt::Display for WatchedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for WatchedCondition {
    fn return_field(&self, input_schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.interrupt.check()?;
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let condition = children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.condition));
        Ok(Arc::new(Self { condition, interrupt: self.interrupt.clone() }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// Hands rows on until the execution is interrupted.
struct WatchedRows {
    input: Arc<dyn ExecutionPlan>,
    interrupt: Interrupt,
}

impl WatchedRows {
    /// The same over another input.
    fn over(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Arc<dyn ExecutionPlan> {
        self.interrupt.watched(children.into_iter().next().unwrap_or_else(|| Arc::clone(&self.input)))
    }
}

impl fmt::Debug for WatchedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedRows({:?})", self.input)
    }
}

impl DisplayAs for WatchedRows {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchedRows")
    }
}

impl ExecutionPlan for WatchedRows {
    fn name(&self) -> &'static str {
        "WatchedRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.over(children))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(WatchedStream { input, interrupt: self.interrupt.clone() }))
    }
}

struct WatchedStream {
    input: SendableRecordBatchStream,
    interrupt: Interrupt,
}

impl Stream for WatchedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.interrupt.check() {
            Ok(()) => self.input.as_mut().poll_next(context),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl RecordBatchStream for WatchedStream {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}
