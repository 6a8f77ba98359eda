//! The rows of a fallback plan, as they come.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use eris_engine::{CancelHandle, Transaction};
use eris_storage::{Batch, Value};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use super::execution::FallbackExecution;
use super::interrupt::Interrupt;
use super::lane::Lane;
use super::padded::PaddedSides;
use crate::arrow_view::{batch_from_arrow, column_to_arrow};
use crate::errors::SqlError;
use crate::plan::{Planner, datafusion_error, physical_rules};
use crate::types::SqlType;

/// Batches that wait for the session at most: enough to keep the lane busy while one is encoded.
const WAITING_BATCHES_MAX: usize = 4;

/// A running fallback plan. Dropping it stops the plan.
pub struct FallbackRows {
    receiver: Receiver<Result<RecordBatch, DataFusionError>>,
    /// `None` once it has ended.
    task: Option<JoinHandle<()>>,
    cancel: CancelHandle,
    interrupt: Interrupt,
    types: Vec<SqlType>,
}

impl Drop for FallbackRows {
    fn drop(&mut self) {
        self.interrupt.abandon();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The plan with its parameters filled in.
fn with_values(plan: &LogicalPlan, types: &[SqlType], values: &[Value]) -> Result<LogicalPlan, SqlError> {
    if types.is_empty() {
        return Ok(plan.clone());
    }
    let mut scalars = Vec::with_capacity(values.len());
    for (sql_type, value) in types.iter().zip(values) {
        let data_type = sql_type.data_type();
        let column = eris_storage::Column::constant(data_type, value, 1);
        let scalar = datafusion::common::ScalarValue::try_from_array(&column_to_arrow(&column), 0)
            .map_err(|error| datafusion_error(&error))?;
        scalars.push(scalar);
    }
    eris_binder::fill_parameters(plan.clone(), scalars).map_err(|error| datafusion_error(&error))
}

impl FallbackRows {
    /// Pins, then starts the plan in the lane.
    pub async fn start(
        plan: &LogicalPlan,
        (parameter_types, parameters): (&[SqlType], &[Value]),
        types: Vec<SqlType>,
        transaction: &mut Transaction,
        (planner, lane): (&Planner, &Lane),
    ) -> Result<Self, SqlError> {
        let plan = with_values(plan, parameter_types, parameters)?;
        let state = execution_state(&plan, transaction, planner, lane).await?;
        let cancel = transaction.cancel_handle();
        let interrupt = Interrupt::new(cancel.clone());
        let watch = interrupt.clone();
        let (sender, receiver) = channel(WAITING_BATCHES_MAX);
        let task = lane.handle()?.spawn(async move {
            if let Err(error) = run(&plan, &state, &watch, &sender).await {
                // The session may be gone; then nobody wants to know.
                let _ = sender.send(Err(error)).await;
            }
        });
        Ok(Self { receiver, task: Some(task), cancel, interrupt, types })
    }

    /// The next batch; `None` after the last. Cancelling ends the wait at once.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        loop {
            let received = poll_fn(|context| {
                self.cancel.register(context.waker());
                if self.cancel.is_cancelled() {
                    return Poll::Ready(Err(SqlError::cancelled()));
                }
                self.receiver.poll_recv(context).map(Ok)
            })
            .await?;
            match received {
                None => return ended(self.task.take()).await.map(|()| None),
                Some(Err(error)) => return Err(datafusion_error(&error)),
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return batch_from_arrow(&batch, &self.types).map(Some),
            }
        }
    }
}

/// No more rows come: they are all, unless the plan ended early.
async fn ended(task: Option<JoinHandle<()>>) -> Result<(), SqlError> {
    let Some(task) = task else { return Ok(()) };
    task.await.map_err(|error| SqlError::internal(format!("the plan ended early: {error}")))
}

/// DataFusion's state for one execution: the pins are an extension of its configuration.
async fn execution_state(
    plan: &LogicalPlan,
    transaction: &mut Transaction,
    planner: &Planner,
    lane: &Lane,
) -> Result<SessionState, SqlError> {
    let execution = FallbackExecution::pin(plan, transaction, lane.threads()).await?;
    let mut state = SessionState::clone(planner.state());
    planner.set_time(&mut state);
    state.config_mut().set_extension(Arc::new(execution));
    Ok(state)
}

async fn physical(plan: &LogicalPlan, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let planned = state.query_planner().create_physical_plan(plan, state).await;
    match planned {
        // It misjudges the order of sorted parts of a UNION that have different constants: one sort above all of them
        // has no parts. And that of rows which are constant on a side of a join.
        Err(DataFusionError::Context(rule, _)) if rule == "SanityCheckPlan" => {
            let rules = physical_rules(PaddedSides::All);
            let builder = SessionStateBuilder::new_from_existing(SessionState::clone(state));
            let mut state = builder.with_physical_optimizer_rules(rules).build();
            state.config_mut().options_mut().optimizer.repartition_sorts = false;
            state.query_planner().create_physical_plan(plan, &state).await
        }
        planned => planned,
    }
}

async fn run(
    plan: &LogicalPlan,
    state: &SessionState,
    interrupt: &Interrupt,
    sender: &Sender<Result<RecordBatch, DataFusionError>>,
) -> Result<(), DataFusionError> {
    let physical = interrupt.watch_joins(physical(plan, state).await?)?;
    let mut stream = execute_stream(physical, state.task_ctx())?;
    while let Some(batch) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        if sender.send(Ok(batch?)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The physical plan as text, for EXPLAIN. Pins what it would read, to show what pruning leaves.
pub async fn explain(
    plan: &LogicalPlan,
    transaction: &mut Transaction,
    planner: &Planner,
    lane: &Lane,
) -> Result<Vec<String>, SqlError> {
    let state = execution_state(plan, transaction, planner, lane).await?;
    let plan = plan.clone();
    let (sender, mut receiver) = channel(1);
    lane.handle()?.spawn(async move {
        let text = physical(&plan, &state).await.map(|plan| displayable(plan.as_ref()).indent(false).to_string());
        let _ = sender.send(text).await;
    });
    match receiver.recv().await {
        Some(Ok(text)) => Ok(text.lines().map(str::to_string).collect()),
        Some(Err(error)) => Err(datafusion_error(&error)),
        None => Err(SqlError::internal("the fallback lane ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlstate::SqlState;

    #[test]
    fn a_plan_that_panics_is_an_error_and_not_the_end_of_its_rows() {
        let lane = Lane::new(1);
        let handle = lane.handle().unwrap();
        let outcome = |task: JoinHandle<()>| handle.block_on(ended(Some(task)));
        assert!(outcome(handle.spawn(async {})).is_ok());
        let error = outcome(handle.spawn(async { panic!("on purpose") })).unwrap_err();
        assert_eq!(error.sqlstate, SqlState::INTERNAL);
        assert!(error.message.contains("on purpose"), "{}", error.message);
    }
}
