//! ERIS inside this process: an engine, and a database with blocking sessions on top of it.

mod connection;

pub use connection::EmbeddedConnection;

use crate::error::BenchError;
use eris::{Database, DurabilityOptions, Options, ServerHandle};
use eris_engine::{Engine, EngineOptions, Event};
use eris_platform::{Nanos, RealEnv};
use eris_sql::{Outcome, Session, SessionOptions, SqlError, SqlType};
use eris_storage::{Batch, ContainerId};
use eris_workloads::connection::{Rows, SqlConnection, SqlFailure};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceOptions {
    pub workers: usize,
    pub nodes: usize,
    pub memory_limit_bytes: u64,
    pub in_place: bool,
    /// A partition with more rows than this is split; `None` is the default.
    pub split_rows: Option<u64>,
}

impl InstanceOptions {
    fn of_database(&self) -> Options {
        Options {
            workers: self.workers,
            nodes: self.nodes,
            memory_limit_bytes: self.memory_limit_bytes,
            in_place: self.in_place,
            split_rows: self.split_rows.unwrap_or(EngineOptions::default().split_rows),
            ..Options::default()
        }
    }
}

/// Starts an engine alone.
pub fn start_engine(options: &InstanceOptions) -> Result<Engine, BenchError> {
    let engine_options = EngineOptions {
        workers: options.workers,
        nodes: options.nodes,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: options.in_place,
        split_rows: options.split_rows.unwrap_or(EngineOptions::default().split_rows),
        ..EngineOptions::default()
    };
    Ok(Engine::start(Arc::new(RealEnv::new()), engine_options)?)
}

/// Has an engine's commits kept in a directory, for as long as the result lives.
pub fn open_files(
    engine: &Engine,
    directory: &Path,
    durability: &DurabilityOptions,
) -> Result<Arc<eris_durability::Database>, BenchError> {
    let (opening, directory, durability) = (engine.clone(), directory.to_path_buf(), durability.clone());
    let opened =
        engine.block_on(async move { eris_durability::open(&opening, &directory, &durability, |_| {}).await })?;
    Ok(Arc::new(opened?))
}

/// What a log did, under the names of the reports.
pub fn log_counters(files: &eris_durability::Database) -> BTreeMap<String, u64> {
    let log = files.log().statistics();
    let counters = [
        ("log_commits", log.commits),
        ("log_bytes", log.bytes),
        ("log_syncs", log.syncs),
        ("log_busy_nanos", log.busy_nanos),
        ("log_idle_nanos", log.idle_nanos),
    ];
    counters.map(|(name, count)| (name.to_owned(), count)).into()
}

/// The engine's counters under the names of the reports.
pub fn counters(engine: &Engine) -> BTreeMap<String, u64> {
    let statistics = engine.statistics();
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    for (event, count) in &statistics.events {
        counters.insert(event_name(*event).to_owned(), *count);
    }
    for (name, count) in [
        ("segments_sealed", statistics.store.sealed),
        ("segments_thawed", statistics.store.thawed),
        ("segments_compacted", statistics.store.compacted),
        ("transactions_committed", statistics.committed),
        ("transactions_aborted", statistics.aborted),
        ("memory_peak_bytes", statistics.memory_peak_bytes),
    ] {
        counters.insert(name.to_owned(), count);
    }
    counters
}

/// Reports name what was done, in one scheme; the engine names what happened.
fn event_name(event: Event) -> &'static str {
    match event {
        Event::LocalMessages => "messages_local",
        Event::RemoteMessages => "messages_remote",
        Event::Forwarded => "messages_forwarded",
        Event::SavedCursors => "cursors_saved",
        Event::InPlace => "executed_in_place",
        other => other.name(),
    }
}

/// A database in this process, filled and measured by a benchmark.
pub struct Instance {
    database: Database,
    /// The setting `work_mem` of its queries, if it is not the default.
    work_mem_bytes: Option<u64>,
}

/// A query's complete result and where its time went.
#[derive(Debug)]
pub struct TimedAnswer {
    pub rows: Rows,
    /// Until the plan was ready.
    pub plan: Duration,
    /// From the text to the last row.
    pub total: Duration,
    /// Whether the plan that ran had native operators only.
    pub native: bool,
}

impl Instance {
    pub fn start(options: &InstanceOptions) -> Result<Self, BenchError> {
        Ok(Self { database: Database::open(options.of_database())?, work_mem_bytes: None })
    }

    /// The same in a directory, with what is there.
    pub fn open(
        options: &InstanceOptions,
        directory: &Path,
        durability: &DurabilityOptions,
    ) -> Result<Self, BenchError> {
        let database = Database::open_directory(directory, options.of_database(), durability, |_| {})?;
        Ok(Self { database, work_mem_bytes: None })
    }

    /// Measures a database that is open already, and that stays open.
    pub fn of(database: &Database) -> Self {
        Self { database: database.clone(), work_mem_bytes: None }
    }

    /// Has queries that are timed go on in temporary files as soon as an operator holds more than this.
    #[must_use]
    pub fn with_work_mem(self, work_mem_bytes: Option<u64>) -> Self {
        Self { work_mem_bytes, ..self }
    }

