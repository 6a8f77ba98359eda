//! What a connection needs from whatever executes its statements.
//!
//! The protocol knows nothing of SQL: it prepares, binds, executes and streams through this trait. `eris_sql::Session`
//! is behind it in the server, a scripted stand-in in the tests and under the fuzzer.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use crate::protocol::frontend::{Format, Formats};
use crate::protocol::report::Report;

/// What `ReadyForQuery` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    Idle,
    InTransaction,
    Failed,
}

/// A result column as `RowDescription` tells it.
#[derive(Clone, Copy, Debug)]
pub struct ColumnInfo<'a> {
    pub name: &'a str,
    pub type_oid: u32,
    /// Size of the type, negative when it varies.
    pub type_bytes: i16,
    pub type_modifier: i32,
}

/// When what a statement does is committed, unless a block is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// With the last statement of its text.
    WithText,
    /// Together with the statements around it, at [`Backend::sync`].
    AtSync,
}

/// How a session and its connection interrupt each other.
pub trait Interrupts: Send + Sync {
    /// Ends the running statement.
    fn cancel(&self);

    /// Why the running statement is to end, or the connection (then the report is fatal): a timeout, or another
    /// session.
    fn pending(&self) -> Option<Report>;

    /// Has this called when there is something pending.
    fn listen(&self, listener: Box<dyn Fn() + Send + Sync>);
}

/// What came of an execution.
pub enum Outcome<R, C> {
    /// The statement had no text.
    Empty,
    /// Done; the command tag.
    Complete(String),
    Rows(R),
    /// Data from the client is wanted.
    CopyIn(C),
}

/// One session.
pub trait Backend: Send {
    /// A statement that was prepared; a clone is cheap.
    type Statement: Clone + Send + Sync;
    /// The value of a parameter.
    type Value: Send + Sync;
    /// The description of a result; a clone is cheap.
    type Columns: Clone + Send + Sync;
    /// A piece of a result.
    type Page: Page;
    type Rows<'s>: RowStream<Page = Self::Page, Columns = Self::Columns> + 's
    where
        Self: 's;
    type CopyIn<'s>: CopySink + 's
    where
        Self: 's;

    /// The statements of a text, before they run.
    type Script: Send;

    /// Prepares a text of one statement or none; `parameter_types` are OIDs, zero for "find out".
    fn prepare(&mut self, sql: &str, parameter_types: &[u32]) -> Result<Option<Self::Statement>, Report>;

    /// Looks at a text of any number of statements.
    fn script(&mut self, sql: &str) -> Result<Self::Script, Report>;

    /// The next statement of a text; the one before it has run.
    fn next_of(&mut self, script: &mut Self::Script) -> Result<Option<Self::Statement>, Report>;

    /// About how many bytes a prepared statement keeps.
    fn statement_bytes(statement: &Self::Statement) -> usize;

    /// The longest query text that the session takes.
    fn text_bytes_max(&self) -> usize;

    /// The OIDs of a statement's parameters.
    fn parameter_types(statement: &Self::Statement) -> Vec<u32>;

    fn parameter_count(statement: &Self::Statement) -> usize;

    /// The result columns, if the statement returns rows.
    fn columns(statement: &Self::Statement) -> Option<Self::Columns>;

    fn column_count(columns: &Self::Columns) -> usize;

    /// Column `index`, below [`Backend::column_count`].
    fn column(columns: &Self::Columns, index: usize) -> ColumnInfo<'_>;

    /// Reads the value of parameter `index`, below the number of parameters; `None` is NULL.
    fn value(
        statement: &Self::Statement,
        index: usize,
        format: Format,
        bytes: Option<&[u8]>,
    ) -> Result<Self::Value, Report>;

    /// Runs the statement in the open transaction block, or in a transaction that ends as `commit` says.
    fn execute<'s>(
        &'s mut self,
        statement: &'s Self::Statement,
        parameters: &'s [Self::Value],
        commit: Commit,
    ) -> impl Future<Output = Result<Outcome<Self::Rows<'s>, Self::CopyIn<'s>>, Report>> + Send + 's;

    /// Commits what was left to do so, unless a block is open. Called wherever a client may send its next request.
    fn sync(&mut self) -> impl Future<Output = Result<(), Report>> + Send;

    /// How many bytes [`Backend::encode`] appends for the values of a row at most. Asked of every row.
    fn row_bytes(columns: &Self::Columns, page: &Self::Page, row: usize, formats: &Formats) -> usize;

    /// Appends one value of a page; `false` is NULL, and appends nothing.
    fn encode(
        columns: &Self::Columns,
        page: &Self::Page,
        row: usize,
        column: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) -> Result<bool, Report>;

    fn status(&self) -> TransactionStatus;

    /// The client was told of an error. An open transaction is over, also if the error is none of the backend's: a
    /// message that makes no sense, rows that were not sent to their end.
    fn spoil(&mut self);

    fn interrupts(&self) -> Arc<dyn Interrupts>;

    /// The settings that the client asked for at the start are set: RESET goes back to them.
    fn introduced(&mut self) {}

    /// The value of a setting that clients are told about.
    fn setting(&self, name: &str) -> Option<Cow<'_, str>>;

    /// Warnings and notices that came up since the last call.
    fn take_notices(&mut self) -> Vec<Report> {
        Vec::new()
    }

    /// Ends the session; an open transaction is rolled back.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A piece of a result: some rows.
pub trait Page: Send + Sync {
    fn rows(&self) -> usize;
    /// Memory it holds.
    fn bytes(&self) -> usize;
}

/// A result that is being computed. Dropped, it is cancelled.
pub trait RowStream: Send {
    type Page: Page;
    type Columns;

    /// What the rows are made of: for a statement that was planned late, more than the statement knew.
    fn columns(&self) -> Self::Columns;

    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Page>, Report>> + Send;

    /// Whether the statement has had its effect, so that whoever would cancel it comes too late.
    fn has_ended(&self) -> bool {
        false
    }

    /// The client has what it asked for and may ask for more: no timeout of the statement runs until [`Self::resume`].
    fn suspend(&mut self) {}

    fn resume(&mut self) {}

    /// Returns when rows that wait for the client should do so outside of memory: then [`Self::set_aside`] is called.
    /// Dropped when the client goes on.
    fn are_in_the_way(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Takes some of the rows out of memory. An error is as one of [`Self::next`].
    fn set_aside(&mut self) -> impl Future<Output = Result<(), Report>> + Send {
        std::future::ready(Ok(()))
    }

    /// The rest is fetched before the client asks for it: an error ends the result, and the open transaction only once
    /// the client is told of it (see [`Backend::spoil`]).
    fn read_ahead(&mut self);

    /// Ends the statement after the last page; `rows_sent` goes into the command tag.
    fn finish(self, rows_sent: u64) -> impl Future<Output = Result<String, Report>> + Send;
}

/// A `COPY FROM STDIN` under way. Dropped, it is undone.
pub trait CopySink: Send {
    /// The number of columns per row.
    fn columns(&self) -> usize;

    fn data(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), Report>> + Send;

    fn finish(self) -> impl Future<Output = Result<String, Report>> + Send;

    /// The client gives up.
    fn fail(self, reason: &str) -> impl Future<Output = Report> + Send;
}
