//! The directory of a database.
//!
//! ```text
//!   DIR/
//!     eris.db       format version, id of the database; written once
//!     eris.lock     the number of the process that has the database open, and where clients connect to it
//!     checkpoint/   manifest, <number>.data: the last checkpoint
//!     log/          <position, 16 hexadecimal digits>.log   and files that are not yet in use: <number>.spare
//! ```
//! A new database is made in this order, each step durable before the next:
//!
//! ```text
//!   eris.db.new ─> log/, checkpoint/ ─> the first log file, of no records ─> eris.db.new becomes eris.db
//! ```
//! So a log that is missing beside an `eris.db` was lost, and one beside an `eris.db.new` has nothing: making the
//! database goes on there after a crash.

mod lock;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_platform::messages::tell;
use eris_platform::{Env, Files, OpenMode};
use serde::{Deserialize, Serialize};

use crate::error::{DurabilityError, RESTORE};
use crate::log::{is_log_file, make_first_file};

pub(crate) use lock::{DirectoryLock, Kept};

/// The version of all files that this version of ERIS writes, and the newest one that it reads.
pub const FORMAT_VERSION: u64 = 1;

pub(crate) const IDENTITY: &str = "eris.db";
const CHECKPOINT: &str = "checkpoint";
const LOG: &str = "log";
const LOCK: &str = "eris.lock";

/// A number of its own, so that files of different databases are not taken for each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseId(pub u64);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    /// What this is, for whoever finds it.
    kind: String,
    format: u64,
    database: String,
    /// See [`Beginning`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begins_with_checkpoint: Option<bool>,
}

/// What was durable before the database was one: it is not whole without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// An earlier version made it, with nothing; `eris.db` does not say whether it began with a checkpoint.
    Nothing,
    /// The first file of its log; `eris.db` says that it did not begin with a checkpoint.
    Log,
    /// The checkpoint of a backup or of what is restored; `eris.db` says so.
    Checkpoint,
}

impl Beginning {
    fn of(begins_with_checkpoint: Option<bool>) -> Self {
        match begins_with_checkpoint {
            None => Self::Nothing,
            Some(false) => Self::Log,
            Some(true) => Self::Checkpoint,
        }
    }

    fn begins_with_checkpoint(self) -> Option<bool> {
        match self {
            Self::Nothing => None,
            Self::Log => Some(false),
            Self::Checkpoint => Some(true),
        }
    }
}

const KIND: &str = "ERIS database";

/// An open directory; nobody else opens it until this is dropped.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    id: DatabaseId,
    is_new: bool,
    beginning: Beginning,
    lock: Arc<DirectoryLock>,
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.lock.release();
    }
}

