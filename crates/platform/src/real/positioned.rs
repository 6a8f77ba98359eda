//! A file of the operating system, read and written at positions (`pread`, `pwrite`).

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use crate::files::PositionedFile;

#[derive(Debug)]
pub(super) struct RealPositionedFile(pub(super) fs::File);

impl PositionedFile for RealPositionedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
