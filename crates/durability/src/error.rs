//! Why a database cannot be opened or kept, and what can be done about it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use eris_engine::{EngineError, LogError};
use thiserror::Error;

/// An error of the files of a database.
#[derive(Debug, Error)]
pub enum DurabilityError {
    /// Another process has the database open.
    #[error("the database in \"{}\" is in use{}; stop that process first", .directory.display(), by(.holder.as_ref()))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// What the holder of the lock wrote about itself.
        holder: Option<String>,
        /// Where it serves clients, if it said so.
        address: Option<SocketAddr>,
    },
    /// The directory has files that are not a database's.
    #[error(
        "\"{}\" has files but no database (no \"{}\"); choose an empty or a new directory",
        .directory.display(), crate::directory::IDENTITY
    )]
    NotADatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory has parts of a database, and nothing that says of which.
    #[error(
        "\"{}\" has parts of a database but no \"{}\": a backup or restore that did not come to its end, or a database \
         that lost this file. Remove the directory, or restore it from a backup",
        .directory.display(), crate::directory::IDENTITY
    )]
    Unfinished {
        /// The directory.
        directory: PathBuf,
    },
    /// Something is where a new database is to be written.
    #[error("\"{}\" is not empty: it has \"{name}\"; choose an empty or a new directory", .directory.display())]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
        /// Something that is there.
        name: String,
    },
    /// The directory in which another is to be made does not exist.
    #[error("the directory \"{}\" does not exist; make it, or mount its disk, and try again", .directory.display())]
    NoDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// What is written would become a part of what it is a copy of.
    #[error(
        "\"{}\" lies in the directory of the database, \"{}\"; choose a directory outside of it",
        .target.display(), .database.display()
    )]
    InsideDatabase {
        /// Where it was to be written.
        target: PathBuf,
        /// The directory of the database, or of the backup that is restored.
        database: PathBuf,
    },
    /// A directory is to be restored that is no backup.
    #[error(
        "\"{}\" is no backup: {reason}. Make a backup of it with \"eris backup --db {} DIR\", and restore that",
        .directory.display(), .directory.display()
    )]
    NotABackup {
        /// The directory.
        directory: PathBuf,
        /// What it has, or has not.
        reason: &'static str,
    },
    /// A newer version of ERIS wrote it.
    #[error(
        "\"{}\" has format {found}, this version of ERIS reads up to {}; use the version that wrote it, or a newer one",
        .file.display(), crate::FORMAT_VERSION
    )]
    Newer {
        /// Where the format is written.
        file: PathBuf,
        /// The format there.
        found: u64,
    },
    /// A file is not what it should be.
    #[error("\"{}\" is damaged{}: {reason}. {}", .file.display(), at(*.offset), .help)]
    Damaged {
        /// Which.
        file: PathBuf,
        /// Where, in bytes from its beginning.
        offset: Option<u64>,
        /// What is wrong.
        reason: String,
        /// What can be done.
        help: &'static str,
    },
    /// A file that must be there is not, or belongs to another database.
    #[error("{reason}. {}", RESTORE)]
    Missing {
        /// What is wrong.
        reason: String,
    },
    /// The log of a database is gone.
    #[error(
        "\"{}\" {what}: the log of this database is gone, and with it what was committed. Put it back where it was, or \
         restore the directory from a backup; for a new database choose an empty or a new directory",
        .directory.display()
    )]
    NoLog {
        /// Where the log was.
        directory: PathBuf,
        /// What is missing of it.
        what: &'static str,
    },
    /// The path of an open database leads to something else by now, or somebody else has it open, too.
    #[error("{what}")]
    Lost {
        /// What happened, and what can be done.
        what: String,
    },
    /// The operating system refuses.
    #[error("could not {action} \"{}\": {error}{}", .path.display(), advice(.error))]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What the files say cannot be done again.
    #[error("the engine refuses what is in the log: {0}")]
    Engine(#[from] EngineError),
}

/// What helps against lost files.
pub(crate) const RESTORE: &str = "Restore the directory from a backup";
/// What helps against damage.
pub(crate) const CUT: &str =
    "Restore the directory from a backup, or open it with --damaged-log=end-there to leave out what stands behind";

impl DurabilityError {
    /// Whether there is no room on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { error, .. } => is_full(error),
            Self::Engine(EngineError::Log(LogError::Full { .. })) => true,
            _ => false,
        }
    }

    /// Whether there was no memory for what the files hold: no fault of theirs.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_out_of_memory())
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |error| Self::Io { action, path, error }
    }
}

/// Whether there is no room: on the disk, for the user, or in files of the size that the process may make.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn by(holder: Option<&String>) -> String {
    holder.map(|holder| format!(" by {holder}")).unwrap_or_default()
}

fn at(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; the user who runs ERIS must own the directory",
        io::ErrorKind::ReadOnlyFilesystem => "; the file system is mounted read-only",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room and try again",
        io::ErrorKind::FileTooLarge => "; raise the limit on the size of files (ulimit -f) and start again",
        io::ErrorKind::NotFound => "; does the directory above exist?",
        _ => "",
    }
}
