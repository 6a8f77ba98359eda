//! Planning one statement: which plan a command gets, and for which version of the catalog it holds.

use std::sync::Arc;

use super::backup::backup_columns;
use super::plans::QueryPlan;
use super::prepared::ColumnDescription;
use super::sleep::{SleepPlan, split_sleep};
use super::states::StatementKind;
use super::table_locks::{TableLock, locks_of};
use crate::ast;
use crate::catalog::CatalogVersion;
use crate::errors::SqlError;
use crate::front::{Command, CopySource};
use crate::native::{ChangePlan, InsertPlan, InsertRows};
use crate::plan::{ParameterTypes, Scope, plan_delete, plan_insert, plan_update};
use crate::settings::Lanes;
use crate::types::SqlType;

/// A statement with its plan.
#[derive(Debug)]
pub(super) struct Planned {
    /// Its text.
    pub text: String,
    /// What it asks for: planned again when the plan no longer holds.
    pub command: Command,
    /// The declared types of its parameters.
    pub declared: Vec<Option<SqlType>>,
    /// The version of the catalog that the plan was made for.
    pub catalog: u64,
    /// The lanes that the session allowed.
    pub lanes: Lanes,
    /// Holds for one execution only.
    pub momentary: bool,
    /// The plan.
    pub body: Body,
    /// What it locks before it runs.
    pub locks: Box<[TableLock]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// Its result.
    pub columns: Option<Arc<[ColumnDescription]>>,
}

/// The plan of a statement.
#[derive(Debug)]
pub(super) enum Body {
    Query(QueryPlan),
    Insert(InsertPlan),
    Change(ChangePlan),
    /// A query that sleeps first.
    Sleep(Box<SleepPlan>),
    /// Needs no plan, or is planned when it runs.
    Utility,
}

impl Planned {
    pub fn is_native(&self) -> bool {
        match &self.body {
            Body::Query(plan) => plan.is_native(),
            Body::Insert(InsertPlan { rows: InsertRows::Query(plan), .. }) => plan.is_native(),
            Body::Change(ChangePlan::Keyed(plan)) => plan.query.is_native(),
            Body::Sleep(plan) => plan.query.is_native(),
            Body::Insert(_) | Body::Change(_) | Body::Utility => true,
        }
    }

    /// Whether the plan still holds.
    pub fn holds(&self, catalog: u64, lanes: Lanes) -> bool {
        matches!(self.body, Body::Utility) || (!self.momentary && self.catalog == catalog && self.lanes == lanes)
    }

    pub fn kind(&self) -> StatementKind {
        kind_of(&self.command)
    }

    /// The words that PostgreSQL names it with.
    pub fn word(&self) -> &'static str {
        match self.command {
            Command::Insert(_) => "INSERT",
            Command::Update(_) => "UPDATE",
            Command::Delete(_) => "DELETE",
            Command::Copy(_) => "COPY FROM",
            Command::CreateTable(_) => "CREATE TABLE",
            Command::DropTable { .. } => "DROP TABLE",
            Command::CreateIndex(_) => "CREATE INDEX",
            Command::DropIndex { .. } => "DROP INDEX",
            Command::Truncate { .. } => "TRUNCATE TABLE",
            _ => "this statement",
        }
    }

    /// Whether the client sends data for it.
    pub fn takes_data(&self) -> bool {
        matches!(&self.command, Command::Copy(copy) if matches!(copy.source, CopySource::Stdin))
    }

    /// Whether it changes data.
    pub fn writes(&self) -> bool {
        matches!(
            self.command,
            Command::Insert(_)
                | Command::Update(_)
                | Command::Delete(_)
                | Command::Copy(_)
                | Command::CreateTable(_)
                | Command::DropTable { .. }
                | Command::CreateIndex(_)
                | Command::DropIndex { .. }
                | Command::Truncate { .. }
        )
    }
}

/// What a command does to transactions.
pub(super) fn kind_of(command: &Command) -> StatementKind {
    match command {
        Command::Begin(_) => StatementKind::Begin,
        Command::Commit => StatementKind::Commit,
        Command::Rollback => StatementKind::Rollback,
        _ => StatementKind::Ordinary,
    }
}

