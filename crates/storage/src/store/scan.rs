//! Scans: windows of rows are examined one after the other, and what qualifies in them becomes batches.

use super::before_images::link_with_earlier;
use super::cursor::{Gateway, Position, ReadCursor, ScanPosition};
use super::{Scratch, Store};
use crate::address::RowAddress;
use crate::batch::{BATCH_ROWS, Batch, Column, ColumnBuilder};
use crate::error::StorageError;
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::modules::{AccessPath, AccessPathScanState, PathFilter};
use crate::mvcc::Snapshot;
use crate::predicate::{Condition, ReadRequest};
use crate::schema::Schema;
use crate::segment::{DeleteMap, Segment, State};
use crate::types::DataType;
use std::ops::Range;

/// Windows a scan examines in one call at most before it gives a batch, even an empty one.
const SCAN_WINDOWS_MAX: usize = 8;

/// With fewer rows than this a scan goes on to the next windows of a segment: a batch costs something, however small.
const LISTED_ROWS_MIN: usize = BATCH_ROWS / 4;

/// Rows that a scan examines in one call when it only counts them: as many as otherwise, because a test of texts may
/// take long.
const COUNTED_ROWS_MAX: usize = SCAN_WINDOWS_MAX * BATCH_ROWS;

/// The same where numbers alone are tested, of rows as they are stored: a fraction of a nanosecond each, as a rule.
const COUNTED_NUMBERS_MAX: usize = 4 * COUNTED_ROWS_MAX;

/// What a scan finds in a window.
enum Examined {
    Nothing,
    /// Every row of the window.
    All,
    /// The rows whose offsets are in `scratch.offsets`.
    Listed,
    /// The same rows, linked already, because some of them have earlier values.
    Linked(Batch),
}

impl ScanPosition {
    /// Where the scan ends in a segment.
    fn rows_of(&self, segment: &Segment) -> u32 {
        if segment.number == self.end.0 { segment.rows().min(self.end.1) } else { segment.rows() }
    }
}

impl Store {
    /// The next rows that are visible and qualify; none at the end.
    pub(super) fn next_of_scan(
        &self,
        snapshot: &Snapshot<'_>,
        cursor: &mut ReadCursor,
        scratch: &mut Scratch,
    ) -> Result<Option<Gateway>, StorageError> {
        let Position::Scan(position) = &mut cursor.position else {
            unreachable!("called for scan cursors");
        };
        let request = &cursor.request;
        let filter = PathFilter { conditions: &request.predicate.conditions, selected: &cursor.plan.all };
        for examined in 1..=SCAN_WINDOWS_MAX {
            let Some((segment, window)) = self.next_window(snapshot, request, position, |_| BATCH_ROWS) else {
                cursor.position = Position::Done;
                return Ok(None);
            };
            let (path, schema) = (segment.path(), &*self.schema);
            let found = self.examine(segment, snapshot, filter, window.clone(), &request.desired, scratch)?;
            let mut rows_examined = window.len();
            let (batch, all) = match found {
                Examined::Nothing => {
                    cursor.plan.usage.scanned(rows_examined, 0);
                    continue;
                }
                Examined::All => (link_run(path, window.clone(), &request.desired, scratch, schema), true),
                Examined::Listed => {
                    let windows = SCAN_WINDOWS_MAX - examined;
                    rows_examined += self.list_more(segment, snapshot, filter, position, windows, scratch)?;
                    (link_listed(path, &request.desired, &scratch.offsets, schema), false)
                }
                Examined::Linked(batch) => (batch, false),
            };
            cursor.plan.usage.scanned(rows_examined, batch.rows);
            let address = |offset: u32| RowAddress::new(segment.number, RowOffset(offset));
            let addresses = match all {
                _ if !cursor.with_addresses => Box::default(),
                true => window.map(address).collect(),
                false => scratch.offsets.iter().map(|offset| address(*offset)).collect(),
            };
            return Ok(Some(Gateway { batch, addresses }));
        }
        let types = request.desired.iter().map(|id| self.schema.attributes[id.index()].data_type);
        Ok(Some(Gateway { batch: Batch::empty(&types.collect::<Vec<_>>()), addresses: Box::default() }))
    }

