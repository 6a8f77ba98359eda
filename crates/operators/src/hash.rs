//! Hashes of rows: the same in every run, and the same for equal values wherever they lie.
//!
//! A word is mixed by a 64 x 64 -> 128-bit product whose halves are xored (the core of wyhash). -0 counts as 0 and all
//! NaNs are one value, as SQL compares them; a NULL has a word of its own.

use eris_storage::{Column, VIEW_INLINE_MAX, Values};

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xE703_7ED1_A0B4_28DB;
const NULL_WORD: u64 = 0x5851_F42D_4C95_7F2D;

/// Mixes a word.
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ FIRST) * u128::from(SECOND);
    (product as u64) ^ (product >> 64) as u64
}

/// Mixes another word into a hash.
#[inline]
pub(crate) fn mix_into(hash: u64, word: u64) -> u64 {
    mix(hash.rotate_left(23) ^ word)
}

/// The bits of a float, equal for equal values.
#[inline]
pub(crate) fn float_bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// The bits of a float, equal for equal values.
#[inline]
pub(crate) fn real_bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { (value + 0.0).to_bits() }
}

/// A hash of bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = mix(bytes.len() as u64);
    for word in words {
        hash = mix_into(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix_into(hash, u64::from_le_bytes(last))
}

/// A hash of each row of columns of equal length.
pub(crate) fn hash_rows(columns: &[Column], rows: usize) -> Vec<u64> {
    let mut hashes = vec![SECOND; rows];
    for column in columns {
        match &column.values {
            Values::Boolean(values) => fold(&mut hashes, column, |row| u64::from(values[row])),
            Values::Int16(values) => fold(&mut hashes, column, |row| i64::from(values[row]) as u64),
            Values::Int32(values) => fold(&mut hashes, column, |row| i64::from(values[row]) as u64),
            Values::Int64(values) => fold(&mut hashes, column, |row| values[row] as u64),
            Values::Int128(values) => {
                fold(&mut hashes, column, |row| mix((values[row] >> 64) as u64) ^ values[row] as u64);
            }
            Values::Float32(values) => fold(&mut hashes, column, |row| u64::from(real_bits(values[row]))),
            Values::Float64(values) => fold(&mut hashes, column, |row| float_bits(values[row])),
            Values::Bytes(views) => fold(&mut hashes, column, |row| {
                let view = views.views[row];
                if view as u32 as usize <= VIEW_INLINE_MAX {
                    mix((view >> 64) as u64) ^ view as u64
                } else {
                    hash_bytes(views.get(row))
                }
            }),
        }
    }
    hashes
}

#[inline]
fn fold(hashes: &mut [u64], column: &Column, word: impl Fn(usize) -> u64) {
    match &column.validity {
        None => hashes.iter_mut().enumerate().for_each(|(row, hash)| *hash = mix_into(*hash, word(row))),
        Some(valid) => hashes.iter_mut().enumerate().for_each(|(row, hash)| {
            *hash = mix_into(*hash, if valid.get(row) { word(row) } else { NULL_WORD });
        }),
    }
}

/// Whether two rows of columns have equal values; NULLs are equal.
#[inline]
pub(crate) fn rows_equal(left: &[Column], left_row: usize, right: &[Column], right_row: usize) -> bool {
    left.iter().zip(right).all(|(left, right)| values_equal(left, left_row, right, right_row))
}

#[inline]
fn values_equal(left: &Column, a: usize, right: &Column, b: usize) -> bool {
    match (left.is_null(a), right.is_null(b)) {
        (false, false) => {}
        (one, other) => return one == other,
    }
    match (&left.values, &right.values) {
        (Values::Boolean(left), Values::Boolean(right)) => left[a] == right[b],
        (Values::Int16(left), Values::Int16(right)) => left[a] == right[b],
        (Values::Int32(left), Values::Int32(right)) => left[a] == right[b],
        (Values::Int64(left), Values::Int64(right)) => left[a] == right[b],
        (Values::Int128(left), Values::Int128(right)) => left[a] == right[b],
        (Values::Float32(left), Values::Float32(right)) => real_bits(left[a]) == real_bits(right[b]),
        (Values::Float64(left), Values::Float64(right)) => float_bits(left[a]) == float_bits(right[b]),
        (Values::Bytes(left), Values::Bytes(right)) => {
            let (one, other) = (left.views[a], right.views[b]);
            // Length and first four bytes.
            if one as u64 != other as u64 {
                false
            } else if one as u32 as usize <= VIEW_INLINE_MAX {
                one == other
            } else {
                left.get(a) == right.get(b)
            }
        }
        (left, right) => unreachable!("{:?} compared with {:?}", left.physical(), right.physical()),
    }
}

/// Asks the caches for an entry that is read or written soon.
#[inline]
pub(crate) fn prefetch<T>(entries: &[T], index: usize) {
    debug_assert!(index < entries.len(), "entry {index} of {}", entries.len());
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and may be given any address; SSE is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(entries.as_ptr().wrapping_add(index).cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entries;
}
