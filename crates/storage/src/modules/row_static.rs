//! Storage module *row static*: rows of fixed layout in pages, long values out of line.
//!
//! ```text
//! page := row row row ...              (2^k rows, about 64 KiB)
//! row  := as in `PackedRows`: null bits | fields, widest first
//! field of variable length := 16-byte view: 12 bytes inline, else prefix, heap chunk, offset
//! heap := chunk chunk ...              (append only)
//! ```
//! The offset of a row is its page and slot, so the indirection costs a shift. Pages never move, so growing copies
//! nothing.

use super::column::{long_bytes, position, positions_of};
use super::filter::{Float32, Float64, compare_pairs, mask_retain, mask_to_offsets, test_bytes, test_native};
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, Count, PathAttribute, PathConfiguration,
    PathFilter, PathInstance, Properties, ROW_STATIC,
};
use crate::batch::{
    Batch, Column, ColumnBuilder, FixedValue, PackedRows, RowFormat, VIEW_INLINE_MAX, Values, data_view, view_len,
};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Comparison, Test};
use crate::types::Physical;
use eris_platform::memory::Reservation;
use std::ops::Range;

/// The factory.
pub(super) struct RowStaticModule;

impl AccessPathFactory for RowStaticModule {
    fn name(&self) -> &'static str {
        ROW_STATIC
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Indirect,
            attributes: Count::Any,
            keys: Count::None,
            key_order: false,
            nulls: true,
            undefined: false,
            variable_length: true,
            shares_frozen_columns: false,
            updates_in_place: true,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        PathInstance::Rows(Box::new(RowPath::new(configuration)))
    }
}

/// A page is at most this large, unless a single row is larger.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Heap chunks are this large, unless a single value is larger.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
struct Field {
    attribute: PathAttribute,
    /// Where it begins in the row.
    offset: usize,
    /// Whether any row has NULL here; false lets reads skip the null bits.
    any_null: bool,
}

/// Rows of one segment.
struct RowPath {
    fields: Box<[Field]>,
    positions: Box<[Option<u16>]>,
    format: RowFormat,
    stride: usize,
    page_shift: u32,
    pages: Vec<Box<[u8]>>,
    heap: Vec<Vec<u8>>,
    rows: usize,
    rows_max: usize,
    memory: Reservation,
}

/// Types any bit pattern of which is a value.
trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for i16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for i128 {}
impl Plain for u128 {}
impl Plain for f32 {}
impl Plain for f64 {}

impl RowPath {
    fn new(configuration: PathConfiguration<'_>) -> Self {
        let attributes = configuration.attributes;
        let format = RowFormat::new(attributes.iter().map(|attribute| attribute.data_type));
        let place = |(position, attribute): (usize, &PathAttribute)| Field {
            attribute: *attribute,
            offset: format.offset(position),
            any_null: false,
        };
        let fields = attributes.iter().enumerate().map(place).collect();
        let stride = format.stride();
        let rows_max = configuration.rows_max as usize;
        let page_rows = (PAGE_BYTES_MAX / stride.max(1)).clamp(1, rows_max.max(1));
        Self {
            fields,
            format,
            positions: positions_of(attributes),
            stride,
            page_shift: page_rows.ilog2(),
            pages: Vec::new(),
            heap: Vec::new(),
            rows: 0,
            rows_max,
            memory: configuration.memory.reserve("row segments"),
        }
    }

    #[inline]
    fn row(&self, row: usize) -> &[u8] {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        let slot = row & ((1 << self.page_shift) - 1);
        &self.pages[row >> self.page_shift][slot * self.stride..(slot + 1) * self.stride]
    }

    #[inline]
    fn read<T: Plain>(&self, row: usize, offset: usize) -> T {
        let row = self.row(row);
        assert!(offset + size_of::<T>() <= row.len(), "a field lies within its row");
        // SAFETY: the bytes are within the row (just asserted) and any bit pattern is a `T`.
        unsafe { row.as_ptr().add(offset).cast::<T>().read_unaligned() }
    }

