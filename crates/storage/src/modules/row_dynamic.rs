//! Storage module *row dynamic*: records that say themselves which attributes they have.
//!
//! ```text
//! linkage := (page, position) (page, position) ...       one per row: the record's handle
//! page    := record record ...                           (append only, up to 64 KiB, never moves)
//! record  := attributes u16 | defined bits | value bits | fields | long values
//! field   := 16, 8, 4, 2 or 1 bytes, widest first, only of attributes that have a value;
//!            variable length: u32 start within the record, u32 length
//! ```
//! An attribute is UNDEFINED where its defined bit is clear or the record is older than the attribute (it knew fewer),
//! NULL where only the value bit is clear; neither takes room for a value. So the module takes rows of any schema of
//! which its own is an extension, and is the *catch-all* of 004, section 5.2.4.
//!
//! A field is found by counting value bits: those of wider fields, and of fields as wide that come before. For records
//! that have all values, and for paths of at most 64 attributes that is one comparison and a number known before.

use super::column::{position, positions_of};
use super::filter::{Float32, Float64, Native, compare_pairs, mask_retain, mask_to_offsets, test_bytes, test_native};
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, Count, PathAttribute, PathConfiguration,
    PathFilter, PathInstance, Properties, ROW_DYNAMIC,
};
use crate::batch::{Batch, Column, ColumnBuilder, Values};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Comparison, Condition, Test};
use crate::types::Physical;
use eris_platform::memory::Reservation;
use std::ops::Range;

/// The factory.
pub(super) struct RowDynamicModule;

impl AccessPathFactory for RowDynamicModule {
    fn name(&self) -> &'static str {
        ROW_DYNAMIC
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Indirect,
            attributes: Count::Any,
            keys: Count::None,
            key_order: false,
            nulls: true,
            undefined: true,
            variable_length: true,
            shares_frozen_columns: false,
            updates_in_place: false,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        PathInstance::Rows(Box::new(DynamicPath::new(configuration)))
    }
}

/// Pages hold this much, unless a single record is larger. The first ones are smaller: many partitions are.
const PAGE_BYTES_MAX: usize = 64 << 10;
const PAGE_BYTES_MIN: usize = 4 << 10;

/// Bytes of the attribute count that begins a record.
const COUNT_BYTES: usize = 2;

/// Widths of fields, widest first. Values of variable length are in the second class.
const WIDTHS: [usize; 5] = [16, 8, 4, 2, 1];

fn class_of(physical: Physical) -> usize {
    match physical {
        Physical::Int128 => 0,
        Physical::Bytes | Physical::Int64 | Physical::Float64 => 1,
        Physical::Int32 | Physical::Float32 => 2,
        Physical::Int16 => 3,
        Physical::Boolean => 4,
    }
}

/// Where a record is.
#[derive(Clone, Copy)]
struct Handle {
    page: u32,
    position: u32,
}

struct Field {
    attribute: PathAttribute,
    /// For each 64 attributes and each class, the value bits whose fields lie before this one.
    before: Box<[[u64; WIDTHS.len()]]>,
    /// Where the field is behind the bits of a record that has all values.
    full_offset: usize,
}

/// Records of one segment.
struct DynamicPath {
    fields: Box<[Field]>,
    positions: Box<[Option<u16>]>,
    /// For each 64 attributes the bits of each class.
    classes: Box<[[u64; WIDTHS.len()]]>,
    /// All value bits, if they fit in one word.
    full: Option<u64>,
    linkage: Vec<Handle>,
    pages: Vec<Vec<u8>>,
    rows_max: usize,
    memory: Reservation,
}

/// A record taken apart.
#[derive(Clone, Copy)]
struct Record<'a> {
    bytes: &'a [u8],
    /// Bytes of each of the two bit lists.
    bits: usize,
}

impl Record<'_> {
    /// 64 bits of a list from bit `64 * word` on; those it does not have are clear.
    #[inline]
    fn word(&self, list: usize, word: usize) -> u64 {
        let list = &self.bytes[COUNT_BYTES + list * self.bits..][..self.bits];
        let mut bytes = [0; 8];
        let part = &list[(word * 8).min(self.bits)..(word * 8 + 8).min(self.bits)];
        bytes[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(bytes)
    }

    #[inline]
    fn bit(&self, list: usize, position: usize) -> bool {
        position >> 3 < self.bits
            && self.bytes[COUNT_BYTES + list * self.bits + (position >> 3)] >> (position & 7) & 1 != 0
    }

    #[inline]
    fn is_defined(&self, position: usize) -> bool {
        self.bit(0, position)
    }

    #[inline]
    fn has_value(&self, position: usize) -> bool {
        self.bit(1, position)
    }

    fn fields_start(&self) -> usize {
        COUNT_BYTES + 2 * self.bits
    }
}

