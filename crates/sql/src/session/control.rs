//! BEGIN and its relatives, settings, and prepared statements by name.

use std::sync::Arc;

use eris_durability::DurabilityError;
use eris_engine::IsolationLevel;
use eris_storage::{Batch, DataType, Value};

use super::cancel::unless_cancelled;
use super::execute::Attempt;
use super::outcome::CommandTag;
use super::prepared::Prepared;
use super::session::Session;
use super::statement::Planned;
use super::states::{Block, Place, Step};
use super::table_locks::Locking;
use crate::ast::Expr;
use crate::catalog::CatalogVersion;
use crate::errors::{SqlError, SqlState};
use crate::front::{Command, Isolation, SetValue};
use crate::settings::{
    DEFAULT_ISOLATION, DEFAULT_READ_ONLY, LEVELS, TRANSACTION_ISOLATION, TRANSACTION_READ_ONLY, level_name,
    level_named, truth_name, truth_named,
};
use crate::types::SqlType;

/// So many prepared statements of a session, none of which has more than so many bytes, are refused by no limit: in a
/// full database, too, a client may prepare what empties it. The protocol's are as many again.
const PREPARED_FREE: usize = 4;
const PREPARED_BYTES_FREE: u64 = 32 << 10;

impl Session {
    /// A statement that begins or ends a transaction.
    pub(super) async fn control(&mut self, command: &Command, step: Step) -> Result<CommandTag, SqlError> {
        match (step, command) {
            (Step::Adopt, _) if self.block == Block::Open => {
                self.warning(SqlState::ACTIVE_TRANSACTION, "there is already a transaction in progress");
            }
            (Step::Commit | Step::Rollback | Step::Nothing, _)
                if matches!(self.block, Block::Idle | Block::Implicit) =>
            {
                self.warning(SqlState::NO_ACTIVE_TRANSACTION, "there is no transaction in progress");
            }
            _ => {}
        }
        let tag = match (step, command) {
            (Step::Begin | Step::Adopt, Command::Begin(isolation)) => {
                self.set_isolation(*isolation);
                // The snapshot is taken by the first statement that needs one.
                CommandTag::Done("BEGIN")
            }
            (Step::Commit, _) => match self.commit().await {
                Ok(()) => CommandTag::Done("COMMIT"),
                Err(error) => {
                    self.roll_back();
                    self.settle().await;
                    self.block = Block::Idle;
                    return Err(error);
                }
            },
            (Step::Nothing, Command::Commit) => CommandTag::Done("COMMIT"),
            _ => {
                self.roll_back();
                self.settle().await;
                CommandTag::Done("ROLLBACK")
            }
        };
        self.block = self.block.after(step);
        Ok(tag)
    }

    fn set_isolation(&mut self, isolation: Isolation) {
        self.read_only = isolation.read_only.or(self.read_only);
        self.level = isolation.level.or(self.level);
    }

