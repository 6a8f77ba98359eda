//! A database in this process: the engine, its SQL, and the way to both.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_durability::{DurabilityError, DurabilityOptions, Progress};
use eris_engine::{Engine, EngineError};
use eris_platform::{Env, Files, PlacementError, RealEnv, TempDirectory, TempFileError, TempFiles};
use eris_server::{ServeError, ServerHandle, Service, SqlHost};
use eris_sql::{DatabaseOptions, SessionOptions, SqlError, SqlState};

use crate::connection::Connection;
use crate::options::{MEMORY_LIMIT_MIN, Options};
use crate::tables::TableDescription;

/// Why a database does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("a memory limit of {given} bytes is too small: a database needs at least {MEMORY_LIMIT_MIN} bytes")]
    MemoryLimit { given: u64 },
    #[error(
        "a memory limit of {given} bytes does not fit into the address space of this process, which has room for \
         {fits}; raise that (ulimit -v, -d), or lower --memory-limit or --workers"
    )]
    AddressSpace { given: u64, fits: u64 },
    #[error(
        "the database in \"{}\" does not fit into a memory limit of {given} bytes; give it more with --memory-limit; \
         nothing is lost", directory.display()
    )]
    Larger { directory: PathBuf, given: u64 },
    #[error("cannot keep temporary files in {}: {source}; choose another --temp-dir", directory.display())]
    TempDirectory { directory: PathBuf, source: io::Error },
    #[error("{0}; choose a directory for --temp-dir in which this process may make files")]
    TempFiles(TempFileError),
    #[error(
        "temporary files cannot be kept in {}: it is a part of the directory of the database, {}; choose another \
         --temp-dir, or leave it out: then they are kept in {}",
        temp.display(), directory.display(), directory.join(TEMP_DIRECTORY).display()
    )]
    TempDirectoryInDatabase { temp: PathBuf, directory: PathBuf },
    #[error(transparent)]
    Placement(PlacementError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Files(#[from] DurabilityError),
    #[error(transparent)]
    Sql(#[from] SqlError),
}

impl OpenError {
    /// Whether the memory limit is why a database does not open.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        match self {
            OpenError::Files(error) => error.is_out_of_memory(),
            OpenError::Sql(error) => error.sqlstate == SqlState::OUT_OF_MEMORY,
            _ => false,
        }
    }

    /// The error of opening this directory.
    pub(crate) fn of_opening(self, directory: &Path, options: Options) -> OpenError {
        if !self.is_out_of_memory() {
            return self;
        }
        OpenError::Larger { directory: directory.to_path_buf(), given: options.memory_limit_bytes }
    }
}

/// Below the directory of a database, where its statements keep what does not fit into memory.
const TEMP_DIRECTORY: &str = "temp";
/// Space on the disk of the log that temporary files leave to it.
const KEPT_FREE_BYTES: u64 = 256 << 20;

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {
    engine: Engine,
    sql: eris_sql::Database,
    /// Of all listeners.
    service: Arc<Service<SqlHost>>,
}

impl Database {
    /// Starts the workers. The database is empty: it lives in memory only.
    pub fn open(options: Options) -> Result<Database, OpenError> {
        Database::open_in(Arc::new(RealEnv::new()), options)
    }

    /// The same with another source of time, randomness, files and sockets.
    pub fn open_in(env: Arc<dyn Env>, options: Options) -> Result<Database, OpenError> {
        let engine = Engine::start(env, options.engine()?)?;
        Database::of_engine(engine, options)
    }

