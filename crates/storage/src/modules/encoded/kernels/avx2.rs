//! The loops with AVX2: eight codes at a time in lanes of 32 bits, or twice four in lanes of 64.

use super::tables::{HALF_WIDTH_MAX, HALVES, HalfTable, QUARTERS, QuarterTable};
use super::{CodeRange, Codes, GROUP_CODES, Lane, code_mask};
#[allow(clippy::wildcard_imports, reason = "instructions are named in full where they are used")]
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Codes of a step: they begin at a byte and end at one.
const STEP_CODES: usize = 8;

/// Two runs of 16 bytes in one register.
///
/// # Safety
/// 16 bytes can be read at both.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_pair(first: *const u8, second: *const u8) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_loadu2_m128i(second.cast(), first.cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_bytes(from: &[u8; 32]) -> __m256i {
    // SAFETY: the array has the 32 bytes that are read.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

/// Eight codes from byte `at` on, in lanes of 32 bits.
///
/// # Safety
/// The codes and the padding behind them can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_eight(table: &HalfTable, mask: __m256i, at: *const u8) -> __m256i {
    // SAFETY: the caller's: 32 bytes from the codes' begin are less than the padding.
    let raw = unsafe { load_pair(at, at.add(table.second)) };
    // SAFETY: the array has the 32 bytes that are read.
    let shifts = unsafe { _mm256_loadu_si256(table.shifts.as_ptr().cast()) };
    let lanes = _mm256_shuffle_epi8(raw, load_bytes(&table.bytes));
    _mm256_and_si256(_mm256_srlv_epi32(lanes, shifts), mask)
}

/// Four codes of the eight that begin at byte `at`, in lanes of 64 bits.
///
/// # Safety
/// As [`load_eight`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_four(table: &QuarterTable, mask: __m256i, at: *const u8) -> __m256i {
    // SAFETY: the caller's: 16 bytes from the begin of one of the codes are less than the padding.
    let raw = unsafe { load_pair(at.add(table.starts[0]), at.add(table.starts[1])) };
    // SAFETY: the array has the 32 bytes that are read.
    let shifts = unsafe { _mm256_loadu_si256(table.shifts.as_ptr().cast()) };
    let lanes = _mm256_shuffle_epi8(raw, load_bytes(&table.bytes));
    _mm256_and_si256(_mm256_srlv_epi64(lanes, shifts), mask)
}

/// # Safety
/// The machine has AVX2, and the groups lie within the codes' bytes with the padding behind them.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn select(codes: Codes<'_>, test: CodeRange, first: usize, words: &mut [u64]) {
    let width = codes.width as usize;
    let negated = if test.negated { u64::MAX } else { 0 };
    let narrow = codes.width <= HALF_WIDTH_MAX;
    let (low_32, span_32) = (_mm256_set1_epi32(test.low as i32), _mm256_set1_epi32(test.span as i32));
    // Signed comparison orders unsigned numbers whose first bit is flipped.
    let flip = _mm256_set1_epi64x(i64::MIN);
    let (low_64, span_64) = (_mm256_set1_epi64x(test.low as i64), _mm256_set1_epi64x(test.span as i64 ^ i64::MIN));
    let mask_32 = _mm256_set1_epi32(code_mask(codes.width) as i32);
    let mask_64 = _mm256_set1_epi64x(code_mask(codes.width) as i64);
    for (position, word) in words.iter_mut().enumerate() {
        if *word == 0 {
            continue;
        }
        let mut bits = 0;
        for part in 0..GROUP_CODES / STEP_CODES {
            let at = (first + position) * width * 8 + part * width;
            // SAFETY: the group lies within the bytes.
            let at = unsafe { codes.bytes.as_ptr().add(at) };
            let found = if narrow {
                // SAFETY: as above, with the padding behind it.
                let lanes = unsafe { load_eight(&HALVES[width], mask_32, at) };
                let distance = _mm256_sub_epi32(lanes, low_32);
                let within = _mm256_cmpeq_epi32(_mm256_min_epu32(distance, span_32), distance);
                _mm256_movemask_ps(_mm256_castsi256_ps(within)) as u64
            } else {
                let outside = |table: &QuarterTable| {
                    // SAFETY: as above.
                    let lanes = unsafe { load_four(table, mask_64, at) };
                    let distance = _mm256_xor_si256(_mm256_sub_epi64(lanes, low_64), flip);
                    _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(distance, span_64))) as u64
                };
                let [front, back] = &QUARTERS[width];
                (outside(front) | outside(back) << 4) ^ 0xFF
            };
            bits |= found << (part * STEP_CODES);
        }
        *word &= bits ^ negated;
    }
}

/// # Safety
/// The machine has AVX2, `first` is a multiple of 8, and the codes lie within their bytes with the padding behind them.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack<L: Lane>(codes: Codes<'_>, first: usize, base: u64, out: &mut [MaybeUninit<L>]) {
    let width = codes.width as usize;
    let mask_32 = _mm256_set1_epi32(code_mask(codes.width) as i32);
    let mask_64 = _mm256_set1_epi64x(code_mask(codes.width) as i64);
    let mut at = first / 8 * width;
    let (steps, rest) = out.as_chunks_mut::<STEP_CODES>();
    let behind = first + steps.len() * STEP_CODES;
    for step in steps {
        // SAFETY: the codes lie within the bytes.
        let from = unsafe { codes.bytes.as_ptr().add(at) };
        at += width;
        if codes.width <= HALF_WIDTH_MAX {
            // SAFETY: as above, with the padding behind them.
            let lanes = unsafe { load_eight(&HALVES[width], mask_32, from) };
            if L::BITS == 32 {
                let lanes = _mm256_add_epi32(lanes, _mm256_set1_epi32(base as i32));
                // SAFETY: eight lanes of 32 bits are the step's 32 bytes.
                unsafe { _mm256_storeu_si256(step.as_mut_ptr().cast(), lanes) };
                continue;
            }
            let mut unpacked = [0_u32; STEP_CODES];
            // SAFETY: the array has 32 bytes.
            unsafe { _mm256_storeu_si256(unpacked.as_mut_ptr().cast(), lanes) };
            for (out, code) in step.iter_mut().zip(unpacked) {
                out.write(L::of(u64::from(code), base));
            }
        } else {
            let mut unpacked = [0_u64; STEP_CODES];
            for (table, out) in QUARTERS[width].iter().zip(unpacked.as_chunks_mut::<4>().0) {
                // SAFETY: as above; four lanes of 64 bits are 32 bytes.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), load_four(table, mask_64, from)) };
            }
            for (out, code) in step.iter_mut().zip(unpacked) {
                out.write(L::of(code, base));
            }
        }
    }
    super::scalar::unpack(codes, behind, base, rest);
}
