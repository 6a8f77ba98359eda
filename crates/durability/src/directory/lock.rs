//! Whose a directory is: taken when it is opened, and looked at again before anything is promised about it.
//!
//! ```text
//!   the directory   locked itself: whatever is removed, renamed or copied in it, nobody else opens it
//!   eris.db         locked, too: it is also that of a copy made of hard links, and where a file system locks no
//!                   directories it cannot be removed without leaving no database
//!   eris.lock       says which process has them and where it serves them, and keeps out versions that lock only this
//! ```
//! A lock keeps others from this directory; it does not keep this directory at its path. So before commits are told
//! ([`Kept::look`]) and around each change of its files ([`Kept::look_closely`]) the path has to lead
//! to what is locked. If it does not, commits would go into files that nobody finds again, or next to those of another
//! server.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use eris_platform::messages::tell;
use eris_platform::{FileLock, Files};

use super::{Beginning, DatabaseId, IDENTITY, LOCK, read_identity};
use crate::error::DurabilityError;

/// The lock of a directory.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    path: PathBuf,
    /// None: released. Whoever changes files holds this meanwhile, so that nobody else opens the directory before that
    /// has come to an end.
    held: RwLock<Option<Held>>,
    /// Where clients of the database connect, for the error that another process gets.
    addresses: Mutex<Vec<SocketAddr>>,
}

#[derive(Debug, Default)]
struct Held {
    /// None: the file system locks no directories.
    directory: Option<Box<dyn FileLock>>,
    /// None while there is no file that says which database this is.
    identity: Option<LockedIdentity>,
    /// None: the directory is only read, and nobody ever locked it; or a backup is being made there.
    file: Mutex<Option<Box<dyn FileLock>>>,
    shared: bool,
}

#[derive(Debug)]
struct LockedIdentity {
    lock: Box<dyn FileLock>,
    id: DatabaseId,
    beginning: Beginning,
}

/// The right to change files: the lock is not released meanwhile.
pub(crate) struct Kept<'l> {
    lock: &'l DirectoryLock,
    held: RwLockReadGuard<'l, Option<Held>>,
}

impl Kept<'_> {
    /// Whether the path still leads to what is locked, by one question to the system: what commits wait for. Where that
    /// cannot be told, they go on: the next file that is made will tell.
    ///
    /// # Errors
    /// [`DurabilityError::Lost`] says what happened to it.
    pub fn look(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        let Some(held) = &*self.held else { return Err(self.lock.released()) };
        // Planted: nobody looks again.
        if cfg!(feature = "bug_directory_not_looked_at") {
            return Ok(());
        }
        let lock = held.identity.as_ref().map(|identity| &identity.lock).or(held.directory.as_ref());
        match lock.map(|lock| lock.is_in_place()) {
            Some(Ok(false)) => self.look_closely(files),
            _ => Ok(()),
        }
    }

    /// Whether everything that is locked is still where it was, and says what it said: around changes of files. A lock
    /// file that was removed is made again, if nobody else has done so.
    pub fn look_closely(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        let Some(held) = &*self.held else { return Err(self.lock.released()) };
        if cfg!(feature = "bug_directory_not_looked_at") {
            return Ok(());
        }
        self.lock.check_directory(held)?;
        self.lock.check_identity(files, held)?;
        self.lock.check_file(files, held)
    }
}

impl DirectoryLock {
    /// Locks the directory itself; nothing is written.
    pub fn take(files: &dyn Files, path: &Path) -> Result<Self, DurabilityError> {
        Self::begin(files, path, false)
    }

    /// Keeps out whoever would change the directory; nothing is written.
    pub fn share(files: &dyn Files, path: &Path) -> Result<Self, DurabilityError> {
        Self::begin(files, path, true)
    }

