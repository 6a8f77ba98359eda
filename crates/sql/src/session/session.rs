//! A session: its settings, its transaction, its prepared statements.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use eris_engine::{IsolationLevel, MemoryUse, Transaction};
use eris_storage::Value;
use tokio::sync::oneshot;

use super::cancel::SessionCancel;
use super::explain::Analysis;
use super::notices::Notice;
use super::outcome::Outcome;
use super::prepared::Prepared;
use super::statement::{Planned, plan};
use super::states::{Block, Place, Step, TransactionStatus};
use crate::activity::{Activity, Phase, Timeouts};
use crate::catalog::{CatalogVersion, IndexClaim, Overlay};
use crate::database::Database;
use crate::errors::{SqlError, SqlState};
use crate::front::Command;
use crate::plan::{KnowsSession, LazySessionValues, Scope, SessionValues};
use crate::settings::SessionSettings;
use crate::types::SqlType;

/// Who connects to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// `current_user`
    pub user: String,
    /// `current_database()`
    pub database: String,
    /// What the client calls itself.
    pub application_name: String,
    /// The number that the session is to have, `pg_backend_pid()`; without one it gets one.
    pub process: Option<u32>,
    /// Where the client is.
    pub client: Option<SocketAddr>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            user: "eris".to_string(),
            database: "eris".to_string(),
            application_name: String::new(),
            process: None,
            client: None,
        }
    }
}

/// A session. One statement runs at a time.
pub struct Session {
    pub(super) database: Database,
    pub(super) options: SessionOptions,
    pub(super) settings: SessionSettings,
    /// Settings to return to when the transaction ends: (rolled back, committed).
    pub(super) saved_settings: Option<(SessionSettings, SessionSettings)>,
    pub(super) block: Block,
    pub(super) transaction: Option<Transaction>,
    /// Whether the open transaction was told that it may not write; none: the session's default.
    pub(super) read_only: Option<bool>,
    /// What the open transaction was told to be; none: the session's default.
    pub(super) level: Option<IsolationLevel>,
    /// Whether a statement of the open transaction has begun and done nothing but lock tables.
    pub(super) begun: bool,
    /// Of the statement that runs.
    pub(super) memory_use: MemoryUse,
    pub(super) overlay: Overlay,
    /// Of the tables whose indexes the open transaction changes.
    pub(super) claims: Vec<IndexClaim>,
    /// Done when the indexes of the last transaction are as the published tables say.
    pub(super) settling: Option<oneshot::Receiver<()>>,
    /// How others see and interrupt it.
    pub(super) activity: Arc<Activity>,
    /// `PREPAREd` by name.
    pub(super) named: BTreeMap<String, Arc<Prepared>>,
    /// Of the last statement.
    pub(super) notices: Vec<Notice>,
    /// The same, of functions that ran elsewhere.
    pub(super) warnings: Arc<Mutex<Vec<Notice>>>,
    /// What EXPLAIN ANALYZE wants to know of the query that runs.
    pub(super) analysis: Analysis,
    /// Bytes that were reserved in the database when the transaction began, or the last statement outside of one.
    pub(super) memory_before: u64,
}

impl Session {
    pub(crate) fn new(database: Database, options: SessionOptions) -> Self {
        let settings = SessionSettings::new(database.defaults().clone(), &options.application_name);
        let activity = database.activities().add(&options, database.engine().env().now());
        Self {
            database,
            options,
            settings,
            saved_settings: None,
            block: Block::Idle,
            transaction: None,
            read_only: None,
            level: None,
            begun: false,
            memory_use: MemoryUse::Any,
            overlay: Overlay::default(),
            claims: Vec::new(),
            settling: None,
            activity,
            named: BTreeMap::new(),
            notices: Vec::new(),
            warnings: Arc::default(),
            analysis: Analysis::default(),
            memory_before: 0,
        }
    }

    pub(super) fn begin_statement(&self, text: &str) {
        let engine = self.database.engine();
        self.activity.begin_statement(engine, text, &Timeouts::of(&self.settings));
    }

    /// The name that others see.
    pub(super) fn tell_name(&self) {
        if let Some(name) = self.settings.show("application_name") {
            self.activity.set_application_name(&name);
        }
    }

