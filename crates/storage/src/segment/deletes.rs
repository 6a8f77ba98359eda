//! Which rows of a sealed segment have ended: a sparse map of runs of end words, and a bitmap of rows that are gone for
//! everyone.
//!
//! ```text
//! rows     0 1 2 3 4 5 6 7 8 9          a run: rows in a row with the same word, under its first row
//! words    . . T T T T . U U .    ->    2: (4 rows, T)   7: (2 rows, U)
//! ```
//! A statement that deletes everything needs one run a segment, so that a full database has room for it. The map is
//! shared with pins and copied before it is changed while a pin holds it, so a pin costs a reference count.

use crate::error::StorageError;
use crate::mvcc::{Snapshot, Word};
use eris_platform::memory::{MemoryPool, Reservation};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What a run costs, about: an eleventh of a tree node, two thirds full.
const RUN_BYTES: u64 = 32;

/// Rows with the same end word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    rows: u32,
    word: Word,
}

/// See the module's documentation.
pub(crate) struct DeleteMap {
    /// By first row; disjoint, and runs that touch have different words.
    runs: BTreeMap<u32, Run>,
    /// One bit per row; made with the first gone row.
    gone: Option<Box<[u64]>>,
    gone_count: u32,
    /// How many of the rows in runs are locked.
    locks: u32,
    memory: Reservation,
}

impl DeleteMap {
    pub(crate) fn new(memory: &Arc<MemoryPool>) -> Self {
        Self {
            runs: BTreeMap::new(),
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
        self.runs.is_empty() && self.gone_count == 0
    }

    /// Runs of rows with an end word that is undecided or still matters to someone: what the map costs.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.len() as u32
    }

