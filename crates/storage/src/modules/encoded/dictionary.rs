//! Order-preserving dictionary: the different values in their order, and a bit-packed code for each row.
//!
//! ```text
//! rows     AIR  RAIL  AIR  SHIP  RAIL          dictionary   0 AIR   1 RAIL   2 SHIP
//! codes     0    1     0    2     1            2 bits each
//! ```
//! The order of codes is the order of values, so ranges of values are ranges of codes. Any other test meets the
//! dictionary once and becomes a set of codes. Strings are handed out as views into the dictionary's data.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding};
use super::packed::{Packed, bytes_of};
use super::selection::Selection;
use super::source::{Source, buffers_bytes, compact};
use crate::batch::{Column, ColumnBuilder, RowWriter, RowsOf, ValidityView, Values, Views};
use crate::error::StorageError;
use crate::modules::filter::test_column;
use crate::predicate::{Comparison, Test};
use crate::types::Physical;
use crate::value::Value;
use eris_platform::{Arena, MemoryExceeded};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct Dictionary;

const NAME: &str = "dictionary";

/// Codes unpacked before their values are looked up: they stay in the first-level cache.
const LOOKED_UP: usize = 512;

/// Listed rows tested together.
const LISTED: usize = 64;

impl Encoding for Dictionary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        let plain = buffers_bytes(&source.column().values);
        // Codes of a byte or less need no dictionary.
        let range = source.range().and_then(|(low, high)| u64::try_from(high.checked_sub(low)?).ok());
        let direct = range.map_or(plain, |max| plain.min(bytes_of(source.rows(), max) as u64));
        let integers = !matches!(source.column().values.physical(), Physical::Bytes);
        if integers && direct <= source.rows() as u64 + 128 {
            return None;
        }
        let distinct = source.distinct_within(direct * self.percent_max() / 100)?;
        let max = (distinct.len() as u64).checked_sub(1)?;
        Some(bytes_of(source.rows(), max) as u64 + source.bytes_of_rows(&distinct.rows))
    }

    fn percent_max(&self) -> u64 {
        80
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        let Some(distinct) = source.distinct_within(0) else { unreachable!("{NAME} was measured") };
        let values = compact(source.column(), &distinct.rows);
        let codes = distinct.codes.iter().map(|code| u64::from(*code));
        let codes = Packed::new(codes, source.rows(), distinct.len() as u64 - 1);
        Some(Arc::new(Looked { values, codes }))
    }
}

/// A dictionary and codes.
struct Looked {
    /// Ascending, each once.
    values: Column,
    codes: Packed,
}

impl Looked {
    fn look_up<T: Copy>(&self, values: &[T], rows: Range<usize>) -> Vec<T> {
        let mut out = Vec::with_capacity(rows.len());
        let mut unpacked = [MaybeUninit::<u32>::uninit(); LOOKED_UP];
        for first in rows.clone().step_by(LOOKED_UP) {
            let len = LOOKED_UP.min(rows.end - first);
            let codes = self.codes.unpack_into(first, 0, &mut unpacked[..len]);
            out.extend(codes.iter().map(|code| values[*code as usize]));
        }
        out
    }

    /// How many values accept a test, if those that do come first.
    fn count_until(&self, comparison: Comparison, constant: &Value) -> Result<u64, StorageError> {
        let test = Test::Compare(comparison, constant.clone());
        let (mut low, mut high) = (0, self.values.len());
        while low < high {
            let middle = low.midpoint(high);
            let mut mask = [1];
            test_column(&mut mask, &self.values.view(), &RowsOf::Run(middle..middle + 1), &test)?;
            if mask == [1] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low as u64)
    }

    fn code_test(&self, test: &Test) -> Result<CodeTest, StorageError> {
        let max = self.values.len() as u64 - 1;
        let between = |low: u64, end: u64| match end.checked_sub(1) {
            Some(high) => CodeTest::between(low, high, max),
            None => CodeTest::Nothing,
        };
        match test {
            Test::Compare(_, Value::Null) => Ok(CodeTest::Nothing),
            Test::Compare(comparison, constant) => {
                let below = || self.count_until(Comparison::Less, constant);
                let up_to = || self.count_until(Comparison::LessOrEqual, constant);
                Ok(match comparison {
                    Comparison::Equal => between(below()?, up_to()?),
                    Comparison::NotEqual => between(below()?, up_to()?).negated(),
                    Comparison::Less => between(0, below()?),
                    Comparison::LessOrEqual => between(0, up_to()?),
                    Comparison::Greater => between(up_to()?, max + 1),
                    Comparison::GreaterOrEqual => between(below()?, max + 1),
                })
            }
            Test::In(_) | Test::StartsWith(_) | Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) => {
                let mut mask = vec![1; self.values.len()];
                test_column(&mut mask, &self.values.view(), &RowsOf::Run(0..self.values.len()), test)?;
                let codes = mask.iter().enumerate().filter(|(_, accepted)| **accepted != 0);
                let codes: Vec<u64> = codes.map(|(code, _)| code as u64).collect();
                Ok(CodeTest::any_of(&codes, max))
            }
        }
    }
}

impl Encoded for Looked {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        self.codes.bytes() + buffers_bytes(&self.values.values)
    }

    fn run(&self, rows: Range<usize>) -> Values {
        match &self.values.values {
            Values::Boolean(values) => Values::Boolean(self.look_up(values, rows).into()),
            Values::Int16(values) => Values::Int16(self.look_up(values, rows).into()),
            Values::Int32(values) => Values::Int32(self.look_up(values, rows).into()),
            Values::Int64(values) => Values::Int64(self.look_up(values, rows).into()),
            Values::Int128(values) => Values::Int128(self.look_up(values, rows).into()),
            Values::Float32(values) => Values::Float32(self.look_up(values, rows).into()),
            Values::Float64(values) => Values::Float64(self.look_up(values, rows).into()),
            Values::Bytes(values) => {
                let views = self.look_up(&values.views, rows).into();
                Values::Bytes(Views { views, data: Arc::clone(&values.data) })
            }
        }
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        let codes = self.codes.codes();
        let at = rows.iter().map(move |row| codes.get(*row as usize) as u32);
        out.extend_parts(validity, rows, &self.values.view().values, at);
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        let Values::Bytes(values) = &self.values.values else { return None };
        let codes = self.codes.codes();
        let views = rows.iter().map(|row| values.views[codes.get(*row as usize) as usize]).collect();
        Some(Values::Bytes(Views { views, data: Arc::clone(&values.data) }))
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        out.write(column, &self.values.view(), self.codes.get(row) as usize);
    }

    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError> {
        self.code_test(test).map(Some)
    }

    fn select(&self, test: &CodeTest, selection: &mut Selection) {
        self.codes.select(test, selection);
    }

    fn select_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]) {
        self.codes.test_listed(test, rows, mask);
    }

    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        let mut codes = [0; LISTED];
        for (rows, mask) in rows.chunks(LISTED).zip(mask.chunks_mut(LISTED)) {
            codes.iter_mut().zip(rows).for_each(|(code, row)| *code = self.codes.get(*row as usize) as u32);
            test_column(mask, &self.values.view(), &RowsOf::List(&codes[..rows.len()]), test)?;
        }
        Ok(())
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (values, taken) = self.values.placed(arena)?;
        let (codes, more) = self.codes.placed(arena)?;
        Ok((Arc::new(Self { values, codes }), taken + more))
    }
}
