//! The log: what was committed, in the order of commit timestamps, durable before it is visible.
//!
//! ```text
//!   tasks ── append ──> batch ──┐                     ┌──> batch ...
//!                               └ write, sync ────────┘ write, sync
//!                                                └──> decided, in order, by a task of the engine
//! ```
//! While one batch is written the next one gathers: the slower the disk, the more commits share a sync. Nobody waits
//! for company: a commit that finds the log idle is written at once, and alone.
//!
//! The thread that writes does only that. What became durable is told to a task of the engine (`decide`), whose worker
//! finds the tasks that it wakes in its own queue.
//!
//! **No room** is found out before a record is appended: a record goes into a file that has its full size. So a full
//! disk refuses commits that come, and none that were accepted; and so does a file that cannot be made for another
//! reason. **A failed write or sync** ends the log: nobody knows what is on the disk, and trying again would not tell.

mod decide;
mod file;
mod flush;
mod named;
mod reader;
mod record;
mod state;

use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use eris_engine::{Commit, CommitLog, Definition, Durability, Engine, LogError};
use eris_platform::messages::tell;
use eris_platform::{Env, Files, IoQueue, NodeId, io_queue};
use eris_storage::TransactionId;

use crate::checkpoint::Control;
use crate::definitions;
use crate::directory::{DatabaseId, Directory, DirectoryLock};
use crate::error::{DurabilityError, is_full};
use crate::options::DurabilityOptions;

use decide::Decisions;
use file::{LogFile, create_spare};
use named::NamedFile;
use record::{Kind, RECORD_BYTES_MAX};
use state::{Appending, State, no_file};

pub(crate) use file::{is_log_file, make_first_file};
pub(crate) use reader::{LogFiles, LogReader, Rest, Step};
pub(crate) use record::{Kind as RecordKind, Record};
pub use state::LogStatistics;

/// Commits that are in the log and not decided; timestamps in flight are bounded, too, and there are more of these.
const UNDECIDED_MAX: usize = 1_024;
/// Bytes that wait to be written before commits wait for room.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// The node of the task that decides, or whose successor has it.
const DECIDES_ON: NodeId = NodeId(0);

/// A log that takes commits. Clones are the same log.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    env: Arc<dyn Env>,
    id: DatabaseId,
    directory: PathBuf,
    /// Files are made, named and removed only while the directory is looked after.
    lock: Arc<DirectoryLock>,
    options: DurabilityOptions,
    /// Writes and syncs; makes files.
    writes: Arc<dyn IoQueue>,
    allocations: Arc<dyn IoQueue>,
    /// The last file that has its name. Locked while the next one gets its own.
    named: Mutex<Option<NamedFile>>,
    state: Mutex<State>,
    decisions: Decisions,
    /// Until when workers look for what becomes durable, in nanoseconds of the environment's clock.
    watched_until: AtomicU64,
}

