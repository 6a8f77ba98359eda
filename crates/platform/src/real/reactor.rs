//! The reactor over `mio` (epoll and an eventfd).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use mio::event;
use mio::{Events, Interest, Registry, Token};

use super::readiness::Readiness;
use super::streams::{RealListener, RealStream};
use crate::hash::DeterministicMap;
use crate::reactor::{Reactor, ReactorBackEnd, ReactorHandle};
use crate::streams::{ByteStream, Listener};

/// Events taken from the kernel in one poll; more wait for the next.
const EVENTS_MAX: usize = 256;
/// `mio` waits in whole milliseconds, which is too long for these.
const SHORT: Duration = Duration::from_millis(10);
/// The token of the eventfd; sources count from 0 and never get here.
const UNPARK: Token = Token(usize::MAX);

pub(super) struct RealReactor {
    poll: mio::Poll,
    events: Events,
    back_end: Arc<RealBackEnd>,
    /// Wakers of one poll, kept for their allocation.
    wakers: Vec<Waker>,
}

impl RealReactor {
    pub(super) fn new() -> io::Result<RealReactor> {
        let poll = mio::Poll::new()?;
        let back_end = Arc::new(RealBackEnd {
            registry: poll.registry().try_clone()?,
            unpark: mio::Waker::new(poll.registry(), UNPARK)?,
            sources: Mutex::default(),
        });
        Ok(RealReactor { poll, events: Events::with_capacity(EVENTS_MAX), back_end, wakers: Vec::new() })
    }
}

impl Reactor for RealReactor {
    fn poll(&mut self, mut timeout: Option<Duration>) -> io::Result<usize> {
        if let Some(short) = timeout.filter(|timeout| !timeout.is_zero() && *timeout < SHORT) {
            wait(&self.poll, short)?;
            timeout = Some(Duration::ZERO);
        }
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error),
        }
        let mut count = 0;
        {
            let sources = self.back_end.sources();
            for event in &self.events {
                // A source may have been dropped after its event was queued.
                if let Some(readiness) = sources.by_token.get(&event.token().0) {
                    readiness.note(event, &mut self.wakers);
                    count += 1;
                }
            }
        }
        // Woken without the lock: a waker may run code that registers streams.
        self.wakers.drain(..).for_each(Waker::wake);
        Ok(count)
    }

    fn handle(&self) -> ReactorHandle {
        ReactorHandle::new(Arc::new(Arc::clone(&self.back_end)))
    }
}

/// Waits until there are events, or the time is over, or a signal came; takes none of the events.
fn wait(poll: &mio::Poll, timeout: Duration) -> io::Result<()> {
    let mut descriptor = libc::pollfd { fd: poll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // SAFETY: both pointers are to values that outlive the call; the descriptor is open as long as `poll` lives.
    let result = unsafe { libc::ppoll(&raw mut descriptor, 1, &raw const time, std::ptr::null()) };
    let error = || io::Error::last_os_error();
    if result >= 0 || error().kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error()) }
}

/// The shared part of a reactor.
pub(super) struct RealBackEnd {
    registry: Registry,
    unpark: mio::Waker,
    sources: Mutex<Sources>,
}

/// Tokens are never used twice, so a late event of a closed stream cannot be taken for one of its successor.
#[derive(Default)]
struct Sources {
    token_next: usize,
    by_token: DeterministicMap<usize, Arc<Readiness>>,
}

impl RealBackEnd {
    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(
        self: &Arc<Self>,
        source: &mut impl event::Source,
        interest: Interest,
    ) -> io::Result<Registration> {
        let readiness = Arc::new(Readiness::default());
        let token = {
            let mut sources = self.sources();
            let token = sources.token_next;
            sources.token_next += 1;
            sources.by_token.insert(token, Arc::clone(&readiness));
            token
        };
        // From here on the registration removes the token if the kernel refuses.
        let registration = Registration { back_end: Arc::clone(self), token, readiness };
        self.registry.register(source, Token(token), interest)?;
        Ok(registration)
    }
}

impl ReactorBackEnd for Arc<RealBackEnd> {
    fn unpark(&self) {
        // An eventfd write fails only when the counter would overflow, and then the reactor has been woken already.
        let _ = self.unpark.wake();
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(RealListener::bind(self, address)?))
    }

    fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(RealStream::connect(self, address)?))
    }
}

/// A source's place in a reactor, left on drop. The owner drops its socket too, which removes it from epoll.
pub(super) struct Registration {
    back_end: Arc<RealBackEnd>,
    token: usize,
    pub(super) readiness: Arc<Readiness>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.back_end.sources().by_token.remove(&self.token);
    }
}
