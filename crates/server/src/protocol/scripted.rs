//! A stand-in for the SQL layer with a language of its own, for tests and the fuzzer of the protocol.
//!
//! ```text
//!   rows N            N rows (number, text or NULL), in pages of three
//!   heavy N           the same, in pages that claim to hold 32 MB
//!   long N            two rows, each with a text of N bytes
//!   late N            the same, with columns that are known only when it runs
//!   done N            the same, of a command that has had its effect
//!   bulky N           the same, in the way until they were set aside
//!   broken N          the same, but that fails
//!   echo N            one row with the statement's N parameters
//!   copy              COPY FROM STDIN; a line "bad" is an error
//!   wait              runs until it is cancelled
//!   fail SQLSTATE     an error
//!   notice TEXT       a notice
//!   set NAME VALUE    a setting
//!   begin, commit, rollback
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::protocol::backend::{
    Backend, ColumnInfo, Commit, CopySink, Interrupts, Outcome, Page, RowStream, TransactionStatus,
};
use crate::protocol::connection::{Host, Peer};
use crate::protocol::frontend::{Format, Formats, utf8};
use crate::protocol::report::{Report, Severity, SqlState};
use crate::protocol::startup::Startup;

const PAGE_ROWS: u64 = 3;
/// Enough for any test; a fuzzer that writes `rows 999999999` is not to wait for them.
const ROWS_MAX: u64 = 10_000;

/// The same of `long 999999999`.
const LONG_BYTES_MAX: u64 = 8 << 20;

/// What was asked of the backend, in order.
#[derive(Clone, Debug, Default)]
pub struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call.into());
    }

    pub fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens scripted sessions.
#[derive(Debug, Default)]
pub struct ScriptedHost {
    pub calls: Calls,
}

impl Host for ScriptedHost {
    type Backend = Scripted;

    fn open(&self, startup: &Startup, _peer: &Peer) -> Result<Scripted, Report> {
        self.calls.add(format!("open {}", startup.application_name()));
        Ok(Scripted {
            calls: self.calls.clone(),
            status: TransactionStatus::Idle,
            settings: BTreeMap::new(),
            notices: Vec::new(),
            interrupt: Arc::default(),
            uncommitted: 0,
        })
    }
}

pub struct Scripted {
    calls: Calls,
    status: TransactionStatus,
    settings: BTreeMap<String, String>,
    notices: Vec<Report>,
    interrupt: Arc<Interrupt>,
    /// Statements that Sync is to commit.
    uncommitted: u64,
}

#[derive(Default)]
struct Interrupt {
    cancelled: AtomicBool,
    waker: Mutex<Option<Waker>>,
    pending: Mutex<Option<Report>>,
    listener: Mutex<Option<Listener>>,
}

type Listener = Box<dyn Fn() + Send + Sync>;

impl Interrupt {
    async fn wait(&self) -> Report {
        poll_fn(|context| {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            if self.cancelled.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Report::cancelled()
    }
}

impl Interrupts for Interrupt {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn pending(&self) -> Option<Report> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }
}

#[derive(Clone, Debug)]
pub struct ScriptedStatement {
    command: Arc<str>,
    parameters: usize,
}

impl ScriptedStatement {
    fn words(&self) -> (&str, &str) {
        self.command.split_once(' ').unwrap_or((&self.command, ""))
    }

    fn number(&self) -> u64 {
        self.words().1.trim().parse().unwrap_or(0)
    }
}

pub struct ScriptedPage {
    rows: Vec<Vec<Option<String>>>,
    bytes: usize,
}

impl Page for ScriptedPage {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

pub struct ScriptedRows<'s> {
    session: &'s mut Scripted,
    next: u64,
    end: u64,
    page_bytes: usize,
    /// Bytes of each text, instead of what it says.
    text_bytes: Option<usize>,
    echo: Option<Vec<Option<String>>>,
    ahead: bool,
    has_ended: bool,
    /// What comes of it when they are set aside; `None`: they are not in the way.
    aside: Option<Result<(), Report>>,
}

impl RowStream for ScriptedRows<'_> {
    type Page = ScriptedPage;
    type Columns = usize;

    fn columns(&self) -> usize {
        self.echo.as_ref().map_or(2, Vec::len)
    }

