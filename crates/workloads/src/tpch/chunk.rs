//! A stretch of rows of one TPC-H table, column by column: what generator and `.tbl` reader hand out and what loaders
//! turn into the batches of their own system.

/// Type of a TPC-H column. Decimals all have the specification's DECIMAL(15, 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Int32,
    Int64,
    /// Unscaled hundredths.
    Decimal,
    /// Days since 1970-01-01.
    Date,
    /// At most so many characters (TPC-H text is ASCII).
    Text(u16),
}

/// Text of many rows in one buffer: row `i` is `bytes[ends[i - 1]..ends[i]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextColumn {
    bytes: String,
    ends: Vec<u32>,
}

impl TextColumn {
    pub fn push(&mut self, text: &str) {
        self.bytes.push_str(text);
        self.end_row();
    }

    /// Appends a row from its `Display` form without a temporary string.
    pub fn push_display(&mut self, value: impl std::fmt::Display) {
        use std::fmt::Write;
        // Writing into a String cannot fail; only a broken Display impl could report an error, and tpchgen has none.
        let written = write!(self.bytes, "{value}");
        assert!(written.is_ok(), "a generated value failed to format");
        self.end_row();
    }

    fn end_row(&mut self) {
        let end = u32::try_from(self.bytes.len());
        assert!(end.is_ok(), "a chunk holds less than 4 GiB of text per column");
        self.ends.push(end.unwrap_or(u32::MAX));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        &self.bytes[start..self.ends[row] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|row| self.get(row))
    }

    /// All rows back to back, and where each row ends.
    pub fn parts(&self) -> (&str, &[u32]) {
        (&self.bytes, &self.ends)
    }
}

/// The values of one column of a chunk; TPC-H has no NULLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Decimal(Vec<i64>),
    Date(Vec<i32>),
    Text(TextColumn),
}

impl Column {
    pub fn new(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Int32 => Self::Int32(Vec::new()),
            ColumnType::Int64 => Self::Int64(Vec::new()),
            ColumnType::Decimal => Self::Decimal(Vec::new()),
            ColumnType::Date => Self::Date(Vec::new()),
            ColumnType::Text(_) => Self::Text(TextColumn::default()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Int32(values) | Self::Date(values) => values.len(),
            Self::Int64(values) | Self::Decimal(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Some rows of one table, in table order; all columns have the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub columns: Vec<Column>,
}

impl Chunk {
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    /// Bytes of the values alone: 4 or 8 for a number or a date, as many as it has for a text.
    pub fn value_bytes(&self) -> u64 {
        let bytes = self.columns.iter().map(|column| match column {
            Column::Int32(values) | Column::Date(values) => size_of_val(values.as_slice()),
            Column::Int64(values) | Column::Decimal(values) => size_of_val(values.as_slice()),
            Column::Text(values) => values.parts().0.len(),
        });
        bytes.sum::<usize>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_bytes_of_their_types() {
        let mut text = TextColumn::default();
        text.push("three");
        text.push("");
        let columns = vec![Column::Int32(vec![1, 2]), Column::Decimal(vec![3, 4]), Column::Text(text)];
        assert_eq!(Chunk { columns }.value_bytes(), 2 * 4 + 2 * 8 + 5);
    }
}