    fn bytes_of(&self, row: usize, offset: usize) -> &[u8] {
        let view: u128 = self.read(row, offset);
        let len = view_len(view);
        if len <= VIEW_INLINE_MAX { &self.row(row)[offset + 4..offset + 4 + len] } else { self.long_bytes_of(view) }
    }

    /// The value of a view that does not hold it.
    fn long_bytes_of(&self, view: u128) -> &[u8] {
        let (chunk, start) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
        &self.heap[chunk][start..start + view_len(view)]
    }

    /// Whether a batch of packed rows has exactly the fields of this path, in their order.
    fn is_format_of(&self, rows: &PackedRows) -> bool {
        **rows.format() == self.format
    }

    #[inline]
    fn is_null(&self, row: usize, position: usize) -> bool {
        self.row(row)[position >> 3] >> (position & 7) & 1 != 0
    }

    /// Makes room for `more` rows and `long` bytes of long values.
    fn grow(&mut self, more: usize, long: usize) -> Result<(), StorageError> {
        let page_bytes = self.stride << self.page_shift;
        let pages = (self.rows + more).div_ceil(1 << self.page_shift);
        while self.pages.len() < pages {
            self.memory.grow(page_bytes as u64)?;
            self.pages.push(vec![0; page_bytes].into());
        }
        let free = self.heap.last().map_or(0, |chunk| chunk.capacity() - chunk.len());
        if long > free {
            // One chunk takes all long values of this batch, so none is split and nothing can fail half-way.
            let capacity = long.max(CHUNK_BYTES.min(self.rows_max * 256));
            self.memory.grow(capacity as u64)?;
            self.heap.push(Vec::with_capacity(capacity));
        }
        Ok(())
    }

    /// How many chunks the long values of the first `rows` are in. They lie in the order of their batches, and those of
    /// a batch in one chunk.
    fn chunks_of(&self, rows: usize) -> usize {
        let long = self.fields.iter().filter(|field| field.attribute.data_type.is_variable_length());
        let offsets: Vec<usize> = long.map(|field| field.offset).collect();
        let chunk_of = |row: usize| {
            let views = offsets.iter().map(|offset| self.read::<u128>(row, *offset));
            views.filter(|view| view_len(*view) > VIEW_INLINE_MAX).map(|view| (view >> 64) as u32 as usize).max()
        };
        (0..rows).rev().find_map(chunk_of).map_or(0, |chunk| chunk + 1)
    }

    fn store_value(&mut self, value: &[u8]) -> u128 {
        let chunk = self.heap.len() - 1;
        let heap = &mut self.heap[chunk];
        let offset = heap.len();
        heap.extend_from_slice(value);
        data_view(value, chunk as u32, offset as u32)
    }

    fn write_column(&mut self, position: usize, column: &Column, range: Range<usize>) {
        let field = self.fields[position];
        let first = self.rows;
        let (shift, stride) = (self.page_shift, self.stride);
        let place = |row: usize| (row >> shift, (row & ((1 << shift) - 1)) * stride);
        macro_rules! copy {
            ($buffer:expr) => {
                for (row, value) in $buffer[range.clone()].iter().enumerate() {
                    let (page, start) = place(first + row);
                    let bytes = value.to_le_bytes();
                    self.pages[page][start + field.offset..start + field.offset + bytes.len()].copy_from_slice(&bytes);
                }
            };
        }
        match &column.values {
            Values::Boolean(buffer) => copy!(buffer),
            Values::Int16(buffer) => copy!(buffer),
            Values::Int32(buffer) => copy!(buffer),
            Values::Int64(buffer) => copy!(buffer),
            Values::Int128(buffer) => copy!(buffer),
            Values::Float32(buffer) => copy!(buffer),
            Values::Float64(buffer) => copy!(buffer),
            Values::Bytes(views) => {
                for (row, source) in range.clone().enumerate() {
                    let view = views.views[source];
                    let view =
                        if view_len(view) <= VIEW_INLINE_MAX { view } else { self.store_value(views.get(source)) };
                    let (page, start) = place(first + row);
                    self.pages[page][start + field.offset..start + field.offset + 16]
                        .copy_from_slice(&view.to_le_bytes());
                }
            }
        }
        if column.validity.is_some() {
            for (row, source) in range.enumerate() {
                if column.is_null(source) {
                    let (page, start) = place(first + row);
                    self.pages[page][start + (position >> 3)] |= 1 << (position & 7);
                    self.fields[position].any_null = true;
                }
            }
        }
    }

