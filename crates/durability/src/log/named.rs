//! Whether a file of the log is still where it is looked for when the database is opened.
//!
//! A file that is open stays what it is when it is removed, renamed or replaced, by itself or with the directory above
//! it: what is written into it is durable, and is not found again. So before commits are told, its name has to lead
//! to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_platform::{FileIdentity, Files, OpenMode, PositionedFile};

use super::file::{file_name, position_of_name};
use crate::error::DurabilityError;

/// An open file, and the name that has to lead to it.
#[derive(Debug)]
pub(super) struct NamedFile {
    path: PathBuf,
    /// Open, so that no other file gets its number.
    file: Arc<dyn PositionedFile>,
    identity: FileIdentity,
}

impl NamedFile {
    /// A file that has this name.
    pub fn new(path: PathBuf, file: Arc<dyn PositionedFile>) -> io::Result<Self> {
        let identity = file.identity()?;
        Ok(Self { path, file, identity })
    }

    /// The last one of a log whose directory has these names; none if it has no files.
    pub fn last(files: &dyn Files, directory: &Path, names: &[String]) -> io::Result<Option<Self>> {
        let Some(first) = names.iter().filter_map(|name| position_of_name(name)).max() else { return Ok(None) };
        let path = directory.join(file_name(first));
        let file = files.open_at(&path, OpenMode::Read)?;
        Self::new(path, file).map(Some)
    }

    /// Whether the name leads to the file, by one question to the system. Where that cannot be told, commits go on.
    ///
    /// # Errors
    /// [`DurabilityError::Lost`] says what happened to it.
    pub fn look(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        let is_same = match files.identity(&self.path) {
            // A file system of several layers may have given it another number when it was first written to.
            Ok(found) => found == self.identity || self.file.identity().is_ok_and(|now| now == found),
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        if is_same { Ok(()) } else { Err(DurabilityError::Lost { what: self.what_happened() }) }
    }

    fn what_happened(&self) -> String {
        let path = self.path.display();
        match self.file.moved_to() {
            Some(other) => format!(
                "\"{path}\" is no longer the log file that was opened: that is now \"{}\" and has what was committed. \
                 Stop this server, and move it back, with the log files beside it, in the place of what is there",
                other.display()
            ),
            None => format!(
                "\"{path}\" is no longer the log file that was opened: that was removed. What was committed can be \
                 read until this server stops: copy out what is needed, or restore a backup"
            ),
        }
    }
}
