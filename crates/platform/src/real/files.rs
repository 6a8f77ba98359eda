//! Files of the operating system, below a root that tests choose.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::files::{File, Files};

/// See the [module](self).
#[derive(Debug)]
pub struct RealFiles {
    root: PathBuf,
}

impl RealFiles {
    /// With the root `/` paths mean what they mean to the process (relative ones: from its directory); with any other
    /// root all of them are taken below it.
    pub fn new(root: PathBuf) -> RealFiles {
        RealFiles { root }
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        if self.root == Path::new("/") {
            return path.to_path_buf();
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Files for RealFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = fs::File::open(self.resolve(path))?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Box::new(RealFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(fs::File::create(self.resolve(path))?)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.resolve(path))
    }

    fn exists(&self, path: &Path) -> bool {
        self.resolve(path).exists()
    }

    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(self.resolve(path))
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}
