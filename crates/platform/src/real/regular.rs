//! Opening regular files, and nothing else, without ever waiting for one.
//!
//! A FIFO without a writer keeps whoever opens it, a terminal whoever reads it, and some files of the kernel look like
//! regular ones and keep their readers as well. So what a path leads to is looked at before it is opened, because
//! opening alone has effects (a tape is rewound, a writer of a FIFO goes on), and once more when it is open, because
//! another process may have replaced it in between. The descriptor does not block, for what neither look has found.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::files::{FileKind, NotRegular};

/// Only the user who runs the process may use what it makes.
pub(super) const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The rights of a mode, and those among them that others have.
pub(super) const RIGHTS: u32 = 0o7777;
pub(super) const RIGHTS_OF_OTHERS: u32 = 0o077;

/// File systems whose files are made up by the kernel when they are read: their lengths say nothing, and reading some
/// of them waits for what has not happened yet. The numbers are those of `linux/magic.h`.
const OF_THE_KERNEL: [libc::c_long; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0x7363_6673, // securityfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
];

/// Opens a regular file that exists.
pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Where it cannot be looked at, opening it says why.
    if let Ok(metadata) = fs::metadata(path) {
        refuse_special(&metadata)?;
    }
    opened(options, path)
}

/// Opens a regular file and creates it if it is missing, for this user alone; `is_new`: it must be.
pub(super) fn create(options: &mut OpenOptions, path: &Path, is_new: bool) -> io::Result<File> {
    options.mode(FILE_MODE).create(true).create_new(is_new);
    let file = if is_new { opened(options, path)? } else { open(options, path)? };
    if file.metadata()?.mode() & RIGHTS != FILE_MODE {
        // The mask of the process has taken away more, or the file was there.
        let changed = file.set_permissions(fs::Permissions::from_mode(FILE_MODE));
        if is_new {
            changed?;
        }
    }
    Ok(file)
}

fn opened(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // No terminal becomes the one of this process.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    refuse_special(&file.metadata()?)?;
    if is_of_the_kernel(&file)? { Err(NotRegular(FileKind::Kernel).into()) } else { Ok(file) }
}

fn refuse_special(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let found = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        // The kernel opens a directory for reading as if it were a file, and refuses only to read it.
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    } else if kind.is_fifo() {
        FileKind::Fifo
    } else if kind.is_socket() {
        FileKind::Socket
    } else if kind.is_block_device() {
        FileKind::BlockDevice
    } else if is_terminal(metadata.rdev()) {
        FileKind::Terminal
    } else {
        FileKind::CharacterDevice
    };
    Err(NotRegular(found).into())
}

/// Whether a character device of this number is a terminal, by the numbers of Linux (`devices.txt`): asking the device
/// itself would mean to open it.
fn is_terminal(device: u64) -> bool {
    let major = libc::major(device);
    // Consoles and serial lines; those of the process itself; pseudo-terminals.
    matches!(major, 4 | 5 | 136..=143)
}

fn is_of_the_kernel(file: &File) -> io::Result<bool> {
    let mut status = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open, and the kernel writes one `statfs` where there is room for it.
    if unsafe { libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the structure.
    let status = unsafe { status.assume_init() };
    Ok(OF_THE_KERNEL.contains(&status.f_type))
}

/// Takes the rights of other users from a file or a directory; gives the mode that it had if they had any.
pub(super) fn restrict(path: &Path) -> io::Result<Option<u32>> {
    let mode = |path: &Path| fs::metadata(path).map(|metadata| metadata.mode() & RIGHTS);
    let before = mode(path)?;
    if before & RIGHTS_OF_OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(before & !RIGHTS_OF_OTHERS))?;
    if mode(path)? & RIGHTS_OF_OTHERS != 0 {
        // As file systems do that know no rights.
        let reason = format!("other users may use it (mode {before:04o}), and its file system leaves it at that");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(Some(before))
}
