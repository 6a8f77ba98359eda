//! A database: an engine with names, plans and sessions on top.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use eris_durability::Database as Files;
use eris_engine::Engine;
use eris_platform::settings::{ByteSize, SettingValues};
use eris_platform::{Env, TempDirectory, TempFiles};
use eris_storage::Layout;

use crate::activity::Activities;
use crate::catalog::{self, Catalog};
use crate::errors::{SqlError, SqlState};
use crate::fallback::Lane;
use crate::plan::{Planner, engine_error};
use crate::session::{PlanCache, Session, SessionOptions, TransactionObserver};
use crate::settings::{
    LAYOUT, OLD_VERSION_MEMORY_LIMIT, PARTITIONS, SEGMENT_ROWS, SERVER_VERSION, TEMP_FILE_LIMIT, WORK_MEM, layout_name,
};
use crate::statistics::StatisticsCache;

/// How a database is set up.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Whether plans that are not native may run on DataFusion's operators.
    pub fallback: bool,
    /// Threads of the fallback lane; `None`: as many as the engine has workers.
    pub fallback_threads: Option<usize>,
    /// Layout of new tables, unless a session or table says otherwise.
    pub layout: Layout,
    /// Partitions of new tables; 0: by size.
    pub partitions: usize,
    /// Rows of a segment of new tables.
    pub segment_rows: u32,
    /// Rows of a batch between operators at most. Not a setting of the server: tests ask for tiny ones.
    pub batch_rows: usize,
    /// Bytes that the temporary files of one statement may have, unless its session says otherwise; `None`: what the
    /// disk has.
    pub temp_file_limit_bytes: Option<u64>,
    /// What an operator holds before it goes on in temporary files, unless its session says otherwise; 0: until memory
    /// is refused.
    pub work_mem_bytes: u64,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            fallback: true,
            fallback_threads: None,
            layout: Layout::Default,
            partitions: 0,
            segment_rows: eris_storage::SEGMENT_ROWS_DEFAULT,
            batch_rows: usize::MAX,
            temp_file_limit_bytes: None,
            work_mem_bytes: 0,
        }
    }
}

