//! Sends the rows of a result, page by page, up to the row limit of an Execute.

use std::collections::VecDeque;
use std::pin::pin;

use eris_platform::Reservation;

use crate::protocol::backend::{Backend, Page, RowStream};
use crate::protocol::frontend::Formats;
use crate::protocol::reply::Reply;
use crate::protocol::report::{Report, SqlState};
use crate::protocol::wire::{Failure, Transport, Wire};

/// How sending ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// All rows are sent.
    Finished,
    /// The row limit is reached and there may be more.
    Limit,
}

/// Where a result is: the page that is being sent and the rows sent.
pub struct Sender<B: Backend> {
    columns: B::Columns,
    page: Option<B::Page>,
    next_row: usize,
    pub(crate) sent: u64,
}

impl<B: Backend> Sender<B> {
    pub fn new(columns: B::Columns) -> Self {
        Sender { columns, page: None, next_row: 0, sent: 0 }
    }

    /// Sends at most `limit` rows.
    pub async fn send<T: Transport, S: RowStream<Page = B::Page>>(
        &mut self,
        wire: &mut Wire<T>,
        source: &mut S,
        formats: &Formats,
        limit: Option<u32>,
    ) -> Result<Progress, Failure> {
        let mut left = limit.map_or(u64::MAX, u64::from);
        let columns = B::column_count(&self.columns);
        loop {
            if let Some(page) = &self.page {
                while self.next_row < page.rows() {
                    if left == 0 {
                        return Ok(Progress::Limit);
                    }
                    let values = B::row_bytes(&self.columns, page, self.next_row, formats);
                    let bytes = Reply::row_bytes(columns, values);
                    if !wire.reply.has_room(bytes) {
                        wire.make_room(bytes, source).await?;
                    }
                    let mut row = wire.reply.row(columns);
                    for column in 0..columns {
                        row.value(|out| {
                            B::encode(&self.columns, page, self.next_row, column, formats.of(column), out)
                        })?;
                    }
                    row.finish()?;
                    self.next_row += 1;
                    self.sent += 1;
                    left -= 1;
                    wire.flush_rows_if_full(source).await?;
                }
            }
            if left == 0 {
                return Ok(Progress::Limit);
            }
            self.page = wire.watch(pin!(source.next())).await?;
            self.next_row = 0;
            if self.page.is_none() {
                return Ok(Progress::Finished);
            }
        }
    }
}

/// The rest of a result in memory: what a portal becomes when it is suspended and its session is needed otherwise.
pub struct Held<B: Backend> {
    pages: VecDeque<B::Page>,
    pub(crate) sender: Sender<B>,
    /// Whether they tell what a command did: see [`RowStream::has_ended`].
    pub(crate) has_ended: bool,
    /// All of it is given back when the portal ends.
    _memory: Reservation,
}

impl<B: Backend> Held<B> {
    /// Reads the source to its end and finishes the statement.
    pub async fn collect<T: Transport, S: RowStream<Page = B::Page>>(
        wire: &mut Wire<T>,
        mut source: S,
        sender: Sender<B>,
    ) -> Result<Held<B>, Failure> {
        let (mut pages, has_ended) = (VecDeque::new(), source.has_ended());
        let memory = wire.memory().reserve("suspended portal");
        source.read_ahead();
        while let Some(page) = wire.watch(pin!(source.next())).await? {
            memory.grow(page.bytes() as u64).map_err(|exceeded| {
                Report::error(SqlState::OUT_OF_MEMORY, exceeded.to_string())
                    .with_hint("Fetch a result to its end before running another statement, or close its portal.")
            })?;
            pages.push_back(page);
        }
        wire.watch(pin!(source.finish(sender.sent))).await?;
        Ok(Held { pages, sender, has_ended, _memory: memory })
    }

    pub async fn send<T: Transport>(
        &mut self,
        wire: &mut Wire<T>,
        formats: &Formats,
        limit: Option<u32>,
    ) -> Result<Progress, Failure> {
        let Held { pages, sender, .. } = self;
        sender.send(wire, &mut Pages(pages), formats, limit).await
    }
}

struct Pages<'a, P>(&'a mut VecDeque<P>);

impl<P: Page> RowStream for Pages<'_, P> {
    type Page = P;
    type Columns = ();

    fn columns(&self) {}

    async fn next(&mut self) -> Result<Option<P>, Report> {
        Ok(self.0.pop_front())
    }

    fn read_ahead(&mut self) {}

    async fn finish(self, rows_sent: u64) -> Result<String, Report> {
        Ok(select_tag(rows_sent))
    }
}

/// The tag of a portal that has no rows left.
pub(crate) fn select_tag(rows: u64) -> String {
    format!("SELECT {rows}")
}
