//! Storage module *column group*: some attributes of fixed width next to each other, in one array.
//!
//! ```text
//! array := row row row ...                  row := fields, widest first, no padding
//! nulls := one bit per row and attribute    (made at an attribute's first NULL)
//! ```
//! The offset of a row is its place in the array: nothing lies between, so reading some attributes of a row costs one
//! cache line where columns cost one each, and NULLs cost the scan of another attribute nothing. Values of variable
//! length would need an indirection and are left to other modules, as in 004 (Table 5.4).

use super::column::{position, positions_of};
use super::filter::{Float32, Float64, Native, compare_pairs, mask_retain, mask_to_offsets, test_native};
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, COLUMN_GROUP, Count, PathAttribute,
    PathConfiguration, PathFilter, PathInstance, Properties,
};
use crate::batch::{Batch, Column, ColumnBuilder, Values};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Comparison, Test};
use crate::types::Physical;
use eris_platform::memory::Reservation;
use std::ops::Range;

/// The factory.
pub(super) struct ColumnGroupModule;

impl AccessPathFactory for ColumnGroupModule {
    fn name(&self) -> &'static str {
        COLUMN_GROUP
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Direct,
            attributes: Count::Any,
            keys: Count::None,
            key_order: false,
            nulls: true,
            undefined: false,
            variable_length: false,
            shares_frozen_columns: false,
            updates_in_place: false,
        }
    }

    /// # Panics
    /// For an attribute of variable length: the properties say that there must be none.
    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        PathInstance::Rows(Box::new(GroupPath::new(configuration)))
    }
}

/// Rows for which room is made at first.
const ROWS_FIRST: usize = 64;

struct Field {
    attribute: PathAttribute,
    /// Where it begins in the row.
    offset: usize,
    /// One bit per row, set for NULL; empty while there is none.
    nulls: Vec<u64>,
}

/// Some attributes of one segment's rows.
struct GroupPath {
    fields: Box<[Field]>,
    positions: Box<[Option<u16>]>,
    stride: usize,
    array: Vec<u8>,
    rows: usize,
    /// Rows for which memory is reserved, in the array and in every bitmap there may be.
    rows_capacity: usize,
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
impl Plain for f32 {}
impl Plain for f64 {}

impl GroupPath {
    fn new(configuration: PathConfiguration<'_>) -> Self {
        let attributes = configuration.attributes;
        let mut order: Vec<usize> = (0..attributes.len()).collect();
        order.sort_by_key(|position| std::cmp::Reverse(attributes[*position].data_type.physical().width()));
        let field = |attribute: &PathAttribute| {
            assert!(!attribute.data_type.is_variable_length(), "a column group holds no {}", attribute.data_type);
            Field { attribute: *attribute, offset: 0, nulls: Vec::new() }
        };
        let mut fields: Box<[Field]> = attributes.iter().map(field).collect();
        let mut stride = 0;
        for position in order {
            fields[position].offset = stride;
            stride += attributes[position].data_type.physical().width();
        }
        Self {
            fields,
            positions: positions_of(attributes),
            stride,
            array: Vec::new(),
            rows: 0,
            rows_capacity: 0,
            rows_max: configuration.rows_max as usize,
            memory: configuration.memory.reserve("column segments"),
        }
    }

    #[inline]
    fn read<T: Plain>(&self, row: usize, offset: usize) -> T {
        let start = row * self.stride + offset;
        assert!(start + size_of::<T>() <= self.array.len(), "row {row} of {}", self.rows);
        // SAFETY: the bytes are within the array (just asserted) and any bit pattern is a `T`.
        unsafe { self.array.as_ptr().add(start).cast::<T>().read_unaligned() }
    }

    #[inline]
    fn is_null(&self, row: usize, position: usize) -> bool {
        self.fields[position].nulls.get(row >> 6).is_some_and(|word| word >> (row & 63) & 1 != 0)
    }

    /// Makes room for `more` rows.
    fn grow(&mut self, more: usize) -> Result<(), StorageError> {
        if self.rows + more <= self.rows_capacity {
            return Ok(());
        }
        let doubled = (self.rows_capacity * 2).max(ROWS_FIRST).min(self.rows_max);
        let capacity = doubled.max(self.rows + more);
        let nullable = self.fields.iter().filter(|field| field.attribute.nullable).count();
        let bitmaps = nullable * 8 * (capacity.div_ceil(64) - self.rows_capacity.div_ceil(64));
        self.memory.grow(((capacity - self.rows_capacity) * self.stride + bitmaps) as u64)?;
        self.array.reserve_exact(capacity * self.stride - self.array.len());
        self.rows_capacity = capacity;
        Ok(())
    }

