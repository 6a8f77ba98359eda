//! Codes of one attribute, bit-packed, in memory that is shared and can be placed.

use super::codes::CodeTest;
use super::kernels::{
    Codes, GROUP_CODES, Lane, Level, PADDING_BYTES, code_mask, select, select_set, stored_width, unpack,
};
use super::selection::Selection;
use crate::batch::Buffer;
use eris_platform::{Arena, MemoryExceeded};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Packed codes.
#[derive(Clone)]
pub(super) struct Packed {
    bytes: Buffer<u8>,
    width: u32,
    len: usize,
}

/// The bits that codes up to `max` take.
pub(super) fn width_of(max: u64) -> u32 {
    stored_width(u64::BITS - max.leading_zeros())
}

/// The bytes that `len` codes up to `max` take.
pub(super) fn bytes_of(len: usize, max: u64) -> usize {
    len.div_ceil(GROUP_CODES) * width_of(max) as usize * 8 + PADDING_BYTES
}

impl Packed {
    /// Packs `len` codes of at most `max`.
    pub(super) fn new(codes: impl Iterator<Item = u64>, len: usize, max: u64) -> Self {
        let width = width_of(max);
        let mut bytes = vec![0; bytes_of(len, max)];
        let mut count = 0;
        for code in codes {
            assert!(code <= max && count < len, "code {code} of {len} up to {max}");
            let bit = count * width as usize;
            let place = &mut bytes[bit >> 3..(bit >> 3) + 8];
            let mut word = [0; 8];
            word.copy_from_slice(place);
            place.copy_from_slice(&(u64::from_le_bytes(word) | code << (bit & 7)).to_le_bytes());
            count += 1;
        }
        assert!(count == len, "{count} codes, not {len}");
        Self { bytes: bytes.into(), width, len }
    }

    /// The largest code that could be packed.
    pub(super) fn max(&self) -> u64 {
        code_mask(self.width)
    }

    /// Memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.bytes() as u64
    }

    /// The codes by reference, for a loop.
    #[inline]
    pub(super) fn codes(&self) -> Codes<'_> {
        Codes { bytes: &self.bytes, width: self.width }
    }

    /// One code.
    #[inline]
    pub(super) fn get(&self, position: usize) -> u64 {
        debug_assert!(position < self.len, "code {position} of {}", self.len);
        self.codes().get(position)
    }

    /// Unpacks a run into all of `out`, adding `base`.
    pub(super) fn unpack_into<'o, L: Lane>(
        &self,
        first: usize,
        base: u64,
        out: &'o mut [MaybeUninit<L>],
    ) -> &'o mut [L] {
        assert!(first + out.len() <= self.len, "{} codes from {first} of {}", out.len(), self.len);
        unpack(Level::best(), self.codes(), first, base, out)
    }

    /// A run, with `base` added to each.
    pub(super) fn unpack<L: Lane>(&self, rows: Range<usize>, base: u64) -> Vec<L> {
        let mut out = Vec::with_capacity(rows.len());
        self.unpack_into(rows.start, base, &mut out.spare_capacity_mut()[..rows.len()]);
        // SAFETY: the run was written to the end of what was asked for.
        unsafe { out.set_len(rows.len()) };
        out
    }

    /// Narrows a selection to the codes that qualify.
    pub(super) fn select(&self, test: &CodeTest, selection: &mut Selection) {
        let (level, codes, first) = (Level::best(), self.codes(), selection.first_group());
        match test {
            CodeTest::Nothing => selection.clear(),
            CodeTest::Everything => {}
            CodeTest::Range(range) => select(level, codes, *range, first, selection.words_mut()),
            CodeTest::AnyOf(ranges) => {
                // What is none of them is found one after the other, and taken away.
                let (words, others) = selection.words_and_copy();
                for range in ranges {
                    let others_than = super::kernels::CodeRange { negated: true, ..*range };
                    select(level, codes, others_than, first, others);
                }
                words.iter_mut().zip(others).for_each(|(word, other)| *word &= !*other);
            }
            CodeTest::Set(set) => select_set(level, codes, set, first, selection.words_mut()),
            CodeTest::Strings { .. } => unreachable!("packed codes are no strings"),
            CodeTest::Sorted(list) => {
                let mut unpacked = [MaybeUninit::<u64>::uninit(); GROUP_CODES];
                for (position, word) in selection.words_mut().iter_mut().enumerate().filter(|(_, word)| **word != 0) {
                    let from = (first + position) * GROUP_CODES;
                    let len = GROUP_CODES.min(self.len - from);
                    let unpacked = self.unpack_into(from, 0, &mut unpacked[..len]);
                    let bit = |code: &u64| u64::from(list.binary_search(code).is_ok());
                    *word &= unpacked.iter().enumerate().fold(0, |found, (at, code)| found | bit(code) << at);
                }
            }
        }
    }

    /// Clears the mask of those listed that do not qualify.
    pub(super) fn test_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]) {
        fn apply(codes: Codes<'_>, rows: &[u32], mask: &mut [u8], accepts: impl Fn(u64) -> bool) {
            for (keep, row) in mask.iter_mut().zip(rows) {
                *keep &= u8::from(accepts(codes.get(*row as usize)));
            }
        }
        let codes = self.codes();
        match test {
            CodeTest::Nothing => mask.fill(0),
            CodeTest::Everything => {}
            CodeTest::Range(range) => apply(codes, rows, mask, |code| range.accepts(code)),
            CodeTest::AnyOf(ranges) => apply(codes, rows, mask, |code| ranges.iter().any(|range| range.accepts(code))),
            CodeTest::Set(set) => {
                apply(codes, rows, mask, |code| set[(code >> 6) as usize] >> (code & 63) & 1 != 0);
            }
            CodeTest::Strings { .. } => unreachable!("packed codes are no strings"),
            CodeTest::Sorted(list) => apply(codes, rows, mask, |code| list.binary_search(&code).is_ok()),
        }
    }

    /// The same codes in the memory of `arena`, and the bytes they take there.
    pub(super) fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        let (bytes, taken) = self.bytes.placed(arena)?;
        Ok((Self { bytes, width: self.width, len: self.len }, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::SeededRandom;

    #[test]
    fn codes_come_back_from_any_place() {
        let mut random = SeededRandom::new(1);
        for width in 0..=64 {
            let max = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
            let codes: Vec<u64> = (0..random.index(500)).map(|_| random.next_u64() & max).collect();
            let packed = Packed::new(codes.iter().copied(), codes.len(), max);
            assert_eq!(packed.bytes() as usize, bytes_of(codes.len(), max));
            assert!((0..codes.len()).all(|position| packed.get(position) == codes[position]), "width {width}");
            let from = random.index(codes.len() + 1);
            assert_eq!(packed.unpack::<u64>(from..codes.len(), 0), codes[from..]);
        }
    }
}
