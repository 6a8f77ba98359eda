//! Files of the server that statements read.
//!
//! ```text
//!   session task:  next ──────> bytes ──────> next ──────> bytes
//!                        │                         │
//!   file thread:   open, read ──> read ahead ──────┴──> read ahead ...
//! ```
//! A file may lie on a disk that answers late or never. So each source has a thread of its own, which opens it and
//! reads one piece ahead, and the session's task waits for it as it waits for anything: others run, and a cancel is
//! heard.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use eris_engine::CancelHandle;
use eris_platform::io_queue::{self, IoTask};
use eris_platform::{Env, File, IoQueue, NotRegular};

use super::cancel::unless_cancelled;
use crate::errors::SqlError;
pub(super) use crate::errors::file_state;

/// Bytes read at once; two pieces are held.
const PIECE_BYTES: usize = 256 << 10;

/// A file that is read from its beginning to its end.
pub(super) struct SourceFile {
    path: String,
    queue: Arc<dyn IoQueue>,
    cancel: CancelHandle,
    /// The piece that is read ahead; none at the end of the file.
    ahead: Option<IoTask<Piece>>,
    bytes: Vec<u8>,
}

/// What a read gives back.
struct Piece {
    /// None at the end: the thread closes it.
    file: Option<Box<dyn File>>,
    buffer: Vec<u8>,
    outcome: io::Result<usize>,
}

impl Piece {
    fn read(mut file: Box<dyn File>, mut buffer: Vec<u8>) -> Self {
        buffer.resize(PIECE_BYTES, 0);
        let outcome = loop {
            match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        let file = outcome.as_ref().is_ok_and(|read| *read > 0).then_some(file);
        Self { file, buffer, outcome }
    }
}

impl SourceFile {
    /// What one has in memory, for its owner to reserve.
    pub const HELD_BYTES: u64 = 2 * PIECE_BYTES as u64;

    pub async fn open(env: &Arc<dyn Env>, path: &str, cancel: CancelHandle) -> Result<Self, SqlError> {
        let failed = |error| file_error(&error, &format!("could not open file \"{path}\" for reading"));
        let queue = env.io_queue("eris-copy").map_err(failed)?;
        let of_job = PathBuf::from(path);
        let mut source = Self { path: path.to_owned(), queue, cancel, ahead: None, bytes: Vec::new() };
        let opened = io_queue::run(&source.queue, move |files| files.open(&of_job));
        let file = unless_cancelled(&source.cancel, opened).await?.and_then(|opened| opened).map_err(failed)?;
        source.read_ahead(file, Vec::new());
        Ok(source)
    }

    fn read_ahead(&mut self, file: Box<dyn File>, buffer: Vec<u8>) {
        self.ahead = Some(io_queue::run(&self.queue, move |_| Piece::read(file, buffer)));
    }

    /// The next bytes; none at the end of the file.
    pub async fn next(&mut self) -> Result<&[u8], SqlError> {
        let Some(ahead) = self.ahead.take() else { return Ok(&[]) };
        let piece = unless_cancelled(&self.cancel, ahead).await?;
        let failed = |error| file_error(&error, &format!("could not read file \"{}\"", self.path));
        let Piece { file, buffer, outcome } = piece.map_err(failed)?;
        let read = outcome.map_err(failed)?;
        let spare = std::mem::replace(&mut self.bytes, buffer);
        if let Some(file) = file {
            self.read_ahead(file, spare);
        }
        Ok(&self.bytes[..read])
    }
}

impl Drop for SourceFile {
    fn drop(&mut self) {
        // The thread may be waiting for the file still.
        io_queue::release(&self.queue);
    }
}

/// What is told when a file of the server cannot be used.
fn file_error(error: &io::Error, what: &str) -> SqlError {
    let told = SqlError::new(file_state(error), format!("{what}: {error}"));
    if NotRegular::is(error) {
        return told.hint("Copy what it has into a regular file, or send it with COPY FROM STDIN.");
    }
    told
}
