//! One attribute of a frozen path: encoded values, and which of them are NULL.

use super::codes::CodeTest;
use super::encoding::{Encoded, choose, encode};
use super::plain::PlainValues;
use super::selection::Selection;
use super::source::{Source, scratch_bytes};
use crate::batch::{Bitmap, Column, ColumnBuilder, RowWriter, RowsOf, ValidityView, Values};
use crate::dictionary::SharedDictionary;
use crate::error::StorageError;
use crate::modules::column::TakenColumn;
use crate::modules::filter::{compare_columns, test_column, test_validity};
use crate::modules::{PathAttribute, PathFilter};
use crate::predicate::{Comparison, Condition, Test};
use eris_platform::memory::Reservation;
use eris_platform::{Arena, MemoryExceeded};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// An attribute's values.
#[derive(Clone)]
pub(super) struct EncodedColumn {
    pub attribute: PathAttribute,
    values: Arc<dyn Encoded>,
    /// None if there are no NULLs.
    validity: Option<Bitmap>,
    /// The bytes that are accounted for.
    pub bytes: u64,
}

/// Rows from which on a test of a list is translated to codes, which is kept for the next list.
const TRANSLATED_ROWS_MIN: usize = 64;

/// Rows from which on a run is decoded instead of row by row, if at least one in `DENSE_SHARE` is wanted: a decoded
/// value costs about a third of a linked one.
const DENSE_ROWS_MIN: usize = 64;
const DENSE_SHARE: usize = 2;

/// Translations kept at most: those of the conditions of a few scans that take turns.
const TRANSLATIONS_MAX: usize = 16;

/// How often values are measured, if others add to a shared dictionary between measuring and encoding.
const ENCODE_ATTEMPTS: usize = 4;

/// What the consumer of transient memory is called.
const ENCODING: &str = "encoding of segments";

/// What tests mean for the codes of columns met lately.
#[derive(Debug, Default)]
pub(in crate::modules) struct Translations {
    kept: Vec<Translation>,
    next: usize,
}

#[derive(Debug)]
struct Translation {
    /// Keeps the address from being used again, not the values.
    values: Weak<dyn Encoded>,
    tests: Box<[Test]>,
    codes: Option<Box<[CodeTest]>>,
}

impl Translations {
    /// What all of some tests together mean; none if one of them has to be done with values.
    fn of(&mut self, values: &Arc<dyn Encoded>, tests: PathFilter<'_>) -> Result<Option<&[CodeTest]>, StorageError> {
        let is_it = |kept: &Translation| {
            std::ptr::addr_eq(kept.values.as_ptr(), Arc::as_ptr(values)) && kept.tests.iter().eq(of_values(tests))
        };
        if let Some(position) = self.kept.iter().position(is_it) {
            return Ok(self.kept[position].codes.as_deref());
        }
        let codes: Option<Vec<CodeTest>> =
            of_values(tests).map(|test| values.translate(test)).collect::<Result<_, _>>()?;
        let codes = codes.map(|codes| CodeTest::all_of(codes).into());
        let tests = of_values(tests).cloned().collect();
        let new = Translation { values: Arc::downgrade(values), tests, codes };
        let position = self.next;
        self.next = (position + 1) % TRANSLATIONS_MAX;
        match self.kept.get_mut(position) {
            Some(oldest) => *oldest = new,
            None => self.kept.push(new),
        }
        Ok(self.kept[position].codes.as_deref())
    }
}

/// Which rows tests leave: those that are not NULL (true), those that are, or both and therefore none.
fn validities(tests: PathFilter<'_>) -> impl Iterator<Item = bool> {
    let asks = |wanted: bool| move |condition: &Condition| (condition.test != Test::IsNull) == wanted;
    [true, false].into_iter().filter(move |wanted| tests.iter().any(asks(*wanted)))
}

/// The tests of values among those of one attribute: those that are not about NULL.
fn of_values(tests: PathFilter<'_>) -> impl Iterator<Item = &Test> {
    tests.iter().map(|condition| &condition.test).filter(|test| !is_of_null(test))
}

