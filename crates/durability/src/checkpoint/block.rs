//! The files with a checkpoint's rows.
//!
//! ```text
//!   <number>.data   header, 64 bytes | block | block ...
//!
//!   header          "ERISDATA" | format u32 | check u32 | id of the database u64 | number u64 | zeros
//!   block           check u32 | kind u32 | length u64 | body
//!   body            rows: as `Batch::store` writes them      live rows: one bit for each row of another block
//! ```
//! All numbers are little-endian; `check` is the CRC-32C of what is behind it, begun with the id of the database and
//! where the block lies, so that a block in another place is none. Blocks are written once. A later checkpoint names
//! those of segments that are still the same.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eris_platform::{AppendedFile, Files, OpenMode, PositionedFile};
use serde::{Deserialize, Serialize};

use crate::directory::DatabaseId;
use crate::error::{DurabilityError, RESTORE};

pub(super) const HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"ERISDATA";
const DATA_FORMAT: u32 = 1;
const BLOCK_HEADER_BYTES: usize = 16;
const CHECK_BYTES: usize = 4;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum BlockKind {
    Rows = 1,
    LiveRows = 2,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockPlace {
    pub file: u64,
    pub offset: u64,
    pub length: u64,
}

/// What a data file is called.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:08}.data")
}

/// The number of a data file with such a name.
pub(super) fn number_of_name(name: &str) -> Option<u64> {
    name.strip_suffix(".data")?.parse().ok()
}

fn header(id: DatabaseId, number: u64) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&DATA_FORMAT.to_le_bytes());
    header[16..24].copy_from_slice(&id.0.to_le_bytes());
    header[24..32].copy_from_slice(&number.to_le_bytes());
    let check = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&check.to_le_bytes());
    header
}

/// The check of a block, to be continued with everything behind the check itself.
fn check(id: DatabaseId, place: BlockPlace) -> u32 {
    [place.file, place.offset]
        .iter()
        .fold(crc32c::crc32c(&id.0.to_le_bytes()), |check, number| crc32c::crc32c_append(check, &number.to_le_bytes()))
}