    /// Multiplies the mask by the filter over the rows an iterator lists.
    fn test(
        &self,
        mask: &mut [u8],
        filter: PathFilter<'_>,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Result<(), StorageError> {
        for condition in filter.iter() {
            let left = position(&self.positions, condition.attribute);
            match &condition.test {
                Test::IsNull => self.test_null(mask, left, rows.clone(), true),
                Test::IsNotNull => self.test_null(mask, left, rows.clone(), false),
                Test::CompareAttribute(comparison, other) => {
                    let right = position(&self.positions, *other);
                    self.compare(mask, left, right, *comparison, rows.clone())?;
                    self.test_null(mask, left, rows.clone(), false);
                    self.test_null(mask, right, rows.clone(), false);
                }
                test @ (Test::Compare(..) | Test::In(_) | Test::StartsWith(_)) => {
                    self.test_field(mask, left, test, rows.clone())?;
                    self.test_null(mask, left, rows.clone(), false);
                }
            }
        }
        Ok(())
    }

    fn test_null(&self, mask: &mut [u8], position: usize, rows: impl Iterator<Item = usize>, wanted: bool) {
        if self.fields[position].any_null {
            for (keep, row) in mask.iter_mut().zip(rows) {
                *keep &= u8::from(self.is_null(row, position) == wanted);
            }
        } else if wanted {
            mask.fill(0);
        }
    }

    fn test_field(
        &self,
        mask: &mut [u8],
        position: usize,
        test: &Test,
        rows: impl Iterator<Item = usize>,
    ) -> Result<(), StorageError> {
        let Field { attribute, offset, .. } = self.fields[position];
        match attribute.data_type.physical() {
            Physical::Boolean => test_native(mask, rows.map(|row| self.read::<u8>(row, offset)), test),
            Physical::Int16 => test_native(mask, rows.map(|row| self.read::<i16>(row, offset)), test),
            Physical::Int32 => test_native(mask, rows.map(|row| self.read::<i32>(row, offset)), test),
            Physical::Int64 => test_native(mask, rows.map(|row| self.read::<i64>(row, offset)), test),
            Physical::Int128 => test_native(mask, rows.map(|row| self.read::<i128>(row, offset)), test),
            Physical::Float32 => test_native(mask, rows.map(|row| Float32::from(self.read::<f32>(row, offset))), test),
            Physical::Float64 => test_native(mask, rows.map(|row| Float64::from(self.read::<f64>(row, offset))), test),
            Physical::Bytes => test_bytes(mask, rows.map(|row| self.bytes_of(row, offset)), test),
        }
    }

    fn compare(
        &self,
        mask: &mut [u8],
        left: usize,
        right: usize,
        comparison: Comparison,
        rows: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), StorageError> {
        let (left, right) = (&self.fields[left], &self.fields[right]);
        let (l, r) = (left.offset, right.offset);
        let (physical, other) = (left.attribute.data_type.physical(), right.attribute.data_type.physical());
        if physical != other {
            let reason = format!("a comparison of {physical:?} with {other:?}");
            return Err(StorageError::InvalidRequest { reason });
        }
        let again = rows.clone();
        macro_rules! pairs {
            ($read:expr) => {
                compare_pairs(mask, rows.map(|row| $read(row, l)), again.map(|row| $read(row, r)), comparison)
            };
        }
        match physical {
            Physical::Boolean => pairs!(|row, at| self.read::<u8>(row, at)),
            Physical::Int16 => pairs!(|row, at| self.read::<i16>(row, at)),
            Physical::Int32 => pairs!(|row, at| self.read::<i32>(row, at)),
            Physical::Int64 => pairs!(|row, at| self.read::<i64>(row, at)),
            Physical::Int128 => pairs!(|row, at| self.read::<i128>(row, at)),
            Physical::Float32 => pairs!(|row, at| Float32::from(self.read::<f32>(row, at))),
            Physical::Float64 => pairs!(|row, at| Float64::from(self.read::<f64>(row, at))),
            Physical::Bytes => pairs!(|row, at| self.bytes_of(row, at)),
        }
        Ok(())
    }
}

