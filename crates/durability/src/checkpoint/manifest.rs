//! What a checkpoint consists of.
//!
//! ```text
//!   manifest   JSON, one line | "check " and the CRC-32C of that line, hexadecimal
//! ```
//! It replaces the one before in one step, when everything that it names is durable. So there is always a whole one.

use std::io;
use std::path::Path;

use eris_platform::{Files, OpenMode};
use serde::{Deserialize, Serialize};

use super::block::BlockPlace;
use super::histories::StoredHistory;
use crate::definitions::Stored;
use crate::directory::DatabaseId;
use crate::error::{DurabilityError, RESTORE};

pub(super) const MANIFEST: &str = "manifest";
const NEW: &str = "manifest.new";
const FORMAT: u64 = 1;

/// See the [module](self).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: u64,
    database: String,
    /// Commits up to here are in it.
    pub timestamp: u64,
    /// Every commit in front of this position of the log is in it, and every definition.
    pub position: u64,
    /// Where the log has to be read from: parts of transactions under way lie in front of `position`.
    pub replay_from: u64,
    pub definitions: Vec<Stored>,
    /// What partitions were told and learnt.
    pub histories: Vec<StoredHistory>,
    pub blocks: Vec<BlockEntry>,
    /// Data files that the blocks are in.
    pub files: Vec<FileEntry>,
}

/// Rows of one container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockEntry {
    pub container: u32,
    pub rows: u32,
    pub place: BlockPlace,
    /// Which of the rows are there; none: all.
    pub live: Option<BlockPlace>,
}

/// A data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    pub number: u64,
    pub bytes: u64,
}

impl Manifest {
    pub fn new(id: DatabaseId, timestamp: u64, position: u64, replay_from: u64) -> Self {
        let database = format!("{:016x}", id.0);
        Self {
            format: FORMAT,
            database,
            timestamp,
            position,
            replay_from,
            definitions: Vec::new(),
            histories: Vec::new(),
            blocks: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Writes it beside the manifest in a directory, where it does not count; what it says is durable when it returns.
    pub fn write_beside(&self, files: &dyn Files, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string(self).unwrap_or_else(|_| unreachable!("numbers and texts are JSON"));
        let text = format!("{text}\ncheck {:08x}\n", crc32c::crc32c(text.as_bytes()));
        let new = directory.join(NEW);
        if files.exists(&new) {
            files.remove(&new)?;
        }
        let file = files.open_at(&new, OpenMode::Create)?;
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_all()
    }

    /// Puts what was written beside it in the manifest's place. Until the directory is synced either of them may be
    /// found later, and what either names has to stay.
    pub fn rename(files: &dyn Files, directory: &Path) -> io::Result<()> {
        files.rename(&directory.join(NEW), &directory.join(MANIFEST))
    }

    /// The manifest in a directory, if there is one.
    pub fn read(files: &dyn Files, directory: &Path, id: DatabaseId) -> Result<Option<Self>, DurabilityError> {
        let path = directory.join(MANIFEST);
        if !files.exists(&path) {
            return Ok(None);
        }
        let damaged =
            |reason: String| DurabilityError::Damaged { file: path.clone(), offset: None, reason, help: RESTORE };
        let text = files.read_to_string(&path).map_err(DurabilityError::io("read", &path))?;
        let Some((line, check)) = text.split_once("\ncheck ") else {
            return Err(damaged("it has no check".to_owned()));
        };
        if check != format!("{:08x}\n", crc32c::crc32c(line.as_bytes())) {
            return Err(damaged("its check is wrong".to_owned()));
        }
        // The format first: all else may have changed.
        let value: serde_json::Value = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
        let format = value.get("format").and_then(serde_json::Value::as_u64);
        match format {
            None => return Err(damaged("it says no format".to_owned())),
            Some(found) if found > FORMAT => return Err(DurabilityError::Newer { file: path, found }),
            Some(_) => {}
        }
        let manifest: Self = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
        if manifest.database != format!("{:016x}", id.0) {
            return Err(damaged(format!("it belongs to another database, {}", manifest.database)));
        }
        Ok(Some(manifest))
    }
}
