//! Tests over runs of values: each condition multiplies a byte mask, the mask becomes a list of offsets.
//!
//! The loops are branch-free and generic over an iterator of values, so that a slice (columns) is vectorised by the
//! compiler and a stride (rows) is at least not interpreted. The comparison is chosen outside of the loop.

use crate::batch::{BytesView, ColumnView, RowsOf, VIEW_INLINE_MAX, ValidityView, ValuesView, inline_view};
use crate::error::StorageError;
use crate::predicate::{Comparison, Test};
use crate::value::{Value, order_f32, order_f64};

/// A value that a test can compare, ordered as SQL orders it.
pub(super) trait Native: Copy + Ord {
    /// The constant of a condition, if it is of this type.
    fn of(value: &Value) -> Option<Self>;
}

macro_rules! native {
    ($type:ty: $($pattern:pat => $result:expr),+) => {
        impl Native for $type {
            fn of(value: &Value) -> Option<Self> {
                match value {
                    $($pattern => Some($result),)+
                    _ => None,
                }
            }
        }
    };
}

native!(u8: Value::Boolean(v) => u8::from(*v));
native!(i16: Value::Int16(v) => *v);
native!(i32: Value::Int32(v) | Value::Date(v) => *v);
native!(i128: Value::Decimal { unscaled, .. } => *unscaled);

impl Native for i64 {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int64(v) | Value::Timestamp(v) => Some(*v),
            // A constant beyond the column's range still compares right when it is as far out as the type allows,
            // because a 64-bit decimal has at most 18 digits and never is.
            Value::Decimal { unscaled, .. } => {
                Some(i64::try_from(*unscaled).unwrap_or(if *unscaled < 0 { i64::MIN } else { i64::MAX }))
            }
            _ => None,
        }
    }
}

/// Floats are compared as integers of the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Float32(i32);
/// Floats are compared as integers of the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Float64(i64);

native!(Float32: Value::Float32(v) => Self(order_f32(*v)));
native!(Float64: Value::Float64(v) => Self(order_f64(*v)));

impl From<f32> for Float32 {
    #[inline]
    fn from(value: f32) -> Self {
        Self(order_f32(value))
    }
}

impl From<f64> for Float64 {
    #[inline]
    fn from(value: f64) -> Self {
        Self(order_f64(value))
    }
}

fn mismatch(test: &Test) -> StorageError {
    StorageError::InvalidRequest { reason: format!("{test:?} does not fit the attribute's type") }
}

#[inline]
fn apply<T>(mask: &mut [u8], values: impl Iterator<Item = T>, accepts: impl Fn(T) -> bool) {
    for (keep, value) in mask.iter_mut().zip(values) {
        *keep &= u8::from(accepts(value));
    }
}

#[inline]
fn apply_comparison<T: Ord + Copy>(mask: &mut [u8], values: impl Iterator<Item = T>, comparison: Comparison, right: T) {
    match comparison {
        Comparison::Equal => apply(mask, values, |left| left == right),
        Comparison::NotEqual => apply(mask, values, |left| left != right),
        Comparison::Less => apply(mask, values, |left| left < right),
        Comparison::LessOrEqual => apply(mask, values, |left| left <= right),
        Comparison::Greater => apply(mask, values, |left| left > right),
        Comparison::GreaterOrEqual => apply(mask, values, |left| left >= right),
    }
}

/// Lists up to this length are tested value by value, without branches; longer ones by binary search.
const IN_LIST_LINEAR_MAX: usize = 8;

/// Tests fixed-size values.
pub(super) fn test_native<T: Native>(
    mask: &mut [u8],
    values: impl Iterator<Item = T>,
    test: &Test,
) -> Result<(), StorageError> {
    match test {
        Test::Compare(_, Value::Null) => mask.fill(0),
        Test::Compare(comparison, value) => {
            apply_comparison(mask, values, *comparison, T::of(value).ok_or_else(|| mismatch(test))?);
        }
        Test::In(list) => {
            let list = list.iter().filter(|value| !value.is_null());
            let mut list: Vec<T> = list.map(T::of).collect::<Option<_>>().ok_or_else(|| mismatch(test))?;
            if list.len() <= IN_LIST_LINEAR_MAX {
                apply(mask, values, |left| is_any(left, &list));
            } else {
                list.sort_unstable();
                apply(mask, values, |left| list.binary_search(&left).is_ok());
            }
        }
        Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) | Test::StartsWith(_) => {
            return Err(mismatch(test));
        }
    }
    Ok(())
}

