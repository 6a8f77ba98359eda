//! One session as others see and interrupt it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use eris_engine::{CancelHandle, Engine, IsolationLevel};
use eris_platform::Nanos;
use eris_storage::{Timestamp, TransactionId};

use super::deadlines::{Deadlines, Timeouts};
use super::interruption::Interruption;
use super::watchdog::watch;
use crate::errors::{SqlError, SqlState};
use crate::session::SessionOptions;

/// Bytes of a statement's text that others see at most, as in PostgreSQL.
const QUERY_BYTES_MAX: usize = 1_023;

/// What a session is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Waits for its client, outside of transactions.
    #[default]
    Idle,
    /// Runs a statement.
    Active,
    /// Waits for its client, in a transaction block.
    IdleInTransaction,
    /// The same in a block that failed.
    Failed,
}

impl Phase {
    /// PostgreSQL's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::Failed => "idle in transaction (aborted)",
        }
    }
}

/// Called when the session was interrupted.
type Listener = Box<dyn Fn() + Send + Sync>;

/// One session's.
pub struct Activity {
    /// Its number, PostgreSQL's process id.
    pub process: u32,
    user: String,
    database: String,
    client: Option<SocketAddr>,
    started: Nanos,
    state: Mutex<State>,
    listener: OnceLock<Listener>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    application_name: String,
    /// The beginning of the running statement's text, or the last one's.
    query: String,
    query_started: Option<Nanos>,
    transaction_started: Option<Nanos>,
    phase_began: Nanos,
    /// The engine's transaction, with its snapshot and when that was taken.
    transaction: Option<(TransactionId, Timestamp, Nanos)>,
    /// Of that transaction.
    level: IsolationLevel,
    /// Of the running statement.
    running: Option<CancelHandle>,
    /// Of a statement whose client has a part of the result and did not ask for more yet.
    suspended: Option<CancelHandle>,
    /// Why the running statement is to end.
    cancelled: Option<Interruption>,
    /// Why the session is to end.
    dismissed: Option<Interruption>,
    ended: bool,
    deadlines: Deadlines,
    watchdog: Watchdog,
}

/// The task that waits for the session's deadlines: there is none until the first is set.
#[derive(Default)]
struct Watchdog {
    is_there: bool,
    /// When it looks again by itself.
    looks_at: u64,
    waker: Option<Waker>,
}

/// A session at one moment. Times are the engine's.
#[derive(Clone, Debug)]
pub struct ActivityReport {
    pub process: u32,
    pub user: String,
    pub database: String,
    pub application_name: String,
    pub client: Option<SocketAddr>,
    pub phase: Phase,
    pub query: String,
    pub started: Nanos,
    pub query_started: Option<Nanos>,
    pub transaction_started: Option<Nanos>,
    pub phase_began: Nanos,
    /// The engine's transaction, with its snapshot and when that was taken.
    pub transaction: Option<(TransactionId, Timestamp, Nanos)>,
    /// Of that transaction.
    pub level: IsolationLevel,
}

/// What a watchdog does next.
pub(super) enum Watch {
    /// It waits until this time, or until it is woken.
    Until(Nanos),
    /// It waits until it is woken.
    Rest,
    /// The session is over.
    Over,
}

