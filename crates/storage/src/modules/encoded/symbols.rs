//! Strings with many different values, each compressed by a table of symbols that the segment has for all of them.
//!
//! ```text
//! strings   "carefully final deposits"  "final foxes"  ...
//! codes     | 0 17 4 9 | 4 31 | ...                one behind the other
//! ends      where each string's codes end, as the distance from a straight line, bit-packed
//! ```
//! One string is decompressed at a time, by row or in a run into one buffer. It saves the 16 bytes of a view besides.

mod table;

use super::codes::CodeTest;
use super::dictionary::Dictionary;
use super::encoding::{Encoded, Encoding};
use super::packed::Packed;
use super::selection::Selection;
use super::source::{Source, buffers_bytes};
use crate::batch::{
    Buffer, Column, ColumnBuilder, RowWriter, VIEW_INLINE_MAX, ValidityView, Values, Views, data_view, inline_view,
};
use crate::error::StorageError;
use crate::modules::filter::{bytes_of, test_bytes};
use crate::predicate::{Comparison, Test};
use crate::value::Value;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;
use table::{Matcher, SYMBOL_BYTES_MAX, Symbols};

/// The encoding.
pub(super) struct SymbolTable;

const NAME: &str = "symbol table";

/// Bytes that are looked at to find symbols.
const SAMPLE_BYTES: usize = 1 << 15;
/// Values together at least: below, a table does not pay.
const BYTES_MIN: u64 = 1 << 14;
/// Values together at most: a whole segment is one data buffer when it is decompressed.
const BYTES_MAX: u64 = 1 << 30;

/// Lists up to this length are compared code by code; longer ones by their values, sorted.
const LIST_MAX: usize = 8;

fn is_any(codes: &[u8], list: &[Box<[u8]>]) -> bool {
    list.iter().any(|other| codes == &**other)
}

/// Compressed strings, kept from measuring to encoding.
pub(super) struct Compressed {
    symbols: Symbols,
    codes: Vec<u8>,
    ends: Line,
}

impl Encoding for SymbolTable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        let Values::Bytes(views) = &source.column().values else { return None };
        let plain = buffers_bytes(&source.column().values);
        let few = Dictionary.measure(source).is_some_and(|bytes| bytes * 3 < plain);
        if few || !(BYTES_MIN..=BYTES_MAX).contains(&plain) {
            return None;
        }
        let bytes_max = plain * self.percent_max() / 100;
        let compressed = source.compressed(|| {
            let matcher = Matcher::trained(&sample(source.column(), views));
            compress(source.column(), views, &matcher, bytes_max)
        })?;
        Some(compressed.bytes())
    }

    fn percent_max(&self) -> u64 {
        66
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        let Some(Compressed { symbols, codes, ends }) = source.compressed(|| None) else {
            unreachable!("{NAME} was measured")
        };
        let mut exact = Vec::with_capacity(codes.len());
        exact.extend_from_slice(codes);
        let long = buffers_bytes(&source.column().values) as usize / source.rows().max(1) - size_of::<u128>();
        let value_bytes = long + long / 8;
        let (symbols, codes, ends) = (symbols.clone(), exact.into(), ends.clone());
        Some(Arc::new(CompressedValues { symbols, codes, ends, value_bytes }))
    }
}

/// Strings from all over the segment.
fn sample<'a>(column: &Column, views: &'a Views) -> Vec<&'a [u8]> {
    let total: usize = (0..views.len()).map(|row| views.get(row).len()).sum();
    let step = (total / SAMPLE_BYTES).max(1);
    let rows = (0..views.len()).step_by(step).filter(|row| !column.is_null(*row));
    let mut room = SAMPLE_BYTES;
    let mut strings = Vec::new();
    for row in rows {
        let string = views.get(row);
        let taken = string.len().min(room);
        strings.push(&string[..taken]);
        room -= taken;
        if room == 0 {
            break;
        }
    }
    strings
}

/// All strings; none if they take more than `bytes_max`.
fn compress(column: &Column, views: &Views, matcher: &Matcher, bytes_max: u64) -> Option<Compressed> {
    let mut codes = Vec::new();
    let mut ends = Vec::with_capacity(views.len());
    for row in 0..views.len() {
        if !column.is_null(row) {
            matcher.compress(views.get(row), &mut codes);
        }
        if codes.len() as u64 > bytes_max {
            return None;
        }
        ends.push(codes.len() as u64);
    }
    Some(Compressed { symbols: matcher.symbols(), codes, ends: Line::through(&ends) })
}

impl Compressed {
    fn bytes(&self) -> u64 {
        self.codes.len() as u64 + self.ends.bytes() + Symbols::BYTES as u64
    }
}

/// Ascending numbers as distances from a straight line: strings are of about the same length, so these are small.
#[derive(Clone)]
struct Line {
    /// What the line rises by per row, times 2^16.
    slope: u64,
    /// The distance that is packed as 0.
    lowest: i64,
    distances: Packed,
}

impl Line {
    fn through(numbers: &[u64]) -> Self {
        let slope = numbers.last().map_or(0, |last| (last << 16) / numbers.len() as u64);
        let distance = |(row, number): (usize, &u64)| *number as i64 - ((row as u64 * slope) >> 16) as i64;
        let distances = || numbers.iter().enumerate().map(distance);
        let lowest = distances().min().unwrap_or(0);
        let max = distances().max().unwrap_or(0) - lowest;
        let packed = distances().map(|distance| (distance - lowest) as u64);
        let distances = Packed::new(packed, numbers.len(), max as u64);
        Self { slope, lowest, distances }
    }