impl Directory {
    /// Opens the directory of a database; makes a new one of an empty or missing directory.
    pub fn open(env: &Arc<dyn Env>, path: &Path) -> Result<Self, DurabilityError> {
        let files = env.files();
        if !files.exists(path) {
            create(files, path)?;
        }
        let lock = DirectoryLock::take(files, path)?;
        let identity = path.join(IDENTITY);
        let present = files.list(path).map_err(DurabilityError::io("list", path))?;
        let is_own = |name: &String| [IDENTITY, LOCK, &temporary(IDENTITY)].contains(&&**name);
        if !files.exists(&identity) && !present.iter().all(is_own) {
            return Err(DurabilityError::NotADatabase { directory: path.to_path_buf() });
        }
        lock.take_file(files)?;
        let is_new = !files.exists(&identity);
        let (id, beginning) =
            if is_new { (make(env, path)?, Beginning::Log) } else { read_identity(files, &identity)? };
        lock.take_identity(files, id, beginning)?;
        if !is_new {
            refuse_without_log(files, path, beginning)?;
            create_parts(files, path)?;
        }
        restrict(files, path)?;
        // What an earlier attempt made may not be durable, if it did not come to its end.
        files.sync_directory(path).map_err(DurabilityError::io("sync", path))?;
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            // Where that is not allowed, somebody else made the directory.
            let _ = files.sync_directory(above);
        }
        Ok(Self { path: path.to_path_buf(), id, is_new, beginning, lock: Arc::new(lock) })
    }

    /// Opens the directory of a database that is not to be changed: nothing is written, and nobody opens it to change
    /// it until this is dropped.
    pub(crate) fn open_to_read(files: &dyn Files, path: &Path) -> Result<Self, DurabilityError> {
        files.list(path).map_err(DurabilityError::io("list", path))?;
        let identity = path.join(IDENTITY);
        if !files.exists(&identity) {
            refuse_unfinished(files, path)?;
            return Err(DurabilityError::NotADatabase { directory: path.to_path_buf() });
        }
        let lock = DirectoryLock::share(files, path)?;
        lock.take_file(files)?;
        let (id, beginning) = read_identity(files, &identity)?;
        lock.take_identity(files, id, beginning)?;
        refuse_without_log(files, path, beginning)?;
        Ok(Self { path: path.to_path_buf(), id, is_new: false, beginning, lock: Arc::new(lock) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on, clients connect to the database at this address, too: an error about the directory in use names it.
    pub fn tell_address(&self, address: SocketAddr) {
        self.lock.tell_address(address);
    }

    /// Whether the database was made when it was opened.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Keeps others out of it, and tells whether it is still where it was.
    pub(crate) fn lock(&self) -> &Arc<DirectoryLock> {
        &self.lock
    }

    pub(crate) fn id(&self) -> DatabaseId {
        self.id
    }

    /// Whether it had a checkpoint before it had a log.
    pub(crate) fn begins_with_checkpoint(&self) -> bool {
        self.beginning == Beginning::Checkpoint
    }

    /// Whether nothing tells a database that never had a log from one that lost it.
    pub(crate) fn may_have_lost_its_log(&self) -> bool {
        self.beginning == Beginning::Nothing
    }

    /// Where the last checkpoint is.
    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// Where log files are.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }
}

/// A directory that is being filled. It is no database until [`Self::finish`] says which one it is.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub directory: Directory,
    made: bool,
}

impl NewDirectory {
    /// Begins to fill a directory that is missing or empty, for the database of this id.
    pub fn begin(files: &dyn Files, path: &Path, id: DatabaseId) -> Result<Self, DurabilityError> {
        let made = !files.exists(path);
        if made {
            create(files, path)?;
        }
        let begun = Self::lock_empty(files, path, id, made);
        if begun.is_err() && made {
            // It stays if somebody else has put something there.
            let _ = files.remove_directory(path);
        }
        let new = begun?;
        match create_parts(files, path).and_then(|()| restrict(files, path)) {
            Ok(()) => Ok(new),
            Err(error) => {
                new.remove(files);
                Err(error)
            }
        }
    }

    fn lock_empty(files: &dyn Files, path: &Path, id: DatabaseId, made: bool) -> Result<Self, DurabilityError> {
        refuse_full(files, path, None)?;
        let lock = DirectoryLock::take(files, path)?;
        lock.take_file(files)?;
        // Somebody may have been faster.
        match refuse_full(files, path, Some(LOCK)) {
            Ok(()) => {}
            Err(error @ DurabilityError::NotEmpty { .. }) => return Err(error),
            Err(error) => {
                let _ = files.remove(&path.join(LOCK));
                return Err(error);
            }
        }
        let (path, lock) = (path.to_path_buf(), Arc::new(lock));
        let directory = Directory { path, id, is_new: true, beginning: Beginning::Checkpoint, lock };
        Ok(Self { directory, made })
    }

    /// From now on it is a database, also after a crash: everything else in it is durable.
    pub fn finish(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        let kept = self.directory.lock.keep()?;
        kept.look_closely(files)?;
        let Directory { path, id, beginning, .. } = &self.directory;
        write_identity(files, path, *id, *beginning).and_then(|()| name_identity(files, path))
    }

    /// Removes what was made, as far as that can be: what is left is no database.
    pub fn remove(&self, files: &dyn Files) {
        // Whatever is at the path by now is not to be touched.
        let Ok(kept) = self.directory.lock.keep() else { return };
        if kept.look_closely(files).is_err() {
            return;
        }
        let path = &self.directory.path;
        let (checkpoint, log) = (self.directory.checkpoint(), self.directory.log());
        // The identity first: without it the rest is nothing.
        let identity = [IDENTITY.to_owned(), temporary(IDENTITY)].map(|name| path.join(name));
        let data = files.list(&checkpoint).unwrap_or_default().into_iter().map(|name| checkpoint.join(name));
        for file in identity.into_iter().chain(data).chain([path.join(LOCK)]) {
            let _ = files.remove(&file);
        }
        for directory in [&checkpoint, &log].into_iter().chain(self.made.then_some(path)) {
            let _ = files.remove_directory(directory);
        }
    }
}

/// Creates a directory in one that exists: a typing error, or a disk that is not mounted, makes no database elsewhere.
fn create(files: &dyn Files, path: &Path) -> Result<(), DurabilityError> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above.filter(|above| !files.exists(above)) {
        return Err(DurabilityError::NoDirectory { directory: above.to_path_buf() });
    }
    files.create_directory(path).map_err(DurabilityError::io("create", path))
}

