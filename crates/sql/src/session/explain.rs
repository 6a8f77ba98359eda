//! EXPLAIN: the macro-QEP of native plans, the operators of fallback plans, and with ANALYZE what running them took.

use std::sync::Arc;

use eris_operators::Expression;
use eris_storage::{Batch, DataType, Value};

use super::execute::Attempt;
use super::outcome::CommandTag;
use super::plans::{QueryBody, QueryPlan};
use super::session::Session;
use super::statement::{Body, Planned};
use crate::errors::SqlError;
use crate::fallback;
use crate::front::ExplainCommand;
use crate::native::{
    Access, Actuals, Bound, ChangePlan, ConditionTemplate, InsertRows, MacroQep, Node, accesses, describe,
    describe_dataflows,
};
use crate::plan::engine_error;

/// What EXPLAIN ANALYZE wants to know of the dataflows of a statement, which has one such query at most.
#[derive(Default)]
pub(super) enum Analysis {
    #[default]
    Unwanted,
    Wanted,
    Begun(MacroQep, Arc<Actuals>),
}

impl Analysis {
    /// These dataflows are about to run; gives where they note what they do, if that is wanted.
    pub fn begin(&mut self, qep: &MacroQep) -> Option<Arc<Actuals>> {
        let Self::Wanted = self else { return None };
        let actuals = Arc::new(Actuals::new(qep));
        *self = Self::Begun(qep.clone(), Arc::clone(&actuals));
        Some(actuals)
    }
}

/// What came of a statement that EXPLAIN ANALYZE ran.
struct Ran {
    rows: u64,
    nanos: u64,
    analysis: Analysis,
}

impl Session {
    pub(super) async fn explain(
        &mut self,
        explain: &ExplainCommand,
        planned: &Planned,
        parameters: &Arc<[Value]>,
    ) -> Result<Attempt, SqlError> {
        let started = self.database.engine().env().now();
        let plan = |session: &mut Self| {
            let catalog = session.overlay.version(session.database.catalog())?;
            session.plan_in(planned.text.clone(), (*explain.statement).clone(), &planned.declared, &catalog)
        };
        let inner = self.locked_plan(plan).await?;
        let planning = self.database.engine().env().now().0.saturating_sub(started.0);
        let ran = if explain.analyze { Some(self.analyze(&inner, parameters).await?) } else { None };
        let analysis = ran.as_ref().map(|ran| &ran.analysis);
        let mut lines = Vec::new();
        match &inner.body {
            Body::Query(plan) => self.query_lines(plan, explain, analysis, 0, &mut lines).await?,
            Body::Insert(plan) => {
                let rows = match &plan.rows {
                    InsertRows::Values(rows) => format!("{} rows of VALUES", rows.len()),
                    InsertRows::Query(_) => "the rows of a query".to_string(),
                };
                lines.push(format!(
                    "Insert {}: {rows}, each to the partition that owns its key  [native]",
                    plan.table.name
                ));
                if let InsertRows::Query(query) = &plan.rows {
                    let query = Arc::clone(query);
                    self.query_lines(&query, explain, analysis, 1, &mut lines).await?;
                }
            }
            Body::Change(ChangePlan::Update(plan)) => {
                self.change_lines("Update", plan.access.as_ref(), plan.filter.as_ref(), &mut lines)?;
            }
            Body::Change(ChangePlan::Delete(plan)) => {
                self.change_lines("Delete", plan.access.as_ref(), plan.filter.as_ref(), &mut lines)?;
            }
            Body::Change(ChangePlan::Keyed(plan)) => {
                let word = if plan.attributes.is_some() { "Update" } else { "Delete" };
                lines.push(format!("{word} {}: by key, the rows that a query finds  [native]", plan.table.name));
                let query = Arc::clone(&plan.query);
                self.query_lines(&query, explain, analysis, 1, &mut lines).await?;
            }
            Body::Sleep(plan) => {
                lines.push("Sleep, then:  [native, task]".to_string());
                self.query_lines(&plan.query, explain, analysis, 1, &mut lines).await?;
            }
            Body::Utility => {}
        }
        lines.push(format!("Lane: {}", if inner.is_native() { "native" } else { "fallback" }));
        if let Some(workers) = self.settings.parallelism().filter(|_| inner.is_native()) {
            lines.push(format!("Workers: {workers} at most"));
        }
        if let Some(Ran { rows, nanos, .. }) = ran {
            let millis = |nanos: u64| nanos as f64 / 1e6;
            lines.push(format!("Rows: {rows}"));
            lines.push(format!("Planning: {:.3} ms (measured)", millis(planning)));
            lines.push(format!("Execution: {:.3} ms (measured)", millis(nanos)));
        }
        let rows: Vec<Vec<Value>> = lines.into_iter().map(|line| vec![Value::Text(line.into())]).collect();
        let batch = Batch::from_rows(&[DataType::Text], &rows);
        Ok(Attempt::ready(vec![batch], planned.columns.clone(), "EXPLAIN"))
    }

