//! Slots of a few sizes in regions of 2 MiB.
//!
//! ```text
//! region   2 MiB, mapped       |span|span|    span     |  free  | ...     in units of 64 KiB, a bit for each
//! span     1..32 units         |slot|slot|slot|slot|slot|.|               all of one size class
//! ```
//! Sizes come in classes, four for each doubling above 256 bytes, so a slot is at most a quarter larger than what was
//! asked for. A span is long enough to lose at most an eighth of itself to the rest behind its last slot. Freed slots
//! are reused last in, first out, while their lines are warm. A span without slots in use returns its units
//! (the last small one of a class stays), a region without slots in use is unmapped (the last such stays).

use std::io;
use std::ptr::NonNull;

use super::BLOCK_ALIGN;
use super::mapping::{MapOptions, Mapping, NumaPlacement};
use super::pages::{Location, Policy, locate, migrate};
use crate::ids::NodeId;

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
    /// Its spans.
    spans: Vec<u32>,
    /// Slots in use in all of them.
    in_use: u32,
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
    regions: Table<Region>,
    items: Table<Span>,
    /// Regions that have units free.
    regions_with_units: Vec<u32>,
    /// For each class the spans that have room.
    with_room: Vec<Vec<u32>>,
}

impl Spans {
    pub(super) fn new(options: MapOptions) -> Spans {
        Spans {
            options,
            regions: Table::default(),
            items: Table::default(),
            regions_with_units: Vec::new(),
            with_room: vec![Vec::new(); CLASSES],
        }
    }

    pub(super) fn region_bytes(&self) -> u64 {
        (self.regions.iter().count() * REGION_BYTES) as u64
    }

    /// How new mappings are made.
    pub(super) fn options(&self) -> MapOptions {
        self.options
    }

    /// Where the regions lie.
    pub(super) fn location(&self) -> Location {
        let mut location = Location::default();
        for region in self.regions.iter() {
            location.add(&locate(region.mapping.start(), REGION_BYTES));
        }
        location
    }

    /// Moves the regions to `node`, where later ones are taken from, too.
    pub(super) fn migrate(&mut self, node: NodeId) -> Location {
        self.options.policy = Policy::Preferred(node);
        let mut location = Location::default();
        for region in self.regions.iter() {
            location.add(&migrate(region.mapping.start(), REGION_BYTES, node));
        }
        location
    }

    pub(super) fn numa_placement(&self) -> Option<NumaPlacement> {
        self.regions.iter().next().map(|region| region.mapping.placement.clone())
    }

    /// A slot for `length` bytes; fails if a region is needed and the operating system refuses it.
    pub(super) fn allocate(&mut self, length: usize) -> io::Result<Slot> {
        let class = class_of(length);
        let span_id = match self.with_room[class].last() {
            Some(&span) => span,
            None => self.new_span(class)?,
        };
        let Spans { regions, items, with_room, .. } = self;
        let (span, class_bytes) = (items.get_mut(span_id), bytes_of(class));
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
        let region = regions.get_mut(span.region);
        region.in_use += 1;
        let offset = span.unit_first as usize * UNIT_BYTES + slot as usize * class_bytes;
        assert!(offset + class_bytes <= REGION_BYTES, "a slot ends within its region");
        // SAFETY: the offset lies within the region's mapping.
        let start = unsafe { region.mapping.start().add(offset) };
        Ok(Slot { start, id: SlotId { span: span_id, slot }, dirty })
    }

    pub(super) fn free(&mut self, id: SlotId) {
        let span = self.items.get_mut(id.span);
        assert!(span.in_use > 0 && id.slot < span.fresh, "slot {id:?} is freed, but not in use");
        debug_assert!(!span.free.contains(&id.slot), "slot {id:?} is freed twice");
        let was_full = !span.has_room();
        span.free.push(id.slot);
        span.in_use -= 1;
        let (class, empty, region_id) = (usize::from(span.class), span.in_use == 0, span.region);
        if was_full {
            self.with_room[class].push(id.span);
        }
        // The last span of a class stays if it is small, lest one block that comes and goes remakes it every time.
        if empty && (units_of(class) > 1 || self.with_room[class].len() > 1) {
            self.release_span(id.span);
        }
        let region = self.regions.get_mut(region_id);
        region.in_use -= 1;
        if region.in_use == 0 {
            self.release_empty_region(region_id);
        }
    }

