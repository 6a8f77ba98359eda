//! The form of a record.
//!
//! ```text
//!   check u32 | length u32 | position u64 | durable u64 | timestamp u64 | kind u8 | 0 x 7 | body | zeros up to 8 bytes
//!
//!   body  commit             operations
//!         commit with parts  transaction u64 | void u32 | void x (first u32, last u32) | operations
//!         part               transaction u64 | operations
//!         definition         JSON
//!         start              JSON: who opened the log
//!         closed             nothing: the log was closed, and everything in front of it was durable before
//! ```
//! All numbers are little-endian. `check` is the CRC-32C of everything behind it, begun with the id of the database;
//! `length` counts the record without the zeros; `position` is where the record stands in the log, so that what is left
//! of an older use of the same file is not taken for a record; `durable` says up to where the log was durable before
//! the record was written: where its batch begins, because a batch is written when the one before is synced. The last
//! of the zeros is none, so that it shows whether a record's last sector was written. A record that is not whole, with
//! a whole one behind it that says so, is damage; without one, it is the end of what was written.

use crate::directory::DatabaseId;

/// The last byte behind a record that does not fill its last 8 bytes.
const LAST: u8 = 0xE5;
/// What a disk writes as a whole, or from its beginning on.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Bytes in front of the body.
pub(super) const HEADER_BYTES: usize = 40;
/// Records begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 8;
/// A record's length has 32 bits.
pub(crate) const RECORD_BYTES_MAX: u64 = u32::MAX as u64 - ALIGNMENT;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Commit = 1,
    CommitWithParts = 2,
    Part = 3,
    Definition = 4,
    Start = 5,
    Closed = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Commit, Self::CommitWithParts, Self::Part, Self::Definition, Self::Start, Self::Closed]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A record, its body where it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub position: u64,
    /// Everything in front of here was durable when it was written.
    pub durable: u64,
    /// Of commits; 0 otherwise.
    pub timestamp: u64,
    pub kind: Kind,
    pub body: &'a [u8],
}

/// Bytes of a record with such a body, in the file.
pub(super) fn record_bytes(body: usize) -> u64 {
    ((HEADER_BYTES + body) as u64).next_multiple_of(ALIGNMENT)
}

fn check(id: DatabaseId, bytes: &[u8]) -> u32 {
    // Planted: the body is taken to be there when the header is.
    let bytes = if cfg!(feature = "bug_check_of_header") { &bytes[..HEADER_BYTES - 4] } else { bytes };
    crc32c::crc32c_append(crc32c::crc32c(&id.0.to_le_bytes()), bytes)
}

/// Appends a record whose body `write` appends.
pub(super) fn append(out: &mut Vec<u8>, id: DatabaseId, record: Record<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let Record { position, durable, timestamp, kind, body } = record;
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&position.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(&timestamp.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(body);
    write(out);
    let length = out.len() - start;
    assert!(length as u64 <= RECORD_BYTES_MAX, "a record of {length} bytes");
    out[start + 4..start + 8].copy_from_slice(&(length as u32).to_le_bytes());
    let check = check(id, &out[start + 4..]);
    out[start..start + 4].copy_from_slice(&check.to_le_bytes());
    out.resize(start + record_bytes(length - HEADER_BYTES) as usize, 0);
    if !length.is_multiple_of(ALIGNMENT as usize)
        && let Some(last) = out.last_mut()
    {
        *last = LAST;
    }
}

/// Whether no crash can have left what stands at `position`, where no whole record does; `rest` is the file from there
/// on, `offset` where that is in it.
///
/// Nothing but zeros was there before, and whatever is written by and by into a sector is behind what it has. So a
/// crash leaves of each sector a beginning of what was written, and zeros. A sector that has anything at or behind the
/// last byte of a record has all of the record that belongs there. If all sectors of a record have that, it was written
/// as a whole, and is another one by now.
pub(super) fn is_damage(rest: &[u8], offset: u64, position: u64) -> bool {
    let is_written = |length: usize| {
        let mut begin = 0;
        while begin < length {
            let sector_end = (SECTOR_BYTES - (offset + begin as u64) % SECTOR_BYTES) as usize + begin;
            let last = sector_end.min(length) - 1;
            let Some(behind) = rest.get(last..) else { return false };
            if behind.iter().take(sector_end - last).all(|byte| *byte == 0) {
                return false;
            }
            begin = sector_end;
        }
        true
    };
    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return false };
    if !is_written(HEADER_BYTES) {
        return false;
    }
    !stands_at(header, position) || is_written(length_of(header) as usize)
}

/// How long a record with such a header says that it is.
pub(super) fn length_of(header: &[u8; HEADER_BYTES]) -> u64 {
    u64::from(short(header, 4))
}

/// Whether a record with such a header can stand at `position`.
pub(super) fn stands_at(header: &[u8; HEADER_BYTES], position: u64) -> bool {
    long(header, 8) == position && length_of(header) >= HEADER_BYTES as u64
}

/// What stands at the front of `bytes`, if it is a whole record that belongs at `position`; and its bytes without the
/// zeros behind it.
pub(super) fn whole(bytes: &[u8], id: DatabaseId, position: u64) -> Option<(Kind, usize)> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let length = length_of(header) as usize;
    if !stands_at(header, position) || length > bytes.len() {
        return None;
    }
    if short(header, 0) != check(id, &bytes[4..length]) {
        return None;
    }
    Some((Kind::of(header[32])?, length))
}

/// The record at the front of `bytes`, if there is a whole one that belongs at `position`; and its length in the file.
pub(super) fn read(bytes: &[u8], id: DatabaseId, position: u64) -> Option<(Record<'_>, u64)> {
    let (kind, length) = whole(bytes, id, position)?;
    Some((Record::of(kind, &bytes[..length]), record_bytes(length - HEADER_BYTES)))
}

impl<'a> Record<'a> {
    /// The record of this kind that these bytes are; somebody has found them [`whole`].
    pub(super) fn of(kind: Kind, bytes: &'a [u8]) -> Self {
        let (position, durable, timestamp) = (long(bytes, 8), long(bytes, 16), long(bytes, 24));
        Self { position, durable, timestamp, kind, body: &bytes[HEADER_BYTES..] }
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn short(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DatabaseId = DatabaseId(77);

    fn bytes(position: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, ID, Record { position, durable: 5, timestamp: 9, kind: Kind::Part, body }, |out| {
            out.extend_from_slice(b"and more");
        });
        out
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let bytes = bytes(64, b"body ");
        assert_eq!(bytes.len() % 8, 0);
        let (record, length) = read(&bytes, ID, 64).unwrap();
        assert_eq!(length as usize, bytes.len());
        let body: &[u8] = b"body and more";
        assert_eq!(record, Record { position: 64, durable: 5, timestamp: 9, kind: Kind::Part, body });
    }

    #[test]
    fn no_bit_of_it_may_be_another_one() {
        let good = bytes(64, b"body");
        let length = good.len() - 4; // 40 + 12 bytes, padded.
        for bit in 0..length * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bad, ID, 64), None, "bit {bit}");
        }
        for end in 0..length {
            assert_eq!(read(&good[..end], ID, 64), None, "{end} bytes");
        }
        assert!(read(&good, ID, 64).is_some());
        assert_eq!(read(&good, ID, 72), None, "another place");
        assert_eq!(read(&good, DatabaseId(78), 64), None, "another database");
    }
}