    /// How one partition of each table answers: the micro-QEP that it would run now. An access with parameters is bound
    /// when it runs, so nothing can be said before.
    fn micro_lines(&self, node: &Node, depth: usize, lines: &mut Vec<String>) -> Result<(), SqlError> {
        let indent = "  ".repeat(depth);
        let mut found = Vec::new();
        accesses(node, &mut found);
        for access in found.into_iter().filter(|access| access.conditions.iter().all(ConditionTemplate::is_constant)) {
            let Bound::Read(read) = access.bind(&[])? else { continue };
            let engine = self.database.engine();
            let explained = engine.explain(&read).map_err(|error| engine_error(&error, Some(&access.table)))?;
            if let Some((partition, steps)) = explained {
                lines.push(format!("{indent}Micro-QEP of {} in partition {}:", access.table.name, partition.0));
                lines.extend(steps.steps.iter().map(|step| format!("{indent}  {step}")));
            }
        }
        Ok(())
    }

    async fn query_lines(
        &mut self,
        plan: &QueryPlan,
        explain: &ExplainCommand,
        analysis: Option<&Analysis>,
        depth: usize,
        lines: &mut Vec<String>,
    ) -> Result<(), SqlError> {
        match &plan.body {
            QueryBody::Native(node) => {
                describe(node, depth, lines);
                self.micro_lines(node, depth, lines)?;
            }
            QueryBody::Dataflows(logical) => {
                if let Some(Analysis::Begun(qep, actuals)) = analysis {
                    describe_dataflows(qep, Some(actuals), depth, lines);
                    return Ok(());
                }
                let database = self.database.clone();
                let cancel = self.transaction().cancel_handle();
                let qep = plan.compile(logical, &database, &cancel, &[]).await?;
                describe_dataflows(&qep, None, depth, lines);
            }
            QueryBody::Fallback { plan: logical, reason } => {
                let indent = "  ".repeat(depth);
                lines.push(format!("{indent}Fallback: {reason}  [fallback]"));
                if plan.parameters.is_empty() && !explain.analyze {
                    let database = self.database.clone();
                    let operators =
                        fallback::explain(logical, self.transaction(), database.planner(), database.lane()).await?;
                    for line in operators {
                        let mark = if line.trim_start().starts_with("ErisScan") { "native" } else { "fallback" };
                        lines.push(format!("{indent}  {line}  [{mark}]"));
                    }
                } else {
                    lines.extend(logical.display_indent().to_string().lines().map(|line| format!("{indent}  {line}")));
                }
            }
        }
        Ok(())
    }

    /// Runs the statement.
    async fn analyze(&mut self, inner: &Planned, parameters: &Arc<[Value]>) -> Result<Ran, SqlError> {
        let env = Arc::clone(self.database.engine().env());
        let started = env.now();
        self.analysis = Analysis::Wanted;
        let rows = self.run_counted(inner, parameters).await;
        let analysis = std::mem::take(&mut self.analysis);
        Ok(Ran { rows: rows?, nanos: env.now().0.saturating_sub(started.0), analysis })
    }

    async fn run_counted(&mut self, inner: &Planned, parameters: &Arc<[Value]>) -> Result<u64, SqlError> {
        self.use_memory_for(inner);
        match &inner.body {
            Body::Query(plan) => self.count_rows(plan, parameters).await,
            Body::Insert(plan) => self.insert(plan, parameters).await,
            Body::Change(plan) => match self.change(plan, parameters).await? {
                CommandTag::Update(rows) | CommandTag::Delete(rows) => Ok(rows),
                _ => Ok(0),
            },
            Body::Sleep(plan) => {
                self.sleep(plan, parameters).await?;
                self.count_rows(&plan.query, parameters).await
            }
            Body::Utility => Ok(0),
        }
    }

    async fn count_rows(&mut self, plan: &QueryPlan, parameters: &Arc<[Value]>) -> Result<u64, SqlError> {
        let mut source = self.query(plan, parameters).await?;
        let mut rows = 0;
        while let Some(batch) = source.next().await? {
            rows += batch.rows as u64;
        }
        Ok(rows)
    }

    fn change_lines(
        &self,
        word: &str,
        access: Option<&Access>,
        filter: Option<&Arc<Expression>>,
        lines: &mut Vec<String>,
    ) -> Result<(), SqlError> {
        let Some(access) = access else {
            lines.push(format!("{word}: no row can qualify  [native]"));
            return Ok(());
        };
        lines.push(format!("{word} {}: through the data gateway, in the partition  [native]", access.table.name));
        let scan = Node::Scan { access: access.clone(), filter: filter.cloned(), projection: None };
        describe(&scan, 1, lines);
        self.micro_lines(&scan, 1, lines)
    }
}
