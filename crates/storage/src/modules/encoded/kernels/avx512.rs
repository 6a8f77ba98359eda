//! The loops with AVX-512 and its byte permutations (VBMI): 64 bytes of codes are spread over their lanes by one
//! permutation and one shift, whatever their width.

use super::tables::{WORDS_8, WORDS_16, WORDS_32, WORDS_64, WordTable};
use super::{CodeRange, Codes, GROUP_CODES, Lane, code_mask};
#[allow(clippy::wildcard_imports, reason = "instructions are named in full where they are used")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// A table in registers.
struct Spread {
    bytes: __m512i,
    shifts: __m512i,
}

impl Spread {
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn of(table: &WordTable) -> Self {
        let load = |from: &[u8; 64]| {
            // SAFETY: the array has the 64 bytes that are read.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        };
        Self { bytes: load(&table.bytes), shifts: load(&table.shifts) }
    }

    /// The codes from byte `at` on, each in its lane, with bits of others above.
    ///
    /// # Safety
    /// 64 bytes can be read there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn load(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller's.
        let raw = unsafe { _mm512_loadu_si512(at.cast()) };
        _mm512_multishift_epi64_epi8(self.shifts, _mm512_permutexvar_epi8(self.bytes, raw))
    }
}

macro_rules! select_lanes {
    ($name:ident, $tables:ident, $lanes:literal, $int:ty, $set1:ident, $sub:ident, $compare:ident) => {
        /// # Safety
        /// As [`select`].
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        unsafe fn $name(codes: Codes<'_>, test: CodeRange, first: usize, words: &mut [u64]) {
            let width = codes.width as usize;
            let spread = Spread::of(&$tables[width]);
            let mask = $set1(code_mask(codes.width) as $int);
            let (low, span) = ($set1(test.low as $int), $set1(test.span as $int));
            let negated = if test.negated { u64::MAX } else { 0 };
            for (position, word) in words.iter_mut().enumerate() {
                if *word == 0 {
                    continue;
                }
                let mut bits = 0;
                for part in 0..GROUP_CODES / $lanes {
                    let at = (first + position) * width * 8 + part * ($lanes / 8) * width;
                    // SAFETY: the group lies within the bytes, with 64 more behind it.
                    let lanes = unsafe { spread.load(codes.bytes.as_ptr().add(at)) };
                    let lanes = _mm512_and_si512(lanes, mask);
                    bits |= u64::from($compare($sub(lanes, low), span)) << (part * $lanes);
                }
                *word &= bits ^ negated;
            }
        }
    };
}

select_lanes!(select_8, WORDS_8, 64, i8, _mm512_set1_epi8, _mm512_sub_epi8, _mm512_cmple_epu8_mask);
select_lanes!(select_16, WORDS_16, 32, i16, _mm512_set1_epi16, _mm512_sub_epi16, _mm512_cmple_epu16_mask);
select_lanes!(select_32, WORDS_32, 16, i32, _mm512_set1_epi32, _mm512_sub_epi32, _mm512_cmple_epu32_mask);
select_lanes!(select_64, WORDS_64, 8, i64, _mm512_set1_epi64, _mm512_sub_epi64, _mm512_cmple_epu64_mask);

/// # Safety
/// The machine has these instructions, and the groups lie within the codes' bytes with the padding behind them. Bounds
/// of the test are codes of this width.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn select(codes: Codes<'_>, test: CodeRange, first: usize, words: &mut [u64]) {
    // SAFETY: the caller's.
    unsafe {
        match codes.width {
            0..=8 => select_8(codes, test, first, words),
            9..=16 => select_16(codes, test, first, words),
            17..=32 => select_32(codes, test, first, words),
            _ => select_64(codes, test, first, words),
        }
    }
}

