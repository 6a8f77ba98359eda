//! A connection of this process: SQL on a session, from a thread that waits for the answer.
//!
//! The session travels: each call moves it into a task of the engine, where the statements run, and takes it back with
//! the answer. Results come over a bounded queue, page by page, so that a large one needs no memory for all of it.

use std::future::Future;
use std::io::Read;
use std::sync::Arc;

use eris_engine::Engine;
use eris_sql::{
    ColumnDescription, Notice, Outcome, Prepared, Session, SessionCancel, SqlError, SqlState, SqlType,
    TransactionStatus,
};
use eris_storage::{Batch, Value};

use crate::channel::{Receiver, Sender, channel};
use crate::results::QueryResult;

/// Bytes handed to a `COPY ... FROM STDIN` at one time.
const COPY_BYTES: usize = 1 << 18;

/// One session. Dropped, its open transaction is rolled back.
pub struct Connection {
    engine: Engine,
    /// `None` after a task took it and did not come back.
    session: Option<Session>,
    cancel: SessionCancel,
}

/// What comes of statements, in this order for each: columns and batches if it returns rows, notices, then `Done`.
#[derive(Debug)]
pub enum Event {
    Columns(Vec<ColumnDescription>),
    Batch(Batch),
    /// What the client should know beside the outcome; may come for any statement.
    Notice(Notice),
    /// The command tag; empty for a statement without text.
    Done(String),
}

/// A prepared statement of one connection.
#[derive(Clone)]
pub struct Statement(Arc<Prepared>);

impl Statement {
    /// The types of its parameters, in order.
    pub fn parameters(&self) -> &[SqlType] {
        self.0.parameters()
    }

    /// Whether it is a `COPY ... FROM STDIN`, which [`Connection::copy_in`] runs.
    pub fn takes_data(&self) -> bool {
        self.0.takes_data()
    }
}

/// What a task sends to the thread that waits for it.
enum Message {
    Event(Event),
    /// The session comes back with the result of the whole.
    End(Box<Session>, Result<(), SqlError>),
}

impl Connection {
    pub(crate) fn new(engine: Engine, session: Session) -> Connection {
        let cancel = session.cancel_handle();
        Connection { engine, session: Some(session), cancel }
    }

    /// Runs all statements of a text and returns what the last one did. The first that fails ends it.
    pub fn execute(&mut self, sql: &str) -> Result<QueryResult, SqlError> {
        let mut collector = Collector::default();
        self.run(sql, |event| collector.add(event))?;
        Ok(collector.last)
    }

    /// The same; reads better where rows are expected.
    pub fn query(&mut self, sql: &str) -> Result<QueryResult, SqlError> {
        self.execute(sql)
    }

