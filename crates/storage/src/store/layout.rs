//! Which storage module holds which segment, and where the next row goes.

use super::Store;
use crate::ids::SegmentNumber;
use crate::modules::{AccessPath, COLUMN, PathConfiguration, ROW_STATIC};
use crate::schema::Layout;
use crate::segment::{OpenRows, OpenWords, Segment, State, path_attributes};

fn by_parity(number: SegmentNumber) -> &'static str {
    if number.0.is_multiple_of(2) { ROW_STATIC } else { COLUMN }
}

/// The module of an open segment.
pub(super) fn open_module(layout: Layout, number: SegmentNumber) -> &'static str {
    match layout {
        Layout::Row | Layout::Default => ROW_STATIC,
        Layout::Column => COLUMN,
        Layout::Mixed => by_parity(number),
    }
}

/// The module of a sealed segment.
pub(super) fn sealed_module(layout: Layout, number: SegmentNumber) -> &'static str {
    match layout {
        Layout::Row => ROW_STATIC,
        Layout::Column | Layout::Default => COLUMN,
        Layout::Mixed => by_parity(number),
    }
}

/// A tail may be closed early when one part in this many of it is filled: that bounds how small segments get.
const TAIL_SHARE: u32 = 16;

impl Store {
    /// A path for all attributes.
    pub(super) fn new_path(&self, module: &str, rows_max: u32) -> Box<dyn AccessPath> {
        let attributes = path_attributes(&self.schema);
        self.modules.create_rows(module, PathConfiguration { attributes: &attributes, rows_max, memory: &self.memory })
    }

    /// The number the next new segment gets.
    pub(super) fn next_number(&self) -> SegmentNumber {
        SegmentNumber(self.segments.len() as u32)
    }

    /// Enters a new segment.
    pub(super) fn add_segment(&mut self, segment: Segment) {
        assert!(segment.number == self.next_number(), "segments are numbered in order");
        self.segments.push(Some(Box::new(segment)));
    }

    /// The segment that takes the next row; it has room for at least one.
    pub(super) fn tail(&mut self) -> &mut Segment {
        let number = self.tail.unwrap_or_else(|| self.open_tail());
        match self.segment_mut(number) {
            Some(segment) => segment,
            None => unreachable!("the tail {number} exists"),
        }
    }

    fn open_tail(&mut self) -> SegmentNumber {
        let number = self.next_number();
        let rows_max = self.schema.segment_rows.max(1);
        let path = self.new_path(open_module(self.schema.layout, number), rows_max);
        let state = State::Open { rows: OpenRows::Own(path), words: OpenWords::new(&self.memory) };
        self.add_segment(Segment::new(number, state, rows_max));
        self.tail = Some(number);
        number
    }

    /// After rows were appended: a full tail is no tail any more.
    pub(super) fn close_tail_if_full(&mut self) {
        if let Some(number) = self.tail
            && self.segment(number).is_some_and(Segment::is_full)
        {
            self.tail = None;
            self.candidates.insert(number);
        }
    }

    /// The tail and its rows, if they are enough to be sealed without waiting for more: reading an open segment copies.
    pub fn sealable_tail(&self) -> Option<(SegmentNumber, u32)> {
        let tail = self.segment(self.tail?)?;
        let live = tail.rows() - tail.vacated_count();
        (live >= (self.schema.segment_rows / TAIL_SHARE).max(1)).then(|| (tail.number, tail.rows()))
    }

    /// Ends the tail, so that it can be sealed; the next row begins another.
    pub fn close_tail(&mut self) {
        if let Some(number) = self.tail.take() {
            self.candidates.insert(number);
        }
    }

    /// Drops a segment none of whose rows is left.
    pub(super) fn drop_segment(&mut self, number: SegmentNumber) {
        let Some(segment) = self.segment(number) else { return };
        assert!(segment.vacated_count() == segment.rows(), "segment {number} still has rows");
        assert!(self.tail != Some(number), "the tail is not dropped");
        self.segments[number.0 as usize] = None;
        self.candidates.remove(&number);
        self.counters.dropped += 1;
    }
}