/// Whether a value is in a short list, without branches.
#[inline]
#[expect(clippy::needless_bitwise_bool, reason = "a lazy operator is a branch per element")]
fn is_any<T: Copy + PartialEq>(value: T, list: &[T]) -> bool {
    list.iter().fold(false, |found, other| found | (value == *other))
}

pub(super) fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Text(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// Tests values of variable length.
pub(super) fn test_bytes<'a>(
    mask: &mut [u8],
    values: impl Iterator<Item = &'a [u8]>,
    test: &'a Test,
) -> Result<(), StorageError> {
    match test {
        Test::Compare(_, Value::Null) => mask.fill(0),
        Test::Compare(comparison, value) => {
            apply_comparison(mask, values, *comparison, bytes_of(value).ok_or_else(|| mismatch(test))?);
        }
        Test::In(list) => {
            let list = list.iter().filter(|value| !value.is_null());
            let mut list: Vec<&[u8]> = list.map(bytes_of).collect::<Option<_>>().ok_or_else(|| mismatch(test))?;
            list.sort_unstable();
            apply(mask, values, |left| list.binary_search(&left).is_ok());
        }
        Test::StartsWith(prefix) => apply(mask, values, |left: &[u8]| left.starts_with(prefix.as_bytes())),
        Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) => return Err(mismatch(test)),
    }
    Ok(())
}

/// The views a short constant may have, when equality with it can be decided on views alone.
fn short_views(test: &Test) -> Option<Vec<u128>> {
    let short = |value: &Value| bytes_of(value).filter(|bytes| bytes.len() <= VIEW_INLINE_MAX).map(inline_view);
    match test {
        Test::Compare(Comparison::Equal, value) => Some(vec![short(value)?]),
        Test::In(list) if list.len() <= IN_LIST_LINEAR_MAX => list.iter().map(short).collect(),
        _ => None,
    }
}

/// Tests views: equality with short constants compares 16-byte words, all else looks at the bytes.
fn test_views(mask: &mut [u8], view: &BytesView<'_>, rows: &RowsOf<'_>, test: &Test) -> Result<(), StorageError> {
    if let Some(wanted) = short_views(test) {
        let accepts = |view: u128| is_any(view, &wanted);
        match (rows, wanted.as_slice()) {
            (RowsOf::Run(run), [one]) => apply(mask, view.views[run.clone()].iter(), |view| view == one),
            (RowsOf::Run(run), _) => apply(mask, view.views[run.clone()].iter().copied(), accepts),
            (RowsOf::List(list), _) => apply(mask, list.iter().map(|row| view.views[*row as usize]), accepts),
        }
        return Ok(());
    }
    match rows {
        RowsOf::Run(run) => test_bytes(mask, run.clone().map(|row| view.get(row)), test),
        RowsOf::List(list) => test_bytes(mask, list.iter().map(|row| view.get(*row as usize)), test),
    }
}

fn test_slice<S: Copy, T: Native + From<S>>(
    mask: &mut [u8],
    values: &[S],
    rows: &RowsOf<'_>,
    test: &Test,
) -> Result<(), StorageError> {
    match rows {
        RowsOf::Run(run) => test_native(mask, values[run.clone()].iter().map(|value| T::from(*value)), test),
        RowsOf::List(list) => test_native(mask, list.iter().map(|row| T::from(values[*row as usize])), test),
    }
}

/// Clears the mask where a row is NULL (or is not, for IS NULL).
pub(super) fn test_validity(mask: &mut [u8], validity: ValidityView<'_>, rows: &RowsOf<'_>, wanted: bool) {
    match (validity, rows) {
        (ValidityView::All, _) => {
            if !wanted {
                mask.fill(0);
            }
        }
        (bits, RowsOf::Run(run)) => apply(mask, run.clone(), |row| bits.get(row) == wanted),
        (bits, RowsOf::List(list)) => apply(mask, list.iter(), |row| bits.get(*row as usize) == wanted),
    }
}