/// A database. Clones share it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    options: DatabaseOptions,
    catalog: Catalog,
    planner: Planner,
    lane: Lane,
    cache: PlanCache,
    statistics: StatisticsCache,
    defaults: SettingValues,
    version: String,
    observer: OnceLock<Arc<dyn TransactionObserver>>,
    files: OnceLock<Arc<Files>>,
    temp_files: RwLock<Arc<TempFiles>>,
    activities: Arc<Activities>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Database {
    /// The database of a running engine, which has one at a time: with the tables that the engine's catalog names, or,
    /// on a fresh engine, without any. Waits for it; for threads that are not workers.
    ///
    /// # Errors
    /// If a row of the catalog cannot be understood, or the catalog's place in the engine is taken.
    pub fn new(engine: Engine, options: DatabaseOptions) -> Result<Self, SqlError> {
        let database = Self::unopened(engine, options)?;
        let opening = database.clone();
        database.engine().block_on(opening.opened()).map_err(|error| engine_error(&error, None))?
    }

    /// The same for tasks.
    pub async fn open(engine: Engine, options: DatabaseOptions) -> Result<Self, SqlError> {
        Self::unopened(engine, options)?.opened().await
    }

    async fn opened(self) -> Result<Self, SqlError> {
        catalog::open(self.engine(), self.catalog()).await?;
        Ok(self)
    }

    fn unopened(engine: Engine, options: DatabaseOptions) -> Result<Self, SqlError> {
        let threads = options.fallback_threads.unwrap_or_else(|| engine.worker_count());
        let lane = Lane::new(threads);
        let environment = Lane::environment(engine.memory())?;
        let activities = Arc::new(Activities::default());
        let planner =
            Planner::new(engine.clone(), Arc::clone(&activities), lane.threads(), options.batch_rows, environment);
        let mut defaults = SettingValues::default();
        let mut set = |declaration, text: String| {
            defaults
                .set_text(declaration, &text)
                .map_err(|error| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()))
        };
        set(LAYOUT.declaration(), layout_name(options.layout).to_string())?;
        set(PARTITIONS.declaration(), options.partitions.to_string())?;
        set(SEGMENT_ROWS.declaration(), options.segment_rows.to_string())?;
        set(WORK_MEM.declaration(), ByteSize(options.work_mem_bytes).to_string())?;
        let old_versions = ByteSize(engine.old_version_limit().unwrap_or(0));
        set(OLD_VERSION_MEMORY_LIMIT.declaration(), old_versions.to_string())?;
        if let Some(bytes) = options.temp_file_limit_bytes {
            set(TEMP_FILE_LIMIT.declaration(), ByteSize(bytes).to_string())?;
        }
        // Clients parse this: name, dot-separated number, anything.
        let version = format!(
            "PostgreSQL {SERVER_VERSION} (ERIS {}) on {}-{}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH,
            std::env::consts::OS
        );
        let temp_files = TempFiles::new(Arc::clone(engine.env()), temp_directory(&**engine.env()));
        let cache = PlanCache::new(engine.memory().configured_limit());
        let inner = Inner {
            engine,
            options,
            catalog: Catalog::default(),
            planner,
            lane,
            cache,
            statistics: StatisticsCache::default(),
            defaults,
            version,
            observer: OnceLock::new(),
            files: OnceLock::new(),
            temp_files: RwLock::new(temp_files),
            activities,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A new session.
    pub fn session(&self, options: SessionOptions) -> Session {
        Session::new(self.clone(), options)
    }

    /// The engine below.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// How it was set up.
    pub fn options(&self) -> &DatabaseOptions {
        &self.inner.options
    }

    /// The names there are now.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// What `version()` answers.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// Has this observer told of all transactions from now on; there is one at most, the first.
    pub fn observe(&self, observer: Arc<dyn TransactionObserver>) {
        let first = self.inner.observer.set(observer).is_ok();
        assert!(first, "a database has one observer");
    }

    /// The files that the engine's commits go into: for checkpoints on demand. Once.
    pub fn attach_files(&self, files: Arc<Files>) {
        self.inner.planner.tell_recovery(files.recovery().clone());
        let first = self.inner.files.set(files).is_ok();
        assert!(first, "a database has one directory");
    }

    /// Its files, if it has any.
    pub fn files(&self) -> Option<&Arc<Files>> {
        self.inner.files.get()
    }

    /// Keeps temporary files of statements that begin from now on in this directory, and removes there what a process
    /// left that was killed. The directory itself may be missing, what it is in may not. Waits for the disk.
    pub fn keep_temp_files_in(&self, directory: TempDirectory) -> io::Result<()> {
        let env = self.engine().env();
        let parent = directory.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !env.files().exists(parent)) {
            let message = format!("{} does not exist", parent.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        let files = TempFiles::new(Arc::clone(env), directory);
        files.clear()?;
        *self.inner.temp_files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }

    /// Where statements keep what does not fit into memory.
    pub fn temp_files(&self) -> Arc<TempFiles> {
        Arc::clone(&self.inner.temp_files.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn observer(&self) -> Option<&dyn TransactionObserver> {
        self.inner.observer.get().map(AsRef::as_ref)
    }

    /// What its sessions are at.
    pub fn activities(&self) -> &Arc<Activities> {
        &self.inner.activities
    }

    /// How many queries were planned so far.
    pub fn planned(&self) -> u64 {
        self.inner.planner.planned()
    }

    /// How many of the queries that were planned our own binder bound.
    pub fn bound_here(&self) -> u64 {
        self.inner.planner.bound_here()
    }

    pub(crate) fn planner(&self) -> &Planner {
        &self.inner.planner
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.inner.lane
    }

    /// What is known of tables.
    pub(crate) fn statistics(&self) -> &StatisticsCache {
        &self.inner.statistics
    }

    pub(crate) fn plan_cache(&self) -> &PlanCache {
        &self.inner.cache
    }

    pub(crate) fn defaults(&self) -> &SettingValues {
        &self.inner.defaults
    }

    pub(crate) fn allows_fallback(&self) -> bool {
        self.inner.options.fallback
    }
}

/// Where a database without files keeps what does not fit into memory: in a directory of its own, made when it is
/// needed.
fn temp_directory(env: &dyn Env) -> TempDirectory {
    let system = std::env::temp_dir();
    // Two databases of one process, or of processes of the same number in containers, are told apart.
    let path = system.join(format!("eris-{}-{:016x}", std::process::id(), env.random_u64()));
    // The simulated machine has no directories before they are made.
    let is_there = env.files().exists(Path::new(&system));
    let path = if is_there { path } else { Path::new("/").join(path.file_name().unwrap_or_default()) };
    TempDirectory { path, is_own: true, keeps_free_bytes: 0 }
}
