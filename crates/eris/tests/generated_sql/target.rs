//! What the statements run on: an embedded ERIS, and PostgreSQL where one is given.

use eris::{Connection, Database, Options};
use eris_workloads::connection::{SqlConnection, SqlValue};
use eris_workloads::postgres::{PostgresConnection, PostgresUrl};

use crate::generate::Case;

/// An error: SQLSTATE and text.
#[derive(Clone, Debug)]
pub struct Failure {
    pub state: String,
    pub message: String,
}

#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub rows: Vec<Vec<Option<String>>>,
    pub changed: usize,
}

pub trait Target {
    /// Runs one statement in the session that changes data.
    fn run(&mut self, sql: &str) -> Result<Reply, Failure>;
    /// Runs it in the other session.
    fn run_elsewhere(&mut self, sql: &str) -> Result<Reply, Failure>;
    /// Has queries run on ERIS's own operators where they can, or never; `false` where that makes no difference.
    fn set_native(&mut self, native: bool) -> bool;
    fn is_eris(&self) -> bool;
}

pub struct Embedded {
    database: Option<Database>,
    sessions: Option<[Connection; 2]>,
}

impl Embedded {
    pub fn open(case: &Case) -> Embedded {
        let Case { workers, nodes, split_rows, .. } = *case;
        let options = Options { workers, nodes, split_rows, memory_limit_bytes: 1 << 30, ..Options::default() };
        let database = Database::open(options).expect("the database opens");
        let sessions = [database.connect(), database.connect()];
        Embedded { database: Some(database), sessions: Some(sessions) }
    }

    fn on(&mut self, session: usize, sql: &str) -> Result<Reply, Failure> {
        let sessions = self.sessions.as_mut().expect("the sessions are open");
        let result = sessions[session]
            .execute(sql)
            .map_err(|error| Failure { state: error.sqlstate.to_string(), message: error.to_string() })?;
        let columns = result.columns.len();
        let rows = (0..result.row_count()).map(|row| (0..columns).map(|column| result.text(row, column)).collect());
        Ok(Reply { rows: rows.collect(), changed: result.rows_affected() as usize })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.sessions = None;
        if let Some(database) = self.database.take() {
            database.close();
        }
    }
}

impl Target for Embedded {
    fn run(&mut self, sql: &str) -> Result<Reply, Failure> {
        self.on(0, sql)
    }

    fn run_elsewhere(&mut self, sql: &str) -> Result<Reply, Failure> {
        self.on(1, sql)
    }

    fn set_native(&mut self, native: bool) -> bool {
        let sessions = self.sessions.as_mut().expect("the sessions are open");
        let sql = format!("SET native = {native}");
        sessions.iter_mut().all(|session| session.execute(&sql).is_ok())
    }

    fn is_eris(&self) -> bool {
        true
    }
}

/// A PostgreSQL that is there already; its tables of the same names are dropped.
pub struct Postgres {
    sessions: [PostgresConnection; 2],
}

impl Postgres {
    pub fn connect(url: &str, case: &Case) -> Postgres {
        let url: PostgresUrl = url.parse().expect("ERIS_POSTGRES is a URL");
        let connect = || PostgresConnection::connect(&url).expect("PostgreSQL accepts connections");
        let mut sessions = [connect(), connect()];
        for table in &case.tables {
            sessions[0].execute(&format!("DROP TABLE IF EXISTS {}", table.name), &[]).expect("a table is dropped");
        }
        Postgres { sessions }
    }

    fn on(&mut self, session: usize, sql: &str) -> Result<Reply, Failure> {
        let result = self.sessions[session]
            .execute(sql, &[])
            .map_err(|failure| Failure { state: failure.sqlstate.clone(), message: failure.message.clone() })?;
        let text = |value: SqlValue| match value {
            SqlValue::Null => None,
            SqlValue::Bool(value) => Some(if value { "t" } else { "f" }.to_owned()),
            other => Some(other.to_string()),
        };
        let rows = result.rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect();
        Ok(Reply { rows, changed: result.rows_affected as usize })
    }
}

impl Target for Postgres {
    fn run(&mut self, sql: &str) -> Result<Reply, Failure> {
        self.on(0, sql)
    }

    fn run_elsewhere(&mut self, sql: &str) -> Result<Reply, Failure> {
        self.on(1, sql)
    }

    fn set_native(&mut self, _native: bool) -> bool {
        false
    }

    fn is_eris(&self) -> bool {
        false
    }
}
