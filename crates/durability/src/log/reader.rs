//! Reading a log from front to back, and telling where it ends from where it is damaged.
//!
//! ```text
//!   ... record record | record torn      no whole record behind it says that this place was durable: the end
//!   ... record ??????? record            one does, or there is a further file: damage
//!   ... record ???????                   all sectors of it were written, which no crash leaves: damage
//! ```
//! A file counts only up to the first position of the next one: what stands behind was cut off when the log was opened
//! again.

use std::path::{Path, PathBuf};

use eris_platform::{Files, OpenMode};

use super::file::{BadHeader, FILE_HEADER_BYTES, check_header, position_of_name};
use super::record::{ALIGNMENT, HEADER_BYTES, Record, is_damage, length_of, read, whole};
use crate::directory::DatabaseId;
use crate::error::{CUT, DurabilityError, RESTORE};

/// The files of a log, by the positions of their first records.
#[derive(Clone)]
pub(crate) struct LogFiles<'f> {
    files: &'f dyn Files,
    id: DatabaseId,
    directory: PathBuf,
    /// Ascending.
    firsts: Vec<u64>,
}

impl<'f> LogFiles<'f> {
    pub fn list(files: &'f dyn Files, directory: &Path, id: DatabaseId) -> Result<Self, DurabilityError> {
        let names = files.list(directory).map_err(DurabilityError::io("list", directory))?;
        let mut firsts: Vec<u64> = names.iter().filter_map(|name| position_of_name(name)).collect();
        firsts.sort_unstable();
        Ok(Self { files, id, directory: directory.to_path_buf(), firsts })
    }

    /// The file in which a position lies, by its place among them; 0 if there is none.
    fn place_of(&self, position: u64) -> usize {
        self.firsts.partition_point(|first| *first <= position).saturating_sub(1)
    }

    /// The file in which a record stands, and where it begins there.
    fn find(&self, position: u64) -> (PathBuf, u64) {
        let first = self.firsts.get(self.place_of(position)).copied().unwrap_or(0);
        (self.path(first), FILE_HEADER_BYTES + position.saturating_sub(first))
    }

    fn path(&self, first: u64) -> PathBuf {
        self.directory.join(super::file::file_name(first))
    }

    /// The bytes of the record at a position, to be looked at by [`Self::record`].
    pub fn read_at(&self, position: u64) -> Result<Vec<u8>, DurabilityError> {
        let (path, offset) = self.find(position);
        let failed = || DurabilityError::io("read", &path);
        let file = self.files.open_at(&path, OpenMode::Read).map_err(failed())?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, offset).map_err(failed())?;
        let left = file.len().map_err(failed())?.saturating_sub(offset);
        let mut bytes = vec![0; length_of(&header).min(left) as usize];
        file.read_exact_at(&mut bytes, offset).map_err(failed())?;
        Ok(bytes)
    }

    /// Writes again what stands between two positions, the latter of which is the end, and makes it durable. What is
    /// read may never have come to the disk: the process ended in front of the sync, or the sync failed, and the system
    /// takes for written what it could not write. In front of its last file a log is durable.
    pub fn write_again(&self, from: u64, end: u64) -> Result<(), DurabilityError> {
        let first = self.firsts.get(self.place_of(end.saturating_sub(1))).copied().unwrap_or(0);
        let from = from.max(first);
        if from >= end {
            return Ok(());
        }
        let path = self.path(first);
        let failed = || DurabilityError::io("make durable", &path);
        let file = self.files.open_at(&path, OpenMode::Write).map_err(failed())?;
        // The header came with the first record.
        let offset = if from == first { 0 } else { FILE_HEADER_BYTES + (from - first) };
        let mut bytes = vec![0; (FILE_HEADER_BYTES + (end - first) - offset) as usize];
        file.read_exact_at(&mut bytes, offset).map_err(failed())?;
        file.write_all_at(&bytes, offset).map_err(failed())?;
        file.sync_data().map_err(failed())
    }

    /// The record that these bytes of a position are.
    pub fn record<'b>(&self, position: u64, bytes: &'b [u8]) -> Result<Record<'b>, DurabilityError> {
        let record = read(bytes, self.id, position).map(|(record, _)| record);
        record.ok_or_else(|| {
            let (file, offset) = self.find(position);
            DurabilityError::Damaged {
                file,
                offset: Some(offset),
                reason: "the record is not what it was a moment ago".to_owned(),
                help: CUT,
            }
        })
    }
}

