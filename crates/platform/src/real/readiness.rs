//! What is known about one source, so that an operation that cannot succeed costs no system call.
//!
//! epoll is edge-triggered: an edge sets a flag, an operation that finds nothing to do leaves it cleared, and one that
//! finds it cleared is `Pending` at once. No edge is lost, because
//! - the flag is cleared *before* the system call that may find nothing: an edge after that call sets it again;
//! - the flag is looked at again *after* the waker is stored: an edge before that is seen, one after it finds the
//!   waker.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use mio::event::Event;

/// Both directions of a source. A listener uses only `read`.
#[derive(Default)]
pub(super) struct Readiness {
    pub(super) read: Direction,
    pub(super) write: Direction,
}

impl Readiness {
    /// Takes note of an event and collects the wakers of who waits for it.
    pub(super) fn note(&self, event: &Event, wakers: &mut Vec<Waker>) {
        let failed = event.is_error();
        if event.is_readable() || event.is_read_closed() || failed {
            self.read.note(event.is_read_closed() || failed, wakers);
        }
        if event.is_writable() || event.is_write_closed() || failed {
            self.write.note(event.is_write_closed() || failed, wakers);
        }
    }
}

/// One direction. `ready` starts true: nothing is known, so the first operation asks the kernel.
pub(super) struct Direction {
    ready: AtomicBool,
    /// The last edge there will be; never cleared, every later operation asks the kernel.
    closed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Default for Direction {
    fn default() -> Direction {
        Direction { ready: AtomicBool::new(true), closed: AtomicBool::new(false), waker: Mutex::new(None) }
    }
}

/// What an operation learned besides its result.
pub(super) enum After {
    /// It took less than it could have: the next one waits for an edge.
    Exhausted,
    /// There may be more.
    Unknown,
}

impl Direction {
    fn note(&self, closed: bool, wakers: &mut Vec<Waker>) {
        if closed {
            self.closed.store(true, Ordering::Release);
        }
        self.ready.store(true, Ordering::Release);
        wakers.extend(self.waker.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire)
    }

    /// Runs the non-blocking `operation` if it may succeed, else arranges to be woken when it may.
    pub(super) fn attempt<T>(
        &self,
        context: &mut Context<'_>,
        mut operation: impl FnMut() -> io::Result<(T, After)>,
    ) -> Poll<io::Result<T>> {
        loop {
            if !self.is_ready() {
                self.store_waker(context.waker());
                if !self.is_ready() {
                    return Poll::Pending;
                }
            }
            self.ready.store(false, Ordering::Release);
            match operation() {
                Ok((value, after)) => {
                    if matches!(after, After::Unknown) {
                        self.ready.store(true, Ordering::Release);
                    }
                    return Poll::Ready(Ok(value));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.ready.store(true, Ordering::Release);
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
    }

    fn store_waker(&self, waker: &Waker) {
        let mut stored = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *stored {
            Some(stored) => stored.clone_from(waker),
            None => *stored = Some(waker.clone()),
        }
    }
}