    async fn next(&mut self) -> Result<Option<ScriptedPage>, Report> {
        if let Some(row) = self.echo.take() {
            return Ok(Some(ScriptedPage { rows: vec![row], bytes: 64 }));
        }
        if self.session.interrupt.cancelled.load(Ordering::SeqCst) {
            let report = Report::cancelled();
            return Err(if self.ahead { report } else { self.session.failed(report) });
        }
        let until = self.end.min(self.next + PAGE_ROWS);
        if self.next == until {
            return Ok(None);
        }
        let text = |n: u64| match self.text_bytes {
            Some(bytes) => Some("x".repeat(bytes)),
            None => n.is_multiple_of(2).then(|| format!("row {n}")),
        };
        let rows = (self.next..until).map(|n| vec![Some(n.to_string()), text(n)]);
        let page = ScriptedPage { rows: rows.collect(), bytes: self.page_bytes };
        self.next = until;
        Ok(Some(page))
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    async fn are_in_the_way(&mut self) {
        if self.aside.is_none() {
            std::future::pending::<()>().await;
        }
    }

    async fn set_aside(&mut self) -> Result<(), Report> {
        self.session.calls.add("set aside");
        let done = self.aside.take().unwrap_or(Ok(()));
        done.map_err(|report| if self.ahead { report } else { self.session.failed(report) })
    }

    fn read_ahead(&mut self) {
        self.ahead = true;
    }

    async fn finish(self, rows_sent: u64) -> Result<String, Report> {
        self.session.calls.add(format!("finish {rows_sent}"));
        Ok(format!("SELECT {rows_sent}"))
    }
}

pub struct ScriptedCopy<'s> {
    session: &'s mut Scripted,
    lines: u64,
}