    /// Unmaps a region without slots in use, unless no other is empty: that one stays for the next block.
    fn release_empty_region(&mut self, region_id: u32) {
        if self.regions.iter().filter(|region| region.in_use == 0).count() < 2 {
            return;
        }
        for span in self.regions.get_mut(region_id).spans.clone() {
            self.release_span(span);
        }
        let region = self.regions.remove(region_id);
        assert_eq!(region.free_units, u32::MAX, "all units of a region without spans are free");
        self.regions_with_units.retain(|&other| other != region_id);
    }

    /// Takes units for a span of `class` from the first region that has them side by side, or from a new one.
    fn new_span(&mut self, class: usize) -> io::Result<u32> {
        let units = units_of(class);
        let mut fits = self.regions_with_units.iter().filter_map(|&region| {
            let first = first_run(self.regions.get(region).free_units, units)?;
            Some((region, first))
        });
        let (region_id, unit_first) = match fits.next() {
            Some(found) => found,
            None => (self.new_region()?, 0),
        };
        let region = self.regions.get_mut(region_id);
        let mask = run_mask(unit_first, units);
        assert_eq!(region.free_units & mask, mask, "the units of a span are free");
        let dirty = region.dirty_units & mask != 0;
        region.free_units &= !mask;
        region.dirty_units |= mask;
        if region.free_units == 0 {
            self.regions_with_units.retain(|&other| other != region_id);
        }
        let span = Span {
            region: region_id,
            unit_first,
            class: class as u16,
            slots: (units as usize * UNIT_BYTES / bytes_of(class)) as u32,
            in_use: 0,
            fresh: 0,
            dirty,
            free: Vec::new(),
        };
        let id = self.items.insert(span);
        self.regions.get_mut(region_id).spans.push(id);
        self.with_room[class].push(id);
        Ok(id)
    }

    fn new_region(&mut self) -> io::Result<u32> {
        let mapping = Mapping::new(REGION_BYTES, REGION_BYTES, self.options)?;
        let region = Region { mapping, free_units: u32::MAX, dirty_units: 0, spans: Vec::new(), in_use: 0 };
        let id = self.regions.insert(region);
        self.regions_with_units.push(id);
        Ok(id)
    }

    fn release_span(&mut self, id: u32) {
        let span = self.items.remove(id);
        assert_eq!(span.in_use, 0, "a span with slots in use is released");
        self.with_room[usize::from(span.class)].retain(|&other| other != id);
        let region = self.regions.get_mut(span.region);
        region.spans.retain(|&other| other != id);
        if region.free_units == 0 {
            self.regions_with_units.push(span.region);
        }
        region.free_units |= run_mask(span.unit_first, units_of(usize::from(span.class)));
    }
}

/// The first of `length` neighbouring ones.
fn first_run(bits: u32, length: u32) -> Option<u32> {
    (0..=UNITS - length).find(|&first| bits & run_mask(first, length) == run_mask(first, length))
}

fn run_mask(first: u32, length: u32) -> u32 {
    (u32::MAX >> (UNITS - length)) << first
}

/// Things by number; numbers of removed ones are used again.
struct Table<T> {
    items: Vec<Option<T>>,
    gaps: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { items: Vec::new(), gaps: Vec::new() }
    }
}

impl<T> Table<T> {
    fn insert(&mut self, item: T) -> u32 {
        if let Some(gap) = self.gaps.pop() {
            self.items[gap as usize] = Some(item);
            return gap;
        }
        self.items.push(Some(item));
        self.items.len() as u32 - 1
    }

    fn remove(&mut self, id: u32) -> T {
        self.gaps.push(id);
        self.items[id as usize].take().unwrap_or_else(|| unreachable!("number {id} is removed, but not there"))
    }

    fn get(&self, id: u32) -> &T {
        self.items[id as usize].as_ref().unwrap_or_else(|| unreachable!("number {id} is not there"))
    }

    fn get_mut(&mut self, id: u32) -> &mut T {
        self.items[id as usize].as_mut().unwrap_or_else(|| unreachable!("number {id} is not there"))
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }
}