/// How many rows are there, as live rows say.
pub(super) fn live_count(live: &[u8]) -> u64 {
    live.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// Bytes that are looked at or written at once, by somebody who must not keep the processor for long.
const BREATH_BYTES: usize = 64 << 10;
/// Memory that is kept from block to block.
const BLOCK_KEPT_MAX: usize = 4 << 20;

/// A data file that grows. Who writes it breathes ([`Files::breathe`]) every few microseconds.
#[derive(Debug)]
pub(super) struct DataWriter {
    id: DatabaseId,
    number: u64,
    path: PathBuf,
    file: AppendedFile,
    /// The last block, kept for its memory if that is not too much.
    block: Vec<u8>,
}

impl DataWriter {
    pub fn create(files: &dyn Files, directory: &Path, id: DatabaseId, number: u64) -> io::Result<Self> {
        let path = directory.join(file_name(number));
        let mut file = AppendedFile::create(files, &path)?;
        file.append(&header(id, number))?;
        Ok(Self { id, number, path, file, block: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes so far.
    pub fn end(&self) -> u64 {
        self.file.len()
    }

    /// Appends a block whose body `write` appends.
    pub fn append(
        &mut self,
        files: &dyn Files,
        kind: BlockKind,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<BlockPlace> {
        let block = &mut self.block;
        block.clear();
        block.resize(BLOCK_HEADER_BYTES, 0);
        write(block);
        let length = block.len() as u64;
        block[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
        block[8..16].copy_from_slice(&length.to_le_bytes());
        let place = BlockPlace { file: self.number, offset: self.file.len(), length };
        let mut check = check(self.id, place);
        for bytes in block[CHECK_BYTES..].chunks(BREATH_BYTES) {
            check = crc32c::crc32c_append(check, bytes);
            files.breathe();
        }
        block[..CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
        for bytes in block.chunks(BREATH_BYTES) {
            self.file.append(bytes)?;
            files.breathe();
        }
        block.clear();
        block.shrink_to(BLOCK_KEPT_MAX);
        Ok(place)
    }

    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

/// Reads blocks of one data file.
#[derive(Debug)]
pub(super) struct DataReader {
    id: DatabaseId,
    number: u64,
    path: PathBuf,
    file: Arc<dyn PositionedFile>,
}

impl DataReader {
    pub fn open(files: &dyn Files, directory: &Path, id: DatabaseId, number: u64) -> Result<Self, DurabilityError> {
        let path = directory.join(file_name(number));
        let file = files.open_at(&path, OpenMode::Read).map_err(DurabilityError::io("open", &path))?;
        let mut found = [0; HEADER_BYTES as usize];
        let damaged = |reason: &str| damaged(&path, 0, reason);
        match file.read_exact_at(&mut found, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged("it is shorter than its header"));
            }
            Err(error) => return Err(DurabilityError::io("read", &path)(error)),
        }
        if found[..8] != MAGIC {
            return Err(damaged("it does not begin as a data file"));
        }
        let format = u32::from_le_bytes([found[8], found[9], found[10], found[11]]);
        if format > DATA_FORMAT {
            return Err(DurabilityError::Newer { file: path, found: u64::from(format) });
        }
        if found != header(id, number) {
            return Err(damaged("it belongs to another database, or its header is wrong"));
        }
        Ok(Self { id, number, path, file })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Looks at all bytes of a file that has so many, whether anybody needs them or not, and tells what is wrong. Gives
    /// the blocks that it found.
    pub fn check(&self, bytes: u64, tell: &mut dyn FnMut(DurabilityError)) -> Result<u64, DurabilityError> {
        let end = self.file.len().map_err(DurabilityError::io("read", &self.path))?;
        if end != bytes {
            tell(damaged(&self.path, bytes.min(end), &format!("it has {end} bytes, the manifest says {bytes}")));
        }
        let (mut offset, mut blocks) = (HEADER_BYTES, 0);
        while offset < end {
            let mut header = [0; BLOCK_HEADER_BYTES];
            if end - offset >= BLOCK_HEADER_BYTES as u64 {
                self.file.read_exact_at(&mut header, offset).map_err(DurabilityError::io("read", &self.path))?;
            }
            let kind = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            let mut length = [0; 8];
            length.copy_from_slice(&header[8..]);
            let length = u64::from_le_bytes(length);
            let kinds = [BlockKind::Rows, BlockKind::LiveRows];
            let place = BlockPlace { file: self.number, offset, length };
            match kinds.into_iter().find(|known| *known as u32 == kind) {
                Some(kind) if length >= BLOCK_HEADER_BYTES as u64 && length <= end - offset => {
                    match self.read(place, kind) {
                        Err(error @ DurabilityError::Damaged { .. }) => tell(error),
                        read => drop(read?),
                    }
                }
                // Where the next one begins is not known.
                _ => {
                    tell(damaged(&self.path, offset, "no block begins here"));
                    return Ok(blocks);
                }
            }
            blocks += 1;
            offset += length;
        }
        Ok(blocks)
    }

    /// The body of a block.
    pub fn read(&self, place: BlockPlace, kind: BlockKind) -> Result<Vec<u8>, DurabilityError> {
        assert!(place.file == self.number, "a block of file {} in file {}", place.file, self.number);
        let damaged = |reason: &str| damaged(&self.path, place.offset, reason);
        let length = usize::try_from(place.length).ok().filter(|length| *length >= BLOCK_HEADER_BYTES);
        let length = length.ok_or_else(|| damaged("the block's length is wrong"))?;
        let end = self.file.len().map_err(DurabilityError::io("read", &self.path))?;
        if place.offset.checked_add(place.length).is_none_or(|behind| behind > end) {
            return Err(damaged("the file ends before the block does"));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(DurabilityError::io("read", &self.path))?;
        let number = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let found = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if found != crc32c::crc32c_append(check(self.id, place), &bytes[CHECK_BYTES..]) || number != kind as u32 {
            return Err(damaged("the check of the block is wrong"));
        }
        bytes.drain(..BLOCK_HEADER_BYTES);
        Ok(bytes)
    }
}

pub(super) fn damaged(file: &Path, offset: u64, reason: &str) -> DurabilityError {
    DurabilityError::Damaged {
        file: file.to_path_buf(),
        offset: Some(offset),
        reason: reason.to_owned(),
        help: RESTORE,
    }
}
