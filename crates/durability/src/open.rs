//! Opening a database: from its files to an engine whose commits go into its log.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Engine, EngineError};
use eris_platform::Env;

use crate::checkpoint::{CheckpointReport, Checkpointer, Control, Manifest, load, remove_orphans, run};
use crate::directory::Directory;
use crate::error::{CUT, DurabilityError};
use crate::log::{Log, LogReader, Step};
use crate::options::{Damage, DurabilityOptions};
use crate::replay::{Replay, Unusable};

/// What opening reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rows of the last checkpoint.
    Checkpoint,
    /// What was committed since.
    Log,
}

/// How far opening is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is read.
    pub phase: Phase,
    /// Bytes that were read.
    pub done_bytes: u64,
    /// Bytes that are to be read at most.
    pub all_bytes: u64,
    /// Transactions that were done again.
    pub transactions: u64,
}

/// An open database: its files belong to this process until it is dropped.
pub struct Database {
    directory: Directory,
    log: Log,
    control: Arc<Control>,
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
    let manifest = Manifest::read(env.files(), &directory.checkpoint(), directory.id())?;
    let mut replay = Replay::new(engine);
    let replay_from = manifest.as_ref().map_or(0, |manifest| manifest.replay_from);
    let mut reader = LogReader::open(env.files(), &directory.log(), directory.id(), replay_from)?;
    let mut files = Vec::new();
    let mut covered = 0;
    if let Some(mut manifest) = manifest {
        let all_bytes = manifest.blocks.iter().map(|block| block.place.length).sum();
        let mut tell =
            |done_bytes| progress(Progress { phase: Phase::Checkpoint, done_bytes, all_bytes, transactions: 0 });
        let left = load(engine, &directory, &mut manifest, &mut tell).await?;
        replay.begin_behind(manifest.timestamp, manifest.position, left);
        files = manifest.files;
        covered = manifest.position;
    }
    let (from, all_bytes) = (reader.position(), reader.bytes_left());
    let mut told = from;
    loop {
        let position = reader.position();
        if position - told >= TELL_BYTES {
            told = position;
            progress(Progress {
                phase: Phase::Log,
                done_bytes: position - from,
                all_bytes,
                transactions: replay.transactions,
            });
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
    if position < covered {
        let reason = format!(
            "the log in \"{}\" ends at position {position}, the checkpoint needs it up to {covered}: they do not \
             belong together",
            directory.log().display()
        );
        return Err(DurabilityError::Missing { reason });
    }
    let (last, transactions) = (replay.last, replay.transactions);
    replay.finish().await?;
    engine.continue_behind(last);
    let log = Log::begin(&env, &directory, options, position)?;
    log.attach(engine);
    let path = directory.checkpoint();
    remove_orphans(env.files(), &path, &files).map_err(DurabilityError::io("clean up", &path))?;
    let checkpointer = Checkpointer::new(&env, &directory, files)?;
    let control = Arc::new(Control::default());
    log.watch(&control, options.checkpoint_log_bytes);
    engine.spawn(run(engine.clone(), log.clone(), Arc::downgrade(&control), checkpointer, options.clone()));
    let done_bytes = position - from;
    let recovered = Progress { phase: Phase::Log, done_bytes, all_bytes: done_bytes, transactions };
    Ok(Database { directory, log, control, recovered, took: env.now() - begun })
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

    /// Takes a checkpoint that has every commit that was told before this call.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, Arc<DurabilityError>> {
        self.control.checkpoint().await
    }

    /// Accepts no more commits; returns when those that were accepted are durable. To be called before the engine is
    /// shut down.
    pub async fn close(&self) -> Result<(), EngineError> {
        self.control.end();
        Ok(self.log.close().await?)
    }
}

impl Database {
    /// Accepts no more commits, and waits for nothing: as if the process ended here. Dropping does the same.
    pub fn abandon(&self) {
        self.control.end();
        self.log.abandon();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Database({}, {:?})", self.directory.path().display(), self.log)
    }
}
