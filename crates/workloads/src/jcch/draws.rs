//! Random values by row: what the rules leave open is drawn from a generator that belongs to the row, so that any row
//! can be made without those before it.

use eris_platform::SeededRandom;
use tpchgen::text::TextPool;

/// Tables whose rows have random values of their own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Drawn {
    PartSupp = 1,
    LineItem = 2,
}

/// Bits of a seed for the place among a parent's children: as many as the lines of a populous order need at the largest
/// scale factor.
const PLACE_BITS: u32 = 29;

/// The random values of a row: the child of a parent at a place.
pub(super) fn draws(table: Drawn, parent: u64, place: u64) -> SeededRandom {
    debug_assert!(place < 1 << PLACE_BITS && parent < 1 << 31, "rows {parent}, {place} share a seed with others");
    SeededRandom::new((table as u64) << 60 | parent << PLACE_BITS | place)
}

/// Text of the specification's grammar, of 0.4 to 1.6 times an average length.
pub(super) fn text(random: &mut SeededRandom, pool: &'static TextPool, average_length: i64) -> &'static str {
    let (shortest, longest) = (average_length * 2 / 5, average_length * 8 / 5);
    let start = random.between(0, i64::from(pool.size()) - longest) as i32;
    let length = random.between(shortest, longest) as i32;
    pool.text(start, start + length)
}
