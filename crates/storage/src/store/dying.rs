//! Rows whose end is decided, by the timestamp of the end: what can be vacated once nobody can see it.

use crate::address::RowAddress;
use crate::mvcc::Timestamp;
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct Dying {
    by_end: BTreeMap<u64, Vec<RowAddress>>,
    memory: Reservation,
}

const ENTRY_BYTES: u64 = size_of::<RowAddress>() as u64;

impl Dying {
    pub(super) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { by_end: BTreeMap::new(), memory: memory.reserve_for_release("dying rows") }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// Adds a row that ended at `end` (0: it never was). Cannot be refused: forgetting the row would keep it for ever;
    /// beyond the limit it goes unaccounted.
    pub(super) fn add(&mut self, end: Timestamp, row: RowAddress) {
        let _ = self.memory.grow(ENTRY_BYTES);
        self.by_end.entry(end.0).or_default().push(row);
    }

    /// Takes up to `rows_max` rows that ended at or before `oldest`; none if there are none.
    pub(super) fn take(&mut self, oldest: Timestamp, rows_max: usize) -> Vec<RowAddress> {
        let Some(mut entry) = self.by_end.first_entry().filter(|entry| *entry.key() <= oldest.0) else {
            return Vec::new();
        };
        let list = entry.get_mut();
        let rows = list.split_off(list.len() - list.len().min(rows_max));
        if list.is_empty() {
            entry.remove();
        }
        self.memory.shrink((rows.len() as u64 * ENTRY_BYTES).min(self.memory.bytes()));
        rows
    }

    /// Whether rows ended at or before `oldest`.
    pub(super) fn has(&self, oldest: Timestamp) -> bool {
        self.by_end.first_key_value().is_some_and(|(end, _)| *end <= oldest.0)
    }
}