    fn begin(files: &dyn Files, path: &Path, shared: bool) -> Result<Self, DurabilityError> {
        let locked = if shared { files.lock_shared(path) } else { files.lock_existing(path) };
        let directory = match locked {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                if !shared {
                    tell(format_args!(
                        "the file system of \"{}\" does not lock directories; \"{IDENTITY}\" and \"{LOCK}\" in it \
                         are locked instead: leave them where they are",
                        path.display()
                    ));
                }
                None
            }
            Err(error) => return Err(refused(files, path, path, error)),
        };
        let held = Held { directory, shared, ..Held::default() };
        Ok(Self { path: path.to_path_buf(), held: RwLock::new(Some(held)), addresses: Mutex::default() })
    }

    /// Locks the file that says whose the directory is. One that is shared need not be there.
    pub fn take_file(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        let path = self.path.join(LOCK);
        self.with_held(|held| {
            let lock = if held.shared {
                match files.lock_shared(&path) {
                    Ok(lock) => Some(lock),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(refused(files, &self.path, &path, error)),
                }
            } else {
                Some(take_file(files, &self.path, &[])?)
            };
            held.file = Mutex::new(lock);
            Ok(())
        })
    }

    /// Locks the file that says which database this is.
    pub fn take_identity(
        &self,
        files: &dyn Files,
        id: DatabaseId,
        beginning: Beginning,
    ) -> Result<(), DurabilityError> {
        let path = self.path.join(IDENTITY);
        self.with_held(|held| {
            let locked = if held.shared { files.lock_shared(&path) } else { files.lock_existing(&path) };
            let lock = locked.map_err(|error| refused(files, &self.path, &path, error))?;
            held.identity = Some(LockedIdentity { lock, id, beginning });
            Ok(())
        })
    }

    fn with_held<T>(&self, change: impl FnOnce(&mut Held) -> Result<T, DurabilityError>) -> Result<T, DurabilityError> {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.as_mut().map_or_else(|| Err(self.released()), change)
    }

    /// Says in the lock file where clients connect. Only a message gets worse where that fails.
    pub fn tell_address(&self, address: SocketAddr) {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = held.as_ref().filter(|held| !held.shared) else { return };
        // In the order of `check_file`.
        let file = held.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.push(address);
        if let Some(lock) = &*file {
            let _ = lock.write_contents(contents(&addresses).as_bytes());
        }
    }

    /// Others may open the directory, once whoever is changing it is done.
    pub fn release(&self) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn released(&self) -> DurabilityError {
        DurabilityError::Lost { what: format!("\"{}\" is closed", self.path.display()) }
    }

    /// Keeps the lock from being released while files are changed.
    pub fn keep(&self) -> Result<Kept<'_>, DurabilityError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() { Err(self.released()) } else { Ok(Kept { lock: self, held }) }
    }

    fn check_directory(&self, held: &Held) -> Result<(), DurabilityError> {
        let Some(lock) = &held.directory else { return Ok(()) };
        if lock.is_in_place().map_err(DurabilityError::io("look at", &self.path))? {
            return Ok(());
        }
        let path = self.path.display();
        let what = match lock.moved_to() {
            Some(other) => format!(
                "\"{path}\" is no longer the directory that was opened: that is now \"{}\" and has what was committed. \
                 Stop this server, and serve the directory there or move it back",
                other.display()
            ),
            None => format!(
                "\"{path}\" is no longer the directory that was opened: that was removed. What was committed can be \
                 read until this server stops: copy out what is needed, or restore a backup"
            ),
        };
        Err(DurabilityError::Lost { what })
    }

    fn check_identity(&self, files: &dyn Files, held: &Held) -> Result<(), DurabilityError> {
        let Some(LockedIdentity { lock, id, beginning }) = &held.identity else { return Ok(()) };
        let path = self.path.join(IDENTITY);
        if !files.exists(&path) {
            let what = format!(
                "\"{}\" was removed: without it the directory is no database. Stop this server, and put a file there \
                 that says {}",
                path.display(),
                super::identity_text(*id, *beginning)
            );
            return Err(DurabilityError::Lost { what });
        }
        match read_identity(files, &path) {
            Ok((found, _)) if found == *id => {}
            Ok((found, _)) => {
                let what = format!(
                    "\"{}\" is of another database now, {:016x} instead of {:016x}: the directory was replaced. Stop \
                     this server, and find out which of them is to be served there",
                    path.display(),
                    found.0,
                    id.0
                );
                return Err(DurabilityError::Lost { what });
            }
            Err(error) => return Err(DurabilityError::Lost { what: error.to_string() }),
        }
        if lock.is_in_place().map_err(DurabilityError::io("look at", &path))? || held.directory.is_some() {
            return Ok(());
        }
        // It says the same, and is another file: that is not locked, and the directory itself cannot be.
        let what = format!(
            "\"{}\" was replaced, so another server may open the directory. Stop this server, and start it again",
            path.display()
        );
        Err(DurabilityError::Lost { what })
    }

    fn check_file(&self, files: &dyn Files, held: &Held) -> Result<(), DurabilityError> {
        let mut file = held.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lock) = file.as_ref().filter(|_| !held.shared) else { return Ok(()) };
        if lock.is_in_place().map_err(DurabilityError::io("look at", &self.path.join(LOCK)))? {
            return Ok(());
        }
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let again = take_file(files, &self.path, &addresses).map_err(|error| match error {
            DurabilityError::InUse { holder, .. } => self.taken(holder),
            other => other,
        })?;
        *file = Some(again);
        Ok(())
    }

    fn taken(&self, holder: Option<String>) -> DurabilityError {
        let holder = holder.map(|holder| format!(", {holder}")).unwrap_or_default();
        let what = format!(
            "\"{}\" is locked by another process{holder}: a second server has the directory. Stop both, and look at \
             it with \"eris verify\"",
            self.path.join(LOCK).display()
        );
        DurabilityError::Lost { what }
    }
}

/// Makes and locks the file that says whose the directory is.
fn take_file(
    files: &dyn Files,
    directory: &Path,
    addresses: &[SocketAddr],
) -> Result<Box<dyn FileLock>, DurabilityError> {
    let path = directory.join(LOCK);
    let lock = files.lock(&path).map_err(|error| refused(files, directory, &path, error))?;
    // Only for whoever finds the lock taken.
    let _ = lock.write_contents(contents(addresses).as_bytes());
    Ok(lock)
}

/// In front of an address in the lock file.
const ADDRESS: &str = "address ";

/// What the lock file says of this process: its number, and a line for each address.
fn contents(addresses: &[SocketAddr]) -> String {
    let process = format!("process {}", std::process::id());
    addresses.iter().fold(process, |lines, address| format!("{lines}\n{ADDRESS}{address}"))
}

/// Why this could not be locked.
fn refused(files: &dyn Files, directory: &Path, path: &Path, error: io::Error) -> DurabilityError {
    if error.kind() != io::ErrorKind::WouldBlock {
        return DurabilityError::io("lock", path)(error);
    }
    let by_system = files.lock_holder(path).map(|process| format!("process {process}"));
    let said = files.read_to_string(&directory.join(LOCK)).unwrap_or_default();
    let mut lines = said.lines();
    let by_file = lines.next().filter(|holder| !holder.is_empty()).map(str::to_owned);
    // What an earlier process left says nothing of this one.
    let is_current = by_system.is_none() || by_system == by_file;
    // The one that was told last is most likely served still.
    let mut addresses = lines.filter_map(|line| line.strip_prefix(ADDRESS)?.parse().ok());
    let address = addresses.next_back().filter(|_| is_current);
    DurabilityError::InUse { directory: directory.to_path_buf(), holder: by_system.or(by_file), address }
}