    /// How many of the next rows are visible and qualify.
    pub(super) fn next_count(
        &self,
        snapshot: &Snapshot<'_>,
        cursor: &mut ReadCursor,
        scratch: &mut Scratch,
    ) -> Result<Option<Gateway>, StorageError> {
        let Position::Scan(position) = &mut cursor.position else {
            unreachable!("called for scan cursors");
        };
        let request = &cursor.request;
        let type_of = |condition: &Condition| self.schema.attributes[condition.attribute.index()].data_type;
        let is_long = |condition: &Condition| matches!(type_of(condition), DataType::Text | DataType::Bytes);
        let numbers = !request.predicate.conditions.iter().any(is_long);
        let rows_max = |segment: &Segment| {
            if numbers && self.is_as_stored(segment, snapshot) { COUNTED_NUMBERS_MAX } else { COUNTED_ROWS_MAX }
        };
        let Some((segment, window)) = self.next_window(snapshot, request, position, rows_max) else {
            cursor.position = Position::Done;
            return Ok(None);
        };
        let filter = PathFilter { conditions: &request.predicate.conditions, selected: &cursor.plan.all };
        let rows = if self.is_as_stored(segment, snapshot) {
            if filter.is_empty() {
                window.len()
            } else {
                segment.path().count(&mut scratch.scan, filter, window.clone())?
            }
        } else {
            let mut rows = 0;
            for start in window.clone().step_by(BATCH_ROWS) {
                let part = start..window.end.min(start + BATCH_ROWS as u32);
                rows += match self.examine(segment, snapshot, filter, part.clone(), &[], scratch)? {
                    Examined::Nothing => 0,
                    Examined::All => part.len(),
                    Examined::Listed => scratch.offsets.len(),
                    Examined::Linked(batch) => batch.rows,
                };
            }
            rows
        };
        cursor.plan.usage.scanned(window.len(), rows);
        Ok(Some(Gateway { batch: Batch::new([], rows), addresses: Box::default() }))
    }

    /// Whether a snapshot sees exactly the rows of a segment, as they are stored.
    fn is_as_stored(&self, segment: &Segment, snapshot: &Snapshot<'_>) -> bool {
        match &segment.state {
            State::Open { .. } => false,
            State::Sealed { begin, deletes, .. } => {
                snapshot.sees(*begin) && deletes.is_empty() && !self.before_images.has_any_in(segment.number)
            }
        }
    }

    /// Finds the rows of a window that are visible and qualify.
    fn examine(
        &self,
        segment: &Segment,
        snapshot: &Snapshot<'_>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        desired: &[AttributeId],
        scratch: &mut Scratch,
    ) -> Result<Examined, StorageError> {
        let (path, schema) = (segment.path(), &*self.schema);
        scratch.offsets.clear();
        if filter.is_empty()
            && let State::Sealed { begin, deletes, .. } = &segment.state
            && snapshot.sees(*begin)
            && !deletes.hidden_in(snapshot, window.clone(), &mut scratch.hidden)
        {
            return Ok(Examined::All);
        }
        list(segment, snapshot, filter, window.clone(), &mut scratch.scan, &mut scratch.hidden, &mut scratch.offsets)?;
        let earlier = self.before_images.qualifying(segment, snapshot, filter, window.clone(), schema);
        if !earlier.is_empty() {
            return Ok(Examined::Linked(link_with_earlier(path, desired, &mut scratch.offsets, &earlier, schema)));
        }
        Ok(match scratch.offsets.len() {
            0 => Examined::Nothing,
            rows if rows == window.len() => Examined::All,
            _ => Examined::Listed,
        })
    }

    /// Lists rows of up to so many further windows of a segment behind those that are listed, while these are few and
    /// make a batch together. Returns how many rows it examined.
    fn list_more(
        &self,
        segment: &Segment,
        snapshot: &Snapshot<'_>,
        filter: PathFilter<'_>,
        position: &mut ScanPosition,
        windows: usize,
        scratch: &mut Scratch,
    ) -> Result<usize, StorageError> {
        let from = position.offset;
        if self.before_images.has_any_in(segment.number) {
            return Ok(0);
        }
        let Scratch { offsets, more, scan, hidden, .. } = scratch;
        let end = position.rows_of(segment);
        for _ in 0..windows {
            let window = position.offset..end.min(position.offset + BATCH_ROWS as u32);
            if offsets.len() >= LISTED_ROWS_MIN || window.is_empty() {
                break;
            }
            more.clear();
            list(segment, snapshot, filter, window.clone(), scan, hidden, more)?;
            if offsets.len() + more.len() > BATCH_ROWS {
                // The next batch begins with it.
                break;
            }
            offsets.extend_from_slice(more);
            position.offset = window.end;
        }
        Ok((position.offset - from) as usize)
    }

