//! One connection's bytes in both directions, with the waits that belong to them.
//!
//! Output collects in a buffer and leaves at Sync, at Flush, and whenever it passes [`REPLY_BYTES`]: a result of any
//! size goes through a buffer of that size, and a client that does not read makes the statement wait. Only a row that
//! is larger is in the buffer whole: what was collected is sent before, and room for the row alone is reserved.
//!
//! While a statement computes, the input side is watched as well, so that a client that disappears ends its statement.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use eris_platform::{MemoryExceeded, MemoryPool, Reservation};

use crate::protocol::backend::RowStream;
use crate::protocol::frames::{Frame, Frames};
use crate::protocol::frontend::Kind;
use crate::protocol::reply::{REPLY_BYTES, Reply};
use crate::protocol::report::{Report, Severity, SqlState};
use crate::protocol::signal::Signal;

/// Bytes read at one time.
const READ_BYTES: usize = 1 << 13;
/// Input that is taken in while a statement runs.
const READ_AHEAD_BYTES: usize = 1 << 16;
/// Input that a connection may hold without accounting for it.
const INPUT_BYTES: usize = 2 * READ_AHEAD_BYTES + READ_BYTES;
/// Messages or pages that are worked on before other tasks get their turn.
const TURN: u32 = 64;

/// How often in a row a connection that ends tries in vain to send before it gives up on a client that does not read.
const LAST_WORDS_ATTEMPTS_MAX: u32 = 64;

thread_local! {
    /// What one read brings, until a connection takes it over: cleared once a thread, not once a read.
    static ARRIVED: RefCell<[u8; READ_BYTES]> = const { RefCell::new([0; READ_BYTES]) };
}

