//! Rows in row-wise form: what point accesses move, where a batch of columns would cost an allocation or a reference
//! count per attribute.
//!
//! ```text
//! row   := null bits (one per column, up to a byte) | fields, widest first, without gaps
//! field of variable length := 16-byte view: up to 12 bytes inline, else prefix and the offset in the heap
//! heap  := long values one behind the other
//! ```
//! The format depends on the column types alone and is the one of the storage module *row static*, so that a whole row
//! goes in and out of it by one copy.

use super::ColumnBuilder;
use super::column::Column;
use super::rows::Batch;
use super::view::{ColumnView, ValuesView};
use super::views::{VIEW_INLINE_MAX, data_view, inline_view, view_len};
use crate::types::{DataType, Physical};
use crate::value::Value;
use std::sync::{Arc, LazyLock};

/// Where the fields of a row lie.
#[derive(Debug, PartialEq, Eq)]
pub struct RowFormat {
    types: Box<[DataType]>,
    /// Where each field begins in the row.
    offsets: Box<[u32]>,
    stride: usize,
}

impl RowFormat {
    /// The format of rows of these columns.
    pub fn new(types: impl IntoIterator<Item = DataType>) -> Self {
        let types: Box<[DataType]> = types.into_iter().collect();
        let mut order: Vec<usize> = (0..types.len()).collect();
        order.sort_by_key(|column| std::cmp::Reverse(types[*column].physical().width()));
        let mut offsets = vec![0; types.len()];
        let mut stride = types.len().div_ceil(8);
        for column in order {
            offsets[column] = stride as u32;
            stride += types[column].physical().width();
        }
        Self { types, offsets: offsets.into(), stride }
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.types.len()
    }

    /// The type of a column.
    pub fn data_type(&self, column: usize) -> DataType {
        self.types[column]
    }

    /// The types of the columns.
    pub fn data_types(&self) -> &[DataType] {
        &self.types
    }

    /// Where a column's field begins in a row.
    pub(crate) fn offset(&self, column: usize) -> usize {
        self.offsets[column] as usize
    }

    /// Bytes of a row without its long values.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

static NO_COLUMNS: LazyLock<Arc<RowFormat>> = LazyLock::new(|| Arc::new(RowFormat::new([])));

/// Some rows of one format. Meant to be kept and filled again: it gives back no memory until it is dropped.
#[derive(Clone, Debug)]
pub struct PackedRows {
    format: Arc<RowFormat>,
    fixed: Vec<u8>,
    heap: Vec<u8>,
    rows: usize,
}

impl Default for PackedRows {
    fn default() -> Self {
        Self { format: Arc::clone(&NO_COLUMNS), fixed: Vec::new(), heap: Vec::new(), rows: 0 }
    }
}

/// Types any bit pattern of which is a value.
macro_rules! getter {
    ($(#[$doc:meta] $name:ident: $type:ty;)*) => {
        $(
            #[$doc]
            ///
            /// # Panics
            /// If there is no such row or column, or its values have another width.
            #[inline]
            pub fn $name(&self, row: usize, column: usize) -> $type {
                <$type>::from_le_bytes(self.field(row, column))
            }
        )*
    };
}

impl PackedRows {
    /// Empties it, for rows of this format.
    pub fn clear(&mut self, format: &Arc<RowFormat>) {
        if !Arc::ptr_eq(&self.format, format) {
            self.format = Arc::clone(format);
        }
        self.fixed.clear();
        self.heap.clear();
        self.rows = 0;
    }

    /// The format of the rows.
    pub fn format(&self) -> &Arc<RowFormat> {
        &self.format
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.fixed.len() + self.heap.len()
    }

    /// The rows, and the heap behind them.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        (&self.fixed, &self.heap)
    }

    /// Rows of these parts, which somebody has yet to look at.
    pub(super) fn from_parts(format: &Arc<RowFormat>, fixed: Vec<u8>, heap: Vec<u8>, rows: usize) -> Self {
        assert!(fixed.len() == rows * format.stride, "{} bytes for {rows} rows", fixed.len());
        Self { format: Arc::clone(format), fixed, heap, rows }
    }

    /// The view of a value of variable length.
    pub(super) fn view(&self, row: usize, column: usize) -> u128 {
        u128::from_le_bytes(self.field(row, column))
    }

    /// Appends a row whose fields are all zero and not NULL; the writers below fill it.
    pub fn push_row(&mut self) {
        self.fixed.resize(self.fixed.len() + self.format.stride, 0);
        self.rows += 1;
    }

    /// The bytes of a row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.fixed[row * self.format.stride..][..self.format.stride]
    }

