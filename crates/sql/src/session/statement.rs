//! Planning one statement: which plan a command gets, and for which version of the catalog it holds.

use std::sync::Arc;

use eris_operators::Expression;
use eris_storage::Value;

use super::backup::backup_columns;
use super::plans::{PlannedQuery, QueryBody, QueryPlan};
use super::prepared::ColumnDescription;
use super::sleep::{SleepPlan, split_sleep};
use super::states::StatementKind;
use super::table_locks::{TableLock, locks_of_query, locks_of_write};
use crate::ast;
use crate::catalog::CatalogVersion;
use crate::errors::SqlError;
use crate::front::{Command, CopySource};
use crate::native::{ChangePlan, InsertPlan, InsertRows, UpdatePlan, assign};
use crate::plan::{ParameterTypes, PlannedWrite, Scope, plan_delete, plan_insert, plan_update};
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
    /// Our own binder bound it, as a query, UPDATE or DELETE of one table or none.
    pub is_bound_here: bool,
    /// The plan.
    pub body: Body,
    /// What it locks before it runs.
    pub locks: Box<[TableLock]>,
    /// The types of its parameters.
    pub parameters: Vec<SqlType>,
    /// Its result.
    pub columns: Option<Arc<[ColumnDescription]>>,
    /// Bytes of the constants that were computed for it.
    pub constant_bytes: usize,
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

    /// Whether texts that differ in their literals may share it. What dataflows compile is better for the literals.
    pub fn is_shared(&self) -> bool {
        let is_compiled = matches!(&self.body, Body::Query(QueryPlan { body: QueryBody::Dataflows(_), .. }));
        self.is_bound_here && !self.momentary && !is_compiled
    }

    /// Whether what an UPDATE stores in every row, given these parameters, fits the columns that it is for.
    pub fn can_store(&self, parameters: &[Value]) -> bool {
        let Body::Change(ChangePlan::Update(UpdatePlan { access: Some(access), stages, attributes, .. })) = &self.body
        else {
            return true;
        };
        let stored = stages.last().into_iter().flat_map(|last| last.iter()).zip(attributes.iter());
        stored.into_iter().filter(|(expression, _)| is_constant(expression)).all(|(expression, attribute)| {
            let column = &access.table.columns[attribute.index()];
            expression.constant(parameters).is_ok_and(|value| assign(value, column.sql_type).is_ok())
        })
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

/// Whether an expression refers to no column.
fn is_constant(expression: &Expression) -> bool {
    match expression {
        Expression::Column { .. } | Expression::Foreign(_) => false,
        other => other.operands().into_iter().all(is_constant),
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
    let Parts { body, locks, mut parameters, columns, momentary, is_bound_here, constant_bytes } = match &command {
        Command::Query(query) => plan_query(query, types, scope)?,
        Command::Insert(insert) => {
            let planned = plan_insert(insert, scope, types)?;
            Parts::of_write(planned, Body::Insert)
        }
        Command::Update(update) => {
            let planned = plan_update(update, scope, types)?;
            Parts::of_write(planned, Body::Change)
        }
        Command::Delete(delete) => {
            let planned = plan_delete(delete, scope, types)?;
            Parts::of_write(planned, Body::Change)
        }
        Command::Show(Some(name)) => Parts::of_utility(Some(text_columns(&[name]))),
        Command::Show(None) => Parts::of_utility(Some(text_columns(&["name", "setting", "description"]))),
        Command::Backup(_) => Parts::of_utility(Some(backup_columns())),
        Command::Explain(explain) => {
            // Planned now, so that what is wrong with the statement is said at once.
            let inner = plan(text.clone(), (*explain.statement).clone(), declared, scope)?;
            Parts { parameters: inner.parameters, ..Parts::of_utility(Some(text_columns(&["QUERY PLAN"]))) }
        }
        _ => Parts::of_utility(None),
    };
    for (index, sql_type) in declared.iter().enumerate() {
        // What the client declared it will also send, used or not.
        if index >= parameters.len() {
            parameters.push(sql_type.unwrap_or(SqlType::Text));
        }
    }
    Ok(Planned {
        locks,
        text,
        command,
        declared: declared.to_vec(),
        catalog: catalog.number,
        lanes: scope.lanes,
        momentary,
        is_bound_here,
        body,
        parameters,
        columns,
        constant_bytes,
    })
}

/// What planning a command gives.
struct Parts {
    body: Body,
    locks: Box<[TableLock]>,
    parameters: Vec<SqlType>,
    columns: Option<Arc<[ColumnDescription]>>,
    momentary: bool,
    is_bound_here: bool,
    constant_bytes: usize,
}

impl Parts {
    fn of_utility(columns: Option<Arc<[ColumnDescription]>>) -> Self {
        Self {
            body: Body::Utility,
            locks: Box::default(),
            parameters: Vec::new(),
            columns,
            momentary: false,
            is_bound_here: false,
            constant_bytes: 0,
        }
    }

    fn of_write<P>(planned: PlannedWrite<P>, body: fn(P) -> Body) -> Self {
        let PlannedWrite { plan, table, named, parameters, momentary, is_bound_here, constant_bytes } = planned;
        let (body, locks) = (body(plan), locks_of_write(&table, &named));
        Self { body, locks, parameters, columns: None, momentary, is_bound_here, constant_bytes }
    }
}

fn plan_query(query: &ast::Query, types: ParameterTypes, scope: Scope<'_>) -> Result<Parts, SqlError> {
    if let Some(sleeping) = split_sleep(query)? {
        let plan = SleepPlan::make(&sleeping, types, scope)?;
        let (parameters, columns) = (plan.query.parameters.clone(), Arc::clone(&plan.query.columns));
        let locks = locks_of_query(plan.seconds.tables.iter().chain(plan.query.tables.iter()));
        let (columns, body) = (Some(columns), Body::Sleep(Box::new(plan)));
        let (momentary, is_bound_here) = (true, false);
        return Ok(Parts { body, locks, parameters, columns, momentary, is_bound_here, constant_bytes: 0 });
    }
    let PlannedQuery { plan, momentary, is_bound_here, constant_bytes } = PlannedQuery::of(query, scope, types)?;
    let locks = locks_of_query(plan.tables.iter());
    let (columns, parameters) = (Some(Arc::clone(&plan.columns)), plan.parameters.clone());
    Ok(Parts { body: Body::Query(plan), locks, parameters, columns, momentary, is_bound_here, constant_bytes })
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
            is_bound_here: false,
            body: Body::Utility,
            locks: Box::default(),
            parameters: declared.iter().map(|known| known.unwrap_or(SqlType::Text)).collect(),
            columns: None,
            constant_bytes: 0,
        }
    }

    /// Whether it was made by [`Self::later`] and needs a plan.
    pub fn is_unplanned(&self) -> bool {
        self.momentary && matches!(self.body, Body::Utility)
    }
}