/// The result columns of statements that give rows of text.
pub(super) fn text_columns(names: &[&str]) -> Arc<[ColumnDescription]> {
    names.iter().map(|name| ColumnDescription { name: (*name).to_string(), sql_type: SqlType::Text }).collect()
}

/// Plans a command.
pub(super) fn plan(
    text: String,
    command: Command,
    declared: &[Option<SqlType>],
    scope: Scope<'_>,
) -> Result<Planned, SqlError> {
    let types = ParameterTypes::declared(declared);
    let catalog: &CatalogVersion = scope.catalog;
    let (body, parameters, columns, momentary) = match &command {
        Command::Query(query) => plan_query(query, types, scope)?,
        Command::Insert(insert) => {
            let planned = plan_insert(insert, scope, types)?;
            (Body::Insert(planned.plan), planned.parameters, None, planned.momentary)
        }
        Command::Update(update) => {
            let planned = plan_update(update, scope, types)?;
            (Body::Change(planned.plan), planned.parameters, None, planned.momentary)
        }
        Command::Delete(delete) => {
            let planned = plan_delete(delete, scope, types)?;
            (Body::Change(planned.plan), planned.parameters, None, planned.momentary)
        }
        Command::Show(Some(name)) => (Body::Utility, Vec::new(), Some(text_columns(&[name])), false),
        Command::Show(None) => {
            (Body::Utility, Vec::new(), Some(text_columns(&["name", "setting", "description"])), false)
        }
        Command::Backup(_) => (Body::Utility, Vec::new(), Some(backup_columns()), false),
        Command::Explain(explain) => {
            // Planned now, so that what is wrong with the statement is said at once.
            let inner = plan(text.clone(), (*explain.statement).clone(), declared, scope)?;
            (Body::Utility, inner.parameters, Some(text_columns(&["QUERY PLAN"])), false)
        }
        _ => (Body::Utility, Vec::new(), None, false),
    };
    let mut parameters = parameters;
    for (index, sql_type) in declared.iter().enumerate() {
        // What the client declared it will also send, used or not.
        if index >= parameters.len() {
            parameters.push(sql_type.unwrap_or(SqlType::Text));
        }
    }
    let locks = locks_of(&body);
    Ok(Planned {
        locks,
        text,
        command,
        declared: declared.to_vec(),
        catalog: catalog.number,
        lanes: scope.lanes,
        momentary,
        body,
        parameters,
        columns,
    })
}

type PlannedQuery = (Body, Vec<SqlType>, Option<Arc<[ColumnDescription]>>, bool);

fn plan_query(query: &ast::Query, types: ParameterTypes, scope: Scope<'_>) -> Result<PlannedQuery, SqlError> {
    if let Some(sleeping) = split_sleep(query)? {
        let plan = SleepPlan::make(&sleeping, types, scope)?;
        let (parameters, columns) = (plan.query.parameters.clone(), Arc::clone(&plan.query.columns));
        return Ok((Body::Sleep(Box::new(plan)), parameters, Some(columns), true));
    }
    let bound = scope.planner.bind_query(query, scope.catalog, scope.values, types)?;
    let (parameters, momentary) = (bound.parameters.clone(), bound.momentary);
    let plan = QueryPlan::make(bound, scope.lanes)?;
    let columns = Arc::clone(&plan.columns);
    Ok((Body::Query(plan), parameters, Some(columns), momentary))
}

impl Planned {
    /// A statement that is planned when it runs.
    pub fn later(text: String, command: Command, declared: &[Option<SqlType>]) -> Self {
        Self {
            text,
            command,
            declared: declared.to_vec(),
            catalog: 0,
            lanes: Lanes::BOTH,
            momentary: true,
            body: Body::Utility,
            locks: Box::default(),
            parameters: declared.iter().map(|known| known.unwrap_or(SqlType::Text)).collect(),
            columns: None,
        }
    }

    /// Whether it was made by [`Self::later`] and needs a plan.
    pub fn is_unplanned(&self) -> bool {
        self.momentary && matches!(self.body, Body::Utility)
    }
}