    /// A statement is over; the client says what is next.
    pub(super) fn rest(&self) {
        let phase = match self.block {
            Block::Implicit => return self.activity.end_statement(),
            Block::Idle => Phase::Idle,
            Block::Open => Phase::IdleInTransaction,
            Block::Failed => Phase::Failed,
        };
        self.activity.rest(self.database.engine(), phase, &Timeouts::of(&self.settings));
    }

    pub(super) fn plan_in(
        &self,
        text: String,
        command: Command,
        declared: &[Option<SqlType>],
        catalog: &CatalogVersion,
    ) -> Result<Arc<Planned>, SqlError> {
        let values = self.values();
        let mut planned = plan(text, command, declared, self.scope(catalog, &values))?;
        planned.lanes = self.settings.lanes();
        Ok(Arc::new(planned))
    }

    /// What planning needs to know.
    pub(super) fn scope<'a>(&'a self, catalog: &'a CatalogVersion, values: &'a LazySessionValues<'a>) -> Scope<'a> {
        let mut lanes = self.settings.lanes();
        lanes.fallback &= self.database.allows_fallback();
        let unix_micros = self.database.engine().env().unix_micros();
        Scope { planner: self.database.planner(), catalog, values, unix_micros, lanes }
    }

    pub(super) fn values(&self) -> LazySessionValues<'_> {
        LazySessionValues::of(self)
    }

    /// A plan that holds now: the statement's own, or a new one.
    pub(super) fn current_plan(&mut self, statement: &Arc<Planned>) -> Result<Arc<Planned>, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        let lanes = self.settings.lanes();
        if statement.holds(catalog.number, lanes) && catalog.number != u64::MAX && !statement.is_unplanned() {
            return Ok(Arc::clone(statement));
        }
        let cache = self.database.plan_cache();
        if let Some(planned) = cache.find(&statement.text, &statement.declared, catalog.number, lanes)
            && planned.columns == statement.columns
        {
            return Ok(planned);
        }
        let planned = self.plan_in(statement.text.clone(), statement.command.clone(), &statement.declared, &catalog)?;
        if !statement.is_unplanned() && planned.columns != statement.columns {
            return Err(SqlError::unsupported(
                "a cached plan whose result type changed",
                "Prepare the statement again.",
            ));
        }
        cache.keep(&statement.text, &planned);
        Ok(planned)
    }

    /// Runs a statement inside the open transaction, or in one of its own, or in one with the rest of its text.
    pub async fn execute<'s>(
        &'s mut self,
        statement: &Arc<Prepared>,
        parameters: &[Value],
    ) -> Result<Outcome<'s>, SqlError> {
        self.execute_at(statement, parameters, statement.place).await
    }

    /// Runs a statement inside the open transaction, or in one with those that follow it, up to [`Session::sync`].
    pub async fn execute_pipelined<'s>(
        &'s mut self,
        statement: &Arc<Prepared>,
        parameters: &[Value],
    ) -> Result<Outcome<'s>, SqlError> {
        self.execute_at(statement, parameters, Place::PIPELINED).await
    }

    async fn execute_at<'s>(
        &'s mut self,
        statement: &Arc<Prepared>,
        parameters: &[Value],
        place: Place,
    ) -> Result<Outcome<'s>, SqlError> {
        if parameters.len() != statement.parameters().len() {
            return Err(crate::plan::wrong_count(statement.parameters().len(), parameters.len()));
        }
        self.notices.clear();
        self.lock_warnings().clear();
        self.activity.check()?;
        self.begin_statement(statement.text());
        self.begun = false;
        self.settle().await;
        if self.transaction.is_none() {
            self.memory_before = self.database.engine().memory().used();
        }
        self.run(statement, parameters, place).await
    }

    /// Commits what statements have done since the last call, unless a block is open.
    pub async fn sync(&mut self) -> Result<(), SqlError> {
        if self.block != Block::Implicit {
            return Ok(());
        }
        self.block = Block::Idle;
        let committed = self.commit().await;
        match &committed {
            Ok(()) => self.rest(),
            Err(error) => self.fail(error).await,
        }
        committed
    }

    /// What clients are told about the transaction.
    pub fn status(&self) -> TransactionStatus {
        self.block.status()
    }

    /// An error outside of the execution of a statement (a text that is none, a reply that could not be sent): the open
    /// transaction is over, a block waits for its end.
    pub fn spoil(&mut self) {
        if self.block != Block::Idle {
            self.failed();
        }
    }

    /// Cancels whatever runs.
    pub fn cancel_handle(&self) -> SessionCancel {
        SessionCancel::new(&self.activity)
    }

    /// How others see and interrupt it.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(super) fn lock_warnings(&self) -> std::sync::MutexGuard<'_, Vec<Notice>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a query text at most.
    pub fn text_bytes_max(&self) -> usize {
        self.settings.text_bytes_max()
    }

    /// From here on RESET goes back to the settings as they are now: those that the connection asked for at its start
    /// are set, and no transaction is open.
    pub fn keep_settings_as_defaults(&mut self) {
        self.settings.keep_as_defaults();
    }

    /// The value of a setting.
    pub fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        self.settings.show(name)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Ends the session; an open transaction is rolled back.
    pub async fn close(mut self) {
        self.roll_back();
        self.settle().await;
    }

    /// The open transaction at a new statement, for the locks that come before the statement itself: the next call of
    /// [`transaction`](Self::transaction) goes on with it.
    pub(super) fn transaction_for_locks(&mut self) -> &mut Transaction {
        self.begun = false;
        self.transaction();
        self.begun = true;
        self.transaction.as_mut().unwrap_or_else(|| unreachable!("it has just begun"))
    }

    /// The open transaction at a new statement, beginning one if there is none; the statement that has
    /// [taken its locks](Self::transaction_for_locks), if it has done nothing else yet.
    pub(super) fn transaction(&mut self) -> &mut Transaction {
        let begun = std::mem::take(&mut self.begun);
        let engine = self.database.engine();
        let handle = self.activity.handle();
        let lock_timeout = self.settings.lock_timeout();
        let (level, read_only) = (self.isolation_level(), self.is_read_only());
        let transaction = match &mut self.transaction {
            Some(transaction) => {
                if !begun {
                    transaction.next_statement();
                    self.activity.set_snapshot(transaction.snapshot_timestamp());
                }
                transaction
            }
            none => {
                let mut transaction = engine.begin_with(level);
                if read_only {
                    transaction.declare_read_only();
                }
                self.activity.set_transaction(level, transaction.id(), transaction.snapshot_timestamp());
                none.insert(transaction)
            }
        };
        transaction.set_cancel(handle);
        transaction.set_lock_timeout(lock_timeout);
        transaction.use_memory_of(self.memory_use);
        transaction
    }

    /// The statement succeeded: commits if it was the last of its transaction.
    pub(super) async fn succeeded(&mut self, step: Step) -> Result<(), SqlError> {
        self.activity.end_statement();
        match step {
            Step::Alone | Step::Inside { ends: true } => self.commit().await?,
            Step::Inside { ends: false }
            | Step::Begin
            | Step::Adopt
            | Step::Commit
            | Step::Rollback
            | Step::Nothing => {}
        }
        self.block = self.block.after(step);
        self.rest();
        Ok(())
    }

    /// The statement failed: its transaction is over, a block waits for its end.
    pub(super) fn failed(&mut self) {
        self.roll_back();
        self.block = self.block.after_error();
        self.rest();
    }

    /// What the statement did is taken back, to be done once more.
    pub(super) async fn take_back(&mut self) {
        self.roll_back();
        self.block = self.block.after_error();
        self.settle().await;
    }

    /// The same, before the client hears of the error: what the statement built is dropped, and if memory ran out,
    /// what it held is given back as soon as partitions have vacated its rows.
    pub(super) async fn fail(&mut self, error: &SqlError) {
        self.failed();
        self.settle().await;
        if error.sqlstate == SqlState::OUT_OF_MEMORY {
            self.free_what_failed();
        }
    }

    /// The rows of a statement were not all fetched.
    pub(super) fn abandoned(&mut self, step: Step) {
        if matches!(step, Step::Alone | Step::Inside { ends: true }) {
            self.roll_back();
        }
        self.block = self.block.after(step);
        self.rest();
    }
}

impl KnowsSession for Session {
    fn session_values(&self) -> SessionValues {
        SessionValues {
            version: self.database.version().to_string(),
            user: self.options.user.clone(),
            database: self.options.database.clone(),
            settings: self.shown_settings(),
            process: self.activity.process,
            warnings: Arc::clone(&self.warnings),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.activity.end();
        self.database.activities().remove(self.activity.process);
        self.roll_back();
    }
}