    /// Writes a whole row of the same format whose long values `resolve` finds by their view.
    pub(crate) fn write_row<'a>(&mut self, bytes: &[u8], resolve: impl Fn(u128) -> &'a [u8]) {
        let mut row = self.last_row();
        row.fixed.copy_from_slice(bytes);
        let format = row.format;
        for (column, data_type) in format.types.iter().enumerate() {
            if data_type.is_variable_length() {
                let offset = format.offset(column);
                let mut view = [0; 16];
                view.copy_from_slice(&bytes[offset..offset + 16]);
                let view = u128::from_le_bytes(view);
                if view_len(view) > VIEW_INLINE_MAX {
                    row.write_bytes(column, resolve(view));
                }
            }
        }
    }

    /// The row that was pushed last, to be written.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn last_row(&mut self) -> RowWriter<'_> {
        self.row_mut(self.rows - 1)
    }

    /// Writes another value, or NULL, into a field.
    pub(crate) fn overwrite(&mut self, row: usize, column: usize, values: &ColumnView<'_>, source: usize) {
        let mut row = self.row_mut(row);
        row.clear_null(column);
        row.write(column, values, source);
    }

    /// A row to be written.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub(crate) fn row_mut(&mut self, row: usize) -> RowWriter<'_> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let fixed = &mut self.fixed[row * self.format.stride..][..self.format.stride];
        RowWriter { format: &self.format, fixed, heap: &mut self.heap }
    }

    /// Appends the rows of a batch with these columns.
    ///
    /// # Panics
    /// If the batch has other columns.
    pub fn extend(&mut self, batch: &Batch) {
        assert!(batch.columns.len() == self.format.columns(), "a batch of {} columns", batch.columns.len());
        let first = self.rows;
        (0..batch.rows).for_each(|_| self.push_row());
        for (column, values) in batch.columns.iter().enumerate() {
            let view = values.view();
            (0..batch.rows).for_each(|row| self.row_mut(first + row).write(column, &view, row));
        }
    }

    #[inline]
    fn field<const WIDTH: usize>(&self, row: usize, column: usize) -> [u8; WIDTH] {
        let offset = self.format.offset(column);
        let mut bytes = [0; WIDTH];
        bytes.copy_from_slice(&self.row(row)[offset..offset + WIDTH]);
        bytes
    }

    /// Whether a value is NULL.
    #[inline]
    pub fn is_null(&self, row: usize, column: usize) -> bool {
        self.row(row)[column >> 3] >> (column & 7) & 1 != 0
    }

    /// Calls `visit` with the column of every NULL.
    pub(crate) fn for_each_null(&self, mut visit: impl FnMut(usize)) {
        let bits = self.format.columns().div_ceil(8);
        for row in 0..self.rows {
            if self.row(row)[..bits].iter().any(|bits| *bits != 0) {
                (0..self.format.columns()).filter(|column| self.is_null(row, *column)).for_each(&mut visit);
            }
        }
    }

    getter! {
        /// A truth value as 0 or 1; meaningless for NULL.
        bool: u8;
        /// A 16-bit integer; meaningless for NULL.
        i16: i16;
        /// A 32-bit integer or a date; meaningless for NULL.
        i32: i32;
        /// A 64-bit integer, a timestamp or a 64-bit decimal; meaningless for NULL.
        i64: i64;
        /// A 128-bit decimal; meaningless for NULL.
        i128: i128;
        /// A float; meaningless for NULL.
        f32: f32;
        /// A float; meaningless for NULL.
        f64: f64;
    }

    /// Text or bytes; empty for NULL.
    ///
    /// # Panics
    /// If there is no such row or column, or it is of fixed size.
    pub fn bytes_of(&self, row: usize, column: usize) -> &[u8] {
        let offset = self.format.offset(column);
        let view = &self.row(row)[offset..offset + 16];
        let len = u32::from_le_bytes([view[0], view[1], view[2], view[3]]) as usize;
        if len <= VIEW_INLINE_MAX {
            return &view[4..4 + len];
        }
        let start = u32::from_le_bytes([view[12], view[13], view[14], view[15]]) as usize;
        &self.heap[start..start + len]
    }

    /// The value at a row and column, copied out.
    pub fn value(&self, row: usize, column: usize) -> Value {
        if self.is_null(row, column) {
            return Value::Null;
        }
        let data_type = self.format.data_type(column);
        match (data_type.physical(), data_type) {
            (Physical::Boolean, _) => Value::Boolean(self.bool(row, column) != 0),
            (Physical::Int16, _) => Value::Int16(self.i16(row, column)),
            (Physical::Int32, DataType::Date) => Value::Date(self.i32(row, column)),
            (Physical::Int32, _) => Value::Int32(self.i32(row, column)),
            (Physical::Int64, DataType::Timestamp) => Value::Timestamp(self.i64(row, column)),
            (Physical::Int64, DataType::Decimal { scale, .. }) => {
                Value::Decimal { unscaled: i128::from(self.i64(row, column)), scale }
            }
            (Physical::Int64, _) => Value::Int64(self.i64(row, column)),
            (Physical::Int128, DataType::Decimal { scale, .. }) => {
                Value::Decimal { unscaled: self.i128(row, column), scale }
            }
            (Physical::Int128, other) => unreachable!("128-bit values are decimals, not {other}"),
            (Physical::Float32, _) => Value::Float32(self.f32(row, column)),
            (Physical::Float64, _) => Value::Float64(self.f64(row, column)),
            (Physical::Bytes, DataType::Text) => {
                Value::Text(String::from_utf8_lossy(self.bytes_of(row, column)).into_owned().into_boxed_str())
            }
            (Physical::Bytes, _) => Value::Bytes(self.bytes_of(row, column).into()),
        }
    }

    /// Some of the columns as columns.
    pub(crate) fn to_columns(&self, columns: impl Iterator<Item = usize> + Clone) -> Vec<Column> {
        let types = columns.clone().map(|column| self.format.data_type(column));
        let mut builders = ColumnBuilder::for_batch(types, self.rows);
        for (column, builder) in columns.zip(&mut builders) {
            for row in 0..self.rows {
                self.push_into(row, column, builder);
            }
        }
        builders.into_iter().map(ColumnBuilder::finish).collect()
    }

    fn push_into(&self, row: usize, column: usize, builder: &mut ColumnBuilder) {
        if self.is_null(row, column) {
            return builder.push_null();
        }
        match self.format.data_type(column).physical() {
            Physical::Boolean => builder.push_bool(self.bool(row, column)),
            Physical::Int16 => builder.push_i16(self.i16(row, column)),
            Physical::Int32 => builder.push_i32(self.i32(row, column)),
            Physical::Int64 => builder.push_i64(self.i64(row, column)),
            Physical::Int128 => builder.push_i128(self.i128(row, column)),
            Physical::Float32 => builder.push_f32(self.f32(row, column)),
            Physical::Float64 => builder.push_f64(self.f64(row, column)),
            Physical::Bytes => builder.push_bytes(self.bytes_of(row, column)),
        }
    }

    /// The rows as a batch.
    pub fn to_batch(&self) -> Batch {
        Batch { columns: self.to_columns(0..self.format.columns()).into(), rows: self.rows }
    }
}

