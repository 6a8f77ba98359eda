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
use std::sync::Arc;

use eris_platform::{Files, OpenMode, PositionedFile};

use super::file::{BadHeader, FILE_HEADER_BYTES, check_header, position_of_name};
use super::record::{
    ALIGNMENT, HEADER_BYTES, Kind, Record, SECTOR_BYTES, is_damage, length_of, read, stands_at, whole,
};
use crate::directory::DatabaseId;
use crate::error::{CUT, DurabilityError, RESTORE};

/// Bytes that are read at a time, unless a record is longer.
const WINDOW_BYTES: u64 = 1 << 20;

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
        let mut offset = if from == first { 0 } else { FILE_HEADER_BYTES + (from - first) };
        let end = FILE_HEADER_BYTES + (end - first);
        let mut bytes = vec![0; WINDOW_BYTES.min(end - offset) as usize];
        while offset < end {
            bytes.truncate((end - offset) as usize);
            file.read_exact_at(&mut bytes, offset).map_err(failed())?;
            file.write_all_at(&bytes, offset).map_err(failed())?;
            offset += bytes.len() as u64;
        }
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

/// Reads the files of a log, a window at a time.
pub(crate) struct LogReader<'f> {
    log: LogFiles<'f>,
    /// The file that is read, by its place among them.
    place: usize,
    /// None: there are no files.
    file: Option<Arc<dyn PositionedFile>>,
    /// Where what counts of it ends.
    end: u64,
    /// The window: what was read of it ...
    bytes: Vec<u8>,
    /// ... from here on.
    begin: u64,
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
        let mut reader = Self::at(log, from);
        match reader.log.firsts.get(reader.place) {
            None if from == 0 => {}
            Some(first) if *first <= from => {
                reader.open_file()?;
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

    /// One that has read nothing yet.
    fn at(log: LogFiles<'f>, position: u64) -> Self {
        let place = log.place_of(position);
        Self { log, place, file: None, end: position, bytes: Vec::new(), begin: position, position }
    }

    /// Its files.
    pub fn files(&self) -> &LogFiles<'f> {
        &self.log
    }

    /// Whether there are no files.
    pub fn has_no_files(&self) -> bool {
        self.log.firsts.is_empty()
    }

    /// Whether the records of the first file come to where reading begins: a log of another time does not.
    fn check_reaches(&mut self, from: u64) -> Result<(), DurabilityError> {
        let mut position = self.first();
        while position < from {
            match self.whole_at(position)? {
                Some((_, length)) => position += length.next_multiple_of(ALIGNMENT),
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

    /// The first position of the next file.
    fn next_first(&self) -> Option<u64> {
        self.log.firsts.get(self.place + 1).copied()
    }

    fn path(&self) -> PathBuf {
        self.log.path(self.first())
    }

    /// Opens the file at the place.
    fn open_file(&mut self) -> Result<(), DurabilityError> {
        let (path, first) = (self.path(), self.first());
        let file = self.log.files.open_at(&path, OpenMode::Read).map_err(DurabilityError::io("open", &path))?;
        let length = file.len().map_err(DurabilityError::io("read", &path))?;
        let mut header = vec![0; length.min(FILE_HEADER_BYTES) as usize];
        file.read_exact_at(&mut header, 0).map_err(DurabilityError::io("read", &path))?;
        let damaged =
            |reason: String| DurabilityError::Damaged { file: path.clone(), offset: Some(0), reason, help: RESTORE };
        check_header(&header, self.log.id, first).map_err(|bad| match bad {
            BadHeader::Newer(found) => DurabilityError::Newer { file: path.clone(), found: u64::from(found) },
            BadHeader::OtherDatabase(other) => damaged(format!("it belongs to another database, {other:016x}")),
            BadHeader::Damaged(reason) => damaged(reason.to_owned()),
        })?;
        let end = first + (length - FILE_HEADER_BYTES);
        self.end = self.next_first().map_or(end, |next| end.min(next));
        self.file = Some(file);
        (self.begin, self.bytes) = (first, Vec::new());
        Ok(())
    }

    /// At least `count` bytes from `position`, fewer only at the end of the file; moves the window if needed.
    fn bytes_at(&mut self, position: u64, count: u64) -> Result<&[u8], DurabilityError> {
        let left = self.end.saturating_sub(position);
        let is_in = |position| self.begin <= position && position <= self.begin + self.bytes.len() as u64;
        if !is_in(position) || !is_in(position + count.min(left)) {
            let count = count.max(WINDOW_BYTES).min(left) as usize;
            // One that had a long record gives its memory back.
            if self.bytes.capacity() > count.max(WINDOW_BYTES as usize) {
                self.bytes = Vec::new();
            }
            self.bytes.resize(count, 0);
            self.begin = position;
            let offset = FILE_HEADER_BYTES + position.saturating_sub(self.first());
            if let Some(file) = &self.file
                && let Err(error) = file.read_exact_at(&mut self.bytes, offset)
            {
                self.bytes.clear();
                return Err(DurabilityError::io("read", &self.path())(error));
            }
        }
        Ok(&self.bytes[(position - self.begin) as usize..])
    }

    /// The kind and the length of the whole record at a position, if there is one; it is in the window then.
    fn whole_at(&mut self, position: u64) -> Result<Option<(Kind, u64)>, DurabilityError> {
        let id = self.log.id;
        let Some(header) = self.bytes_at(position, HEADER_BYTES as u64)?.first_chunk() else { return Ok(None) };
        // The cheap question first: this is asked for every place of a damaged log.
        if !stands_at(header, position) {
            return Ok(None);
        }
        let length = length_of(header);
        // A damaged length may be anything: do not read the rest of the file for it.
        if length > self.end - position {
            return Ok(None);
        }
        let found = whole(self.bytes_at(position, length)?, id, position);
        Ok(found.map(|(kind, length)| (kind, length as u64)))
    }

    /// The next record.
    ///
    /// # Errors
    /// [`DurabilityError::Damaged`] in front of damage; [`Self::position`] is where it is.
    pub fn next(&mut self) -> Result<Step<'_>, DurabilityError> {
        while self.next_first() == Some(self.position) {
            self.place += 1;
            self.open_file()?;
        }
        if self.log.firsts.is_empty() {
            return Ok(Step::End);
        }
        let position = self.position;
        if let Some((kind, length)) = self.whole_at(position)? {
            self.position += length.next_multiple_of(ALIGNMENT);
            let record = &self.bytes_at(position, length)?[..length as usize];
            return Ok(Step::Record(Record::of(kind, record)));
        }
        match self.what_is_wrong()? {
            None => Ok(Step::End),
            Some(reason) => {
                let offset = Some(FILE_HEADER_BYTES + (position - self.first()));
                Err(DurabilityError::Damaged { file: self.path(), offset, reason, help: CUT })
            }
        }
    }

    /// No whole record stands at the position: whether that is more than the end.
    fn what_is_wrong(&mut self) -> Result<Option<String>, DurabilityError> {
        let (position, offset) = (self.position, FILE_HEADER_BYTES + (self.position - self.first()));
        if let Some(next) = self.next_first() {
            return Ok(Some(format!("no whole record at position {position}, but the log goes on to {next}")));
        }
        let mut later = position + ALIGNMENT;
        while later < self.end {
            if let Some((kind, length)) = self.whole_at(later)? {
                let record = &self.bytes_at(later, length)?[..length as usize];
                if Record::of(kind, record).durable > position {
                    return Ok(Some(format!("no whole record at position {position}, but one behind it at {later}")));
                }
            }
            later += ALIGNMENT;
        }
        let Some(header) = self.bytes_at(position, HEADER_BYTES as u64)?.first_chunk() else { return Ok(None) };
        let length = if stands_at(header, position) { length_of(header) } else { HEADER_BYTES as u64 };
        // A record that extends past the end of the file was never written completely.
        if length > self.end - position {
            return Ok(None);
        }
        let is_damage = is_damage(self.bytes_at(position, length + SECTOR_BYTES)?, offset, position);
        let reason =
            || format!("the record at position {position} is not what was written, and no crash leaves it like that");
        Ok(is_damage.then(reason))
    }

    /// Where reading stopped, and what stands from there on.
    pub fn rest(&mut self) -> Result<Rest, DurabilityError> {
        if self.log.firsts.is_empty() {
            return Ok(Rest::default());
        }
        let offset = FILE_HEADER_BYTES + (self.position - self.first());
        let mut rest = Rest { file: Some(self.path()), offset, bytes: 0, records: 0 };
        self.count(self.position, &mut rest)?;
        for first in &self.log.firsts[self.place + 1..] {
            let mut later = Self::at(self.log.clone(), *first);
            // What is wrong with its header is not what is asked.
            if later.open_file().is_ok() {
                later.count(*first, &mut rest)?;
            }
        }
        Ok(rest)
    }

    /// Counts bytes from a position on up to the last one that is not zero, and whole records among them.
    fn count(&mut self, from: u64, rest: &mut Rest) -> Result<(), DurabilityError> {
        let (mut at, mut end) = (from, from);
        while at < self.end {
            let bytes = self.bytes_at(at, 1)?;
            let count = bytes.len() as u64;
            end = bytes.iter().rposition(|byte| *byte != 0).map_or(end, |last| at + last as u64 + 1);
            at += count;
        }
        rest.bytes += end - from;
        at = from;
        while at < end {
            let found = self.whole_at(at)?;
            rest.records += u64::from(found.is_some());
            at += found.map_or(ALIGNMENT, |(_, length)| length.next_multiple_of(ALIGNMENT));
        }
        Ok(())
    }

    /// The files that have nothing in front of the position.
    pub fn later_files(&self) -> Vec<PathBuf> {
        let later = self.log.firsts.iter().filter(|first| **first >= self.position);
        later.map(|first| self.log.path(*first)).collect()
    }
}

#[cfg(test)]
mod tests;