impl Shared {
    fn state(self: &Arc<Self>) -> Locked<'_> {
        Locked { shared: self, state: Some(self.state.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    fn named(&self) -> MutexGuard<'_, Option<NamedFile>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last log file is still what its name leads to, by one question to the system.
    fn look_at_file(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        self.named().as_ref().map_or(Ok(()), |named| named.look(files))
    }

    /// The same of the directory, too.
    fn look(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        self.lock.keep()?.look(files)?;
        self.look_at_file(files)
    }

    /// Makes or removes files, if directory and file are those that were opened; else the log is at its end.
    fn in_directory<T>(self: &Arc<Self>, files: &dyn Files, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let looked = self.lock.keep().and_then(|kept| {
            kept.look_closely(files)?;
            self.look_at_file(files).map(|()| kept)
        });
        match looked {
            Ok(_kept) => change(),
            Err(error) => {
                self.fail_if_lost(&error);
                Err(io::Error::other(error.to_string()))
            }
        }
    }

    /// A directory or a file that is not this database's any more takes no commits.
    fn fail_if_lost(self: &Arc<Self>, error: &DurabilityError) {
        if matches!(error, DurabilityError::Lost { .. }) {
            self.fail(&error.to_string());
        }
    }

    /// The log is at its end: nothing more is accepted, and what was on its way is not told to be durable. Said once.
    fn fail(self: &Arc<Self>, reason: &str) {
        let error = LogError::Failed { reason: reason.into(), is_over: true };
        let (commits, wakers) = {
            let mut state = self.state();
            if !state.has_failed() {
                tell(format_args!("the log could not be written ({reason}); no more commits are accepted"));
            }
            state.fail(error.clone())
        };
        self.decisions.push(commits, &Err(error));
        wakers.into_iter().for_each(std::task::Waker::wake);
    }
}

/// The state. What it decides to have written is handed over once it is unlocked, or the thread that writes would wake
/// up to wait for the lock.
struct Locked<'a> {
    shared: &'a Arc<Shared>,
    /// There until the end.
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        let Some(state) = &self.state else { unreachable!("a state that is unlocked is not used") };
        state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        let Some(state) = &mut self.state else { unreachable!("a state that is unlocked is not used") };
        state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let to_write = self.state.take().and_then(|mut state| state.take_to_write());
        if let Some((batch, end)) = to_write {
            flush::submit(self.shared, batch, end);
        }
    }
}

impl Log {
    /// Begins a log at `position`, behind everything that is there, in a new file. Without room for one it begins, too,
    /// and refuses commits until there is.
    pub(crate) fn begin(
        env: &Arc<dyn Env>,
        directory: &Directory,
        options: &DurabilityOptions,
        position: u64,
    ) -> Result<Self, DurabilityError> {
        let files = env.files();
        let path = directory.log();
        let failed = |action: &'static str| DurabilityError::io(action, &path);
        let names = files.list(&path).map_err(failed("list"))?;
        for name in names.iter().filter(|name| file::is_spare(name)) {
            files.remove(&path.join(name)).map_err(failed("remove a spare file in"))?;
        }
        let named = NamedFile::last(files, &path, &names).map_err(failed("open the last file in"))?;
        let started = |queue: io::Result<_>| queue.map_err(failed("start the thread that writes"));
        let shared = Shared {
            env: Arc::clone(env),
            id: directory.id(),
            directory: path.clone(),
            lock: Arc::clone(directory.lock()),
            options: options.clone(),
            writes: started(env.prompt_io_queue("eris-log"))?,
            allocations: started(env.io_queue("eris-log-files"))?,
            named: Mutex::new(named),
            state: Mutex::new(State::new(position, definitions::start(env.unix_micros()))),
            decisions: Decisions::default(),
            watched_until: AtomicU64::new(0),
        };
        let log = Self { shared: Arc::new(shared) };
        let capacity = options.log_file_bytes;
        let first = match create_spare(files, &path, 0, capacity) {
            Ok((spare_path, file)) => Ok(LogFile { file, spare_path, first: position, capacity }),
            // What is there can be read.
            Err(error) if is_full(&error) => {
                let path = path.display();
                tell(format_args!("\"{path}\" has no room for a log file ({error}); make room to write"));
                Err((no_file(capacity, &error), env.now()))
            }
            Err(error) => return Err(failed("make a log file in")(error)),
        };
        log.shared.state().begin(first);
        Ok(log)
    }

    /// Has the engine's workers decide what became durable. The engine keeps the log until [`Self::close`].
    pub(crate) fn attach(&self, engine: &Engine) {
        engine.spawn_on(DECIDES_ON, decide::decide(engine.clone(), Arc::downgrade(&self.shared)));
        engine.attach_log(Arc::new(self.clone()));
    }

    /// Accepts nothing more, and returns when everything that was accepted is durable and decided. An error, too, if
    /// the log was lost meanwhile, so that it will not be found when the database is opened again.
    pub async fn close(&self) -> Result<(), LogError> {
        let refused = self.shared.state().close();
        refused.into_iter().for_each(std::task::Waker::wake);
        let mut ticket = None;
        let durable = std::future::poll_fn(|context| self.poll_durable(context, &mut ticket)).await;
        if durable.is_ok() {
            self.shared.state().append_end(&self.shared);
            let mut ticket = None;
            // Nothing is lost without it.
            let _ = std::future::poll_fn(|context| self.poll_durable(context, &mut ticket)).await;
        }
        let looked = self.look_at_end().await;
        self.shared.decisions.end();
        durable.and(looked)
    }

