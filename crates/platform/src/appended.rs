//! A file that grows at its end and is written past the page cache.
//!
//! Bytes are gathered in a buffer and written in pieces, at offsets, lengths and addresses that are multiples of
//! [`DIRECT_ALIGN`], as direct I/O asks for. So what is written once and read after a restart, if ever, takes no page
//! cache from anybody, leaves little for the sync to write, and costs a third of the processor time. The last piece is
//! filled up with zeros, and the sync cuts them off.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::files::{DIRECT_ALIGN, Files, OpenMode, PositionedFile};

/// A new file that is written front to back. See the [module](self).
#[derive(Debug)]
pub struct AppendedFile {
    file: Arc<dyn PositionedFile>,
    /// Has an aligned piece in it, from `begin` on. It never moves.
    buffer: Vec<u8>,
    begin: usize,
    piece_bytes: usize,
    /// Bytes of the piece that are there.
    filled: usize,
    /// Where the piece goes.
    offset: u64,
}

impl AppendedFile {
    /// Creates the file; `AlreadyExists` if there is one.
    pub fn create(files: &dyn Files, path: &Path) -> io::Result<Self> {
        let file = files.open_at(path, OpenMode::CreateDirect)?;
        let piece_bytes = files.piece_bytes().next_multiple_of(DIRECT_ALIGN);
        let buffer = vec![0; piece_bytes + DIRECT_ALIGN];
        let begin = buffer.as_ptr().align_offset(DIRECT_ALIGN);
        Ok(Self { file, buffer, begin, piece_bytes, filled: 0, offset: 0 })
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.offset + self.filled as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all bytes. After an error it is not known how many of them are there.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.filled == self.piece_bytes {
                self.write(self.piece_bytes)?;
                self.offset += self.piece_bytes as u64;
                self.filled = 0;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.piece_bytes - self.filled));
            let free = self.begin + self.filled;
            self.buffer[free..free + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Returns when everything that was appended is durable, but for the file's name; more may follow. After an error
    /// another try proves nothing, as with [`PositionedFile::sync_data`].
    pub fn sync(&mut self) -> io::Result<()> {
        let whole = self.filled.next_multiple_of(DIRECT_ALIGN);
        self.buffer[self.begin + self.filled..self.begin + whole].fill(0);
        self.write(whole)?;
        self.file.set_len(self.len())?;
        self.file.sync_all()
    }

    /// Writes the first bytes of the piece.
    fn write(&self, bytes: usize) -> io::Result<()> {
        self.file.write_all_at(&self.buffer[self.begin..self.begin + bytes], self.offset)
    }
}
