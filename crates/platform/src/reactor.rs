//! The part of a worker that waits for the outside world.
//!
//! Each worker owns one [`Reactor`]. When it has nothing to do it blocks in [`Reactor::poll`]; readiness of a stream
//! wakes the task that waits for it, and [`ReactorHandle::unpark`] from any thread makes a blocked poll return. The
//! decision *whom* to unpark belongs to `eris_sync::Sleepers`.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::streams::{ByteStream, Listener};

/// Owned by one worker.
pub trait Reactor: Send {
    /// Waits for at most `timeout` (`None`: without limit), then wakes the wakers of streams that became ready and
    /// returns how many stream events there were. An [`unpark`](ReactorHandle::unpark) since the last poll makes it
    /// return at once. A zero timeout only looks. The operating system may come back some fifty microseconds late, and
    /// with long timeouts in whole milliseconds.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<usize>;

    fn handle(&self) -> ReactorHandle;
}

/// A shared reference to a reactor: cheap to clone, usable from any thread, valid after the reactor is gone (streams
/// then fail or stay silent).
#[derive(Clone)]
pub struct ReactorHandle {
    back_end: Arc<dyn ReactorBackEnd>,
}

impl ReactorHandle {
    pub(crate) fn new(back_end: Arc<dyn ReactorBackEnd>) -> ReactorHandle {
        ReactorHandle { back_end }
    }

    /// Makes the reactor's blocked, or else its next, poll return.
    pub fn unpark(&self) {
        self.back_end.unpark();
    }

    /// Listens on `address`; port 0 lets the system choose.
    pub fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        self.back_end.listen(address)
    }

    /// Connects to `address`. Returns at once; a refused connection is the error of the first read or write.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        self.back_end.connect(address)
    }

    /// The back end as the type `T` of one environment, to attach a stream of that environment to it.
    pub(crate) fn back_end<T: 'static>(&self) -> io::Result<&T> {
        let any: &dyn Any = &*self.back_end;
        any.downcast_ref().ok_or_else(|| io::Error::other("the reactor belongs to another kind of environment"))
    }
}

/// What an environment implements behind [`ReactorHandle`].
pub(crate) trait ReactorBackEnd: Any + Send + Sync {
    fn unpark(&self);
    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>>;
    fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>>;
}
