//! DDL: names change with the transaction, containers are made and dropped beside it.

use std::sync::Arc;

use eris_engine::{ContainerSpec, EngineError};
use eris_storage::{Schema, SchemaVersion, Value};

use super::outcome::CommandTag;
use super::session::Session;
use super::table_locks::Locking;
use crate::ast::Expr;
use crate::catalog::{CatalogChange, CatalogVersion, ColumnDefault, NewTable, Table, new_table, suggestions};
use crate::errors::{SqlError, SqlState};
use crate::front::{Command, CreateTableCommand, TableName, parse_expression};
use crate::plan::engine_error;
use crate::settings::{SessionSettings, layout_of};
use crate::types::SqlType;

impl Session {
    pub(super) async fn define_table(&mut self, command: &Command) -> Result<CommandTag, SqlError> {
        match command {
            Command::CreateTable(create) => self.create_table(create).await,
            Command::DropTable { names, if_exists } => self.drop_tables(names, *if_exists).await,
            Command::CreateIndex(create) => self.create_index(create).await,
            Command::DropIndex { names, if_exists } => self.drop_index(names, *if_exists).await,
            Command::Truncate { names, if_exists } => self.truncate(names, *if_exists).await,
            _ => Err(SqlError::internal("a statement without a plan")),
        }
    }

    async fn create_table(&mut self, create: &CreateTableCommand) -> Result<CommandTag, SqlError> {
        if !create.table.is_public() {
            let schema = create.table.schema.as_deref().unwrap_or_default();
            return Err(match schema {
                "eris" | "pg_catalog" | "information_schema" => {
                    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for schema {schema}"))
                }
                other => SqlError::new(SqlState::NO_SUCH_SCHEMA, format!("schema \"{other}\" does not exist")),
            }
            .hint("Create the table in schema public."));
        }
        let catalog = self.overlay.version(self.database.catalog())?;
        if create.if_not_exists && catalog.is_taken(&create.table.name) {
            self.already_exists(&create.table.name);
            return Ok(CommandTag::Done("CREATE TABLE"));
        }
        let stored = stored_as(&create.options, &self.settings)?;
        let mut defaults = Vec::with_capacity(create.columns.len());
        for column in &create.columns {
            defaults.push(match &column.default {
                None => ColumnDefault::Value(Value::Null),
                Some(expr) => self.default_of(expr, column.sql_type)?,
            });
        }
        let engine = self.database.engine().clone();
        let table = Arc::new(new_table(create, engine.next_container_id(), stored, defaults, engine.memory())?);
        self.overlay.add(self.database.catalog(), CatalogChange::Create(Arc::clone(&table)))?;
        self.create_container(&table).await?;
        Ok(CommandTag::Done("CREATE TABLE"))
    }

    fn default_of(&self, expr: &Expr, sql_type: SqlType) -> Result<ColumnDefault, SqlError> {
        let constant = self.scope(&CatalogVersion::default(), &self.values()).constant(expr, sql_type)?;
        if constant.volatile {
            return Err(SqlError::unsupported(
                format!("DEFAULT {expr}, which gives something else for every row,"),
                "Compute the value in the INSERT.",
            ));
        }
        if !constant.momentary {
            return Ok(ColumnDefault::Value(constant.value));
        }
        // The catalog keeps its text: whoever reads that must get the same expression.
        if parse_expression(&expr.to_string()).ok().as_ref() != Some(expr) {
            return Err(SqlError::unsupported(format!("DEFAULT {expr}"), "Write a simpler expression."));
        }
        Ok(ColumnDefault::Moment(Box::new(expr.clone())))
    }

    async fn create_container(&self, table: &Table) -> Result<(), SqlError> {
        let engine = self.database.engine().clone();
        self.database.catalog().containers().record(&engine, table.container()).await?;
        let spec = ContainerSpec { schema: Arc::clone(&table.schema), partitioning: table.partitioning.clone() };
        engine.create_container(spec).map(drop).map_err(|error: EngineError| engine_error(&error, Some(table)))
    }

    pub(super) fn table_named(&mut self, name: &TableName, if_exists: bool) -> Result<Option<Arc<Table>>, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        match catalog.table(name) {
            Ok(table) => Ok(Some(Arc::clone(table))),
            Err(error) if if_exists && error.sqlstate == SqlState::NO_SUCH_TABLE => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn drop_tables(&mut self, names: &[TableName], if_exists: bool) -> Result<CommandTag, SqlError> {
        // All are found before the first is dropped: one that is named twice is dropped once.
        let mut found_tables: Vec<Arc<Table>> = Vec::with_capacity(names.len());
        for name in names {
            let found = self.lock_named(name, if_exists, Locking::ToReplace).await.map_err(|mut error| {
                if error.sqlstate == SqlState::NO_SUCH_TABLE {
                    error.message = format!("table \"{name}\" does not exist");
                }
                // Elsewhere they are views; in PostgreSQL these are tables.
                if name.schema.as_deref() == Some("pg_catalog") && error.sqlstate == SqlState::WRONG_OBJECT {
                    error.sqlstate = SqlState::INSUFFICIENT_PRIVILEGE;
                    error.message = format!("permission denied: \"{}\" is a system catalog", name.name);
                }
                error
            })?;
            match found {
                Some(table) if found_tables.iter().any(|other| other.container() == table.container()) => {}
                Some(table) => found_tables.push(table),
                None => self.skipped("table", name),
            }
        }
        for table in found_tables {
            self.overlay.add(self.database.catalog(), CatalogChange::Drop(table))?;
        }
        Ok(CommandTag::Done("DROP TABLE"))
    }

    /// What IF EXISTS left out.
    pub(super) fn skipped(&mut self, kind: &str, name: &TableName) {
        self.notice(SqlState::SUCCESS, format!("{kind} \"{name}\" does not exist, skipping"));
    }

    /// What IF NOT EXISTS left out.
    pub(super) fn already_exists(&mut self, name: &str) {
        self.notice(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists, skipping"));
    }

    /// A truncated table is a new, empty container under the old name.
    async fn truncate(&mut self, names: &[TableName], if_exists: bool) -> Result<CommandTag, SqlError> {
        for name in names {
            let Some(old) = self.lock_named(name, if_exists, Locking::ToReplace).await? else {
                self.skipped("table", name);
                continue;
            };
            let engine = self.database.engine().clone();
            let schema = Schema {
                container: engine.next_container_id(),
                version: SchemaVersion(1),
                ..Schema::clone(&old.schema)
            };
            let new = Arc::new(old.with_schema(schema));
            let change = CatalogChange::Replace { old, new: Arc::clone(&new) };
            self.overlay.add(self.database.catalog(), change)?;
            self.create_container(&new).await?;
        }
        Ok(CommandTag::Done("TRUNCATE TABLE"))
    }
}

/// How a new table is stored: WITH (...) over the session's settings.
fn stored_as(options: &[(String, String)], settings: &SessionSettings) -> Result<NewTable, SqlError> {
    let mut own = settings.clone();
    for (name, value) in options {
        if !["layout", "partitions", "segment_rows"].contains(&name.as_str()) {
            let close = suggestions(name, ["layout", "partitions", "segment_rows"]);
            let error = SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\""));
            return Err(match close.first() {
                Some(close) => error.hint(format!("Perhaps you meant \"{close}\".")),
                None => error.hint("There are layout, partitions and segment_rows."),
            });
        }
        own.set(name, value)?;
    }
    let layout = own.show("layout").map_or(eris_storage::Layout::Default, |name| layout_of(&name));
    Ok(NewTable { layout, partitions: own.partitions(), segment_rows: own.segment_rows() })
}
