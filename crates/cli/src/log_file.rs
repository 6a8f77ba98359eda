//! `--log FILE`: what a server has to say to its operator goes into a file, which SIGHUP opens again.
//!
//! Everything that the process writes to standard error is meant, so the file takes the place of standard error.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use eris_platform::messages::tell;

use crate::failure::Failure;

const STANDARD_ERROR: libc::c_int = 2;

/// The file, as long as it stands in for standard error.
pub struct LogFile {
    path: PathBuf,
    /// Where standard error went before.
    before: OwnedFd,
}

impl LogFile {
    /// From now on standard error is this file, which is appended to.
    pub fn begin(path: &Path) -> Result<LogFile, Failure> {
        let failed = |error: io::Error| Failure::Message(format!("--log \"{}\": {error}", path.display()));
        // The server may be told to open it again from another directory than the one it was started in.
        let path_absolute = std::path::absolute(path).map_err(failed)?;
        let file = open(&path_absolute).map_err(failed)?;
        let before = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        replace(&file).map_err(failed)?;
        Ok(LogFile { path: path_absolute, before })
    }

    /// Opens the file by its name again: the one before may have been moved away.
    pub fn reopen(&self) {
        match open(&self.path).and_then(|file| replace(&file)) {
            Ok(()) => tell("SIGHUP: the log goes on in this file"),
            Err(error) => {
                let path = self.path.display();
                tell(format_args!("SIGHUP: \"{path}\" cannot be opened ({error}); the log goes on in the file before"));
            }
        }
    }

    /// From now on standard error is what it was before: for the last words.
    pub fn end(&self) {
        // Where that fails, they go into the file.
        let _ = replace(&self.before);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let is_special = fs::metadata(path).is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
    });
    if is_special {
        // It would keep the threads that write to it.
        return Err(io::Error::other("it is not a regular file"));
    }
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn replace(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; that of standard error stays so all the time.
    match unsafe { libc::dup2(file.as_raw_fd(), STANDARD_ERROR) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
