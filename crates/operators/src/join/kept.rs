//! What the build side has kept, ready to be probed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use eris_storage::{Column, DataType, Value};

use super::key_filter::KeyFilter;
use super::table::{NO_ROW, Table};

/// A build row that stands for NULLs.
pub(super) const NULL_ROW: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Kept {
    /// The kept columns.
    pub columns: Vec<Column>,
    /// Rows that are kept.
    pub rows: usize,
    /// Whether there was a row at all, kept or not.
    pub any: bool,
    /// Whether a row had a NULL key.
    pub null_keys: bool,
    pub table: Table,
    /// The row (plus one) behind each row of a chain; empty if keys are unique.
    pub next: Box<[u32]>,
    /// Rows with NULL keys.
    pub null_rows: Vec<u32>,
    /// 1 for rows that a probe met; empty if nobody asks.
    pub met: Box<[AtomicU8]>,
    /// For the keys that were asked for.
    pub filters: Vec<(usize, Arc<KeyFilter>)>,
}

impl Kept {
    /// Whether no key has two rows.
    pub fn is_unique(&self) -> bool {
        self.next.is_empty()
    }

    /// The row behind a row of a chain, plus one.
    #[inline]
    pub fn behind(&self, row: u32) -> u32 {
        self.next.get(row as usize).copied().unwrap_or(NO_ROW)
    }

    /// Notes that a probe met a row.
    #[inline]
    pub fn meet(&self, row: u32) {
        let met = &self.met[row as usize];
        // Lines that nobody changes stay in all caches.
        if met.load(Ordering::Relaxed) == 0 {
            met.store(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn is_met(&self, row: u32) -> bool {
        self.met[row as usize].load(Ordering::Relaxed) != 0
    }

    /// A column's values at `rows`, of which some may be [`NULL_ROW`].
    pub fn gather(&self, column: usize, data_type: DataType, rows: &[u32], nulls: bool) -> Column {
        let column = &self.columns[column];
        if !nulls {
            return column.take(rows);
        }
        if self.rows == 0 {
            return Column::constant(data_type, &Value::Null, rows.len());
        }
        let known: Vec<u32> = rows.iter().map(|row| if *row == NULL_ROW { 0 } else { *row }).collect();
        let valid = rows.iter().zip(&known).map(|(row, known)| *row != NULL_ROW && !column.is_null(*known as usize));
        let validity = valid.collect();
        let plain = Column { validity: None, ..column.clone() }.take(&known);
        Column { validity: Some(validity), ..plain }.without_idle_validity()
    }
}