    #[inline]
    fn get(&self, row: usize) -> usize {
        let line = ((row as u64 * self.slope) >> 16) as i64;
        (line + self.lowest + self.distances.get(row) as i64) as usize
    }

    fn bytes(&self) -> u64 {
        self.distances.bytes()
    }
}

struct CompressedValues {
    symbols: Symbols,
    codes: Buffer<u8>,
    ends: Line,
    /// Of a value before compression, about.
    value_bytes: usize,
}

impl CompressedValues {
    #[inline]
    fn codes_of(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends.get(row - 1) };
        &self.codes[start..self.ends.get(row)]
    }

    /// Decompresses rows one behind the other; long values stay in one buffer that the views share.
    fn values(&self, rows: impl ExactSizeIterator<Item = usize>) -> Values {
        // As long as all are on average, and a little more.
        let bytes_about = rows.len() * self.value_bytes;
        let mut views = Vec::with_capacity(rows.len());
        let mut data = Vec::with_capacity(bytes_about);
        for row in rows {
            let start = data.len();
            self.symbols.decompress(self.codes_of(row), &mut data);
            let value = &data[start..];
            if value.len() <= VIEW_INLINE_MAX {
                views.push(inline_view(value));
                data.truncate(start);
            } else {
                views.push(data_view(value, 0, start as u32));
            }
        }
        let data: Arc<[Buffer<u8>]> = if data.is_empty() { Arc::default() } else { Arc::new([data.into()]) };
        Values::Bytes(Views { views: views.into(), data })
    }

    /// Calls `visit` with the value of each row.
    fn each<'r>(&self, rows: &'r [u32], mut visit: impl FnMut(&'r u32, &[u8])) {
        let mut value = Vec::new();
        for row in rows {
            value.clear();
            self.symbols.decompress(self.codes_of(*row as usize), &mut value);
            visit(row, &value);
        }
    }
}

impl Encoded for CompressedValues {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        self.codes.bytes() as u64 + self.ends.bytes() + Symbols::BYTES as u64
    }

    fn run(&self, rows: Range<usize>) -> Values {
        self.values(rows)
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        self.each(rows, |row, value| {
            if validity.get(*row as usize) {
                out.push_bytes(value);
            } else {
                out.push_null();
            }
        });
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        Some(self.values(rows.iter().map(|row| *row as usize)))
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        let codes = self.codes_of(row);
        let mut value = Vec::with_capacity((codes.len() + 1) * SYMBOL_BYTES_MAX);
        self.symbols.decompress(codes, &mut value);
        out.write_bytes(column, &value);
    }

    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError> {
        let (constants, wanted): (&[Value], bool) = match test {
            Test::Compare(_, Value::Null) => return Ok(Some(CodeTest::Nothing)),
            Test::Compare(Comparison::Equal, constant) => (std::slice::from_ref(constant), true),
            Test::Compare(Comparison::NotEqual, constant) => (std::slice::from_ref(constant), false),
            Test::In(list) if list.len() <= LIST_MAX => (list, true),
            // The order of codes is not that of strings.
            Test::Compare(..)
            | Test::In(_)
            | Test::StartsWith(_)
            | Test::IsNull
            | Test::IsNotNull
            | Test::CompareAttribute(..) => return Ok(None),
        };
        let matcher = self.symbols.matcher();
        let mut any_of = Vec::with_capacity(constants.len());
        for constant in constants.iter().filter(|constant| !constant.is_null()) {
            // Another type is somebody's mistake, which the test of values reports.
            let Some(bytes) = bytes_of(constant) else { return Ok(None) };
            let mut codes = Vec::new();
            matcher.compress(bytes, &mut codes);
            any_of.push(codes.into());
        }
        Ok(Some(CodeTest::Strings { any_of: any_of.into(), wanted }))
    }

    fn select(&self, test: &CodeTest, selection: &mut Selection) {
        match test {
            CodeTest::Everything => {}
            CodeTest::Strings { any_of, wanted } => {
                selection.retain(|row| is_any(self.codes_of(row), any_of) == *wanted);
            }
            CodeTest::Nothing => selection.clear(),
            CodeTest::Range(_) | CodeTest::AnyOf(_) | CodeTest::Set(_) | CodeTest::Sorted(_) => {
                unreachable!("strings are not tested for {test:?}")
            }
        }
    }

    fn select_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]) {
        match test {
            CodeTest::Everything => {}
            CodeTest::Strings { any_of, wanted } => {
                for (keep, row) in mask.iter_mut().zip(rows) {
                    *keep &= u8::from(is_any(self.codes_of(*row as usize), any_of) == *wanted);
                }
            }
            CodeTest::Nothing => mask.fill(0),
            CodeTest::Range(_) | CodeTest::AnyOf(_) | CodeTest::Set(_) | CodeTest::Sorted(_) => {
                unreachable!("strings are not tested for {test:?}")
            }
        }
    }

    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        let Values::Bytes(views) = self.values(rows.iter().map(|row| *row as usize)) else {
            unreachable!("{NAME} holds strings")
        };
        test_bytes(mask, (0..views.len()).map(|row| views.get(row)), test)
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (codes, taken) = self.codes.placed(arena)?;
        let (distances, more) = self.ends.distances.placed(arena)?;
        let (symbols, table) = self.symbols.placed(arena)?;
        let ends = Line { slope: self.ends.slope, lowest: self.ends.lowest, distances };
        Ok((Arc::new(Self { symbols, codes, ends, value_bytes: self.value_bytes }), taken + more + table))
    }
}
