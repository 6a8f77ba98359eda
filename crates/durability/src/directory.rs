//! The directory of a database.
//!
//! ```text
//!   DIR/
//!     eris.db       format version, id of the database; written once
//!     eris.lock     locked by the process that has the database open, with its number
//!     checkpoint/   manifest, <number>.data: the last checkpoint
//!     log/          <position, 16 hexadecimal digits>.log   and files that are not yet in use: <number>.spare
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_platform::{Env, FileLock, Files, OpenMode};
use serde::{Deserialize, Serialize};

use crate::error::{DurabilityError, RESTORE};

/// The version of all files that this version of ERIS writes, and the newest one that it reads.
pub const FORMAT_VERSION: u64 = 1;

pub(crate) const IDENTITY: &str = "eris.db";
const CHECKPOINT: &str = "checkpoint";
const LOCK: &str = "eris.lock";

/// A number of its own, so that files of different databases are not taken for each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId(pub u64);

#[derive(Serialize, Deserialize)]
struct Identity {
    /// What this is, for whoever finds it.
    kind: String,
    format: u64,
    database: String,
}

const KIND: &str = "ERIS database";

/// An open directory; nobody else opens it until this is dropped.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    id: DatabaseId,
    is_new: bool,
    _lock: Box<dyn FileLock>,
}

impl Directory {
    /// Opens the directory of a database; makes a new one of an empty or missing directory.
    pub fn open(env: &Arc<dyn Env>, path: &Path) -> Result<Self, DurabilityError> {
        let files = env.files();
        if !files.exists(path) {
            files.create_directory(path).map_err(DurabilityError::io("create", path))?;
        }
        let identity = path.join(IDENTITY);
        let is_new = !files.exists(&identity);
        let present = files.list(path).map_err(DurabilityError::io("list", path))?;
        if is_new && present.iter().any(|name| name != LOCK && *name != temporary(IDENTITY)) {
            return Err(DurabilityError::NotADatabase { directory: path.to_path_buf() });
        }
        let lock = lock(files, path)?;
        let id = if is_new {
            let id = DatabaseId(env.random_u64());
            write_identity(files, path, id)?;
            id
        } else {
            read_identity(files, &identity)?
        };
        let log = path.join("log");
        files.create_directory(&log).map_err(DurabilityError::io("create", &log))?;
        let checkpoint = path.join(CHECKPOINT);
        files.create_directory(&checkpoint).map_err(DurabilityError::io("create", &checkpoint))?;
        Ok(Self { path: path.to_path_buf(), id, is_new, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the database was made when it was opened.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn id(&self) -> DatabaseId {
        self.id
    }

    /// Where the last checkpoint is.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// Where log files are.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

fn lock(files: &dyn Files, directory: &Path) -> Result<Box<dyn FileLock>, DurabilityError> {
    let path = directory.join(LOCK);
    match files.lock(&path) {
        Ok(lock) => {
            let holder = format!("process {}", std::process::id());
            // Only for whoever finds the lock taken.
            let _ = lock.write_contents(holder.as_bytes());
            Ok(lock)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let holder = files.read_to_string(&path).ok().filter(|holder| !holder.is_empty());
            Err(DurabilityError::InUse { directory: directory.to_path_buf(), holder })
        }
        Err(error) => Err(DurabilityError::io("lock", &path)(error)),
    }
}

fn temporary(name: &str) -> String {
    format!("{name}.new")
}

fn write_identity(files: &dyn Files, directory: &Path, id: DatabaseId) -> Result<(), DurabilityError> {
    let identity = Identity { kind: KIND.to_owned(), format: FORMAT_VERSION, database: format!("{:016x}", id.0) };
    let text = serde_json::to_string(&identity).unwrap_or_else(|_| unreachable!("numbers and texts are JSON"));
    let (temporary, path) = (directory.join(temporary(IDENTITY)), directory.join(IDENTITY));
    let written = || -> io::Result<()> {
        if files.exists(&temporary) {
            files.remove(&temporary)?;
        }
        let file = files.open_at(&temporary, OpenMode::Create)?;
        file.write_all_at(format!("{text}\n").as_bytes(), 0)?;
        file.sync_all()?;
        files.rename(&temporary, &path)?;
        files.sync_directory(directory)
    };
    written().map_err(DurabilityError::io("write", &path))
}

fn read_identity(files: &dyn Files, path: &Path) -> Result<DatabaseId, DurabilityError> {
    let damaged =
        |reason: String| DurabilityError::Damaged { file: path.to_path_buf(), offset: None, reason, help: RESTORE };
    let text = files.read_to_string(path).map_err(DurabilityError::io("read", path))?;
    // The format first: all else may have changed.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    let format = format.ok_or_else(|| damaged("it says no format".to_owned()))?;
    if format > FORMAT_VERSION {
        return Err(DurabilityError::Newer { file: path.to_path_buf(), found: format });
    }
    let identity: Identity = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    if identity.kind != KIND {
        return Err(damaged(format!("it is of kind \"{}\"", identity.kind)));
    }
    u64::from_str_radix(&identity.database, 16)
        .map(DatabaseId)
        .map_err(|_| damaged(format!("\"{}\" is no id of a database", identity.database)))
}
