//! Values as they are: what nothing else makes smaller.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding};
use super::selection::Selection;
use super::source::{Source, buffers_bytes};
use crate::batch::{Column, ColumnBuilder, RowWriter, RowsOf, ValidityView, Values};
use crate::error::StorageError;
use crate::modules::filter::test_column;
use crate::predicate::Test;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct Plain;

const NAME: &str = "plain";

impl Encoding for Plain {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        Some(buffers_bytes(&source.column().values))
    }

    fn percent_max(&self) -> u64 {
        100
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        Some(Arc::new(PlainValues::new(source.plain())))
    }
}

/// The values, without their validity.
pub(super) struct PlainValues(Column);

impl PlainValues {
    pub(super) fn new(mut column: Column) -> Self {
        column.validity = None;
        Self(column)
    }
}

impl Encoded for PlainValues {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        buffers_bytes(&self.0.values)
    }

    fn run(&self, rows: Range<usize>) -> Values {
        self.0.slice(rows.start, rows.len()).values
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        let mut view = self.0.view();
        view.validity = validity;
        out.extend_view(&view, &RowsOf::List(rows));
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        matches!(self.0.values, Values::Bytes(_)).then(|| self.0.take(rows).values)
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        out.write(column, &self.0.view(), row);
    }

    fn translate(&self, _test: &Test) -> Result<Option<CodeTest>, StorageError> {
        Ok(None)
    }

    fn select(&self, _test: &CodeTest, _selection: &mut Selection) {
        unreachable!("plain values have no codes");
    }

    fn select_listed(&self, _test: &CodeTest, _rows: &[u32], _mask: &mut [u8]) {
        unreachable!("plain values have no codes");
    }

    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        test_column(mask, &self.0.view(), &RowsOf::List(rows), test)
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (column, taken) = self.0.placed(arena)?;
        Ok((Arc::new(Self(column)), taken))
    }
}
