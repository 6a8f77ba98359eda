//! The extended protocol: prepared statements, portals, and executions with a row limit.
//!
//! A portal with a row limit may be *suspended*. While the client goes on with the same portal its result stays a
//! stream: `execute` looks at the messages that follow and answers those that do not need the session. When another
//! statement needs it, the rest of the result moves into memory ([`Held`]). A portal lives until it is closed, replaced
//! or its transaction ends.
//!
//! All that is executed between two Syncs is one transaction, unless there is a block: an error undoes it whole, and
//! Sync commits it.

use std::pin::pin;
use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};

use crate::protocol::backend::{Backend, Commit, Outcome, RowStream, TransactionStatus};
use crate::protocol::connection::Connection;
use crate::protocol::copy::copy_in;
use crate::protocol::frames::Frame;
use crate::protocol::frontend::{self, Formats, Kind, Target};
use crate::protocol::names::ByName;
use crate::protocol::report::{Report, SqlState};
use crate::protocol::rows::{Held, Progress, Sender, select_tag};
use crate::protocol::wire::{Failure, Transport, Wire, first_of};

/// Prepared statements and portals of a connection; the unnamed ones have the empty name.
pub(crate) struct Portals<B: Backend> {
    /// `None` is a statement without text.
    statements: ByName<Named<B>>,
    portals: ByName<Portal<B>>,
}

impl<B: Backend> Default for Portals<B> {
    fn default() -> Self {
        Portals { statements: ByName::default(), portals: ByName::default() }
    }
}

impl<B: Backend> Portals<B> {
    pub(crate) fn transaction_ends(&mut self) {
        self.portals.clear();
    }

    pub(crate) fn simple_query(&mut self) {
        self.statements.remove("");
        self.portals.remove("");
    }

    fn statement(&self, name: &str) -> Result<&Option<B::Statement>, Report> {
        self.statements.get(name).map(|named| &named.statement).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Report::error(SqlState::INVALID_STATEMENT_NAME, message)
        })
    }
}

/// A prepared statement.
struct Named<B: Backend> {
    statement: Option<B::Statement>,
    /// Of one with a name: a client may give as many as it likes.
    _memory: Option<Reservation>,
}

/// A statement with its parameters.
struct Portal<B: Backend> {
    statement: Option<B::Statement>,
    /// Of one with a name, or with large parameters.
    _memory: Option<Reservation>,
    parameters: Vec<B::Value>,
    formats: Formats,
    state: State<B>,
}

enum State<B: Backend> {
    /// Not executed yet.
    Bound,
    /// Suspended, with the rest of its rows in memory.
    Held(Held<B>),
    /// Suspended, and the rest of its rows could not be brought into memory: the next execution says why.
    Lost(Report),
    /// Executed to its end, or failed.
    Done,
}

/// Bytes of a portal without its parameters, about.
const PORTAL_BYTES: usize = 1 << 10;
/// Parameters of the unnamed portal that are not accounted for: of these there is one set in a connection.
const PORTAL_BYTES_FREE: usize = 1 << 16;

/// So many prepared statements of a connection, none of which has more than so many bytes, are refused by no limit: a
/// client may prepare what empties a full database, and what tells it what fills it.
const STATEMENTS_FREE: usize = 4;
const STATEMENT_BYTES_FREE: usize = 32 << 10;

/// Reserves what a client has given a name to.
fn kept(memory: &Arc<MemoryPool>, what: &'static str, bytes: usize) -> Result<Reservation, Report> {
    let reservation = memory.reserve(what);
    reservation.grow(bytes as u64).map_err(|exceeded| {
        Report::error(SqlState::OUT_OF_MEMORY, exceeded.to_string())
            .with_hint("Close prepared statements and portals that are not needed any more, or raise --memory-limit.")
    })?;
    Ok(reservation)
}

/// What an execution came to.
enum Executed<B: Backend> {
    Empty,
    Complete(String),
    /// The client was told that the portal is suspended.
    Suspended(State<B>),
}