impl CopySink for ScriptedCopy<'_> {
    fn columns(&self) -> usize {
        2
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Report> {
        self.session.calls.add(format!("data {}", bytes.len()));
        for line in bytes.split(|byte| *byte == b'\n') {
            if line == b"bad" {
                return Err(self.session.failed(Report::error(SqlState::new("22P02"), "bad line")));
            }
            self.lines += u64::from(!line.is_empty());
        }
        Ok(())
    }

    async fn finish(self) -> Result<String, Report> {
        Ok(format!("COPY {}", self.lines))
    }

    async fn fail(self, reason: &str) -> Report {
        self.session.failed(Report::error(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}")))
    }
}

impl Scripted {
    /// As in PostgreSQL an error spoils the transaction block.
    fn failed(&mut self, report: Report) -> Report {
        self.spoil();
        report
    }
}

/// The longest text of these sessions.
const TEXT_BYTES_MAX: usize = 1 << 20;

impl Scripted {
    fn parse(&mut self, sql: &str, parameter_types: &[u32]) -> Result<VecDeque<ScriptedStatement>, Report> {
        self.calls.add(format!("parse {sql} {parameter_types:?}"));
        let mut statements = VecDeque::new();
        for command in sql.split(';').map(str::trim).filter(|command| !command.is_empty()) {
            let mut statement = ScriptedStatement { command: command.into(), parameters: 0 };
            match statement.words().0 {
                "rows" | "heavy" | "long" | "late" | "done" | "bulky" | "broken" | "copy" | "wait" | "deaf"
                | "fail" | "notice" | "set" | "SET" | "begin" | "commit" | "rollback" => (),
                "echo" => statement.parameters = statement.number().min(100) as usize,
                other => {
                    let mut report = Report::error(SqlState::SYNTAX_ERROR, format!("syntax error at \"{other}\""));
                    report.position = Some(1);
                    return Err(self.failed(report));
                }
            }
            statements.push_back(statement);
        }
        Ok(statements)
    }
}

impl Backend for Scripted {
    type Statement = ScriptedStatement;
    type Value = Option<String>;
    type Columns = usize;
    type Page = ScriptedPage;
    type Rows<'s> = ScriptedRows<'s>;
    type CopyIn<'s> = ScriptedCopy<'s>;

    type Script = VecDeque<ScriptedStatement>;

    fn prepare(&mut self, sql: &str, parameter_types: &[u32]) -> Result<Option<ScriptedStatement>, Report> {
        let mut statements = self.parse(sql, parameter_types)?;
        let only = statements.pop_front();
        if !statements.is_empty() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(self.failed(Report::error(SqlState::SYNTAX_ERROR, message)));
        }
        Ok(only)
    }

    fn script(&mut self, sql: &str) -> Result<VecDeque<ScriptedStatement>, Report> {
        self.parse(sql, &[])
    }

    fn next_of(&mut self, script: &mut VecDeque<ScriptedStatement>) -> Result<Option<ScriptedStatement>, Report> {
        Ok(script.pop_front())
    }

    fn statement_bytes(statement: &ScriptedStatement) -> usize {
        statement.command.len()
    }

    fn text_bytes_max(&self) -> usize {
        TEXT_BYTES_MAX
    }

    fn parameter_types(statement: &ScriptedStatement) -> Vec<u32> {
        vec![25; statement.parameters]
    }

    fn parameter_count(statement: &ScriptedStatement) -> usize {
        statement.parameters
    }

    fn columns(statement: &ScriptedStatement) -> Option<usize> {
        match statement.words().0 {
            "rows" | "heavy" | "long" | "done" | "bulky" | "broken" => Some(2),
            "echo" => Some(statement.parameters),
            _ => None,
        }
    }

    fn column_count(columns: &usize) -> usize {
        *columns
    }

    fn column(_: &usize, index: usize) -> ColumnInfo<'_> {
        const NAMES: [&str; 2] = ["number", "text"];
        ColumnInfo { name: NAMES[index % 2], type_oid: 25, type_bytes: -1, type_modifier: -1 }
    }

    fn value(_: &ScriptedStatement, _: usize, _: Format, bytes: Option<&[u8]>) -> Result<Option<String>, Report> {
        bytes.map(|bytes| utf8(bytes).map(str::to_owned)).transpose()
    }

    async fn execute<'s>(
        &'s mut self,
        statement: &'s ScriptedStatement,
        parameters: &'s [Option<String>],
        commit: Commit,
    ) -> Result<Outcome<ScriptedRows<'s>, ScriptedCopy<'s>>, Report> {
        self.calls.add(format!("execute {} {parameters:?}", statement.command));
        self.interrupt.cancelled.store(false, Ordering::SeqCst);
        let (verb, rest) = statement.words();
        if self.status == TransactionStatus::Failed && !matches!(verb, "commit" | "rollback") {
            return Err(Report::error(SqlState::IN_FAILED_TRANSACTION, "current transaction is aborted"));
        }
        if commit == Commit::AtSync && self.status == TransactionStatus::Idle {
            self.uncommitted += 1;
        }
        let rows = |session, end| {
            let page_bytes = if verb == "heavy" { 32 << 20 } else { 64 };
            let aside = match verb {
                "bulky" => Some(Ok(())),
                "broken" => Some(Err(Report::error(SqlState::new("22012"), "division by zero"))),
                _ => None,
            };
            ScriptedRows {
                session,
                next: 0,
                end,
                page_bytes,
                text_bytes: None,
                echo: None,
                ahead: false,
                has_ended: verb == "done",
                aside,
            }
        };
        match verb {
            "rows" | "heavy" | "late" | "done" | "bulky" | "broken" => {
                Ok(Outcome::Rows(rows(self, statement.number().min(ROWS_MAX))))
            }
            "long" => {
                let text_bytes = Some(statement.number().min(LONG_BYTES_MAX) as usize);
                Ok(Outcome::Rows(ScriptedRows { text_bytes, ..rows(self, 2) }))
            }
            "echo" => Ok(Outcome::Rows(ScriptedRows { echo: Some(parameters.to_vec()), ..rows(self, 0) })),
            "copy" => Ok(Outcome::CopyIn(ScriptedCopy { session: self, lines: 0 })),
            "wait" => {
                let report = self.interrupt.wait().await;
                Err(self.failed(report))
            }
            // What was asked before it begins is lost on it.
            "deaf" => {
                self.interrupt.wait().await;
                self.interrupt.cancelled.store(false, Ordering::SeqCst);
                let report = self.interrupt.wait().await;
                Err(self.failed(report))
            }
            "fail" => {
                let report = Report::error(SqlState::new(rest), "as ordered").with_hint("do not order it");
                Err(self.failed(report))
            }
            "notice" => {
                let severity = Severity::Notice;
                self.notices.push(Report { severity, ..Report::error(SqlState::WARNING, rest) });
                Ok(Outcome::Complete("NOTICE".to_owned()))
            }
            "set" | "SET" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                self.settings.insert(name.to_owned(), value.to_owned());
                Ok(Outcome::Complete("SET".to_owned()))
            }
            "begin" => {
                self.status = TransactionStatus::InTransaction;
                Ok(Outcome::Complete("BEGIN".to_owned()))
            }
            _ => {
                let committed = verb == "commit" && self.status != TransactionStatus::Failed;
                self.status = TransactionStatus::Idle;
                Ok(Outcome::Complete(if committed { "COMMIT" } else { "ROLLBACK" }.to_owned()))
            }
        }
    }

    async fn sync(&mut self) -> Result<(), Report> {
        if std::mem::take(&mut self.uncommitted) > 0 && self.status == TransactionStatus::Idle {
            self.calls.add("sync");
        }
        Ok(())
    }

    fn row_bytes(_: &usize, page: &ScriptedPage, row: usize, _: &Formats) -> usize {
        page.rows[row].iter().flatten().map(String::len).sum()
    }

    fn encode(
        _: &usize,
        page: &ScriptedPage,
        row: usize,
        column: usize,
        _: Format,
        out: &mut Vec<u8>,
    ) -> Result<bool, Report> {
        match &page.rows[row][column] {
            Some(value) => {
                out.extend_from_slice(value.as_bytes());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn status(&self) -> TransactionStatus {
        self.status
    }

    fn spoil(&mut self) {
        self.uncommitted = 0;
        if self.status == TransactionStatus::InTransaction {
            self.status = TransactionStatus::Failed;
        }
    }

    fn interrupts(&self) -> Arc<dyn Interrupts> {
        self.interrupt.clone()
    }

    fn setting(&self, name: &str) -> Option<Cow<'_, str>> {
        self.settings.get(name).map(|value| Cow::Borrowed(value.as_str()))
    }

    fn take_notices(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.notices)
    }

    async fn close(self) {
        self.calls.add("close");
    }
}
