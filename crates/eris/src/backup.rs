//! Backups, what becomes of them, and whether a directory is whole.

use std::path::Path;
use std::sync::Arc;

use eris_durability::{BackupReport, DurabilityError, Progress, RestoreReport, VerifyReport};
use eris_engine::{CancelHandle, Engine};
use eris_platform::{Env, RealEnv};

use crate::database::{Database, OpenError};
use crate::options::Options;

/// What [`verify`] found.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Of files and engine; `wrong` has what SQL found, too.
    pub report: VerifyReport,
    /// Tables of SQL.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
}

impl Database {
    /// Writes everything that is committed into a directory that is missing or empty: a database of its own. For
    /// threads that are not workers.
    ///
    /// # Errors
    /// Nothing is left in the directory then.
    pub fn back_up(&self, target: &Path) -> Result<BackupReport, OpenError> {
        let (engine, target, files) = (self.engine().clone(), target.to_path_buf(), self.files().cloned());
        let written = self.engine().block_on(async move {
            let cancel = CancelHandle::default();
            match files {
                Some(files) => files.back_up(&engine, &target, cancel).await,
                None => eris_durability::back_up(&engine, &target, cancel).await,
            }
        })?;
        Ok(written?)
    }
}

/// Makes a database of a backup, in a directory that is missing or empty.
///
/// # Errors
/// Nothing is left in the directory then.
pub fn restore(backup: &Path, target: &Path) -> Result<RestoreReport, DurabilityError> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    eris_durability::restore(&env, backup, target)
}

/// Reads a database that nobody has open, and says what is wrong with it, up to `wrong_max` findings. No file is
/// changed. `progress` hears how far it is.
///
/// # Errors
/// If it cannot be looked at: it is in use, there is none, there is not enough memory.
pub fn verify(
    directory: &Path,
    options: Options,
    wrong_max: usize,
    progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Verified, OpenError> {
    let engine = Engine::start(Arc::new(RealEnv::new()), options.engine()?)?;
    // As for a database that is opened.
    let opening = engine.begin_opening();
    let verified = look(&engine, directory, options, wrong_max, progress);
    drop(opening);
    engine.shutdown();
    verified.map_err(|error| error.of_opening(directory, options))
}

fn look(
    engine: &Engine,
    directory: &Path,
    options: Options,
    wrong_max: usize,
    progress: impl FnMut(Progress) + Send + 'static,
) -> Result<Verified, OpenError> {
    let (of_task, directory) = (engine.clone(), directory.to_path_buf());
    let report =
        engine.block_on(async move { eris_durability::verify(&of_task, &directory, wrong_max, progress).await })??;
    let mut verified = Verified { report, tables: 0, rows: 0 };
    if !verified.report.wrong.is_empty() {
        return Ok(verified);
    }
    // The engine has no log: what opening changes stays in memory.
    match Database::of_engine(engine.clone(), options) {
        Ok(database) => {
            for table in database.sql().catalog().current().tables() {
                verified.tables += 1;
                verified.rows += engine.container(table.container()).map_or(0, |container| container.rows());
            }
        }
        Err(error) if error.is_out_of_memory() => return Err(error),
        Err(error) => verified.report.wrong.push(error.to_string()),
    }
    Ok(verified)
}