/// Reads the files of a log.
pub(crate) struct LogReader<'f> {
    log: LogFiles<'f>,
    /// The file that is read, by its place among them.
    place: usize,
    bytes: Vec<u8>,
    position: u64,
}

/// What stands where reading stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rest {
    /// None: there are no files.
    pub file: Option<PathBuf>,
    /// Where it stopped there.
    pub offset: u64,
    /// Bytes from there to the last one that is not zero, in this file and in later ones.
    pub bytes: u64,
    /// Whole records among them.
    pub records: u64,
}

/// What comes next.
pub(crate) enum Step<'r> {
    Record(Record<'r>),
    /// Nothing: the log ends here.
    End,
}

impl<'f> LogReader<'f> {
    /// Begins at `from`.
    pub fn open(files: &'f dyn Files, directory: &Path, id: DatabaseId, from: u64) -> Result<Self, DurabilityError> {
        let log = LogFiles::list(files, directory, id)?;
        let place = log.place_of(from);
        let mut reader = Self { log, place, bytes: Vec::new(), position: from };
        match reader.log.firsts.get(place) {
            None if from == 0 => {}
            Some(first) if *first <= from => {
                reader.load()?;
                reader.check_reaches(from)?;
            }
            _ => {
                let reason = format!("the log in \"{}\" begins behind position {from}", directory.display());
                return Err(DurabilityError::Missing { reason });
            }
        }
        Ok(reader)
    }

    /// Begins with the first record that is there.
    pub fn open_first(files: &'f dyn Files, directory: &Path, id: DatabaseId) -> Result<Self, DurabilityError> {
        let log = LogFiles::list(files, directory, id)?;
        Self::open(files, directory, id, log.firsts.first().copied().unwrap_or(0))
    }

