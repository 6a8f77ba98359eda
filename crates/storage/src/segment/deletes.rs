//! Which rows of a sealed segment have ended: a sparse map of end words, and a bitmap of rows that are gone for
//! everyone.
//!
//! The map is shared with pins and copied before it is changed while a pin holds it, so a pin costs a reference count.

use crate::error::StorageError;
use crate::mvcc::{Snapshot, Word};
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What an entry costs, about: a twelfth of a tree node of eleven entries, two thirds full.
const ENTRY_BYTES: u64 = 24;

/// See the module's documentation.
pub(crate) struct DeleteMap {
    sparse: BTreeMap<u32, Word>,
    /// One bit per row; made with the first gone row.
    gone: Option<Box<[u64]>>,
    gone_count: u32,
    /// How many of the sparse words are locks.
    locks: u32,
    memory: Reservation,
}

impl DeleteMap {
    pub(crate) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self {
            sparse: BTreeMap::new(),
            gone: None,
            gone_count: 0,
            locks: 0,
            memory: memory.reserve_for_release("delete maps"),
        }
    }

    /// The rows among the first `rows` that a snapshot sees, one bit each; none if it sees all.
    pub(crate) fn live_rows(&self, snapshot: &Snapshot<'_>, rows: u32) -> Option<Vec<u8>> {
        let mut hidden = Vec::new();
        if !self.hidden_in(snapshot, 0..rows, &mut hidden) {
            return None;
        }
        let mut live = vec![0; (rows as usize).div_ceil(8)];
        for (row, hidden) in hidden.iter().enumerate() {
            live[row / 8] |= (1 - hidden) << (row % 8);
        }
        Some(live)
    }

    /// Whether every row is there for everyone.
    pub(crate) fn is_empty(&self) -> bool {
        self.sparse.is_empty() && self.gone_count == 0
    }

    /// Rows with an end word that is undecided or still matters to someone.
    pub(crate) fn sparse_count(&self) -> u32 {
        self.sparse.len() as u32
    }

    /// Whether an undecided transaction holds a row.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks > 0
    }

    fn is_gone(&self, offset: u32) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone[offset as usize >> 6] >> (offset & 63) & 1 != 0)
    }

    /// The end word of a row.
    #[inline]
    pub(crate) fn end(&self, offset: u32) -> Word {
        if self.is_empty() {
            return Word::NEVER;
        }
        if self.is_gone(offset) {
            return Word::ALWAYS;
        }
        self.sparse.get(&offset).copied().unwrap_or(Word::NEVER)
    }

    /// Whether a snapshot misses any row of the window, and then which: `hidden` gets one byte per row of the window,
    /// 1 for hidden.
    pub(crate) fn hidden_in(&self, snapshot: &Snapshot<'_>, window: Range<u32>, hidden: &mut Vec<u8>) -> bool {
        hidden.clear();
        if self.is_empty() {
            return false;
        }
        let mut any = false;
        let mut hide = |offset: u32, hidden: &mut Vec<u8>| {
            if hidden.is_empty() {
                hidden.resize(window.len(), 0);
            }
            hidden[(offset - window.start) as usize] = 1;
            any = true;
        };
        if let Some(gone) = &self.gone
            && !window.is_empty()
        {
            for word_at in window.start >> 6..=(window.end - 1) >> 6 {
                let mut word = gone[word_at as usize];
                while word != 0 {
                    let offset = (word_at << 6) + word.trailing_zeros();
                    word &= word - 1;
                    if window.contains(&offset) {
                        hide(offset, hidden);
                    }
                }
            }
        }
        for (offset, word) in self.sparse.range(window.clone()) {
            if snapshot.sees(*word) {
                hide(*offset, hidden);
            }
        }
        any
    }

    /// The map to change: a copy if someone else holds it.
    pub(crate) fn make_mut(this: &mut Arc<Self>) -> &mut Self {
        if Arc::get_mut(this).is_none() {
            *this = Arc::new(this.copy());
        }
        match Arc::get_mut(this) {
            Some(map) => map,
            None => unreachable!("a map just copied has one owner"),
        }
    }

    /// A copy cannot be refused: settling and vacating depend on it, and those are what frees memory. When the limit is
    /// reached it goes unaccounted; a map is small beside its segment.
    fn copy(&self) -> Self {
        let memory = self.memory.pool().reserve_for_release("delete maps");
        let _ = memory.grow(self.memory.bytes());
        Self {
            sparse: self.sparse.clone(),
            gone: self.gone.clone(),
            gone_count: self.gone_count,
            locks: self.locks,
            memory,
        }
    }

    fn give_back(&self, bytes: u64) {
        self.memory.shrink(bytes.min(self.memory.bytes()));
    }

    /// Sets the end word of a row; NEVER removes it.
    pub(crate) fn set_end(&mut self, offset: u32, word: Word) -> Result<(), StorageError> {
        assert!(!self.is_gone(offset), "row {offset} is gone and cannot end again");
        if word != Word::NEVER && !self.sparse.contains_key(&offset) {
            self.memory.grow(ENTRY_BYTES)?;
        }
        let old = if word == Word::NEVER { self.sparse.remove(&offset) } else { self.sparse.insert(offset, word) };
        if word == Word::NEVER && old.is_some() {
            self.give_back(ENTRY_BYTES);
        }
        self.locks += u32::from(word.is_lock());
        self.locks -= u32::from(old.is_some_and(Word::is_lock));
        Ok(())
    }

    /// Makes a row gone for everyone.
    pub(crate) fn set_gone(&mut self, offset: u32, rows: u32) {
        if self.is_gone(offset) {
            return;
        }
        if self.gone.is_none() {
            let words = (rows as usize).div_ceil(64);
            let _ = self.memory.grow((words * 8) as u64);
            self.gone = Some(vec![0; words].into());
        }
        if let Some(old) = self.sparse.remove(&offset) {
            self.give_back(ENTRY_BYTES);
            self.locks -= u32::from(old.is_lock());
        }
        if let Some(gone) = &mut self.gone {
            gone[offset as usize >> 6] |= 1 << (offset & 63);
            self.gone_count += 1;
        }
    }

    /// All end words, ascending; gone rows as ALWAYS.
    pub(crate) fn iter_ends(&self, rows: u32) -> impl Iterator<Item = (u32, Word)> + '_ {
        let gone = (0..rows).filter(|offset| self.gone_count > 0 && self.is_gone(*offset));
        gone.map(|offset| (offset, Word::ALWAYS)).chain(self.sparse.iter().map(|(offset, word)| (*offset, *word)))
    }

    /// The map as one snapshot sees it, without locks: what it sees has ended, the rest has not. Without locks the map
    /// itself.
    pub(crate) fn resolved(this: &Arc<Self>, snapshot: &Snapshot<'_>) -> Arc<Self> {
        if !this.has_locks() {
            return Arc::clone(this);
        }
        let mut copy = this.copy();
        copy.sparse.retain(|_, word| snapshot.sees(*word));
        for word in copy.sparse.values_mut() {
            *word = Word::ALWAYS;
        }
        copy.locks = 0;
        let entries = u64::from(this.sparse_count() - copy.sparse_count());
        copy.give_back(entries * ENTRY_BYTES);
        Arc::new(copy)
    }
}