fn bytes_of_fields(value: u64, classes: &[u64; WIDTHS.len()]) -> usize {
    classes.iter().zip(WIDTHS).map(|(class, width)| (value & class).count_ones() as usize * width).sum()
}

/// A value as it lies in a record.
trait Plain: Copy {
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(impl Plain for $type {
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$type>()];
                value.copy_from_slice(&bytes[..size_of::<$type>()]);
                Self::from_le_bytes(value)
            }
        })*
    };
}

plain!(u8, i16, i32, i64, i128, f32, f64);

impl DynamicPath {
    fn new(configuration: PathConfiguration<'_>) -> Self {
        let attributes = configuration.attributes;
        let words = attributes.len().div_ceil(64);
        let mut classes = vec![[0; WIDTHS.len()]; words];
        for (position, attribute) in attributes.iter().enumerate() {
            classes[position >> 6][class_of(attribute.data_type.physical())] |= 1 << (position & 63);
        }
        let fields = attributes.iter().enumerate().map(|(position, attribute)| {
            let class = class_of(attribute.data_type.physical());
            let before: Box<[[u64; WIDTHS.len()]]> = (0..words)
                .map(|word| {
                    let mut before = classes[word];
                    before[class + 1..].fill(0);
                    before[class] &= match word.cmp(&(position >> 6)) {
                        std::cmp::Ordering::Less => u64::MAX,
                        std::cmp::Ordering::Equal => (1 << (position & 63)) - 1,
                        std::cmp::Ordering::Greater => 0,
                    };
                    before
                })
                .collect();
            let full_offset = before.iter().map(|before| bytes_of_fields(u64::MAX, before)).sum();
            Field { attribute: *attribute, before, full_offset }
        });
        let fields = fields.collect();
        let full = (attributes.len() <= 64).then(|| u64::MAX.checked_shr(64 - attributes.len() as u32).unwrap_or(0));
        Self {
            fields,
            positions: positions_of(attributes),
            classes: classes.into(),
            full,
            linkage: Vec::new(),
            pages: Vec::new(),
            rows_max: configuration.rows_max as usize,
            memory: configuration.memory.reserve("row segments"),
        }
    }

