//! The state of all simulated files: names, contents, locks, planned faults, and the power.
//!
//! Every operation is counted ([`Disk::begin`]) and can be told to fail. After a power loss the disk is of another
//! [`Generation`]: handles of an earlier one are dead.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::disk_faults::{DiskFaults, FileFault};
use super::inode::Inode;
use super::names::{InodeNumber, Names};
use crate::files::{FileIdentity, OpenMode};
use crate::random::SeededRandom;

/// The longest file, because it lies in memory.
const FILE_BYTES_MAX: u64 = 1 << 32;
/// What a disk without a limit says it has.
const CAPACITY_UNLIMITED: u64 = 1 << 40;

/// How often the power was lost before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Generation(u64);

pub(super) struct Disk {
    names: Names,
    inodes: BTreeMap<InodeNumber, Inode>,
    inode_next: u64,
    locked: BTreeSet<InodeNumber>,
    /// By how many at the same time.
    shared: BTreeMap<InodeNumber, usize>,
    operations: u64,
    /// How often jobs were ready to rest.
    pub(super) breaths: u64,
    planned: BTreeMap<u64, FileFault>,
    /// The first operation that has no power.
    power_lost_at: Option<u64>,
    generation: Generation,
    pub(super) faults: DiskFaults,
    pub(super) capacity: Option<u64>,
    pub(super) refuses_directory_locks: bool,
    random: SeededRandom,
}

