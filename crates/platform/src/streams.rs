//! Byte streams between the database and its clients, polled by tasks.
//!
//! The operations are those of a non-blocking socket with `std::task` wakers. Lost wake-ups are impossible by
//! contract: an implementation that returns `Pending` has registered the waker *before* the last look that found
//! nothing to do.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::reactor::ReactorHandle;

/// Waits for connections.
pub trait Listener: Send {
    /// The next connection. The new stream's readiness is watched by the reactor of `attach_to`, which need not be the
    /// one that watches the listener: this is how connections are spread over workers.
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        attach_to: &ReactorHandle,
    ) -> Poll<io::Result<Box<dyn ByteStream>>>;

    /// Where the listener listens; with the port that was chosen if port 0 was asked for.
    fn local_address(&self) -> SocketAddr;
}

/// A connection. Dropping it closes it.
pub trait ByteStream: Send {
    /// Reads what is there, at least one byte; `Ok(0)` is the end of the stream (or an empty buffer).
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes what fits, at least one byte.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Ends both directions. The peer still reads what was written before.
    fn shutdown(&mut self);

    /// The peer, for people.
    fn peer(&self) -> String;
}