    /// The next rows to examine, and moves the position behind them. Segments that cannot qualify are passed over.
    fn next_window(
        &self,
        snapshot: &Snapshot<'_>,
        request: &ReadRequest,
        position: &mut ScanPosition,
        rows_max: impl Fn(&Segment) -> usize,
    ) -> Option<(&Segment, Range<u32>)> {
        loop {
            if position.segment > position.end.0 {
                return None;
            }
            if let Some(only) = &position.only
                && only.binary_search(&position.segment).is_err()
            {
                let next = only.partition_point(|number| *number < position.segment);
                position.segment = *only.get(next)?;
                position.offset = 0;
                continue;
            }
            let next_segment = SegmentNumber(position.segment.0 + 1);
            match self.segment(position.segment) {
                Some(segment) if position.offset < position.rows_of(segment) => {
                    if position.offset == 0 && !may_qualify(segment, snapshot, request) {
                        position.segment = next_segment;
                        continue;
                    }
                    let end = position.rows_of(segment).min(position.offset + rows_max(segment) as u32);
                    let window = position.offset..end;
                    position.offset = window.end;
                    return Some((segment, window));
                }
                Some(_) | None => {
                    position.segment = next_segment;
                    position.offset = 0;
                }
            }
        }
    }
}

/// Appends the offsets of a window's rows that are visible and qualify as they are stored.
fn list(
    segment: &Segment,
    snapshot: &Snapshot<'_>,
    filter: PathFilter<'_>,
    window: Range<u32>,
    scan: &mut AccessPathScanState,
    hidden: &mut Vec<u8>,
    offsets: &mut Vec<u32>,
) -> Result<(), StorageError> {
    segment.path().scan(scan, filter, window.clone(), offsets)?;
    if !offsets.is_empty() {
        segment.retain_visible(snapshot, window, hidden, offsets);
    }
    Ok(())
}

/// Whether a segment may have rows for the request: sealed ones know their smallest and largest values.
fn may_qualify(segment: &Segment, snapshot: &Snapshot<'_>, request: &ReadRequest) -> bool {
    match &segment.state {
        State::Open { .. } => true,
        State::Sealed { segment, begin, .. } => {
            snapshot.sees(*begin) && segment.may_qualify(&request.predicate.conditions)
        }
    }
}

/// All rows of a window.
fn link_run(
    path: &dyn AccessPath,
    window: Range<u32>,
    desired: &[AttributeId],
    scratch: &mut Scratch,
    schema: &Schema,
) -> Batch {
    let mut listed = false;
    let columns = desired.iter().map(|id| {
        path.shared(*id, window.clone()).unwrap_or_else(|| {
            if !listed {
                scratch.offsets.clear();
                scratch.offsets.extend(window.clone());
                listed = true;
            }
            link_one(path, *id, &scratch.offsets, schema)
        })
    });
    Batch { columns: columns.collect(), rows: window.len() }
}

/// The rows of a window that `scratch.offsets` lists.
fn link_offsets(
    path: &dyn AccessPath,
    window: Range<u32>,
    desired: &[AttributeId],
    scratch: &mut Scratch,
    schema: &Schema,
) -> Option<Batch> {
    if scratch.offsets.is_empty() {
        return None;
    }
    if scratch.offsets.len() == window.len() {
        return Some(link_run(path, window, desired, scratch, schema));
    }
    Some(link_listed(path, desired, &scratch.offsets, schema))
}

fn link_listed(path: &dyn AccessPath, desired: &[AttributeId], offsets: &[u32], schema: &Schema) -> Batch {
    let columns = desired.iter().map(|id| link_one(path, *id, offsets, schema)).collect();
    Batch { columns, rows: offsets.len() }
}

fn link_one(path: &dyn AccessPath, id: AttributeId, offsets: &[u32], schema: &Schema) -> Column {
    if let Some(gathered) = path.gather(id, offsets) {
        return gathered;
    }
    let mut out = ColumnBuilder::with_capacity(schema.attributes[id.index()].data_type, offsets.len());
    path.link(id, offsets, &mut out);
    out.finish()
}

/// What a pin reads of a sealed segment.
pub(super) struct FrozenRows<'a> {
    pub path: &'a dyn AccessPath,
    pub deletes: &'a DeleteMap,
    pub schema: &'a Schema,
}

impl FrozenRows<'_> {
    /// The rows of a window that qualify and are not hidden.
    pub(super) fn scan(
        &self,
        snapshot: &Snapshot<'_>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        desired: &[AttributeId],
        scratch: &mut Scratch,
    ) -> Result<Option<Batch>, StorageError> {
        let Self { path, deletes, schema } = *self;
        let any_hidden = deletes.hidden_in(snapshot, window.clone(), &mut scratch.hidden);
        if filter.is_empty() && !any_hidden {
            return Ok(Some(link_run(path, window, desired, scratch, schema)));
        }
        scratch.offsets.clear();
        path.scan(&mut scratch.scan, filter, window.clone(), &mut scratch.offsets)?;
        if any_hidden {
            scratch.offsets.retain(|offset| scratch.hidden[(offset - window.start) as usize] == 0);
        }
        Ok(link_offsets(path, window, desired, scratch, schema))
    }
}
