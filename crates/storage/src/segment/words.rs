//! The begin and end words of an open segment's rows.

use crate::error::StorageError;
use crate::mvcc::{Snapshot, Word};
use eris_platform::memory::{MemoryPool, Reservation};
use std::sync::Arc;

/// Two words per row.
pub(crate) struct OpenWords {
    begins: Vec<Word>,
    ends: Vec<Word>,
    memory: Reservation,
}

/// Rows for which room is made at first.
const ROWS_FIRST: usize = 64;

impl OpenWords {
    pub(crate) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self { begins: Vec::new(), ends: Vec::new(), memory: memory.reserve("row versions") }
    }

    /// Words of `rows` rows that all began with `begin` and have not ended.
    pub(crate) fn filled(memory: &Arc<MemoryPool>, rows: usize, begin: Word) -> Result<Self, StorageError> {
        let mut words = Self::new(memory);
        words.reserve(rows)?;
        words.begins.resize(rows, begin);
        words.ends.resize(rows, Word::NEVER);
        Ok(words)
    }

    /// Makes room for `more` rows.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), StorageError> {
        let (len, capacity) = (self.begins.len(), self.begins.capacity());
        if len + more > capacity {
            let wanted = (len + more).max(capacity * 2).max(ROWS_FIRST);
            self.memory.grow(((wanted - capacity) * 2 * size_of::<Word>()) as u64)?;
            self.begins.reserve_exact(wanted - len);
            self.ends.reserve_exact(wanted - len);
        }
        Ok(())
    }

    /// Only the first `rows` stay, in no more memory than they need.
    pub(crate) fn truncate(&mut self, rows: usize) {
        let before = self.begins.capacity();
        self.begins.truncate(rows);
        self.ends.truncate(rows);
        self.begins.shrink_to_fit();
        self.ends.shrink_to_fit();
        let left = before.saturating_sub(self.begins.capacity());
        self.memory.shrink((left * 2 * size_of::<Word>()) as u64);
    }

    pub(crate) fn push(&mut self, begin: Word, end: Word) {
        self.begins.push(begin);
        self.ends.push(end);
    }

    #[inline]
    pub(crate) fn begin(&self, offset: u32) -> Word {
        self.begins[offset as usize]
    }

    #[inline]
    pub(crate) fn end(&self, offset: u32) -> Word {
        self.ends[offset as usize]
    }

    pub(crate) fn set_begin(&mut self, offset: u32, word: Word) {
        self.begins[offset as usize] = word;
    }

    pub(crate) fn set_end(&mut self, offset: u32, word: Word) {
        self.ends[offset as usize] = word;
    }

    /// Keeps the offsets of rows that the snapshot sees.
    pub(crate) fn retain_visible(&self, snapshot: &Snapshot<'_>, offsets: &mut Vec<u32>) {
        let mut count = 0;
        for position in 0..offsets.len() {
            let offset = offsets[position];
            offsets[count] = offset;
            count += usize::from(snapshot.is_visible(self.begin(offset), self.end(offset)));
        }
        offsets.truncate(count);
    }
}
