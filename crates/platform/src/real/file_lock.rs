//! A lock on a file, held by its open descriptor (`flock`): the kernel ends it with the process.

use std::fs::{self, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::regular;
use crate::files::FileLock;

/// Closing the file ends the lock. Child processes do not keep it: descriptors are closed when they start a program.
#[derive(Debug)]
pub(super) struct RealFileLock(fs::File);

impl RealFileLock {
    pub(super) fn take(path: &Path) -> io::Result<RealFileLock> {
        let file = regular::create(fs::OpenOptions::new().read(true).write(true), path, false)?;
        match file.try_lock() {
            Ok(()) => Ok(RealFileLock(file)),
            Err(TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn share(path: &Path) -> io::Result<RealFileLock> {
        let file = regular::open(fs::OpenOptions::new().read(true), path)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(RealFileLock(file)),
            Err(TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl FileLock for RealFileLock {
    fn write_contents(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(bytes, 0)
    }
}
