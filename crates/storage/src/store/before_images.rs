//! Before-images: what rows that were updated in place were before, and how readers that may not see the newest version
//! read an earlier one.
//!
//! ```text
//!   segment   offset   row                  begin        before-images of row 2:7, oldest first
//!   2         6        ...                  @12
//!             7        k=5 a=30 b=9 t="x"   lock 8.3 ──> [ begin @4   a=10     ]
//!             8        ...                  @15          [ begin @12  a=20 b=8 ]
//!                                                          lock 8.3 seen: a=30 b=9
//!                      versions of 2:7 for a snapshot that   else @12 seen: a=20 b=8
//!                                                          else  @4 seen: a=10 b=8
//! ```
//! An image keeps the begin word and the values that an update overwrote, and no others: what it lacks is found in the
//! next newer image, or else in the row. Only values of fixed width that no index holds are overwritten, so keys, long
//! values and index entries are those of all versions. The begin words of a row's versions never fall from the oldest
//! image to the row itself; the row's one end word ends them all.
//!
//! A reader decides as ever by the words of the row. Only where it does not see the row's begin does it look here; a
//! store without images asks one flag. A scan filters and links the newest versions as if there were no others (those
//! it may not see fall out by their begin) and adds the few rows of which it sees an image.
//!
//! Images are made, restored, stamped and freed in `overwrite.rs`. The table is the store's, not a segment's: it is
//! small, and the first thing to know is that it is empty.

use super::Store;
use super::dying::Dying;
use crate::address::RowAddress;
use crate::batch::{Batch, ColumnBuilder, FixedValue, PackedRows};
use crate::ids::{AttributeId, RowOffset, SegmentNumber};
use crate::modules::{AccessPath, PathFilter};
use crate::mvcc::{Holder, Outcome, Outcomes, Snapshot, Timestamp, Word, WordKind};
use crate::schema::Schema;
use crate::segment::Segment;
use crate::value::Value;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A value that was overwritten.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldField {
    pub attribute: AttributeId,
    pub value: FixedValue,
}

/// What one update overwrote.
#[derive(Debug)]
pub(super) struct Image {
    /// When the version that was overwritten began.
    pub begin: Word,
    pub fields: Box<[OldField]>,
}

/// Images of a store at most: a split or a new index turns them into rows of their own in one go. With so many an
/// update appends a version, as it does where it cannot overwrite.
const IMAGES_MAX: usize = 2_048;

/// What an image costs without its values, about.
const IMAGE_BYTES: u64 = 96;

fn bytes_of(fields: usize) -> u64 {
    IMAGE_BYTES + (fields * size_of::<OldField>()) as u64
}

/// See the module's documentation.
pub(super) struct BeforeImages {
    /// Oldest first; no list is empty.
    rows: BTreeMap<RowAddress, Vec<Image>>,
    images: usize,
    /// Rows by the timestamp of a version that has images before it: to be freed when nobody can see those.
    pub superseded: Dying,
    memory: Reservation,
}

/// An earlier version of a row: the image that counts, then all newer ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<'a>(&'a [Image]);

impl BeforeImages {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        let superseded = Dying::new(memory);
        Self { rows: BTreeMap::new(), images: 0, superseded, memory: memory.reserve("before-images") }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Images.
    pub(super) fn len(&self) -> usize {
        self.images
    }

    /// Bytes of the images that only wait until no snapshot sees them, about.
    pub(super) fn superseded_bytes(&self) -> u64 {
        let images = self.images as u64;
        self.memory.bytes() * self.superseded.rows().min(images) / images.max(1)
    }

    /// Whether a row has images.
    pub(super) fn has(&self, row: RowAddress) -> bool {
        self.rows.contains_key(&row)
    }

    /// Whether any row of a segment has images.
    pub(super) fn has_any_in(&self, number: SegmentNumber) -> bool {
        let first = RowAddress::new(number, RowOffset(0));
        self.rows.range(first..).next().is_some_and(|(row, _)| row.segment() == number)
    }

    /// The first row that has images.
    pub(super) fn first(&self) -> Option<RowAddress> {
        self.rows.first_key_value().map(|(row, _)| *row)
    }

    /// The images of a row, oldest first.
    pub(super) fn of(&self, row: RowAddress) -> &[Image] {
        self.rows.get(&row).map_or(&[], Vec::as_slice)
    }

    /// The begin words of a row's images, to be stamped.
    pub(super) fn begins_mut(&mut self, row: RowAddress) -> impl Iterator<Item = &mut Word> {
        self.rows.get_mut(&row).into_iter().flatten().map(|image| &mut image.begin)
    }

    /// Reserves for an image with so many values; false if there is no room for it.
    pub(super) fn reserve(&self, fields: usize) -> bool {
        self.images < IMAGES_MAX && self.memory.grow(bytes_of(fields)).is_ok()
    }

    /// Gives back what `reserve` took and `push` did not use.
    pub(super) fn unreserve(&self, fields: usize) {
        self.memory.shrink(bytes_of(fields));
    }