/// A stream of bytes to a client. Zero bytes read is its end.
pub trait Transport: Send {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Where the client is, if it comes over a network.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub enum Stop {
    /// The client is gone, with or without a farewell.
    Gone,
    /// The client was told why, or is to be told.
    Fatal(Report),
    /// The server asks for it; the signal says why.
    Dismissed,
}

/// Why a message could not be worked on.
#[derive(Debug)]
pub enum Failure {
    /// The client is told, the connection stays.
    Statement(Report),
    /// A message was too large for the memory there is; nothing of it was kept.
    Refused(Kind, Report),
    Stop(Stop),
}

impl From<Report> for Failure {
    fn from(report: Report) -> Failure {
        match report.severity {
            Severity::Fatal => Failure::Stop(Stop::Fatal(report)),
            _ => Failure::Statement(report),
        }
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        Failure::Stop(stop)
    }
}

pub struct Wire<T> {
    transport: T,
    pub(crate) frames: Frames,
    pub(crate) reply: Reply,
    pub(crate) signal: Arc<Signal>,
    /// Bytes of the reply that the transport has taken.
    sent: usize,
    /// Memory of input that is more than the usual.
    input: Reservation,
    /// A message that was refused and is still to be answered.
    refused: Option<(Kind, Report)>,
    /// The client's side is closed; found while a statement ran.
    gone: bool,
    turn: u32,
}

impl<T: Transport> Wire<T> {
    /// `replies`: the part of the memory from which rows are taken that are larger than usual.
    pub fn new(transport: T, signal: Arc<Signal>, memory: &Arc<MemoryPool>, replies: &Arc<MemoryPool>) -> Wire<T> {
        Wire {
            transport,
            frames: Frames::default(),
            reply: Reply::new(replies),
            sent: 0,
            signal,
            input: memory.reserve("client message"),
            refused: None,
            gone: false,
            turn: 0,
        }
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryPool> {
        self.input.pool()
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.transport.peer()
    }

    /// Waits for the next whole message and leaves it in the buffer.
    pub async fn frame(&mut self) -> Result<Frame, Failure> {
        self.take_turn().await;
        loop {
            // A message that is whole when memory runs out is worked on: that is what frees its memory.
            if let Err(exceeded) = self.account()
                && let Some(kind) = self.frames.give_up()
            {
                self.input.shrink(self.input.bytes());
                return Err(Failure::Refused(kind, Report::error(SqlState::OUT_OF_MEMORY, exceeded.to_string())));
            }
            if let Some(bytes) = self.frames.beyond()
                && let Some(kind) = self.frames.give_up()
            {
                self.input.shrink(self.input.bytes());
                return Err(Failure::Refused(kind, text_too_long(bytes, self.frames.text_bytes_max)));
            }
            if let Some((kind, report)) = self.refused.take() {
                return Err(Failure::Refused(kind, report));
            }
            if let Some(frame) = self.frames.next()? {
                return Ok(frame);
            }
            self.receive().await?;
        }
    }

    /// Leaves a refused message to the next call of [`Wire::frame`].
    pub(crate) fn put_back(&mut self, kind: Kind, report: Report) {
        self.refused = Some((kind, report));
    }

    fn account(&mut self) -> Result<(), MemoryExceeded> {
        let bytes = self.frames.capacity();
        let beyond = if bytes > INPUT_BYTES { bytes } else { 0 };
        if self.input.bytes() != beyond as u64 {
            self.input.resize(beyond as u64)?;
        }
        Ok(())
    }

    /// Waits for more bytes, or for a reason not to wait any more.
    pub async fn receive(&mut self) -> Result<(), Failure> {
        if self.gone {
            return Err(Stop::Gone.into());
        }
        std::future::poll_fn(|context| {
            self.signal.listen(context);
            if self.signal.is_stopping() {
                return Poll::Ready(Err(Stop::Dismissed.into()));
            }
            if self.signal.is_cancelled() {
                return Poll::Ready(Err(self.signal.cancellation().into()));
            }
            match self.poll_receive(context) {
                Poll::Ready(true) => Poll::Ready(Ok(())),
                Poll::Ready(false) => Poll::Ready(Err(Stop::Gone.into())),
                Poll::Pending => {
                    // A wait of unknown length: an idle connection holds no memory.
                    self.frames.rest();
                    self.reply.rest();
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Reads what is there; `false` when the client is gone.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        ARRIVED.with_borrow_mut(|bytes| match self.transport.poll_read(context, bytes) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0) | Err(_)) => {
                self.gone = true;
                Poll::Ready(false)
            }
            Poll::Ready(Ok(count)) => {
                self.frames.push(&bytes[..count]);
                Poll::Ready(true)
            }
        })
    }

    /// Sends everything. A statement that is cancelled meanwhile stops waiting for its client; what is unsent stays, as
    /// it does if the future is dropped.
    pub async fn flush(&mut self) -> Result<(), Failure> {
        let result = std::future::poll_fn(|context| {
            while self.sent < self.reply.bytes.len() {
                match self.transport.poll_write(context, &self.reply.bytes[self.sent..]) {
                    Poll::Ready(Ok(0) | Err(_)) => {
                        self.gone = true;
                        return Poll::Ready(Err(Stop::Gone.into()));
                    }
                    Poll::Ready(Ok(count)) => self.sent += count,
                    Poll::Pending => {
                        self.signal.listen(context);
                        if self.signal.is_stopping() {
                            return Poll::Ready(Err(Stop::Dismissed.into()));
                        }
                        if self.signal.is_cancelled() {
                            return Poll::Ready(Err(self.signal.cancellation().into()));
                        }
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await;
        self.reply.sent(std::mem::take(&mut self.sent));
        result
    }

    /// Sends what the transport takes without the client's help; for a connection that ends whether it reads or not.
    pub async fn last_words(&mut self) {
        let mut sent = self.sent;
        let mut attempts = 0;
        std::future::poll_fn(|context| {
            while sent < self.reply.bytes.len() && !self.gone {
                match self.transport.poll_write(context, &self.reply.bytes[sent..]) {
                    Poll::Ready(Ok(0) | Err(_)) => self.gone = true,
                    Poll::Ready(Ok(count)) => {
                        sent += count;
                        attempts = 0;
                    }
                    Poll::Pending if attempts < LAST_WORDS_ATTEMPTS_MAX => {
                        attempts += 1;
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Poll::Pending => return Poll::Ready(()),
                }
            }
            // Closing a socket with unread input resets it, and the client may never read what was just said.
            let mut bytes = [0; READ_BYTES];
            for _ in 0..LAST_WORDS_ATTEMPTS_MAX {
                match self.transport.poll_read(context, &mut bytes) {
                    Poll::Ready(Ok(count)) if count > 0 => (),
                    _ => break,
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Makes room for a row of at most `bytes`. A large one is alone in the buffer.
    pub async fn make_room<S: RowStream>(&mut self, bytes: usize, rows: &mut S) -> Result<(), Failure> {
        if bytes > REPLY_BYTES {
            self.flush_in_result(rows).await?;
        }
        Ok(self.reply.make_room(bytes)?)
    }

    /// Sends everything in the middle of a result. Rows that wait for the client meanwhile may be set aside.
    async fn flush_in_result<S: RowStream>(&mut self, rows: &mut S) -> Result<(), Failure> {
        loop {
            match first_of(self.flush(), rows.are_in_the_way()).await {
                Ok(flushed) => return flushed,
                Err(()) => self.watch(pin!(rows.set_aside())).await?,
            }
        }
    }

    /// Sends if enough has collected, whatever is still to come.
    pub async fn flush_if_full(&mut self) -> Result<(), Failure> {
        if self.reply.bytes.len() >= REPLY_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends the rows of a result if enough has collected, and lets others work between two sendings.
    pub async fn flush_rows_if_full<S: RowStream>(&mut self, rows: &mut S) -> Result<(), Failure> {
        if self.reply.bytes.len() >= REPLY_BYTES {
            self.flush_in_result(rows).await?;
            self.take_turn().await;
        }
        if self.signal.is_cancelled() {
            return Err(self.signal.cancellation().into());
        }
        if self.signal.is_stopping() {
            return Err(Stop::Dismissed.into());
        }
        Ok(())
    }

    /// Waits for the backend while watching the client: when it disappears, or the server stops, the statement is
    /// cancelled. The backend's future always runs to its end, which is then the quick one.
    ///
    /// A cancel may come before the backend has anything to cancel, or between two attempts: it is asked again.
    ///
    /// It is pinned by the caller: futures of whole statements are large, and are not to be moved.
    pub async fn watch<F: Future>(&mut self, mut future: Pin<&mut F>) -> F::Output {
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            self.signal.listen(context);
            while !self.gone && self.frames.waiting() < READ_AHEAD_BYTES {
                if self.poll_receive(context).is_pending() {
                    break;
                }
            }
            if self.gone || self.signal.is_stopping() || self.signal.is_cancelled() {
                self.signal.cancel_backend();
                return future.as_mut().poll(context);
            }
            Poll::Pending
        })
        .await
    }

    /// Steps back once every so often, since a client that sends without pause never makes its task wait.
    async fn take_turn(&mut self) {
        self.turn += 1;
        if self.turn < TURN {
            return;
        }
        self.turn = 0;
        step_back().await;
    }
}

/// A message that is skipped as it arrives.
fn text_too_long(bytes: usize, most: usize) -> Report {
    let message = format!("message of {bytes} bytes is too large: a query text has at most {most}");
    Report::error(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        .with_hint("Send less at a time, use COPY, or raise the setting max_text_bytes.")
}

/// Lets other tasks work.
pub(crate) async fn step_back() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The output of `work`, or that of `other` if it is there first.
pub(crate) async fn first_of<A, B>(work: impl Future<Output = A>, other: impl Future<Output = B>) -> Result<A, B> {
    let (mut work, mut other) = (pin!(work), pin!(other));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        other.as_mut().poll(context).map(Err)
    })
    .await
}
