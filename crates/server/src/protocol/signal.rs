//! How other tasks reach a connection: a cancel request from a second connection, a server that stops.
//!
//! A cancel request is honoured only while a statement runs, as a client cannot know whether its statement is over by
//! the time the request arrives.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::protocol::backend::Cancel;
use crate::protocol::report::{Report, SqlState};

/// Connections at one time, half-open ones included.
pub const CONNECTIONS_MAX: usize = 1_000;

/// What a connection listens to besides its client.
#[derive(Default)]
pub struct Signal {
    /// Copies of what `state` says, for a look without the lock.
    cancelled: AtomicBool,
    stopping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a statement is being executed. Under the lock, so that a cancel never hits the statement after.
    running: bool,
    waker: Option<Waker>,
    cancel: Option<Cancel>,
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
            if let Some(cancel) = &state.cancel {
                cancel();
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Asks the connection to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let waker = self.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Names how the backend's running statement is cancelled.
    pub(crate) fn attach(&self, cancel: Cancel) {
        self.state().cancel = Some(cancel);
    }

    pub(crate) fn statement_begins(&self) {
        self.state().running = true;
    }

    pub(crate) fn statement_ends(&self) {
        let mut state = self.state();
        state.running = false;
        self.cancelled.store(false, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
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
        let cancel = self.state().cancel.clone();
        if let Some(cancel) = cancel {
            cancel();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All connections of a server.
#[derive(Default)]
pub struct Registry {
    connections: Mutex<BTreeMap<u32, Entry>>,
    last_process: AtomicU32,
    stopping: AtomicBool,
    /// Waits for the last connection to go.
    emptied: Mutex<Option<Waker>>,
}

struct Entry {
    secret: u32,
    signal: Arc<Signal>,
}

impl Registry {
    /// Admits a connection; it is known until the registration is dropped.
    pub fn admit(self: &Arc<Self>, secret: u32) -> Result<Registration, Report> {
        let mut connections = self.connections();
        if self.stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        if connections.len() >= CONNECTIONS_MAX {
            return Err(Report::fatal(
                SqlState::TOO_MANY_CONNECTIONS,
                format!("sorry, too many clients already: the limit is {CONNECTIONS_MAX} connections"),
            ));
        }
        let process = loop {
            let number = self.last_process.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & 0x7fff_ffff;
            if number != 0 && !connections.contains_key(&number) {
                break number;
            }
        };
        let signal = Arc::new(Signal::default());
        connections.insert(process, Entry { secret, signal: signal.clone() });
        Ok(Registration { registry: self.clone(), process, secret, signal })
    }

    /// Cancels what connection `process` runs, if the caller knows its secret.
    pub fn cancel(&self, process: u32, secret: u32) {
        let signal = self.connections().get(&process).filter(|entry| entry.secret == secret).map(|e| e.signal.clone());
        if let Some(signal) = signal {
            signal.cancel();
        }
    }

    /// Ends all connections and admits no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let signals: Vec<_> = self.connections().values().map(|entry| entry.signal.clone()).collect();
        for signal in signals {
            signal.stop();
        }
    }

    /// Resolves when no connection is left. For one waiter.
    pub async fn emptied(&self) {
        poll_fn(|context| {
            *self.emptied.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            if self.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub fn len(&self) -> usize {
        self.connections().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u32, Entry>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client is told when the server stops.
pub(crate) fn stopping() -> Report {
    Report::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}

/// A connection's place in the registry.
pub struct Registration {
    registry: Arc<Registry>,
    pub(crate) process: u32,
    pub(crate) secret: u32,
    pub(crate) signal: Arc<Signal>,
}

impl Registration {
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.connections().remove(&self.process);
        let waker = self.registry.emptied.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