impl Activity {
    pub(super) fn new(process: u32, options: &SessionOptions, now: Nanos) -> Self {
        let state = State { application_name: options.application_name.clone(), phase_began: now, ..State::default() };
        Self {
            process,
            user: options.user.clone(),
            database: options.database.clone(),
            client: options.client,
            started: now,
            state: Mutex::new(state),
            listener: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this called whenever the session is interrupted by others than its client; [`Self::pending`] says why. The
    /// first one counts.
    pub fn listen(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Why the session, or its running statement, is to end, if it is.
    pub fn pending(&self) -> Option<Interruption> {
        let state = self.state();
        state.dismissed.or(state.cancelled)
    }

    /// Interrupts the session. What hits a statement does nothing while none runs.
    pub fn interrupt(&self, why: Interruption) {
        let mut state = self.state();
        let handle = state.interrupt(why);
        drop(state);
        if let Some(handle) = handle {
            handle.cancel();
        }
        if let Some(listener) = self.listener.get() {
            listener();
        }
    }

    /// Ends the running statement because the client asks for it; its connection knows already.
    pub fn cancel_for_client(&self) {
        let mut state = self.state();
        let handle = state.interrupt(Interruption::UserRequest);
        drop(state);
        if let Some(handle) = handle {
            handle.cancel();
        }
    }

    pub fn report(&self) -> ActivityReport {
        let state = self.state();
        ActivityReport {
            process: self.process,
            user: self.user.clone(),
            database: self.database.clone(),
            application_name: state.application_name.clone(),
            client: self.client,
            phase: state.phase,
            query: state.query.clone(),
            started: self.started,
            query_started: state.query_started,
            transaction_started: state.transaction_started,
            phase_began: state.phase_began,
            transaction: state.transaction,
            level: state.level,
        }
    }

    // ---- the session's own part

    /// An error if the session is to end; then it does nothing any more.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        self.state().dismissed.map_or(Ok(()), |why| Err(why.error()))
    }

    /// A statement begins, or the planning of one: with a cancel handle of its own, so that nothing is left of what was
    /// asked of the one before.
    pub(crate) fn begin_statement(self: &Arc<Self>, engine: &Engine, query: &str, timeouts: &Timeouts) {
        let now = engine.env().now();
        let mut state = self.state();
        if state.phase != Phase::Active {
            (state.phase, state.phase_began) = (Phase::Active, now);
        }
        state.query.clear();
        state.query.push_str(&query[..query.floor_char_boundary(QUERY_BYTES_MAX)]);
        state.query_started = Some(now);
        let began = *state.transaction_started.get_or_insert(now);
        state.cancelled = None;
        let handle = CancelHandle::default();
        if state.dismissed.is_some() {
            handle.cancel();
        }
        state.running = Some(handle);
        state.deadlines.statement_begins(now, timeouts);
        state.deadlines.transaction_since(Some(began), timeouts);
        self.keep_watch(state, engine);
    }

    /// The handle of the running statement: one for all it does, so that whoever cancels it while it is planned has
    /// cancelled what it would have read.
    pub(crate) fn handle(&self) -> CancelHandle {
        self.state().running.get_or_insert_default().clone()
    }

    /// The statement cannot be cancelled any more: it has had its effect, or failed.
    pub(crate) fn end_statement(&self) {
        let mut state = self.state();
        (state.running, state.suspended, state.cancelled) = (None, None, None);
        state.deadlines.statement_ends();
    }

    /// Between two parts of the statement's result nothing runs: the client has not asked for more yet.
    /// In a block the session is idle until then.
    pub(crate) fn suspend_statement(self: &Arc<Self>, engine: &Engine, in_block: bool, timeouts: &Timeouts) {
        let now = engine.env().now();
        let mut state = self.state();
        state.deadlines.statement_ends();
        state.cancelled = None;
        state.suspended = state.running.take();
        if in_block {
            (state.phase, state.phase_began) = (Phase::IdleInTransaction, now);
            state.deadlines.idle_since(now, true, timeouts);
            self.keep_watch(state, engine);
        }
    }

    /// The client asks for more of the result; the statement has its whole time again.
    pub(crate) fn resume_statement(self: &Arc<Self>, engine: &Engine, timeouts: &Timeouts) {
        let now = engine.env().now();
        let mut state = self.state();
        if state.phase != Phase::Active {
            (state.phase, state.phase_began) = (Phase::Active, now);
        }
        state.deadlines.statement_begins(now, timeouts);
        state.running = state.suspended.take();
        self.keep_watch(state, engine);
    }

    /// The session waits for its client.
    pub(crate) fn rest(self: &Arc<Self>, engine: &Engine, phase: Phase, timeouts: &Timeouts) {
        let now = engine.env().now();
        let mut state = self.state();
        (state.phase, state.phase_began) = (phase, now);
        (state.running, state.suspended, state.cancelled) = (None, None, None);
        state.deadlines.statement_ends();
        let in_transaction = phase != Phase::Idle;
        if !in_transaction {
            state.transaction_started = None;
        }
        let began = state.transaction_started;
        state.deadlines.transaction_since(began, timeouts);
        state.deadlines.idle_since(now, in_transaction, timeouts);
        self.keep_watch(state, engine);
    }

    pub(crate) fn set_application_name(&self, name: &str) {
        let mut state = self.state();
        if state.application_name != name {
            state.application_name = name.to_string();
        }
    }

    /// The transaction of the engine that the session's statements run in; its snapshot was taken now.
    pub(crate) fn set_transaction(&self, level: IsolationLevel, transaction: TransactionId, snapshot: Timestamp) {
        let mut state = self.state();
        state.level = level;
        let taken = state.query_started.unwrap_or(self.started);
        state.transaction = Some((transaction, snapshot, taken));
    }

    /// The snapshot of its next statement: a new one, or the one it had.
    pub(crate) fn set_snapshot(&self, snapshot: Timestamp) {
        let mut state = self.state();
        let now = state.query_started.unwrap_or(self.started);
        if let Some((_, known, taken)) = &mut state.transaction
            && *known != snapshot
        {
            (*known, *taken) = (snapshot, now);
        }
    }

    /// It has ended.
    pub(crate) fn clear_transaction(&self) {
        self.state().transaction = None;
    }

    /// What the client is told of an error of the running statement: if it was cancelled, why.
    pub(crate) fn explain(&self, error: SqlError) -> SqlError {
        if error.sqlstate != SqlState::CANCELED {
            return error;
        }
        // Other errors of this code say why themselves, as the end of a COPY does.
        match self.pending() {
            Some(why) if error == SqlError::cancelled() => why.error(),
            _ => error,
        }
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let waker = state.watchdog.waker.take();
        drop(state);
        waker.inspect(Waker::wake_by_ref);
    }

    // ---- the watchdog's

    /// Sees to it that the watchdog looks in time. It sleeps on when the deadline that it sleeps for is put off, as
    /// most are, so a session that is busy wakes it once in the time of a timeout.
    fn keep_watch(self: &Arc<Self>, mut state: MutexGuard<'_, State>, engine: &Engine) {
        if state.deadlines.next() == u64::MAX {
            return;
        }
        if !state.watchdog.is_there {
            state.watchdog.is_there = true;
            drop(state);
            engine.spawn(watch(Arc::clone(self), engine.clone()));
        } else if state.deadlines.next() < state.watchdog.looks_at {
            let waker = state.watchdog.waker.take();
            drop(state);
            waker.inspect(Waker::wake_by_ref);
        }
    }

    /// Interrupts what has to end by now.
    pub(super) fn look(&self, now: Nanos) -> Watch {
        loop {
            let mut state = self.state();
            if state.ended {
                return Watch::Over;
            }
            let Some(why) = state.deadlines.take_due(now) else {
                let next = state.deadlines.next();
                state.watchdog.looks_at = next;
                return if next == u64::MAX { Watch::Rest } else { Watch::Until(Nanos(next)) };
            };
            let handle = state.interrupt(why);
            drop(state);
            if let Some(handle) = handle {
                handle.cancel();
            }
            if let Some(listener) = self.listener.get() {
                listener();
            }
        }
    }

    /// Has the watchdog woken when it has to look earlier than it said; true if it has to look now.
    pub(super) fn wake_watchdog(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if state.ended || state.deadlines.next() < state.watchdog.looks_at {
            return true;
        }
        state.watchdog.waker = Some(waker.clone());
        false
    }
}

impl State {
    /// Notes why; gives the handle of what is to be cancelled. The first reason counts.
    fn interrupt(&mut self, why: Interruption) -> Option<CancelHandle> {
        if why.ends_session() {
            self.dismissed.get_or_insert(why);
        } else {
            self.running.as_ref()?;
            self.cancelled.get_or_insert(why);
        }
        self.running.clone()
    }
}

#[cfg(test)]
mod tests {
    use eris_engine::{EngineOptions, Simulation};

    use super::*;

    /// A statement that lost begins once more, with a handle of its own: that of a session that is to end is cancelled
    /// from the beginning.
    #[test]
    fn a_statement_that_is_repeated_is_still_one_of_a_session_that_is_to_end() {
        let simulation = Simulation::new(1, EngineOptions::default()).unwrap();
        let activity = Arc::new(Activity::new(1, &SessionOptions::default(), Nanos::ZERO));
        let begin = || activity.begin_statement(simulation.engine(), "UPDATE t SET n = 1", &Timeouts::default());
        begin();
        activity.interrupt(Interruption::UserRequest);
        assert!(activity.handle().is_cancelled());
        begin();
        assert!(!activity.handle().is_cancelled(), "the next statement is none that was cancelled");
        activity.interrupt(Interruption::Administrator);
        begin();
        assert!(activity.handle().is_cancelled());
        assert_eq!(activity.pending(), Some(Interruption::Administrator));
        assert!(activity.check().is_err(), "nor does another one begin");
    }
}
