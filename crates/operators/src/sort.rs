//! The order of rows at the end of a task.

use std::cmp::Ordering;

use eris_storage::Batch;

/// One sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// Position of the column.
    pub column: usize,
    /// Largest first.
    pub descending: bool,
    /// Where NULLs go.
    pub nulls_first: bool,
}

/// Sort keys, most significant first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKeys(pub Box<[SortKey]>);

impl SortKeys {
    /// Sorts a batch; rows that compare equal keep their order. With a limit only that many rows are kept.
    #[must_use]
    pub fn sort(&self, batch: &Batch, limit: Option<usize>) -> Batch {
        let mut rows: Vec<u32> = (0..batch.rows as u32).collect();
        rows.sort_by(|a, b| self.compare(batch, *a as usize, *b as usize));
        if let Some(limit) = limit {
            rows.truncate(limit);
        }
        batch.take(&rows)
    }

    fn compare(&self, batch: &Batch, a: usize, b: usize) -> Ordering {
        for key in &self.0 {
            let column = &batch.columns[key.column];
            let ordering = match (column.is_null(a), column.is_null(b)) {
                (true, true) => Ordering::Equal,
                (true, false) => {
                    if key.nulls_first {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
                (false, true) => {
                    if key.nulls_first {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
                }
                (false, false) => {
                    let ordering = column.value(a).cmp(&column.value(b));
                    if key.descending { ordering.reverse() } else { ordering }
                }
            };
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{DataType, Value};

    #[test]
    fn nulls_and_directions() {
        let rows: Vec<Vec<Value>> =
            [Value::Int32(2), Value::Null, Value::Int32(1)].into_iter().map(|value| vec![value]).collect();
        let batch = Batch::from_rows(&[DataType::Int32], &rows);
        let order = |descending, nulls_first, limit| {
            let keys = SortKeys([SortKey { column: 0, descending, nulls_first }].into());
            let sorted = keys.sort(&batch, limit);
            (0..sorted.rows).map(|row| sorted.value(row, 0).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(false, false, None), "1 2 NULL");
        assert_eq!(order(true, true, None), "NULL 2 1");
        assert_eq!(order(true, false, Some(2)), "2 1");
    }
}