    pub fn engine(&self) -> &Engine {
        self.database.engine()
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = counters(self.engine());
        counters.insert("temp_bytes_written".to_owned(), self.sql().temp_files().statistics().written_bytes);
        counters.extend(self.database.files().map(|files| log_counters(files)).unwrap_or_default());
        counters
    }

    /// The files of an instance that was opened in a directory.
    pub fn files(&self) -> Result<&Arc<eris_durability::Database>, BenchError> {
        self.database.files().ok_or_else(|| BenchError::Options("the database has no directory".to_owned()))
    }

    /// Serves clients on a port of the system's choice.
    pub fn serve(&self) -> Result<ServerHandle, BenchError> {
        Ok(self.database.serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?)
    }

    /// Ends as if the process had: nothing is waited for.
    pub fn abandon(self) {
        if let Some(files) = self.database.files() {
            files.abandon();
        }
        self.engine().shutdown();
    }

    pub fn shutdown(self) {
        self.database.close();
    }

    /// A session of its own.
    pub fn connect(&self) -> EmbeddedConnection {
        EmbeddedConnection::new(self.database.connect())
    }

    /// Runs one statement for its effect.
    pub fn execute(&self, sql: &str) -> Result<(), BenchError> {
        self.connect().execute(sql, &[])?;
        Ok(())
    }

    /// The container behind a table, for loads that bypass SQL.
    pub fn container(&self, table: &str) -> Result<ContainerId, BenchError> {
        let missing = || BenchError::Options(format!("there is no table {table}"));
        self.database.sql().catalog().current().find(table).map(|table| table.container()).ok_or_else(missing)
    }

    /// The SQL layer, for sessions inside tasks of the engine.
    pub(crate) fn sql(&self) -> &eris_sql::Database {
        self.database.sql()
    }

    /// The rows of a query, as the engine has them.
    pub fn batches(&self, sql: &str) -> Result<Vec<Batch>, BenchError> {
        Ok(self.database.connect().execute(sql).map_err(|error| failure(&error))?.batches)
    }

    /// Runs one query in a session of its own, timed inside the engine from the text to the last batch.
    pub fn query(&self, sql: &str) -> Result<TimedAnswer, SqlFailure> {
        self.query_repeatedly(sql, 1)
    }

    /// The same, planned once and executed so many times in a row: the total counts all, the rows are the last ones.
    pub fn query_repeatedly(&self, sql: &str, times: u32) -> Result<TimedAnswer, SqlFailure> {
        let (mut session, sql, env) =
            (self.sql().session(SessionOptions::default()), sql.to_owned(), Arc::clone(self.engine().env()));
        let setting = self.work_mem_bytes.map(|bytes| format!("SET work_mem = '{bytes}B'"));
        let timed = self.engine().block_on(async move {
            let timed = async {
                if let Some(setting) = setting {
                    timed_query(&mut session, &setting, 1, || env.now()).await?;
                }
                timed_query(&mut session, &sql, times, || env.now()).await
            }
            .await;
            session.close().await;
            timed
        });
        let timed = timed.map_err(|error| SqlFailure::new("XX000", error.to_string()))?;
        timed.map(TimedBatches::into_answer).map_err(|error| failure(&error))
    }
}

/// What tasks of the engine get: nothing is converted yet.
pub(crate) struct TimedBatches {
    batches: Vec<Batch>,
    types: Vec<SqlType>,
    plan: Duration,
    total: Duration,
    native: bool,
}

impl TimedBatches {
    /// The same for whom it is to be looked at.
    pub fn into_answer(self) -> TimedAnswer {
        let rows = self.batches.iter().flat_map(|batch| connection::rows_of(batch, &self.types)).collect();
        TimedAnswer { rows, plan: self.plan, total: self.total, native: self.native }
    }
}

/// Runs the statements of a text, each so many times in a row.
pub(crate) async fn timed_query(
    session: &mut Session,
    sql: &str,
    times: u32,
    now: impl Fn() -> Nanos,
) -> Result<TimedBatches, SqlError> {
    let begin = now();
    let statements = session.parse(sql, &[])?;
    let planned = now();
    let since = |moment: Nanos| Duration::from_nanos(moment.as_nanos() - begin.as_nanos());
    let mut answer = TimedBatches {
        batches: Vec::new(),
        types: Vec::new(),
        plan: since(planned),
        total: Duration::ZERO,
        native: true,
    };
    for _ in 0..times {
        answer.batches.clear();
        for statement in &statements {
            answer.native &= statement.is_native();
            if let Outcome::Rows(mut rows) = session.execute(statement, &[]).await? {
                answer.types = rows.columns().iter().map(|column| column.sql_type).collect();
                while let Some(batch) = rows.next().await? {
                    answer.batches.push(batch);
                }
                rows.finish().await?;
            }
        }
    }
    answer.total = since(now());
    Ok(answer)
}

/// The failure that drivers know.
pub(crate) fn failure(error: &SqlError) -> SqlFailure {
    SqlFailure::new(error.sqlstate.as_str(), error.to_string())
}
