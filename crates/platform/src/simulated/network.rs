//! In-memory connections between listeners and clients, by port.
//!
//! A connection is two bounded [`Pipe`]s. Reads and writes are cut short at random (by the seed), because code that
//! works only with whole messages must fail here and not at a customer's. A connection can be cut.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::pipe::{Pipe, Waiting};
use super::reactor::{Readied, SimulatedBackEnd};
use crate::random::SeededRandom;
use crate::reactor::ReactorHandle;
use crate::streams::{ByteStream, Listener};

/// The first port that is chosen when none is asked for.
const PORT_CHOSEN_FIRST: u16 = 49_152;
/// Connections that wait to be accepted, as in `listen(2)`.
const BACKLOG_MAX: usize = 128;

/// How unkind the network is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkOptions {
    /// Bytes under way in one direction.
    pub pipe_bytes: usize,
    /// How likely a read or write does less than it could.
    pub short_probability: f64,
}

impl Default for NetworkOptions {
    fn default() -> NetworkOptions {
        NetworkOptions { pipe_bytes: 64 << 10, short_probability: 0.25 }
    }
}

/// How a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cut {
    /// Half-open: the peer hears nothing more, and nothing of the cut. Its writes go nowhere.
    Silent,
    /// Both ends fail with `ConnectionReset`.
    Reset,
}

/// The network of one simulated machine. Clones are the same network.
#[derive(Clone)]
pub struct SimulatedNetwork {
    shared: Arc<Mutex<Network>>,
}

struct Network {
    random: SeededRandom,
    options: NetworkOptions,
    listeners: BTreeMap<u16, Arc<Mutex<Backlog>>>,
    client_port_next: u16,
}

struct Backlog {
    waiting: VecDeque<(Arc<Mutex<Connection>>, SocketAddr)>,
    listener: Waiting,
}

/// Both directions. Index 0 is the end that connected, index 1 the end that accepted.
struct Connection {
    /// `pipes[end]` carries what `end` writes.
    pipes: [Pipe; 2],
    cut: Option<Cut>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedNetwork {
    pub(super) fn new(random: SeededRandom, options: NetworkOptions) -> SimulatedNetwork {
        assert!(options.pipe_bytes > 0, "a pipe without room carries nothing");
        let network = Network { random, options, listeners: BTreeMap::new(), client_port_next: PORT_CHOSEN_FIRST };
        SimulatedNetwork { shared: Arc::new(Mutex::new(network)) }
    }

    /// Connects a client that belongs to no reactor to a port of this machine; it is woken at once.
    pub fn connect(&self, port: u16) -> io::Result<SimulatedStream> {
        self.connect_from(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port), None)
    }

    /// Connects two ends directly, without a listener.
    pub fn pair(&self) -> (SimulatedStream, SimulatedStream) {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let connection = self.connection(None);
        let end =
            |end| SimulatedStream { network: self.clone(), connection: Arc::clone(&connection), end, peer: address };
        (end(0), end(1))
    }

    fn connection(&self, connected: Option<Arc<Readied>>) -> Arc<Mutex<Connection>> {
        let capacity = lock(&self.shared).options.pipe_bytes;
        let pipes = [Pipe::new(capacity, None, connected.clone()), Pipe::new(capacity, connected, None)];
        Arc::new(Mutex::new(Connection { pipes, cut: None }))
    }

