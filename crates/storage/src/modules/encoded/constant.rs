//! One value for all rows.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding};
use super::selection::Selection;
use super::source::{Source, buffers_bytes, compact};
use crate::batch::{Buffer, Column, ColumnBuilder, RowWriter, RowsOf, ValidityView, Values, Views};
use crate::error::StorageError;
use crate::modules::filter::test_column;
use crate::predicate::Test;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct Constant;

const NAME: &str = "constant";

impl Encoding for Constant {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        source.only_value().map(|row| source.bytes_of_rows(&[row]))
    }

    fn percent_max(&self) -> u64 {
        100
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        match source.only_value() {
            Some(row) => Some(Arc::new(ConstantValue(compact(source.column(), &[row])))),
            None => unreachable!("{NAME} was measured"),
        }
    }
}

/// A column of one row.
struct ConstantValue(Column);

fn repeat<T: Copy + Send + Sync + 'static>(value: &Buffer<T>, rows: usize) -> Buffer<T> {
    vec![value[0]; rows].into()
}

impl ConstantValue {
    fn repeated(&self, rows: usize) -> Values {
        match &self.0.values {
            Values::Boolean(value) => Values::Boolean(repeat(value, rows)),
            Values::Int16(value) => Values::Int16(repeat(value, rows)),
            Values::Int32(value) => Values::Int32(repeat(value, rows)),
            Values::Int64(value) => Values::Int64(repeat(value, rows)),
            Values::Int128(value) => Values::Int128(repeat(value, rows)),
            Values::Float32(value) => Values::Float32(repeat(value, rows)),
            Values::Float64(value) => Values::Float64(repeat(value, rows)),
            Values::Bytes(value) => {
                let views = value.views.repeated([rows].into_iter());
                Values::Bytes(Views { views, data: Arc::clone(&value.data) })
            }
        }
    }

    fn accepts(&self, test: &Test) -> Result<bool, StorageError> {
        let mut mask = [1];
        test_column(&mut mask, &self.0.view(), &RowsOf::Run(0..1), test)?;
        Ok(mask == [1])
    }
}

impl Encoded for ConstantValue {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        buffers_bytes(&self.0.values)
    }

    fn run(&self, rows: Range<usize>) -> Values {
        self.repeated(rows.len())
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        out.extend_parts(validity, rows, &self.0.view().values, rows.iter().map(|_| 0));
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        matches!(self.0.values, Values::Bytes(_)).then(|| self.repeated(rows.len()))
    }

    fn pack(&self, _row: usize, column: usize, out: &mut RowWriter<'_>) {
        out.write(column, &self.0.view(), 0);
    }

    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError> {
        let accepts = self.accepts(test)?;
        Ok(Some(if accepts { CodeTest::Everything } else { CodeTest::Nothing }))
    }

    fn select(&self, test: &CodeTest, selection: &mut Selection) {
        if *test != CodeTest::Everything {
            selection.clear();
        }
    }

    fn select_listed(&self, test: &CodeTest, _rows: &[u32], mask: &mut [u8]) {
        if *test != CodeTest::Everything {
            mask.fill(0);
        }
    }

    fn test_listed(&self, test: &Test, _rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        if !self.accepts(test)? {
            mask.fill(0);
        }
        Ok(())
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (column, taken) = self.0.placed(arena)?;
        Ok((Arc::new(Self(column)), taken))
    }
}
