//! A segment in its partition: rows, words, and how far it is on its way.

use super::deletes::DeleteMap;
use super::new_rows::NewRows;
use super::sealed::SealedSegment;
use super::words::OpenWords;
use crate::batch::FixedValue;
use crate::error::StorageError;
use crate::ids::{AttributeId, SegmentNumber};
use crate::modules::AccessPath;
use crate::mvcc::{Snapshot, Word};
use crate::physical::PhysicalLayout;
use eris_platform::{MemoryExceeded, MemoryPool, Reservation};
use std::ops::Range;
use std::sync::Arc;

/// Where an open segment's rows are.
pub(crate) enum OpenRows {
    /// In a path of its own, which may take more.
    Own { layout: PhysicalLayout, path: Box<dyn AccessPath> },
    /// In the sealed segment it was thawed from.
    Thawed(Arc<SealedSegment>),
}

/// How a segment's versions are represented.
pub(crate) enum State {
    Open { rows: OpenRows, words: OpenWords },
    Sealed { segment: Arc<SealedSegment>, begin: Word, deletes: Arc<DeleteMap> },
}

/// A segment of one partition.
pub(crate) struct Segment {
    pub number: SegmentNumber,
    pub state: State,
    /// Lock words of transactions that are not settled yet.
    pub locks: u32,
    /// The latest begin that was settled (open segments).
    pub newest_begin: u64,
    /// One bit per row without index entries; made with the first.
    vacated: Option<Box<[u64]>>,
    vacated_count: u32,
    /// Rows with an end word that are not vacated.
    ending: u32,
    /// Rows of a full segment.
    pub rows_max: u32,
    /// Whether rows were overwritten and may be again soon (open segments).
    pub overwritten: bool,
    /// Whether rows are not overwritten any more, because a job waits until none has before-images.
    pub overwrites_paused: bool,
    /// For what it takes for each attribute beside the values.
    _directory: Reservation,
}

/// What a segment takes for each attribute beside its values: the objects of a sealed one, its bounds, its place in
/// layouts. Measured: 374 bytes, of texts and of integers, of 1,600 attributes.
const DIRECTORY_BYTES_PER_ATTRIBUTE: u64 = 376;

impl Segment {
    /// Reserves what a segment of so many attributes takes beside its rows.
    pub(crate) fn directory(memory: &Arc<MemoryPool>, attributes: usize) -> Result<Reservation, MemoryExceeded> {
        let directory = memory.reserve("segment directories");
        directory.grow(attributes as u64 * DIRECTORY_BYTES_PER_ATTRIBUTE)?;
        Ok(directory)
    }

    pub(crate) fn new(number: SegmentNumber, state: State, rows_max: u32, directory: Reservation) -> Self {
        Self {
            number,
            state,
            locks: 0,
            newest_begin: 0,
            vacated: None,
            vacated_count: 0,
            ending: 0,
            rows_max,
            overwritten: false,
            overwrites_paused: false,
            _directory: directory,
        }
    }

    /// What holds the rows.
    #[inline]
    pub(crate) fn path(&self) -> &dyn AccessPath {
        match &self.state {
            State::Open { rows: OpenRows::Own { path, .. }, .. } => &**path,
            State::Open { rows: OpenRows::Thawed(segment), .. } | State::Sealed { segment, .. } => segment.path(),
        }
    }

    /// Whether the rows are in a path that nobody else has.
    pub(crate) fn has_own_path(&self) -> bool {
        matches!(self.state, State::Open { rows: OpenRows::Own { .. }, .. })
    }

    /// Overwrites a value of an open segment; gives the one that was.
    pub(crate) fn exchange(&mut self, attribute: AttributeId, offset: u32, new: FixedValue) -> FixedValue {
        let State::Open { rows: OpenRows::Own { path, .. }, .. } = &mut self.state else {
            unreachable!("rows of segment {} are shared", self.number);
        };
        path.exchange(attribute, offset, new)
    }

