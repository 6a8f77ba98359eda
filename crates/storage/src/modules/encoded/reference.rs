//! Frame of reference: integers relative to the smallest one, bit-packed.
//!
//! ```text
//! values   2031  2030  2037  2030         base 2030, 3 bits:  1 0 7 0
//! ```
//! The order of codes is the order of values, so a comparison with a constant is one with its code; a constant outside
//! of the domain decides for all rows. 16-, 32- and 64-bit integers, dates, timestamps, decimals of 64 bits and of 128
//! while their range fits in 64, and truth values.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding};
use super::packed::{Packed, bytes_of};
use super::selection::Selection;
use super::source::{Source, integers};
use crate::batch::{ColumnBuilder, RowWriter, ValidityView, Values};
use crate::error::StorageError;
use crate::predicate::{Comparison, Test};
use crate::types::Physical;
use crate::value::Value;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct FrameOfReference;

const NAME: &str = "frame of reference";

impl Encoding for FrameOfReference {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        let (low, high) = source.range()?;
        let max = u64::try_from(high.checked_sub(low)?).ok()?;
        Some(bytes_of(source.rows(), max) as u64)
    }

    fn percent_max(&self) -> u64 {
        85
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        let Some((base, high)) = source.range() else { unreachable!("{NAME} was measured") };
        let max = (high - base) as u64;
        // What lies under a NULL may be outside.
        let code = |value: i128| value.checked_sub(base).and_then(|code| u64::try_from(code).ok()).unwrap_or(0);
        let codes = integers(&source.column().values).map(|value| code(value).min(max));
        let codes = Packed::new(codes, source.rows(), max);
        Some(Arc::new(Referenced { physical: source.column().values.physical(), base, codes }))
    }
}

/// Codes relative to a base.
struct Referenced {
    physical: Physical,
    base: i128,
    codes: Packed,
}

impl Referenced {
    fn constant(&self, value: &Value) -> Option<i128> {
        match (self.physical, value) {
            (Physical::Boolean, Value::Boolean(v)) => Some(i128::from(*v)),
            (Physical::Int16, Value::Int16(v)) => Some(i128::from(*v)),
            (Physical::Int32, Value::Int32(v) | Value::Date(v)) => Some(i128::from(*v)),
            (Physical::Int64, Value::Int64(v) | Value::Timestamp(v)) => Some(i128::from(*v)),
            (Physical::Int64 | Physical::Int128, Value::Decimal { unscaled, .. }) => Some(*unscaled),
            _ => None,
        }
    }

    /// The codes that compare right with a value that is `distance` above the base.
    fn compare(&self, comparison: Comparison, distance: i128) -> CodeTest {
        let max = self.codes.max();
        let between = |low: i128, high: i128| {
            let low = u64::try_from(low.max(0));
            // Beyond 64 bits nothing qualifies.
            low.map_or(CodeTest::Nothing, |low| match u64::try_from(high) {
                Ok(high) => CodeTest::between(low, high, max),
                Err(_) if high < 0 => CodeTest::Nothing,
                Err(_) => CodeTest::between(low, max, max),
            })
        };
        match comparison {
            Comparison::Equal => between(distance, distance),
            Comparison::NotEqual => between(distance, distance).negated(),
            Comparison::Less => between(0, distance.saturating_sub(1)),
            Comparison::LessOrEqual => between(0, distance),
            Comparison::Greater => between(distance.saturating_add(1), i128::MAX),
            Comparison::GreaterOrEqual => between(distance, i128::MAX),
        }
    }

    fn code_test(&self, test: &Test) -> Result<CodeTest, StorageError> {
        let mismatch = || {
            let reason = format!("{test:?} does not fit the attribute's type");
            StorageError::InvalidRequest { reason }
        };
        match test {
            Test::Compare(_, Value::Null) => Ok(CodeTest::Nothing),
            Test::Compare(comparison, value) => {
                let constant = self.constant(value).ok_or_else(mismatch)?;
                Ok(self.compare(*comparison, constant.saturating_sub(self.base)))
            }
            Test::In(list) => {
                let list = list.iter().filter(|value| !value.is_null());
                let list: Vec<i128> =
                    list.map(|value| self.constant(value)).collect::<Option<_>>().ok_or_else(mismatch)?;
                let code = |value: i128| u64::try_from(value.checked_sub(self.base)?).ok();
                let mut codes: Vec<u64> =
                    list.into_iter().filter_map(code).filter(|code| *code <= self.codes.max()).collect();
                codes.sort_unstable();
                codes.dedup();
                Ok(CodeTest::any_of(&codes, self.codes.max()))
            }
            Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) | Test::StartsWith(_) => Err(mismatch()),
        }
    }

    /// The value of a code, in the low bits.
    #[inline]
    fn value(&self, row: usize) -> i128 {
        self.base + i128::from(self.codes.get(row))
    }
}

impl Encoded for Referenced {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        self.codes.bytes()
    }

    fn run(&self, rows: Range<usize>) -> Values {
        let base = self.base as u64;
        match self.physical {
            Physical::Boolean => Values::Boolean(self.codes.unpack::<u8>(rows, base).into()),
            Physical::Int16 => Values::Int16(self.codes.unpack::<i16>(rows, base).into()),
            Physical::Int32 => Values::Int32(self.codes.unpack::<i32>(rows, base).into()),
            Physical::Int64 => Values::Int64(self.codes.unpack::<i64>(rows, base).into()),
            Physical::Int128 => {
                let codes: Vec<u64> = self.codes.unpack(rows, 0);
                Values::Int128(codes.into_iter().map(|code| self.base + i128::from(code)).collect())
            }
            Physical::Float32 | Physical::Float64 | Physical::Bytes => unreachable!("{NAME} holds integers"),
        }
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        let (codes, base) = (self.codes.codes(), self.base as u64);
        let values = rows.iter().map(move |row| codes.get(*row as usize).wrapping_add(base));
        match self.physical {
            Physical::Boolean => out.extend_bool(validity, rows, values.map(|value| value as u8)),
            Physical::Int16 => out.extend_i16(validity, rows, values.map(|value| value as i16)),
            Physical::Int32 => out.extend_i32(validity, rows, values.map(|value| value as i32)),
            Physical::Int64 => out.extend_i64(validity, rows, values.map(|value| value as i64)),
            Physical::Int128 => out.extend_i128(validity, rows, rows.iter().map(|row| self.value(*row as usize))),
            Physical::Float32 | Physical::Float64 | Physical::Bytes => unreachable!("{NAME} holds integers"),
        }
    }

    fn gather(&self, _rows: &[u32]) -> Option<Values> {
        None
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        let value = self.codes.get(row).wrapping_add(self.base as u64);
        match self.physical {
            Physical::Boolean => out.write_field(column, [value as u8]),
            Physical::Int16 => out.write_field(column, (value as i16).to_le_bytes()),
            Physical::Int32 => out.write_field(column, (value as i32).to_le_bytes()),
            Physical::Int64 => out.write_field(column, value.to_le_bytes()),
            Physical::Int128 => out.write_field(column, self.value(row).to_le_bytes()),
            Physical::Float32 | Physical::Float64 | Physical::Bytes => unreachable!("{NAME} holds integers"),
        }
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
        self.codes.test_listed(&self.code_test(test)?, rows, mask);
        Ok(())
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (codes, taken) = self.codes.placed(arena)?;
        Ok((Arc::new(Self { physical: self.physical, base: self.base, codes }), taken))
    }
}
