//! TCP over `mio`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use mio::Interest;
use mio::net::{TcpListener, TcpStream};

use super::reactor::{RealBackEnd, Registration};
use super::readiness::After;
use crate::reactor::ReactorHandle;
use crate::streams::{ByteStream, Listener};

pub(super) struct RealListener {
    socket: TcpListener,
    registration: Registration,
    address: SocketAddr,
}

impl RealListener {
    pub(super) fn bind(back_end: &Arc<RealBackEnd>, address: SocketAddr) -> io::Result<RealListener> {
        let mut socket = TcpListener::bind(address)?;
        let address = socket.local_addr()?;
        let registration = back_end.register(&mut socket, Interest::READABLE)?;
        Ok(RealListener { socket, registration, address })
    }
}

impl Listener for RealListener {
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
        attach_to: &ReactorHandle,
    ) -> Poll<io::Result<Box<dyn ByteStream>>> {
        let back_end: &Arc<RealBackEnd> = match attach_to.back_end() {
            Ok(back_end) => back_end,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let accepted = self
            .registration
            .readiness
            .read
            .attempt(context, || self.socket.accept().map(|accepted| (accepted, After::Unknown)));
        accepted.map(|accepted| {
            let (socket, peer) = accepted?;
            Ok(Box::new(RealStream::attach(back_end, socket, peer)?) as Box<dyn ByteStream>)
        })
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }
}

pub(super) struct RealStream {
    socket: TcpStream,
    registration: Registration,
    peer: SocketAddr,
}

impl RealStream {
    pub(super) fn connect(back_end: &Arc<RealBackEnd>, address: SocketAddr) -> io::Result<RealStream> {
        RealStream::attach(back_end, TcpStream::connect(address)?, address)
    }

    fn attach(back_end: &Arc<RealBackEnd>, mut socket: TcpStream, peer: SocketAddr) -> io::Result<RealStream> {
        // A reply is flushed once, when it is complete: waiting for more bytes only delays it.
        socket.set_nodelay(true)?;
        let registration = back_end.register(&mut socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(RealStream { socket, registration, peer })
    }
}

fn after(done: usize, possible: usize) -> After {
    // Zero is the end of the stream, which every later call is to find again.
    if 0 < done && done < possible { After::Exhausted } else { After::Unknown }
}

impl ByteStream for RealStream {
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let socket = &mut self.socket;
        self.registration.readiness.read.attempt(context, || {
            let count = socket.read(buffer)?;
            Ok((count, after(count, buffer.len())))
        })
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = &mut self.socket;
        self.registration.readiness.write.attempt(context, || {
            let count = socket.write(bytes)?;
            Ok((count, after(count, bytes.len())))
        })
    }

    fn shutdown(&mut self) {
        // Fails only if the peer was faster.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn peer(&self) -> String {
        self.peer.to_string()
    }
}
