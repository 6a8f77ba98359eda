//! Handles of simulated files: front to back, at positions, and as a lock.
//!
//! A handle belongs to a generation of the disk. When the power was lost since, it is dead: its operations fail, are
//! not counted, and its end ends nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use super::disk::{Disk, Generation};
use super::files::SimulatedFiles;
use super::names::InodeNumber;
use crate::files::{DIRECT_ALIGN, File, FileIdentity, FileLock, PositionedFile};

/// What a handle may do; else the kernel's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    Write,
    ReadWrite,
    /// Written only, past the page cache.
    Direct,
}

/// An open file.
pub(super) struct OpenFile {
    files: SimulatedFiles,
    inode: InodeNumber,
    generation: Generation,
    access: Access,
}

impl OpenFile {
    pub(super) fn new(files: SimulatedFiles, inode: InodeNumber, generation: Generation, access: Access) -> OpenFile {
        OpenFile { files, inode, generation, access }
    }

    /// The disk, if it is still the one on which the file was opened.
    fn disk(&self) -> Option<MutexGuard<'_, Disk>> {
        let disk = self.files.disk();
        (disk.generation() == self.generation).then_some(disk)
    }

    fn live_disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        self.disk().ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    fn refuse(&self, access: Access, code: i32) -> io::Result<()> {
        if self.access == access { Err(io::Error::from_raw_os_error(code)) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.live_disk()?.sync(self.inode)
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut formatter = formatter.debug_struct("OpenFile");
        formatter.field("inode", &self.inode).field("generation", &self.generation).field("access", &self.access);
        formatter.finish_non_exhaustive()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(mut disk) = self.disk() {
            disk.close(self.inode);
        }
    }
}

impl PositionedFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.refuse(Access::Write, libc::EBADF)?;
        self.refuse(Access::Direct, libc::EBADF)?;
        self.live_disk()?.read_at(self.inode, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.refuse(Access::Read, libc::EBADF)?;
        let unit = if self.access == Access::Direct { DIRECT_ALIGN } else { 1 };
        if [bytes.as_ptr().addr(), bytes.len(), offset as usize].iter().any(|number| number % unit != 0) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.live_disk()?.write_at(self.inode, bytes, offset, unit)
    }

    fn len(&self) -> io::Result<u64> {
        self.live_disk()?.len(self.inode)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.refuse(Access::Read, libc::EINVAL)?;
        self.live_disk()?.set_len(self.inode, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.live_disk().map(|_| self.inode.identity())
    }

    fn moved_to(&self) -> Option<PathBuf> {
        self.disk()?.names().path_of(self.inode).map(Path::to_path_buf)
    }
}

/// Front to back.
pub(super) struct SimulatedFile {
    file: OpenFile,
    position: u64,
}

impl SimulatedFile {
    pub(super) fn new(file: OpenFile) -> SimulatedFile {
        SimulatedFile { file, position: 0 }
    }
}

impl File for SimulatedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Another handle may have emptied the file: the gap reads as zeros.
        let count = self.file.write_at(bytes, self.position)?;
        self.position += count as u64;
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        PositionedFile::len(&self.file)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// The file is locked from before the value is made until it is dropped.
#[derive(Debug)]
pub(super) struct SimulatedFileLock {
    file: OpenFile,
    path: PathBuf,
    shared: bool,
}

impl SimulatedFileLock {
    pub(super) fn new(file: OpenFile, path: PathBuf, shared: bool) -> SimulatedFileLock {
        SimulatedFileLock { file, path, shared }
    }
}

impl FileLock for SimulatedFileLock {
    fn write_contents(&self, bytes: &[u8]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(bytes, 0)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.file.live_disk()?.leads_to(&self.path, self.file.inode)
    }

    fn moved_to(&self) -> Option<PathBuf> {
        PositionedFile::moved_to(&self.file)
    }
}

impl Drop for SimulatedFileLock {
    fn drop(&mut self) {
        if let Some(mut disk) = self.file.disk() {
            disk.unlock(self.file.inode, self.shared);
        }
    }
}
