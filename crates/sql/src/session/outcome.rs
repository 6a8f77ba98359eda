//! What running a statement gives.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use eris_platform::Nanos;
use eris_storage::Batch;

use super::copy::CopyIn;
use super::prepared::ColumnDescription;
use super::session::Session;
use super::states::{Block, Step};
use super::turns::{Turn, is_short};
use crate::activity::Timeouts;
use crate::errors::SqlError;
use crate::fallback::FallbackRows;
use crate::native::{Held, NativeRows};

/// What a statement did, in PostgreSQL's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandTag {
    /// Rows sent.
    Select(u64),
    /// Rows inserted.
    Insert(u64),
    /// Rows changed.
    Update(u64),
    /// Rows deleted.
    Delete(u64),
    /// Rows loaded.
    Copy(u64),
    /// Anything without a number.
    Done(&'static str),
}

impl fmt::Display for CommandTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(rows) => write!(f, "SELECT {rows}"),
            Self::Insert(rows) => write!(f, "INSERT 0 {rows}"),
            Self::Update(rows) => write!(f, "UPDATE {rows}"),
            Self::Delete(rows) => write!(f, "DELETE {rows}"),
            Self::Copy(rows) => write!(f, "COPY {rows}"),
            Self::Done(word) => f.write_str(word),
        }
    }
}

/// What running a statement gives.
pub enum Outcome<'s> {
    /// Nothing was asked.
    Empty,
    /// It is done.
    Complete(CommandTag),
    /// Rows to fetch.
    Rows(Rows<'s>),
    /// Data to send.
    CopyIn(CopyIn<'s>),
}

/// Where rows come from.
pub(super) enum RowSource {
    Native(NativeRows),
    Fallback(FallbackRows),
    /// One whose first batch, or end, was fetched already.
    Ahead(Option<Batch>, Box<RowSource>),
}

impl RowSource {
    fn none() -> Self {
        Self::Native(NativeRows::ready(Held::few(Vec::new())))
    }

    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        let rows = match self {
            Self::Ahead(first, rest) => match first.take() {
                Some(batch) => return Ok(Some(batch)),
                None => rest,
            },
            rows => rows,
        };
        match rows {
            Self::Native(rows) => rows.next().await,
            Self::Fallback(rows) => rows.next().await,
            Self::Ahead(..) => Err(SqlError::internal("rows were fetched ahead twice")),
        }
    }

    /// The rows, if they hold memory that they can do without.
    fn spillable(&mut self) -> Option<&mut NativeRows> {
        match self {
            Self::Native(rows) => Some(rows).filter(|rows| rows.can_be_set_aside()),
            Self::Fallback(_) => None,
            Self::Ahead(_, rest) => rest.spillable(),
        }
    }

    /// Fetches the first batch.
    pub async fn look_ahead(&mut self) -> Result<(), SqlError> {
        let first = self.next().await?;
        let rest = std::mem::replace(self, Self::none());
        *self = Self::Ahead(first, Box::new(rest));
        Ok(())
    }
}

/// Rows stay in memory so long for a client that keeps them waiting.
const PATIENCE: Duration = Duration::from_millis(500);
/// Whether others need the memory is looked at so often.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The first word in the tag of a query, which says how many rows it has.
pub(super) const QUERY: &str = "SELECT";

/// The rows of a statement, fetched batch by batch. Dropping them ends the statement; its transaction, if it was its
/// own, is rolled back, which for a query makes no difference.
pub struct Rows<'s> {
    pub(super) session: &'s mut Session,
    pub(super) source: RowSource,
    pub(super) columns: Arc<[ColumnDescription]>,
    pub(super) step: Step,
    pub(super) word: &'static str,
    pub(super) done: bool,
    pub(super) ahead: bool,
    pub(super) sent: u64,
    /// Kept for as long as it holds memory.
    pub(super) turn: Turn,
    /// When the client first kept them waiting.
    pub(super) waits_since: Option<Nanos>,
}

impl Rows<'_> {
    /// What the rows are made of.
    pub fn columns(&self) -> &[ColumnDescription] {
        &self.columns
    }

    /// Whether they only tell what a command did.
    pub fn is_of_utility(&self) -> bool {
        self.word != QUERY
    }

    /// The client has what it asked for and may ask for more: until then no timeout of the statement runs.
    pub fn suspend(&mut self) {
        let Session { activity, database, settings, block, .. } = &*self.session;
        activity.suspend_statement(database.engine(), *block == Block::Open, &Timeouts::of(settings));
        self.turn.suspend();
    }

    /// The client asks for more.
    pub fn resume(&mut self) {
        self.turn.resume();
        let Session { activity, database, settings, .. } = &*self.session;
        activity.resume_statement(database.engine(), &Timeouts::of(settings));
    }

    /// Returns when rows that wait for the client should wait in a file, as others need the memory: then
    /// [`Self::set_aside`] is to be called. To be dropped as soon as the client goes on.
    pub async fn are_in_the_way(&mut self) {
        let engine = self.session.database.engine().clone();
        loop {
            let Some(rows) = self.source.spillable().filter(|_| !self.done) else { return pending().await };
            let must_go = rows.must_be_set_aside();
            let now = engine.env().now();
            let due = *self.waits_since.get_or_insert(now) + PATIENCE;
            if now >= due && (must_go || is_short(engine.memory())) {
                return;
            }
            engine.sleep_until(due.max(now + LOOK_AGAIN)).await;
        }
    }

    /// Puts a part of the rows into a file. An error is as one of [`Self::next`].
    pub async fn set_aside(&mut self) -> Result<(), SqlError> {
        let Some(rows) = self.source.spillable() else { return Ok(()) };
        if let Err(error) = rows.set_aside().await {
            return Err(self.failed(error).await);
        }
        if rows.hold_nothing() {
            self.turn.end();
        }
        Ok(())
    }

    /// From now on rows are fetched before anyone asks for them: an error ends the statement, but no block.
    pub fn read_ahead(&mut self) {
        self.ahead = true;
    }

    /// The next batch; `None` after the last. An error ends the statement, and fails its block unless it was fetched
    /// ahead.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        if self.done {
            return Ok(None);
        }
        match self.source.next().await {
            Ok(Some(batch)) => {
                self.sent += batch.rows as u64;
                Ok(Some(batch))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.failed(error).await),
        }
    }

    async fn failed(&mut self, error: SqlError) -> SqlError {
        let error = self.session.activity.explain(error);
        self.done = true;
        if self.ahead {
            self.session.abandoned(self.step);
        } else {
            // First what the rows are made of, as it holds memory.
            self.source = RowSource::none();
            self.session.fail(&error).await;
        }
        error
    }

    /// The tag after this many rows were sent.
    pub fn tag(&self, rows_sent: u64) -> CommandTag {
        if self.word == QUERY { CommandTag::Select(rows_sent) } else { CommandTag::Done(self.word) }
    }

    /// Ends the statement, and its transaction if it was its own.
    pub async fn finish(mut self) -> Result<CommandTag, SqlError> {
        let tag = self.tag(self.sent);
        if !self.done {
            self.done = true;
            if let Err(error) = self.session.succeeded(self.step).await {
                self.session.fail(&error).await;
                return Err(error);
            }
        }
        Ok(tag)
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.session.abandoned(self.step);
        }
    }
}
