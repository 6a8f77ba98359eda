//! Temporary files: where statements put what does not fit into memory.
//!
//! ```text
//!   statement ── append ──> [queue "temp writes"] ──> DIR/spill-<process>-<number>.tmp
//!             <── read ──── [queue "temp reads"]  <──     opened by the first write, and at once without a name
//! ```
//! A file loses its name as soon as it is open, so nothing of it outlives the process, however that ends, and nobody
//! can take it away or change it meanwhile. Its space is free when the last [`TempFile`] is dropped: at the end of the
//! statement, whether it succeeds, fails, is cancelled or its task is dropped. What a process left that was killed
//! between the two calls is removed by [`TempFiles::clear`].
//!
//! No caller waits for the disk: writing and reading are jobs of two queues, which start with the first file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::env::Env;
use crate::files::{Files, OpenMode, PositionedFile};
use crate::io_queue::{self, IoQueue, IoTask};

const NAME_BEGIN: &str = "spill-";
const NAME_END: &str = ".tmp";
/// Hexadecimal digits of the process in a name.
const PROCESS_DIGITS: usize = 16;
/// The free space is looked at each time that all files together have grown by this much.
const LOOK_EVERY_BYTES: u64 = 16 << 20;

/// How a statement's temporary files are bounded.
pub const TEMP_FILE_LIMIT_SETTING: &str = "temp_file_limit";

/// What went wrong with a temporary file. The statement that it belongs to fails; nothing else does.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TempFileError {
    #[error("temporary file size exceeds \"{TEMP_FILE_LIMIT_SETTING}\" ({limit_bytes} bytes)")]
    Limit { limit_bytes: u64 },
    #[error("no space left for temporary files in {}: {reason}", directory.display())]
    Full { directory: PathBuf, reason: String },
    #[error("could not {action} a temporary file in {}: {reason}", directory.display())]
    Io {
        action: &'static str,
        directory: PathBuf,
        reason: String,
        /// The code of the operating system, if it is an error of the system.
        os_error: Option<i32>,
    },
    #[error("a temporary file in {} is shorter than what was written to it", directory.display())]
    Short { directory: PathBuf },
    #[error("a temporary file in {} does not hold what was written to it: {reason}", directory.display())]
    Damaged { directory: PathBuf, reason: String },
}

/// How much one statement may keep in temporary files.
#[derive(Debug)]
pub struct TempBudget {
    limit_bytes: u64,
    used: AtomicU64,
    written: AtomicU64,
}

impl TempBudget {
    /// `None`: as much as there is space.
    pub fn new(limit_bytes: Option<u64>) -> Arc<TempBudget> {
        let limit_bytes = limit_bytes.unwrap_or(u64::MAX);
        Arc::new(TempBudget { limit_bytes, used: AtomicU64::new(0), written: AtomicU64::new(0) })
    }

    /// Bytes in files now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that were written in all.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), TempFileError> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limit_bytes {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(TempFileError::Limit { limit_bytes: self.limit_bytes });
        }
        self.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where temporary files are and what becomes of the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TempDirectory {
    pub path: PathBuf,
    /// Made for this process alone: removed with the last reference.
    pub is_own: bool,
    /// Space that temporary files leave to others in the same file system, such as the log.
    pub keeps_free_bytes: u64,
}

/// The temporary files of one database.
pub struct TempFiles {
    env: Arc<dyn Env>,
    directory: TempDirectory,
    /// None: there was no file yet.
    queues: Mutex<Option<Queues>>,
    /// In the names of files: another process may use the same directory.
    process: OnceLock<u64>,
    next_number: AtomicU64,
    used: AtomicU64,
    written: AtomicU64,
    files: AtomicU64,
    /// Bytes that were handed to the disk so far, over all files, and at how many the free space is looked at next.
    /// Only jobs of the queue that writes change them.
    handed: AtomicU64,
    look_at: AtomicU64,
}

