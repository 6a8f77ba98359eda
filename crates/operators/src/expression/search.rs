//! Finding a text within another.
//!
//! The needle's first and last byte are looked for at their distance, in 64 (or 32) places at a time; where both are,
//! the bytes between them are compared.

use super::instructions::Level;

/// Where `needle` begins in `haystack` for the first time. An empty one begins everywhere.
#[inline]
pub(super) fn find(level: Level, haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (Some(first), Some(last)) = (needle.first(), needle.last()) else { return Some(0) };
    if haystack.len() < needle.len() {
        return None;
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            // SAFETY: this level is only chosen on a processor that has these parts of AVX-512.
            unsafe { x86::find_avx512(haystack, needle, *first, *last) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            // SAFETY: this level is only chosen on a processor that has AVX2.
            unsafe { x86::find_avx2(haystack, needle, *first, *last) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => find_portable(haystack, needle, *first, *last, 0),
        Level::Portable => find_portable(haystack, needle, *first, *last, 0),
    }
}

/// From place `start` on; the needle is not empty.
fn find_portable(haystack: &[u8], needle: &[u8], first: u8, last: u8, start: usize) -> Option<usize> {
    let distance = needle.len() - 1;
    let places = haystack.len() - distance;
    (start..places).find(|place| {
        haystack[*place] == first
            && haystack[place + distance] == last
            && haystack[*place..place + needle.len()] == *needle
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
        _mm512_mask_cmpeq_epi8_mask, _mm512_maskz_loadu_epi8, _mm512_set1_epi8,
    };

    /// The first of the places `base + bit` at which the needle is.
    #[inline]
    fn first_match(haystack: &[u8], needle: &[u8], base: usize, mut bits: u64) -> Option<usize> {
        while bits != 0 {
            let place = base + bits.trailing_zeros() as usize;
            if haystack[place..place + needle.len()] == *needle {
                return Some(place);
            }
            bits &= bits - 1;
        }
        None
    }

    /// The needle is neither empty nor longer than the haystack.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn find_avx512(haystack: &[u8], needle: &[u8], first: u8, last: u8) -> Option<usize> {
        let distance = needle.len() - 1;
        let places = haystack.len() - distance;
        let (first, last) = (_mm512_set1_epi8(first as i8), _mm512_set1_epi8(last as i8));
        let mut base = 0;
        while base < places {
            let count = (places - base).min(64);
            let mask = u64::MAX >> (64 - count);
            let start = haystack.as_ptr().wrapping_add(base).cast::<i8>();
            // SAFETY: only the first `count` bytes are read, and `base + count <= places <= haystack.len()`.
            let heads = unsafe { _mm512_maskz_loadu_epi8(mask, start) };
            // SAFETY: as above, with `base + count + distance <= places + distance = haystack.len()`.
            let tails = unsafe { _mm512_maskz_loadu_epi8(mask, start.wrapping_add(distance)) };
            let heads = _mm512_mask_cmpeq_epi8_mask(mask, heads, first);
            let both = _mm512_mask_cmpeq_epi8_mask(heads, tails, last);
            if let Some(place) = first_match(haystack, needle, base, both) {
                return Some(place);
            }
            base += count;
        }
        None
    }

    /// The needle is neither empty nor longer than the haystack.
    #[target_feature(enable = "avx2")]
    pub(super) fn find_avx2(haystack: &[u8], needle: &[u8], first: u8, last: u8) -> Option<usize> {
        let distance = needle.len() - 1;
        let places = haystack.len() - distance;
        if places < 32 {
            return super::find_portable(haystack, needle, first, last, 0);
        }
        let (first, last) = (_mm256_set1_epi8(first as i8), _mm256_set1_epi8(last as i8));
        let mut base = 0;
        loop {
            let start = haystack.as_ptr().wrapping_add(base);
            // SAFETY: `base + 32 <= places <= haystack.len()`.
            let heads = unsafe { _mm256_loadu_si256(start.cast()) };
            // SAFETY: `base + 32 + distance <= places + distance = haystack.len()`.
            let tails = unsafe { _mm256_loadu_si256(start.wrapping_add(distance).cast()) };
            let both = _mm256_and_si256(_mm256_cmpeq_epi8(heads, first), _mm256_cmpeq_epi8(tails, last));
            let bits = u64::from(_mm256_movemask_epi8(both) as u32);
            if let Some(place) = first_match(haystack, needle, base, bits) {
                return Some(place);
            }
            if base + 32 == places {
                return None;
            }
            // The last block may overlap the one before: what was not there then is not there now.
            base = (base + 32).min(places - 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_finds_the_first_place() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            // Few different bytes, so that much is found, and found in part.
            let haystack: Vec<u8> = (0..next(200)).map(|_| b'a' + next(2) as u8).collect();
            let len = 1 + next(9) as usize;
            let needle: Vec<u8> = (0..len).map(|_| b'a' + next(2) as u8 + u8::from(next(40) == 0)).collect();
            let expected = haystack.windows(needle.len()).position(|window| *window == *needle);
            for level in Level::available() {
                assert_eq!(find(*level, &haystack, &needle), expected, "{level:?} {needle:?} in {haystack:?}");
            }
        }
        assert_eq!(find(Level::best(), b"abc", b""), Some(0));
        assert_eq!(find(Level::best(), b"ab", b"abc"), None);
    }
}
