//! Files of the operating system, below a root that tests choose.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file_lock::{self, RealFileLock};
use super::positioned::RealPositionedFile;
use super::regular::{self, DIRECTORY_MODE, RIGHTS};
use super::threads;
use crate::files::{File, FileIdentity, FileLock, Files, OpenMode, PositionedFile};

/// Up to about this size a write past the page cache costs the same processor time, some thirty microseconds.
const PIECE_BYTES: usize = 128 << 10;

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

    /// The names in a directory: of its directories, or of everything else.
    fn names(&self, directory: &Path, directories: bool) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.resolve(directory))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() == directories {
                names.push(entry.file_name().into_string().map_err(|name| {
                    let message = format!("the file name {} in {} is not UTF-8", name.display(), directory.display());
                    io::Error::new(io::ErrorKind::InvalidData, message)
                })?);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl Files for RealFiles {
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(open_to_read(&self.resolve(path))?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = regular::create(fs::OpenOptions::new().write(true), &self.resolve(path), false)?;
        // Emptied only now, when it is known what it is.
        file.set_len(0)?;
        Ok(Box::new(RealFile(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.resolve(path))
    }

    fn exists(&self, path: &Path) -> bool {
        self.resolve(path).exists()
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        identity(or_here(&self.resolve(path)))
    }

    fn read_to_string(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        open_to_read(&self.resolve(path))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn open_at(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn PositionedFile>> {
        let mut options = fs::OpenOptions::new();
        let is_new = matches!(mode, OpenMode::Create | OpenMode::CreateDirect);
        options.read(mode != OpenMode::CreateDirect).write(mode != OpenMode::Read);
        let path = self.resolve(path);
        let file =
            if is_new { regular::create(&mut options, &path, true)? } else { regular::open(&mut options, &path)? };
        Ok(Arc::new(RealPositionedFile::new(file, mode == OpenMode::CreateDirect)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.resolve(from), self.resolve(to))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.names(directory, false)
    }

    fn list_directories(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.names(directory, true)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path);
        fs::remove_dir(&path)?;
        sync_directory(path.parent().unwrap_or(&path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path);
        let mut missing = Vec::new();
        let mut above = path.as_path();
        while let Err(error) = fs::metadata(or_here(above)) {
            let parent = above.parent().filter(|_| error.kind() == io::ErrorKind::NotFound);
            missing.push(above);
            above = parent.ok_or(error)?;
        }
        for directory in missing.into_iter().rev() {
            match create_directory(directory) {
                // Another process may be faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
                created => created?,
            }
            sync_directory(directory.parent().unwrap_or(directory))?;
        }
        if path.is_dir() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EEXIST)) }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        sync_directory(&self.resolve(path))
    }

    fn restrict(&self, path: &Path) -> io::Result<Option<u32>> {
        regular::restrict(&self.resolve(path))
    }

    fn is_within(&self, path: &Path, directory: &Path) -> io::Result<bool> {
        is_within(&self.resolve(path), &self.resolve(directory))
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        let path = CString::new(self.resolve(path).as_os_str().as_bytes())?;
        let mut status = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero byte, and the kernel writes one `statvfs` where there is room for it.
        let result = unsafe { libc::statvfs(path.as_ptr(), status.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so it has filled the structure.
        let status = unsafe { status.assume_init() };
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    fn breathe(&self) {
        threads::breathe();
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(RealFileLock::take(&self.resolve(path))?))
    }

    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(RealFileLock::take_existing(&self.resolve(path))?))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Ok(Box::new(RealFileLock::share(&self.resolve(path))?))
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        file_lock::holder(&self.resolve(path))
    }
}

fn open_to_read(path: &Path) -> io::Result<fs::File> {
    regular::open(fs::OpenOptions::new().read(true), path)
}

/// Creates one directory, for this user alone.
fn create_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
    // The mask of the process may have taken away more.
    if fs::metadata(path)?.mode() & RIGHTS != DIRECTORY_MODE {
        fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE))?;
    }
    Ok(())
}

/// By what directories are, not by their names: links and mounts give a directory several.
fn is_within(path: &Path, directory: &Path) -> io::Result<bool> {
    let path = std::path::absolute(path)?;
    let mut above = path.as_path();
    let there = loop {
        match fs::canonicalize(above) {
            Ok(there) => break there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => above = above.parent().ok_or(error)?,
            Err(error) => return Err(error),
        }
    };
    let mut identities = Vec::new();
    match add_identities(or_here(directory), &mut identities) {
        // Nothing lies in what is gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        added => added?,
    }
    for ancestor in there.ancestors() {
        if identities.contains(&identity(ancestor)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn identity(path: &Path) -> io::Result<FileIdentity> {
    fs::metadata(path).map(|metadata| file_lock::identity(&metadata))
}

/// Of a directory and all below it: each may be mounted elsewhere by itself.
fn add_identities(directory: &Path, identities: &mut Vec<FileIdentity>) -> io::Result<()> {
    identities.push(identity(directory)?);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            add_identities(&entry.path(), identities)?;
        }
    }
    Ok(())
}

/// A path of no components, as the parent of a relative path is, means the directory of the process.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(or_here(path))?.sync_all()
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
