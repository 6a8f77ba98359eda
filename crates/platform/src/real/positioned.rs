//! A file of the operating system, read and written at positions (`pread`, `pwrite`).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::file_lock::{identity, path_of};
use super::threads;
use crate::files::{FileIdentity, PositionedFile};

#[derive(Debug)]
pub(super) struct RealPositionedFile {
    file: fs::File,
    /// Whether writes go past the page cache.
    direct: AtomicBool,
}

impl RealPositionedFile {
    /// `direct`: whether to write past the page cache, if the file system can.
    pub(super) fn new(file: fs::File, direct: bool) -> Self {
        // Asked for behind the creation: a file system that cannot refuses it when the file is there already.
        let direct = direct && set_direct(&file, true).is_ok();
        Self { file, direct: AtomicBool::new(direct) }
    }
}

impl PositionedFile for RealPositionedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.direct.load(Ordering::Relaxed) {
            return self.file.write_at(bytes, offset);
        }
        // For the device, as a rule.
        let written = threads::resting_if_it_waits(|| self.file.write_at(bytes, offset));
        // Some file systems take the flag and refuse what is written.
        let is_refused = written.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
        if is_refused && set_direct(&self.file, false).is_ok() {
            self.direct.store(false, Ordering::Relaxed);
            return self.file.write_at(bytes, offset);
        }
        written
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(identity(&self.file.metadata()?))
    }

    fn moved_to(&self) -> Option<PathBuf> {
        path_of(&self.file, PositionedFile::identity(self).ok()?)
    }
}

/// Has what is written go past the page cache, or through it.
fn set_direct(file: &fs::File, direct: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open; both calls take and give numbers only.
    let done = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags if direct => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT),
            flags => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT),
        }
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
