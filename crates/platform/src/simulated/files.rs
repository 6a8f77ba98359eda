//! Files in memory, with faults that are planned by operation number, and a disk that forgets what was not synced when
//! the power is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, Generation};
use super::disk_faults::{DiskFaults, FileFault};
use super::names::{InodeNumber, normal};
use super::open_file::{Access, OpenFile, SimulatedFile, SimulatedFileLock};
use crate::files::{DIRECT_ALIGN, File, FileIdentity, FileLock, Files, OpenMode, PositionedFile};
use crate::random::SeededRandom;

/// All files of a simulated machine. Clones are the same files.
///
/// Relative paths begin at the root. The root directory is there; others have to be created.
#[derive(Clone)]
pub struct SimulatedFiles {
    disk: Arc<Mutex<Disk>>,
}

impl Default for SimulatedFiles {
    fn default() -> SimulatedFiles {
        SimulatedFiles::new(0)
    }
}

impl SimulatedFiles {
    /// The seed decides what survives when the power is lost.
    pub fn new(seed: u64) -> SimulatedFiles {
        SimulatedFiles { disk: Arc::new(Mutex::new(Disk::new(SeededRandom::new(seed)))) }
    }

    /// Operations so far: open, create, create a directory, lock, rename, remove, list, read, write, cut or extend,
    /// sync. Looking at a length, at the free space, or at what a name leads to is none.
    pub fn operations(&self) -> u64 {
        self.disk().operations()
    }

    /// How often jobs were ready to rest ([`Files::breathe`]).
    pub fn breaths(&self) -> u64 {
        self.disk().breaths
    }

    /// Makes the operation of this number (the first is 0, see [`operations`](Self::operations)) fail.
    pub fn fail_at(&self, operation: u64, fault: FileFault) {
        self.disk().fail_at(operation, fault);
    }

    /// Puts a file there, and the directories above it, without counting an operation. It is durable, and so is what
    /// happened in its directory before.
    ///
    /// # Panics
    /// If the path is that of a directory, or leads through a file.
    pub fn insert(&self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        self.disk().insert(normal(&path.into()), bytes.into());
    }

    /// What a reader finds in a file, without counting an operation.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.disk().contents(&normal(path.as_ref())).map(<[u8]>::to_vec)
    }

    pub fn disk_faults(&self) -> DiskFaults {
        self.disk().faults
    }

    /// From now on the disk is like this.
    pub fn set_disk_faults(&self, faults: DiskFaults) {
        self.disk().faults = faults;
    }

    /// Limits how many bytes all files together may hold. What does not fit is `ENOSPC`; what is there stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk().capacity = bytes;
    }

    /// Another process gives a directory another name, with all that is in it, which is durable then. Open files and
    /// locks are of the same files and directories as before.
    ///
    /// # Panics
    /// If there is no such directory, or something has the new name.
    pub fn move_directory(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        self.disk().move_directory(&normal(from.as_ref()), &normal(to.as_ref()));
    }

    /// From now on directories cannot be locked, as on file systems of a network; or they can.
    pub fn refuse_directory_locks(&self, refuses: bool) {
        self.disk().refuses_directory_locks = refuses;
    }

    /// The power is lost, and back at once.
    ///
    /// What was synced survives, of the rest what the random (see [`DiskFaults`]) leaves, and that is durable then.
    /// Planned faults that did not come are forgotten.
    /// Locks are free, and every handle from before is dead: its operations fail with `EIO`.
    pub fn lose_power(&self) {
        self.disk().lose_power();
    }

    /// The process that uses the files ends without a word: as [`lose_power`](Self::lose_power), but files stay as they
    /// look, and what was not synced may still be lost with the power.
    pub fn kill_process(&self) {
        self.disk().kill_process();
    }

    /// Operations from this number on (see [`operations`](Self::operations)) fail with `EIO` and have no effect, until
    /// [`lose_power`](Self::lose_power) says what has survived: the power is lost in the middle of something. Or until
    /// [`kill_process`](Self::kill_process), if it is only the process that ended there.
    pub fn lose_power_at(&self, operation: u64) {
        self.disk().lose_power_at(operation);
    }

    /// Whether the next operation fails because of [`lose_power_at`](Self::lose_power_at).
    pub fn is_powerless(&self) -> bool {
        self.disk().is_powerless()
    }

    pub(super) fn generation(&self) -> Generation {
        self.disk().generation()
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle of the file that `open` opens.
    fn handle(&self, access: Access, open: impl FnOnce(&mut Disk) -> io::Result<InodeNumber>) -> io::Result<OpenFile> {
        let mut disk = self.disk();
        let inode = open(&mut disk)?;
        let generation = disk.generation();
        drop(disk);
        Ok(OpenFile::new(self.clone(), inode, generation, access))
    }
}

impl Files for SimulatedFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = self.handle(Access::Read, |disk| disk.open(&normal(path)))?;
        Ok(Box::new(SimulatedFile::new(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = self.handle(Access::Write, |disk| disk.create(normal(path)))?;
        Ok(Box::new(SimulatedFile::new(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().remove(normal(path))
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk().names().exists(&normal(path))
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.disk().identity(&normal(path))
    }

    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        let bytes = self.disk().read_whole(&normal(path))?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn open_at(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn PositionedFile>> {
        let access = match mode {
            OpenMode::Read => Access::Read,
            OpenMode::Write | OpenMode::Create => Access::ReadWrite,
            OpenMode::CreateDirect => Access::Direct,
        };
        let file = self.handle(access, |disk| disk.open_at(normal(path), mode))?;
        Ok(Arc::new(file))
    }

    /// Few, so that much happens between two writes.
    fn piece_bytes(&self) -> usize {
        DIRECT_ALIGN
    }

    fn breathe(&self) {
        self.disk().breaths += 1;
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().rename(normal(from), normal(to))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk().list(&normal(directory))
    }

    fn list_directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk().list_directories(&normal(directory))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk().create_directory(&normal(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk().remove_directory(&normal(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.disk().sync_directory(&normal(path))
    }

    /// The machine has one user.
    fn restrict(&self, path: &Path) -> io::Result<Option<u32>> {
        if self.exists(path) { Ok(None) } else { Err(io::Error::from_raw_os_error(libc::ENOENT)) }
    }

    fn is_within(&self, path: &Path, directory: &Path) -> io::Result<bool> {
        Ok(normal(path).starts_with(normal(directory)))
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk().available_bytes(&normal(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.handle(Access::Write, |disk| disk.lock(normal(path)))?;
        Ok(Box::new(SimulatedFileLock::new(file, normal(path), false)))
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.handle(Access::Read, |disk| disk.lock_existing(&normal(path)))?;
        Ok(Box::new(SimulatedFileLock::new(file, normal(path), false)))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.handle(Access::Read, |disk| disk.lock_shared(&normal(path)))?;
        Ok(Box::new(SimulatedFileLock::new(file, normal(path), true)))
    }

    /// There is one process.
    fn lock_holder(&self, _path: &Path) -> Option<u32> {
        None
    }
}
