//! Backups: a directory that is a database of its own, written while the one that it is of goes on.
//!
//! ```text
//!   lock, directories ─> everything at one moment ─> rows ─> log of the source durable ─> manifest ─> "eris.db"
//! ```
//! It is the first checkpoint of another database: the code that takes checkpoints writes it, under another id, with
//! all blocks and at position 0 of a log that is empty. The last thing that is written is the file that says what the
//! directory is; so what a backup leaves that did not come to its end is refused.
//!
//! **What exists and what is stored agree.** A checkpoint may be of a moment at which a container has been made and its
//! rows have not, or name one that is dropped before its rows are written: the log behind it makes up for that. A
//! backup has no log, so both are taken of one moment ([`Engine::begin_whole`]), and containers of that moment are kept
//! until they are written, whoever drops them. So nothing is waited for and nothing tried again, whatever is defined
//! meanwhile. Names of SQL are rows of the system container, and at every moment
//!
//! * a container is made before the commit that names it, and dropped after the commit that ceases to;
//! * an index is built before the commit that names it, and dropped after the commit that ceases to.
//!
//! So whatever the rows of that moment name exists in the backup. What they do not name, of transactions that had not
//! committed, is dropped when the backup is opened, as after a crash.
//!
//! **What is in it is durable in the source**: the log is synced behind the snapshot.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eris_engine::{CancelHandle, Engine};
use eris_platform::{Env, Files, IoQueue, io_queue};

use crate::checkpoint::{CheckpointReport, Checkpointer};
use crate::directory::{DatabaseId, NewDirectory};
use crate::error::DurabilityError;

/// What a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Commits up to here are in it, and no others.
    pub timestamp: u64,
    /// Rows in it, those of the catalog included.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Writes everything that was committed when this was called, or a little later, into a directory that is missing or
/// empty. The engine may have files of its own or live in memory only, and works on. A task of the engine.
///
/// # Errors
/// Nothing is left in the directory then, unless that cannot be removed either. [`DurabilityError::Engine`] with
/// `Cancelled` if `cancel` was.
pub async fn back_up(engine: &Engine, target: &Path, cancel: CancelHandle) -> Result<BackupReport, DurabilityError> {
    back_up_outside(engine, None, target, cancel).await
}

/// The same of a database in a directory of its own: the target lies outside of that.
pub(crate) async fn back_up_outside(
    engine: &Engine,
    own: Option<&Path>,
    target: &Path,
    cancel: CancelHandle,
) -> Result<BackupReport, DurabilityError> {
    let env = engine.env();
    let failed = || DurabilityError::io("start the thread that writes", target);
    let queue = env.background_io_queue("eris-backup").map_err(failed())?;
    let new = Target::begin(env, &queue, target, own).await?;
    let outcome = new.fill(engine, cancel).await;
    match outcome {
        Ok(report) => {
            new.keep();
            let CheckpointReport { timestamp, rows, written_bytes, took, .. } = report;
            Ok(BackupReport { timestamp, rows, bytes: written_bytes, took })
        }
        Err(error) => {
            new.remove().await;
            Err(error)
        }
    }
}

/// A copy in the directory of what it is a copy of goes with it, and would be taken for a part of it.
pub(crate) fn refuse_inside(files: &dyn Files, target: &Path, database: &Path) -> Result<(), DurabilityError> {
    match files.is_within(target, database) {
        Ok(false) => Ok(()),
        Ok(true) => {
            let (target, database) = (target.to_path_buf(), database.to_path_buf());
            Err(DurabilityError::InsideDatabase { target, database })
        }
        Err(error) => Err(DurabilityError::io("look for", target)(error)),
    }
}

/// A directory that is removed unless it is kept: also if nobody waits any more.
struct Target {
    path: PathBuf,
    queue: Arc<dyn IoQueue>,
    /// Set by the thread that makes it, whether or not somebody waits for that.
    new: Arc<OnceLock<NewDirectory>>,
    is_done_with: bool,
}

impl Target {
    async fn begin(
        env: &Arc<dyn Env>,
        queue: &Arc<dyn IoQueue>,
        path: &Path,
        own: Option<&Path>,
    ) -> Result<Self, DurabilityError> {
        let (of_job, id) = (path.to_path_buf(), DatabaseId(env.random_u64()));
        let own = own.map(Path::to_path_buf);
        let (path, queue) = (path.to_path_buf(), Arc::clone(queue));
        let target = Self { path, queue, new: Arc::default(), is_done_with: false };
        let new = Arc::clone(&target.new);
        let begin = move |files: &dyn Files| {
            if let Some(own) = &own {
                refuse_inside(files, &of_job, own)?;
            }
            NewDirectory::begin(files, &of_job, id).map(|begun| drop(new.set(begun)))
        };
        target.run(begin).await?;
        Ok(target)
    }

    /// Runs a piece of work on the thread of the backup.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Files) -> Result<T, DurabilityError> + Send + 'static,
    ) -> Result<T, DurabilityError> {
        match io_queue::run(&self.queue, work).await {
            Ok(done) => done,
            Err(error) => Err(DurabilityError::io("write", &self.path)(error)),
        }
    }

    async fn fill(&self, engine: &Engine, cancel: CancelHandle) -> Result<CheckpointReport, DurabilityError> {
        let mut checkpointer = Checkpointer::on(engine.env(), &begun(&self.new).directory, &self.queue);
        let report = checkpointer.take_without_log(engine, cancel).await?;
        let new = Arc::clone(&self.new);
        self.run(move |files| begun(&new).finish(files)).await?;
        Ok(report)
    }

    fn keep(mut self) {
        self.is_done_with = true;
    }

    async fn remove(mut self) {
        self.is_done_with = true;
        // What cannot be removed is no database all the same.
        let _ = io_queue::run(&self.queue, removal(&self.new)).await;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_done_with {
            // Behind the jobs that were under way.
            self.queue.submit(Box::new(removal(&self.new)));
        }
    }
}

fn begun(new: &OnceLock<NewDirectory>) -> &NewDirectory {
    let Some(new) = new.get() else { unreachable!("a target exists once it was begun") };
    new
}

fn removal(new: &Arc<OnceLock<NewDirectory>>) -> impl FnOnce(&dyn Files) + Send + use<> {
    let new = Arc::clone(new);
    move |files| {
        if let Some(new) = new.get() {
            new.remove(files);
        }
    }
}
