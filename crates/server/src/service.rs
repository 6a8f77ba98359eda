//! Listens, and turns each connection into a task that the workers poll.
//!
//! Connections go to the workers in turn: the worker's reactor watches the socket and the task runs on its node. The
//! engine outlives the server; a stopped server leaves no task behind.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use eris_engine::Engine;
use eris_platform::{ByteStream, Listener, limits};

use crate::protocol::connection::{Host, serve};
use crate::protocol::report::Report;
use crate::protocol::signal::{Endpoint, Registration, Registry, Signal, stopping};
use crate::protocol::wire::{Transport, Wire, first_of, step_back};

/// How long a client may take to introduce itself.
pub const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stopping server waits for its statements to notice that they are cancelled.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed: out of descriptors, as a rule, and that passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "refusing to listen on {0}: there is no authentication yet, so only loopback addresses (127.0.0.1, ::1) are \
         safe"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// Descriptors that clients do not get, so that the log has its next file when clients have all others: those of
/// standard streams, listeners, log, checkpoints, backups and COPY, and a reactor's of each worker.
pub fn own_descriptors(workers: usize) -> u64 {
    24 + 4 * workers as u64
}

/// What the listeners of a database share: whose sessions they open, and the registry of all connections. There is one
/// for a database: with two, process numbers would be given twice and each would have bounds of its own.
pub struct Service<H> {
    engine: Engine,
    host: Arc<H>,
    registry: Arc<Registry>,
}

impl<H: Host + 'static> Service<H> {
    /// Listens nowhere yet. How many descriptors the process may have is looked up here.
    pub fn new(engine: &Engine, host: H) -> Service<H> {
        let own = own_descriptors(engine.worker_count());
        let for_clients = limits::descriptors().map_or(usize::MAX, |all| all.saturating_sub(own) as usize);
        let registry = Arc::new(Registry::for_connections(for_clients));
        Service { engine: engine.clone(), host: Arc::new(host), registry }
    }

    /// Starts to accept connections on `address`; port 0 lets the system choose.
    pub fn listen(&self, address: SocketAddr) -> Result<ServerHandle, ServeError> {
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(address));
        }
        let engine = self.engine.clone();
        let listener = engine.reactor(0).listen(address).map_err(|source| ServeError::Listen { address, source })?;
        let address = listener.local_address();
        let (acceptor, endpoint) = (Arc::new(Signal::default()), self.registry.endpoint());
        engine.spawn(accept(engine.clone(), listener, acceptor.clone(), endpoint.clone(), self.host.clone()));
        Ok(ServerHandle { engine, endpoint, acceptor, address })
    }
}

/// One listener of a [`Service`]. Dropped, it goes on; [`ServerHandle::stop`] ends it.
pub struct ServerHandle {
    engine: Engine,
    endpoint: Arc<Endpoint>,
    acceptor: Arc<Signal>,
    address: SocketAddr,
}

impl ServerHandle {
    /// Where the server listens.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Connections through this listener at this moment, half-open ones included.
    pub fn connections(&self) -> usize {
        self.endpoint.len()
    }

    /// Stops accepting, tells every client of this listener, cancels what they run, and waits until their sessions are
    /// closed; `false` if some did not end in time. For threads that are not workers.
    pub fn stop(&self) -> bool {
        // An engine that is gone has taken its tasks along.
        self.engine.block_on(self.end()).unwrap_or(true)
    }

    /// The same for tasks: what is returned waits and has the answer.
    pub fn end(&self) -> impl Future<Output = bool> + Send + 'static + use<> {
        self.acceptor.stop(stopping());
        self.endpoint.stop();
        let (engine, endpoint) = (self.engine.clone(), self.endpoint.clone());
        // From this call on, and not from the first poll: of several ends that are awaited in turn, each begins now.
        let deadline = engine.env().now().saturating_add(STOP_TIMEOUT);
        async move { first_of(endpoint.emptied(), engine.sleep_until(deadline)).await.is_ok() }
    }
}

/// Stops listeners of one engine together, as [`ServerHandle::stop`] does one: they take no longer than one would.
pub fn stop_all(servers: &[ServerHandle]) -> bool {
    let Some(first) = servers.first() else { return true };
    // An engine that is gone has taken its tasks along.
    first.engine.block_on(end_all(servers)).unwrap_or(true)
}

/// The same for tasks: all are asked to end by this call, and what is returned waits for them.
pub fn end_all(servers: &[ServerHandle]) -> impl Future<Output = bool> + Send + 'static + use<> {
    let ends: Vec<_> = servers.iter().map(ServerHandle::end).collect();
    async move {
        let mut all_ended = true;
        for end in ends {
            all_ended &= end.await;
        }
        all_ended
    }
}

async fn accept<H: Host + 'static>(
    engine: Engine,
    mut listener: Box<dyn Listener>,
    signal: Arc<Signal>,
    endpoint: Arc<Endpoint>,
    host: Arc<H>,
) {
    for turn in 0usize.. {
        let worker = turn % engine.worker_count();
        let reactor = engine.reactor(worker);
        let accepted = poll_fn(|context| {
            signal.listen(context);
            if signal.is_stopping() {
                return Poll::Ready(None);
            }
            listener.poll_accept(context, &reactor).map(Some)
        })
        .await;
        let stream = match accepted {
            None => return,
            Some(Ok(stream)) => stream,
            Some(Err(_)) => {
                let until = engine.env().now().saturating_add(ACCEPT_PAUSE);
                engine.sleep_until(until).await;
                continue;
            }
        };
        match endpoint.admit(engine.env().random_u64() as u32) {
            Ok(registration) => {
                let (node, host) = (engine.worker_node(worker), host.clone());
                engine.spawn_on(node, connection(engine.clone(), stream, host, registration));
            }
            Err(report) => refuse(&engine, stream, &report).await,
        }
        // Who came first is heard first: otherwise a crowd makes those give way whose packet was only not read yet.
        step_back().await;
    }
}

async fn connection<H: Host>(engine: Engine, stream: Box<dyn ByteStream>, host: Arc<H>, registration: Registration) {
    let deadline = engine.env().now().saturating_add(STARTUP_TIMEOUT);
    // A row of a full database is also sent.
    let (memory, replies) = (engine.memory(), engine.short_memory());
    serve(stream, &*host, registration, memory, replies, engine.sleep_until(deadline)).await;
}

/// Says why to a client that is not admitted.
async fn refuse(engine: &Engine, stream: Box<dyn ByteStream>, report: &Report) {
    let mut wire = Wire::new(stream, Arc::new(Signal::default()), engine.memory(), engine.short_memory());
    wire.reply.report(report);
    wire.last_words().await;
}

impl Transport for Box<dyn ByteStream> {
    fn poll_read(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<std::io::Result<usize>> {
        (**self).poll_read(context, into)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        (**self).poll_write(context, bytes)
    }

    fn peer(&self) -> Option<SocketAddr> {
        (**self).peer().parse().ok()
    }
}

#[cfg(test)]
mod tests;
