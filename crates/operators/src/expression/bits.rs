//! Bitmaps and bytes: results of tests are computed with a byte per row and NULLs kept with a bit per row.

use eris_storage::Bitmap;

/// 64 bits from bit `at` on; what lies beyond the bytes is 0.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let (first, shift) = (at >> 3, at & 7);
    let mut window = [0; 16];
    let len = bytes.len().saturating_sub(first).min(9);
    window[..len].copy_from_slice(&bytes[first..first + len]);
    (u128::from_le_bytes(window) >> shift) as u64
}

fn words(bitmap: &Bitmap) -> impl Iterator<Item = u64> + '_ {
    let (bytes, offset) = bitmap.buffer();
    (0..bitmap.len()).step_by(64).map(move |at| word(bytes, offset + at))
}

fn of_words(words: impl Iterator<Item = u64>, len: usize) -> Bitmap {
    let mut bytes: Vec<u8> = Vec::with_capacity(len.div_ceil(64) * 8);
    words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    Bitmap::new(bytes.into(), 0, len)
}

/// The bits that are set in both, which are of one length.
pub(crate) fn both(left: &Bitmap, right: &Bitmap) -> Bitmap {
    debug_assert_eq!(left.len(), right.len(), "bitmaps of one batch");
    of_words(words(left).zip(words(right)).map(|(left, right)| left & right), left.len())
}

/// The bits that are set where both are given, or that one.
pub(crate) fn both_of(left: Option<&Bitmap>, right: Option<&Bitmap>) -> Option<Bitmap> {
    match (left, right) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one.clone()),
        (Some(left), Some(right)) => Some(both(left, right)),
    }
}

/// A byte of 0 or 1 for each bit.
pub(crate) fn bytes_of(bitmap: &Bitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bitmap.len().next_multiple_of(64));
    for word in words(bitmap) {
        bytes.extend((0..64).map(|bit| (word >> bit) as u8 & 1));
    }
    bytes.truncate(bitmap.len());
    bytes
}

/// A bit for each byte: whether it is not 0.
pub(crate) fn bitmap_of(bytes: &[u8]) -> Bitmap {
    let word = |bytes: &[u8]| {
        let mut word = 0;
        for (bit, byte) in bytes.iter().enumerate() {
            word |= u64::from(*byte != 0) << bit;
        }
        word
    };
    of_words(bytes.chunks(64).map(word), bytes.len())
}

/// The positions of bytes that are not 0.
pub(crate) fn positions_of(bytes: &[u8]) -> Vec<u32> {
    let mut positions = vec![0_u32; bytes.len()];
    let mut found = 0;
    for (row, byte) in bytes.iter().enumerate() {
        // Written in any case, kept if it counts: no branch to be guessed.
        positions[found] = row as u32;
        found += usize::from(*byte != 0);
    }
    positions.truncate(found);
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_bytes_and_come_back_from_any_offset() {
        let bits: Vec<bool> = (0..300_u32).map(|row| row.wrapping_mul(0x9E37_79B9) >> 29 < 3).collect();
        let other: Vec<bool> = (0..300_u32).map(|row| row % 3 != 1).collect();
        let (whole, whole_other): (Bitmap, Bitmap) = (bits.iter().copied().collect(), other.iter().copied().collect());
        for start in [0, 1, 7, 8, 63, 64, 65] {
            for len in [0, 1, 7, 8, 63, 64, 65, 128, 200] {
                let bitmap = whole.slice(start, len);
                let bytes = bytes_of(&bitmap);
                assert!(bytes.iter().map(|byte| *byte == 1).eq(bits[start..start + len].iter().copied()));
                assert_eq!(bitmap_of(&bytes), bitmap, "{start}+{len}");
                let expected: Vec<u32> = (0..len as u32).filter(|row| bits[start + *row as usize]).collect();
                assert_eq!(positions_of(&bytes), expected);
                let both = both(&bitmap, &whole_other.slice(start / 2, len));
                assert!((0..len).all(|row| both.get(row) == (bits[start + row] && other[start / 2 + row])));
            }
        }
    }
}