    /// Starts the workers with what is in a directory: from now on it has every commit that was told, however the
    /// process ends. A directory that is missing or empty becomes a new database. `progress` hears how far it is.
    pub fn open_directory(
        directory: &Path,
        options: Options,
        durability: &DurabilityOptions,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Database, OpenError> {
        let engine = Engine::start(Arc::new(RealEnv::new()), options.engine()?)?;
        // Held until the catalog is read: a full database may need the opening headroom for that, too.
        let opening = engine.begin_opening();
        let opened = Database::open_files(&engine, directory, durability, progress).and_then(|files| {
            let database = Database::of_engine(engine.clone(), options)?;
            database.keep_temp_files(TempDirectory {
                path: directory.join(TEMP_DIRECTORY),
                is_own: false,
                keeps_free_bytes: KEPT_FREE_BYTES,
            })?;
            database.sql.attach_files(Arc::new(files));
            Ok(database)
        });
        drop(opening);
        opened.map_err(|error| {
            engine.shutdown();
            error.of_opening(directory, options)
        })
    }

    fn open_files(
        engine: &Engine,
        directory: &Path,
        durability: &DurabilityOptions,
        progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<eris_durability::Database, OpenError> {
        let (opening, directory, durability) = (engine.clone(), directory.to_path_buf(), durability.clone());
        let opened =
            engine.block_on(async move { eris_durability::open(&opening, &directory, &durability, progress).await })?;
        Ok(opened?)
    }

    pub(crate) fn of_engine(engine: Engine, options: Options) -> Result<Database, OpenError> {
        let sql_options = DatabaseOptions {
            fallback: options.fallback,
            temp_file_limit_bytes: options.temp_file_limit_bytes,
            ..DatabaseOptions::default()
        };
        let sql = eris_sql::Database::new(engine.clone(), sql_options)?;
        let service = Arc::new(Service::new(&engine, SqlHost::new(sql.clone())));
        Ok(Database { engine, sql, service })
    }

    /// Has statements that begin from now on keep what does not fit into memory in this directory. It may be missing,
    /// what it is in may not. In the file system of the database's log, space is left to the log. A directory in which
    /// no file can be made is refused, and so are the parts of the database's own, but for `temp/`.
    pub fn keep_temp_files_in(&self, directory: &Path) -> Result<(), OpenError> {
        self.check_temp_directory(directory)?;
        let log = self.files().map(|files| files.directory().log());
        let keeps_free_bytes = log.map_or(0, |log| kept_free_bytes(directory, &log));
        self.keep_temp_files(TempDirectory { path: directory.to_path_buf(), is_own: false, keeps_free_bytes })
    }

    fn check_temp_directory(&self, temp: &Path) -> Result<(), OpenError> {
        let env = self.engine.env();
        let probe = TempDirectory { path: temp.to_path_buf(), is_own: false, keeps_free_bytes: 0 };
        if let Some(files) = self.files() {
            let directory = files.directory().path();
            let is_part = is_part_of(env.files(), temp, directory);
            if is_part.map_err(|source| OpenError::TempDirectory { directory: temp.to_path_buf(), source })? {
                let (temp, directory) = (temp.to_path_buf(), directory.to_path_buf());
                return Err(OpenError::TempDirectoryInDatabase { temp, directory });
            }
        }
        TempFiles::new(Arc::clone(env), probe).probe().map_err(OpenError::TempFiles)
    }

    fn keep_temp_files(&self, directory: TempDirectory) -> Result<(), OpenError> {
        let path = directory.path.clone();
        self.sql.keep_temp_files_in(directory).map_err(|source| OpenError::TempDirectory { directory: path, source })
    }

    /// A connection of this process.
    pub fn connect(&self) -> Connection {
        let session = self.sql.session(SessionOptions {
            user: eris_server::protocol::startup::USER.to_owned(),
            database: eris_server::protocol::startup::DATABASE.to_owned(),
            application_name: "embedded".to_owned(),
            ..SessionOptions::default()
        });
        Connection::new(self.engine.clone(), session)
    }

    /// Serves PostgreSQL clients on a loopback address until the handle stops it or the database is closed. Several
    /// addresses may be served: their connections are numbered and bounded together.
    pub fn serve(&self, address: SocketAddr) -> Result<ServerHandle, ServeError> {
        let server = self.service.listen(address)?;
        if let Some(files) = self.files() {
            files.directory().tell_address(server.local_address());
        }
        Ok(server)
    }

    /// The tables there are, in the order of their names.
    pub fn tables(&self) -> Vec<TableDescription> {
        let mut tables: Vec<_> =
            self.sql.catalog().current().tables().map(|table| TableDescription::of(table)).collect();
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        tables
    }

    /// The engine below, for counters and for tasks that go without SQL.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The SQL layer, for asynchronous sessions.
    pub fn sql(&self) -> &eris_sql::Database {
        &self.sql
    }

    /// Its files, if it was opened in a directory.
    pub fn files(&self) -> Option<&Arc<eris_durability::Database>> {
        self.sql.files()
    }

    /// Stops the workers and waits for them. What was committed is durable when it returns. Connections that are still
    /// open hear of it as an error.
    pub fn close(self) {
        if let Some(files) = self.files().cloned() {
            // An error: the log had failed before, and has said so.
            let _ = self.engine.block_on(async move { files.close().await });
        }
        self.engine.shutdown();
    }
}

/// Whether a directory, which may be missing, lies in that of a database and not in what is there for temporary files.
fn is_part_of(files: &dyn Files, temp: &Path, directory: &Path) -> io::Result<bool> {
    let temp = std::path::absolute(temp)?;
    if !files.is_within(&temp, directory)? || files.is_within(&temp, &directory.join(TEMP_DIRECTORY))? {
        return Ok(false);
    }
    // That is missing before there was a temporary file.
    let above = temp.parent().unwrap_or(&temp);
    let is_made_for_it = temp.file_name() == Some(TEMP_DIRECTORY.as_ref()) && files.is_within(directory, above)?;
    Ok(!is_made_for_it)
}

/// Space that temporary files in a directory leave to the log: none if the two are in different file systems.
fn kept_free_bytes(temp: &Path, log: &Path) -> u64 {
    let both = device(temp).zip(device(log));
    if both.is_some_and(|(temp, log)| temp == log) { KEPT_FREE_BYTES } else { 0 }
}

/// The file system of a directory, or of the one that it is made in if it is missing.
fn device(directory: &Path) -> Option<u64> {
    let directory = std::path::absolute(directory).ok()?;
    directory.ancestors().find_map(|above| above.metadata().ok()).map(|found| found.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_directory_leaves_space_to_a_log_in_its_file_system() {
        let root = std::env::temp_dir().join(format!("eris-kept-free-{}", std::process::id()));
        std::fs::create_dir_all(root.join("temp")).unwrap();
        let options = Options { workers: 1, nodes: 1, memory_limit_bytes: 64 << 20, ..Options::default() };
        let in_memory = Database::open(options).unwrap();
        in_memory.keep_temp_files_in(&root.join("temp")).unwrap();
        assert_eq!(in_memory.sql().temp_files().keeps_free_bytes(), 0, "there is no log");
        in_memory.close();
        let database =
            Database::open_directory(&root.join("db"), options, &DurabilityOptions::default(), |_| {}).unwrap();
        let kept = |directory: &Path| {
            database.keep_temp_files_in(directory).unwrap();
            database.sql().temp_files().keeps_free_bytes()
        };
        assert_eq!(database.sql().temp_files().keeps_free_bytes(), KEPT_FREE_BYTES, "the default");
        for directory in ["temp", "missing", "db/temp"] {
            assert_eq!(kept(&root.join(directory)), KEPT_FREE_BYTES, "{directory}");
        }
        assert!(!root.join("missing").exists(), "it is made with the first file");
        let other = Path::new("/dev/shm");
        match (other.metadata(), root.metadata()) {
            (Ok(other_found), Ok(found)) if other_found.dev() != found.dev() => {
                assert_eq!(kept(&other.join(format!("eris-kept-free-{}", std::process::id()))), 0);
            }
            _ => println!("skipped: /dev/shm is no other file system"),
        }
        database.close();
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn directories_that_are_not_for_temporary_files_are_refused() {
        let root = std::env::temp_dir().join(format!("eris-no-temp-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let options = Options { workers: 1, nodes: 1, memory_limit_bytes: 64 << 20, ..Options::default() };
        let directory = root.join("db");
        let database = Database::open_directory(&directory, options, &DurabilityOptions::default(), |_| {}).unwrap();
        std::os::unix::fs::symlink(directory.join("log"), root.join("link")).unwrap();
        for own in ["db", "db/log", "db/checkpoint", "db/log/below", "db/other", "db/temp/../log", "link"] {
            let refused = database.keep_temp_files_in(&root.join(own)).unwrap_err();
            assert!(matches!(refused, OpenError::TempDirectoryInDatabase { .. }), "{own}: {refused}");
            assert!(refused.to_string().contains("--temp-dir"), "{refused}");
        }
        for unfit in ["/proc", "/proc/eris-temp", "/no-such-directory/temp"] {
            let refused = database.keep_temp_files_in(Path::new(unfit)).unwrap_err();
            assert!(matches!(refused, OpenError::TempFiles(_)), "{unfit}: {refused}");
            assert!(refused.to_string().contains(unfit) && refused.to_string().contains("--temp-dir"), "{refused}");
        }
        assert_eq!(database.sql().temp_files().directory(), directory.join(TEMP_DIRECTORY), "the one before stays");
        database.close();
        std::fs::remove_dir_all(&root).unwrap();
    }
}
