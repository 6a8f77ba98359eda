//! The whole result of a statement, in memory.

use eris_sql::{ColumnDescription, SqlType, pg_format};
use eris_storage::{Batch, Value};

/// Rows and their description; for statements without rows only the tag says something.
#[derive(Clone, Debug, Default)]
pub struct QueryResult {
    pub columns: Vec<ColumnDescription>,
    pub batches: Vec<Batch>,
    /// What the statement did: `SELECT 3`, `INSERT 0 1`.
    pub tag: String,
}

impl QueryResult {
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(|batch| batch.rows).sum()
    }

    /// The number at the end of the tag: rows returned, inserted, changed or deleted.
    pub fn rows_affected(&self) -> u64 {
        self.tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// Rows and columns are counted from zero; both must exist.
    pub fn value(&self, row: usize, column: usize) -> Value {
        let (batch, row) = self.place(row);
        batch.value(row, column)
    }

    /// A value in PostgreSQL's text form; `None` is NULL.
    pub fn text(&self, row: usize, column: usize) -> Option<String> {
        let (batch, row) = self.place(row);
        text_of(batch, row, column, self.columns[column].sql_type)
    }

    fn place(&self, mut row: usize) -> (&Batch, usize) {
        for batch in &self.batches {
            if row < batch.rows {
                return (batch, row);
            }
            row -= batch.rows;
        }
        unreachable!("the result has {} rows", self.row_count())
    }
}

/// A value in PostgreSQL's text form; `None` is NULL.
pub fn text_of(batch: &Batch, row: usize, column: usize, sql_type: SqlType) -> Option<String> {
    let values = &batch.columns[column];
    if values.is_null(row) {
        return None;
    }
    let mut out = Vec::new();
    pg_format::text(values, row, sql_type, &mut out);
    // Text columns hold UTF-8, and every other type is written in ASCII.
    Some(String::from_utf8_lossy(&out).into_owned())
}
