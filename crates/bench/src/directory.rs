//! A new directory for what a benchmark writes, on the disk that is measured; removed with everything in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::BenchError;

/// See the [module](self).
#[derive(Debug)]
pub struct NewDirectory {
    path: PathBuf,
}

impl NewDirectory {
    /// One that exists is refused: what is in it is not ours to remove.
    pub fn create(path: &Path) -> Result<Self, BenchError> {
        if path.exists() {
            let message = format!("--db {}: it exists; name a new directory, which is removed again", path.display());
            return Err(BenchError::Options(message));
        }
        fs::create_dir_all(path)?;
        Ok(Self { path: path.canonicalize()? })
    }

    /// Where the database goes.
    pub fn database(&self) -> PathBuf {
        self.path.join("db")
    }

    /// Where a file goes that the database does not know.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The kind of file system it is on, such as `ext4`.
    pub fn file_system(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        file_system_of(&mounts, &self.path).unwrap_or("unknown").to_owned()
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // What cannot be removed is for the user to see.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The kind of the file system that is mounted nearest above a path; of several in one place the last one is seen.
fn file_system_of<'m>(mounts: &'m str, path: &Path) -> Option<&'m str> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|fields| fields.len() > 2 && path.starts_with(fields[1]));
    above.max_by_key(|fields| fields[1].len()).map(|fields| fields[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_system_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp xfs rw 0 0\nnone /tm proc rw 0 0\n";
        assert_eq!(file_system_of(mounts, Path::new("/tmp/db")), Some("xfs"));
        assert_eq!(file_system_of(mounts, Path::new("/data")), Some("ext4"));
        assert_eq!(file_system_of("", Path::new("/data")), None);
    }

    #[test]
    fn what_exists_is_neither_used_nor_removed() {
        let path = std::env::temp_dir().join(format!("eris-new-directory-{}", std::process::id()));
        let directory = NewDirectory::create(&path).unwrap();
        fs::write(directory.beside("file"), "text").unwrap();
        assert!(matches!(NewDirectory::create(&path), Err(BenchError::Options(_))));
        assert!(path.join("file").exists());
        drop(directory);
        assert!(!path.exists());
    }
}
