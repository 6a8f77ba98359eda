//! The order of rows: all at once at the end of a task, or in a sink that several workers feed.

mod compare;
mod external;
mod merge;
mod sink;
#[cfg(test)]
mod spill_tests;
mod top;

use std::sync::Arc;

use eris_platform::{MemoryPool, Reservation};
use eris_storage::Batch;

use crate::error::OperatorError;
pub(crate) use compare::{compare_between, compare_values, same_float};
pub use sink::SortSink;

/// What the pool calls it.
const CONSUMER: &str = "sort";
/// A row's number, and half of one that a stable sort moves aside.
const ROW_BYTES: u64 = 6;

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
    /// Sorts batches into one; rows that compare equal keep their order. With a limit only that many rows are kept.
    ///
    /// What this takes is reserved before; what is still reserved in the end is for the result, and comes with it.
    ///
    /// # Panics
    /// If there are no batches.
    pub fn sort(
        &self,
        batches: &[Batch],
        limit: Option<usize>,
        memory: &Arc<MemoryPool>,
    ) -> Result<(Batch, Reservation), OperatorError> {
        let reservation = memory.reserve(CONSUMER);
        let bytes: u64 = batches.iter().map(|batch| batch.bytes() as u64).sum();
        let joined = if batches.len() > 1 {
            reservation.grow(bytes)?;
            Some(Batch::concat(batches))
        } else {
            None
        };
        let batch = joined.as_ref().unwrap_or(&batches[0]);
        reservation.grow(batch.rows as u64 * ROW_BYTES)?;
        let mut rows: Vec<u32> = (0..batch.rows as u32).collect();
        rows.sort_by(|a, b| self.compare(&batch.columns, *a as usize, *b as usize));
        if let Some(limit) = limit {
            rows.truncate(limit);
        }
        let share = rows.len() as f64 / batch.rows.max(1) as f64;
        reservation.grow((bytes as f64 * share).ceil() as u64)?;
        let sorted = batch.take(&rows);
        drop(joined);
        reservation.resize(sorted.bytes() as u64)?;
        Ok((sorted, reservation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_storage::{DataType, Value};

    fn keys(descending: bool, nulls_first: bool) -> SortKeys {
        SortKeys([SortKey { column: 0, descending, nulls_first }].into())
    }

    #[test]
    fn nulls_and_directions() {
        let rows: Vec<Vec<Value>> =
            [Value::Int32(2), Value::Null, Value::Int32(1)].into_iter().map(|value| vec![value]).collect();
        let batch = Batch::from_rows(&[DataType::Int32], &rows);
        let order = |descending, nulls_first, limit| {
            let (sorted, _memory) = keys(descending, nulls_first)
                .sort(std::slice::from_ref(&batch), limit, &MemoryPool::unlimited())
                .unwrap();
            (0..sorted.rows).map(|row| sorted.value(row, 0).to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(false, false, None), "1 2 NULL");
        assert_eq!(order(true, true, None), "NULL 2 1");
        assert_eq!(order(true, false, Some(2)), "2 1");
    }

    #[test]
    fn memory_is_reserved_before_and_kept_for_the_result() {
        let rows: Vec<Vec<Value>> =
            (0..1_000).map(|n| vec![Value::Int64(n), Value::Text("x".repeat(20).into())]).collect();
        let batch = Batch::from_rows(&[DataType::Int64, DataType::Text], &rows);
        let parts = [batch.slice(0, 400), batch.slice(400, 600)];
        let pool = MemoryPool::unlimited();
        let (sorted, memory) = keys(true, false).sort(&parts, None, &pool).unwrap();
        assert_eq!((sorted.rows, sorted.value(0, 0)), (1_000, Value::Int64(999)));
        assert_eq!(pool.used(), sorted.bytes() as u64, "the batches of the input are not ours");
        let needed = pool.peak();
        assert!(needed > 2 * batch.bytes() as u64, "input joined and result: {needed}");
        drop(memory);
        assert_eq!(pool.used(), 0);
        for limit in [0, batch.bytes() as u64, needed - 1] {
            let pool = MemoryPool::new(limit);
            assert!(matches!(keys(true, false).sort(&parts, None, &pool), Err(OperatorError::Memory(_))), "{limit}");
            assert_eq!(pool.used(), 0);
        }
        assert!(keys(true, false).sort(&parts, None, &MemoryPool::new(needed)).is_ok());
        let pool = MemoryPool::unlimited();
        let (few, _memory) = keys(false, false).sort(&parts[..1], Some(10), &pool).unwrap();
        assert!(few.rows == 10 && pool.used() < batch.bytes() as u64 / 20);
    }
}