    /// Whether an undecided transaction holds a row.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks > 0
    }

    fn is_gone(&self, offset: u32) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone[offset as usize >> 6] >> (offset & 63) & 1 != 0)
    }

    /// The run that a row is in.
    fn run_of(&self, offset: u32) -> Option<(u32, Run)> {
        let (first, run) = self.runs.range(..=offset).next_back()?;
        (offset - first < run.rows).then_some((*first, *run))
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
        self.run_of(offset).map_or(Word::NEVER, |(_, run)| run.word)
    }

    /// Whether a snapshot misses any row of the window, and then which: `hidden` gets one byte per row of the window,
    /// 1 for hidden.
    pub(crate) fn hidden_in(&self, snapshot: &Snapshot<'_>, window: Range<u32>, hidden: &mut Vec<u8>) -> bool {
        hidden.clear();
        if self.is_empty() || window.is_empty() {
            return false;
        }
        let mut any = false;
        let mut hide = |rows: Range<u32>, hidden: &mut Vec<u8>| {
            if hidden.is_empty() {
                hidden.resize(window.len(), 0);
            }
            hidden[(rows.start - window.start) as usize..(rows.end - window.start) as usize].fill(1);
            any = true;
        };
        if let Some(gone) = &self.gone {
            for word_at in window.start >> 6..=(window.end - 1) >> 6 {
                let mut word = gone[word_at as usize];
                while word != 0 {
                    let offset = (word_at << 6) + word.trailing_zeros();
                    word &= word - 1;
                    if window.contains(&offset) {
                        hide(offset..offset + 1, hidden);
                    }
                }
            }
        }
        let before = self.run_of(window.start).filter(|(first, _)| *first < window.start);
        let inside = self.runs.range(window.clone()).map(|(first, run)| (*first, *run));
        for (first, run) in before.into_iter().chain(inside) {
            if snapshot.sees(run.word) {
                hide(first.max(window.start)..(first + run.rows).min(window.end), hidden);
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
            runs: self.runs.clone(),
            gone: self.gone.clone(),
            gone_count: self.gone_count,
            locks: self.locks,
            memory,
        }
    }

    /// Accounts for what there is; what was refused before may find room now. As for a copy, what decided transactions
    /// need is not refused.
    fn account(&self) {
        let gone = self.gone.as_ref().map_or(0, |gone| size_of_val(&**gone));
        let _ = self.memory.resize(self.runs.len() as u64 * RUN_BYTES + gone as u64);
    }

    /// Sets the end word of a row; NEVER removes it. Refused only if the row had none before.
    pub(crate) fn set_end(&mut self, offset: u32, word: Word) -> Result<(), StorageError> {
        assert!(!self.is_gone(offset), "row {offset} is gone and cannot end again");
        let old = self.run_of(offset);
        if old.is_some_and(|(_, run)| run.word == word) {
            return Ok(());
        }
        if old.is_none() && word != Word::NEVER && !self.goes_on(offset, word) {
            self.memory.grow(RUN_BYTES)?;
        }
        self.cut(offset, old);
        if word != Word::NEVER {
            self.join(offset, word);
        }
        self.account();
        Ok(())
    }

    /// Whether a run with this word ends right before the row.
    fn goes_on(&self, offset: u32, word: Word) -> bool {
        offset.checked_sub(1).and_then(|before| self.run_of(before)).is_some_and(|(_, run)| run.word == word)
    }

    /// Takes a row out of its run.
    fn cut(&mut self, offset: u32, run: Option<(u32, Run)>) {
        let Some((first, run)) = run else { return };
        let (before, after) = (offset - first, first + run.rows - offset - 1);
        if before > 0 {
            self.runs.insert(first, Run { rows: before, word: run.word });
        } else {
            self.runs.remove(&first);
        }
        if after > 0 {
            self.runs.insert(offset + 1, Run { rows: after, word: run.word });
        }
        self.locks -= u32::from(run.word.is_lock());
    }

    /// Puts a row that is in no run into the one before or after it, or into one of its own.
    fn join(&mut self, offset: u32, word: Word) {
        let (mut first, mut rows) = (offset, 1);
        if let Some((before, run)) = offset.checked_sub(1).and_then(|before| self.run_of(before))
            && run.word == word
        {
            (first, rows) = (before, run.rows + 1);
        }
        if let Some(after) = self.runs.get(&(offset + 1)).copied()
            && after.word == word
        {
            self.runs.remove(&(offset + 1));
            rows += after.rows;
        }
        self.runs.insert(first, Run { rows, word });
        self.locks += u32::from(word.is_lock());
    }

    /// Makes a row gone for everyone.
    pub(crate) fn set_gone(&mut self, offset: u32, rows: u32) {
        if self.is_gone(offset) {
            return;
        }
        let words = (rows as usize).div_ceil(64);
        self.cut(offset, self.run_of(offset));
        let gone = self.gone.get_or_insert_with(|| vec![0; words].into());
        gone[offset as usize >> 6] |= 1 << (offset & 63);
        self.gone_count += 1;
        self.account();
    }

    /// All end words, each row once; gone rows as ALWAYS.
    pub(crate) fn iter_ends(&self, rows: u32) -> impl Iterator<Item = (u32, Word)> + '_ {
        let gone = (0..rows).filter(|offset| self.gone_count > 0 && self.is_gone(*offset));
        let of_run = |(first, run): (&u32, &Run)| (*first..first + run.rows).zip(std::iter::repeat(run.word));
        gone.map(|offset| (offset, Word::ALWAYS)).chain(self.runs.iter().flat_map(of_run))
    }

    /// The map as one snapshot sees it, without locks: what it sees has ended, the rest has not. Without locks the map
    /// itself.
    pub(crate) fn resolved(this: &Arc<Self>, snapshot: &Snapshot<'_>) -> Arc<Self> {
        if !this.has_locks() {
            return Arc::clone(this);
        }
        let mut copy = this.copy();
        copy.runs.retain(|_, run| snapshot.sees(run.word));
        // Runs that touch may have the same word now; this map is not changed any more.
        copy.runs.values_mut().for_each(|run| run.word = Word::ALWAYS);
        copy.locks = 0;
        copy.account();
        Arc::new(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::Timestamp;
    use eris_platform::random::SeededRandom;

    /// Random changes give the words that a plain array has, in as few runs as there are, and what is accounted is what
    /// they cost.
    #[test]
    fn runs_say_what_single_words_said() {
        const ROWS: u32 = 200;
        let memory = MemoryPool::unlimited();
        for seed in 0..20 {
            let mut random = SeededRandom::new(seed);
            let mut map = DeleteMap::new(&memory);
            let mut words = vec![Word::NEVER; ROWS as usize];
            for _ in 0..2_000 {
                let offset = random.below(u64::from(ROWS)) as u32;
                let length = if random.chance(0.2) { random.below(30) as u32 } else { 1 };
                let word = match random.below(4) {
                    0 => Word::NEVER,
                    number => Word::timestamp(Timestamp(number)),
                };
                for row in offset..(offset + length).min(ROWS) {
                    if words[row as usize] == Word::ALWAYS {
                        continue;
                    }
                    if random.chance(0.01) {
                        map.set_gone(row, ROWS);
                        words[row as usize] = Word::ALWAYS;
                    } else {
                        map.set_end(row, word).unwrap();
                        words[row as usize] = word;
                    }
                }
            }
            let found: Vec<Word> = (0..ROWS).map(|row| map.end(row)).collect();
            assert_eq!(found, words, "seed {seed}");
            let mut listed: Vec<(u32, Word)> = map.iter_ends(ROWS).collect();
            listed.sort_unstable_by_key(|(row, _)| *row);
            let expected = words.iter().zip(0..).filter(|(word, _)| **word != Word::NEVER);
            assert_eq!(listed, expected.map(|(word, row)| (row, *word)).collect::<Vec<_>>());
            let is_in_run = |word: Word| word != Word::NEVER && word != Word::ALWAYS;
            let begins = |row: usize| is_in_run(words[row]) && (row == 0 || words[row - 1] != words[row]);
            assert_eq!(map.runs() as usize, (0..words.len()).filter(|row| begins(*row)).count());
            let gone = map.gone.as_ref().map_or(0, |gone| gone.len() as u64 * 8);
            assert_eq!(map.memory.bytes(), u64::from(map.runs()) * RUN_BYTES + gone);
        }
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn all_rows_of_a_segment_end_in_a_database_without_room() {
        let memory = MemoryPool::new(16 << 20);
        let rows = memory.reserve_for_release("rows");
        rows.grow((16 << 20) - RUN_BYTES).unwrap();
        let mut map = DeleteMap::new(&memory);
        let ends = Word::timestamp(Timestamp(7));
        (0..60_000).for_each(|row| map.set_end(row, ends).unwrap());
        // They are stamped from the last to the first, and vacated so: neither is ever refused.
        (0..60_000).rev().for_each(|row| map.set_end(row, Word::timestamp(Timestamp(8))).unwrap());
        (0..60_000).rev().for_each(|row| map.set_gone(row, 60_000));
        assert_eq!((map.runs(), map.end(59_999)), (0, Word::ALWAYS));
    }
}