#[derive(Clone)]
struct Queues {
    writes: Arc<dyn IoQueue>,
    reads: Arc<dyn IoQueue>,
}

/// What temporary files there were and are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TempStatistics {
    /// Files so far.
    pub files: u64,
    /// Bytes that they hold now.
    pub used_bytes: u64,
    /// Bytes that were written so far.
    pub written_bytes: u64,
}

impl TempFiles {
    /// Nothing is made before the first file is.
    pub fn new(env: Arc<dyn Env>, directory: TempDirectory) -> Arc<TempFiles> {
        Arc::new(TempFiles {
            env,
            directory,
            queues: Mutex::new(None),
            process: OnceLock::new(),
            next_number: AtomicU64::new(0),
            used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            files: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
        })
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Space that they leave to others; see [`TempDirectory::keeps_free_bytes`].
    pub fn keeps_free_bytes(&self) -> u64 {
        self.directory.keeps_free_bytes
    }

    /// The machine that they are on.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Removes what an earlier process left; how many files that were. Waits for the disk.
    ///
    /// Only names that [`TempFiles::create`] gives are touched. A file that is gone meanwhile is no error, and one that
    /// may not be removed stays: in a directory that several users share it is another user's.
    ///
    /// To be called before the first file is made.
    pub fn clear(&self) -> io::Result<usize> {
        let files = self.env.files();
        if !files.exists(&self.directory.path) {
            return Ok(0);
        }
        let mut removed = 0;
        for name in files.list(&self.directory.path)? {
            if !is_name(&name) {
                continue;
            }
            match files.remove(&self.directory.path.join(name)) {
                Ok(()) => removed += 1,
                Err(error) if may_stay(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Whether files can be made here: makes one, and leaves nothing of it. A disk that is full now is no reason to
    /// choose another directory. Waits for the disk.
    pub fn probe(&self) -> Result<(), TempFileError> {
        let files = self.env.files();
        let was_there = files.exists(&self.directory.path);
        let probed = self.open(files, &self.next_path()).map(drop);
        if !was_there {
            // It is made again with the first file.
            let _ = files.remove_directory(&self.directory.path);
        }
        match probed {
            Err(TempFileError::Full { .. }) => Ok(()),
            probed => probed,
        }
    }

    /// A new file, empty; the disk hears of it with the first write.
    pub fn create(self: &Arc<Self>, budget: &Arc<TempBudget>) -> Result<TempFile, TempFileError> {
        let queues = self.queues()?;
        self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.next_path();
        let (owner, budget) = (Arc::clone(self), Arc::clone(budget));
        let open = Mutex::new(Opened::NotYet);
        Ok(TempFile { inner: Arc::new(Inner { owner, budget, queues, path, end: AtomicU64::new(0), open }) })
    }

    /// Where a new file goes.
    fn next_path(&self) -> PathBuf {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let process = self.process.get_or_init(|| self.env.random_u64());
        let name = format!("{NAME_BEGIN}{process:0PROCESS_DIGITS$x}-{number}{NAME_END}");
        debug_assert!(is_name(&name), "{name} is removed if it is left over");
        self.directory.path.join(name)
    }

    /// What there was and is.
    pub fn statistics(&self) -> TempStatistics {
        TempStatistics {
            files: self.files.load(Ordering::Relaxed),
            used_bytes: self.used.load(Ordering::Relaxed),
            written_bytes: self.written.load(Ordering::Relaxed),
        }
    }

    fn queues(&self) -> Result<Queues, TempFileError> {
        let mut queues = lock(&self.queues);
        if let Some(queues) = &*queues {
            return Ok(queues.clone());
        }
        let start = |name| self.env.io_queue(name).map_err(|error| self.failed("start the thread for", &error));
        let started = Queues { writes: start("temp writes")?, reads: start("temp reads")? };
        Ok(queues.insert(started).clone())
    }

    fn failed(&self, action: &'static str, error: &io::Error) -> TempFileError {
        let directory = self.directory.path.clone();
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                TempFileError::Full { directory, reason: error.to_string() }
            }
            os_error => TempFileError::Io { action, directory, reason: error.to_string(), os_error },
        }
    }

    /// Makes the directory if it is missing, but not what it is in: a path that is wrong must not become right.
    fn make_directory(&self, files: &dyn Files) -> Result<(), TempFileError> {
        let path = &self.directory.path;
        if files.exists(path) {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !files.exists(parent)) {
            let reason = format!("{} does not exist", parent.display());
            let (directory, os_error) = (path.clone(), Some(libc::ENOENT));
            return Err(TempFileError::Io { action: "create", directory, reason, os_error });
        }
        files.create_directory(path).map_err(|error| self.failed("create the directory of", &error))
    }

    /// A new file that has lost its name already.
    fn open(&self, files: &dyn Files, path: &Path) -> Result<Arc<dyn PositionedFile>, TempFileError> {
        self.make_directory(files)?;
        let failed = |error: io::Error| self.failed("create", &error);
        let file = files.open_at(path, OpenMode::Create).map_err(failed)?;
        match files.remove(path) {
            // Another process that clears the same directory was faster.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        Ok(file)
    }

    /// Whether there is still room for others when these bytes are written; looked at now and then, and each time when
    /// there is little.
    fn look_at_space(&self, files: &dyn Files, bytes: u64) -> Result<(), TempFileError> {
        let keeps = self.directory.keeps_free_bytes;
        let handed = self.handed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if keeps == 0 || handed < self.look_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A file system that does not tell refuses when it is full.
        let Ok(available) = files.available_bytes(&self.directory.path) else { return Ok(()) };
        if let Some(spare) = available.checked_sub(keeps.saturating_add(bytes)) {
            self.look_at.store(handed + spare.min(LOOK_EVERY_BYTES), Ordering::Relaxed);
            return Ok(());
        }
        let reason = format!("{available} bytes are free, and the last {keeps} are kept for the database");
        Err(TempFileError::Full { directory: self.directory.path.clone(), reason })
    }
}

/// Whether a temporary file may have this name: `spill-<16 hexadecimal digits>-<number>.tmp`.
fn is_name(name: &str) -> bool {
    let middle = name.strip_prefix(NAME_BEGIN).and_then(|rest| rest.strip_suffix(NAME_END));
    let Some((process, number)) = middle.and_then(|middle| middle.split_once('-')) else { return false };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    process.len() == PROCESS_DIGITS
        && process.bytes().all(is_hex)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether an error of removing a left file does not matter: it is gone, or this user may not remove it.
fn may_stay(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem)
}

impl Drop for TempFiles {
    fn drop(&mut self) {
        if self.directory.is_own && self.files.load(Ordering::Relaxed) > 0 {
            // It is empty; where it cannot be removed it stays so.
            let _ = self.env.files().remove_directory(&self.directory.path);
        }
    }
}

impl fmt::Debug for TempFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TempFiles").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// A piece of a temporary file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub offset: u64,
    pub bytes: u32,
}

/// A temporary file. Clones are the same file, which goes with the last of them.
#[derive(Clone)]
pub struct TempFile {
    inner: Arc<Inner>,
}

struct Inner {
    owner: Arc<TempFiles>,
    budget: Arc<TempBudget>,
    queues: Queues,
    path: PathBuf,
    /// Where the next piece goes.
    end: AtomicU64,
    open: Mutex<Opened>,
}

enum Opened {
    NotYet,
    Open(Arc<dyn PositionedFile>),
    /// What it failed with; it is not tried again.
    Failed(TempFileError),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes on their way into a file: [where](Extent) they will be, and the task that ends when they are there.
pub type Append = (Extent, IoTask<Result<(), TempFileError>>);

impl TempFile {
    /// Appends bytes. They may be read when the task has ended.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    pub fn append(&self, bytes: Vec<u8>) -> Result<Append, TempFileError> {
        let length = u32::try_from(bytes.len()).unwrap_or_else(|_| panic!("{} bytes in one piece", bytes.len()));
        let inner = &self.inner;
        inner.budget.take(bytes.len() as u64)?;
        let offset = inner.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        inner.owner.used.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        inner.owner.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let file = Arc::clone(inner);
        let task = io_queue::run(&inner.queues.writes, move |files| file.write(files, &bytes, offset));
        Ok((Extent { offset, bytes: length }, task))
    }

    /// Reads a piece that was appended.
    pub fn read(&self, extent: Extent) -> IoTask<Result<Vec<u8>, TempFileError>> {
        let file = Arc::clone(&self.inner);
        // A freed block goes back to the thread that allocated it, and the queue's may allocate nothing for long.
        let bytes = vec![0; extent.bytes as usize];
        io_queue::run(&self.inner.queues.reads, move |_| file.read(bytes, extent.offset))
    }

    /// What a reader says that finds something else than what was written.
    pub fn damaged(&self, reason: impl Into<String>) -> TempFileError {
        TempFileError::Damaged { directory: self.inner.owner.directory.path.clone(), reason: reason.into() }
    }

    /// What becomes of a task that the queue lost.
    pub fn lost(&self, error: &io::Error) -> TempFileError {
        self.inner.owner.failed("use", error)
    }
}

impl Inner {
    fn write(&self, files: &dyn Files, bytes: &[u8], offset: u64) -> Result<(), TempFileError> {
        let file = self.opened(files)?;
        self.owner.look_at_space(files, bytes.len() as u64)?;
        file.write_all_at(bytes, offset).map_err(|error| self.owner.failed("write", &error))
    }

    fn opened(&self, files: &dyn Files) -> Result<Arc<dyn PositionedFile>, TempFileError> {
        let mut open = lock(&self.open);
        if let Opened::NotYet = *open {
            *open = match self.owner.open(files, &self.path) {
                Ok(file) => Opened::Open(file),
                Err(error) => Opened::Failed(error),
            };
        }
        match &*open {
            Opened::Open(file) => Ok(Arc::clone(file)),
            Opened::Failed(error) => Err(error.clone()),
            Opened::NotYet => unreachable!("it was opened just now"),
        }
    }

    fn read(&self, mut bytes: Vec<u8>, offset: u64) -> Result<Vec<u8>, TempFileError> {
        let directory = || self.owner.directory.path.clone();
        let file = match &*lock(&self.open) {
            Opened::Open(file) => Arc::clone(file),
            Opened::Failed(error) => return Err(error.clone()),
            Opened::NotYet => return Err(TempFileError::Short { directory: directory() }),
        };
        match file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(TempFileError::Short { directory: directory() })
            }
            Err(error) => Err(self.owner.failed("read", &error)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let bytes = self.end.load(Ordering::Relaxed);
        self.budget.give_back(bytes);
        self.owner.used.fetch_sub(bytes, Ordering::Relaxed);
        let open = std::mem::replace(&mut *lock(&self.open), Opened::NotYet);
        if let Opened::Open(file) = open {
            // To free the space of a large file takes its time.
            self.queues.writes.submit(Box::new(move |_| drop(file)));
        }
    }
}

impl fmt::Debug for TempFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TempFile").field("bytes", &self.inner.end).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_file_that_is_gone_or_belongs_to_another_user_does_not_matter() {
        let of_system = io::Error::from_raw_os_error;
        for code in [libc::ENOENT, libc::EACCES, libc::EPERM, libc::EROFS] {
            assert!(may_stay(&of_system(code)), "{code}");
        }
        for code in [libc::EIO, libc::ENOTDIR, libc::EBUSY] {
            assert!(!may_stay(&of_system(code)), "{code}");
        }
    }
}
