//! Files in memory, with faults that are planned by operation number.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{File, FileLock, Files, OpenMode, PositionedFile};

/// What a file operation can be told to fail with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileFault {
    /// `ENOSPC`; only operations that create or write suffer it, others pass it on to the next.
    NoSpace,
    /// `EIO`.
    Broken,
}

impl FileFault {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            FileFault::NoSpace => libc::ENOSPC,
            FileFault::Broken => libc::EIO,
        })
    }
}

/// All files of a simulated machine.
#[derive(Clone, Default)]
pub struct SimulatedFiles {
    shared: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    /// Contents stay reachable through open files when a name is removed, as on Unix.
    contents: BTreeMap<PathBuf, Arc<Mutex<Vec<u8>>>>,
    operations: u64,
    faults: BTreeMap<u64, FileFault>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedFiles {
    /// Operations so far: open, create, remove, read, write, sync.
    pub fn operations(&self) -> u64 {
        lock(&self.shared).operations
    }

    /// Makes the operation of this number (the first is 0, see [`operations`](Self::operations)) fail.
    pub fn fail_at(&self, operation: u64, fault: FileFault) {
        lock(&self.shared).faults.insert(operation, fault);
    }

    /// Puts a file there, without counting an operation.
    pub fn insert(&self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) {
        lock(&self.shared).contents.insert(path.into(), Arc::new(Mutex::new(bytes.into())));
    }

    /// What a file holds, without counting an operation.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        lock(&self.shared).contents.get(path.as_ref()).map(|bytes| lock(bytes).clone())
    }

    fn operation(&self, writes: bool) -> io::Result<MutexGuard<'_, Disk>> {
        let mut disk = lock(&self.shared);
        let number = disk.operations;
        disk.operations += 1;
        match disk.faults.remove(&number) {
            Some(FileFault::NoSpace) if !writes => {
                disk.faults.entry(number + 1).or_insert(FileFault::NoSpace);
                Ok(disk)
            }
            Some(fault) => Err(fault.error()),
            None => Ok(disk),
        }
    }

    fn file(&self, bytes: Arc<Mutex<Vec<u8>>>, access: Access) -> Box<dyn File> {
        Box::new(SimulatedFile { files: self.clone(), bytes, position: 0, access })
    }
}

impl Files for SimulatedFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let disk = self.operation(false)?;
        let bytes = disk.contents.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(Arc::clone(bytes), Access::Read))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut disk = self.operation(true)?;
        let bytes = Arc::clone(disk.contents.entry(path.to_path_buf()).or_default());
        lock(&bytes).clear();
        Ok(self.file(bytes, Access::Write))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.operation(false)?.contents.remove(path);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exists(&self, path: &Path) -> bool {
        lock(&self.shared).contents.contains_key(path)
    }

    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        let disk = self.operation(false)?;
        let bytes = disk.contents.get(path).ok_or(io::ErrorKind::NotFound)?;
        String::from_utf8(lock(bytes).clone()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn open_at(&self, _path: &Path, _mode: OpenMode) -> io::Result<Arc<dyn PositionedFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn available_bytes(&self, _path: &Path) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn FileLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

struct SimulatedFile {
    files: SimulatedFiles,
    bytes: Arc<Mutex<Vec<u8>>>,
    position: usize,
    access: Access,
}

impl SimulatedFile {
    /// What the kernel answers to reading a file opened for writing, and the reverse.
    fn demand(&self, access: Access) -> io::Result<()> {
        if self.access == access { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }
}

impl File for SimulatedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.demand(Access::Read)?;
        drop(self.files.operation(false)?);
        let bytes = lock(&self.bytes);
        let rest = &bytes[self.position.min(bytes.len())..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.demand(Access::Write)?;
        drop(self.files.operation(true)?);
        let mut contents = lock(&self.bytes);
        // Another handle may have emptied the file: the gap reads as zeros.
        let end = self.position + bytes.len();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[self.position..end].copy_from_slice(bytes);
        self.position = end;
        Ok(bytes.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.bytes).len() as u64)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.files.operation(true).map(drop)
    }
}