/// A row to be written; what is written is taken not to be NULL before.
pub(crate) struct RowWriter<'a> {
    format: &'a RowFormat,
    fixed: &'a mut [u8],
    heap: &'a mut Vec<u8>,
}

impl RowWriter<'_> {
    /// A field that was written before may get a value.
    pub(crate) fn clear_null(&mut self, column: usize) {
        self.fixed[column >> 3] &= !(1 << (column & 7));
    }

    #[inline]
    pub(crate) fn write_null(&mut self, column: usize) {
        self.fixed[column >> 3] |= 1 << (column & 7);
    }

    /// Writes a field of fixed size.
    #[inline]
    pub(crate) fn write_field<const WIDTH: usize>(&mut self, column: usize, bytes: [u8; WIDTH]) {
        let offset = self.format.offset(column);
        self.fixed[offset..offset + WIDTH].copy_from_slice(&bytes);
    }

    /// Writes a field of variable length.
    pub(crate) fn write_bytes(&mut self, column: usize, value: &[u8]) {
        let view = if value.len() <= VIEW_INLINE_MAX {
            inline_view(value)
        } else {
            let offset = self.heap.len() as u32;
            self.heap.extend_from_slice(value);
            data_view(value, 0, offset)
        };
        self.write_field(column, view.to_le_bytes());
    }

    /// Writes a column's value of row `source` into a field of the same physical type.
    #[inline]
    pub(crate) fn write(&mut self, column: usize, values: &ColumnView<'_>, source: usize) {
        if !values.validity.get(source) {
            return self.write_null(column);
        }
        match &values.values {
            ValuesView::Boolean(values) => self.write_field(column, [values[source]]),
            ValuesView::Int16(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Int32(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Int64(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Int128(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Float32(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Float64(values) => self.write_field(column, values[source].to_le_bytes()),
            ValuesView::Bytes(views) => {
                let view = views.views[source];
                if view_len(view) <= VIEW_INLINE_MAX {
                    self.write_field(column, view.to_le_bytes());
                } else {
                    self.write_bytes(column, views.get(source));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DataType; 9] = [
        DataType::Boolean,
        DataType::Text,
        DataType::Int16,
        DataType::Decimal { precision: 30, scale: 2 },
        DataType::Date,
        DataType::Int64,
        DataType::Bytes,
        DataType::Float32,
        DataType::Float64,
    ];

    fn rows() -> Vec<Vec<Value>> {
        let full = |text: &str, number: i16| {
            vec![
                Value::Boolean(number % 2 == 0),
                Value::Text(text.into()),
                Value::Int16(number),
                Value::Decimal { unscaled: i128::from(number) << 70, scale: 2 },
                Value::Date(i32::from(number) * 1_000),
                Value::Int64(i64::from(number) << 40),
                Value::Bytes(text.bytes().rev().collect()),
                Value::Float32(f32::from(number) / 3.0),
                Value::Float64(f64::from(number) / 7.0),
            ]
        };
        let sparse = full("kurz", 3).into_iter().enumerate();
        let sparse = sparse.map(|(column, value)| if column % 2 == 0 { Value::Null } else { value }).collect();
        vec![full("ein Text, länger als zwölf Bytes", -5), vec![Value::Null; 9], sparse, full("", 8)]
    }

    #[test]
    fn rows_come_back_as_they_went_in() {
        let batch = Batch::from_rows(&TYPES, &rows());
        let mut packed = PackedRows::default();
        packed.clear(&Arc::new(RowFormat::new(TYPES)));
        packed.extend(&batch);
        for (row, expected) in rows().iter().enumerate() {
            let values: Vec<Value> = (0..TYPES.len()).map(|column| packed.value(row, column)).collect();
            assert_eq!(&values, expected);
        }
        assert_eq!(packed.to_batch(), batch);
    }

    #[test]
    fn a_field_can_be_written_again() {
        let batch = Batch::from_rows(&TYPES, &rows());
        let mut packed = PackedRows::default();
        packed.clear(&Arc::new(RowFormat::new(TYPES)));
        packed.extend(&batch);
        for (column, values) in batch.columns.iter().enumerate() {
            packed.overwrite(0, column, &values.view(), 1);
            packed.overwrite(1, column, &values.view(), 0);
        }
        assert_eq!(packed.to_batch(), batch.take(&[1, 0, 2, 3]));
    }
}