impl<T: Transport, B: Backend> Connection<T, B> {
    pub(crate) fn parse(&mut self, frame: &Frame) -> Result<(), Failure> {
        let result = self.parse_body(frame);
        self.wire.frames.release(frame);
        let (name, statement) = result?;
        self.portals.statements.insert(name, statement);
        self.wire.reply.parse_complete();
        Ok(())
    }

    fn parse_body(&mut self, frame: &Frame) -> Result<(String, Named<B>), Report> {
        let parse = frontend::parse(self.wire.frames.body(frame))?;
        if parse.name.is_empty() {
            self.portals.statements.remove("");
        } else if self.portals.statements.get(parse.name).is_some() {
            return Err(Report::error(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{}\" already exists", parse.name),
            ));
        }
        let statement = self.backend.prepare(parse.sql, &parse.parameter_types)?;
        let memory = if parse.name.is_empty() {
            None
        } else {
            let bytes = parse.name.len() + statement.as_ref().map_or(0, B::statement_bytes);
            let is_free = self.portals.statements.named() < STATEMENTS_FREE && bytes <= STATEMENT_BYTES_FREE;
            let memory = self.wire.memory();
            let memory = if is_free { memory.counted() } else { Arc::clone(memory) };
            Some(kept(&memory, "prepared statements", bytes)?)
        };
        Ok((parse.name.to_owned(), Named { statement, _memory: memory }))
    }

    pub(crate) fn bind(&mut self, frame: &Frame) -> Result<(), Failure> {
        let result = self.bind_body(frame);
        self.wire.frames.release(frame);
        let (name, portal) = result?;
        self.portals.portals.insert(name, portal);
        self.wire.reply.bind_complete();
        Ok(())
    }

    fn bind_body(&self, frame: &Frame) -> Result<(String, Portal<B>), Report> {
        let bind = frontend::bind(self.wire.frames.body(frame))?;
        let statement = self.portals.statement(bind.statement)?;
        if !bind.portal.is_empty() && self.portals.portals.get(bind.portal).is_some() {
            return Err(Report::error(
                SqlState::DUPLICATE_CURSOR,
                format!("cursor \"{}\" already exists", bind.portal),
            ));
        }
        let wanted = statement.as_ref().map_or(0, B::parameter_count);
        let given = bind.parameters.len();
        if given != wanted {
            return Err(Report::protocol(format!(
                "bind message supplies {given} parameters, but prepared statement \"{}\" requires {wanted}",
                bind.statement
            )));
        }
        if let Some(formats) = bind.parameter_formats.misfit(given) {
            return Err(Report::protocol(format!(
                "bind message has {formats} parameter formats but {given} parameters"
            )));
        }
        let columns = statement.as_ref().and_then(B::columns).map_or(0, |columns| B::column_count(&columns));
        // Formats for a statement without rows are a habit of some drivers.
        if columns > 0
            && let Some(formats) = bind.result_formats.misfit(columns)
        {
            return Err(Report::protocol(format!(
                "bind message has {formats} result formats but query has {columns} columns"
            )));
        }
        let mut parameters = Vec::with_capacity(given);
        if let Some(statement) = statement {
            for (index, bytes) in bind.parameters.iter().enumerate() {
                parameters.push(B::value(statement, index, bind.parameter_formats.of(index), *bytes)?);
            }
        }
        let bytes = self.wire.frames.body(frame).len();
        let memory = if bind.portal.is_empty() && bytes <= PORTAL_BYTES_FREE {
            None
        } else {
            Some(kept(self.wire.memory(), "portals", PORTAL_BYTES + 2 * bytes)?)
        };
        let formats = bind.result_formats;
        let (statement, state) = (statement.clone(), State::Bound);
        Ok((bind.portal.to_owned(), Portal { statement, _memory: memory, parameters, formats, state }))
    }

    pub(crate) fn describe(&mut self, frame: &Frame) -> Result<(), Failure> {
        let result = self.describe_body(frame);
        self.wire.frames.release(frame);
        Ok(result?)
    }

    fn describe_body(&mut self, frame: &Frame) -> Result<(), Report> {
        let named = frontend::named(self.wire.frames.body(frame))?;
        let (statement, formats) = match named.target {
            Target::Statement => {
                let statement = self.portals.statement(named.name)?;
                let types = statement.as_ref().map(B::parameter_types).unwrap_or_default();
                self.wire.reply.parameter_description(&types);
                (statement, &Formats::default())
            }
            Target::Portal => {
                let portal = self.portals.portals.get(named.name).ok_or_else(|| unknown_portal(named.name))?;
                (&portal.statement, &portal.formats)
            }
        };
        match statement.as_ref().and_then(B::columns) {
            Some(columns) => self.wire.reply.row_description(
                (0..B::column_count(&columns)).map(|index| (B::column(&columns, index), formats.of(index))),
            )?,
            None => self.wire.reply.no_data(),
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, frame: &Frame) -> Result<(), Failure> {
        let result = frontend::named(self.wire.frames.body(frame)).map(|named| match named.target {
            Target::Statement => drop(self.portals.statements.remove(named.name)),
            Target::Portal => drop(self.portals.portals.remove(named.name)),
        });
        self.wire.frames.release(frame);
        result?;
        self.wire.reply.close_complete();
        Ok(())
    }

    pub(crate) async fn execute(&mut self, frame: Frame) -> Result<(), Failure> {
        let request = frontend::execute(self.wire.frames.body(&frame))
            .map(|request| (request.portal.to_owned(), request.row_limit));
        self.wire.frames.release(&frame);
        let (name, limit) = request?;
        // Out of the map while it runs: a failed or vanished execution must not leave a portal that runs again.
        let mut portal = self.portals.portals.remove(&name).ok_or_else(|| unknown_portal(&name))?;
        let in_block = self.backend.status() == TransactionStatus::InTransaction;
        self.wire.signal.statement_begins();
        let executed = self.execute_portal(&name, &mut portal, limit, in_block).await;
        self.wire.signal.statement_ends();
        for notice in self.backend.take_notices() {
            self.wire.reply.report(&notice);
        }
        let mut ends = false;
        portal.state = match executed {
            Err(failure) => {
                portal.state = State::Done;
                self.portals.portals.insert(name, portal);
                return Err(failure);
            }
            Ok(Executed::Empty) => {
                self.wire.reply.empty_query();
                State::Done
            }
            Ok(Executed::Complete(tag)) => {
                ends = matches!(tag.as_str(), "COMMIT" | "ROLLBACK");
                self.complete(&tag);
                State::Done
            }
            Ok(Executed::Suspended(state)) => state,
        };
        self.portals.portals.insert(name, portal);
        if ends {
            self.portals.transaction_ends();
        }
        Ok(())
    }

    async fn execute_portal(
        &mut self,
        name: &str,
        portal: &mut Portal<B>,
        limit: Option<u32>,
        in_block: bool,
    ) -> Result<Executed<B>, Failure> {
        let Some(statement) = &portal.statement else { return Ok(Executed::Empty) };
        let wire = &mut self.wire;
        match std::mem::replace(&mut portal.state, State::Done) {
            State::Bound => (),
            State::Held(_) | State::Lost(_) if self.backend.status() == TransactionStatus::Failed => {
                let message = "current transaction is aborted, commands ignored until end of transaction block";
                return Err(Report::error(SqlState::IN_FAILED_TRANSACTION, message).into());
            }
            State::Held(mut held) => {
                if held.has_ended {
                    wire.signal.statement_ends();
                }
                return Ok(match held.send(wire, &portal.formats, limit).await? {
                    Progress::Finished => Executed::Complete(select_tag(held.sender.sent)),
                    Progress::Limit => {
                        wire.reply.portal_suspended();
                        Executed::Suspended(State::Held(held))
                    }
                });
            }
            State::Lost(report) => return Err(report.into()),
            State::Done if B::columns(statement).is_some() => return Ok(Executed::Complete(select_tag(0))),
            State::Done => {
                return Err(Report::error(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("portal \"{name}\" cannot be run"),
                )
                .into());
            }
        }
        let outcome = wire.watch(pin!(self.backend.execute(statement, &portal.parameters, Commit::AtSync))).await?;
        let mut rows = match outcome {
            Outcome::Empty => return Ok(Executed::Empty),
            Outcome::Complete(tag) => return Ok(Executed::Complete(tag)),
            Outcome::CopyIn(sink) => return copy_in(wire, sink).await.map(Executed::Complete),
            Outcome::Rows(rows) => rows,
        };
        if rows.has_ended() {
            wire.signal.statement_ends();
        }
        let mut sender = Sender::<B>::new(rows.columns());
        let mut limit = limit;
        while sender.send(wire, &mut rows, &portal.formats, limit).await? == Progress::Limit {
            wire.reply.portal_suspended();
            // Between two executions no statement runs that a request could cancel.
            wire.signal.statement_ends();
            rows.suspend();
            let next = after_suspension(wire, &mut rows, name, in_block).await?;
            if !rows.has_ended() {
                wire.signal.statement_begins();
                rows.resume();
            }
            match next {
                Next::More(more) => limit = more,
                Next::End => {
                    wire.watch(pin!(rows.finish(sender.sent))).await?;
                    return Ok(Executed::Suspended(State::Done));
                }
                Next::Lost(report) => return Ok(Executed::Suspended(State::Lost(report))),
                // An error here is not one of the message that follows, and the Execute has been answered.
                Next::Other => match Held::collect(wire, rows, sender).await {
                    Ok(held) => return Ok(Executed::Suspended(State::Held(held))),
                    Err(Failure::Statement(report) | Failure::Refused(_, report)) => {
                        return Ok(Executed::Suspended(State::Lost(report)));
                    }
                    Err(stop) => return Err(stop),
                },
            }
        }
        let tag = wire.watch(pin!(rows.finish(sender.sent))).await?;
        Ok(Executed::Complete(tag))
    }
}