    /// Adds the newest image of a row; its memory is reserved.
    pub(super) fn push(&mut self, row: RowAddress, image: Image) {
        self.images += 1;
        self.rows.entry(row).or_default().push(image);
    }

    /// Takes the newest image of a row.
    pub(super) fn pop(&mut self, row: RowAddress) -> Option<Image> {
        let list = self.rows.get_mut(&row)?;
        let image = list.pop()?;
        if list.is_empty() {
            self.rows.remove(&row);
        }
        self.images -= 1;
        self.memory.shrink(bytes_of(image.fields.len()));
        Some(image)
    }

    /// Drops the oldest images of a row.
    pub(super) fn drop_oldest(&mut self, row: RowAddress, count: usize) {
        let Some(list) = self.rows.get_mut(&row) else { return };
        let dropped: u64 = list.drain(..count).map(|image| bytes_of(image.fields.len())).sum();
        if list.is_empty() {
            self.rows.remove(&row);
        }
        self.images -= count;
        self.memory.shrink(dropped);
    }

    /// Rows of a window of which the snapshot sees an image that qualifies.
    pub(super) fn qualifying(
        &self,
        segment: &Segment,
        snapshot: &Snapshot<'_>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        schema: &Schema,
    ) -> Vec<(u32, Before<'_>)> {
        if self.is_empty() {
            return Vec::new();
        }
        let at = |offset| RowAddress::new(segment.number, RowOffset(offset));
        let rows = self.rows.range(at(window.start)..at(window.end)).filter_map(|(row, images)| {
            let before = seen(segment, snapshot, row.offset().0, images)?;
            Some((row.offset().0, before))
        });
        rows.filter(|(offset, before)| before.qualifies(segment.path(), *offset, filter, schema)).collect()
    }
}

/// The image that a snapshot sees of a row whose newest version it does not see.
fn seen<'a>(segment: &Segment, snapshot: &Snapshot<'_>, offset: u32, images: &'a [Image]) -> Option<Before<'a>> {
    if snapshot.sees(segment.begin(offset)) || snapshot.sees(segment.end(offset)) {
        return None;
    }
    images.iter().rposition(|image| snapshot.sees(image.begin)).map(|from| Before(&images[from..]))
}

impl Before<'_> {
    /// The value of an attribute, if it was overwritten since.
    fn field(self, attribute: AttributeId) -> Option<FixedValue> {
        let mut fields = self.0.iter().flat_map(|image| &image.fields);
        fields.find(|field| field.attribute == attribute).map(|field| field.value)
    }

    /// Appends the version's value of an attribute; `path` holds the row.
    pub(super) fn link(self, path: &dyn AccessPath, attribute: AttributeId, offset: u32, out: &mut ColumnBuilder) {
        match self.field(attribute) {
            Some(value) => value.push_into(out),
            None => path.link(attribute, &[offset], out),
        }
    }

    /// Turns the last of `rows`, the newest version, into this one; its columns are `attributes`.
    pub(super) fn write_over(self, attributes: &[AttributeId], rows: &mut PackedRows) {
        let row = rows.len() - 1;
        for (column, attribute) in attributes.iter().enumerate() {
            if let Some(value) = self.field(*attribute) {
                value.write_into(rows, row, column);
            }
        }
    }

    /// Whether the version satisfies the conditions.
    pub(super) fn qualifies(self, path: &dyn AccessPath, offset: u32, filter: PathFilter<'_>, schema: &Schema) -> bool {
        let value_of = |attribute: AttributeId| -> Value {
            let mut column = ColumnBuilder::with_capacity(schema.attributes[attribute.index()].data_type, 1);
            self.link(path, attribute, offset, &mut column);
            column.finish().value(0)
        };
        filter.iter().all(|condition| condition.accepts(value_of))
    }
}