/// Multiplies the mask by a test of a column's rows.
pub(super) fn test_column(
    mask: &mut [u8],
    column: &ColumnView<'_>,
    rows: &RowsOf<'_>,
    test: &Test,
) -> Result<(), StorageError> {
    match test {
        Test::IsNull => test_validity(mask, column.validity, rows, false),
        Test::IsNotNull => test_validity(mask, column.validity, rows, true),
        Test::Compare(..) | Test::In(_) | Test::StartsWith(_) | Test::CompareAttribute(..) => {
            match &column.values {
                ValuesView::Boolean(values) => test_slice::<_, u8>(mask, values, rows, test)?,
                ValuesView::Int16(values) => test_slice::<_, i16>(mask, values, rows, test)?,
                ValuesView::Int32(values) => test_slice::<_, i32>(mask, values, rows, test)?,
                ValuesView::Int64(values) => test_slice::<_, i64>(mask, values, rows, test)?,
                ValuesView::Int128(values) => test_slice::<_, i128>(mask, values, rows, test)?,
                ValuesView::Float32(values) => test_slice::<_, Float32>(mask, values, rows, test)?,
                ValuesView::Float64(values) => test_slice::<_, Float64>(mask, values, rows, test)?,
                ValuesView::Bytes(views) => test_views(mask, views, rows, test)?,
            }
            if matches!(column.validity, ValidityView::Bits { .. }) {
                test_validity(mask, column.validity, rows, true);
            }
        }
    }
    Ok(())
}

/// Multiplies the mask by a comparison of two iterators of values.
pub(super) fn compare_pairs<T: Ord>(
    mask: &mut [u8],
    left: impl Iterator<Item = T>,
    right: impl Iterator<Item = T>,
    comparison: Comparison,
) {
    let pairs = left.zip(right);
    match comparison {
        Comparison::Equal => apply(mask, pairs, |(left, right)| left == right),
        Comparison::NotEqual => apply(mask, pairs, |(left, right)| left != right),
        Comparison::Less => apply(mask, pairs, |(left, right)| left < right),
        Comparison::LessOrEqual => apply(mask, pairs, |(left, right)| left <= right),
        Comparison::Greater => apply(mask, pairs, |(left, right)| left > right),
        Comparison::GreaterOrEqual => apply(mask, pairs, |(left, right)| left >= right),
    }
}

/// Multiplies the mask by a comparison of two columns.
pub(super) fn compare_columns(
    mask: &mut [u8],
    left: &ColumnView<'_>,
    right: &ColumnView<'_>,
    rows: &RowsOf<'_>,
    comparison: Comparison,
) -> Result<(), StorageError> {
    fn pairs<S: Copy, T: Ord + From<S>>(
        mask: &mut [u8],
        left: &[S],
        right: &[S],
        rows: &RowsOf<'_>,
        comparison: Comparison,
    ) {
        let value = |side: &[S], row: u32| T::from(side[row as usize]);
        match rows {
            RowsOf::Run(run) => {
                let (left, right) = (&left[run.clone()], &right[run.clone()]);
                compare_pairs(mask, left.iter().map(|v| T::from(*v)), right.iter().map(|v| T::from(*v)), comparison);
            }
            RowsOf::List(list) => compare_pairs(
                mask,
                list.iter().map(|row| value(left, *row)),
                list.iter().map(|row| value(right, *row)),
                comparison,
            ),
        }
    }
    match (&left.values, &right.values) {
        (ValuesView::Boolean(l), ValuesView::Boolean(r)) => pairs::<_, u8>(mask, l, r, rows, comparison),
        (ValuesView::Int16(l), ValuesView::Int16(r)) => pairs::<_, i16>(mask, l, r, rows, comparison),
        (ValuesView::Int32(l), ValuesView::Int32(r)) => pairs::<_, i32>(mask, l, r, rows, comparison),
        (ValuesView::Int64(l), ValuesView::Int64(r)) => pairs::<_, i64>(mask, l, r, rows, comparison),
        (ValuesView::Int128(l), ValuesView::Int128(r)) => pairs::<_, i128>(mask, l, r, rows, comparison),
        (ValuesView::Float32(l), ValuesView::Float32(r)) => pairs::<_, Float32>(mask, l, r, rows, comparison),
        (ValuesView::Float64(l), ValuesView::Float64(r)) => pairs::<_, Float64>(mask, l, r, rows, comparison),
        (ValuesView::Bytes(l), ValuesView::Bytes(r)) => match rows {
            RowsOf::Run(run) => {
                compare_pairs(mask, run.clone().map(|row| l.get(row)), run.clone().map(|row| r.get(row)), comparison);
            }
            RowsOf::List(list) => compare_pairs(
                mask,
                list.iter().map(|row| l.get(*row as usize)),
                list.iter().map(|row| r.get(*row as usize)),
                comparison,
            ),
        },
        (l, r) => {
            let reason = format!("a comparison of {:?} with {:?}", l.physical(), r.physical());
            return Err(StorageError::InvalidRequest { reason });
        }
    }
    for side in [left, right] {
        if matches!(side.validity, ValidityView::Bits { .. }) {
            test_validity(mask, side.validity, rows, true);
        }
    }
    Ok(())
}