    #[inline]
    fn record(&self, row: usize) -> Record<'_> {
        let Handle { page, position } = self.linkage[row];
        let bytes = &self.pages[page as usize][position as usize..];
        Record { bytes, bits: usize::from(u16::read(bytes)).div_ceil(8) }
    }

    /// Where an attribute's field is in a record; none if it has no value there.
    #[inline]
    fn field<'a>(&self, record: Record<'a>, position: usize) -> Option<&'a [u8]> {
        if !record.has_value(position) {
            return None;
        }
        let field = &self.fields[position];
        let first = record.word(1, 0);
        let offset = if self.full == Some(first) {
            field.full_offset
        } else {
            let words = field.before.iter().enumerate();
            words.map(|(word, before)| bytes_of_fields(record.word(1, word), before)).sum()
        };
        Some(&record.bytes[record.fields_start() + offset..])
    }

    #[inline]
    fn read<T: Plain>(&self, row: usize, position: usize) -> Option<T> {
        self.field(self.record(row), position).map(T::read)
    }

    #[inline]
    fn bytes_of(&self, row: usize, position: usize) -> Option<&[u8]> {
        let record = self.record(row);
        let field = self.field(record, position)?;
        let (start, len) = (i32::read(field) as u32 as usize, i32::read(&field[4..]) as u32 as usize);
        Some(&record.bytes[start..start + len])
    }

    /// Bytes of the records that some rows of a batch become.
    fn sizes(&self, rows: &Batch, range: Range<usize>) -> Vec<usize> {
        let held = self.held_by(rows);
        let mut sizes = vec![COUNT_BYTES + 2 * held.div_ceil(8); range.len()];
        for field in &self.fields {
            let Some(column) = rows.columns.get(field.attribute.id.index()) else { continue };
            let width = WIDTHS[class_of(field.attribute.data_type.physical())];
            for (size, row) in sizes.iter_mut().zip(range.clone()) {
                if column.is_null(row) {
                    continue;
                }
                *size += width;
                if let Values::Bytes(views) = &column.values {
                    *size += views.get(row).len();
                }
            }
        }
        sizes
    }

    /// How many leading attributes of the path a batch may have: as many as a record must tell of.
    fn held_by(&self, rows: &Batch) -> usize {
        let is_there = |field: &Field| field.attribute.id.index() < rows.columns.len();
        self.fields.iter().rposition(is_there).map_or(0, |last| last + 1)
    }

    /// Makes room for records of these sizes; gives how many go to the page that is last now.
    fn make_room(&mut self, sizes: &[usize]) -> Result<(), StorageError> {
        let mut free = self.pages.last().map_or(0, |page| page.capacity() - page.len());
        let mut taken: usize = self.pages.iter().map(Vec::capacity).sum();
        let mut capacities = Vec::new();
        for size in sizes {
            if *size > free {
                let capacity = taken.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX).max(*size);
                capacities.push(capacity);
                taken += capacity;
                free = capacity;
            }
            free -= size;
        }
        let links = self.linkage.len() + sizes.len();
        let more = if links > self.linkage.capacity() {
            links.max((self.linkage.capacity() * 2).min(self.rows_max)) - self.linkage.capacity()
        } else {
            0
        };
        let bytes = capacities.iter().sum::<usize>() + more * size_of::<Handle>();
        self.memory.grow(bytes as u64)?;
        self.linkage.reserve_exact(self.linkage.capacity() + more - self.linkage.len());
        self.pages.extend(capacities.into_iter().map(Vec::with_capacity));
        Ok(())
    }

    /// Writes a row behind the last record of a page.
    fn write(&mut self, page: usize, rows: &Batch, row: usize) {
        let held = self.held_by(rows);
        let page = &mut self.pages[page];
        let start = page.len();
        let bits = held.div_ceil(8);
        page.extend_from_slice(&(held as u16).to_le_bytes());
        page.resize(start + COUNT_BYTES + 2 * bits, 0);
        for (position, field) in self.fields[..held].iter().enumerate() {
            if let Some(column) = rows.columns.get(field.attribute.id.index()) {
                let bit = 1 << (position & 7);
                page[start + COUNT_BYTES + (position >> 3)] |= bit;
                page[start + COUNT_BYTES + bits + (position >> 3)] |= if column.is_null(row) { 0 } else { bit };
            }
        }
        let record = Record { bytes: &page[start..], bits };
        let words = self.classes.iter().enumerate();
        let fields: usize = words.map(|(word, classes)| bytes_of_fields(record.word(1, word), classes)).sum();
        let mut long = record.fields_start() + fields;
        for class in 0..WIDTHS.len() {
            for field in &self.fields[..held] {
                let Some(column) = rows.columns.get(field.attribute.id.index()) else { continue };
                if class_of(field.attribute.data_type.physical()) != class || column.is_null(row) {
                    continue;
                }
                match &column.values {
                    Values::Boolean(buffer) => page.push(buffer[row]),
                    Values::Int16(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Int32(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Int64(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Int128(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Float32(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Float64(buffer) => page.extend_from_slice(&buffer[row].to_le_bytes()),
                    Values::Bytes(views) => {
                        let len = views.get(row).len();
                        page.extend_from_slice(&(long as u32).to_le_bytes());
                        page.extend_from_slice(&(len as u32).to_le_bytes());
                        long += len;
                    }
                }
            }
        }
        for field in &self.fields[..held] {
            if let Some(column) = rows.columns.get(field.attribute.id.index())
                && let Values::Bytes(views) = &column.values
                && !column.is_null(row)
            {
                page.extend_from_slice(views.get(row));
            }
        }
        debug_assert!(page.len() - start == long, "a record is as long as its fields and values");
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
                Test::IsNull => self.test_value(mask, left, rows.clone(), false),
                Test::IsNotNull => self.test_value(mask, left, rows.clone(), true),
                Test::CompareAttribute(comparison, other) => {
                    self.compare(mask, left, position(&self.positions, *other), *comparison, rows)?;
                }
                Test::Compare(..) | Test::In(_) | Test::StartsWith(_) => {
                    self.test_field(mask, left, condition, rows)?;
                }
            }
        }
        Ok(())
    }

    fn test_value(&self, mask: &mut [u8], position: usize, rows: impl Iterator<Item = usize>, wanted: bool) {
        for (keep, row) in mask.iter_mut().zip(rows) {
            *keep &= u8::from(self.record(row).has_value(position) == wanted);
        }
    }

    fn test_field(
        &self,
        mask: &mut [u8],
        position: usize,
        condition: &Condition,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Result<(), StorageError> {
        let test = &condition.test;
        let rows = rows.clone();
        match self.fields[position].attribute.data_type.physical() {
            Physical::Boolean => self.test_native::<u8, u8>(mask, position, test, rows),
            Physical::Int16 => self.test_native::<i16, i16>(mask, position, test, rows),
            Physical::Int32 => self.test_native::<i32, i32>(mask, position, test, rows),
            Physical::Int64 => self.test_native::<i64, i64>(mask, position, test, rows),
            Physical::Int128 => self.test_native::<i128, i128>(mask, position, test, rows),
            Physical::Float32 => self.test_native::<f32, Float32>(mask, position, test, rows),
            Physical::Float64 => self.test_native::<f64, Float64>(mask, position, test, rows),
            Physical::Bytes => {
                let again = rows.clone();
                test_bytes(mask, rows.map(|row| self.bytes_of(row, position).unwrap_or_default()), test)?;
                self.test_value(mask, position, again, true);
                Ok(())
            }
        }
    }

    fn test_native<S: Plain + Default, T: Native + From<S>>(
        &self,
        mask: &mut [u8],
        position: usize,
        test: &Test,
        rows: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), StorageError> {
        let again = rows.clone();
        test_native(mask, rows.map(|row| T::from(self.read::<S>(row, position).unwrap_or_default())), test)?;
        self.test_value(mask, position, again, true);
        Ok(())
    }

    fn compare(
        &self,
        mask: &mut [u8],
        left: usize,
        right: usize,
        comparison: Comparison,
        rows: &(impl Iterator<Item = usize> + Clone),
    ) -> Result<(), StorageError> {
        let physical = self.fields[left].attribute.data_type.physical();
        let other = self.fields[right].attribute.data_type.physical();
        if physical != other {
            let reason = format!("a comparison of {physical:?} with {other:?}");
            return Err(StorageError::InvalidRequest { reason });
        }
        macro_rules! pairs {
            ($read:expr) => {
                compare_pairs(
                    mask,
                    rows.clone().map(|row| $read(row, left)),
                    rows.clone().map(|row| $read(row, right)),
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
            Physical::Float32 => pairs!(|row, at| self.read::<f32>(row, at).map(Float32::from)),
            Physical::Float64 => pairs!(|row, at| self.read::<f64>(row, at).map(Float64::from)),
            Physical::Bytes => pairs!(|row, at| self.bytes_of(row, at)),
        }
        self.test_value(mask, left, rows.clone(), true);
        self.test_value(mask, right, rows.clone(), true);
        Ok(())
    }
}

impl Plain for u16 {
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes([bytes[0], bytes[1]])
    }
}

impl AccessPath for DynamicPath {
    fn module(&self) -> &'static str {
        ROW_DYNAMIC
    }

    fn rows(&self) -> u32 {
        self.linkage.len() as u32
    }

    /// Rows of a batch that ends before some of the path's attributes leave those UNDEFINED.
    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        assert!(
            self.linkage.len() + range.len() <= self.rows_max,
            "{} rows on top of {}",
            range.len(),
            self.linkage.len()
        );
        let sizes = self.sizes(rows, range.clone());
        let mut page = self.pages.len().saturating_sub(1);
        self.make_room(&sizes)?;
        for (row, size) in range.zip(sizes) {
            if self.pages[page].capacity() - self.pages[page].len() < size {
                page += 1;
            }
            let handle = Handle { page: page as u32, position: self.pages[page].len() as u32 };
            self.write(page, rows, row);
            self.linkage.push(handle);
        }
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
        macro_rules! push {
            ($push:ident, $read:expr) => {
                for row in offsets {
                    match $read(*row as usize) {
                        Some(value) => out.$push(value),
                        None => out.push_null(),
                    }
                }
            };
        }
        match self.fields[position].attribute.data_type.physical() {
            Physical::Boolean => push!(push_bool, |row| self.read::<u8>(row, position)),
            Physical::Int16 => push!(push_i16, |row| self.read::<i16>(row, position)),
            Physical::Int32 => push!(push_i32, |row| self.read::<i32>(row, position)),
            Physical::Int64 => push!(push_i64, |row| self.read::<i64>(row, position)),
            Physical::Int128 => push!(push_i128, |row| self.read::<i128>(row, position)),
            Physical::Float32 => push!(push_f32, |row| self.read::<f32>(row, position)),
            Physical::Float64 => push!(push_f64, |row| self.read::<f64>(row, position)),
            Physical::Bytes => push!(push_bytes, |row| self.bytes_of(row, position)),
        }
    }

    fn is_undefined(&self, attribute: AttributeId, offset: u32) -> bool {
        !self.record(offset as usize).is_defined(position(&self.positions, attribute))
    }

    fn shared(&self, _attribute: AttributeId, _run: Range<u32>) -> Option<Column> {
        None
    }

    fn gather(&self, _attribute: AttributeId, _offsets: &[u32]) -> Option<Column> {
        None
    }

    fn freeze(&mut self) {}

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}
