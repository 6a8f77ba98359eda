//! Which table a build side gets, by what its keys are and how many rows there are; and what it takes.

use super::BuildSpec;
use super::codes::{Bounds, CodeSpace};
use crate::assembly::ColumnParts;
use crate::expression::Expression;

/// An array may have this many places a row...
const DENSE_FACTOR: u64 = 8;
/// ... or as many as a cache holds anyway.
const DENSE_ROWS_MIN: u64 = 1 << 14;
/// The same for bits.
const BITS_FACTOR: u64 = 256;
const BITS_MIN: u64 = 1 << 20;
/// Entries of a hash table are at least this many, and at least 1.5 a row.
const ENTRIES_MIN: usize = 64;

/// See the table of the [module](super).
#[derive(Debug)]
pub(super) enum Choice {
    None,
    Bits(CodeSpace),
    Dense(CodeSpace),
    Codes(CodeSpace),
    General,
}

impl Choice {
    /// For so many rows whose keys lie within bounds.
    pub fn new(spec: &BuildSpec, bounds: &[Bounds], rows: usize) -> Self {
        if spec.keys.is_empty() || rows == 0 {
            return Self::None;
        }
        let Some(space) = CodeSpace::new(bounds, spec.null_equal) else { return Self::General };
        let (domain, count) = (space.domain, rows as u64);
        if is_existence(spec) && domain <= (count * BITS_FACTOR).max(BITS_MIN) {
            Self::Bits(space.dense())
        } else if domain <= (count * DENSE_FACTOR).max(DENSE_ROWS_MIN) {
            Self::Dense(space.dense())
        } else {
            Self::Codes(space)
        }
    }

    /// Bytes that are taken before rows are copied to their place, besides those of the kept columns.
    pub fn first_bytes(&self, spec: &BuildSpec, rows: usize) -> u64 {
        let count = rows as u64;
        match self {
            Self::None => 0,
            Self::Bits(space) => space.bytes() + bits_words(space) as u64 * size_of::<u64>() as u64,
            Self::Dense(space) => space.bytes() + (space.domain + 1 + count) * size_of::<u32>() as u64,
            Self::Codes(space) => space.bytes() + count * size_of::<u64>() as u64,
            Self::General => {
                let keys = spec.keys.iter().map(Expression::data_type);
                keys.map(|data_type| ColumnParts::bytes(data_type, rows)).sum::<u64>() + count * size_of::<u64>() as u64
            }
        }
    }

    /// Bytes that are taken for a hash table then.
    pub fn second_bytes(&self, spec: &BuildSpec, rows: usize) -> u64 {
        match self {
            Self::None | Self::Bits(_) | Self::Dense(_) => 0,
            Self::Codes(_) | Self::General => {
                let chains = if is_existence(spec) { 0 } else { rows * size_of::<u32>() };
                (entries_of(rows) * size_of::<u64>() + chains) as u64
            }
        }
    }
}

/// Whether equal keys need to be entered once only.
pub(super) fn is_existence(spec: &BuildSpec) -> bool {
    spec.existence && !spec.keep_unmatched
}

/// Words with a bit for each code, and one for the miss.
pub(super) fn bits_words(space: &CodeSpace) -> usize {
    space.domain as usize / 64 + 1
}

/// Entries of a hash table of so many rows.
pub(super) fn entries_of(rows: usize) -> usize {
    (rows + rows / 2).next_power_of_two().max(ENTRIES_MIN)
}