    /// Its files.
    pub fn files(&self) -> &LogFiles<'f> {
        &self.log
    }

    /// Whether the records of the first file come to where reading begins: a log of another time does not.
    fn check_reaches(&self, from: u64) -> Result<(), DurabilityError> {
        let mut position = self.first();
        while position < from {
            let at = (position - self.first()) as usize;
            match read(self.bytes.get(at..).unwrap_or_default(), self.log.id, position) {
                Some((_, length)) => position += length,
                None => break,
            }
        }
        if position == from {
            return Ok(());
        }
        let path = self.path();
        let reason = format!(
            "\"{}\" has no record at position {from}, where the checkpoint ends: they do not belong together",
            path.display()
        );
        Err(DurabilityError::Missing { reason })
    }

    /// Where the next record stands.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of records that are at most left.
    pub fn bytes_left(&self) -> u64 {
        let Some(last) = self.log.firsts.last().copied() else { return 0 };
        let length = self.log.files.open_at(&self.log.path(last), OpenMode::Read).and_then(|file| file.len());
        // Only to tell how far reading is.
        let in_last = length.unwrap_or(0).saturating_sub(FILE_HEADER_BYTES);
        (last + in_last).saturating_sub(self.position)
    }

    fn first(&self) -> u64 {
        self.log.firsts.get(self.place).copied().unwrap_or(0)
    }

    fn path(&self) -> PathBuf {
        self.log.path(self.first())
    }

    fn load(&mut self) -> Result<(), DurabilityError> {
        let path = self.path();
        let opened = self.log.files.open_at(&path, OpenMode::Read).map_err(DurabilityError::io("open", &path))?;
        let length = opened.len().map_err(DurabilityError::io("read", &path))?;
        let mut bytes = vec![0; length as usize];
        opened.read_exact_at(&mut bytes, 0).map_err(DurabilityError::io("read", &path))?;
        let damaged =
            |reason: String| DurabilityError::Damaged { file: path.clone(), offset: Some(0), reason, help: RESTORE };
        check_header(&bytes, self.log.id, self.first()).map_err(|bad| match bad {
            BadHeader::Newer(found) => DurabilityError::Newer { file: path.clone(), found: u64::from(found) },
            BadHeader::OtherDatabase(other) => damaged(format!("it belongs to another database, {other:016x}")),
            BadHeader::Damaged(reason) => damaged(reason.to_owned()),
        })?;
        bytes.drain(..FILE_HEADER_BYTES as usize);
        self.bytes = bytes;
        Ok(())
    }

    /// The next record.
    ///
    /// # Errors
    /// [`DurabilityError::Damaged`] in front of damage; [`Self::position`] is where it is.
    pub fn next(&mut self) -> Result<Step<'_>, DurabilityError> {
        while self.log.firsts.get(self.place + 1) == Some(&self.position) {
            self.place += 1;
            self.load()?;
        }
        if self.log.firsts.is_empty() {
            return Ok(Step::End);
        }
        let at = (self.position - self.first()) as usize;
        let limit = self.log.firsts.get(self.place + 1).map_or(self.bytes.len(), |next| (next - self.first()) as usize);
        let rest = self.bytes.get(at..limit.min(self.bytes.len())).unwrap_or_default();
        match whole(rest, self.log.id, self.position) {
            Some((kind, length)) => {
                let record = &self.bytes[at..at + length];
                self.position += length.next_multiple_of(ALIGNMENT as usize) as u64;
                Ok(Step::Record(Record::of(kind, record)))
            }
            None => match self.what_is_wrong(at) {
                None => Ok(Step::End),
                Some(reason) => Err(DurabilityError::Damaged {
                    file: self.path(),
                    offset: Some(FILE_HEADER_BYTES + at as u64),
                    reason,
                    help: CUT,
                }),
            },
        }
    }

    /// No whole record stands at the position: whether that is more than the end.
    fn what_is_wrong(&self, at: usize) -> Option<String> {
        if let Some(next) = self.log.firsts.get(self.place + 1) {
            return Some(format!("no whole record at position {}, but the log goes on to {next}", self.position));
        }
        let mut later = at + ALIGNMENT as usize;
        while later < self.bytes.len() {
            let position = self.first() + later as u64;
            if let Some((record, _)) = read(&self.bytes[later..], self.log.id, position)
                && record.durable > self.position
            {
                let position = self.position;
                return Some(format!(
                    "no whole record at position {position}, but one behind it at {}",
                    record.position
                ));
            }
            later += ALIGNMENT as usize;
        }
        let rest = self.bytes.get(at..).unwrap_or_default();
        is_damage(rest, FILE_HEADER_BYTES + at as u64, self.position).then(|| {
            format!(
                "the record at position {} is not what was written, and no crash leaves it like that",
                self.position
            )
        })
    }

    /// Where reading stopped, and what stands from there on.
    pub fn rest(&self) -> Rest {
        if self.log.firsts.is_empty() {
            return Rest::default();
        }
        let at = (self.position - self.first()) as usize;
        let (mut bytes, mut records) = self.count(self.bytes.get(at..).unwrap_or_default(), self.position);
        for place in self.place + 1..self.log.firsts.len() {
            let mut later = Self { log: self.log.clone(), place, bytes: Vec::new(), position: self.log.firsts[place] };
            // What is wrong with its header is not what is asked.
            if later.load().is_ok() {
                let (more_bytes, more_records) = later.count(&later.bytes, later.position);
                (bytes, records) = (bytes + more_bytes, records + more_records);
            }
        }
        Rest { file: Some(self.path()), offset: FILE_HEADER_BYTES + at as u64, bytes, records }
    }

    /// Bytes up to the last one that is not zero, and whole records among them.
    fn count(&self, rest: &[u8], position: u64) -> (u64, u64) {
        let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let (mut at, mut records) = (0, 0);
        while at < end {
            match read(&rest[at..], self.log.id, position + at as u64) {
                Some((_, length)) => {
                    records += 1;
                    at += length as usize;
                }
                None => at += ALIGNMENT as usize,
            }
        }
        (end as u64, records)
    }

    /// The files that have nothing in front of the position.
    pub fn later_files(&self) -> Vec<PathBuf> {
        let later = self.log.firsts.iter().filter(|first| **first >= self.position);
        later.map(|first| self.log.path(*first)).collect()
    }
}
