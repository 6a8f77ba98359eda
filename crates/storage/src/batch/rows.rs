//! Columns of equal length.

use super::builder::ColumnBuilder;
use super::column::Column;
use crate::types::DataType;
use crate::value::Value;

/// Columns of equal length; `rows` also counts when there are no columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub columns: Box<[Column]>,
    pub rows: usize,
}

impl Batch {
    /// Columns of `rows` rows.
    ///
    /// # Panics
    /// If a column is of another length.
    pub fn new(columns: impl Into<Box<[Column]>>, rows: usize) -> Self {
        let columns = columns.into();
        for column in &columns {
            assert!(column.len() == rows, "a column of {} rows in a batch of {rows}", column.len());
        }
        Self { columns, rows }
    }

    /// No rows of the types given.
    pub fn empty(types: &[DataType]) -> Self {
        let columns = types.iter().map(|data_type| ColumnBuilder::with_capacity(*data_type, 0).finish()).collect();
        Self { columns, rows: 0 }
    }

    /// Rows of values, as tests and small inserts have them.
    ///
    /// # Panics
    /// If a row has another number of values or a value another type.
    pub fn from_rows(types: &[DataType], rows: &[Vec<Value>]) -> Self {
        let mut builders: Vec<ColumnBuilder> =
            types.iter().map(|data_type| ColumnBuilder::with_capacity(*data_type, rows.len())).collect();
        for row in rows {
            assert!(row.len() == types.len(), "a row of {} values for {} columns", row.len(), types.len());
            for (builder, value) in builders.iter_mut().zip(row) {
                builder.push(value);
            }
        }
        Self { columns: builders.into_iter().map(ColumnBuilder::finish).collect(), rows: rows.len() }
    }

    /// The value at a row and column, copied out.
    pub fn value(&self, row: usize, column: usize) -> Value {
        self.columns[column].value(row)
    }

    /// A row's values, copied out.
    pub fn row(&self, row: usize) -> Vec<Value> {
        self.columns.iter().map(|column| column.value(row)).collect()
    }

    /// The types of the columns.
    pub fn data_types(&self) -> Vec<DataType> {
        self.columns.iter().map(|column| column.data_type).collect()
    }

    /// `len` rows from `start`, sharing the memory.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.rows, "slice {start}+{len} of a batch of {} rows", self.rows);
        Self { columns: self.columns.iter().map(|column| column.slice(start, len)).collect(), rows: len }
    }

    /// The rows at `rows`, in that order, copied; the data of long values is shared.
    #[must_use]
    pub fn take(&self, rows: &[u32]) -> Self {
        Self { columns: self.columns.iter().map(|column| column.take(rows)).collect(), rows: rows.len() }
    }

    /// The same with the data of long values, too, which [`take`](Self::take) shares: keeps nothing of the others.
    #[must_use]
    pub fn take_alone(&self, rows: &[u32]) -> Self {
        Self { columns: self.columns.iter().map(|column| column.take_alone(rows)).collect(), rows: rows.len() }
    }

    /// The columns at `columns`, in that order, shared.
    #[must_use]
    pub fn project(&self, columns: &[usize]) -> Self {
        Self { columns: columns.iter().map(|column| self.columns[*column].clone()).collect(), rows: self.rows }
    }

    /// All rows of all parts, in order.
    ///
    /// # Panics
    /// If there are no parts or their types differ.
    #[must_use]
    pub fn concat(parts: &[Self]) -> Self {
        assert!(!parts.is_empty(), "concatenating no batches has no types");
        let columns = (0..parts[0].columns.len())
            .map(|column| {
                let parts: Vec<Column> = parts.iter().map(|part| part.columns[column].clone()).collect();
                Column::concat(&parts)
            })
            .collect();
        Self { columns, rows: parts.iter().map(|part| part.rows).sum() }
    }

    /// Memory the batch holds, in bytes. Shared buffers count in full.
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DataType; 3] = [DataType::Int32, DataType::Text, DataType::Decimal { precision: 30, scale: 2 }];

    fn rows() -> Vec<Vec<Value>> {
        (0..50)
            .map(|n| {
                vec![
                    if n % 5 == 0 { Value::Null } else { Value::Int32(n) },
                    if n % 7 == 0 { Value::Null } else { Value::Text("é".repeat(n as usize).into()) },
                    Value::Decimal { unscaled: i128::from(n) << 80, scale: 2 },
                ]
            })
            .collect()
    }

    #[test]
    fn gives_back_rows_sliced_taken_and_concatenated() {
        let rows = rows();
        let batch = Batch::from_rows(&TYPES, &rows);
        let back = |batch: &Batch| (0..batch.rows).map(|row| batch.row(row)).collect::<Vec<_>>();
        assert_eq!(back(&batch), rows);
        assert_eq!(back(&batch.slice(3, 20)), rows[3..23]);
        let taken = batch.slice(3, 20).take(&[19, 4, 4]);
        assert_eq!(back(&taken), [rows[22].clone(), rows[7].clone(), rows[7].clone()]);
        let joined = Batch::concat(&[batch.slice(0, 1), batch.slice(30, 0), batch.slice(6, 9)]);
        assert_eq!(back(&joined), [&rows[..1], &rows[6..15]].concat());
        assert_eq!(Batch::empty(&TYPES).rows, 0);
        assert!(batch.bytes() > 50 * (4 + 16 + 16));
    }
}