    /// SET TRANSACTION.
    fn set_transaction(&mut self, isolation: Isolation) -> Result<(), SqlError> {
        let late = |what| Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, format!("{what} before any query")));
        let begun = self.block == Block::Open && self.transaction.is_some();
        if begun && isolation.level.is_some() {
            return late("SET TRANSACTION ISOLATION LEVEL must be called");
        }
        if begun && self.is_read_only() && isolation.read_only == Some(false) {
            return late("transaction read-write mode must be set");
        }
        if self.block != Block::Open {
            self.warning(SqlState::NO_ACTIVE_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks");
            self.set_isolation(Isolation { level: None, ..isolation });
            return Ok(());
        }
        self.set_isolation(isolation);
        Ok(())
    }

    /// Statements that define names, settings or prepared statements.
    pub(super) async fn define(
        &mut self,
        command: &Command,
        planned: &Planned,
        step: Step,
    ) -> Result<Attempt, SqlError> {
        let done = |word| Ok(Attempt::Tag(CommandTag::Done(word)));
        match command {
            Command::SetTransaction(isolation) => {
                self.set_transaction(*isolation)?;
                done("SET")
            }
            Command::SetCharacteristics(Isolation { read_only, level }) => {
                let default = |value: &'static str| SetValue::Text(value.to_string());
                if let Some(level) = level {
                    self.set(DEFAULT_ISOLATION, &default(level_name(*level)), false, step)?;
                }
                if let Some(read_only) = read_only {
                    self.set(DEFAULT_READ_ONLY, &default(truth_name(*read_only)), false, step)?;
                }
                done("SET")
            }
            Command::Set { name, value: SetValue::Text(text), .. } if name == TRANSACTION_ISOLATION => {
                let level = level_named(text).ok_or_else(|| no_such_value(name, text, LEVELS))?;
                self.set_transaction(Isolation { level: Some(level), read_only: None })?;
                done("SET")
            }
            Command::Set { name, value: SetValue::Text(text), .. } if name == TRANSACTION_READ_ONLY => {
                let read_only = truth_named(text).ok_or_else(|| no_such_value(name, text, "on, off"))?;
                self.set_transaction(Isolation { level: None, read_only: Some(read_only) })?;
                done("SET")
            }
            Command::Set { name, value, local } => {
                self.set(name, value, *local, step)?;
                done("SET")
            }
            Command::Reset(name) => {
                self.keep_settings(step);
                self.settings.reset(name.as_deref())?;
                self.tell_name();
                if let Some((_, committed)) = &mut self.saved_settings {
                    committed.reset(name.as_deref())?;
                }
                done("RESET")
            }
            Command::Show(name) => self.show(name.as_deref(), planned),
            Command::Prepare { name, parameter_types, statement } => {
                self.prepare(name, parameter_types, statement, planned)?;
                done("PREPARE")
            }
            Command::Deallocate(name) => {
                match name {
                    None => self.named.clear(),
                    Some(name) => {
                        self.named.remove(name).ok_or_else(|| no_such_statement(name))?;
                    }
                }
                done("DEALLOCATE")
            }
            Command::Checkpoint => {
                self.block.refuse_inside("CHECKPOINT")?;
                self.checkpoint().await?;
                done("CHECKPOINT")
            }
            Command::Backup(directory) => {
                self.block.refuse_inside("BACKUP")?;
                self.backup(directory, planned).await
            }
            Command::Discard { all } => {
                if *all {
                    self.block.refuse_inside("DISCARD ALL")?;
                    self.named.clear();
                    self.settings.reset(None)?;
                    self.tell_name();
                    return done("DISCARD ALL");
                }
                done("DISCARD")
            }
            Command::LockTable { names, mode, nowait } => {
                let locking = if *nowait { Locking::NoWait(*mode) } else { Locking::In(*mode) };
                self.lock_tables_named(names, locking, step).await.map(Attempt::Tag)
            }
            other => self.define_table(other).await.map(Attempt::Tag),
        }
    }

    async fn checkpoint(&mut self) -> Result<(), SqlError> {
        let Some(files) = self.database.files().cloned() else {
            self.notice(SqlState::SUCCESS, "the database lives in memory only: there is nothing to be written");
            return Ok(());
        };
        // It is taken all the same.
        match unless_cancelled(&self.activity.handle(), files.checkpoint()).await? {
            Ok(_) => Ok(()),
            Err(error) => {
                let state = match &*error {
                    error if error.is_full() => SqlState::DISK_FULL,
                    error if error.is_out_of_memory() => SqlState::OUT_OF_MEMORY,
                    _ => SqlState::IO_ERROR,
                };
                let why = match &*error {
                    DurabilityError::Engine(error) => error.to_string(),
                    error => error.to_string(),
                };
                let failed = SqlError::new(state, format!("checkpoint failed: {why}"));
                let is_lost = matches!(*error, DurabilityError::Lost { .. });
                Err(if is_lost { failed } else { failed.hint("The log is kept, so nothing is lost.") })
            }
        }
    }

    /// Remembers the settings at the start of a transaction, for its end.
    fn keep_settings(&mut self, step: Step) {
        if step != Step::Alone && self.saved_settings.is_none() {
            self.saved_settings = Some((self.settings.clone(), self.settings.clone()));
        }
    }

    fn set(&mut self, name: &str, value: &SetValue, local: bool, step: Step) -> Result<(), SqlError> {
        if local && self.block != Block::Open {
            self.warning(SqlState::NO_ACTIVE_TRANSACTION, "SET LOCAL can only be used in transaction blocks");
        }
        if local && step == Step::Alone {
            // It has no effect; the value is checked all the same.
            let mut trial = self.settings.clone();
            return change(&mut trial, name, value);
        }
        self.keep_settings(step);
        change(&mut self.settings, name, value)?;
        self.tell_name();
        if let (false, Some((_, committed))) = (local, &mut self.saved_settings) {
            change(committed, name, value)?;
        }
        Ok(())
    }

    /// Of the open transaction, or of the next one.
    pub(super) fn isolation_level(&self) -> IsolationLevel {
        self.level.unwrap_or_else(|| self.settings.isolation_level())
    }

    /// Whether the open transaction, or the next one, may not write. The default that counts is that of the
    /// transaction's beginning.
    pub(super) fn is_read_only(&self) -> bool {
        let at_beginning = self.saved_settings.as_ref().map_or(&self.settings, |(before, _)| before);
        self.read_only.unwrap_or_else(|| at_beginning.read_only())
    }

    /// What is in effect of a setting that tells of the transaction.
    fn of_transaction(&self, name: &str) -> Option<&'static str> {
        let is = |setting: &str| name.eq_ignore_ascii_case(setting);
        if is(TRANSACTION_ISOLATION) {
            Some(level_name(self.isolation_level()))
        } else if is(TRANSACTION_READ_ONLY) {
            Some(truth_name(self.is_read_only()))
        } else {
            None
        }
    }

    /// All settings, with what is in effect.
    pub(super) fn shown_settings(&self) -> Vec<[String; 3]> {
        let mut settings = self.settings.all();
        for [name, value, _] in &mut settings {
            if let Some(in_effect) = self.of_transaction(name) {
                *value = in_effect.to_string();
            }
        }
        settings
    }

    fn show(&self, name: Option<&str>, planned: &Planned) -> Result<Attempt, SqlError> {
        let text = |text: String| Value::Text(text.into());
        let rows: Vec<Vec<Value>> = match name {
            Some(name) => {
                let in_effect = self.of_transaction(name).map(str::to_string);
                vec![vec![text(in_effect.map_or_else(|| self.settings.show_or_refuse(name), Ok)?)]]
            }
            None => self.shown_settings().into_iter().map(|row| row.into_iter().map(text).collect()).collect(),
        };
        let types = vec![DataType::Text; rows.first().map_or(1, Vec::len)];
        Ok(Attempt::ready(vec![Batch::from_rows(&types, &rows)], planned.columns.clone(), "SHOW"))
    }

    fn prepare(
        &mut self,
        name: &str,
        parameter_types: &[SqlType],
        statement: &Command,
        planned: &Planned,
    ) -> Result<(), SqlError> {
        if self.named.contains_key(name) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let declared: Vec<_> = parameter_types.iter().map(|sql_type| Some(*sql_type)).collect();
        let catalog = self.overlay.version(self.database.catalog())?;
        let planned = self.plan_in(planned.text.clone(), statement.clone(), &declared, &catalog)?;
        let prepared = Prepared { planned, place: Place::ALONE, offset: 0, literals: None, _memory: None };
        let bytes = (prepared.bytes() + name.len()) as u64;
        let is_free = self.named.len() < PREPARED_FREE && bytes <= PREPARED_BYTES_FREE;
        let memory = self.database.engine().memory();
        let memory = if is_free { memory.counted() } else { Arc::clone(memory) };
        let memory = memory.reserve("prepared statements");
        memory.grow(bytes).map_err(|exceeded| {
            SqlError::out_of_memory(&exceeded).hint("DEALLOCATE prepared statements that are not needed any more.")
        })?;
        self.named.insert(name.to_string(), Arc::new(Prepared { _memory: Some(memory), ..prepared }));
        Ok(())
    }

    /// The statement that EXECUTE runs; any other is itself.
    pub(super) fn planned_in(&self, planned: &Arc<Planned>) -> Arc<Planned> {
        let named = match &planned.command {
            Command::Execute { name, .. } => self.named.get(name).map(|prepared| &prepared.planned),
            _ => None,
        };
        Arc::clone(named.unwrap_or(planned))
    }

    /// EXECUTE name (values).
    pub(super) async fn execute_named(&mut self, name: &str, arguments: &[Expr]) -> Result<Attempt, SqlError> {
        let prepared = Arc::clone(self.named.get(name).ok_or_else(|| no_such_statement(name))?);
        let types = prepared.parameters().to_vec();
        if types.len() != arguments.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!("Expected {} parameters but got {}.", types.len(), arguments.len())));
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (argument, sql_type) in arguments.iter().zip(types) {
            // No tables: an argument that reads one is refused.
            values.push(self.scope(&CatalogVersion::default(), &self.values()).constant(argument, sql_type)?.value);
        }
        let values: Arc<[Value]> = values.into();
        // The plan may have to be made again: its text is that of PREPARE, so it does not go through the cache.
        let planned = self.locked_plan(|session| session.named_plan(&prepared.planned)).await?;
        self.run_plan(&planned, &values).await
    }
}

impl Session {
    /// The plan of PREPARE, made again if it no longer holds.
    fn named_plan(&mut self, planned: &Arc<Planned>) -> Result<Arc<Planned>, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        if planned.holds(catalog.number, self.settings.lanes()) && catalog.number != u64::MAX {
            return Ok(Arc::clone(planned));
        }
        self.plan_in(planned.text.clone(), planned.command.clone(), &planned.declared, &catalog)
    }
}

fn change(settings: &mut crate::settings::SessionSettings, name: &str, value: &SetValue) -> Result<(), SqlError> {
    match value {
        SetValue::Default => settings.reset(Some(name)),
        SetValue::Text(text) => settings.set(name, text),
    }
}

fn no_such_value(setting: &str, text: &str, available: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{setting}\": \"{text}\"");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint(format!("Available values: {available}."))
}

fn no_such_statement(name: &str) -> SqlError {
    SqlError::new(SqlState::NO_SUCH_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
}
