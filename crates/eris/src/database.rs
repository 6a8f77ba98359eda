//! A database in this process: the engine, its SQL, and the way to both.

use std::net::SocketAddr;
use std::sync::Arc;

use eris_engine::{Engine, EngineError};
use eris_platform::{Env, PlacementError, RealEnv};
use eris_server::{ServeError, ServerHandle, SqlHost};
use eris_sql::{DatabaseOptions, SessionOptions, SqlError};

use crate::connection::Connection;
use crate::options::{MEMORY_LIMIT_MIN, Options};
use crate::tables::TableDescription;

/// Why a database does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("a memory limit of {given} bytes is too small: a database needs at least {MEMORY_LIMIT_MIN} bytes")]
    MemoryLimit { given: u64 },
    #[error(transparent)]
    Placement(PlacementError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Sql(#[from] SqlError),
}

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    sql: eris_sql::Database,
}

impl Database {
    /// Starts the workers. The database is empty: it lives in memory only.
    pub fn open(options: Options) -> Result<Database, OpenError> {
        Database::open_in(Arc::new(RealEnv::new()), options)
    }

    /// The same with another source of time, randomness, files and sockets.
    pub fn open_in(env: Arc<dyn Env>, options: Options) -> Result<Database, OpenError> {
        let engine = Engine::start(env, options.engine()?)?;
        let sql_options = DatabaseOptions { fallback: options.fallback, ..DatabaseOptions::default() };
        let sql = eris_sql::Database::new(engine.clone(), sql_options)?;
        Ok(Database { engine, sql })
    }

    /// A connection of this process.
    pub fn connect(&self) -> Connection {
        let session = self.sql.session(SessionOptions {
            user: eris_server::protocol::startup::USER.to_owned(),
            database: eris_server::protocol::startup::DATABASE.to_owned(),
            application_name: "embedded".to_owned(),
        });
        Connection::new(self.engine.clone(), session)
    }

    /// Serves PostgreSQL clients on a loopback address until the handle stops it or the database is closed.
    pub fn serve(&self, address: SocketAddr) -> Result<ServerHandle, ServeError> {
        eris_server::listen(&self.engine, address, SqlHost::new(self.sql.clone()))
    }

    /// The tables there are, in the order of their names.
    pub fn tables(&self) -> Vec<TableDescription> {
        let mut tables: Vec<_> =
            self.sql.catalog().current().tables().map(|table| TableDescription::of(table)).collect();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        tables
    }

    /// The engine below, for counters and for tasks that go without SQL.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The SQL layer, for asynchronous sessions.
    pub fn sql(&self) -> &eris_sql::Database {
        &self.sql
    }

    /// Stops the workers and waits for them. Connections that are still open hear of it as an error.
    pub fn close(self) {
        self.engine.shutdown();
    }
}