/// Takes the rights of other users from a directory and from all that is in it. New files have none; these may come
/// from a copy, or from a version of ERIS that left them to the mask of its process.
fn restrict(files: &dyn Files, path: &Path) -> Result<(), DurabilityError> {
    let restrict =
        |path: &Path| files.restrict(path).map_err(DurabilityError::io("take the rights of other users from", path));
    let before = restrict(path)?;
    for directory in [path.to_path_buf(), path.join(LOG), path.join(CHECKPOINT)] {
        restrict(&directory)?;
        for name in files.list(&directory).map_err(DurabilityError::io("list", &directory))? {
            restrict(&directory.join(name))?;
        }
    }
    if let Some(mode) = before {
        let path = path.display();
        tell(format_args!("\"{path}\" could be used by other users (mode {mode:04o}); from now on it cannot"));
    }
    Ok(())
}

/// The directories in which a database is.
fn create_parts(files: &dyn Files, path: &Path) -> Result<(), DurabilityError> {
    for part in [path.join(LOG), path.join(CHECKPOINT)] {
        files.create_directory(&part).map_err(DurabilityError::io("create", &part))?;
    }
    Ok(())
}

/// Makes a database of a directory that has nothing, or what an earlier attempt left that did not come to its end. See
/// the [module](self) for the order.
fn make(env: &Arc<dyn Env>, path: &Path) -> Result<DatabaseId, DurabilityError> {
    let files = env.files();
    let id = if let Some(id) = left_by_attempt(files, path) {
        id
    } else {
        refuse_unfinished(files, path)?;
        let id = DatabaseId(env.random_u64());
        write_identity(files, path, id, Beginning::Log)?;
        files.sync_directory(path).map_err(DurabilityError::io("sync", path))?;
        id
    };
    create_parts(files, path)?;
    let log = path.join(LOG);
    make_first_file(files, &log, id).map_err(DurabilityError::io("make a log file in", &log))?;
    name_identity(files, path)?;
    Ok(id)
}

/// The id of a new database of which an earlier attempt made more than what says so. That was durable before the rest.
fn left_by_attempt(files: &dyn Files, path: &Path) -> Option<DatabaseId> {
    if !files.exists(&path.join(LOG)) && !files.exists(&path.join(CHECKPOINT)) {
        return None;
    }
    let (id, beginning) = read_identity(files, &path.join(temporary(IDENTITY))).ok()?;
    (beginning == Beginning::Log).then_some(id)
}

