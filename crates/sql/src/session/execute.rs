//! Running statements: which transaction, how often, and what comes out.

use std::sync::Arc;

use eris_engine::TableLockMode;
use eris_platform::Nanos;
use eris_storage::{Batch, Value};

use super::outcome::{CommandTag, Outcome, QUERY, RowSource, Rows};
use super::plans::{QueryBody, QueryPlan};
use super::prepared::{ColumnDescription, Prepared};
use super::session::Session;
use super::statement::{Body, Planned};
use super::states::{Block, Place, Step};
use super::table_locks::Locking;
use super::turns::Turn;
use crate::errors::{SqlError, SqlState};
use crate::fallback::FallbackRows;
use crate::front::Command;
use crate::native::{
    ChangePlan, FoundRows, Held, InsertPlan, InsertRows, NativeRows, RunContext, start, start_dataflows,
};
use crate::plan::engine_error;

impl Session {
    pub(super) async fn run<'s>(
        &'s mut self,
        statement: &Arc<Prepared>,
        parameters: &[Value],
        place: Place,
    ) -> Result<Outcome<'s>, SqlError> {
        let kind = statement.planned.kind();
        let begins_pipeline = place == Place::PIPELINED && self.block == Block::Idle;
        let needs_block = matches!(statement.planned.command, Command::LockTable { .. });
        // What may follow it before Sync is no block, as in PostgreSQL.
        let place = if begins_pipeline && needs_block { Place::ALONE } else { place };
        let step = match self.block.step(kind, place) {
            Ok(step) => step,
            Err(error) => {
                self.block = self.block.after_error();
                self.rest();
                return Err(error);
            }
        };
        match step {
            Step::Begin | Step::Adopt | Step::Commit | Step::Rollback | Step::Nothing => {
                let controlled = self.control(&statement.planned.command, step).await.map(Outcome::Complete);
                self.rest();
                return controlled;
            }
            Step::Alone | Step::Inside { .. } => {}
        }
        let parameters = statement.values(parameters);
        // The first statement of its transaction may begin again; a later one would lose what came before it.
        let mut retries = if self.block == Block::Idle { self.settings.retries() } else { 0 };
        let planned = self.planned_in(&statement.planned);
        let mut turn = match self.take_turn(&planned).await {
            Ok(turn) => turn,
            Err(error) => {
                let error = self.activity.explain(error);
                self.fail(&error).await;
                return Err(statement.placed(error));
            }
        };
        loop {
            let attempt = self.attempt(&statement.planned, &parameters, step).await;
            match look_ahead(attempt, &turn).await {
                Ok(Attempt::Tag(tag)) => match self.succeeded(step).await {
                    Ok(()) => return Ok(Outcome::Complete(tag)),
                    // A commit may have lost, too: it took everything back.
                    Err(error) if retries > 0 && error.is_retryable() && !is_utility(statement) => {
                        retries -= 1;
                        self.begin_statement(statement.text());
                        self.take_back().await;
                        self.pause(retries).await;
                    }
                    Err(error) => {
                        self.fail(&error).await;
                        return Err(error);
                    }
                },
                Ok(Attempt::Rows { source, columns, word }) => {
                    if word != QUERY {
                        // It has had its effect.
                        self.activity.end_statement();
                    }
                    return Ok(Outcome::Rows(Rows {
                        session: self,
                        source,
                        columns,
                        step,
                        word,
                        done: false,
                        ahead: false,
                        sent: 0,
                        turn,
                        waits_since: None,
                    }));
                }
                Ok(Attempt::CopyIn(command)) => {
                    return match self.copy_in(&command, step) {
                        Ok(copy) => Ok(Outcome::CopyIn(copy)),
                        Err(error) => Err(statement.placed(error)),
                    };
                }
                Err(error) if retries > 0 && error.is_retryable() => {
                    retries -= 1;
                    self.take_back().await;
                    self.pause(retries).await;
                }
                Err(error) => {
                    let Err(error) = self.await_turn_again(&mut turn, error).await else { continue };
                    let error = self.activity.explain(error);
                    self.fail(&error).await;
                    return Err(statement.placed(error));
                }
            }
        }
    }

    /// Waits a little before a statement is run again: randomly, so that two that collide do not collide again.
    async fn pause(&self, retries_left: u64) {
        let engine = self.database.engine();
        let exponent = self.settings.retries().saturating_sub(retries_left).min(8);
        let random = engine.env().random_u64() % (1_000 << exponent);
        let deadline = Nanos(engine.env().now().0 + random);
        engine.sleep_until(deadline).await;
    }

    async fn attempt(
        &mut self,
        statement: &Arc<Planned>,
        parameters: &Arc<[Value]>,
        step: Step,
    ) -> Result<Attempt, SqlError> {
        let planned = self.locked_plan(|session| session.current_plan(statement)).await?;
        match &planned.body {
            Body::Utility => {
                self.check_writes(&planned)?;
                self.use_memory_for(&planned);
                self.utility(&planned, parameters, step).await
            }
            _ => self.run_plan(&planned, parameters).await,
        }
    }

    fn check_writes(&self, planned: &Planned) -> Result<(), SqlError> {
        if self.is_read_only() && planned.writes() {
            return Err(SqlError::new(
                SqlState::READ_ONLY_TRANSACTION,
                format!("cannot execute {} in a read-only transaction", planned.word()),
            ));
        }
        Ok(())
    }

    /// Runs a query or DML.
    pub(super) async fn run_plan(&mut self, planned: &Planned, parameters: &Arc<[Value]>) -> Result<Attempt, SqlError> {
        self.check_writes(planned)?;
        self.use_memory_for(planned);
        let (plan, word) = match &planned.body {
            Body::Query(plan) => (plan, QUERY),
            Body::Sleep(plan) => {
                self.sleep(plan, parameters).await?;
                (&plan.query, QUERY)
            }
            Body::Insert(plan) => return Ok(Attempt::Tag(CommandTag::Insert(self.insert(plan, parameters).await?))),
            Body::Change(plan) => return Ok(Attempt::Tag(self.change(plan, parameters).await?)),
            Body::Utility => return Err(SqlError::internal("a statement without a plan")),
        };
        let source = self.query(plan, parameters).await?;
        Ok(Attempt::Rows { source, columns: Arc::clone(&plan.columns), word })
    }

    /// Runs an UPDATE or DELETE.
    pub(super) async fn change(
        &mut self,
        plan: &ChangePlan,
        parameters: &Arc<[Value]>,
    ) -> Result<CommandTag, SqlError> {
        let plan = match plan {
            ChangePlan::Update(plan) => {
                return Ok(CommandTag::Update(plan.run(self.transaction(), parameters).await?));
            }
            ChangePlan::Delete(plan) => {
                return Ok(CommandTag::Delete(plan.run(self.transaction(), parameters).await?));
            }
            ChangePlan::Keyed(plan) => plan,
        };
        let engine = self.database.engine().clone();
        let mut found = FoundRows::new(plan, &engine);
        let mut source = self.query(&plan.query, parameters).await?;
        while let Some(batch) = source.next().await? {
            found.add(&batch).await?;
        }
        // While a stream is open nothing runs in place.
        drop(source);
        let Some(transaction) = self.transaction.as_mut() else {
            return Err(SqlError::internal("the transaction ended while rows were looked for"));
        };
        let table_rows = engine.container(plan.table.container()).map_or(0, |container| container.rows());
        let changed = found.change(transaction, table_rows).await?;
        Ok(if plan.attributes.is_some() { CommandTag::Update(changed) } else { CommandTag::Delete(changed) })
    }

    fn run_context(&mut self, parameters: &Arc<[Value]>) -> RunContext<'_> {
        let batch_rows = self.database.options().batch_rows;
        let aggregation_input = self.settings.aggregation_input();
        let all = self.database.engine().worker_count();
        let workers = self.settings.parallelism().filter(|workers| *workers < all);
        let transaction = self.transaction();
        transaction.limit_parallelism(workers);
        let (workers, parameters) = (workers.unwrap_or(all), Arc::clone(parameters));
        RunContext { transaction, parameters, batch_rows, workers, aggregation_input, spill: None }
    }

    pub(super) async fn query(&mut self, plan: &QueryPlan, parameters: &Arc<[Value]>) -> Result<RowSource, SqlError> {
        match &plan.body {
            QueryBody::Native(node) => {
                let mut context = self.run_context(parameters);
                Ok(RowSource::Native(start(node, &mut context).await?))
            }
            QueryBody::Dataflows(logical) => {
                let database = self.database.clone();
                let cancel = self.transaction().cancel_handle();
                let qep = plan.compile(logical, &database, &cancel, parameters).await?;
                let actuals = self.analysis.begin(&qep);
                let options = self.settings.spill_options();
                let mut context = self.run_context(parameters);
                context.spill_to(&database.temp_files(), options);
                let rows = start_dataflows(&qep, database.engine(), &mut context, actuals.as_deref()).await?;
                Ok(RowSource::Native(rows))
            }
            QueryBody::Fallback { plan: logical, .. } => {
                let database = self.database.clone();
                let transaction = self.transaction();
                let rows = FallbackRows::start(
                    logical,
                    (&plan.parameters, parameters),
                    plan.types(),
                    transaction,
                    (database.planner(), database.lane()),
                )
                .await?;
                Ok(RowSource::Fallback(rows))
            }
        }
    }

    pub(super) async fn insert(&mut self, plan: &InsertPlan, parameters: &Arc<[Value]>) -> Result<u64, SqlError> {
        let failed = |error| engine_error(&error, Some(&plan.table));
        let container = plan.table.container();
        match &plan.rows {
            InsertRows::Values(rows) => {
                let mut computed = None;
                let memory = self.transaction().memory();
                let batch = plan.values_batch(rows, parameters, memory, &mut computed)?;
                self.transaction().insert(container, batch).await.map_err(failed)
            }
            InsertRows::Query(query) => {
                let types = query.types();
                let mut source = self.query(query, parameters).await?;
                let mut inserted = 0;
                while let Some(batch) = source.next().await? {
                    let rows = plan.query_batch(&batch, &types)?;
                    let Some(transaction) = self.transaction.as_mut() else {
                        return Err(SqlError::internal("the transaction ended while rows were inserted"));
                    };
                    inserted += transaction.insert(container, rows).await.map_err(failed)?;
                }
                Ok(inserted)
            }
        }
    }

    async fn utility(&mut self, planned: &Planned, parameters: &Arc<[Value]>, step: Step) -> Result<Attempt, SqlError> {
        match &planned.command {
            Command::Copy(copy) => {
                self.lock_named(&copy.table, false, Locking::In(TableLockMode::RowExclusive)).await?;
                match copy.source {
                    crate::front::CopySource::Stdin => Ok(Attempt::CopyIn(copy.clone())),
                    crate::front::CopySource::File(_) => {
                        Ok(Attempt::Tag(CommandTag::Copy(self.copy_file(copy).await?)))
                    }
                }
            }
            Command::Explain(explain) => self.explain(explain, planned, parameters).await,
            Command::Execute { name, arguments } => self.execute_named(name, arguments).await,
            other => self.define(other, planned, step).await,
        }
    }
}

/// What one attempt at a statement gave.
pub(super) enum Attempt {
    Tag(CommandTag),
    Rows { source: RowSource, columns: Arc<[ColumnDescription]>, word: &'static str },
    CopyIn(crate::front::CopyCommand),
}

impl Attempt {
    /// Rows that are there.
    pub fn ready(batches: Vec<Batch>, columns: Option<Arc<[ColumnDescription]>>, word: &'static str) -> Self {
        let columns = columns.unwrap_or_else(|| Arc::from([]));
        Self::Rows { source: RowSource::Native(NativeRows::ready(Held::few(batches))), columns, word }
    }
}

/// Waits for the first rows of a long query: as long as none is sent, it may be tried again.
async fn look_ahead(attempt: Result<Attempt, SqlError>, turn: &Turn) -> Result<Attempt, SqlError> {
    match attempt? {
        Attempt::Rows { mut source, columns, word } if turn.looks_ahead() => {
            source.look_ahead().await?;
            Ok(Attempt::Rows { source, columns, word })
        }
        other => Ok(other),
    }
}

fn is_utility(statement: &Prepared) -> bool {
    matches!(statement.planned.body, Body::Utility)
}