fn os_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Disk {
    pub(super) fn new(random: SeededRandom) -> Disk {
        Disk {
            names: Names::default(),
            inodes: BTreeMap::new(),
            inode_next: 0,
            locked: BTreeSet::new(),
            shared: BTreeMap::new(),
            operations: 0,
            breaths: 0,
            planned: BTreeMap::new(),
            power_lost_at: None,
            generation: Generation::default(),
            faults: DiskFaults::default(),
            capacity: None,
            refuses_directory_locks: false,
            random,
        }
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn fail_at(&mut self, operation: u64, fault: FileFault) {
        self.planned.insert(operation, fault);
    }

    pub(super) fn lose_power_at(&mut self, operation: u64) {
        self.power_lost_at = Some(operation);
    }

    pub(super) fn is_powerless(&self) -> bool {
        self.power_lost_at.is_some_and(|at| self.operations >= at)
    }

    /// Counts an operation and fails it if that is planned. `allocates`: it takes space.
    fn begin(&mut self, allocates: bool) -> io::Result<()> {
        let powerless = self.is_powerless();
        let number = self.operations;
        self.operations += 1;
        match self.planned.remove(&number) {
            _ if powerless => Err(os_error(libc::EIO)),
            Some(FileFault::NoSpace) if !allocates => {
                self.planned.entry(number + 1).or_insert(FileFault::NoSpace);
                Ok(())
            }
            Some(FileFault::NoSpace) => Err(os_error(libc::ENOSPC)),
            Some(FileFault::Broken) => Err(os_error(libc::EIO)),
            Some(FileFault::Denied) => Err(os_error(libc::EACCES)),
            None => Ok(()),
        }
    }

    /// For what is asked without being counted.
    fn expect_power(&self) -> io::Result<()> {
        if self.is_powerless() { Err(os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Puts a durable file there, and the directories above it.
    pub(super) fn insert(&mut self, path: PathBuf, bytes: Vec<u8>) {
        assert!(!self.names.is_directory(&path), "{} is a directory", path.display());
        let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
        match self.names.missing_directories(&directory) {
            Ok(missing) => missing.into_iter().for_each(|missing| self.add_directory(missing)),
            Err(error) => panic!("{} cannot be a file: {error}", path.display()),
        }
        self.add(path, Inode::durable(bytes));
        self.names.sync(&directory);
    }

    fn add_inode(&mut self, inode: Inode) -> InodeNumber {
        let number = InodeNumber(self.inode_next);
        self.inode_next += 1;
        self.inodes.insert(number, inode);
        number
    }

    fn add(&mut self, path: PathBuf, inode: Inode) -> InodeNumber {
        let number = self.add_inode(inode);
        self.names.link(path, number);
        number
    }

    fn add_directory(&mut self, path: PathBuf) {
        let number = self.add_inode(Inode::default());
        self.names.create_directory(path, number);
    }

    pub(super) fn move_directory(&mut self, from: &Path, to: &Path) {
        self.names.move_directory(from, to);
        self.drop_unreferenced();
    }

    pub(super) fn contents(&self, path: &Path) -> Option<&[u8]> {
        self.names.get(path).map(|inode| self.inode(inode).contents())
    }

    fn inode(&self, number: InodeNumber) -> &Inode {
        let Some(inode) = self.inodes.get(&number) else { unreachable!("{number:?} is in use and gone") };
        inode
    }

    fn inode_mut(&mut self, number: InodeNumber) -> &mut Inode {
        let Some(inode) = self.inodes.get_mut(&number) else { unreachable!("{number:?} is in use and gone") };
        inode
    }

    /// Opens an existing file; its handle is to be [closed](Self::close).
    pub(super) fn open(&mut self, path: &Path) -> io::Result<InodeNumber> {
        self.begin(false)?;
        let number = self.names.find(path)?;
        self.inode_mut(number).handles += 1;
        Ok(number)
    }

    /// Opens a file, a new one if there is none, and empties it.
    pub(super) fn create(&mut self, path: PathBuf) -> io::Result<InodeNumber> {
        let number = self.open_or_create(path)?;
        self.inode_mut(number).set_length(0);
        Ok(number)
    }

    fn open_or_create(&mut self, path: PathBuf) -> io::Result<InodeNumber> {
        self.begin(true)?;
        let number = match self.names.lookup(&path)? {
            Some(number) => number,
            None => self.add(path, Inode::default()),
        };
        self.inode_mut(number).handles += 1;
        Ok(number)
    }

    pub(super) fn open_at(&mut self, path: PathBuf, mode: OpenMode) -> io::Result<InodeNumber> {
        if !matches!(mode, OpenMode::Create | OpenMode::CreateDirect) {
            return self.open(&path);
        }
        self.begin(true)?;
        if self.names.exists(&path) {
            return Err(os_error(libc::EEXIST));
        }
        self.names.lookup(&path)?;
        let number = self.add(path, Inode::default());
        self.inode_mut(number).handles += 1;
        Ok(number)
    }

    pub(super) fn close(&mut self, number: InodeNumber) {
        let inode = self.inode_mut(number);
        assert!(inode.handles > 0, "{number:?} was closed more often than opened");
        inode.handles -= 1;
        if inode.handles == 0 {
            self.drop_unreferenced();
        }
    }

    fn drop_unreferenced(&mut self) {
        let referenced = self.names.referenced();
        self.inodes.retain(|number, inode| inode.handles > 0 || referenced.contains(number));
    }

    pub(super) fn remove(&mut self, path: PathBuf) -> io::Result<()> {
        self.begin(false)?;
        self.names.find(&path)?;
        self.names.unlink(path);
        self.drop_unreferenced();
        Ok(())
    }

    pub(super) fn rename(&mut self, from: PathBuf, to: PathBuf) -> io::Result<()> {
        self.begin(true)?;
        if self.names.would_rename(&from, &to)? {
            self.names.rename(from, to);
            self.drop_unreferenced();
        }
        Ok(())
    }

    pub(super) fn list(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        self.begin(false)?;
        self.names.list(directory)
    }

    pub(super) fn list_directories(&mut self, directory: &Path) -> io::Result<Vec<String>> {
        self.begin(false)?;
        self.names.list_directories(directory)
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        self.begin(false)?;
        self.names.remove_directory(path)?;
        self.drop_unreferenced();
        Ok(())
    }

    /// One operation for each directory that is missing, so that the power can be lost in between.
    pub(super) fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        let missing = self.names.missing_directories(path);
        if !missing.as_ref().is_ok_and(|missing| !missing.is_empty()) {
            self.begin(false)?;
        }
        for directory in missing? {
            self.begin(true)?;
            self.add_directory(directory);
        }
        Ok(())
    }

    /// After an error what happened in the directory may still survive, and can be synced again.
    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.begin(false)?;
        self.names.expect_directory(path)?;
        self.names.sync(path);
        self.drop_unreferenced();
        Ok(())
    }

    pub(super) fn read_whole(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.begin(false)?;
        let number = self.names.find(path)?;
        Ok(self.inode(number).contents().to_vec())
    }

    pub(super) fn read_at(&mut self, number: InodeNumber, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.begin(false)?;
        let contents = self.inode(number).contents();
        let rest = &contents[offset.min(contents.len() as u64) as usize..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// A write that does not fit completely is short; the next one fails.
    /// What does not fit is cut off to a multiple of `unit`.
    pub(super) fn write_at(
        &mut self,
        number: InodeNumber,
        bytes: &[u8],
        offset: u64,
        unit: usize,
    ) -> io::Result<usize> {
        let length = self.inode(number).contents().len() as u64;
        let end = offset.saturating_add(bytes.len() as u64);
        self.begin(end > length)?;
        if end > FILE_BYTES_MAX {
            return Err(os_error(libc::EFBIG));
        }
        let fits = length.saturating_add(self.available()).saturating_sub(offset);
        let fits = if end > length { fits as usize } else { bytes.len() };
        let count = if fits < bytes.len() { fits - fits % unit } else { bytes.len() };
        if count == 0 && !bytes.is_empty() {
            return Err(os_error(libc::ENOSPC));
        }
        self.inode_mut(number).write(offset as usize, &bytes[..count]);
        Ok(count)
    }

    pub(super) fn set_len(&mut self, number: InodeNumber, bytes: u64) -> io::Result<()> {
        let length = self.inode(number).contents().len() as u64;
        self.begin(bytes > length)?;
        if bytes > FILE_BYTES_MAX {
            return Err(os_error(libc::EFBIG));
        }
        if bytes.saturating_sub(length) > self.available() {
            return Err(os_error(libc::ENOSPC));
        }
        self.inode_mut(number).set_length(bytes as usize);
        Ok(())
    }

    pub(super) fn len(&self, number: InodeNumber) -> io::Result<u64> {
        self.expect_power()?;
        Ok(self.inode(number).contents().len() as u64)
    }

    pub(super) fn sync(&mut self, number: InodeNumber) -> io::Result<()> {
        let powerless = self.is_powerless();
        let begun = self.begin(false);
        let failed_sync = self.faults.failed_sync;
        let inode = self.inode_mut(number);
        match &begun {
            Ok(()) => inode.sync(),
            // What is unsynced then is for the power loss to decide.
            Err(_) if powerless => {}
            Err(_) => inode.fail_sync(failed_sync),
        }
        begun
    }

    /// Bytes that still fit.
    fn available(&self) -> u64 {
        let Some(capacity) = self.capacity else { return CAPACITY_UNLIMITED };
        let named = self.names.named();
        let kept = self.inodes.iter().filter(|(number, inode)| inode.handles > 0 || named.contains(number));
        capacity.saturating_sub(kept.map(|(_, inode)| inode.contents().len() as u64).sum())
    }

    pub(super) fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.expect_power()?;
        if !self.names.is_directory(path) {
            self.names.find(path)?;
        }
        Ok(self.available())
    }

    pub(super) fn lock(&mut self, path: PathBuf) -> io::Result<InodeNumber> {
        let number = self.open_or_create(path)?;
        self.take_lock(number)
    }

    pub(super) fn lock_existing(&mut self, path: &Path) -> io::Result<InodeNumber> {
        let number = self.open_to_lock(path)?;
        self.take_lock(number)
    }

    fn take_lock(&mut self, number: InodeNumber) -> io::Result<InodeNumber> {
        if !self.shared.contains_key(&number) && self.locked.insert(number) {
            return Ok(number);
        }
        self.close(number);
        Err(os_error(libc::EWOULDBLOCK))
    }

    pub(super) fn lock_shared(&mut self, path: &Path) -> io::Result<InodeNumber> {
        let number = self.open_to_lock(path)?;
        if self.locked.contains(&number) {
            self.close(number);
            return Err(os_error(libc::EWOULDBLOCK));
        }
        *self.shared.entry(number).or_default() += 1;
        Ok(number)
    }

    fn open_to_lock(&mut self, path: &Path) -> io::Result<InodeNumber> {
        let Some(number) = self.names.directory(path) else { return self.open(path) };
        self.begin(false)?;
        if self.refuses_directory_locks {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.inode_mut(number).handles += 1;
        Ok(number)
    }

    pub(super) fn leads_to(&self, path: &Path, number: InodeNumber) -> io::Result<bool> {
        self.expect_power()?;
        Ok(self.names.directory(path).or_else(|| self.names.get(path)) == Some(number))
    }

    pub(super) fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.expect_power()?;
        let number = self.names.directory(path).map_or_else(|| self.names.find(path), Ok)?;
        Ok(number.identity())
    }

    /// Ends a lock; its handle is still to be closed.
    pub(super) fn unlock(&mut self, number: InodeNumber, shared: bool) {
        if !shared {
            let held = self.locked.remove(&number);
            assert!(held, "{number:?} was unlocked and not locked");
            return;
        }
        let Some(holders) = self.shared.get_mut(&number) else {
            unreachable!("{number:?} was unlocked and not locked")
        };
        *holders -= 1;
        if *holders == 0 {
            self.shared.remove(&number);
        }
    }

    pub(super) fn lose_power(&mut self) {
        self.names.lose_power(&self.faults, &mut self.random);
        for inode in self.inodes.values_mut() {
            inode.lose_power(&self.faults, &mut self.random);
        }
        self.kill_process();
    }

    pub(super) fn kill_process(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
        }
        self.locked.clear();
        self.shared.clear();
        self.drop_unreferenced();
        self.power_lost_at = None;
        self.planned.clear();
        self.generation.0 += 1;
    }
}
