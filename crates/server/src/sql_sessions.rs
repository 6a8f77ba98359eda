//! Sessions of `eris-sql` behind the protocol.

use std::borrow::Cow;
use std::sync::Arc;

use eris_sql::{
    Activity, ColumnDescription, CopyIn, Database, Notice, Prepared, Rows, Script, Session, SessionOptions, SqlError,
    SqlType, pg_format,
};
use eris_storage::{Batch, Column, Value};

use crate::protocol::backend::{
    Backend, ColumnInfo, Commit, CopySink, Interrupts, Outcome, Page, RowStream, TransactionStatus,
};
use crate::protocol::connection::{Host, Peer};
use crate::protocol::frontend::{Format, Formats, utf8};
use crate::protocol::report::{Report, Severity, SqlState};
use crate::protocol::signal::PROCESS_MAX;
use crate::protocol::startup::{DATABASE, Startup, USER};

// Otherwise a connection could be given the number of a session of this process.
const _: () = assert!(PROCESS_MAX < eris_sql::FIRST_OWN_PROCESS);

/// Opens sessions on a database.
pub struct SqlHost {
    database: Database,
}

impl SqlHost {
    pub fn new(database: Database) -> SqlHost {
        SqlHost { database }
    }
}

impl Host for SqlHost {
    type Backend = SqlSession;

    fn open(&self, startup: &Startup, peer: &Peer) -> Result<SqlSession, Report> {
        let options = SessionOptions {
            user: USER.to_owned(),
            database: DATABASE.to_owned(),
            application_name: startup.application_name().to_owned(),
            process: Some(peer.process),
            client: peer.address,
        };
        Ok(SqlSession(self.database.session(options)))
    }
}

/// A session as the protocol sees it.
pub struct SqlSession(Session);

pub struct SqlRows<'s> {
    rows: Rows<'s>,
    columns: SqlColumns,
}

/// The columns of a result.
#[derive(Clone)]
pub enum SqlColumns {
    /// As the statement was planned.
    Planned(Arc<Prepared>),
    /// Of a statement that was planned when it ran.
    Late(Arc<[ColumnDescription]>),
}

impl SqlColumns {
    fn list(&self) -> &[ColumnDescription] {
        match self {
            SqlColumns::Planned(statement) => statement.columns().unwrap_or_default(),
            SqlColumns::Late(columns) => columns,
        }
    }
}

pub struct SqlCopyIn<'s>(CopyIn<'s>);

impl Backend for SqlSession {
    type Statement = Arc<Prepared>;
    type Value = Value;
    type Columns = SqlColumns;
    type Page = Batch;
    type Rows<'s> = SqlRows<'s>;
    type CopyIn<'s> = SqlCopyIn<'s>;
    type Script = Script;

    fn prepare(&mut self, sql: &str, parameter_types: &[u32]) -> Result<Option<Arc<Prepared>>, Report> {
        let types: Vec<Option<SqlType>> = parameter_types
            .iter()
            .map(|oid| match (*oid, SqlType::from_oid(*oid)) {
                (0, _) => Ok(None),
                (_, Some(known)) => Ok(Some(known)),
                (oid, None) => Err(Report::error(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("parameters of the type with OID {oid} are not supported"),
                )),
            })
            .collect::<Result<_, _>>()?;
        self.0.prepare_one(sql, &types).map_err(report)
    }

    fn script(&mut self, sql: &str) -> Result<Script, Report> {
        self.0.script(sql).map_err(report)
    }

    fn next_of(&mut self, script: &mut Script) -> Result<Option<Arc<Prepared>>, Report> {
        self.0.next_of(script).map_err(report)
    }

    fn statement_bytes(statement: &Arc<Prepared>) -> usize {
        statement.bytes()
    }

    fn text_bytes_max(&self) -> usize {
        self.0.text_bytes_max()
    }

    fn parameter_types(statement: &Arc<Prepared>) -> Vec<u32> {
        statement.parameters().iter().map(|sql_type| sql_type.oid()).collect()
    }

    fn parameter_count(statement: &Arc<Prepared>) -> usize {
        statement.parameters().len()
    }

    fn columns(statement: &Arc<Prepared>) -> Option<SqlColumns> {
        statement.columns().map(|_| SqlColumns::Planned(statement.clone()))
    }

    fn column_count(columns: &SqlColumns) -> usize {
        columns.list().len()
    }