/// What the client does with a suspended portal.
enum Next {
    /// It wants more rows.
    More(Option<u32>),
    /// It has finished with it; the message that says so is still to be worked on.
    End,
    /// It sent something that needs the session; that message is still to be worked on.
    Other,
    /// Nothing yet, but the rows could not be made while they were set aside.
    Lost(Report),
}

/// Looks at the messages behind a `PortalSuspended` and answers those that leave the stream alone.
async fn after_suspension<T: Transport, S: RowStream>(
    wire: &mut Wire<T>,
    rows: &mut S,
    name: &str,
    in_block: bool,
) -> Result<Next, Failure> {
    loop {
        let frame = match first_of(wire.frame(), rows.are_in_the_way()).await {
            Err(()) => {
                rows.read_ahead();
                match wire.watch(pin!(rows.set_aside())).await {
                    Ok(()) => continue,
                    Err(report) => return Ok(Next::Lost(report)),
                }
            }
            Ok(Err(Failure::Refused(kind, report))) => {
                wire.put_back(kind, report);
                return Ok(Next::Other);
            }
            Ok(other) => other?,
        };
        match frame.kind {
            Kind::Execute => {
                let limit = match frontend::execute(wire.frames.body(&frame)) {
                    Ok(execute) if execute.portal == name => execute.row_limit,
                    _ => return Ok(Next::Other),
                };
                wire.frames.release(&frame);
                return Ok(Next::More(limit));
            }
            Kind::Flush => {
                wire.frames.release(&frame);
                wire.flush().await?;
            }
            Kind::Sync if in_block => {
                wire.frames.release(&frame);
                wire.reply.ready_for_query(TransactionStatus::InTransaction);
                wire.flush().await?;
            }
            Kind::Sync | Kind::Terminate => return Ok(Next::End),
            Kind::Close => {
                let own = frontend::named(wire.frames.body(&frame))
                    .is_ok_and(|named| named.target == Target::Portal && named.name == name);
                return Ok(if own { Next::End } else { Next::Other });
            }
            _ => return Ok(Next::Other),
        }
    }
}

fn unknown_portal(name: &str) -> Report {
    Report::error(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}
