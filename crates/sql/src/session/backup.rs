//! BACKUP TO: the server writes a database directory of its own, while everybody works on.
//!
//! It runs in a task of its own: if the session ceases to wait, the backup is cancelled, and removes what it made.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_durability::{BackupReport, DurabilityError, back_up};
use eris_engine::{CancelHandle, EngineError};
use eris_storage::{Batch, DataType, Value};
use tokio::sync::oneshot;

use super::cancel::{before, unless_cancelled};
use super::execute::Attempt;
use super::prepared::ColumnDescription;
use super::session::Session;
use super::source_file::file_state;
use super::statement::Planned;
use crate::errors::{SqlError, SqlState};
use crate::plan::engine_error;
use crate::types::SqlType;

/// How long a cancelled backup is waited for, so that what it made is removed when the client hears of it. Longer it
/// takes only where the disk does not answer: then it is removed later.
const REMOVAL_MAX: Duration = Duration::from_secs(2);

/// What BACKUP answers with.
pub(super) fn backup_columns() -> Arc<[ColumnDescription]> {
    let column = |name: &str| ColumnDescription { name: name.to_string(), sql_type: SqlType::BigInt };
    ["timestamp", "rows", "bytes"].map(column).into()
}

/// Cancels a backup that nobody waits for.
struct Waiting(CancelHandle);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Session {
    /// One row: the timestamp up to which commits are in it, its rows, their bytes.
    pub(super) async fn backup(&mut self, directory: &str, planned: &Planned) -> Result<Attempt, SqlError> {
        let target = Path::new(directory).to_path_buf();
        if !target.is_absolute() {
            return Err(SqlError::new(SqlState::INVALID_NAME, "relative path not allowed for BACKUP")
                .hint("The server writes it: name the directory from the root of the server's file system."));
        }
        let cancel = self.activity.handle();
        let waiting = Waiting(cancel.clone());
        let (engine, files) = (self.database.engine().clone(), self.database.files().cloned());
        let (sender, mut receiver) = oneshot::channel();
        engine.clone().spawn(async move {
            let report = match files {
                Some(files) => files.back_up(&engine, &target, cancel).await,
                None => back_up(&engine, &target, cancel).await,
            };
            // Who waited may be gone.
            let _ = sender.send(report);
        });
        let outcome = match unless_cancelled(&waiting.0, &mut receiver).await {
            Ok(outcome) => outcome,
            Err(cancelled) => {
                let engine = self.database.engine();
                let patience = engine.sleep_until(engine.env().now().saturating_add(REMOVAL_MAX));
                before(patience, receiver).await.ok_or(cancelled)?
            }
        };
        drop(waiting);
        let report = outcome.unwrap_or_else(|_| Err(EngineError::ShuttingDown.into()));
        let BackupReport { timestamp, rows, bytes, .. } = report.map_err(|error| backup_error(&error))?;
        let row = [timestamp, rows, bytes].map(|number| Value::Int64(number as i64)).to_vec();
        let batch = Batch::from_rows(&[DataType::Int64; 3], &[row]);
        Ok(Attempt::ready(vec![batch], planned.columns.clone(), "BACKUP"))
    }
}

fn backup_error(error: &DurabilityError) -> SqlError {
    let state = match error {
        DurabilityError::Engine(error) => return engine_error(error, None),
        error if error.is_full() => SqlState::DISK_FULL,
        DurabilityError::Io { error, .. } => file_state(error),
        DurabilityError::NoDirectory { .. } => SqlState::NO_SUCH_FILE,
        DurabilityError::InsideDatabase { .. } => SqlState::INVALID_OBJECT,
        DurabilityError::InUse { .. } => SqlState::OBJECT_IN_USE,
        DurabilityError::NotEmpty { .. } => SqlState::DUPLICATE_FILE,
        _ => SqlState::IO_ERROR,
    };
    SqlError::new(state, format!("backup failed: {error}"))
}