    pub(super) fn connect_from(
        &self,
        address: SocketAddr,
        readied: Option<Arc<Readied>>,
    ) -> io::Result<SimulatedStream> {
        let connection = self.connection(readied);
        let (backlog, client_port) = {
            let mut network = lock(&self.shared);
            let backlog = network.listeners.get(&address.port()).map(Arc::clone);
            let client_port = network.client_port_next;
            network.client_port_next = client_port.checked_add(1).unwrap_or(PORT_CHOSEN_FIRST);
            (backlog.ok_or(io::ErrorKind::ConnectionRefused)?, client_port)
        };
        let mut backlog = lock(&backlog);
        if backlog.waiting.len() >= BACKLOG_MAX {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let client = SocketAddr::new(address.ip(), client_port);
        backlog.waiting.push_back((Arc::clone(&connection), client));
        backlog.listener.ready();
        Ok(SimulatedStream { network: self.clone(), connection, end: 0, peer: address })
    }

    pub(super) fn listen_on(
        &self,
        mut address: SocketAddr,
        readied: Option<Arc<Readied>>,
    ) -> io::Result<SimulatedListener> {
        let mut network = lock(&self.shared);
        if address.port() == 0 {
            let free = (PORT_CHOSEN_FIRST..=u16::MAX).find(|port| !network.listeners.contains_key(port));
            address.set_port(free.ok_or(io::ErrorKind::AddrNotAvailable)?);
        }
        if network.listeners.contains_key(&address.port()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let backlog = Arc::new(Mutex::new(Backlog { waiting: VecDeque::new(), listener: Waiting::new(readied) }));
        network.listeners.insert(address.port(), Arc::clone(&backlog));
        Ok(SimulatedListener { network: self.clone(), backlog, address })
    }

    /// How much of `possible` (at least 1) is done this time.
    fn shorten(&self, possible: usize) -> usize {
        let mut network = lock(&self.shared);
        let short = network.options.short_probability;
        if possible > 1 && network.random.chance(short) { 1 + network.random.index(possible) } else { possible }
    }
}

/// See [`Listener`].
pub struct SimulatedListener {
    network: SimulatedNetwork,
    backlog: Arc<Mutex<Backlog>>,
    address: SocketAddr,
}

impl Listener for SimulatedListener {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        attach_to: &ReactorHandle,
    ) -> Poll<io::Result<Box<dyn ByteStream>>> {
        let readied = match attach_to.back_end::<SimulatedBackEnd>() {
            Ok(back_end) => Arc::clone(&back_end.readied),
            Err(error) => return Poll::Ready(Err(error)),
        };
        let mut backlog = lock(&self.backlog);
        let Some((connection, peer)) = backlog.waiting.pop_front() else {
            backlog.listener.wait(context.waker());
            return Poll::Pending;
        };
        drop(backlog);
        {
            let mut connection = lock(&connection);
            connection.pipes[0].reader = Waiting::new(Some(Arc::clone(&readied)));
            connection.pipes[1].writer = Waiting::new(Some(readied));
        }
        Poll::Ready(Ok(Box::new(SimulatedStream { network: self.network.clone(), connection, end: 1, peer })))
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        lock(&self.network.shared).listeners.remove(&self.address.port());
        for (connection, _) in lock(&self.backlog).waiting.drain(..) {
            lock(&connection).cut(Cut::Reset);
        }
    }
}

impl Connection {
    fn cut(&mut self, cut: Cut) {
        self.cut = Some(cut);
        for pipe in &mut self.pipes {
            pipe.clear();
            if cut == Cut::Reset {
                pipe.reader.ready();
                pipe.writer.ready();
            }
        }
    }
}

/// One end of a simulated connection.
pub struct SimulatedStream {
    network: SimulatedNetwork,
    connection: Arc<Mutex<Connection>>,
    end: usize,
    peer: SocketAddr,
}

impl SimulatedStream {
    /// Cuts the connection, for both ends.
    pub fn cut(&self, cut: Cut) {
        lock(&self.connection).cut(cut);
    }

    /// Ends the direction of this end's writes; it can still read.
    pub fn shutdown_write(&mut self) {
        lock(&self.connection).pipes[self.end].end();
    }
}

impl ByteStream for SimulatedStream {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut connection = lock(&self.connection);
        if connection.cut == Some(Cut::Reset) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let silent = connection.cut == Some(Cut::Silent);
        let pipe = &mut connection.pipes[1 - self.end];
        if pipe.refused {
            // This end has shut down.
            return Poll::Ready(Ok(0));
        }
        let possible = pipe.available().min(buffer.len());
        if possible > 0 {
            let count = self.network.shorten(possible);
            pipe.take(&mut buffer[..count]);
            return Poll::Ready(Ok(count));
        }
        if buffer.is_empty() || (pipe.ended && !silent) {
            return Poll::Ready(Ok(0));
        }
        pipe.reader.wait(context.waker());
        Poll::Pending
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut connection = lock(&self.connection);
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        match connection.cut {
            Some(Cut::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Cut::Silent) => return Poll::Ready(Ok(bytes.len())),
            None => {}
        }
        let pipe = &mut connection.pipes[self.end];
        if pipe.ended || pipe.refused {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let possible = pipe.room().min(bytes.len());
        if possible > 0 {
            let count = self.network.shorten(possible);
            pipe.put(&bytes[..count]);
            return Poll::Ready(Ok(count));
        }
        pipe.writer.wait(context.waker());
        Poll::Pending
    }

    fn shutdown(&mut self) {
        let mut connection = lock(&self.connection);
        if connection.cut.is_none() {
            connection.pipes[self.end].end();
            connection.pipes[1 - self.end].refuse();
        }
    }

    fn peer(&self) -> String {
        self.peer.to_string()
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        self.shutdown();
    }
}
