//! Groups of one integer column by an array over the values seen, while that is not much emptier than a hash table.
//!
//! ```text
//!   value            0 ... 16,383 | 16,384 ... 32,767 | 32,768 ... 49,151
//!   group plus one   chunk 0      | chunk 1           | chunk 2              0: none
//! ```
//! The array grows by chunks at both ends, so that nothing is copied: it may grow in the middle of a scan, which others
//! wait for. Chunks of all arrays begin at the same values.

use eris_platform::MemoryExceeded;

use super::room::Room;

/// The array may be for this many values a row that was seen, and what they lack to whole chunks: much emptier, each
/// group costs a page of memory.
const PLACES_PER_ROW: u64 = 16;
/// Behind an array that was given up there have to be so many times as many rows before there is one again.
const ROWS_AGAIN: u64 = 4;
/// Bits of a value within its chunk.
const CHUNK_BITS: u32 = 14;
/// Values of a chunk.
const CHUNK_VALUES: usize = 1 << CHUNK_BITS;
const CHUNK_BYTES: usize = CHUNK_VALUES * size_of::<u32>();

/// The group plus one of each of its values; 0 is none.
pub(super) type Chunk = [u32; CHUNK_VALUES];

/// From values to groups.
#[derive(Debug, Default)]
pub(super) struct Dense {
    /// The [number](chunk_of) of the first chunk.
    first: i64,
    /// Empty while a hash table is used.
    chunks: Vec<Box<Chunk>>,
    rows: u64,
    bounds: Option<(i64, i64)>,
    /// There is no array before so many rows.
    rows_again: u64,
}

/// Which chunk a value is in.
#[inline]
pub(super) fn chunk_of(value: i64) -> i64 {
    value >> CHUNK_BITS
}

#[inline]
fn place_of(value: i64) -> usize {
    value as usize & (CHUNK_VALUES - 1)
}

/// How many chunks values from `low` to `high` are in.
pub(super) fn chunks_between(low: i64, high: i64) -> u64 {
    // Chunk numbers are far from the ends of their type.
    (chunk_of(high) - chunk_of(low)) as u64 + 1
}

/// The places of an array for values from `low` to `high`.
pub(super) fn places_between(low: i64, high: i64) -> u64 {
    chunks_between(low, high).saturating_mul(CHUNK_VALUES as u64)
}

fn empty_chunk() -> Box<Chunk> {
    // Straight from the allocator, which knows what is zero already.
    let places = vec![0; CHUNK_VALUES].into_boxed_slice();
    places.try_into().unwrap_or_else(|_| unreachable!("it has the length of a chunk"))
}

impl Dense {
    pub fn is_used(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// A chunk by its number, if the array has it.
    pub fn chunk(&self, number: i64) -> Option<&Chunk> {
        let at = usize::try_from(number - self.first).ok()?;
        self.chunks.get(at).map(|chunk| &**chunk)
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// Takes note of values that come.
    pub fn note(&mut self, values: &[i64]) {
        self.rows += values.len() as u64;
        let extremes = (values.iter().min(), values.iter().max());
        if let (Some(low), Some(high)) = extremes {
            let (least, most) = self.bounds.unwrap_or((*low, *high));
            self.bounds = Some((least.min(*low), most.max(*high)));
        }
    }

    /// Whether the array has a place for all values so far.
    pub fn is_wide_enough(&self) -> bool {
        let end = self.first + self.chunks.len() as i64;
        self.bounds.is_some_and(|(low, high)| self.first <= chunk_of(low) && chunk_of(high) < end)
    }

    /// Makes an array for all values so far, if they are dense enough and there is memory; says whether there is one.
    pub fn widen(&mut self, room: &mut Room) -> bool {
        let Some((low, high)) = self.bounds else { return false };
        let span = high.wrapping_sub(low) as u64;
        span < self.rows * PLACES_PER_ROW && self.rows >= self.rows_again && self.fit(room)
    }

    /// Gives the array up.
    pub fn leave(&mut self, room: &mut Room) {
        room.give_back(self.bytes());
        self.chunks = Vec::new();
        self.rows_again = self.rows.saturating_mul(ROWS_AGAIN);
    }

    /// Makes an array for all values so far, however empty, if there is memory; says whether there is one. What it had
    /// it keeps.
    pub fn fit(&mut self, room: &mut Room) -> bool {
        let Some((low, high)) = self.bounds else { return false };
        if !self.is_used() {
            self.first = chunk_of(low);
        }
        let below = (self.first - chunk_of(low)).max(0) as u64;
        let above = (chunk_of(high) - self.first + 1 - self.chunks.len() as i64).max(0) as u64;
        let bytes = (below + above).saturating_mul(CHUNK_BYTES as u64);
        if usize::try_from(bytes).map_or(true, |bytes| room.add(bytes).is_err()) {
            return false;
        }
        drop(self.chunks.splice(0..0, (0..below).map(|_| empty_chunk())));
        self.chunks.extend((0..above).map(|_| empty_chunk()));
        self.first -= below as i64;
        true
    }

    /// Between which values all lie that came.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.bounds
    }

    /// Enters the values of groups that were found otherwise, from group 0 on.
    pub fn enter(&mut self, values: impl Iterator<Item = i64>) {
        for (group, value) in values.enumerate() {
            *self.place(value) = group as u32 + 1;
        }
    }

    /// The groups of values that all have a place; `add` makes the group for a new one.
    pub fn find_or_add(
        &mut self,
        values: &[i64],
        mut add: impl FnMut(usize) -> Result<u32, MemoryExceeded>,
    ) -> Result<Vec<u32>, MemoryExceeded> {
        let mut groups = Vec::with_capacity(values.len());
        for (row, value) in values.iter().enumerate() {
            let place = self.place(*value);
            if *place == 0 {
                *place = add(row)? + 1;
            }
            groups.push(*place - 1);
        }
        Ok(groups)
    }

    /// The place of a value, which has one.
    #[inline]
    fn place(&mut self, value: i64) -> &mut u32 {
        &mut self.chunks[(chunk_of(value) - self.first) as usize][place_of(value)]
    }
}
