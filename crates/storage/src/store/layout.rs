//! Which layout which segment is to have, and where the next row goes.

use super::Store;
use super::maintain::EVACUATE_SHARE;
use crate::error::StorageError;
use crate::ids::{AttributeId, SegmentNumber};
use crate::modules::{AccessPath, Registry, layout_path};
use crate::physical::{PhysicalLayout, SegmentLayouts};
use crate::schema::{Layout, MIXED_MODULES, Schema, segment_bytes};
use crate::segment::{OpenRows, OpenWords, Segment, State, path_attributes};
use std::sync::Arc;

/// The layouts a partition's segments are to have.
pub(super) struct TargetLayouts {
    by_name: Named,
    /// What the schema's name stands for.
    name: Layout,
    by_hand: Option<Arc<SegmentLayouts>>,
}

/// What the name of a layout stands for.
enum Named {
    Fixed(SegmentLayouts),
    /// By the parity of a segment's number.
    Mixed([PhysicalLayout; 2]),
}

impl Named {
    fn of(layout: Layout, attributes: usize) -> Self {
        let single = |module: &str| PhysicalLayout::single(module, attributes);
        match layout.modules() {
            Some(modules) => Self::Fixed(SegmentLayouts { open: single(modules.open), sealed: single(modules.sealed) }),
            None => Self::Mixed(MIXED_MODULES.map(single)),
        }
    }
}

impl TargetLayouts {
    /// As the schema says.
    ///
    /// # Panics
    /// If the schema's layouts do not fit it: whoever makes a container checks them.
    pub(super) fn new(schema: &Schema, modules: &Registry) -> Self {
        if let Some(Err(error)) = schema.physical.as_ref().map(|layouts| layouts.check(&schema.attributes, modules)) {
            unreachable!("the layouts of container {} were checked: {error}", schema.container);
        }
        let by_name = Named::of(schema.layout, schema.attributes.len());
        Self { by_name, name: schema.layout, by_hand: schema.physical.clone() }
    }

    /// The layout of a new open segment.
    pub(super) fn open(&self, number: SegmentNumber) -> PhysicalLayout {
        let layout = match (&self.by_hand, &self.by_name) {
            (Some(layouts), _) => &layouts.open,
            (None, Named::Fixed(layouts)) => &layouts.open,
            (None, Named::Mixed(layouts)) => &layouts[number.0 as usize % 2],
        };
        layout.clone()
    }

    /// The layout of a segment that is sealed.
    pub(super) fn sealed(&self, number: SegmentNumber) -> PhysicalLayout {
        let layout = match (&self.by_hand, &self.by_name) {
            (Some(layouts), _) => &layouts.sealed,
            (None, Named::Fixed(layouts)) => &layouts.sealed,
            (None, Named::Mixed(layouts)) => &layouts[number.0 as usize % 2],
        };
        layout.clone()
    }

    /// Whether a segment may stay as it is.
    pub(super) fn suits(&self, segment: &Segment) -> bool {
        let layout = segment.layout();
        // A segment from before attributes were added need not be touched for them.
        let held = layout.attribute_count();
        let is_as = |target: &PhysicalLayout| {
            *layout == *target || (held < target.attribute_count() && *layout == target.restricted(held))
        };
        match (&self.by_hand, &self.by_name) {
            // A bulk load does not know the number its segment gets, so either will do.
            (None, Named::Mixed(layouts)) => layouts.iter().any(is_as),
            _ if segment.is_open() => is_as(&self.open(segment.number)),
            _ => is_as(&self.sealed(segment.number)),
        }
    }

    /// The schema gained attributes, from `first` on.
    pub(super) fn widen(&mut self, first: AttributeId, schema: &Schema) {
        let count = schema.attributes.len();
        self.by_name = Named::of(self.name, count);
        self.by_hand = self.by_hand.take().map(|layouts| Arc::new(layouts.widened(first, count)));
    }
}

/// A tail may be closed early when one part in this many of it is filled: segments of short rows are no smaller.
const TAIL_SHARE: u32 = 16;
/// Gone rows are removed from an open segment only if they hold at least this much memory.
const GONE_BYTES_MIN: u64 = 1 << 20;
/// Minimum row count for estimating bytes per row: the first pages reserve room for about this many.
const FIRST_ROWS: u32 = 64;

impl Store {
    /// Sets the layouts of this partition's segments by hand. New segments have them at once, the others are rebuilt by
    /// maintenance; a segment that is sealed changes to `sealed` on the way.
    pub fn set_layout(&mut self, open: PhysicalLayout, sealed: PhysicalLayout) -> Result<(), StorageError> {
        self.set_layouts(Some(Arc::new(SegmentLayouts { open, sealed })))
    }

