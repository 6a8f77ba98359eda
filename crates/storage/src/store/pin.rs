//! Pins: reading sealed segments without the latch.

use super::scan::FrozenRows;
use super::usage::PinnedUsage;
use super::{Store, with_scratch};
use crate::batch::Batch;
use crate::error::StorageError;
use crate::ids::SegmentNumber;
use crate::modules::PathFilter;
use crate::mvcc::Snapshot;
use crate::predicate::ReadRequest;
use crate::schema::Schema;
use crate::segment::{DeleteMap, SealedSegment, State};
use std::ops::Range;
use std::sync::Arc;

/// The sealed segments of a partition as one snapshot sees them. What is in open segments must be read by
/// [`Store::open_cursor_unsealed`], opened under the same latch.
#[derive(Clone, Default)]
pub struct PinnedPartition {
    pub segments: Vec<Arc<PinnedSegment>>,
}

/// A sealed segment, kept as it was when it was pinned.
pub struct PinnedSegment {
    schema: Arc<Schema>,
    number: SegmentNumber,
    segment: Arc<SealedSegment>,
    deletes: Arc<DeleteMap>,
    usage: Arc<PinnedUsage>,
}

/// How far a scan of a pinned segment is: rows examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedCursor(pub u32);

impl Store {
    /// Pins the sealed segments whose rows the snapshot sees. The snapshot must stay published as long as the pin is
    /// read, and only it may be used to read.
    pub fn pin(&mut self, snapshot: &Snapshot<'_>) -> PinnedPartition {
        let mut segments = Vec::new();
        for slot in self.live_segments() {
            if let State::Sealed { segment, begin, deletes } = &slot.state
                && snapshot.sees(*begin)
            {
                segments.push(Arc::new(PinnedSegment {
                    schema: Arc::clone(&self.schema),
                    number: slot.number,
                    segment: Arc::clone(segment),
                    deletes: DeleteMap::resolved(deletes, snapshot),
                    usage: Arc::clone(&self.usage.pinned),
                }));
            }
        }
        self.counters.pins += 1;
        PinnedPartition { segments }
    }
}

impl PinnedSegment {
    /// Its number in the partition.
    pub fn number(&self) -> SegmentNumber {
        self.number
    }

    /// Rows, deleted ones included.
    pub fn rows(&self) -> u32 {
        self.segment.rows()
    }

    /// The immutable rows.
    pub fn segment(&self) -> &Arc<SealedSegment> {
        &self.segment
    }

    /// The rows that the pin's snapshot sees, one bit each; none if it sees all of them.
    pub fn live_rows(&self, snapshot: &Snapshot<'_>) -> Option<Vec<u8>> {
        self.deletes.live_rows(snapshot, self.rows())
    }

    /// All rows, deleted ones included, columns in schema order. Where columns are held as such nothing is copied.
    /// `pause` is called behind some thousands of values, and behind each column that is decoded as a whole.
    pub fn all_rows(&self, pause: &mut dyn FnMut()) -> Batch {
        self.segment.to_rows_with_pauses(&self.schema, pause)
    }

    /// The schema of its partition when it was pinned.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The next rows that qualify and that the pin's snapshot sees: examines up to `rows_max` rows at a time until some
    /// are found; none at the end. Nothing is copied where a whole run of columns qualifies.
    pub fn scan(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        cursor: &mut PinnedCursor,
        rows_max: usize,
    ) -> Result<Option<Batch>, StorageError> {
        if cursor.0 == 0 && !self.segment.may_qualify(&request.predicate.conditions) {
            cursor.0 = self.rows();
        }
        while cursor.0 < self.rows() {
            let window = cursor.0..self.rows().min(cursor.0.saturating_add(rows_max.max(1) as u32));
            cursor.0 = window.end;
            let found = self.scan_window(snapshot, request, window)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The rows of one window that qualify and that the pin's snapshot sees, if any.
    pub fn scan_window(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        window: Range<u32>,
    ) -> Result<Option<Batch>, StorageError> {
        let conditions = &request.predicate.conditions;
        let all: Vec<u16> = (0..conditions.len() as u16).collect();
        let filter = PathFilter { conditions, selected: &all };
        let rows = FrozenRows { path: self.segment.path(), deletes: &self.deletes, schema: &self.schema };
        let examined = window.len();
        let found = with_scratch(|scratch| rows.scan(snapshot, filter, window, &request.desired, scratch))?;
        if examined > 0 {
            self.usage.scanned(request, examined, found.as_ref().map_or(0, |batch| batch.rows));
        }
        Ok(found)
    }
}
