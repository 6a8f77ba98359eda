//! One value of fixed width, apart from any column: what an update in place writes and what it keeps of the row before.

use super::packed::PackedRows;
use super::view::{ColumnView, ValuesView};
use super::{Column, ColumnBuilder};
use crate::types::Physical;

/// A value of up to 16 bytes, or NULL. Which type it has, whoever holds it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedValue {
    /// NULL; the bits are zero then.
    pub null: bool,
    /// The value as it lies in memory (little-endian), zeros above.
    pub bits: u128,
}

impl FixedValue {
    /// The value that is not there.
    pub const NULL: Self = Self { null: true, bits: 0 };

    /// A value that lies in memory as these bytes: 16 at most.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut bits = [0; 16];
        bits[..bytes.len()].copy_from_slice(bytes);
        Self { null: false, bits: u128::from_le_bytes(bits) }
    }

    /// A row of a column of fixed width.
    pub fn of(column: &Column, row: usize) -> Self {
        Self::of_view(&column.view(), row)
    }

    fn of_view(column: &ColumnView<'_>, row: usize) -> Self {
        if !column.validity.get(row) {
            return Self::NULL;
        }
        match &column.values {
            ValuesView::Boolean(values) => Self::from_bytes(&[values[row]]),
            ValuesView::Int16(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Int32(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Int64(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Int128(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Float32(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Float64(values) => Self::from_bytes(&values[row].to_le_bytes()),
            ValuesView::Bytes(_) => unreachable!("{} has no fixed width", column.data_type),
        }
    }

    /// Appends it to a column.
    pub(crate) fn push_into(self, column: &mut ColumnBuilder) {
        if self.null {
            return column.push_null();
        }
        match column.data_type().physical() {
            Physical::Boolean => column.push_bool(self.bits as u8),
            Physical::Int16 => column.push_i16(self.bits as i16),
            Physical::Int32 => column.push_i32(self.bits as i32),
            Physical::Int64 => column.push_i64(self.bits as i64),
            Physical::Int128 => column.push_i128(self.bits as i128),
            Physical::Float32 => column.push_f32(f32::from_bits(self.bits as u32)),
            Physical::Float64 => column.push_f64(f64::from_bits(self.bits as u64)),
            Physical::Bytes => unreachable!("{} has no fixed width", column.data_type()),
        }
    }

    /// Writes it into a field of a row.
    pub(crate) fn write_into(self, rows: &mut PackedRows, row: usize, column: usize) {
        let physical = rows.format().data_type(column).physical();
        let mut row = rows.row_mut(row);
        if self.null {
            return row.write_null(column);
        }
        row.clear_null(column);
        match physical {
            Physical::Boolean => row.write_field(column, [self.bits as u8]),
            Physical::Int16 => row.write_field(column, (self.bits as u16).to_le_bytes()),
            Physical::Int32 | Physical::Float32 => row.write_field(column, (self.bits as u32).to_le_bytes()),
            Physical::Int64 | Physical::Float64 => row.write_field(column, (self.bits as u64).to_le_bytes()),
            Physical::Int128 => row.write_field(column, self.bits.to_le_bytes()),
            Physical::Bytes => unreachable!("a field of variable length has no fixed width"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, RowFormat};
    use crate::types::DataType;
    use crate::value::Value;
    use std::sync::Arc;

    fn value_of(fixed: FixedValue, data_type: DataType) -> Value {
        let mut column = ColumnBuilder::with_capacity(data_type, 1);
        fixed.push_into(&mut column);
        column.finish().value(0)
    }

    #[test]
    fn fixed_values_keep_type_and_null() {
        let types = [
            DataType::Boolean,
            DataType::Int16,
            DataType::Date,
            DataType::Int64,
            DataType::Decimal { precision: 30, scale: 2 },
            DataType::Float32,
            DataType::Float64,
        ];
        let row = [
            Value::Boolean(true),
            Value::Int16(-7),
            Value::Date(-1),
            Value::Int64(i64::MIN),
            Value::Decimal { unscaled: -1 << 100, scale: 2 },
            Value::Float32(-0.0),
            Value::Float64(f64::NAN),
        ];
        let batch = Batch::from_rows(&types, &[row.to_vec(), vec![Value::Null; types.len()]]);
        let mut packed = PackedRows::default();
        packed.clear(&Arc::new(RowFormat::new(types)));
        packed.extend(&batch);
        for (position, column) in batch.columns.iter().enumerate() {
            let (value, null) = (FixedValue::of(column, 0), FixedValue::of(column, 1));
            assert_eq!(value_of(value, types[position]), row[position]);
            assert_eq!(value_of(null, types[position]), Value::Null);
            null.write_into(&mut packed, 0, position);
            value.write_into(&mut packed, 1, position);
        }
        assert_eq!(packed.to_batch(), batch.take(&[1, 0]));
    }
}
