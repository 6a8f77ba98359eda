//! Slots of a few sizes in regions of 2 MiB.
//!
//! ```text
//! region   2 MiB, mapped       |span|span|    span     |  free  | ...     in units of 64 KiB, a bit for each
//! span     1..32 units         |slot|slot|slot|slot|slot|.|               all of one size class
//! ```
//! Sizes come in classes, four for each doubling above 256 bytes, so a slot is at most a quarter larger than what was
//! asked for. A span is long enough to lose at most an eighth of itself to the rest behind its last slot. Freed slots
//! are reused last in, first out, while their lines are warm. A span without slots in use returns its units
//! (the last small one of a class stays), a region without spans is unmapped unless it is the last.

use std::io;
use std::ptr::NonNull;

use super::BLOCK_ALIGN;
use super::mapping::{MapOptions, Mapping, NumaPlacement};

const REGION_BYTES: usize = 2 << 20;
const UNIT_BYTES: usize = 64 << 10;
const UNITS: u32 = (REGION_BYTES / UNIT_BYTES) as u32;
const _: () = assert!(UNITS == u32::BITS, "the units of a region are the bits of a word");

/// Larger blocks get a mapping of their own: from here on rounding to pages wastes less than a class would, and the
/// system calls are small beside the zeroing.
pub(super) const SLOT_BYTES_MAX: usize = 256 << 10;

/// Classes of 64, 128, 192, 256 bytes, then four per doubling up to [`SLOT_BYTES_MAX`].
const CLASSES: usize = 4 + 4 * (SLOT_BYTES_MAX / 256).ilog2() as usize;

/// The class for `length` bytes (1 to [`SLOT_BYTES_MAX`]).
const fn class_of(length: usize) -> usize {
    if length <= 256 {
        return length.div_ceil(64) - 1;
    }
    // 256 < length: the doubling it falls into, and the quarter of it.
    let doubling = (length - 1).ilog2() as usize;
    let quarter = (length - 1) >> (doubling - 2);
    4 + 4 * (doubling - 8) + (quarter - 4)
}

const fn bytes_of(class: usize) -> usize {
    if class < 4 {
        return 64 * (class + 1);
    }
    let (doubling, quarter) = ((class - 4) / 4 + 8, (class - 4) % 4);
    (4 + quarter + 1) << (doubling - 2)
}

const _: () = assert!(class_of(SLOT_BYTES_MAX) == CLASSES - 1 && bytes_of(CLASSES - 1) == SLOT_BYTES_MAX);
const _: () = assert!(bytes_of(0) == BLOCK_ALIGN, "every class is a multiple of the alignment");

/// The bytes a block of `length` really takes.
pub(super) const fn slot_bytes(length: usize) -> usize {
    bytes_of(class_of(length))
}

/// Units of a span of `class`: the fewest that lose at most an eighth.
const fn units_of(class: usize) -> u32 {
    let bytes = bytes_of(class);
    let mut units = 1;
    while units < UNITS {
        let span = units as usize * UNIT_BYTES;
        if span >= bytes && (span % bytes) * 8 <= span {
            break;
        }
        units += 1;
    }
    units
}

/// Names a slot in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotId {
    span: u32,
    slot: u32,
}

/// A slot handed out.
pub(super) struct Slot {
    pub(super) start: NonNull<u8>,
    pub(super) id: SlotId,
    /// Whether it was used before and must be zeroed.
    pub(super) dirty: bool,
}

struct Region {
    mapping: Mapping,
    /// A bit for each unit that belongs to no span.
    free_units: u32,
    /// A bit for each unit that was part of a span before.
    dirty_units: u32,
}

struct Span {
    region: u32,
    unit_first: u32,
    class: u16,
    slots: u32,
    in_use: u32,
    /// Slots from here on were never handed out by this span.
    fresh: u32,
    /// Whether the units were used by an earlier span.
    dirty: bool,
    /// Freed slots.
    free: Vec<u32>,
}

impl Span {
    fn has_room(&self) -> bool {
        self.in_use < self.slots
    }
}

/// All regions of one arena.
pub(super) struct Spans {
    options: MapOptions,
    /// Gaps are reused.
    regions: Vec<Option<Region>>,
    items: Vec<Option<Span>>,
    /// For each class the spans that have room.
    with_room: Vec<Vec<u32>>,
}

impl Spans {
    pub(super) fn new(options: MapOptions) -> Spans {
        Spans { options, regions: Vec::new(), items: Vec::new(), with_room: vec![Vec::new(); CLASSES] }
    }

    pub(super) fn region_bytes(&self) -> u64 {
        (self.regions.iter().flatten().count() * REGION_BYTES) as u64
    }

    pub(super) fn numa_placement(&self) -> Option<NumaPlacement> {
        self.regions.iter().flatten().next().map(|region| region.mapping.placement.clone())
    }

