//! COPY ... FROM: data is read here and loaded by a task of its own, which holds the transaction meanwhile.
//!
//! ```text
//!   session task: bytes -> CopyReader -> batches --bounded channel--> load task: BulkLoad -> sealed segments
//! ```
//! The load task gives the transaction back with its result. A bad row fails the statement; nothing of it stays.
//!
//! Each batch comes with what was reserved for it, which is given back when the bulk load has the rows, or when the
//! batch is dropped. So a load that ends early, for whatever reason, leaves nothing reserved.

use std::sync::Arc;

use eris_engine::{EngineError, Transaction, yield_now};
use tokio::sync::{mpsc, oneshot};

use super::copy_rows::{COPY, CopyBatch, CopyReader};
use super::outcome::CommandTag;
use super::session::Session;
use super::source_file::SourceFile;
use super::states::Step;
use crate::catalog::Table;
use crate::errors::{SqlError, SqlState};
use crate::front::{CopyCommand, CopySource};
use crate::plan::engine_error;

/// Batches that wait for the load task at most.
const WAITING_BATCHES_MAX: usize = 2;

enum Message {
    Rows(CopyBatch),
    Finish,
}

type Loaded = (Transaction, Result<u64, EngineError>);

/// A load under way.
struct Load {
    table: Arc<Table>,
    reader: CopyReader,
    sender: Option<mpsc::Sender<Message>>,
    result: oneshot::Receiver<Loaded>,
}

async fn load(
    mut transaction: Transaction,
    table: Arc<Table>,
    mut receiver: mpsc::Receiver<Message>,
    done: oneshot::Sender<Loaded>,
) {
    let result = async {
        let mut bulk = transaction.bulk(table.container())?;
        loop {
            match receiver.recv().await {
                Some(Message::Rows(CopyBatch { rows, memory })) => {
                    bulk.append(rows).await?;
                    // It has reserved them itself.
                    drop(memory);
                }
                Some(Message::Finish) => return bulk.finish().await,
                // The session gave up.
                None => return Err(EngineError::Cancelled),
            }
        }
    }
    .await;
    // The session hears of the end when what it has sent is given back.
    drop(receiver);
    // If the session is gone, dropping the transaction rolls it back.
    let _ = done.send((transaction, result));
}

impl Load {
    async fn feed(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // A piece may have the bytes of many batches: each is sent before the next one is read.
            let taken = self.reader.feed(rest)?;
            rest = &rest[taken..];
            self.send_ready().await?;
        }
        Ok(())
    }

    async fn send_ready(&mut self) -> Result<(), SqlError> {
        if let Some(batch) = self.reader.take_batch()
            && !self.send(Message::Rows(batch)).await
        {
            return Err(SqlError::internal("the load ended early"));
        }
        Ok(())
    }

    async fn send(&mut self, message: Message) -> bool {
        match &self.sender {
            Some(sender) => sender.send(message).await.is_ok(),
            None => false,
        }
    }

    /// Ends the load; gives the transaction back.
    async fn finish(mut self, outcome: Result<(), SqlError>) -> (Option<Transaction>, Result<u64, SqlError>) {
        let outcome = match outcome {
            Ok(()) => match self.reader.finish() {
                Ok(()) => self.send_ready().await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            // If the task has ended already, its result says why.
            self.send(Message::Finish).await;
        }
        self.sender = None;
        let (transaction, loaded) = match (&mut self.result).await {
            Ok((transaction, loaded)) => (Some(transaction), loaded),
            Err(_) => (None, Err(EngineError::OperatorPanicked("the load task".to_string()))),
        };
        let rows = match (outcome, loaded) {
            // What was wrong with the data comes first, unless the load failed before it was found.
            (Err(error), Ok(_) | Err(EngineError::Cancelled)) if error.sqlstate != SqlState::INTERNAL => Err(error),
            (_, Err(error)) => Err(engine_error(&error, Some(&self.table))),
            (Err(error), Ok(_)) => Err(error),
            (Ok(()), Ok(rows)) => Ok(rows),
        };
        (transaction, rows)
    }
}

