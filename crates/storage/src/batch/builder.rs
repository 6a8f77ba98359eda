//! Grows a column value by value, or by runs of another column.

use super::bitmap::BitmapBuilder;
use super::column::{Column, Values};
use super::run::{Pieces, Run};
use super::view::{BytesView, ColumnView, RowsOf, ValidityView, ValuesView};
use super::views::{VIEW_INLINE_MAX, ViewsBuilder, view_len};
use crate::types::{DataType, Physical};
use crate::value::Value;
use std::ops::Range;

#[derive(Debug)]
enum Growing {
    Boolean(Run<u8>),
    Int16(Run<i16>),
    Int32(Run<i32>),
    Int64(Run<i64>),
    Int128(Run<i128>),
    Float32(Run<f32>),
    Float64(Run<f64>),
    Bytes(ViewsBuilder),
}

/// Batches of up to this many rows have one piece of memory for all columns: enough for point accesses and short
/// ranges; beyond, the allocations no longer matter and loops over plain vectors are faster.
const BLOCK_ROWS_MAX: usize = 32;

/// A column under construction.
#[derive(Debug)]
pub struct ColumnBuilder {
    data_type: DataType,
    /// Made at the first NULL.
    validity: Option<BitmapBuilder>,
    values: Growing,
}

macro_rules! typed_push {
    ($(#[$doc:meta] $name:ident($variant:ident: $type:ty);)*) => {
        $(
            #[$doc]
            ///
            /// # Panics
            /// If the column is of another physical type.
            #[inline]
            pub fn $name(&mut self, value: $type) {
                let Growing::$variant(values) = &mut self.values else {
                    unreachable!("{} pushed into a column of {}", stringify!($type), self.data_type);
                };
                values.push(value);
                if let Some(validity) = &mut self.validity {
                    validity.push(true);
                }
            }
        )*
    };
}

macro_rules! typed_extend {
    ($($(#[$doc:meta])* $name:ident($variant:ident: $type:ty);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            /// If the column is of another physical type.
            #[inline]
            pub(crate) fn $name(
                &mut self,
                validity: ValidityView<'_>,
                rows: &[u32],
                values: impl Iterator<Item = $type>,
            ) {
                self.extend_validity(validity, &RowsOf::List(rows));
                let Growing::$variant(own) = &mut self.values else {
                    unreachable!("{} appended to a column of {}", stringify!($type), self.data_type);
                };
                own.extend(values);
            }
        )*
    };
}

impl ColumnBuilder {
    /// An empty column with room for `rows`.
    pub fn with_capacity(data_type: DataType, rows: usize) -> Self {
        let values = match data_type.physical() {
            Physical::Boolean => Growing::Boolean(Run::with_capacity(rows)),
            Physical::Int16 => Growing::Int16(Run::with_capacity(rows)),
            Physical::Int32 => Growing::Int32(Run::with_capacity(rows)),
            Physical::Int64 => Growing::Int64(Run::with_capacity(rows)),
            Physical::Int128 => Growing::Int128(Run::with_capacity(rows)),
            Physical::Float32 => Growing::Float32(Run::with_capacity(rows)),
            Physical::Float64 => Growing::Float64(Run::with_capacity(rows)),
            Physical::Bytes => Growing::Bytes(ViewsBuilder::with_capacity(rows)),
        };
        Self { data_type, validity: None, values }
    }

    /// Empty columns with room for `rows` each. Few rows get one piece of memory for all columns.
    pub fn for_batch(types: impl Iterator<Item = DataType> + Clone, rows: usize) -> Vec<Self> {
        if rows > BLOCK_ROWS_MAX {
            return types.map(|data_type| Self::with_capacity(data_type, rows)).collect();
        }
        let words = types.clone().map(|data_type| Pieces::words_of(rows, data_type.physical().width())).sum();
        let mut pieces = Pieces::new(words);
        let column = |data_type: DataType| {
            let values = match data_type.physical() {
                Physical::Boolean => Growing::Boolean(pieces.next(rows)),
                Physical::Int16 => Growing::Int16(pieces.next(rows)),
                Physical::Int32 => Growing::Int32(pieces.next(rows)),
                Physical::Int64 => Growing::Int64(pieces.next(rows)),
                Physical::Int128 => Growing::Int128(pieces.next(rows)),
                Physical::Float32 => Growing::Float32(pieces.next(rows)),
                Physical::Float64 => Growing::Float64(pieces.next(rows)),
                Physical::Bytes => Growing::Bytes(ViewsBuilder::over(pieces.next(rows))),
            };
            Self { data_type, validity: None, values }
        };
        types.map(column).collect()
    }

    /// The type of the column.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        match &self.values {
            Growing::Boolean(values) => values.len(),
            Growing::Int16(values) => values.len(),
            Growing::Int32(values) => values.len(),
            Growing::Int64(values) => values.len(),
            Growing::Int128(values) => values.len(),
            Growing::Float32(values) => values.len(),
            Growing::Float64(values) => values.len(),
            Growing::Bytes(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    typed_push! {
        /// Appends 0 or 1.
        push_bool(Boolean: u8);
        /// Appends a 16-bit integer.
        push_i16(Int16: i16);
        /// Appends a 32-bit integer or a date.
        push_i32(Int32: i32);
        /// Appends a 64-bit integer, a timestamp or a 64-bit decimal.
        push_i64(Int64: i64);
        /// Appends a 128-bit decimal.
        push_i128(Int128: i128);
        /// Appends a float.
        push_f32(Float32: f32);
        /// Appends a float.
        push_f64(Float64: f64);
        /// Appends text or bytes.
        push_bytes(Bytes: &[u8]);
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        let rows = self.len();
        let validity = self.validity.get_or_insert_with(|| BitmapBuilder::all_set(rows, rows + 1));
        validity.push(false);
        match &mut self.values {
            Growing::Boolean(values) => values.push(0),
            Growing::Int16(values) => values.push(0),
            Growing::Int32(values) => values.push(0),
            Growing::Int64(values) => values.push(0),
            Growing::Int128(values) => values.push(0),
            Growing::Float32(values) => values.push(0.0),
            Growing::Float64(values) => values.push(0.0),
            Growing::Bytes(values) => values.push(&[]),
        }
    }

    /// Appends a value of the column's type, or NULL.
    ///
    /// # Panics
    /// If the value is of another type, or a decimal too large for the column's width.
    pub fn push(&mut self, value: &Value) {
        match (value, self.data_type.physical()) {
            (Value::Null, _) => self.push_null(),
            (Value::Boolean(v), Physical::Boolean) => self.push_bool(u8::from(*v)),
            (Value::Int16(v), Physical::Int16) => self.push_i16(*v),
            (Value::Int32(v) | Value::Date(v), Physical::Int32) => self.push_i32(*v),
            (Value::Int64(v) | Value::Timestamp(v), Physical::Int64) => self.push_i64(*v),
            (Value::Decimal { unscaled, .. }, Physical::Int64) => {
                let Ok(unscaled) = i64::try_from(*unscaled) else {
                    unreachable!("decimal {value} must be range-checked against {} before", self.data_type);
                };
                self.push_i64(unscaled);
            }
            (Value::Decimal { unscaled, .. }, Physical::Int128) => self.push_i128(*unscaled),
            (Value::Float32(v), Physical::Float32) => self.push_f32(*v),
            (Value::Float64(v), Physical::Float64) => self.push_f64(*v),
            (Value::Text(v), Physical::Bytes) => self.push_bytes(v.as_bytes()),
            (Value::Bytes(v), Physical::Bytes) => self.push_bytes(v),
            (value, _) => unreachable!("{value:?} pushed into a column of {}", self.data_type),
        }
    }

    /// Appends rows `rows` of another column of the same type.
    ///
    /// # Panics
    /// If the physical types differ.
    pub fn extend(&mut self, other: &Column, rows: Range<usize>) {
        self.extend_view(&other.view(), &RowsOf::Run(rows));
    }

    /// Appends the rows of another column of the same type that `rows` lists.
    ///
    /// # Panics
    /// If the physical types differ.
    pub fn extend_taken(&mut self, other: &Column, rows: &[u32]) {
        self.extend_view(&other.view(), &RowsOf::List(rows));
    }

    /// Appends rows of a column that may still grow.
    pub(crate) fn extend_view(&mut self, other: &ColumnView<'_>, rows: &RowsOf<'_>) {
        fn gather<T: Copy + Send + Sync + 'static>(values: &mut Run<T>, source: &[T], rows: &RowsOf<'_>) {
            match rows {
                RowsOf::Run(range) => values.extend_from_slice(&source[range.clone()]),
                RowsOf::List(list) => values.extend(list.iter().map(|row| source[*row as usize])),
            }
        }
        self.extend_validity(other.validity, rows);
        match (&mut self.values, &other.values) {
            (Growing::Boolean(values), ValuesView::Boolean(source)) => gather(values, source, rows),
            (Growing::Int16(values), ValuesView::Int16(source)) => gather(values, source, rows),
            (Growing::Int32(values), ValuesView::Int32(source)) => gather(values, source, rows),
            (Growing::Int64(values), ValuesView::Int64(source)) => gather(values, source, rows),
            (Growing::Int128(values), ValuesView::Int128(source)) => gather(values, source, rows),
            (Growing::Float32(values), ValuesView::Float32(source)) => gather(values, source, rows),
            (Growing::Float64(values), ValuesView::Float64(source)) => gather(values, source, rows),
            (Growing::Bytes(values), ValuesView::Bytes(source)) => {
                // The view under a NULL may point nowhere: do not read it.
                let mut push = |row: usize| {
                    if other.validity.get(row) {
                        push_view(values, source, row);
                    } else {
                        values.push(&[]);
                    }
                };
                match rows {
                    RowsOf::Run(range) => range.clone().for_each(push),
                    RowsOf::List(list) => list.iter().for_each(|row| push(*row as usize)),
                }
            }
            (_, source) => unreachable!("{:?} appended to a column of {}", source.physical(), self.data_type),
        }
    }

    typed_extend! {
        /// Appends a value for each of `rows`, whose validity is given: 0 or 1.
        extend_bool(Boolean: u8);
        /// The same with 16-bit integers.
        extend_i16(Int16: i16);
        /// The same with 32-bit integers or dates.
        extend_i32(Int32: i32);
        /// The same with 64-bit integers, timestamps or 64-bit decimals.
        extend_i64(Int64: i64);
        /// The same with 128-bit decimals.
        extend_i128(Int128: i128);
    }

    /// Appends for each of `rows`, whose validity is given, the value of `source` that `at` says.
    ///
    /// # Panics
    /// If the physical types differ.
    pub(crate) fn extend_parts(
        &mut self,
        validity: ValidityView<'_>,
        rows: &[u32],
        source: &ValuesView<'_>,
        at: impl Iterator<Item = u32>,
    ) {
        self.extend_validity(validity, &RowsOf::List(rows));
        match (&mut self.values, source) {
            (Growing::Boolean(values), ValuesView::Boolean(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Int16(values), ValuesView::Int16(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Int32(values), ValuesView::Int32(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Int64(values), ValuesView::Int64(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Int128(values), ValuesView::Int128(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Float32(values), ValuesView::Float32(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Float64(values), ValuesView::Float64(source)) => values.extend(at.map(|at| source[at as usize])),
            (Growing::Bytes(values), ValuesView::Bytes(source)) => {
                at.for_each(|at| push_view(values, source, at as usize));
            }
            (_, source) => unreachable!("{:?} appended to a column of {}", source.physical(), self.data_type),
        }
    }

    /// Must run before the values grow: it needs the length so far.
    fn extend_validity(&mut self, theirs: ValidityView<'_>, rows: &RowsOf<'_>) {
        let len = self.len();
        match (&mut self.validity, theirs) {
            (None, ValidityView::All) => {}
            (Some(validity), ValidityView::All) => validity.push_set(rows.len()),
            (mine, theirs) => {
                let validity = mine.get_or_insert_with(|| BitmapBuilder::all_set(len, len + rows.len()));
                match rows {
                    RowsOf::Run(range) => range.clone().for_each(|row| validity.push(theirs.get(row))),
                    RowsOf::List(list) => list.iter().for_each(|row| validity.push(theirs.get(*row as usize))),
                }
            }
        }
    }

    /// A look at the values so far.
    pub(crate) fn view(&self) -> ColumnView<'_> {
        let validity = self
            .validity
            .as_ref()
            .map_or(ValidityView::All, |validity| ValidityView::Bits { bytes: validity.as_bytes(), offset: 0 });
        let values = match &self.values {
            Growing::Boolean(values) => ValuesView::Boolean(values.as_slice()),
            Growing::Int16(values) => ValuesView::Int16(values.as_slice()),
            Growing::Int32(values) => ValuesView::Int32(values.as_slice()),
            Growing::Int64(values) => ValuesView::Int64(values.as_slice()),
            Growing::Int128(values) => ValuesView::Int128(values.as_slice()),
            Growing::Float32(values) => ValuesView::Float32(values.as_slice()),
            Growing::Float64(values) => ValuesView::Float64(values.as_slice()),
            Growing::Bytes(values) => ValuesView::Bytes(values.view()),
        };
        ColumnView { data_type: self.data_type, validity, values }
    }

    /// Makes room for exactly `rows` in all, so that the caller decides (and accounts for) every allocation.
    pub fn reserve_exact(&mut self, rows: usize, data_bytes: usize) {
        let more = rows.saturating_sub(self.len());
        match &mut self.values {
            Growing::Boolean(values) => values.reserve_exact(more),
            Growing::Int16(values) => values.reserve_exact(more),
            Growing::Int32(values) => values.reserve_exact(more),
            Growing::Int64(values) => values.reserve_exact(more),
            Growing::Int128(values) => values.reserve_exact(more),
            Growing::Float32(values) => values.reserve_exact(more),
            Growing::Float64(values) => values.reserve_exact(more),
            Growing::Bytes(values) => values.reserve_exact(more, data_bytes),
        }
    }

    /// Gives back the room that no value has taken: for a column that waits, or grew by values of different length.
    pub fn shrink_to_fit(&mut self) {
        match &mut self.values {
            Growing::Boolean(values) => values.shrink_to_fit(),
            Growing::Int16(values) => values.shrink_to_fit(),
            Growing::Int32(values) => values.shrink_to_fit(),
            Growing::Int64(values) => values.shrink_to_fit(),
            Growing::Int128(values) => values.shrink_to_fit(),
            Growing::Float32(values) => values.shrink_to_fit(),
            Growing::Float64(values) => values.shrink_to_fit(),
            Growing::Bytes(values) => values.shrink_to_fit(),
        }
    }

    /// Only the first `rows` stay, in no more memory than they need; gives the bytes of long values that went.
    pub(crate) fn truncate(&mut self, rows: usize) -> usize {
        if let Some(validity) = &mut self.validity {
            validity.truncate(rows);
        }
        match &mut self.values {
            Growing::Boolean(values) => values.truncate(rows),
            Growing::Int16(values) => values.truncate(rows),
            Growing::Int32(values) => values.truncate(rows),
            Growing::Int64(values) => values.truncate(rows),
            Growing::Int128(values) => values.truncate(rows),
            Growing::Float32(values) => values.truncate(rows),
            Growing::Float64(values) => values.truncate(rows),
            Growing::Bytes(values) => return values.truncate(rows),
        }
        0
    }

    /// The column.
    pub fn finish(self) -> Column {
        let values = match self.values {
            Growing::Boolean(values) => Values::Boolean(values.finish()),
            Growing::Int16(values) => Values::Int16(values.finish()),
            Growing::Int32(values) => Values::Int32(values.finish()),
            Growing::Int64(values) => Values::Int64(values.finish()),
            Growing::Int128(values) => Values::Int128(values.finish()),
            Growing::Float32(values) => Values::Float32(values.finish()),
            Growing::Float64(values) => Values::Float64(values.finish()),
            Growing::Bytes(values) => Values::Bytes(values.finish()),
        };
        Column { data_type: self.data_type, validity: self.validity.map(BitmapBuilder::finish), values }
    }
}

#[inline]
fn push_view(values: &mut ViewsBuilder, source: &BytesView<'_>, row: usize) {
    let view = source.views[row];
    if view_len(view) <= VIEW_INLINE_MAX {
        values.push_inline(view);
    } else {
        values.push(source.get(row));
    }
}