fn is_of_null(test: &Test) -> bool {
    match test {
        Test::IsNull | Test::IsNotNull => true,
        Test::Compare(..) | Test::In(_) | Test::StartsWith(_) | Test::CompareAttribute(..) => false,
    }
}

impl EncodedColumn {
    /// Values as they grew.
    pub(super) fn plain(taken: TakenColumn) -> Self {
        let TakenColumn { attribute, column, bytes } = taken;
        let validity = column.validity.clone();
        Self { attribute, values: Arc::new(PlainValues::new(column)), validity, bytes }
    }

    /// Takes the encoding that suits best. Without memory for it beside the values, they stay as they are.
    pub(super) fn encode(
        &mut self,
        rows: usize,
        memory: &Reservation,
        dictionary: Option<&SharedDictionary>,
    ) -> Result<(), MemoryExceeded> {
        let column = self.run(0..rows);
        let scratch = memory.pool().reserve(ENCODING);
        scratch.grow(scratch_bytes(rows, &column.values))?;
        let validity_bytes = if self.validity.is_some() { rows.div_ceil(8) as u64 } else { 0 };
        let exact = self.bytes == self.values.bytes() + validity_bytes;
        let mut chosen = None;
        for attempt in 1..=ENCODE_ATTEMPTS {
            // The last one does without what others may have changed, so that it does not fail.
            let source = Source::new(&column, exact, dictionary.filter(|_| attempt < ENCODE_ATTEMPTS));
            let (encoding, values_bytes) = choose(&source);
            let bytes = values_bytes + validity_bytes;
            memory.grow(bytes)?;
            chosen = encode(encoding, values_bytes, &source).map(|values| (values, bytes));
            if chosen.is_some() {
                break;
            }
            memory.shrink(bytes);
        }
        let Some((values, bytes)) = chosen else {
            unreachable!("values of their own are encoded as they were measured")
        };
        self.values = values;
        self.validity = self.validity.as_ref().map(|validity| {
            let (bytes, offset) = validity.buffer();
            let copy = bytes[..(offset + rows).div_ceil(8)].to_vec();
            assert!(offset == 0, "a column that grew begins with its first bit");
            Bitmap::new(copy.into(), 0, rows)
        });
        memory.shrink(self.bytes);
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn encoding(&self) -> &'static str {
        self.values.encoding()
    }