    fn column(columns: &SqlColumns, index: usize) -> ColumnInfo<'_> {
        let ColumnDescription { name, sql_type } = &columns.list()[index];
        ColumnInfo { name, type_oid: sql_type.oid(), type_bytes: sql_type.typlen(), type_modifier: sql_type.typmod() }
    }

    fn value(statement: &Arc<Prepared>, index: usize, format: Format, bytes: Option<&[u8]>) -> Result<Value, Report> {
        let Some(bytes) = bytes else { return Ok(Value::Null) };
        let sql_type = statement.parameters()[index];
        match format {
            Format::Text => pg_format::parse_text(sql_type, utf8(bytes)?),
            Format::Binary => pg_format::parse_binary(sql_type, bytes),
        }
        .map_err(|error| Report { context: Some(format!("parameter ${}", index + 1)), ..report(error) })
    }

    async fn execute<'s>(
        &'s mut self,
        statement: &'s Arc<Prepared>,
        parameters: &'s [Value],
        commit: Commit,
    ) -> Result<Outcome<SqlRows<'s>, SqlCopyIn<'s>>, Report> {
        let executed = match commit {
            Commit::WithText => self.0.execute(statement, parameters).await,
            Commit::AtSync => self.0.execute_pipelined(statement, parameters).await,
        };
        Ok(match executed.map_err(report)? {
            eris_sql::Outcome::Empty => Outcome::Empty,
            eris_sql::Outcome::Complete(tag) => Outcome::Complete(tag.to_string()),
            eris_sql::Outcome::Rows(rows) => {
                let columns = Self::columns(statement).unwrap_or_else(|| SqlColumns::Late(rows.columns().into()));
                Outcome::Rows(SqlRows { rows, columns })
            }
            eris_sql::Outcome::CopyIn(copy) => Outcome::CopyIn(SqlCopyIn(copy)),
        })
    }

    async fn sync(&mut self) -> Result<(), Report> {
        self.0.sync().await.map_err(report)
    }

    fn row_bytes(_: &SqlColumns, batch: &Batch, row: usize, formats: &Formats) -> usize {
        let bytes = |(column, values): (usize, &Column)| match formats.of(column) {
            Format::Text => pg_format::text_bytes(values, row),
            Format::Binary => pg_format::binary_bytes(values, row),
        };
        batch.columns.iter().enumerate().map(bytes).fold(0, usize::saturating_add)
    }

    fn encode(
        columns: &SqlColumns,
        batch: &Batch,
        row: usize,
        column: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) -> Result<bool, Report> {
        let values = &batch.columns[column];
        if values.is_null(row) {
            return Ok(false);
        }
        let sql_type = columns.list()[column].sql_type;
        match format {
            Format::Text => pg_format::text(values, row, sql_type, out),
            Format::Binary => pg_format::binary(values, row, sql_type, out),
        }
        Ok(true)
    }

    fn status(&self) -> TransactionStatus {
        match self.0.status() {
            eris_sql::TransactionStatus::Idle => TransactionStatus::Idle,
            eris_sql::TransactionStatus::InTransaction => TransactionStatus::InTransaction,
            eris_sql::TransactionStatus::Failed => TransactionStatus::Failed,
        }
    }

    fn spoil(&mut self) {
        self.0.spoil();
    }

    fn interrupts(&self) -> Arc<dyn Interrupts> {
        Arc::new(SqlInterrupts(self.0.activity().clone()))
    }

    fn introduced(&mut self) {
        self.0.keep_settings_as_defaults();
    }

    fn setting(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.parameter(name)
    }

    fn take_notices(&mut self) -> Vec<Report> {
        self.0.take_notices().into_iter().map(notice).collect()
    }

    async fn close(self) {
        self.0.close().await;
    }
}

struct SqlInterrupts(Arc<Activity>);

impl Interrupts for SqlInterrupts {
    fn cancel(&self) {
        self.0.cancel_for_client();
    }

    fn pending(&self) -> Option<Report> {
        self.0.pending().map(|why| {
            let severity = if why.ends_session() { Severity::Fatal } else { Severity::Error };
            Report { severity, ..report(why.error()) }
        })
    }

    fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.0.listen(listener);
    }
}

impl Page for Batch {
    fn rows(&self) -> usize {
        self.rows
    }

    fn bytes(&self) -> usize {
        Batch::bytes(self)
    }
}

impl RowStream for SqlRows<'_> {
    type Page = Batch;
    type Columns = SqlColumns;

    fn columns(&self) -> SqlColumns {
        self.columns.clone()
    }

    async fn next(&mut self) -> Result<Option<Batch>, Report> {
        self.rows.next().await.map_err(report)
    }

    fn has_ended(&self) -> bool {
        self.rows.is_of_utility()
    }

    fn suspend(&mut self) {
        self.rows.suspend();
    }

    fn resume(&mut self) {
        self.rows.resume();
    }

    async fn are_in_the_way(&mut self) {
        self.rows.are_in_the_way().await;
    }

    async fn set_aside(&mut self) -> Result<(), Report> {
        self.rows.set_aside().await.map_err(report)
    }

    fn read_ahead(&mut self) {
        self.rows.read_ahead();
    }

    async fn finish(self, rows_sent: u64) -> Result<String, Report> {
        let tag = self.rows.tag(rows_sent).to_string();
        self.rows.finish().await.map_err(report)?;
        Ok(tag)
    }
}

impl CopySink for SqlCopyIn<'_> {
    fn columns(&self) -> usize {
        self.0.columns()
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Report> {
        self.0.data(bytes).await.map_err(report)
    }

    async fn finish(self) -> Result<String, Report> {
        self.0.finish().await.map(|tag| tag.to_string()).map_err(report)
    }

    async fn fail(self, reason: &str) -> Report {
        report(self.0.fail(reason).await)
    }
}

fn notice(notice: Notice) -> Report {
    let severity = if notice.is_warning { Severity::Warning } else { Severity::Notice };
    Report { severity, ..Report::error(SqlState::new(notice.sqlstate.as_str()), notice.message) }
}

fn report(error: SqlError) -> Report {
    Report {
        severity: Severity::Error,
        sqlstate: SqlState::new(error.sqlstate.as_str()),
        message: error.message,
        detail: error.detail,
        hint: error.hint,
        position: error.position,
        context: error.context.map(String::from),
    }
}