    /// Prepares one statement, with parameters `$1`, `$2` and onwards.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement, SqlError> {
        match self.session()?.prepare_one(sql, &[])? {
            Some(statement) => Ok(Statement(statement)),
            None => Err(SqlError::new(SqlState::SYNTAX, "expected one statement to prepare")),
        }
    }

    /// Runs a prepared statement.
    pub fn execute_prepared(&mut self, statement: &Statement, parameters: &[Value]) -> Result<QueryResult, SqlError> {
        let mut collector = Collector::default();
        let (statement, parameters) = (Arc::clone(&statement.0), parameters.to_vec());
        let answers = self.start(|mut session, sender| async move {
            let result = execute_one(&mut session, &statement, &parameters, &sender).await;
            sender.send(Message::End(Box::new(session), result)).await;
        })?;
        self.finish(&answers, |event| collector.add(event))?;
        Ok(collector.last)
    }

    /// Runs all statements of a text and hands over what comes, while it comes.
    pub fn run(&mut self, sql: &str, on_event: impl FnMut(Event)) -> Result<(), SqlError> {
        let mut script = self.session()?.script(sql)?;
        let answers = self.start(|mut session, sender| async move {
            let result = loop {
                let statement = match session.next_of(&mut script) {
                    Ok(Some(statement)) => statement,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                };
                let executed = execute_one(&mut session, &statement, &[], &sender).await;
                if executed.is_err() {
                    break executed;
                }
            };
            sender.send(Message::End(Box::new(session), result)).await;
        })?;
        self.finish(&answers, on_event)
    }

    /// Runs a `COPY ... FROM STDIN` with the data of `input`; returns the rows copied. All of them are, or none.
    pub fn copy_in(&mut self, sql: &str, input: &mut dyn Read) -> Result<u64, SqlError> {
        let statement = self.prepare(sql)?.0;
        let (pieces, data) = channel();
        let answers = self.start(|session, sender| async move {
            copy_data(session, &statement, data, sender).await;
        })?;
        loop {
            let mut piece = vec![0; COPY_BYTES];
            let sent = match input.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    piece.truncate(count);
                    pieces.send_blocking(Ok(piece))
                }
                Err(error) => {
                    pieces.send_blocking(Err(error.to_string()));
                    break;
                }
            };
            // The statement failed: the answer says why.
            if !sent {
                break;
            }
        }
        drop(pieces);
        let mut collector = Collector::default();
        self.finish(&answers, |event| collector.add(event))?;
        Ok(collector.last.rows_affected())
    }

    pub fn status(&self) -> TransactionStatus {
        self.session.as_ref().map_or(TransactionStatus::Failed, Session::status)
    }

    /// Cancels the running statement from another thread.
    pub fn cancel_handle(&self) -> SessionCancel {
        self.cancel.clone()
    }

    fn session(&mut self) -> Result<&mut Session, SqlError> {
        self.session.as_mut().ok_or_else(gone)
    }

    /// Sends the session into a task.
    fn start<F>(&mut self, work: impl FnOnce(Session, Sender<Message>) -> F) -> Result<Receiver<Message>, SqlError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let session = self.session.take().ok_or_else(gone)?;
        let (sender, receiver) = channel();
        self.engine.spawn(work(session, sender));
        Ok(receiver)
    }

    /// Takes what the task sends, and at last the session.
    fn finish(&mut self, answers: &Receiver<Message>, mut on_event: impl FnMut(Event)) -> Result<(), SqlError> {
        loop {
            match answers.receive_blocking() {
                Some(Message::Event(event)) => on_event(event),
                Some(Message::End(session, result)) => {
                    self.session = Some(*session);
                    return result;
                }
                None => return Err(gone()),
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.engine.spawn(session.close());
        }
    }
}

/// Keeps the result of the last statement.
#[derive(Default)]
struct Collector {
    last: QueryResult,
    done: bool,
}

impl Collector {
    fn add(&mut self, event: Event) {
        if self.done {
            *self = Collector::default();
        }
        match event {
            Event::Columns(columns) => self.last.columns = columns,
            Event::Batch(batch) => self.last.batches.push(batch),
            Event::Notice(_) => (),
            Event::Done(tag) => {
                self.last.tag = tag;
                self.done = true;
            }
        }
    }
}

async fn execute_one(
    session: &mut Session,
    statement: &Arc<Prepared>,
    parameters: &[Value],
    sender: &Sender<Message>,
) -> Result<(), SqlError> {
    let tag = match session.execute(statement, parameters).await? {
        Outcome::Empty => String::new(),
        Outcome::Complete(tag) => tag.to_string(),
        Outcome::Rows(mut rows) => {
            sender.send(Message::Event(Event::Columns(rows.columns().to_vec()))).await;
            let mut count = 0;
            while let Some(batch) = rows.next().await? {
                count += batch.rows as u64;
                if !sender.send(Message::Event(Event::Batch(batch))).await {
                    break;
                }
            }
            let tag = rows.tag(count).to_string();
            rows.finish().await?;
            tag
        }
        Outcome::CopyIn(copy) => {
            return Err(copy.fail("data for COPY ... FROM STDIN needs a call of its own").await);
        }
    };
    for notice in session.take_notices() {
        sender.send(Message::Event(Event::Notice(notice))).await;
    }
    sender.send(Message::Event(Event::Done(tag))).await;
    Ok(())
}

async fn copy_data(
    mut session: Session,
    statement: &Arc<Prepared>,
    data: Receiver<Result<Vec<u8>, String>>,
    sender: Sender<Message>,
) {
    let result = async {
        let Outcome::CopyIn(mut copy) = session.execute(statement, &[]).await? else {
            return Err(SqlError::new(SqlState::SYNTAX, "expected a COPY ... FROM STDIN"));
        };
        while let Some(piece) = data.receive().await {
            match piece {
                Ok(piece) => copy.data(&piece).await?,
                Err(reason) => return Err(copy.fail(&reason).await),
            }
        }
        copy.finish().await.map(|tag| tag.to_string())
    }
    .await;
    // The thread that reads stops when this is gone.
    drop(data);
    let result = match result {
        Ok(tag) => {
            sender.send(Message::Event(Event::Done(tag))).await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    sender.send(Message::End(Box::new(session), result)).await;
}

fn gone() -> SqlError {
    SqlError::new(SqlState::SHUTDOWN, "the database is closed")
}