    /// As [`Store::set_layout`]; none: as the schema's `layout` says.
    pub fn set_layouts(&mut self, layouts: Option<Arc<SegmentLayouts>>) -> Result<(), StorageError> {
        if let Some(layouts) = &layouts {
            layouts.check(&self.schema.attributes, self.modules)?;
        }
        if self.layouts.by_hand == layouts {
            return Ok(());
        }
        self.layouts.by_hand = layouts;
        // Half-built paths have the old layout.
        if let Some(job) = self.job.take() {
            self.candidates.insert(job.number());
        }
        for segment in self.segments.iter_mut().filter_map(Option::as_deref_mut) {
            segment.overwrites_paused = false;
        }
        let unsuited =
            self.live_segments().filter(|segment| !self.layouts.suits(segment)).map(|segment| segment.number);
        let unsuited: Vec<SegmentNumber> = unsuited.collect();
        self.candidates.extend(unsuited);
        self.plans.clear();
        Ok(())
    }

    /// The layouts that were set by hand, here or for the container.
    pub fn layouts(&self) -> Option<&Arc<SegmentLayouts>> {
        self.layouts.by_hand.as_ref()
    }

    /// Takes over the layouts of a partition of the same container: this one gets a part of its rows.
    pub fn inherit_layouts(&mut self, source: &Self) {
        if self.layouts.by_hand != source.layouts.by_hand
            && let Err(error) = self.set_layouts(source.layouts.by_hand.clone())
        {
            unreachable!("layouts that fit a partition fit its sibling: {error}");
        }
    }

    /// A path for all attributes.
    pub(super) fn new_path(&self, layout: &PhysicalLayout, rows_max: u32) -> Box<dyn AccessPath> {
        let (attributes, dictionaries) = (path_attributes(&self.schema), self.dictionaries.as_ref());
        layout_path(layout, &attributes, rows_max, self.modules, &self.memory, dictionaries)
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
    pub(super) fn tail(&mut self) -> Result<&mut Segment, StorageError> {
        self.leave_closed_tail();
        let number = match self.tail {
            Some(number) => number,
            None => self.open_tail()?,
        };
        match self.segment_mut(number) {
            Some(segment) => Ok(segment),
            None => unreachable!("the tail {number} exists"),
        }
    }

    /// A path that ran out of memory half-way takes no more rows: the next ones begin another segment.
    fn leave_closed_tail(&mut self) {
        let Some(number) = self.tail else { return };
        let Some(segment) = self.segment(number) else { return };
        if !segment.path().is_closed() {
            return;
        }
        let empty = segment.rows() == 0;
        self.close_tail();
        if empty {
            self.drop_segment(number);
        }
    }

    fn open_tail(&mut self) -> Result<SegmentNumber, StorageError> {
        let directory = Segment::directory(&self.memory, self.schema.attributes.len())?;
        let number = self.next_number();
        let rows_max = self.schema.segment_rows.max(1);
        let layout = self.layouts.open(number);
        let path = self.new_path(&layout, rows_max);
        let state = State::Open { rows: OpenRows::Own { layout, path }, words: OpenWords::new(&self.memory) };
        self.add_segment(Segment::new(number, state, rows_max, directory));
        self.tail = Some(number);
        Ok(number)
    }

    /// After rows were appended: a full tail is no tail any more.
    pub(super) fn close_tail_if_full(&mut self) {
        let bytes_max = segment_bytes(self.memory.database_limit());
        let Some(number) = self.tail else { return };
        let Some(tail) = self.segment_mut(number) else { return };
        let is_full = tail.is_full();
        if is_full || tail.path().bytes() >= bytes_max {
            if !is_full {
                tail.close();
            }
            self.tail = None;
            self.candidates.insert(number);
        }
    }

    /// The tail and its rows, if they are enough to be sealed without waiting for more: reading an open segment copies.
    /// Or if so many of them are gone that it is worth to move the rest: they hold memory until the segment goes.
    pub fn sealable_tail(&self) -> Option<(SegmentNumber, u32)> {
        let tail = self.segment(self.tail?)?;
        let vacated = tail.vacated_count();
        let mostly_gone = vacated >= self.gone_of_worth(tail) && vacated * EVACUATE_SHARE > tail.rows();
        (mostly_gone || tail.rows() - vacated >= self.rows_of_worth()).then(|| (tail.number, tail.rows()))
    }

    /// Minimum number of rows of a tail that justifies work on it.
    fn rows_of_worth(&self) -> u32 {
        (self.schema.segment_rows / TAIL_SHARE).max(1)
    }

    /// Minimum number of gone rows that justifies work on this open segment: fewer where rows are wide.
    pub(super) fn gone_of_worth(&self, segment: &Segment) -> u32 {
        let bytes = (segment_bytes(self.memory.database_limit()) / u64::from(TAIL_SHARE)).max(GONE_BYTES_MIN);
        let rows = bytes * u64::from(segment.rows().max(FIRST_ROWS)) / segment.path().bytes().max(1);
        self.rows_of_worth().min(u32::try_from(rows).unwrap_or(u32::MAX)).max(1)
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
