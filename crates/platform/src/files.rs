//! Files behind a trait, so that the simulated machine can lose space and fail on purpose.
//!
//! A [`File`] is read or written front to back, which is all that loading and logging need.

use std::io;
use std::path::Path;

/// A place where files live.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Creates a file for writing; an existing one is emptied.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn exists(&self, path: &Path) -> bool;

    /// The whole file as text; bytes that are not UTF-8 are `InvalidData`.
    fn read_to_string(&self, path: &Path) -> io::Result<String>;
}

/// An open file with a position.
pub trait File: Send {
    /// Reads at the position; 0 is the end of the file.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes at the position; may take fewer bytes than offered.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns when what was written is durable.
    fn sync(&mut self) -> io::Result<()>;

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Lets code written against `std::io::Read` read from a [`File`].
impl io::Read for dyn File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        File::read(self, buffer)
    }
}
