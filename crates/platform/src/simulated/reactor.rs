//! A reactor that never blocks: it hands on the wakes that have gathered since its last poll.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::network::SimulatedNetwork;
use crate::reactor::{Reactor, ReactorBackEnd, ReactorHandle};
use crate::streams::{ByteStream, Listener};

/// Wakers of streams that became ready, in the order in which they did.
#[derive(Default)]
pub(super) struct Readied {
    wakers: Mutex<Vec<Waker>>,
}

impl Readied {
    pub(super) fn push(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }
}

pub(super) struct SimulatedReactor {
    back_end: SimulatedBackEnd,
}

impl SimulatedReactor {
    pub(super) fn new(network: SimulatedNetwork) -> SimulatedReactor {
        SimulatedReactor { back_end: SimulatedBackEnd { network, readied: Arc::default() } }
    }
}

impl Reactor for SimulatedReactor {
    fn poll(&mut self, _timeout: Option<Duration>) -> io::Result<usize> {
        let wakers = mem::take(&mut *self.back_end.readied.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        let count = wakers.len();
        wakers.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    fn handle(&self) -> ReactorHandle {
        ReactorHandle::new(Arc::new(self.back_end.clone()))
    }
}

#[derive(Clone)]
pub(super) struct SimulatedBackEnd {
    network: SimulatedNetwork,
    pub(super) readied: Arc<Readied>,
}

impl ReactorBackEnd for SimulatedBackEnd {
    fn unpark(&self) {
        // A poll never blocks, so there is nothing to end.
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(self.network.listen_on(address, Some(Arc::clone(&self.readied)))?))
    }

    fn connect(&self, address: SocketAddr) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.network.connect_from(address, Some(Arc::clone(&self.readied)))?))
    }
}
