//! A lock on a file or directory, held by its open descriptor (`flock`): the kernel ends it with the process.
//!
//! What is locked is the inode, whatever its names: a second name, a bind mount or a symbolic link finds the same lock,
//! a copy or another directory that was put in its place does not.

use std::fs::{self, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::regular;
use crate::files::{FileIdentity, FileLock};

/// What a removed file or directory is called behind its old name, by `/proc`.
const DELETED: &str = " (deleted)";

/// Closing the file ends the lock. Child processes do not keep it: descriptors are closed when they start a program.
#[derive(Debug)]
pub(super) struct RealFileLock {
    file: fs::File,
    path: PathBuf,
    identity: FileIdentity,
}

impl RealFileLock {
    /// A file, which is made if there is none.
    pub(super) fn take(path: &Path) -> io::Result<RealFileLock> {
        let file = regular::create(fs::OpenOptions::new().read(true).write(true), path, false)?;
        RealFileLock::of(file, path, fs::File::try_lock)
    }

    /// A file or directory that exists.
    pub(super) fn take_existing(path: &Path) -> io::Result<RealFileLock> {
        let taken = RealFileLock::of(open(path)?, path, fs::File::try_lock);
        // A file system of a network wants the right to write of whoever has a lock alone.
        if taken.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBADF)) && !path.is_dir() {
            let file = regular::open(fs::OpenOptions::new().read(true).write(true), path)?;
            return RealFileLock::of(file, path, fs::File::try_lock);
        }
        taken.map_err(|error| unsupported(error, path))
    }

    pub(super) fn share(path: &Path) -> io::Result<RealFileLock> {
        let shared = RealFileLock::of(open(path)?, path, fs::File::try_lock_shared);
        shared.map_err(|error| unsupported(error, path))
    }

    fn of(
        file: fs::File,
        path: &Path,
        lock: impl FnOnce(&fs::File) -> Result<(), TryLockError>,
    ) -> io::Result<RealFileLock> {
        let identity = identity(&file.metadata()?);
        match lock(&file) {
            Ok(()) => Ok(RealFileLock { file, path: path.to_path_buf(), identity }),
            Err(TryLockError::WouldBlock) => Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK)),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Opens a directory or a regular file to be read.
fn open(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    if path.is_dir() { options.custom_flags(libc::O_DIRECTORY).open(path) } else { regular::open(&mut options, path) }
}

/// Which file or directory this is.
pub(super) fn identity(metadata: &fs::Metadata) -> FileIdentity {
    FileIdentity { device: metadata.dev(), inode: metadata.ino() }
}

/// Where an open file or directory is now, as `/proc` says.
pub(super) fn path_of(file: &fs::File, identity_of_file: FileIdentity) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let is_there = fs::metadata(&path).is_ok_and(|found| identity(&found) == identity_of_file);
    (is_there && !path.to_string_lossy().ends_with(DELETED)).then_some(path)
}

/// What a file system says that locks no directories.
fn unsupported(error: io::Error, path: &Path) -> io::Error {
    let refusals = [libc::EBADF, libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOLCK, libc::EINVAL];
    let is_refused = error.raw_os_error().is_some_and(|code| refusals.contains(&code));
    if is_refused && path.is_dir() { io::Error::new(io::ErrorKind::Unsupported, error) } else { error }
}

impl FileLock for RealFileLock {
    fn write_contents(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(bytes, 0)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) if identity(&found) == self.identity => Ok(true),
            // A file system of several layers may have given it another number when it was first written to.
            Ok(found) => Ok(identity(&found) == identity(&self.file.metadata()?)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn moved_to(&self) -> Option<PathBuf> {
        path_of(&self.file, self.identity)
    }
}

/// The process that has locked this, by the kernel's table of locks; none if that has it under another number of the
/// device, or as a process of another container.
pub(super) fn holder(path: &Path) -> Option<u32> {
    let FileIdentity { device, inode } = identity(&fs::metadata(path).ok()?);
    let locked = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    let table = fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 4711 08:01:3932161 0 EOF
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        process.parse().ok().filter(|process| place == locked && *process > 0)
    })
}