/// Refuses a database whose log is gone, as far as can be told: not of one that an earlier version made and that has no
/// checkpoint, unless the directory of the log is gone and what was made after it is there.
fn refuse_without_log(files: &dyn Files, path: &Path, beginning: Beginning) -> Result<(), DurabilityError> {
    let log = path.join(LOG);
    let names = match files.list(&log) {
        Ok(names) => Some(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(DurabilityError::io("list", &log)(error)),
    };
    let has_files = names.as_ref().is_some_and(|names| names.iter().any(|name| is_log_file(name)));
    let is_lost = match beginning {
        Beginning::Log => !has_files,
        Beginning::Nothing => names.is_none() && files.exists(&path.join(CHECKPOINT)),
        // Its log is empty at first.
        Beginning::Checkpoint => false,
    };
    if is_lost {
        let what = if names.is_none() { "is missing" } else { "has no log file" };
        return Err(DurabilityError::NoLog { directory: log, what });
    }
    Ok(())
}

/// A directory without an identity is new, unless it has what is made behind the identity only: of a backup that did
/// not come to its end, or of a database that lost its identity.
fn refuse_unfinished(files: &dyn Files, path: &Path) -> Result<(), DurabilityError> {
    if files.exists(&path.join(LOG)) || files.exists(&path.join(CHECKPOINT)) {
        return Err(DurabilityError::Unfinished { directory: path.to_path_buf() });
    }
    Ok(())
}

/// Refuses a directory that has anything but this.
fn refuse_full(files: &dyn Files, path: &Path, own: Option<&str>) -> Result<(), DurabilityError> {
    let mut names = files.list(path).map_err(DurabilityError::io("list", path))?;
    names.extend(files.list_directories(path).map_err(DurabilityError::io("list", path))?);
    match names.into_iter().find(|name| Some(&**name) != own) {
        Some(name) => Err(DurabilityError::NotEmpty { directory: path.to_path_buf(), name }),
        None => Ok(()),
    }
}

fn temporary(name: &str) -> String {
    format!("{name}.new")
}

/// What the file says that says which database this is, without the end of its line.
fn identity_text(id: DatabaseId, beginning: Beginning) -> String {
    let (kind, database) = (KIND.to_owned(), format!("{:016x}", id.0));
    let begins_with_checkpoint = beginning.begins_with_checkpoint();
    let identity = Identity { kind, format: FORMAT_VERSION, database, begins_with_checkpoint };
    serde_json::to_string(&identity).unwrap_or_else(|_| unreachable!("numbers and texts are JSON"))
}

/// Writes it beside its place.
fn write_identity(
    files: &dyn Files,
    directory: &Path,
    id: DatabaseId,
    beginning: Beginning,
) -> Result<(), DurabilityError> {
    let text = identity_text(id, beginning);
    let temporary = directory.join(temporary(IDENTITY));
    let written = || -> io::Result<()> {
        if files.exists(&temporary) {
            files.remove(&temporary)?;
        }
        let file = files.open_at(&temporary, OpenMode::Create)?;
        file.write_all_at(format!("{text}\n").as_bytes(), 0)?;
        file.sync_all()
    };
    written().map_err(DurabilityError::io("write", &directory.join(IDENTITY)))
}

/// Puts what was written in its place, durably: from then on the directory is a database.
fn name_identity(files: &dyn Files, directory: &Path) -> Result<(), DurabilityError> {
    let (temporary, path) = (directory.join(temporary(IDENTITY)), directory.join(IDENTITY));
    let named = files.rename(&temporary, &path).and_then(|()| files.sync_directory(directory));
    named.map_err(DurabilityError::io("write", &path))
}

/// Which database it is, and what it began with.
fn read_identity(files: &dyn Files, path: &Path) -> Result<(DatabaseId, Beginning), DurabilityError> {
    let damaged =
        |reason: String| DurabilityError::Damaged { file: path.to_path_buf(), offset: None, reason, help: RESTORE };
    let text = files.read_to_string(path).map_err(DurabilityError::io("read", path))?;
    if !text.ends_with('\n') {
        return Err(damaged("it is cut off".to_owned()));
    }
    // The format first: all else may have changed.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    let format = format.filter(|format| *format > 0).ok_or_else(|| damaged("it says no format".to_owned()))?;
    if format > FORMAT_VERSION {
        return Err(DurabilityError::Newer { file: path.to_path_buf(), found: format });
    }
    let identity: Identity = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
    if identity.kind != KIND {
        return Err(damaged(format!("it is of kind \"{}\"", identity.kind)));
    }
    u64::from_str_radix(&identity.database, 16)
        .map(|id| (DatabaseId(id), Beginning::of(identity.begins_with_checkpoint)))
        .map_err(|_| damaged(format!("\"{}\" is no id of a database", identity.database)))
}
