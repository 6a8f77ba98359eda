//! The SQL side of a workload: one small blocking connection trait, so that the same driver runs against ERIS embedded,
//! ERIS over the wire and PostgreSQL.
//!
//! Blocking is enough for most clients: a benchmark query has nothing else to do while it waits. Where many clients of
//! a server share a thread, there is [`SharedThread`]. Values are kept to what the workloads need; decimals and dates
//! travel as text in their SQL spelling, because the answer check compares them as exact decimal text anyway.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// One value of a parameter or of a result row.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text, and everything whose SQL spelling is its value: decimals, dates, timestamps.
    Text(String),
}

impl SqlValue {
    /// The integer this value holds, also when a server sent it as decimal text.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Text(text) => text.trim().parse().ok(),
            Self::Bool(value) => Some(i64::from(*value)),
            Self::Null | Self::Float(_) => None,
        }
    }
}

impl fmt::Display for SqlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl From<i64> for SqlValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for SqlValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// Rows of values.
pub type Rows = Vec<Vec<SqlValue>>;

/// What a statement left behind: its rows, or how many rows it changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SqlResult {
    pub rows: Rows,
    /// Rows inserted, updated, deleted or returned, as the command tag says.
    pub rows_affected: u64,
}

/// A statement that failed: the server's SQLSTATE, or one of class 08 when the connection itself failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{sqlstate}: {message}")]
pub struct SqlFailure {
    pub sqlstate: String,
    pub message: String,
}

impl SqlFailure {
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Self {
        Self { sqlstate: sqlstate.to_owned(), message: message.into() }
    }

    /// The transaction lost against another one; running it again may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self.sqlstate.as_str(), "40001" | "40P01")
    }

    /// A key or foreign-key violation (class 23).
    pub fn is_constraint_violation(&self) -> bool {
        self.sqlstate.starts_with("23")
    }
}

/// Handle of a statement prepared on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StatementId(pub u32);

/// One session on an SQL database. After a failure inside a transaction the caller rolls back before it goes on.
pub trait SqlConnection: Send {
    /// Runs one statement with `$1`-style parameters.
    fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<SqlResult, SqlFailure>;

    /// Prepares a statement for repeated execution.
    fn prepare(&mut self, sql: &str) -> Result<StatementId, SqlFailure>;

    fn execute_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure>;

    /// Runs a `COPY ... FROM STDIN` and feeds it the pieces of the data; returns the rows copied.
    fn copy_in(&mut self, sql: &str, data: &mut dyn Iterator<Item = Vec<u8>>) -> Result<u64, SqlFailure>;

    fn begin(&mut self) -> Result<(), SqlFailure> {
        self.execute("BEGIN", &[]).map(drop)
    }

    fn commit(&mut self) -> Result<(), SqlFailure> {
        self.execute("COMMIT", &[]).map(drop)
    }

    fn rollback(&mut self) -> Result<(), SqlFailure> {
        self.execute("ROLLBACK", &[]).map(drop)
    }
}

/// A connection of which a [`crowd`](crate::crowd) may have many on one thread: while one waits for its server, the
/// others go on.
pub trait SharedThread: Send {
    /// For what has no need to share.
    fn holding(&mut self) -> &mut dyn SqlConnection;

    /// Where it waits; `None` if it holds its thread instead.
    fn socket(&self) -> io::Result<Option<OwnedFd>>;

    fn ask(&mut self, sql: &str) -> impl Future<Output = Result<SqlResult, SqlFailure>>;

    fn ask_prepared(
        &mut self,
        statement: StatementId,
        params: &[SqlValue],
    ) -> impl Future<Output = Result<SqlResult, SqlFailure>>;
}

/// Any connection, on a thread of its own.
impl SharedThread for Box<dyn SqlConnection> {
    fn holding(&mut self) -> &mut dyn SqlConnection {
        &mut **self
    }

    fn socket(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    async fn ask(&mut self, sql: &str) -> Result<SqlResult, SqlFailure> {
        (**self).execute(sql, &[])
    }

    async fn ask_prepared(&mut self, statement: StatementId, params: &[SqlValue]) -> Result<SqlResult, SqlFailure> {
        (**self).execute_prepared(statement, params)
    }
}