    /// Whether what was committed will be found, also if nothing was written that would have told.
    async fn look_at_end(&self) -> Result<(), LogError> {
        let shared = Arc::clone(&self.shared);
        let looked = io_queue::run(&self.shared.writes, move |files| shared.look(files)).await;
        let Ok(Err(error)) = looked else { return Ok(()) };
        self.shared.fail_if_lost(&error);
        Err(LogError::Failed { reason: error.to_string().into(), is_over: true })
    }

    /// Accepts nothing more, and waits for nothing: what is not durable yet is not committed.
    pub(crate) fn abandon(&self) {
        let error = state::closed();
        let (commits, wakers) = self.shared.state().fail(error.clone());
        self.shared.decisions.end();
        self.shared.decisions.push(commits, &Err(error));
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// What it did so far.
    pub fn statistics(&self) -> LogStatistics {
        self.shared.state().statistics
    }

    /// Where a checkpoint begins that is taken now, and where the log has to be read from then: in front of it, if
    /// transactions under way have parts there.
    pub(crate) fn checkpoint_positions(&self) -> (u64, u64) {
        self.shared.state().begin_checkpoint()
    }

    /// Log files that end in front of this position are not needed any more.
    pub(crate) fn forget_in_front_of(&self, position: u64) {
        let shared = Arc::clone(&self.shared);
        self.shared.allocations.submit(Box::new(move |files| {
            // What stays is removed after the next checkpoint.
            let removed = shared.in_directory(files, || file::remove_in_front_of(files, &shared.directory, position));
            drop(removed);
        }));
    }

    /// Whoever takes checkpoints is woken when the log grows.
    pub(crate) fn watch(&self, control: &Arc<Control>, log_bytes: u64) {
        self.shared.state().watch(control, log_bytes);
    }

    /// Whether the last log file is still what its name leads to.
    pub(crate) fn look_at_file(&self, files: &dyn Files) -> Result<(), DurabilityError> {
        self.shared.look_at_file(files)
    }

    /// Whoever works in the directory found it to be another's, perhaps.
    pub(crate) fn fail_if_lost(&self, error: &DurabilityError) {
        self.shared.fail_if_lost(error);
    }

    /// Bytes since the last checkpoint began.
    pub(crate) fn grown_bytes(&self) -> u64 {
        self.shared.state().grown_bytes()
    }

    /// A checkpoint came to its end, good or bad.
    pub(crate) fn checkpoint_ended(&self, succeeded: bool) {
        self.shared.state().end_checkpoint(succeeded);
    }

    /// Appends if there is room for it, else sees to it that there will be.
    fn poll_append<T>(
        &self,
        context: &mut Context<'_>,
        body: usize,
        append: impl FnOnce(&mut State) -> T,
    ) -> Poll<Result<T, LogError>> {
        let shared = &self.shared;
        let length = record::record_bytes(body);
        if length > RECORD_BYTES_MAX {
            return Poll::Ready(Err(LogError::TooLong { bytes: length, bytes_max: RECORD_BYTES_MAX }));
        }
        let mut state = shared.state();
        match state.room_for(shared, length)? {
            Appending::Now => Poll::Ready(Ok(append(&mut state))),
            Appending::Later => {
                state.wait_for_room(context.waker());
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Log({}, {:?})", self.shared.directory.display(), self.statistics())
    }
}

impl CommitLog for Log {
    fn poll_commit(&self, context: &mut Context<'_>, commit: &mut Option<Commit>) -> Poll<Result<(), LogError>> {
        let Some(next) = commit.as_ref() else { return Poll::Ready(Ok(())) };
        let extra = if next.has_parts { 12 + 8 * next.void.len() } else { 0 };
        let shared = &self.shared;
        let appended = self.poll_append(context, next.operations.len() + extra, |state| {
            let pending = next.take_timestamp();
            let kind = if next.has_parts { Kind::CommitWithParts } else { Kind::Commit };
            state.append(shared, kind, pending.timestamp().0, |out| {
                if next.has_parts {
                    out.extend_from_slice(&next.transaction.0.to_le_bytes());
                    out.extend_from_slice(&(next.void.len() as u32).to_le_bytes());
                    for (first, last) in &next.void {
                        out.extend_from_slice(&first.0.to_le_bytes());
                        out.extend_from_slice(&last.0.to_le_bytes());
                    }
                }
                out.extend_from_slice(&next.operations);
            });
            state.forget_parts(next.transaction);
            state.statistics.commits += 1;
            match next.durability {
                Durability::Asynchronous => {
                    state.write_soon(shared);
                    Some(pending)
                }
                Durability::Synchronous => {
                    state.push_commit(pending);
                    state.write_now(shared);
                    None
                }
            }
        });
        let Poll::Ready(appended) = appended else { return Poll::Pending };
        if let Some(pending) = appended? {
            pending.decide(Ok(()));
        }
        *commit = None;
        Poll::Ready(Ok(()))
    }

    fn about_to_tell(&self) -> Option<NodeId> {
        (self.shared.env.now().0 < self.shared.watched_until.load(Ordering::Relaxed)).then_some(DECIDES_ON)
    }

    fn poll_part(
        &self,
        context: &mut Context<'_>,
        transaction: TransactionId,
        operations: &mut Vec<u8>,
    ) -> Poll<Result<(), LogError>> {
        let shared = &self.shared;
        let appended = self.poll_append(context, 8 + operations.len(), |state| {
            state.note_part(transaction);
            state.append(shared, Kind::Part, 0, |out| {
                out.extend_from_slice(&transaction.0.to_le_bytes());
                out.extend_from_slice(operations);
            });
            state.write_soon(shared);
        });
        if matches!(appended, Poll::Ready(Ok(()))) {
            operations.clear();
        }
        appended
    }

    fn rolled_back(&self, transaction: TransactionId) {
        self.shared.state().forget_parts(transaction);
    }

    fn define(&self, definition: &Definition) -> Result<(), LogError> {
        let text = definitions::to_text(definition);
        let shared = &self.shared;
        let mut state = shared.state();
        state.room_for_definition(shared, record::record_bytes(text.len()))?;
        state.append(shared, Kind::Definition, 0, |out| out.extend_from_slice(text.as_bytes()));
        state.write_soon(shared);
        Ok(())
    }

    fn poll_durable(&self, context: &mut Context<'_>, ticket: &mut Option<u64>) -> Poll<Result<(), LogError>> {
        self.shared.state().poll_durable(&self.shared, context, ticket)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::task::Waker;

    use eris_engine::{EngineOptions, SequenceSpec, Simulation};
    use eris_platform::SimulatedEnv;

    use super::*;

    /// Only the length is looked at, so that no test needs as many bytes.
    #[test]
    fn a_record_that_is_too_long_is_refused_and_the_log_goes_on() {
        let mut simulation = Simulation::on(&SimulatedEnv::new(1), EngineOptions::default()).unwrap();
        let engine = simulation.engine().clone();
        let opened = async move {
            let options = DurabilityOptions::default();
            crate::open(&engine, Path::new("/db"), &options, |_| {}).await
        };
        let database = simulation.block_on(opened).unwrap().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let fits = RECORD_BYTES_MAX as usize - record::HEADER_BYTES;
        for body in [fits + 1, 2 * fits] {
            let Poll::Ready(Err(refused)) = database.log().poll_append(&mut context, body, |_| ()) else {
                panic!("{body} bytes are taken")
            };
            let LogError::TooLong { bytes, bytes_max } = refused else { panic!("{refused}") };
            assert!(bytes > body as u64 && bytes_max == RECORD_BYTES_MAX, "{bytes} of {bytes_max}");
        }
        simulation.engine().create_sequence(&SequenceSpec::new("numbers")).unwrap();
    }
}
