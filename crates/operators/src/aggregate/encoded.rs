//! Group columns of a row as bytes, for what fits in no word.
//!
//! ```text
//!   number: | 1 | its bytes |     text: | 1 | length (4 bytes) | bytes |     NULL: | 0 |
//! ```
//! Equal rows have equal bytes.

use eris_storage::{Column, ColumnBuilder, DataType, Physical, Values};

use super::chosen::Chosen;
use crate::hash::{float_bits, real_bits};

/// Rows one behind the other.
#[derive(Debug, Default)]
pub(super) struct EncodedRows {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

/// Where a text's bytes are, or a number's.
macro_rules! each_value {
    ($key:expr, $row:ident, $bytes:ident => $do:expr) => {
        match &$key.values {
            Values::Boolean(values) => {
                let $bytes = &[values[$row]];
                $do
            }
            Values::Int16(values) => {
                let $bytes = &values[$row].to_le_bytes();
                $do
            }
            Values::Int32(values) => {
                let $bytes = &values[$row].to_le_bytes();
                $do
            }
            Values::Int64(values) => {
                let $bytes = &values[$row].to_le_bytes();
                $do
            }
            Values::Int128(values) => {
                let $bytes = &values[$row].to_le_bytes();
                $do
            }
            Values::Float32(values) => {
                let $bytes = &real_bits(values[$row]).to_le_bytes();
                $do
            }
            Values::Float64(values) => {
                let $bytes = &float_bits(values[$row]).to_le_bytes();
                $do
            }
            Values::Bytes(views) => {
                let $bytes = views.get($row);
                $do
            }
        }
    };
}

impl EncodedRows {
    /// The rows of key columns.
    pub fn of(keys: &[Column], rows: usize) -> Self {
        let mut all = Self { bytes: Vec::new(), ends: Vec::with_capacity(rows) };
        for row in 0..rows {
            for key in keys {
                if key.is_null(row) {
                    all.bytes.push(0);
                    continue;
                }
                all.bytes.push(1);
                if let Values::Bytes(views) = &key.values {
                    all.bytes.extend_from_slice(&(views.views[row] as u32).to_le_bytes());
                }
                each_value!(key, row, bytes => all.bytes.extend_from_slice(bytes));
            }
            all.ends.push(all.bytes.len());
        }
        all
    }

    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    pub fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }

    /// Adds all rows of another one.
    pub fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
    }

    /// Bytes of all rows.
    pub fn text_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What a row takes besides its bytes.
    pub const ROW_BYTES: usize = size_of::<usize>();

    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        self.ends.capacity() * Self::ROW_BYTES
    }

    pub fn reserve_rows(&mut self, rows: usize) {
        self.ends.reserve_exact(rows.saturating_sub(self.ends.len()));
    }

    /// The columns that some rows stand for.
    pub fn columns(&self, types: &[DataType], rows: &Chosen<'_>) -> Vec<Column> {
        let mut builders: Vec<ColumnBuilder> =
            types.iter().map(|data_type| ColumnBuilder::with_capacity(*data_type, rows.len())).collect();
        for row in rows.iter() {
            let mut rest = self.row(row);
            for (builder, data_type) in builders.iter_mut().zip(types) {
                if next::<1>(&mut rest) == [0] {
                    builder.push_null();
                    continue;
                }
                match data_type.physical() {
                    Physical::Boolean => builder.push_bool(next::<1>(&mut rest)[0]),
                    Physical::Int16 => builder.push_i16(i16::from_le_bytes(next(&mut rest))),
                    Physical::Int32 => builder.push_i32(i32::from_le_bytes(next(&mut rest))),
                    Physical::Int64 => builder.push_i64(i64::from_le_bytes(next(&mut rest))),
                    Physical::Int128 => builder.push_i128(i128::from_le_bytes(next(&mut rest))),
                    Physical::Float32 => builder.push_f32(f32::from_le_bytes(next(&mut rest))),
                    Physical::Float64 => builder.push_f64(f64::from_le_bytes(next(&mut rest))),
                    Physical::Bytes => {
                        let length = u32::from_le_bytes(next(&mut rest)) as usize;
                        let (bytes, behind) = rest.split_at(length);
                        builder.push_bytes(bytes);
                        rest = behind;
                    }
                }
            }
        }
        builders.into_iter().map(ColumnBuilder::finish).collect()
    }
}

fn next<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let Some((bytes, behind)) = rest.split_first_chunk::<N>() else {
        unreachable!("a row ends {} bytes before its last value", N - rest.len())
    };
    *rest = behind;
    *bytes
}
