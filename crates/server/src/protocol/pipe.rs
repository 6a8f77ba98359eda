//! A connection that lives in memory, with its server side stepped by hand: for tests and the fuzzer.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use eris_platform::MemoryPool;

use crate::protocol::connection::serve;
use crate::protocol::scripted::{Calls, ScriptedHost};
use crate::protocol::signal::{Endpoint, Registry};
use crate::protocol::wire::Transport;

/// Polls without an end that prove a connection spins.
const POLLS_MAX: usize = 10_000_000;

#[derive(Default)]
struct Shared {
    pieces: VecDeque<Vec<u8>>,
    closed: bool,
    /// The client does not read for now.
    stalled: bool,
    /// It stops to read after so many bytes more.
    until_stall: Option<usize>,
    output: Vec<u8>,
    /// Bytes taken by one write; every other write has to wait first.
    write_bytes: usize,
    wait: bool,
    waker: Option<Waker>,
}

/// The server's end.
struct Pipe(Arc<Mutex<Shared>>);

impl Transport for Pipe {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.0);
        let Some(mut piece) = shared.pieces.pop_front() else {
            shared.waker = Some(context.waker().clone());
            return if shared.closed { Poll::Ready(Ok(0)) } else { Poll::Pending };
        };
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        if count < piece.len() {
            piece.drain(..count);
            shared.pieces.push_front(piece);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.0);
        if shared.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if shared.stalled {
            shared.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        shared.wait = !shared.wait;
        if shared.wait {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut count = bytes.len().min(shared.write_bytes);
        if let Some(left) = &mut shared.until_stall {
            count = count.min(*left);
            *left -= count;
            if *left == 0 {
                (shared.stalled, shared.until_stall) = (true, None);
            }
        }
        shared.output.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }
}

/// The client's end, and the crank that turns the server.
pub struct Conversation {
    shared: Arc<Mutex<Shared>>,
    server: Option<Pin<Box<dyn Future<Output = ()>>>>,
    woken: Arc<Woken>,
    pub registry: Arc<Registry>,
    /// What admitted this conversation, and no other.
    pub endpoint: Arc<Endpoint>,
    calls: Calls,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Conversation {
    /// A connection to a server with scripted sessions that sends at most `write_bytes` at a time.
    pub fn new(registry: &Arc<Registry>, write_bytes: usize) -> Conversation {
        Conversation::within(registry, write_bytes, &MemoryPool::unlimited())
    }

    /// The same with the memory that there is.
    pub fn within(registry: &Arc<Registry>, write_bytes: usize, memory: &Arc<MemoryPool>) -> Conversation {
        assert!(write_bytes > 0, "a pipe that takes nothing blocks for ever");
        let shared = Arc::new(Mutex::new(Shared { write_bytes, ..Shared::default() }));
        let host = ScriptedHost::default();
        let calls = host.calls.clone();
        let endpoint = registry.endpoint();
        let Ok(registration) = endpoint.admit(1) else { unreachable!("the registry of a test has room") };
        let pipe = Pipe(shared.clone());
        let memory = memory.clone();
        let server: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(async move { serve(pipe, &host, registration, &memory, &memory, pending()).await });
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Conversation { shared, server: Some(server), woken, registry: registry.clone(), endpoint, calls }
    }

    /// Sends bytes; the server sees them as one piece.
    pub fn send(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let waker = {
                let mut shared = lock(&self.shared);
                shared.pieces.push_back(bytes.to_vec());
                shared.waker.take()
            };
            waker.inspect(Waker::wake_by_ref);
        }
    }

    /// Closes the client's side. Bytes sent before are still read.
    pub fn close(&mut self) {
        let waker = {
            let mut shared = lock(&self.shared);
            shared.closed = true;
            shared.waker.take()
        };
        waker.inspect(Waker::wake_by_ref);
    }

    /// Stops or resumes reading what the server sends.
    pub fn stall(&mut self, stalled: bool) {
        let waker = {
            let mut shared = lock(&self.shared);
            shared.stalled = stalled;
            shared.waker.take()
        };
        waker.inspect(Waker::wake_by_ref);
    }

    /// Reads `bytes` more, at least one, and stops then.
    pub fn stall_after(&mut self, bytes: usize) {
        assert!(bytes > 0, "that is `stall`");
        lock(&self.shared).until_stall = Some(bytes);
    }

    /// Lets the server work until it waits for something or ends, and takes what it sent.
    pub fn run(&mut self) -> Vec<u8> {
        let waker = Waker::from(self.woken.clone());
        let mut context = Context::from_waker(&waker);
        for poll in 0.. {
            assert!(poll < POLLS_MAX, "the connection spins");
            if !self.woken.0.swap(false, Ordering::SeqCst) {
                break;
            }
            let Some(server) = &mut self.server else { break };
            if server.as_mut().poll(&mut context).is_ready() {
                self.server = None;
            }
        }
        std::mem::take(&mut lock(&self.shared).output)
    }

    /// Whether the server is done with this connection.
    pub fn ended(&self) -> bool {
        self.server.is_none()
    }

    /// What the backend was asked.
    pub fn calls(&self) -> Vec<String> {
        self.calls.list()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
