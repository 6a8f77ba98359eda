//! Verification: everything in a directory is read, and everything is looked at that must hold of it. Nothing is
//! changed.
//!
//! ```text
//!   files     every block and record, also those that opening does not need
//!   recovery  as it would be opened, in an engine of its own
//!   engine    indexes, keys, bounds, foreign keys, sequences: see `Engine::check_integrity`
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Definition, Engine, EngineError, redo_operations};
use eris_platform::{Env, Files};

use crate::checkpoint::{Checked, check_data};
use crate::definitions;
use crate::directory::Directory;
use crate::error::DurabilityError;
use crate::log::{LogReader, Record, RecordKind, Step};
use crate::options::DurabilityOptions;
use crate::recover::{Progress, RecoveryReport, recover, unusable_log};
use crate::replay::{Unusable, operations_of};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Commits up to here are in it.
    pub timestamp: u64,
    /// Containers, those of the catalog and of indexes included.
    pub containers: u64,
    /// Rows in them.
    pub rows: u64,
    /// Blocks of the checkpoint that were read.
    pub blocks: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Records of the log.
    pub records: u64,
    /// Bytes of them.
    pub log_bytes: u64,
    /// Transactions in the log that the checkpoint does not have.
    pub transactions: u64,
    /// How the database would be opened, and where and why reading its log would stop; none if it would not be opened.
    pub recovery: Option<RecoveryReport>,
    /// What is wrong; no more than was asked for.
    pub wrong: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Reads a database that nobody has open into an empty engine, and says what is wrong with it, up to so many findings.
/// No file is changed: it needs the right to read and nothing else. `progress` is told now and then.
///
/// A task of the engine.
///
/// # Errors
/// If it cannot be looked at: it is in use, there is none, the engine has not enough memory.
pub async fn verify(
    engine: &Engine,
    path: &Path,
    wrong_max: usize,
    progress: impl FnMut(Progress) + Send,
) -> Result<VerifyReport, DurabilityError> {
    let env: Arc<dyn Env> = Arc::clone(engine.env());
    let begun = env.now();
    let directory = Directory::open_to_read(env.files(), path)?;
    let mut report = VerifyReport::default();
    let mut wrong = Vec::new();
    let mut tell = |error: DurabilityError| {
        if wrong.len() < wrong_max {
            wrong.push(error.to_string());
        }
    };
    match check_data(env.files(), &directory, &mut tell) {
        Ok(Checked { blocks, bytes }) => (report.blocks, report.checkpoint_bytes) = (blocks, bytes),
        Err(error) => tell(error),
    }
    if let Err(error) = check_log(env.files(), &directory, &mut report) {
        tell(error);
    }
    if wrong.is_empty() {
        match recover(engine, &directory, &DurabilityOptions::default(), progress).await {
            Ok(recovered) => {
                report.timestamp = recovered.last.0;
                report.transactions = recovered.log.transactions;
                report.recovery = Some(recovered.report);
                report.wrong = engine.check_integrity(wrong_max).await?;
            }
            // That is no fault of the files.
            Err(DurabilityError::Engine(EngineError::ShuttingDown)) => return Err(EngineError::ShuttingDown.into()),
            Err(error) if error.is_out_of_memory() => return Err(error),
            Err(error) => report.wrong = vec![error.to_string()],
        }
    } else {
        report.wrong = wrong;
    }
    let containers = engine.definitions().into_iter().filter_map(|definition| match definition {
        Definition::Container { schema, .. } => engine.container(schema.container),
        _ => None,
    });
    for container in containers {
        report.containers += 1;
        report.rows += container.rows();
    }
    report.took = env.now() - begun;
    Ok(report)
}

/// Reads all log files from the first one on.
fn check_log(files: &dyn Files, directory: &Directory, report: &mut VerifyReport) -> Result<(), DurabilityError> {
    let mut reader = LogReader::open_first(files, &directory.log(), directory.id())?;
    let from = reader.position();
    while let Step::Record(record) = reader.next()? {
        report.records += 1;
        check_record(&record).map_err(|unusable| unusable_log(directory, unusable))?;
    }
    report.log_bytes = reader.position() - from;
    Ok(())
}

fn check_record(record: &Record<'_>) -> Result<(), Unusable> {
    if record.kind == RecordKind::Definition {
        definitions::from_text(record.body).map_err(|reason| Unusable::malformed(record.position, &reason))?;
    }
    for operation in redo_operations(operations_of(record)?) {
        operation.map_err(|error| Unusable::malformed(record.position, &error))?;
    }
    Ok(())
}