impl Session {
    /// Starts a load; the session's transaction goes with it.
    fn start_load(&mut self, command: &CopyCommand) -> Result<Load, SqlError> {
        let catalog = self.overlay.version(self.database.catalog())?;
        let table = Arc::clone(catalog.table(&command.table)?);
        let values = self.values();
        let scope = self.scope(&catalog, &values);
        let defaults = table
            .columns
            .iter()
            .map(|column| scope.default_of(column).map(|(value, _)| value))
            .collect::<Result<Box<[_]>, SqlError>>()?;
        let memory = self.database.engine().memory().reserve(COPY);
        let reader = CopyReader::new(&table, &command.columns, command.format.clone(), defaults, memory)?;
        self.transaction();
        let Some(transaction) = self.transaction.take() else {
            return Err(SqlError::internal("a load without a transaction"));
        };
        let (sender, receiver) = mpsc::channel(WAITING_BATCHES_MAX);
        let (done, result) = oneshot::channel();
        self.database.engine().spawn(load(transaction, Arc::clone(&table), receiver, done));
        Ok(Load { table, reader, sender: Some(sender), result })
    }

    /// COPY FROM STDIN.
    pub(super) fn copy_in(&mut self, command: &CopyCommand, step: Step) -> Result<CopyIn<'_>, SqlError> {
        match self.start_load(command) {
            Ok(load) => Ok(CopyIn { session: self, load: Some(load), step }),
            Err(error) => {
                self.failed();
                Err(error)
            }
        }
    }

    /// COPY FROM 'file'.
    pub(super) async fn copy_file(&mut self, command: &CopyCommand) -> Result<u64, SqlError> {
        let CopySource::File(path) = &command.source else {
            return Err(SqlError::internal("COPY without a file"));
        };
        // Who may read the file but not fill the table is to hear of the table.
        self.overlay.version(self.database.catalog())?.table(&command.table)?;
        let engine = self.database.engine();
        let env = Arc::clone(engine.env());
        let mut source = SourceFile::open(&env, path, self.activity.handle()).await?;
        let pieces = engine.memory().reserve(COPY);
        pieces.grow(SourceFile::HELD_BYTES).map_err(SqlError::out_of_memory)?;
        let mut load = self.start_load(command)?;
        let outcome = loop {
            let fed = match source.next().await {
                Ok([]) => break Ok(()),
                Ok(bytes) => load.feed(bytes).await,
                Err(error) => Err(error),
            };
            if let Err(error) = fed {
                break Err(error);
            }
            yield_now().await;
        };
        drop(source);
        drop(pieces);
        let (transaction, rows) = load.finish(outcome).await;
        self.transaction = transaction;
        rows
    }
}

/// COPY FROM STDIN, waiting for data. Dropping it fails the statement.
pub struct CopyIn<'s> {
    session: &'s mut Session,
    load: Option<Load>,
    step: Step,
}

impl CopyIn<'_> {
    /// Fields of a record.
    pub fn columns(&self) -> usize {
        self.load.as_ref().map_or(0, |load| load.reader.fields())
    }

    /// Takes a piece of data. After an error the statement is over.
    pub async fn data(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        let Some(load) = &mut self.load else { return Ok(()) };
        let fed = load.feed(bytes).await;
        match fed {
            Ok(()) => Ok(()),
            Err(error) => match self.end(Err(error)).await {
                Err(error) => Err(error),
                Ok(_) => Err(SqlError::internal("a load that failed succeeded")),
            },
        }
    }

    /// The data is complete.
    pub async fn finish(mut self) -> Result<CommandTag, SqlError> {
        self.end(Ok(())).await.map(CommandTag::Copy)
    }

    /// The client gave up.
    pub async fn fail(mut self, reason: &str) -> SqlError {
        let error = SqlError::new(SqlState::CANCELED, format!("COPY from stdin failed: {reason}"));
        match self.end(Err(error.clone())).await {
            Err(error) => error,
            Ok(_) => error,
        }
    }

    async fn end(&mut self, outcome: Result<(), SqlError>) -> Result<u64, SqlError> {
        let Some(load) = self.load.take() else { return Err(SqlError::cancelled()) };
        let (transaction, rows) = load.finish(outcome).await;
        self.session.transaction = transaction;
        match rows {
            Ok(rows) => match self.session.succeeded(self.step).await {
                Ok(()) => Ok(rows),
                Err(error) => {
                    self.session.fail(&error).await;
                    Err(error)
                }
            },
            Err(error) => {
                let error = self.session.activity.explain(error);
                self.session.fail(&error).await;
                Err(error)
            }
        }
    }
}

impl Drop for CopyIn<'_> {
    fn drop(&mut self) {
        if self.load.take().is_some() {
            self.session.failed();
        }
    }
}
