//! Chunks as batches of storage, for loads that go straight into containers.

use super::chunk::{Chunk, Column, ColumnType, TextColumn};
use super::schema::Table;
use eris_storage::{Batch, Buffer, Column as StoredColumn, ColumnBuilder, DataType, Values};

impl ColumnType {
    /// The type of storage that holds the column.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Decimal => DataType::Decimal { precision: 15, scale: 2 },
            Self::Date => DataType::Date,
            Self::Text(_) => DataType::Text,
        }
    }
}

impl Table {
    /// The types of all columns, in order.
    pub fn data_types(self) -> Vec<DataType> {
        self.columns().iter().map(|column| column.column_type.data_type()).collect()
    }
}

impl Chunk {
    /// The same rows as a batch; numbers are moved, text is copied.
    pub fn into_batch(self) -> Batch {
        let rows = self.rows();
        let columns: Vec<StoredColumn> = self.columns.into_iter().map(stored).collect();
        Batch::new(columns, rows)
    }
}

fn stored(column: Column) -> StoredColumn {
    let (data_type, values) = match column {
        Column::Int32(values) => (DataType::Int32, Values::Int32(Buffer::from(values))),
        Column::Date(values) => (DataType::Date, Values::Int32(Buffer::from(values))),
        Column::Int64(values) => (DataType::Int64, Values::Int64(Buffer::from(values))),
        Column::Decimal(values) => (ColumnType::Decimal.data_type(), Values::Int64(Buffer::from(values))),
        Column::Text(values) => return stored_text(&values),
    };
    StoredColumn { data_type, validity: None, values }
}

fn stored_text(values: &TextColumn) -> StoredColumn {
    let mut builder = ColumnBuilder::with_capacity(DataType::Text, values.len());
    for value in values.iter() {
        builder.push_bytes(value.as_bytes());
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::super::generate::{TablePart, generate};
    use super::*;
    use eris_storage::Value;

    #[test]
    fn a_batch_holds_the_values_of_its_chunk() {
        for table in Table::ALL {
            let Some(chunk) = generate(table, 0.001, TablePart::WHOLE).next() else { unreachable!("no rows") };
            let batch = chunk.clone().into_batch();
            assert_eq!((batch.rows, batch.data_types()), (chunk.rows(), table.data_types()), "{}", table.name());
            for (position, column) in chunk.columns.iter().enumerate() {
                let row = chunk.rows() - 1;
                let expected = match column {
                    Column::Int32(values) => Value::Int32(values[row]),
                    Column::Int64(values) => Value::Int64(values[row]),
                    Column::Decimal(values) => Value::Decimal { unscaled: i128::from(values[row]), scale: 2 },
                    Column::Date(values) => Value::Date(values[row]),
                    Column::Text(values) => Value::Text(values.get(row).into()),
                };
                assert_eq!(batch.value(row, position), expected, "{} column {position}", table.name());
            }
        }
    }
}