impl AccessPath for RowPath {
    fn module(&self) -> &'static str {
        ROW_STATIC
    }

    fn rows(&self) -> u32 {
        self.rows as u32
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        assert!(self.rows + range.len() <= self.rows_max, "{} rows on top of {}", range.len(), self.rows);
        let columns = self.fields.iter().map(|field| &rows.columns[field.attribute.id.index()]);
        let long = columns.map(|column| long_bytes(column, range.clone())).sum();
        self.grow(range.len(), long)?;
        for position in 0..self.fields.len() {
            let column = &rows.columns[self.fields[position].attribute.id.index()];
            self.write_column(position, column, range.clone());
        }
        self.rows += range.len();
        Ok(())
    }

    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if filter.is_empty() {
            found.extend(window);
            return Ok(());
        }
        state.mask.clear();
        state.mask.resize(window.len(), 1);
        self.test(&mut state.mask, filter, &(window.start as usize..window.end as usize))?;
        mask_to_offsets(&state.mask, window.start, found);
        Ok(())
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if filter.is_empty() {
            return Ok(());
        }
        state.mask.clear();
        state.mask.resize(offsets.len(), 1);
        self.test(&mut state.mask, filter, &offsets.iter().map(|row| *row as usize))?;
        mask_retain(&state.mask, offsets, 0);
        Ok(())
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        let position = position(&self.positions, attribute);
        let Field { attribute, offset, any_null } = self.fields[position];
        macro_rules! push {
            ($push:ident, $read:expr) => {
                for row in offsets {
                    let row = *row as usize;
                    if any_null && self.is_null(row, position) {
                        out.push_null();
                    } else {
                        out.$push($read(row));
                    }
                }
            };
        }
        match attribute.data_type.physical() {
            Physical::Boolean => push!(push_bool, |row| self.read::<u8>(row, offset)),
            Physical::Int16 => push!(push_i16, |row| self.read::<i16>(row, offset)),
            Physical::Int32 => push!(push_i32, |row| self.read::<i32>(row, offset)),
            Physical::Int64 => push!(push_i64, |row| self.read::<i64>(row, offset)),
            Physical::Int128 => push!(push_i128, |row| self.read::<i128>(row, offset)),
            Physical::Float32 => push!(push_f32, |row| self.read::<f32>(row, offset)),
            Physical::Float64 => push!(push_f64, |row| self.read::<f64>(row, offset)),
            Physical::Bytes => push!(push_bytes, |row| self.bytes_of(row, offset)),
        }
    }

    fn shared(&self, _attribute: AttributeId, _run: Range<u32>) -> Option<Column> {
        None
    }

    fn gather(&self, _attribute: AttributeId, _offsets: &[u32]) -> Option<Column> {
        None
    }

    fn insert_packed(&mut self, rows: &PackedRows, range: Range<usize>) -> Result<(), StorageError> {
        if !self.is_format_of(rows) {
            // This path holds a part of the attributes.
            return self.insert(&rows.to_batch(), range);
        }
        assert!(self.rows + range.len() <= self.rows_max, "{} rows on top of {}", range.len(), self.rows);
        let variable: Vec<usize> =
            (0..self.fields.len()).filter(|position| self.format.data_type(*position).is_variable_length()).collect();
        let lengths = variable.iter().flat_map(|column| range.clone().map(|row| rows.bytes_of(row, *column).len()));
        self.grow(range.len(), lengths.filter(|length| *length > VIEW_INLINE_MAX).sum())?;
        let (shift, stride) = (self.page_shift, self.stride);
        for row in range {
            let (page, slot) = (self.rows >> shift, self.rows & ((1 << shift) - 1));
            let start = slot * stride;
            self.pages[page][start..start + stride].copy_from_slice(rows.row(row));
            for position in &variable {
                let value = rows.bytes_of(row, *position);
                if value.len() > VIEW_INLINE_MAX {
                    let view = self.store_value(value);
                    let at = start + self.fields[*position].offset;
                    self.pages[page][at..at + 16].copy_from_slice(&view.to_le_bytes());
                }
            }
            if rows.row(row)[..self.fields.len().div_ceil(8)].iter().any(|bits| *bits != 0) {
                for (position, field) in self.fields.iter_mut().enumerate() {
                    field.any_null |= rows.is_null(row, position);
                }
            }
            self.rows += 1;
        }
        Ok(())
    }

    fn pack(&self, attributes: &[AttributeId], offset: u32, rows: &mut PackedRows) {
        let source = offset as usize;
        let in_order = attributes.iter().zip(&self.fields).all(|(id, field)| *id == field.attribute.id);
        if in_order && self.is_format_of(rows) {
            return rows.write_row(self.row(source), |view| self.long_bytes_of(view));
        }
        let mut row = rows.last_row();
        for (column, attribute) in attributes.iter().enumerate() {
            let position = position(&self.positions, *attribute);
            let Field { attribute, offset, any_null } = self.fields[position];
            if any_null && self.is_null(source, position) {
                row.write_null(column);
                continue;
            }
            if attribute.data_type.is_variable_length() {
                row.write_bytes(column, self.bytes_of(source, offset));
            } else {
                match attribute.data_type.physical() {
                    Physical::Boolean => row.write_field(column, [self.read::<u8>(source, offset)]),
                    Physical::Int16 => row.write_field(column, self.read::<i16>(source, offset).to_le_bytes()),
                    Physical::Int32 => row.write_field(column, self.read::<i32>(source, offset).to_le_bytes()),
                    Physical::Int64 => row.write_field(column, self.read::<i64>(source, offset).to_le_bytes()),
                    Physical::Int128 => row.write_field(column, self.read::<i128>(source, offset).to_le_bytes()),
                    Physical::Float32 => row.write_field(column, self.read::<f32>(source, offset).to_le_bytes()),
                    Physical::Float64 => row.write_field(column, self.read::<f64>(source, offset).to_le_bytes()),
                    Physical::Bytes => unreachable!("written above"),
                }
            }
        }
    }

    fn updates_in_place(&self, attribute: AttributeId) -> bool {
        let position = position(&self.positions, attribute);
        !self.fields[position].attribute.data_type.is_variable_length()
    }

    fn exchange(&mut self, attribute: AttributeId, offset: u32, new: FixedValue) -> FixedValue {
        let position = position(&self.positions, attribute);
        let was_null = self.is_null(offset as usize, position);
        let field = &mut self.fields[position];
        field.any_null |= new.null;
        let (at, width) = (field.offset, field.attribute.data_type.physical().width());
        let (page, slot) = (offset as usize >> self.page_shift, offset as usize & ((1 << self.page_shift) - 1));
        let row = &mut self.pages[page][slot * self.stride..(slot + 1) * self.stride];
        let bytes = &mut row[at..at + width];
        let old = if was_null { FixedValue::NULL } else { FixedValue::from_bytes(bytes) };
        bytes.copy_from_slice(&new.bits.to_le_bytes()[..width]);
        let nulls = &mut row[position >> 3];
        *nulls = *nulls & !(1 << (position & 7)) | u8::from(new.null) << (position & 7);
        old
    }

    fn truncates(&self) -> bool {
        true
    }

    fn truncate(&mut self, rows: u32) {
        let rows = rows as usize;
        assert!(rows <= self.rows, "{rows} of {} rows stay", self.rows);
        self.rows = rows;
        let pages = self.pages.split_off(rows.div_ceil(1 << self.page_shift));
        // Fields are written over zeros.
        if let Some(page) = self.pages.get_mut(rows >> self.page_shift) {
            page[(rows & ((1 << self.page_shift) - 1)) * self.stride..].fill(0);
        }
        let chunks = self.heap.split_off(self.chunks_of(rows));
        let left = pages.iter().map(|page| page.len()).chain(chunks.iter().map(Vec::capacity));
        self.memory.shrink(left.map(|bytes| bytes as u64).sum());
    }

    fn freeze(&mut self) {}

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}
