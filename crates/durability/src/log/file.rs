//! The files of a log.
//!
//! ```text
//!   <position>.log      header, 64 bytes | records, the first at this position | zeros, or an older use of the file
//!
//!   header              "ERISLOG\0" | format u32 | check u32 | id of the database u64 | position u64 | zeros
//! ```
//! A file has its full size before it is used, and every byte was written once, so that a sync has no metadata to
//! write and cannot find the disk full. It gets its name with its first records, behind a sync of these.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_platform::{Files, OpenMode, PositionedFile};

use crate::directory::DatabaseId;

/// Bytes in front of the first record.
pub(super) const FILE_HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"ERISLOG\0";
/// The format of log files.
const LOG_FORMAT: u32 = 1;
/// What names of files end with that are not in use yet.
const SPARE: &str = ".spare";
/// What names have that a damaged file was given when it was put aside.
const ABANDONED: &str = ".log.abandoned.";
/// Zeros are written in such pieces.
const ZEROS_BYTES: usize = 1 << 20;

/// A file that takes records.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    pub file: Arc<dyn PositionedFile>,
    /// Where it lies until it has its name.
    pub spare_path: PathBuf,
    /// The position of its first record.
    pub first: u64,
    /// Bytes of records that fit.
    pub capacity: u64,
}

/// What a file is called whose first record stands there.
pub(super) fn file_name(first: u64) -> String {
    format!("{first:016x}.log")
}

/// The position of the first record of a file with such a name.
pub(super) fn position_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Whether a file of this name has, or had, records: it was put aside if it has none that count any more.
pub(crate) fn is_log_file(name: &str) -> bool {
    position_of_name(name).is_some() || name.contains(ABANDONED)
}

pub(super) fn is_spare(name: &str) -> bool {
    name.strip_suffix(SPARE).is_some()
}

/// Makes a file of zeros that has room for so many bytes of records; durable, but for its name.
pub(super) fn create_spare(
    files: &dyn Files,
    directory: &Path,
    number: u64,
    capacity: u64,
) -> io::Result<(PathBuf, Arc<dyn PositionedFile>)> {
    let path = directory.join(format!("{number}{SPARE}"));
    let created = || {
        let file = files.open_at(&path, OpenMode::Create)?;
        let zeros = vec![0; ZEROS_BYTES];
        let (mut at, end) = (0, FILE_HEADER_BYTES + capacity);
        while at < end {
            let length = (end - at).min(ZEROS_BYTES as u64);
            file.write_all_at(&zeros[..length as usize], at)?;
            at += length;
        }
        file.sync_all()?;
        Ok(file)
    };
    created().map(|file| (path.clone(), file)).inspect_err(|_| {
        // Half a file would keep others from the room it takes.
        let _ = files.remove(&path);
    })
}

/// Makes the first file of a log, without records and without room for any: that there is a file says that there is a
/// log. The first one with records takes its place. Durable, with its name.
pub(crate) fn make_first_file(files: &dyn Files, directory: &Path, id: DatabaseId) -> io::Result<()> {
    let path = directory.join(file_name(0));
    if files.exists(&path) {
        // Of an attempt that did not come to its end.
        files.remove(&path)?;
    }
    let file = files.open_at(&path, OpenMode::Create)?;
    file.write_all_at(&header(id, 0), 0)?;
    file.sync_all()?;
    files.sync_directory(directory)
}

/// Removes files all of whose records stand in front of a position.
pub(super) fn remove_in_front_of(files: &dyn Files, directory: &Path, position: u64) -> io::Result<()> {
    let mut firsts: Vec<u64> = files.list(directory)?.iter().filter_map(|name| position_of_name(name)).collect();
    firsts.sort_unstable();
    for pair in firsts.windows(2).filter(|pair| pair[1] <= position) {
        files.remove(&directory.join(file_name(pair[0])))?;
    }
    files.sync_directory(directory)
}

/// The bytes in front of the first record.
pub(super) fn header(id: DatabaseId, first: u64) -> [u8; FILE_HEADER_BYTES as usize] {
    let mut header = [0; FILE_HEADER_BYTES as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&LOG_FORMAT.to_le_bytes());
    header[16..24].copy_from_slice(&id.0.to_le_bytes());
    header[24..32].copy_from_slice(&first.to_le_bytes());
    let check = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&check.to_le_bytes());
    header
}

/// What is wrong with a file's header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Newer(u32),
    OtherDatabase(u64),
    Damaged(&'static str),
}

/// Looks at the header of a file whose name says that its first record stands at `first`.
pub(super) fn check_header(bytes: &[u8], id: DatabaseId, first: u64) -> Result<(), BadHeader> {
    let Some(found) = bytes.first_chunk::<{ FILE_HEADER_BYTES as usize }>() else {
        return Err(BadHeader::Damaged("it is shorter than its header"));
    };
    if found[..8] != MAGIC {
        return Err(BadHeader::Damaged("it does not begin as a log file"));
    }
    let format = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
    if format > LOG_FORMAT {
        return Err(BadHeader::Newer(format));
    }
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&found[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    if *found == header(id, first) {
        return Ok(());
    }
    if *found != header(DatabaseId(number(16)), number(24)) {
        return Err(BadHeader::Damaged("the check of its header is wrong"));
    }
    match number(16) {
        other if other != id.0 => Err(BadHeader::OtherDatabase(other)),
        _ => Err(BadHeader::Damaged("it begins at another position than its name says")),
    }
}
