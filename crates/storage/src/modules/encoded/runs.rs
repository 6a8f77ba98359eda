//! Run length: where runs of equal values begin, and the value of each, encoded in its turn.
//!
//! ```text
//! rows      7 7 7 7 7 9 9 9 9 9 9 9 4 4 ...        starts  0  5  12         values  7  9  4
//! ```
//! A row finds its run by binary search, so this is only for runs that save much.

use super::codes::CodeTest;
use super::encoding::{Encoded, Encoding, choose, encode};
use super::selection::Selection;
use super::source::Source;
use crate::batch::{Buffer, ColumnBuilder, RowWriter, ValidityView, Values, Views};
use crate::error::StorageError;
use crate::predicate::Test;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::Arc;

/// The encoding.
pub(super) struct RunLength;

const NAME: &str = "run length";

impl Encoding for RunLength {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(&self, source: &Source<'_>) -> Option<u64> {
        let heads = source.run_heads()?;
        Some(heads.bytes + size_of_val(source.run_starts()?) as u64)
    }

    fn shared_bytes(&self, source: &Source<'_>) -> u64 {
        source.run_heads().map_or(0, |heads| heads.shared_bytes)
    }

    fn percent_max(&self) -> u64 {
        50
    }

    fn encode(&self, source: &Source<'_>) -> Option<Arc<dyn Encoded>> {
        let (Some(starts), Some(heads)) = (source.run_starts(), source.run_heads()) else {
            unreachable!("{NAME} was measured")
        };
        let measured = heads.bytes;
        let heads = Source::of_heads(&heads.column, source.dictionary());
        let (encoding, bytes) = choose(&heads);
        let values = (bytes == measured).then(|| encode(encoding, bytes, &heads))??;
        Some(Arc::new(Runs { starts: starts.to_vec().into(), values, rows: source.rows() }))
    }
}

/// Runs.
struct Runs {
    /// The first row of each, the first of all 0.
    starts: Buffer<u32>,
    /// One for each run.
    values: Arc<dyn Encoded>,
    rows: usize,
}

fn repeat<T: Copy + Send + Sync + 'static>(values: &Buffer<T>, lens: impl Iterator<Item = usize>) -> Buffer<T> {
    let mut out = Vec::new();
    let lens: Vec<usize> = lens.collect();
    out.reserve_exact(lens.iter().sum());
    for (value, len) in values.iter().zip(lens) {
        out.resize(out.len() + len, *value);
    }
    out.into()
}

impl Runs {
    /// The run that a row belongs to.
    fn run_of(&self, row: usize) -> usize {
        self.starts.partition_point(|start| *start as usize <= row) - 1
    }

    /// The runs that have rows in a window.
    fn runs_of(&self, rows: &Range<usize>) -> Range<usize> {
        if rows.is_empty() { 0..0 } else { self.run_of(rows.start)..self.run_of(rows.end - 1) + 1 }
    }

    fn end_of(&self, run: usize) -> usize {
        self.starts.get(run + 1).map_or(self.rows, |start| *start as usize)
    }

    /// The part of a run within a window.
    fn part_of(&self, run: usize, window: &Range<usize>) -> Range<usize> {
        (self.starts[run] as usize).max(window.start)..self.end_of(run).min(window.end)
    }

    fn runs_listed(&self, rows: &[u32]) -> Vec<u32> {
        rows.iter().map(|row| self.run_of(*row as usize) as u32).collect()
    }
}

impl Encoded for Runs {
    fn encoding(&self) -> &'static str {
        NAME
    }

    fn bytes(&self) -> u64 {
        self.starts.bytes() as u64 + self.values.bytes()
    }

    fn run(&self, rows: Range<usize>) -> Values {
        let runs = self.runs_of(&rows);
        let lens = runs.clone().map(|run| self.part_of(run, &rows).len());
        match self.values.run(runs) {
            Values::Boolean(values) => Values::Boolean(repeat(&values, lens)),
            Values::Int16(values) => Values::Int16(repeat(&values, lens)),
            Values::Int32(values) => Values::Int32(repeat(&values, lens)),
            Values::Int64(values) => Values::Int64(repeat(&values, lens)),
            Values::Int128(values) => Values::Int128(repeat(&values, lens)),
            Values::Float32(values) => Values::Float32(repeat(&values, lens)),
            Values::Float64(values) => Values::Float64(repeat(&values, lens)),
            Values::Bytes(values) => {
                Values::Bytes(Views { views: values.views.repeated(lens), data: Arc::clone(&values.data) })
            }
        }
    }

    fn link(&self, rows: &[u32], validity: ValidityView<'_>, out: &mut ColumnBuilder) {
        let valid = |row: usize| validity.get(row);
        let runs = self.runs_listed(rows);
        match validity {
            ValidityView::All => self.values.link(&runs, ValidityView::All, out),
            // NULLs are those of rows, not of runs.
            ValidityView::Bits { .. } => {
                for (row, run) in rows.iter().zip(runs) {
                    if valid(*row as usize) {
                        self.values.link(&[run], ValidityView::All, out);
                    } else {
                        out.push_null();
                    }
                }
            }
        }
    }

    fn gather(&self, rows: &[u32]) -> Option<Values> {
        self.values.gather(&self.runs_listed(rows))
    }

    fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        self.values.pack(self.run_of(row), column, out);
    }

    fn translate(&self, test: &Test) -> Result<Option<CodeTest>, StorageError> {
        self.values.translate(test)
    }

    fn select(&self, test: &CodeTest, selection: &mut Selection) {
        let window = selection.window();
        let runs = self.runs_of(&window);
        let mut accepted = Selection::default();
        accepted.begin(runs.clone());
        self.values.select(test, &mut accepted);
        for run in runs.filter(|run| !accepted.holds(*run)) {
            selection.remove(self.part_of(run, &window));
        }
    }

    fn select_listed(&self, test: &CodeTest, rows: &[u32], mask: &mut [u8]) {
        self.values.select_listed(test, &self.runs_listed(rows), mask);
    }

    fn test_listed(&self, test: &Test, rows: &[u32], mask: &mut [u8]) -> Result<(), StorageError> {
        self.values.test_listed(test, &self.runs_listed(rows), mask)
    }

    fn placed(&self, arena: &Arena) -> Result<(Arc<dyn Encoded>, u64), MemoryExceeded> {
        let (starts, taken) = self.starts.placed(arena)?;
        let (values, more) = self.values.placed(arena)?;
        Ok((Arc::new(Self { starts, values, rows: self.rows }), taken + more))
    }
}
