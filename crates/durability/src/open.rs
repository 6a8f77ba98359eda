//! Opening a database: from its files to an engine whose commits go into its log.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{CancelHandle, Engine, EngineError};
use eris_platform::messages::tell;
use eris_platform::{Env, Files};

use crate::backup::{BackupReport, back_up_outside};
use crate::checkpoint::{CheckpointReport, Checkpointer, Control, FileEntry, remove_orphans, run};
use crate::directory::Directory;
use crate::error::DurabilityError;
use crate::log::{Log, LogFiles};
use crate::options::DurabilityOptions;
use crate::recover::{Progress, Recovered, RecoveryReport, recover};

/// An open database: its files belong to this process until it is dropped.
pub struct Database {
    log: Log,
    control: Arc<Control>,
    recovered: Progress,
    report: RecoveryReport,
    took: Duration,
    /// Dropped last: its lock.
    directory: Directory,
}

/// Makes an empty engine what the database in `path` was, and has its commits go into the log there. A directory that
/// is missing or empty becomes a new database. `progress` is told now and then.
///
/// A task of the engine.
pub async fn open(
    engine: &Engine,
    path: &Path,
    options: &DurabilityOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<Database, DurabilityError> {
    let env: Arc<dyn Env> = Arc::clone(engine.env());
    let begun = env.now();
    let directory = Directory::open(&env, path)?;
    let recovered = recover(engine, &directory, options, progress).await?;
    // Reading may have taken long.
    directory.lock().keep()?.look_closely(env.files())?;
    let put_aside = make_durable(env.files(), &directory, &recovered)?;
    let path = directory.checkpoint();
    clean_up(env.files(), &path, &recovered.files).map_err(DurabilityError::io("sync", &path))?;
    let log = Log::begin(&env, &directory, options, recovered.position)?;
    let checkpointer = Checkpointer::new(&env, &directory, recovered.files, recovered.written)?;
    log.attach(engine);
    let control = Arc::new(Control::default());
    log.watch(&control, options.checkpoint_log_bytes);
    engine.spawn(run(engine.clone(), log.clone(), Arc::downgrade(&control), checkpointer, options.clone()));
    let took = env.now() - begun;
    let report = RecoveryReport { took, put_aside, ..recovered.report };
    if let Some(told) = report.told() {
        tell(format_args!("{told}"));
    }
    Ok(Database { directory, log, control, recovered: recovered.log, report, took })
}

/// Removes what the manifest does not name. What was read may not be durable yet, if the process ended while it was
/// written: it is before anything goes that another manifest names.
fn clean_up(files: &dyn Files, directory: &Path, named: &[FileEntry]) -> io::Result<()> {
    files.sync_directory(directory)?;
    // What stays is removed behind a checkpoint.
    let _ = remove_orphans(files, directory, named);
    Ok(())
}

/// Makes durable what was read of the log: from now on others see it. Files that are not read again get names by which
/// they are not found.
fn make_durable(
    files: &dyn Files,
    directory: &Directory,
    recovered: &Recovered,
) -> Result<Vec<PathBuf>, DurabilityError> {
    let mut put_aside = Vec::new();
    let log = directory.log();
    // Planted: what can be read is taken to be on the disk.
    if !cfg!(feature = "bug_log_read_is_durable") {
        LogFiles::list(files, &log, directory.id())?.write_again(recovered.durable, recovered.position)?;
    }
    for path in &recovered.abandoned {
        let aside = (1..).map(|number| path.with_extension(format!("log.abandoned.{number}")));
        let Some(aside) = aside.into_iter().find(|aside| !files.exists(aside)) else { unreachable!("numbers go on") };
        files.rename(path, &aside).map_err(DurabilityError::io("rename", path))?;
        put_aside.push(aside);
    }
    files.sync_directory(&log).map_err(DurabilityError::io("sync", &log))?;
    Ok(put_aside)
}

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

    /// What opening it did and found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// Takes a checkpoint that has every commit that was told before this call.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, Arc<DurabilityError>> {
        self.control.checkpoint().await
    }

    /// Writes what is committed into a directory outside of this one; see [`back_up`](crate::back_up).
    pub async fn back_up(
        &self,
        engine: &Engine,
        target: &Path,
        cancel: CancelHandle,
    ) -> Result<BackupReport, DurabilityError> {
        back_up_outside(engine, Some(self.directory.path()), target, cancel).await
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
