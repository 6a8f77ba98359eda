//! How other tasks reach a connection: a cancel request from a second connection, a server that stops.
//!
//! A cancel request is honoured only while a statement runs, as a client cannot know whether its statement is over by
//! the time the request arrives.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use crate::protocol::backend::Interrupts;
use crate::protocol::report::{Report, Severity, SqlState};

/// Sessions at one time.
pub const CONNECTIONS_MAX: usize = 1_000;
/// Connections at one time that have not introduced themselves: enough for as many clients as start in one moment,
/// and what they hold is a socket. When there are more the oldest gives way, so that sockets that say nothing keep
/// nobody out for long.
pub const STRANGERS_MAX: usize = 256;
/// The largest process number of a connection; after it they begin again. Sessions without a connection have larger
/// ones, so that the two never meet.
pub const PROCESS_MAX: u32 = (1 << 30) - 1;

/// What a connection listens to besides its client.
#[derive(Default)]
pub struct Signal {
    /// Copies of what `state` says, for a look without the lock.
    running: AtomicBool,
    cancelled: AtomicBool,
    stopping: AtomicBool,
    /// The session may have something pending.
    nudged: AtomicBool,
    session: OnceLock<Arc<dyn Interrupts>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a statement is being executed. Under the lock, so that a cancel never hits the statement after.
    running: bool,
    waker: Option<Waker>,
    /// What the client is told when it is asked to go.
    dismissal: Option<Report>,
}