/// Of 64 rows up to this many are listed bit by bit; more, by a loop over all of them that has no branches.
const BITS_LISTED_MAX: u32 = 20;

/// The bytes of eight words, 0 or 1 each, as bits: byte `i` of word `w` is bit `8 w + i`.
#[inline]
pub(super) fn pack(words: &[[u8; 8]]) -> u64 {
    // The product brings bit 8 i of the word to bit 56 + i, and no two terms meet.
    let byte = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    words.iter().enumerate().fold(0, |bits, (position, word)| bits | byte(word) << (position * 8))
}

/// Appends `first + i` for every set byte `i` of the mask.
pub(super) fn mask_to_offsets(mask: &[u8], first: u32, found: &mut Vec<u32>) {
    let start = found.len();
    found.resize(start + mask.len(), 0);
    let out = &mut found[start..];
    let mut count = 0;
    let (words, rest) = mask.as_chunks::<8>();
    for (group, words) in words.chunks(8).enumerate() {
        let base = first + group as u32 * 64;
        let mut bits = pack(words);
        if bits.count_ones() <= BITS_LISTED_MAX {
            while bits != 0 {
                out[count] = base + bits.trailing_zeros();
                count += 1;
                bits &= bits - 1;
            }
        } else {
            for (offset, keep) in words.as_flattened().iter().enumerate() {
                out[count] = base + offset as u32;
                count += usize::from(*keep);
            }
        }
    }
    for (offset, keep) in rest.iter().enumerate() {
        out[count] = first + (words.len() * 8 + offset) as u32;
        count += usize::from(*keep);
    }
    found.truncate(start + count);
}

/// How many rows still qualify.
pub(super) fn mask_count(mask: &[u8]) -> usize {
    // Sums of up to 255 bytes fit in a byte, so the inner loop adds bytes.
    mask.chunks(255).map(|part| usize::from(part.iter().sum::<u8>())).sum()
}

/// Keeps those of the offsets from position `from` on whose byte of the mask is set.
pub(super) fn mask_retain(mask: &[u8], offsets: &mut Vec<u32>, from: usize) {
    let listed = &mut offsets[from..];
    let mut count = 0;
    for (position, keep) in mask.iter().enumerate() {
        listed[count] = listed[position];
        count += usize::from(*keep);
    }
    offsets.truncate(from + count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_become_offsets() {
        for len in [0, 1, 7, 8, 63, 64, 65, 77, 300, 2048] {
            let mask: Vec<u8> =
                (0..len).map(|i| u8::from(i % 5 == 2 || (20..36).contains(&i) || i / 64 == 2)).collect();
            let expected: Vec<u32> = (0..len).filter(|i| mask[*i as usize] == 1).map(|i| i + 100).collect();
            let mut found = vec![7];
            mask_to_offsets(&mask, 100, &mut found);
            assert_eq!(found[1..], expected);
            assert_eq!(mask_count(&mask), expected.len());
            let mut kept: Vec<u32> = (100..100 + len).collect();
            mask_retain(&mask, &mut kept, 0);
            assert_eq!(kept, expected);
        }
    }
}
