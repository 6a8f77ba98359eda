//! Reading and writing all of something, with a file that does as little as it may.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use eris_platform::{FileIdentity, PositionedFile};

/// A file that does as little as it may.
#[derive(Debug, Default)]
struct Reluctant {
    bytes: Mutex<Vec<u8>>,
    calls: AtomicU64,
    /// From this call on nothing more is done.
    ends_at: u64,
}

impl Reluctant {
    fn next(&self) -> io::Result<usize> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call >= self.ends_at {
            return Ok(0);
        }
        if call.is_multiple_of(2) { Err(io::ErrorKind::Interrupted.into()) } else { Ok(1) }
    }
}

impl PositionedFile for Reluctant {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.next()?;
        buffer[..count].copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.next()?;
        let mut target = self.bytes.lock().unwrap();
        assert_eq!(target.len() as u64, offset);
        target.extend(&bytes[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn moved_to(&self) -> Option<PathBuf> {
        None
    }
}

#[test]
fn short_and_interrupted_operations_are_continued() {
    let file = Reluctant { ends_at: u64::MAX, ..Reluctant::default() };
    file.write_all_at(b"reluctantly", 0).unwrap();
    let mut bytes = [0; 7];
    file.read_exact_at(&mut bytes, 2).unwrap();
    assert_eq!(&bytes, b"luctant");
    let file = Reluctant { ends_at: 5, ..Reluctant::default() };
    assert_eq!(file.write_all_at(b"abc", 0).unwrap_err().kind(), io::ErrorKind::WriteZero);
    assert_eq!(file.read_exact_at(&mut bytes, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
