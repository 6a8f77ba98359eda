//! Loops over bit-packed codes: comparing them where they lie, and unpacking a run of them.
//!
//! ```text
//! width 5    |44444333|33222221|11110000|0  code 0 in the lowest bits of the first byte, little-endian
//!             byte 2    byte 1   byte 0
//! ```
//! 64 codes of `w` bits are `8 w` bytes, so every group of 64 begins at a byte, every 8 codes do, and one shape of loop
//! serves every width. Each loop exists three times: with AVX-512 (VBMI), with AVX2, and plain; tests compare them. A
//! single code is read with one unaligned load, a shift and a mask.
//!
//! That a code never straddles nine bytes needs the widths 31, 59 and 61 to 63 to be stored as the next larger one
//! that fits ([`stored_width`]).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod tables;

use std::mem::MaybeUninit;

/// Bytes behind the last code that loads may touch: the longest vector.
pub(super) const PADDING_BYTES: usize = 64;

/// Codes of a group: one word of a selection.
pub(super) const GROUP_CODES: usize = 64;

/// The bits a code of `width` bits takes in memory.
pub(super) const fn stored_width(width: u32) -> u32 {
    match width {
        31 => 32,
        59 => 60,
        61..=63 => 64,
        other => other,
    }
}

/// The bits that are set in the largest code.
pub(super) const fn code_mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Codes between two bounds, or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::modules) struct CodeRange {
    pub low: u64,
    /// The highest code minus the lowest.
    pub span: u64,
    pub negated: bool,
}

impl CodeRange {
    /// Whether a code qualifies: one comparison, because what lies below wraps around.
    #[inline]
    pub(super) fn accepts(self, code: u64) -> bool {
        (code.wrapping_sub(self.low) <= self.span) != self.negated
    }
}

/// The instructions that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Scalar,
    Avx2,
    Avx512,
}

impl Level {
    /// The best this machine has.
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vbmi")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Scalar
    }
}

/// An integer that codes are unpacked to.
pub(super) trait Lane: Copy {
    /// Bits of the integer.
    const BITS: u32;
    /// The code, plus what it is relative to.
    fn of(code: u64, base: u64) -> Self;
}

macro_rules! lane {
    ($($type:ty),*) => {
        $(impl Lane for $type {
            const BITS: u32 = <$type>::BITS;

            #[inline]
            fn of(code: u64, base: u64) -> Self {
                code.wrapping_add(base) as Self
            }
        })*
    };
}

lane!(u8, i16, u16, u32, i32, i64, u64);

/// Codes as they lie in memory.
#[derive(Clone, Copy)]
pub(super) struct Codes<'a> {
    /// `PADDING_BYTES` more than the groups take.
    pub bytes: &'a [u8],
    /// A width that [`stored_width`] gives.
    pub width: u32,
}

impl Codes<'_> {
    /// The code at a position.
    #[inline]
    pub(super) fn get(self, position: usize) -> u64 {
        let bit = position * self.width as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[bit >> 3..(bit >> 3) + 8]);
        u64::from_le_bytes(word) >> (bit & 7) & code_mask(self.width)
    }

    fn check_groups(self, groups_end: usize) {
        let bytes = groups_end * self.width as usize * 8 + PADDING_BYTES;
        assert!(bytes <= self.bytes.len(), "{groups_end} groups of {} bits in {}", self.width, self.bytes.len());
    }
}

/// Clears the bits of codes that do not qualify: one word per group, from group `first` on. Words without bits are
/// passed over.
pub(super) fn select(level: Level, codes: Codes<'_>, test: CodeRange, first: usize, words: &mut [u64]) {
    codes.check_groups(first + words.len());
    match level {
        Level::Scalar => scalar::select(codes, test, first, words),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: whoever asks for a level has detected it, and the groups lie within the bytes with their padding.
        Level::Avx2 => unsafe { avx2::select(codes, test, first, words) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512::select(codes, test, first, words) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => unreachable!("levels of another architecture"),
    }
}

/// The same for a set of codes, one bit each. All codes are in its domain.
pub(super) fn select_set(level: Level, codes: Codes<'_>, set: &[u64], first: usize, words: &mut [u64]) {
    codes.check_groups(first + words.len());
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && codes.width <= 8 {
        let mut bits = [0; 4];
        let len = set.len().min(4);
        bits[..len].copy_from_slice(&set[..len]);
        // SAFETY: as in `select`.
        return unsafe { avx512::select_byte_set(codes, &bits, first, words) };
    }
    let mut unpacked = [MaybeUninit::<u64>::uninit(); GROUP_CODES];
    for (position, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
        let unpacked = unpack(level, codes, (first + position) * GROUP_CODES, 0, &mut unpacked);
        let bit = |code: u64| set.get((code >> 6) as usize).map_or(0, |bits| bits >> (code & 63) & 1);
        *word &= unpacked.iter().enumerate().fold(0, |found, (position, code)| found | bit(*code) << position);
    }
}

/// Unpacks codes from position `first` on into all of `out`, adding `base` to each.
pub(super) fn unpack<'o, L: Lane>(
    level: Level,
    codes: Codes<'_>,
    first: usize,
    base: u64,
    out: &'o mut [MaybeUninit<L>],
) -> &'o mut [L] {
    let end = (first + out.len()) * codes.width as usize;
    assert!(end.div_ceil(8) + PADDING_BYTES <= codes.bytes.len(), "{} codes from {first}", out.len());
    assert!(codes.width <= L::BITS, "{} bits for codes of {}", L::BITS, codes.width);
    // Vectors begin where a code begins at a byte.
    let head = (first.wrapping_neg() & 7).min(out.len());
    let (lead, rest) = out.split_at_mut(head);
    scalar::unpack(codes, first, base, lead);
    match level {
        Level::Scalar => scalar::unpack(codes, first + head, base, rest),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected; `first + head` is a multiple of 8 and the codes lie within the bytes with
        // their padding.
        Level::Avx2 => unsafe { avx2::unpack(codes, first + head, base, rest) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512::unpack(codes, first + head, base, rest) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => unreachable!("levels of another architecture"),
    }
    // SAFETY: both parts were written to their ends.
    unsafe { out.assume_init_mut() }
}

/// Appends the position of every set bit, the first word's first bit being at `first`.
pub(super) fn list_bits(level: Level, words: &[u64], first: u32, found: &mut Vec<u32>) {
    match level {
        Level::Scalar | Level::Avx2 => scalar::list_bits(words, first, found),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: whoever asks for a level has detected it.
        Level::Avx512 => unsafe { avx512::list_bits(words, first, found) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => unreachable!("a level of another architecture"),
    }
}

#[cfg(test)]
mod tests;
