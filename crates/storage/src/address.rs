//! Where a row lives inside its partition.
//!
//! ```text
//!  63            32 31             0
//! +----------------+----------------+
//! | segment number |   row offset   |
//! +----------------+----------------+
//! ```
//! The order of addresses is the order of insertion within a segment, and of segments. Sealing and thawing keep
//! addresses; only compaction and split change them (and rewrite the index entries).

use crate::ids::{RowOffset, SegmentNumber};
use std::fmt;

/// Segment number and row offset in one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowAddress(u64);

const _: () = assert!(size_of::<RowAddress>() == 8, "index entries and gateways hold one word per row");

impl RowAddress {
    /// The address of row `offset` of segment `segment`.
    pub fn new(segment: SegmentNumber, offset: RowOffset) -> Self {
        Self(u64::from(segment.0) << 32 | u64::from(offset.0))
    }

    /// The segment.
    pub fn segment(self) -> SegmentNumber {
        SegmentNumber((self.0 >> 32) as u32)
    }

    /// The row inside the segment.
    pub fn offset(self) -> RowOffset {
        RowOffset(self.0 as u32)
    }

    /// The word, for index entries.
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of `to_bits`.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for RowAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_apart_what_it_put_together() {
        let address = RowAddress::new(SegmentNumber(7), RowOffset(u32::MAX));
        assert_eq!((address.segment(), address.offset()), (SegmentNumber(7), RowOffset(u32::MAX)));
        assert!(address < RowAddress::new(SegmentNumber(8), RowOffset(0)));
    }
}