/// The rows at `offsets`, then earlier versions of others, whose offsets are appended.
pub(super) fn link_with_earlier(
    path: &dyn AccessPath,
    desired: &[AttributeId],
    offsets: &mut Vec<u32>,
    earlier: &[(u32, Before<'_>)],
    schema: &Schema,
) -> Batch {
    let rows = offsets.len() + earlier.len();
    let columns = desired.iter().map(|id| {
        let mut out = ColumnBuilder::with_capacity(schema.attributes[id.index()].data_type, rows);
        path.link(*id, offsets, &mut out);
        for (offset, before) in earlier {
            before.link(path, *id, *offset, &mut out);
        }
        out.finish()
    });
    let batch = Batch { columns: columns.collect(), rows };
    offsets.extend(earlier.iter().map(|(offset, _)| *offset));
    batch
}

/// The oldest version of a row that has images.
pub(super) fn all_of(images: &[Image]) -> Before<'_> {
    Before(images)
}

/// What stands between a writer and a row of which it sees an earlier version only.
#[derive(Clone, Copy, Debug)]
pub(super) enum Newer {
    /// This statement wrote it, or a later one of its transaction.
    Own,
    Undecided(Holder),
    Committed,
}

impl Store {
    /// Whether a snapshot sees some version of a row.
    #[inline]
    pub(super) fn sees_row(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> bool {
        let Some(segment) = self.segment(row.segment()) else { return false };
        segment.is_visible(snapshot, row.offset().0) || self.before(snapshot, row).is_some()
    }

    /// The version of a row that a snapshot sees, if it is not the newest one.
    #[inline]
    pub(super) fn before(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> Option<Before<'_>> {
        if self.before_images.is_empty() { None } else { self.find_before(snapshot, row) }
    }

    #[cold]
    fn find_before(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> Option<Before<'_>> {
        let images = self.before_images.rows.get(&row)?;
        seen(self.segment(row.segment())?, snapshot, row.offset().0, images)
    }

    /// Rows, which the snapshot sees, in runs that one segment answers for at a time; a row that is read as it was
    /// before is a run of its own.
    pub(super) fn runs<'s, 'f>(
        &'s self,
        snapshot: &'s Snapshot<'_>,
        rows: &'f [RowAddress],
    ) -> impl Iterator<Item = (&'f [RowAddress], Option<Before<'s>>)> {
        let newest = |row: &RowAddress| self.before(snapshot, *row).is_none();
        let runs = rows.chunk_by(move |left, right| left.segment() == right.segment() && newest(left) && newest(right));
        runs.map(|run| (run, self.before(snapshot, run[0])))
    }

    /// What a writer meets that does not see the newest version of a row but an earlier one.
    pub(super) fn newer_version(&self, snapshot: &Snapshot<'_>, row: RowAddress) -> Option<Newer> {
        let begin = self.segment(row.segment())?.begin(row.offset().0);
        if snapshot.sees(begin) || !self.before_images.has(row) {
            return None;
        }
        let WordKind::Lock { transaction, statement } = begin.kind() else { return Some(Newer::Committed) };
        Some(match snapshot.outcomes.outcome(transaction, statement) {
            Outcome::Committed(_) => Newer::Committed,
            Outcome::Active if transaction == snapshot.transaction => Newer::Own,
            // Rolled back since the row was restored, a moment ago: whoever waits for it goes on at once.
            Outcome::Active | Outcome::Aborted => Newer::Undecided(Holder { transaction, statement }),
        })
    }

    /// When a row began, for who asks for its key, which all versions have: the begin of the newest version that was
    /// not rolled back.
    pub(super) fn begin_of_key(&self, outcomes: &dyn Outcomes, segment: &Segment, offset: u32) -> Word {
        let begin = segment.begin(offset);
        if self.before_images.is_empty() || !begin.is_lock() {
            return begin;
        }
        let images = self.before_images.of(RowAddress::new(segment.number, RowOffset(offset)));
        let mut begins = std::iter::once(begin).chain(images.iter().rev().map(|image| image.begin));
        let stands = |word: &Word| match word.kind() {
            WordKind::Timestamp(_) => true,
            WordKind::Lock { transaction, statement } => outcomes.outcome(transaction, statement) != Outcome::Aborted,
        };
        begins.find(stands).unwrap_or_else(|| images.first().map_or(begin, |image| image.begin))
    }

    /// Before-images of rows, for the statistics.
    pub(super) fn before_image_count(&self) -> u64 {
        self.before_images.len() as u64
    }

    /// Frees the images that no snapshot can see, now or later, of up to `budget` rows; true if more are waiting.
    pub(super) fn free_images(&mut self, oldest: Timestamp, budget: &mut usize) -> bool {
        const FREE_ROWS: usize = 256;
        while self.before_images.superseded.has(oldest) {
            if *budget == 0 {
                return true;
            }
            let rows = self.before_images.superseded.take(oldest, FREE_ROWS.min(*budget));
            *budget -= rows.len();
            for row in rows {
                self.free_images_of(row, oldest);
            }
        }
        false
    }

    /// Drops the images before the newest version that everybody sees.
    fn free_images_of(&mut self, row: RowAddress, oldest: Timestamp) {
        let Some(segment) = self.segment(row.segment()) else { return };
        let images = self.before_images.of(row);
        if images.is_empty() {
            // It left its place, which may be gone as well.
            return;
        }
        let hidden = if segment.begin(row.offset().0).is_at_or_before(oldest) {
            images.len()
        } else {
            images.iter().rposition(|image| image.begin.is_at_or_before(oldest)).unwrap_or(0)
        };
        if hidden > 0 {
            self.before_images.drop_oldest(row, hidden);
            self.counters.images_freed += hidden as u64;
        }
    }

    /// A row that nobody sees any more leaves its place: so do its images.
    pub(super) fn forget_images(&mut self, row: RowAddress) {
        let images = self.before_images.of(row).len();
        if images > 0 {
            self.before_images.drop_oldest(row, images);
            self.counters.images_freed += images as u64;
        }
    }
}