    /// Which modules hold which attributes.
    pub(crate) fn layout(&self) -> &PhysicalLayout {
        match &self.state {
            State::Open { rows: OpenRows::Own { layout, .. }, .. } => layout,
            State::Open { rows: OpenRows::Thawed(segment), .. } | State::Sealed { segment, .. } => segment.layout(),
        }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.path().rows()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows() >= self.rows_max
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether a reader without the latch holds the rows: their memory stays until it lets go.
    pub(crate) fn is_pinned(&self) -> bool {
        match &self.state {
            State::Sealed { segment, .. } | State::Open { rows: OpenRows::Thawed(segment), .. } => {
                Arc::strong_count(segment) > 1
            }
            State::Open { rows: OpenRows::Own { .. }, .. } => false,
        }
    }

    #[inline]
    pub(crate) fn begin(&self, offset: u32) -> Word {
        match &self.state {
            State::Open { words, .. } => words.begin(offset),
            State::Sealed { begin, .. } => *begin,
        }
    }

    #[inline]
    pub(crate) fn end(&self, offset: u32) -> Word {
        match &self.state {
            State::Open { words, .. } => words.end(offset),
            State::Sealed { deletes, .. } => deletes.end(offset),
        }
    }

    /// Only for rows that are not vacated.
    pub(crate) fn set_end(&mut self, offset: u32, word: Word) -> Result<(), StorageError> {
        let before = self.end(offset) != Word::NEVER;
        match &mut self.state {
            State::Open { words, .. } => words.set_end(offset, word),
            State::Sealed { deletes, .. } => DeleteMap::make_mut(deletes).set_end(offset, word)?,
        }
        self.ending += u32::from(word != Word::NEVER);
        self.ending -= u32::from(before);
        Ok(())
    }

    /// The begin word of a row of an open segment.
    pub(crate) fn set_begin(&mut self, offset: u32, word: Word) {
        match &mut self.state {
            State::Open { words, .. } => words.set_begin(offset, word),
            State::Sealed { .. } => unreachable!("rows of sealed segment {} have no begin of their own", self.number),
        }
    }

    /// Rows with an end word that still have index entries.
    pub(crate) fn ending(&self) -> u32 {
        self.ending
    }

    /// The ending rows as what they cost a sealed segment: those in a row that ended together count once, and
    /// those that have bitmaps not at all.
    pub(crate) fn ending_runs(&self) -> u32 {
        match &self.state {
            State::Open { .. } => self.ending,
            State::Sealed { deletes, .. } => deletes.runs(),
        }
    }

    /// Appends rows of an open segment, with their words.
    pub(crate) fn append(
        &mut self,
        rows: NewRows<'_>,
        range: Range<usize>,
        words_of: impl Fn(usize) -> (Word, Word),
    ) -> Result<(), StorageError> {
        let State::Open { rows: OpenRows::Own { path, .. }, words } = &mut self.state else {
            unreachable!("rows are appended to the tail, which is open");
        };
        words.reserve(range.len())?;
        rows.insert_into(&mut **path, range.clone())?;
        for row in range {
            let (begin, end) = words_of(row);
            words.push(begin, end);
            self.ending += u32::from(end != Word::NEVER);
        }
        Ok(())
    }

    /// Whether a snapshot sees a row.
    #[inline]
    pub(crate) fn is_visible(&self, snapshot: &Snapshot<'_>, offset: u32) -> bool {
        snapshot.is_visible(self.begin(offset), self.end(offset))
    }

    /// Keeps those of a window's offsets that the snapshot sees. `hidden` is scratch memory.
    pub(crate) fn retain_visible(
        &self,
        snapshot: &Snapshot<'_>,
        window: Range<u32>,
        hidden: &mut Vec<u8>,
        offsets: &mut Vec<u32>,
    ) {
        match &self.state {
            State::Open { words, .. } => words.retain_visible(snapshot, offsets),
            State::Sealed { begin, deletes, .. } => {
                if !snapshot.sees(*begin) {
                    offsets.clear();
                } else if deletes.hidden_in(snapshot, window.clone(), hidden) {
                    offsets.retain(|offset| hidden[(offset - window.start) as usize] == 0);
                }
            }
        }
    }

    /// Makes a row invisible to everyone.
    fn set_gone(&mut self, offset: u32) {
        match &mut self.state {
            State::Open { words, .. } => {
                words.set_begin(offset, Word::NEVER);
                words.set_end(offset, Word::ALWAYS);
            }
            State::Sealed { deletes, .. } => DeleteMap::make_mut(deletes).set_gone(offset),
        }
    }

    /// Makes a row invisible to everyone that still has index entries: it moved to another partition.
    pub(crate) fn depart(&mut self, offset: u32) {
        self.ending += u32::from(self.end(offset) == Word::NEVER);
        self.set_gone(offset);
    }

    /// Whether a row is gone for everyone.
    pub(crate) fn is_departed(&self, offset: u32) -> bool {
        self.end(offset) == Word::ALWAYS
    }

    /// Whether a row has no index entries any more.
    pub(crate) fn is_vacated(&self, offset: u32) -> bool {
        self.vacated.as_ref().is_some_and(|bits| bits[offset as usize >> 6] >> (offset & 63) & 1 != 0)
    }

    /// Makes a row invisible to everyone and notes that it has no index entries any more.
    pub(crate) fn vacate(&mut self, offset: u32) {
        assert!(!self.is_vacated(offset), "row {}:{offset} is vacated once", self.number);
        let ended = self.end(offset) != Word::NEVER;
        self.set_gone(offset);
        self.ending -= u32::from(ended);
        let words = (self.rows_max.max(self.rows()) as usize).div_ceil(64);
        let bits = self.vacated.get_or_insert_with(|| vec![0; words].into());
        bits[offset as usize >> 6] |= 1 << (offset & 63);
        self.vacated_count += 1;
    }

    pub(crate) fn vacated_count(&self) -> u32 {
        self.vacated_count
    }

    /// So many rows at the end are vacated.
    pub(crate) fn gone_at_end(&self) -> u32 {
        let gone = (0..self.rows()).rev().take_while(|offset| self.is_vacated(*offset));
        gone.count() as u32
    }

    /// Whether rows at the end can be [cut off](Segment::cut).
    pub(crate) fn is_cuttable(&self) -> bool {
        matches!(&self.state, State::Open { rows: OpenRows::Own { path, .. }, .. } if path.truncates())
    }

    /// Cuts off the last rows of an open segment, which are vacated, with their memory. None will follow, so that no
    /// address is used twice; as before they count as vacated for those that still know their address.
    pub(crate) fn cut(&mut self, gone: u32) {
        let rows = self.rows() - gone;
        let State::Open { rows: OpenRows::Own { path, .. }, words } = &mut self.state else {
            unreachable!("rows of segment {} are shared", self.number);
        };
        path.truncate(rows);
        words.truncate(rows as usize);
        self.vacated_count -= gone;
        self.rows_max = rows;
    }

    /// No row follows: gives back the room for them.
    pub(crate) fn close(&mut self) {
        let rows = self.rows();
        if let State::Open { rows: OpenRows::Own { path, .. }, .. } = &mut self.state
            && path.truncates()
        {
            path.truncate(rows);
            self.rows_max = rows;
        }
    }

    /// The next row from `offset` that is not vacated.
    pub(crate) fn next_occupied(&self, offset: u32) -> Option<u32> {
        (offset..self.rows()).find(|offset| !self.is_vacated(*offset))
    }

    /// Bytes reserved for the rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.path().bytes()
    }
}
