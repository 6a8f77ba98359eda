//! Files behind a trait, so that the simulated machine can lose space and fail on purpose.
//!
//! A [`File`] is read or written front to back, which is all that loading needs. A log, a checkpoint and recovery need
//! the rest: reading and writing at a position ([`PositionedFile`]), and changes of directories that are as durable as
//! the bytes in the files. What a name was given by creating, renaming or removing a file is durable after
//! [`Files::sync_directory`]; what was written into a file after its own sync. Neither makes the other durable.
//!
//! Errors carry the code of the operating system ([`io::Error::raw_os_error`]), in both environments the same one.
//!
//! Files are regular files. What else a path may lead to (a FIFO, a terminal, a device, a file that the kernel makes
//! up) is refused with [`NotRegular`], before anything is read or written and without waiting for it. What is created
//! belongs to the user who runs the process alone, whatever the mask of the process.

use std::fmt::{self, Debug, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place where files live.
pub trait Files: Send + Sync {
    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Creates a file for writing; an existing one is emptied.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn exists(&self, path: &Path) -> bool;

    /// Which file or directory a path leads to now; `NotFound` if there is none. Changes nothing and opens nothing.
    fn identity(&self, path: &Path) -> io::Result<FileIdentity>;

    /// The whole file as text; bytes that are not UTF-8 are `InvalidData`.
    fn read_to_string(&self, path: &Path) -> io::Result<String>;

    /// Opens a file to be read and written at positions. A directory is an error (`EISDIR`).
    fn open_at(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn PositionedFile>>;

    /// Gives a file another name, in the same file system. A file that had the name is replaced, in one step: whoever
    /// opens the name finds the one or the other, also after a crash.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The names of the files in a directory, sorted, without its directories. A name that is not UTF-8 is
    /// `InvalidData`, and the error says which.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// The names of the directories in a directory, sorted.
    fn list_directories(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and those above it that are missing. When it returns, what it created is durable. One that
    /// exists is fine.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory, durably; `DirectoryNotEmpty` if there is something in it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in a directory are durable: what was created, renamed and removed there.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Takes the rights of other users from a file or a directory. Gives the mode that it had if they had any.
    /// `PermissionDenied` if it belongs to another user.
    fn restrict(&self, path: &Path) -> io::Result<Option<u32>>;

    /// Whether `path`, which need not exist, is `directory` or lies in it, by whatever name: through links, relative
    /// components, mounts.
    fn is_within(&self, path: &Path, directory: &Path) -> io::Result<bool>;

    /// Bytes that this process may still write to the file system of `path`.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Locks a file for this process, and creates it if it is missing. `WouldBlock` if another handle holds the lock,
    /// of whichever process. It ends when the handle is dropped, or with the process, however that ends.
    ///
    /// The lock is advisory: it keeps out who asks for it, and nobody else.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// How many bytes to gather for a write past the page cache.
    fn piece_bytes(&self) -> usize;

    /// To be called again and again by a job that computes for long: on a background queue it lets others have the
    /// processor for a moment whenever the job kept it for long enough.
    fn breathe(&self) {}

    /// As [`lock`](Self::lock), for a file or a directory that exists, and without writing anything. `Unsupported` if
    /// it is a directory of a file system that does not lock directories, as those of a network.
    fn lock_existing(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Keeps out whoever would lock an existing file or directory, without writing anything: it needs no more than the
    /// right to read. Others may do the same at the same time. `WouldBlock` if it is locked, `Unsupported` as
    /// [`lock_existing`](Self::lock_existing).
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// The process that has locked a file or directory, as far as the system says.
    fn lock_holder(&self, path: &Path) -> Option<u32>;
}

/// What a file or a directory is, whatever its names: two paths with the same identity lead to the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    /// The file system in which it is, ...
    pub(crate) device: u64,
    /// ... and its number there. While a file is open no other one gets its number.
    pub(crate) inode: u64,
}

/// What a path leads to that is no regular file and no directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    Fifo,
    Socket,
    Terminal,
    CharacterDevice,
    BlockDevice,
    /// In a file system of the kernel, such as `/proc`.
    Kernel,
}

impl Display for FileKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FileKind::Fifo => "a FIFO",
            FileKind::Socket => "a socket",
            FileKind::Terminal => "a terminal",
            FileKind::CharacterDevice => "a character device",
            FileKind::BlockDevice => "a block device",
            FileKind::Kernel => "a file that the kernel makes up",
        })
    }
}

/// Why a path is not opened: it leads to something that may keep its readers and writers for ever. (A directory has
/// `EISDIR` of its own.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is {0}, not a regular file")]
pub struct NotRegular(pub FileKind);

impl NotRegular {
    /// Whether that is the error.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<NotRegular>)
    }
}

impl From<NotRegular> for io::Error {
    fn from(error: NotRegular) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// What [`Files::open_at`] opens, and what may be done with it then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; `AlreadyExists` if there is one.
    Create,
    /// A new file, to write past the page cache where the file system can (`O_DIRECT`): offset, length and address of
    /// each write are multiples of [`DIRECT_ALIGN`], or it may be refused (`EINVAL`). Where the file system cannot, it
    /// is written through the cache.
    CreateDirect,
}

/// What writes past the page cache are aligned to. The few devices that ask for more are written through the cache.
pub const DIRECT_ALIGN: usize = 4096;

/// An open file without a position of its own, so that several threads may use it.
pub trait PositionedFile: Send + Sync + Debug {
    /// Reads from `offset` on; may give fewer bytes than asked for, and 0 at the end of the file or behind it.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes from `offset` on; may take fewer bytes than offered. What lies between the end of the file and `offset`
    /// becomes zeros.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file off, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Returns when what was written, and the length, are durable (`fdatasync`). The file's name may not be yet.
    ///
    /// After an error nobody knows what is durable of what was written since the last sync, and trying again does not
    /// help: the kernel reports the error once and forgets what it could not write.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`sync_data`](Self::sync_data), with everything else that is known of the file (`fsync`).
    fn sync_all(&self) -> io::Result<()>;

    /// Which file it is, to be compared with what a path leads to ([`Files::identity`]).
    fn identity(&self) -> io::Result<FileIdentity>;

    /// A path of the file now, if it has one and the system says which.
    fn moved_to(&self) -> Option<PathBuf>;

    /// Fills the buffer from `offset` on. `UnexpectedEof` if the file ends before; the buffer then has unspecified
    /// contents.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes from `offset` on. After an error some of them may be written.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A locked file; see [`Files::lock`]. Dropping it ends the lock.
pub trait FileLock: Send + Sync + Debug {
    /// Replaces what the file holds, for people who look who has the lock. It is not made durable. An error unless
    /// [`Files::lock`] made it.
    fn write_contents(&self, bytes: &[u8]) -> io::Result<()>;

    /// Whether the path that was locked still leads to the file or directory that is locked: not if it was moved,
    /// removed or replaced, by itself or with a directory above it.
    fn is_in_place(&self) -> io::Result<bool>;

    /// Where the locked file or directory is now, if the system says.
    fn moved_to(&self) -> Option<PathBuf>;
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
