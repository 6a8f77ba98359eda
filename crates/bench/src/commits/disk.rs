//! What the disk itself takes for a commit: an append to a file as the log has them, and a sync.
//!
//! The file has its full size and every byte was written once, so a sync has no metadata to write. Nothing but the
//! calling thread is involved.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

/// As many as a log file has.
const FILE_BYTES: u64 = 16 << 20;
const ZEROS_BYTES: usize = 1 << 20;

pub(super) struct DiskProbe {
    file: File,
    appended: Vec<u8>,
    at: u64,
}

impl DiskProbe {
    /// A new file that takes appends of so many bytes.
    pub fn create(path: &Path, append_bytes: usize) -> io::Result<Self> {
        assert!((1..=4_096).contains(&append_bytes), "a commit of one row writes {append_bytes} bytes");
        let file = File::options().write(true).create_new(true).open(path)?;
        let zeros = vec![0; ZEROS_BYTES];
        for offset in (0..FILE_BYTES).step_by(ZEROS_BYTES) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        Ok(Self { file, appended: vec![0xA5; append_bytes], at: 0 })
    }

    /// Appends and syncs so many times; gives the nanoseconds of each.
    pub fn run(&mut self, count: u32) -> io::Result<Vec<u64>> {
        (0..count).map(|_| self.append()).collect()
    }

    /// Each of two does so at the same time, as the logs of a database with two of them would; the nanoseconds of each.
    pub fn run_both(one: &mut Self, other: &mut Self, count: u32) -> io::Result<Vec<u64>> {
        thread::scope(|scope| {
            let beside = scope.spawn(|| other.run(count));
            let mut nanos = one.run(count)?;
            let Ok(of_other) = beside.join() else { unreachable!("an append does not panic") };
            nanos.extend(of_other?);
            Ok(nanos)
        })
    }

    fn append(&mut self) -> io::Result<u64> {
        if self.at + self.appended.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        let begun = Instant::now();
        self.file.write_all_at(&self.appended, self.at)?;
        self.file.sync_data()?;
        self.at += self.appended.len() as u64;
        Ok(begun.elapsed().as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_stay_within_the_file() {
        let path = std::env::temp_dir().join(format!("eris-disk-probe-{}", std::process::id()));
        let mut probe = DiskProbe::create(&path, 100).unwrap();
        probe.at = FILE_BYTES - 150;
        assert_eq!(probe.run(3).unwrap().len(), 3);
        assert_eq!((probe.at, std::fs::metadata(&path).unwrap().len()), (200, FILE_BYTES));
        std::fs::remove_file(&path).unwrap();
    }
}
