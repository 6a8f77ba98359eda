//! One direction of a simulated connection: a bounded queue of bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::reactor::Readied;

/// Bytes on their way from a writer to a reader.
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// The writer is done (or gone): when the bytes are read, the stream ends.
    pub(super) ended: bool,
    /// The reader is gone: writing fails.
    pub(super) refused: bool,
    pub(super) reader: Waiting,
    pub(super) writer: Waiting,
}

/// A side of a pipe that waits, and the reactor through which it is woken.
pub(super) struct Waiting {
    waker: Option<Waker>,
    /// `None`: a client that belongs to no reactor is woken at once.
    readied: Option<Arc<Readied>>,
}

impl Waiting {
    pub(super) fn new(readied: Option<Arc<Readied>>) -> Waiting {
        Waiting { waker: None, readied }
    }

    pub(super) fn wait(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }

    pub(super) fn ready(&mut self) {
        if let Some(waker) = self.waker.take() {
            match &self.readied {
                Some(readied) => readied.push(waker),
                None => waker.wake(),
            }
        }
    }
}

impl Pipe {
    pub(super) fn new(capacity: usize, reader: Option<Arc<Readied>>, writer: Option<Arc<Readied>>) -> Pipe {
        Pipe {
            bytes: VecDeque::new(),
            capacity,
            ended: false,
            refused: false,
            reader: Waiting::new(reader),
            writer: Waiting::new(writer),
        }
    }

    pub(super) fn available(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn room(&self) -> usize {
        self.capacity - self.bytes.len()
    }

    /// Takes as many bytes as the buffer holds, which must be there.
    pub(super) fn take(&mut self, buffer: &mut [u8]) {
        let taken = self.bytes.drain(..buffer.len());
        for (target, source) in buffer.iter_mut().zip(taken) {
            *target = source;
        }
        self.writer.ready();
    }

    /// Appends bytes, for which there must be room.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.room(),
            "{} bytes do not fit into a pipe with room for {}",
            bytes.len(),
            self.room()
        );
        self.bytes.extend(bytes);
        self.reader.ready();
    }

    /// Discards what is on its way.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.reader.ready();
    }

    pub(super) fn refuse(&mut self) {
        self.refused = true;
        self.bytes.clear();
        self.writer.ready();
    }
}