impl Signal {
    /// Cancels the running statement; without one nothing happens.
    pub fn cancel(&self) {
        let waker = {
            let mut state = self.state();
            if !state.running {
                return;
            }
            self.cancelled.store(true, Ordering::Release);
            if let Some(session) = self.session.get() {
                session.cancel();
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks the connection to end; the first reason counts.
    pub fn stop(&self, reason: Report) {
        let waker = {
            let mut state = self.state();
            state.dismissal.get_or_insert(reason);
            self.stopping.store(true, Ordering::Release);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Names how the backend's running statement is cancelled, and listens to what interrupts the session.
    pub(crate) fn attach(self: &Arc<Self>, session: Arc<dyn Interrupts>) {
        let this: Weak<Signal> = Arc::downgrade(self);
        session.listen(Box::new(move || {
            if let Some(signal) = this.upgrade() {
                signal.nudge();
            }
        }));
        let first = self.session.set(session).is_ok();
        assert!(first, "a connection has one session");
    }

    /// Has the connection look at what the session has pending.
    fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        let waker = self.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What the session has pending.
    fn pending(&self) -> Option<Report> {
        if !self.nudged.load(Ordering::Acquire) {
            return None;
        }
        // Taken back before the look, so that what comes after it is looked at again.
        self.nudged.store(false, Ordering::Release);
        let pending = self.session.get().and_then(|session| session.pending());
        if pending.is_some() {
            self.nudged.store(true, Ordering::Release);
        }
        pending
    }

    /// Only the connection's own task calls this and [`Signal::statement_ends`], so its copy needs no order.
    pub(crate) fn statement_begins(&self) {
        self.state().running = true;
        self.running.store(true, Ordering::Relaxed);
    }

    /// Also where none runs: a statement has many ends.
    pub(crate) fn statement_ends(&self) {
        if !self.running.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        state.running = false;
        self.running.store(false, Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
            || self.pending().is_some_and(|report| report.severity != Severity::Fatal)
    }

    /// What the client is told of a statement that is cancelled.
    pub(crate) fn cancellation(&self) -> Report {
        self.pending().filter(|report| report.severity != Severity::Fatal).unwrap_or_else(Report::cancelled)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.pending().is_some_and(|report| report.severity == Severity::Fatal)
    }

    /// Why the connection was asked to end.
    pub(crate) fn dismissal(&self) -> Report {
        let own = self.state().dismissal.clone();
        own.or_else(|| self.pending().filter(|report| report.severity == Severity::Fatal)).unwrap_or_else(stopping)
    }

    /// To be called before the flags are looked at, so that a change after the look wakes the task.
    pub(crate) fn listen(&self, context: &Context<'_>) {
        let mut state = self.state();
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    pub(crate) fn cancel_backend(&self) {
        if let Some(session) = self.session.get() {
            session.cancel();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All connections of a database, whichever of its listeners they came through: one sequence of process numbers, one
/// set of bounds, and one place where a cancel request finds its connection.
pub struct Registry {
    /// At one time, strangers included: as many as there are descriptors for.
    connections_max: usize,
    connections: Mutex<Connections>,
    last_process: AtomicU32,
    last_endpoint: AtomicU32,
}

/// One listener's part of the registry: it admits connections, and ends those that it admitted.
pub struct Endpoint {
    registry: Arc<Registry>,
    id: EndpointId,
    stopping: AtomicBool,
    /// Waits for the last connection to go.
    emptied: Mutex<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct EndpointId(u32);

#[derive(Default)]
struct Connections {
    entries: BTreeMap<u32, Entry>,
    /// Who has not said who it is, in order of arrival; those that were asked to go are not among them.
    strangers: VecDeque<u32>,
    sessions: usize,
}

struct Entry {
    /// The endpoint that admitted it.
    endpoint: EndpointId,
    secret: u32,
    signal: Arc<Signal>,
    /// Counted among the sessions.
    introduced: bool,
}

impl Default for Registry {
    fn default() -> Self {
        Self::for_connections(usize::MAX)
    }
}

impl Registry {
    /// For so many connections at one time, introduced or not.
    pub fn for_connections(connections_max: usize) -> Self {
        Self {
            connections_max,
            connections: Mutex::default(),
            last_process: AtomicU32::default(),
            last_endpoint: AtomicU32::default(),
        }
    }

    /// The part of one more listener.
    pub fn endpoint(self: &Arc<Self>) -> Arc<Endpoint> {
        let id = EndpointId(self.last_endpoint.fetch_add(1, Ordering::Relaxed));
        Arc::new(Endpoint { registry: self.clone(), id, stopping: AtomicBool::default(), emptied: Mutex::default() })
    }

    /// A number that no connection of the database has.
    fn free_process(&self, connections: &Connections) -> u32 {
        loop {
            let number = self.last_process.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & PROCESS_MAX;
            if number != 0 && !connections.entries.contains_key(&number) {
                break number;
            }
        }
    }

    /// Cancels what connection `process` runs, if the caller knows its secret.
    pub fn cancel(&self, process: u32, secret: u32) {
        let signal =
            self.connections().entries.get(&process).filter(|entry| entry.secret == secret).map(|e| e.signal.clone());
        if let Some(signal) = signal {
            signal.cancel();
        }
    }

    /// Connections through all listeners.
    pub fn len(&self) -> usize {
        self.connections().entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// Admits a connection; it is known until the registration is dropped. Its place among the sessions it gets when it
    /// says who it is ([`Registration::introduce`]).
    pub fn admit(self: &Arc<Self>, secret: u32) -> Result<Registration, Report> {
        let registry = &self.registry;
        let mut connections = registry.connections();
        if self.stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let mut dismissed = None;
        let is_full = connections.entries.len() >= registry.connections_max;
        if is_full || connections.strangers.len() >= STRANGERS_MAX {
            let oldest = connections.strangers.pop_front();
            if is_full && oldest.is_none() {
                return Err(too_many(registry.connections_max));
            }
            dismissed = oldest.and_then(|oldest| connections.entries.get(&oldest)).map(|entry| entry.signal.clone());
        }
        let process = registry.free_process(&connections);
        let signal = Arc::new(Signal::default());
        let entry = Entry { endpoint: self.id, secret, signal: signal.clone(), introduced: false };
        connections.entries.insert(process, entry);
        connections.strangers.push_back(process);
        drop(connections);
        if let Some(signal) = dismissed {
            signal.stop(if is_full { displaced(registry.connections_max) } else { displaced_stranger() });
        }
        Ok(Registration { endpoint: self.clone(), process, secret, signal })
    }

    /// Ends the connections of this endpoint and admits no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let signals: Vec<_> = {
            let connections = self.registry.connections();
            let own = connections.entries.values().filter(|entry| entry.endpoint == self.id);
            own.map(|entry| entry.signal.clone()).collect()
        };
        for signal in signals {
            signal.stop(stopping());
        }
    }

    /// Resolves when no connection of this endpoint is left. For one waiter.
    pub async fn emptied(&self) {
        poll_fn(|context| {
            *self.emptied.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Connections through this endpoint.
    pub fn len(&self) -> usize {
        self.registry.connections().entries.values().filter(|entry| entry.endpoint == self.id).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a client is told for which there is no place.
fn too_many(connections_max: usize) -> Report {
    let message = format!("sorry, too many clients already: the limit is {connections_max} connections");
    Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message)
        .with_hint("Close connections that are not needed, or share them with a connection pool.")
}

/// What a client is told that has not introduced itself and gives its place to a new one, as the process has no
/// descriptors for more connections of any kind.
fn displaced(connections_max: usize) -> Report {
    let message = format!(
        "too many connections: there are file descriptors for {connections_max}, and the oldest without a startup \
         packet gives way"
    );
    Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message)
        .with_hint("Allow the server more descriptors (ulimit -n), or close connections that are not needed.")
}

/// The same where only those without a startup packet are too many.
fn displaced_stranger() -> Report {
    let message = format!("too many connections without a startup packet: of {STRANGERS_MAX} the oldest gives way");
    Report::fatal(SqlState::TOO_MANY_CONNECTIONS, message)
}

/// What a client is told when the server stops.
pub(crate) fn stopping() -> Report {
    Report::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// A connection's place in the registry.
pub struct Registration {
    endpoint: Arc<Endpoint>,
    pub(crate) process: u32,
    pub(crate) secret: u32,
    pub(crate) signal: Arc<Signal>,
}

impl Registration {
    pub(crate) fn registry(&self) -> &Registry {
        &self.endpoint.registry
    }

    /// Takes a place among the sessions; refused when all are taken, or when the connection was asked to go meanwhile.
    pub(crate) fn introduce(&self) -> Result<(), Report> {
        if self.signal.is_stopping() {
            return Err(self.signal.dismissal());
        }
        let mut connections = self.registry().connections();
        if connections.sessions >= CONNECTIONS_MAX {
            return Err(too_many(CONNECTIONS_MAX));
        }
        if let Some(entry) = connections.entries.get_mut(&self.process)
            && !std::mem::replace(&mut entry.introduced, true)
        {
            connections.sessions += 1;
            connections.strangers.retain(|process| *process != self.process);
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        {
            let mut connections = self.registry().connections();
            let entry = connections.entries.remove(&self.process);
            if entry.is_some_and(|entry| entry.introduced) {
                connections.sessions -= 1;
            } else {
                connections.strangers.retain(|process| *process != self.process);
            }
        }
        let waker = self.endpoint.emptied.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
