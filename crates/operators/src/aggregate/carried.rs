//! Group columns that the others determine, as a primary key does the rest of its table's columns: they are taken from
//! the first row of each group and compared with nothing.

use eris_storage::{Column, DataType};

use super::chosen::Chosen;
use super::encoded::EncodedRows;

/// Of each group, the columns that its other columns determine.
#[derive(Debug)]
pub(super) struct Carried {
    types: Vec<DataType>,
    rows: EncodedRows,
    groups: usize,
}

impl Carried {
    pub fn new(types: Vec<DataType>) -> Self {
        Self { types, rows: EncodedRows::default(), groups: 0 }
    }

    /// Bytes of a group, without those of [`text_bytes`](Self::text_bytes).
    pub fn group_bytes(&self) -> usize {
        if self.types.is_empty() { 0 } else { EncodedRows::ROW_BYTES }
    }

    /// Bytes of the values.
    pub fn text_bytes(&self) -> u64 {
        self.rows.text_bytes()
    }

    /// Takes the columns of the groups that are new among these rows; `room` is for so many groups.
    pub fn follow(&mut self, columns: &[Column], group_of_row: &[u32], groups: usize, room: usize) {
        if self.types.is_empty() || groups == self.groups {
            return;
        }
        let mut first = vec![0_u32; groups - self.groups];
        for (row, group) in group_of_row.iter().enumerate().rev() {
            if let Some(new) = (*group as usize).checked_sub(self.groups) {
                first[new] = row as u32;
            }
        }
        let columns: Vec<Column> = columns.iter().map(|column| column.take(&first)).collect();
        self.rows.reserve_rows(room);
        self.rows.append(&EncodedRows::of(&columns, first.len()));
        self.groups = groups;
    }

    /// The columns of some groups.
    pub fn columns(&self, groups: &Chosen<'_>) -> Vec<Column> {
        if self.types.is_empty() { Vec::new() } else { self.rows.columns(&self.types, groups) }
    }

    /// Bytes that are allocated for anything but values.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        self.rows.allocated_bytes()
    }
}