/// Codes of up to 8 bits that are in a set: the set's 32 bytes are a table in a register.
///
/// # Safety
/// As [`select`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn select_byte_set(codes: Codes<'_>, set: &[u64; 4], first: usize, words: &mut [u64]) {
    let width = codes.width as usize;
    let spread = Spread::of(&WORDS_8[width]);
    let mask = _mm512_set1_epi8(code_mask(codes.width) as i8);
    let set = set.map(|bits| bits as i64);
    let table = _mm512_set_epi64(0, 0, 0, 0, set[3], set[2], set[1], set[0]);
    let bits_of = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
    let low_bits = _mm512_set1_epi8(7);
    let byte_bits = _mm512_set1_epi8(0x1F);
    for (position, word) in words.iter_mut().enumerate() {
        if *word == 0 {
            continue;
        }
        let at = (first + position) * width * 8;
        // SAFETY: the group lies within the bytes, with 64 more behind it.
        let lanes = unsafe { spread.load(codes.bytes.as_ptr().add(at)) };
        let lanes = _mm512_and_si512(lanes, mask);
        let byte = _mm512_and_si512(_mm512_srli_epi16::<3>(lanes), byte_bits);
        let held = _mm512_permutexvar_epi8(byte, table);
        let wanted = _mm512_permutexvar_epi8(_mm512_and_si512(lanes, low_bits), bits_of);
        *word &= _mm512_test_epi8_mask(held, wanted);
    }
}

macro_rules! unpack_lanes {
    ($name:ident, $tables:ident, $lanes:literal, $int:ty, $mask:ty, $set1:ident, $add:ident, $store:ident) => {
        /// # Safety
        /// As [`unpack`]; `count` lanes can be written to `out`.
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        unsafe fn $name(codes: Codes<'_>, first: usize, base: u64, out: *mut $int, count: usize) {
            let width = codes.width as usize;
            let spread = Spread::of(&$tables[width]);
            let mask = $set1(code_mask(codes.width) as $int);
            let base = $set1(base as $int);
            for position in (0..count).step_by($lanes) {
                // SAFETY: a code at a multiple of 8 begins at a byte, and 64 bytes more than the codes can be read.
                let lanes = unsafe { spread.load(codes.bytes.as_ptr().add((first + position) / 8 * width)) };
                let lanes = $add(_mm512_and_si512(lanes, mask), base);
                let left = (count - position).min($lanes);
                let kept = (u64::MAX >> (64 - left)) as $mask;
                // SAFETY: only the lanes that are left are written.
                unsafe { $store(out.add(position), kept, lanes) };
            }
        }
    };
}

unpack_lanes!(unpack_8, WORDS_8, 64, i8, u64, _mm512_set1_epi8, _mm512_add_epi8, _mm512_mask_storeu_epi8);
unpack_lanes!(unpack_16, WORDS_16, 32, i16, u32, _mm512_set1_epi16, _mm512_add_epi16, _mm512_mask_storeu_epi16);
unpack_lanes!(unpack_32, WORDS_32, 16, i32, u16, _mm512_set1_epi32, _mm512_add_epi32, _mm512_mask_storeu_epi32);
unpack_lanes!(unpack_64, WORDS_64, 8, i64, u8, _mm512_set1_epi64, _mm512_add_epi64, _mm512_mask_storeu_epi64);

/// # Safety
/// The machine has these instructions, `first` is a multiple of 8, and the codes lie within their bytes with the
/// padding behind them and are no wider than a lane.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn unpack<L: Lane>(codes: Codes<'_>, first: usize, base: u64, out: &mut [MaybeUninit<L>]) {
    let (start, count) = (out.as_mut_ptr(), out.len());
    // SAFETY: the caller's; lanes of so many bits are integers of so many bits.
    unsafe {
        match L::BITS {
            8 => unpack_8(codes, first, base, start.cast(), count),
            16 => unpack_16(codes, first, base, start.cast(), count),
            32 => unpack_32(codes, first, base, start.cast(), count),
            _ => unpack_64(codes, first, base, start.cast(), count),
        }
    }
}

/// # Safety
/// The machine has these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn list_bits(words: &[u64], first: u32, found: &mut Vec<u32>) {
    const LANES: usize = 16;
    let count: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    // A vector is stored whole wherever its first lanes belong.
    found.reserve(count + LANES);
    let mut len = found.len();
    let ascending = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (position, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        let base = first + (position * GROUP_CODES) as u32;
        for part in 0..GROUP_CODES / LANES {
            let kept = (word >> (part * LANES)) as u16;
            let offsets = _mm512_add_epi32(ascending, _mm512_set1_epi32((base + (part * LANES) as u32) as i32));
            let offsets = _mm512_maskz_compress_epi32(kept, offsets);
            // SAFETY: at most `count` positions are kept in all, and there is room for a vector more.
            unsafe { _mm512_storeu_si512(found.as_mut_ptr().add(len).cast(), offsets) };
            len += kept.count_ones() as usize;
        }
    }
    // SAFETY: so many positions were written, one behind the other.
    unsafe { found.set_len(len) };
}
