//! Restoring: a backup becomes a database of its own, in another directory.
//!
//! Every block is read, checked and written again under a new id: a database that goes on from a backup and the backup
//! must not be taken for each other, nor two databases that go on from the same one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eris_platform::{DeterministicMap, Env, Files};
use eris_storage::DataType;

use crate::backup::refuse_inside;
use crate::checkpoint::{Copied, Manifest, copy_blocks};
use crate::definitions::Stored;
use crate::directory::{DatabaseId, Directory, NewDirectory};
use crate::error::{DurabilityError, RESTORE};
use crate::log::{LogReader, RecordKind, Step};

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Commits up to here are in it.
    pub timestamp: u64,
    /// Rows in it, those of the catalog included.
    pub rows: u64,
    /// Bytes of its rows.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// Makes a database of a backup, in a directory that is missing or empty. The backup stays as it is. Waits for the
/// disk.
///
/// # Errors
/// Nothing is left in the directory then. [`DurabilityError::NotABackup`] if there are commits in the log of what is
/// taken for one.
pub fn restore(env: &Arc<dyn Env>, backup: &Path, target: &Path) -> Result<RestoreReport, DurabilityError> {
    let (begun, files) = (env.now(), env.files());
    let source = Directory::open_to_read(files, backup)?;
    let Some(manifest) = Manifest::read(files, &source.checkpoint(), source.id())? else {
        let reason = "it has no checkpoint";
        return Err(DurabilityError::NotABackup { directory: backup.to_path_buf(), reason });
    };
    refuse_commits(files, &source, &manifest)?;
    refuse_inside(files, target, backup)?;
    let new = NewDirectory::begin(files, target, DatabaseId(env.random_u64()))?;
    let restored = copy(files, &source, manifest, &new.directory).and_then(|report| {
        new.finish(files)?;
        Ok(report)
    });
    match restored {
        Ok(report) => Ok(RestoreReport { took: env.now() - begun, ..report }),
        Err(error) => {
            new.remove(files);
            Err(error)
        }
    }
}

/// Whether everything is in the checkpoint.
fn refuse_commits(files: &dyn Files, source: &Directory, manifest: &Manifest) -> Result<(), DurabilityError> {
    let mut reader = LogReader::open(files, &source.log(), source.id(), manifest.replay_from)?;
    while let Step::Record(record) = reader.next()? {
        let is_in_it = match record.kind {
            // Parts alone are of transactions that did not commit.
            RecordKind::Start | RecordKind::Part | RecordKind::Closed => true,
            RecordKind::Definition => record.position < manifest.position,
            RecordKind::Commit | RecordKind::CommitWithParts => record.timestamp <= manifest.timestamp,
        };
        if !is_in_it {
            let reason = "there are commits in its log that are not in its checkpoint";
            return Err(DurabilityError::NotABackup { directory: source.path().to_path_buf(), reason });
        }
    }
    Ok(())
}

fn copy(
    files: &dyn Files,
    source: &Directory,
    manifest: Manifest,
    target: &Directory,
) -> Result<RestoreReport, DurabilityError> {
    let mut types: DeterministicMap<u32, Vec<DataType>> = DeterministicMap::default();
    let mut new = Manifest::new(target.id(), manifest.timestamp, 0, 0);
    new.histories = manifest.histories;
    for stored in manifest.definitions {
        let definition = stored.definition().map_err(|reason| DurabilityError::Damaged {
            file: source.checkpoint(),
            offset: None,
            reason,
            help: RESTORE,
        })?;
        if let eris_engine::Definition::Container { schema, .. } = &definition {
            types.insert(schema.container.0, schema.data_types());
        }
        new.definitions.push(Stored::of(&definition));
    }
    let directory = target.checkpoint();
    let Copied { blocks, file, rows } =
        copy_blocks(files, (&source.checkpoint(), source.id()), &manifest.blocks, &types, (&directory, target.id()))?;
    new.blocks = blocks;
    new.files = vec![file];
    let failed = || DurabilityError::io("write the manifest in", &directory);
    files.sync_directory(&directory).map_err(failed())?;
    new.write_beside(files, &directory).map_err(failed())?;
    Manifest::rename(files, &directory).map_err(failed())?;
    files.sync_directory(&directory).map_err(failed())?;
    Ok(RestoreReport { timestamp: manifest.timestamp, rows, bytes: file.bytes, took: Duration::ZERO })
}