    fn write_column(&mut self, position: usize, column: &Column, range: Range<usize>) {
        let (offset, stride, first) = (self.fields[position].offset, self.stride, self.rows);
        let places = self.array[first * stride..].chunks_exact_mut(stride);
        macro_rules! copy {
            ($buffer:expr) => {
                for (place, value) in places.zip(&$buffer[range.clone()]) {
                    let bytes = value.to_le_bytes();
                    place[offset..offset + bytes.len()].copy_from_slice(&bytes);
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
            Values::Bytes(_) => unreachable!("a column group holds no values of variable length"),
        }
        let nulls = &mut self.fields[position].nulls;
        for (row, source) in (first..).zip(range) {
            if column.is_null(source) {
                if nulls.len() <= row >> 6 {
                    // Exactly what was reserved: a NULL comes rarely alone.
                    nulls.reserve_exact(self.rows_capacity.div_ceil(64) - nulls.len());
                    nulls.resize((row >> 6) + 1, 0);
                }
                nulls[row >> 6] |= 1 << (row & 63);
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
                    self.compare(mask, left, right, *comparison, rows)?;
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
        if !self.fields[position].nulls.is_empty() {
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
        let offset = self.fields[position].offset;
        match self.fields[position].attribute.data_type.physical() {
            Physical::Boolean => self.test_native::<u8, u8>(mask, offset, test, rows),
            Physical::Int16 => self.test_native::<i16, i16>(mask, offset, test, rows),
            Physical::Int32 => self.test_native::<i32, i32>(mask, offset, test, rows),
            Physical::Int64 => self.test_native::<i64, i64>(mask, offset, test, rows),
            Physical::Int128 => self.test_native::<i128, i128>(mask, offset, test, rows),
            Physical::Float32 => self.test_native::<f32, Float32>(mask, offset, test, rows),
            Physical::Float64 => self.test_native::<f64, Float64>(mask, offset, test, rows),
            Physical::Bytes => unreachable!("a column group holds no values of variable length"),
        }
    }

    fn test_native<S: Plain, T: Native + From<S>>(
        &self,
        mask: &mut [u8],
        offset: usize,
        test: &Test,
        rows: impl Iterator<Item = usize>,
    ) -> Result<(), StorageError> {
        test_native(mask, rows.map(|row| T::from(self.read::<S>(row, offset))), test)
    }

    fn compare(
        &self,
        mask: &mut [u8],
        left: usize,
        right: usize,
        comparison: Comparison,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Result<(), StorageError> {
        let (left, right) = (&self.fields[left], &self.fields[right]);
        let (physical, other) = (left.attribute.data_type.physical(), right.attribute.data_type.physical());
        if physical != other {
            let reason = format!("a comparison of {physical:?} with {other:?}");
            return Err(StorageError::InvalidRequest { reason });
        }
        macro_rules! pairs {
            ($read:expr) => {
                compare_pairs(
                    mask,
                    rows.clone().map(|row| $read(row, left.offset)),
                    rows.clone().map(|row| $read(row, right.offset)),
                    comparison,
                )
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
            Physical::Bytes => unreachable!("a column group holds no values of variable length"),
        }
        Ok(())
    }
}

impl AccessPath for GroupPath {
    fn module(&self) -> &'static str {
        COLUMN_GROUP
    }

    fn rows(&self) -> u32 {
        self.rows as u32
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        assert!(self.rows + range.len() <= self.rows_max, "{} rows on top of {}", range.len(), self.rows);
        self.grow(range.len())?;
        self.array.resize((self.rows + range.len()) * self.stride, 0);
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
        let Field { attribute, offset, nulls } = &self.fields[position];
        let (offset, any_null) = (*offset, !nulls.is_empty());
        macro_rules! push {
            ($push:ident) => {
                for row in offsets {
                    let row = *row as usize;
                    if any_null && self.is_null(row, position) {
                        out.push_null();
                    } else {
                        out.$push(self.read(row, offset));
                    }
                }
            };
        }
        match attribute.data_type.physical() {
            Physical::Boolean => push!(push_bool),
            Physical::Int16 => push!(push_i16),
            Physical::Int32 => push!(push_i32),
            Physical::Int64 => push!(push_i64),
            Physical::Int128 => push!(push_i128),
            Physical::Float32 => push!(push_f32),
            Physical::Float64 => push!(push_f64),
            Physical::Bytes => unreachable!("a column group holds no values of variable length"),
        }
    }

    fn shared(&self, _attribute: AttributeId, _run: Range<u32>) -> Option<Column> {
        None
    }

    fn gather(&self, _attribute: AttributeId, _offsets: &[u32]) -> Option<Column> {
        None
    }

    fn truncates(&self) -> bool {
        true
    }

    fn truncate(&mut self, rows: u32) {
        let rows = rows as usize;
        assert!(rows <= self.rows, "{rows} of {} rows stay", self.rows);
        let nullable = self.fields.iter().filter(|field| field.attribute.nullable).count();
        let bitmaps = nullable * 8 * (self.rows_capacity.div_ceil(64) - rows.div_ceil(64));
        let left = (self.rows_capacity - rows) * self.stride + bitmaps;
        self.array.truncate(rows * self.stride);
        self.array.shrink_to_fit();
        for Field { nulls, .. } in &mut self.fields {
            nulls.truncate(rows.div_ceil(64));
            nulls.shrink_to_fit();
            if let Some(last) = nulls.get_mut(rows >> 6) {
                *last &= (1 << (rows & 63)) - 1;
            }
        }
        (self.rows, self.rows_capacity) = (rows, rows);
        self.memory.shrink(left as u64);
    }

    fn freeze(&mut self) {}

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}