    /// A slot for `length` bytes; fails if a region is needed and the operating system refuses it.
    pub(super) fn allocate(&mut self, length: usize) -> io::Result<Slot> {
        let class = class_of(length);
        let span_id = match self.with_room[class].last() {
            Some(&span) => span,
            None => self.new_span(class)?,
        };
        let Spans { regions, items, with_room, .. } = self;
        let (Some(span), class_bytes) = (items[span_id as usize].as_mut(), bytes_of(class)) else {
            unreachable!("a span with room exists");
        };
        let reused = span.free.pop();
        let slot = reused.unwrap_or(span.fresh);
        let dirty = reused.is_some() || span.dirty;
        if reused.is_none() {
            span.fresh += 1;
        }
        span.in_use += 1;
        assert!(slot < span.slots && span.in_use <= span.slots, "slot {slot} of {} was handed out", span.slots);
        if !span.has_room() {
            with_room[class].pop();
        }
        let Some(region) = &regions[span.region as usize] else {
            unreachable!("a span's region is mapped as long as the span exists");
        };
        let offset = span.unit_first as usize * UNIT_BYTES + slot as usize * class_bytes;
        assert!(offset + class_bytes <= REGION_BYTES, "a slot ends within its region");
        // SAFETY: the offset lies within the region's mapping.
        let start = unsafe { region.mapping.start().add(offset) };
        Ok(Slot { start, id: SlotId { span: span_id, slot }, dirty })
    }

    pub(super) fn free(&mut self, id: SlotId) {
        let Some(span) = self.items[id.span as usize].as_mut() else {
            unreachable!("a slot in use has a span");
        };
        assert!(span.in_use > 0 && id.slot < span.fresh, "slot {id:?} is freed, but not in use");
        debug_assert!(!span.free.contains(&id.slot), "slot {id:?} is freed twice");
        let was_full = !span.has_room();
        span.free.push(id.slot);
        span.in_use -= 1;
        let (class, empty) = (usize::from(span.class), span.in_use == 0);
        if was_full {
            self.with_room[class].push(id.span);
        }
        // The last span of a class stays if it is small, lest one block that comes and goes remakes it every time.
        if empty && (units_of(class) > 1 || self.with_room[class].len() > 1) {
            self.release_span(id.span);
        }
    }

    /// Takes units for a span of `class` from the first region that has them side by side, or from a new one.
    fn new_span(&mut self, class: usize) -> io::Result<u32> {
        let units = units_of(class);
        let found = self.regions.iter().enumerate().find_map(|(index, region)| {
            let first = first_run(region.as_ref()?.free_units, units)?;
            Some((index, first))
        });
        let (region_index, unit_first) = match found {
            Some(found) => found,
            None => (self.new_region()?, 0),
        };
        let Some(region) = self.regions[region_index].as_mut() else {
            unreachable!("the region was just found or made");
        };
        let mask = run_mask(unit_first, units);
        assert_eq!(region.free_units & mask, mask, "the units of a span are free");
        let dirty = region.dirty_units & mask != 0;
        region.free_units &= !mask;
        region.dirty_units |= mask;
        let span = Span {
            region: region_index as u32,
            unit_first,
            class: class as u16,
            slots: (units as usize * UNIT_BYTES / bytes_of(class)) as u32,
            in_use: 0,
            fresh: 0,
            dirty,
            free: Vec::new(),
        };
        let id = insert_in_gap(&mut self.items, span) as u32;
        self.with_room[class].push(id);
        Ok(id)
    }

    fn new_region(&mut self) -> io::Result<usize> {
        let mapping = Mapping::new(REGION_BYTES, REGION_BYTES, self.options)?;
        let region = Region { mapping, free_units: u32::MAX, dirty_units: 0 };
        Ok(insert_in_gap(&mut self.regions, region))
    }

    fn release_span(&mut self, id: u32) {
        let Some(span) = self.items[id as usize].take() else {
            unreachable!("only a span that exists is released");
        };
        assert_eq!(span.in_use, 0, "a span with slots in use is released");
        self.with_room[usize::from(span.class)].retain(|&other| other != id);
        let Some(region) = self.regions[span.region as usize].as_mut() else {
            unreachable!("a span's region is mapped as long as the span exists");
        };
        region.free_units |= run_mask(span.unit_first, units_of(usize::from(span.class)));
        if region.free_units == u32::MAX && self.regions.iter().flatten().count() > 1 {
            self.regions[span.region as usize] = None;
        }
    }
}

/// The first of `length` neighbouring ones.
fn first_run(bits: u32, length: u32) -> Option<u32> {
    (0..=UNITS - length).find(|&first| bits & run_mask(first, length) == run_mask(first, length))
}

fn run_mask(first: u32, length: u32) -> u32 {
    (u32::MAX >> (UNITS - length)) << first
}

fn insert_in_gap<T>(items: &mut Vec<Option<T>>, item: T) -> usize {
    if let Some(gap) = items.iter().position(Option::is_none) {
        items[gap] = Some(item);
        return gap;
    }
    items.push(Some(item));
    items.len() - 1
}