    fn validity_view(&self) -> ValidityView<'_> {
        self.validity.as_ref().map_or(ValidityView::All, |validity| {
            let (bytes, offset) = validity.buffer();
            ValidityView::Bits { bytes, offset }
        })
    }

    fn column(&self, validity: Option<Bitmap>, values: Values) -> Column {
        Column { data_type: self.attribute.data_type, validity, values }
    }

    /// The values of a run of rows, decoded.
    pub(super) fn run(&self, rows: Range<usize>) -> Column {
        let validity = self.validity.as_ref().map(|validity| validity.slice(rows.start, rows.len()));
        self.column(validity, self.values.run(rows))
    }

    pub(super) fn link(&self, rows: &[u32], out: &mut ColumnBuilder) {
        match self.dense_run(rows) {
            Some(run) => {
                let decoded = self.column(None, self.values.run(run.clone()));
                let at = rows.iter().map(|row| row - run.start as u32);
                out.extend_parts(self.validity_view(), rows, &decoded.view().values, at);
            }
            None => self.values.link(rows, self.validity_view(), out),
        }
    }

    /// The run that listed rows come from, if they are most of it: then it is decoded at once.
    fn dense_run(&self, rows: &[u32]) -> Option<Range<usize>> {
        let (first, last) = (*rows.first()?, *rows.last()?);
        let dense = rows.len() >= DENSE_ROWS_MIN
            && !self.attribute.data_type.is_variable_length()
            && first <= last
            && ((last - first) as usize) < rows.len() * DENSE_SHARE
            && rows.is_sorted();
        dense.then(|| first as usize..last as usize + 1)
    }

    pub(super) fn gather(&self, rows: &[u32]) -> Option<Column> {
        let values = self.values.gather(rows)?;
        let valid = |validity: &Bitmap| rows.iter().map(|row| validity.get(*row as usize)).collect();
        Some(self.column(self.validity.as_ref().map(valid), values))
    }

    pub(super) fn pack(&self, row: usize, column: usize, out: &mut RowWriter<'_>) {
        if self.validity.as_ref().is_some_and(|validity| !validity.get(row)) {
            out.write_null(column);
        } else {
            self.values.pack(row, column, out);
        }
    }

    /// What tests of this attribute alone mean for its codes; none if they have to be done with values.
    pub(super) fn translate<'t>(
        &self,
        tests: PathFilter<'_>,
        translations: &'t mut Translations,
    ) -> Result<Option<&'t [CodeTest]>, StorageError> {
        translations.of(&self.values, tests)
    }

    /// Narrows a selection to the rows that satisfy tests of this attribute alone, which mean `codes`.
    pub(super) fn select(
        &self,
        tests: PathFilter<'_>,
        codes: Option<&[CodeTest]>,
        mask: &mut Vec<u8>,
        selection: &mut Selection,
    ) -> Result<(), StorageError> {
        if let Some(codes) = codes {
            for test in codes {
                self.values.select(test, selection);
            }
        } else {
            let window = selection.window();
            let column = self.column(None, self.values.run(window.clone()));
            mask.clear();
            mask.resize(window.len(), 1);
            for test in of_values(tests) {
                test_column(mask, &column.view(), &RowsOf::Run(0..window.len()), test)?;
            }
            selection.keep_mask(mask);
        }
        for wanted in validities(tests) {
            selection.keep_valid(self.validity_view(), wanted);
        }
        Ok(())
    }

    /// Clears the mask of listed rows that do not satisfy tests of this attribute alone.
    pub(super) fn select_listed(
        &self,
        tests: PathFilter<'_>,
        translations: &mut Translations,
        rows: &[u32],
        mask: &mut [u8],
    ) -> Result<(), StorageError> {
        let codes = if rows.len() < TRANSLATED_ROWS_MIN { None } else { self.translate(tests, translations)? };
        match codes {
            Some(codes) => {
                for test in codes {
                    self.values.select_listed(test, rows, mask);
                }
            }
            None => of_values(tests).try_for_each(|test| self.values.test_listed(test, rows, mask))?,
        }
        for wanted in validities(tests) {
            test_validity(mask, self.validity_view(), &RowsOf::List(rows), wanted);
        }
        Ok(())
    }

    /// Clears the mask of the rows of a window whose values do not compare right with another attribute's.
    pub(super) fn compare(
        &self,
        other: &Self,
        comparison: Comparison,
        window: Range<usize>,
        mask: &mut [u8],
    ) -> Result<(), StorageError> {
        let (left, right) = (self.run(window.clone()), other.run(window.clone()));
        compare_columns(mask, &left.view(), &right.view(), &RowsOf::Run(0..window.len()), comparison)
    }

    /// The same for listed rows.
    pub(super) fn compare_listed(
        &self,
        other: &Self,
        comparison: Comparison,
        rows: &[u32],
        mask: &mut [u8],
    ) -> Result<(), StorageError> {
        let linked = |column: &Self| {
            let mut out = ColumnBuilder::with_capacity(column.attribute.data_type, rows.len());
            column.link(rows, &mut out);
            out.finish()
        };
        let (left, right) = (linked(self), linked(other));
        compare_columns(mask, &left.view(), &right.view(), &RowsOf::Run(0..rows.len()), comparison)
    }

    /// The same values in the memory of `arena`, and the bytes they take there.
    pub(super) fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        let (values, mut taken) = self.values.placed(arena)?;
        let validity = match &self.validity {
            None => None,
            Some(validity) => {
                let (bytes, offset) = validity.buffer();
                let (bytes, more) = bytes.placed(arena)?;
                taken += more;
                Some(Bitmap::new(bytes, offset, validity.len()))
            }
        };
        Ok((Self { attribute: self.attribute, values, validity, bytes: self.bytes }, taken))
    }
}
