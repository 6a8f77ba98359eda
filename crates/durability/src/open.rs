//! Opening a database: from its files to an engine whose commits go into its log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Engine, EngineError};
use eris_platform::Env;

use crate::directory::Directory;
use crate::error::{CUT, DurabilityError};
use crate::log::{Log, LogReader, Step};
use crate::options::{Damage, DurabilityOptions};
use crate::replay::{Replay, Unusable};

/// How far opening is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the log that were read.
    pub done_bytes: u64,
    /// Bytes that are to be read at most.
    pub all_bytes: u64,
    /// Transactions that were done again.
    pub transactions: u64,
}

/// An open database: its files belong to this process until it is dropped.
#[derive(Debug)]
pub struct Database {
    directory: Directory,
    log: Log,
    recovered: Progress,
    took: Duration,
}

/// Makes an empty engine what the database in `path` was, and has its commits go into the log there. A directory that
/// is missing or empty becomes a new database. `progress` is told now and then.
///
/// A task of the engine.
pub async fn open(
    engine: &Engine,
    path: &Path,
    options: &DurabilityOptions,
    mut progress: impl FnMut(Progress) + Send,
) -> Result<Database, DurabilityError> {
    let env: Arc<dyn Env> = Arc::clone(engine.env());
    let begun = env.now();
    let directory = Directory::open(&env, path)?;
    let mut reader = LogReader::open(env.files(), &directory.log(), directory.id(), 0)?;
    let mut replay = Replay::new(engine);
    let (from, all_bytes) = (reader.position(), reader.bytes_left());
    let mut told = from;
    loop {
        let position = reader.position();
        if position - told >= TELL_BYTES {
            told = position;
            progress(Progress { done_bytes: position - from, all_bytes, transactions: replay.transactions });
        }
        let record = match reader.next() {
            Ok(Step::Record(record)) => record,
            Ok(Step::End) => break,
            Err(DurabilityError::Damaged { help: CUT, .. }) if options.damage == Damage::EndThere => {
                reader.put_later_files_aside()?;
                break;
            }
            Err(error) => return Err(error),
        };
        replay.record(record).await.map_err(|unusable| match unusable {
            Unusable::Engine(error) => error.into(),
            Unusable::Malformed(reason) => DurabilityError::Damaged {
                file: directory.log(),
                offset: None,
                reason: format!("the record at position {position} cannot be used: {reason}"),
                help: CUT,
            },
        })?;
    }
    let position = reader.position();
    let (last, transactions) = (replay.last, replay.transactions);
    replay.finish().await?;
    engine.continue_behind(last);
    let log = Log::begin(&env, &directory, options, position)?;
    log.attach(engine);
    let done_bytes = position - from;
    let recovered = Progress { done_bytes, all_bytes: done_bytes, transactions };
    Ok(Database { directory, log, recovered, took: env.now() - begun })
}

/// Bytes of log between two reports of progress.
const TELL_BYTES: u64 = 16 << 20;

impl Database {
    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What was done again when it was opened, and how long that took.
    pub fn recovered(&self) -> (Progress, Duration) {
        (self.recovered, self.took)
    }

    /// Accepts no more commits; returns when those that were accepted are durable. To be called before the engine is
    /// shut down.
    pub async fn close(&self) -> Result<(), EngineError> {
        Ok(self.log.close().await?)
    }
}
