//! Which rows of a sealed segment have ended: for each end word runs of rows, or a bitmap where its runs are many.
//!
//! ```text
//! rows     0 1 2 3 4 5 6 7 8 9          a run: rows in a row with the same word, under its first row
//! words    . . T T T T . U U .    ->    2: (4 rows, T)   7: (2 rows, U)
//! words    L . L . L . L . L .    ->    L: 1010101010
//! ```
//! A statement that deletes everything needs one run a segment, one that deletes every second row a bit a row, so that
//! a full database has room for both. Rows that are gone for everyone have a bitmap from the first on. The map is
//! shared with pins and copied before it is changed while a pin holds it, so a pin costs a reference count.

use crate::error::StorageError;
use crate::mvcc::{Snapshot, Word};
use eris_platform::memory::{MemoryPool, Reservation};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What a run costs, about: an eleventh of a tree node, two thirds full.
const RUN_BYTES: u64 = 32;

/// Words with a bitmap, apart from that of rows that are gone: each is asked for each row.
const BITMAPS_MAX: usize = 16;

/// Runs of a word that are not worth a bitmap, however small.
const RUNS_MIN: usize = 4;

/// Rows with the same end word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    rows: u32,
    word: Word,
}

/// The rows of one end word, one bit each.
#[derive(Clone)]
struct Bitmap {
    word: Word,
    bits: Box<[u64]>,
    rows: u32,
}

impl Bitmap {
    fn new(word: Word, rows: u32) -> Self {
        Self { word, bits: vec![0; (rows as usize).div_ceil(64)].into(), rows: 0 }
    }

    #[inline]
    fn has(&self, offset: u32) -> bool {
        self.bits[offset as usize >> 6] >> (offset & 63) & 1 != 0
    }

    fn insert(&mut self, offset: u32) {
        self.bits[offset as usize >> 6] |= 1 << (offset & 63);
        self.rows += 1;
    }

    fn remove(&mut self, offset: u32) {
        self.bits[offset as usize >> 6] &= !(1 << (offset & 63));
        self.rows -= 1;
    }

    /// The rows inside a window, in order.
    fn iter_within(&self, window: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        let words = window.start as usize >> 6..(window.end as usize).div_ceil(64).min(self.bits.len());
        let rows = words.flat_map(|at| {
            let mut left = self.bits[at];
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(((at as u32) << 6) + bit)
            })
        });
        rows.filter(move |offset| window.contains(offset))
    }

    fn bytes(&self) -> u64 {
        size_of_val(&*self.bits) as u64
    }
}

/// See the module's documentation.
pub(crate) struct DeleteMap {
    /// Rows of the segment.
    rows: u32,
    /// By first row; disjoint, and runs that touch have different words.
    runs: BTreeMap<u32, Run>,
    /// Of different words, none of which has runs; with rows.
    bitmaps: Vec<Bitmap>,
    /// Runs that were made since words with many were looked for.
    runs_made: usize,
    /// How many of the rows are locked.
    locks: u32,
    memory: Reservation,
}

impl DeleteMap {
    /// The map of a segment of `rows` rows that are all there.
    pub(crate) fn new(memory: &Arc<MemoryPool>, rows: u32) -> Self {
        Self {
            rows,
            runs: BTreeMap::new(),
            bitmaps: Vec::new(),
            runs_made: 0,
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
        self.runs.is_empty() && self.bitmaps.is_empty()
    }

    /// Runs of rows with an end word that is undecided or still matters to someone: what the map costs, since the
    /// bitmaps are few.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.len() as u32
    }

    /// Whether an undecided transaction holds a row.
    pub(crate) fn has_locks(&self) -> bool {
        self.locks > 0
    }

    /// The run that a row is in.
    fn run_of(&self, offset: u32) -> Option<(u32, Run)> {
        let (first, run) = self.runs.range(..=offset).next_back()?;
        (offset - first < run.rows).then_some((*first, *run))
    }

    fn bitmap_mut(&mut self, word: Word) -> Option<&mut Bitmap> {
        self.bitmaps.iter_mut().find(|bitmap| bitmap.word == word)
    }

    /// The end word of a row.
    #[inline]
    pub(crate) fn end(&self, offset: u32) -> Word {
        if self.is_empty() {
            return Word::NEVER;
        }
        if let Some(bitmap) = self.bitmaps.iter().find(|bitmap| bitmap.has(offset)) {
            return bitmap.word;
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
        for bitmap in self.bitmaps.iter().filter(|bitmap| snapshot.sees(bitmap.word)) {
            bitmap.iter_within(window.clone()).for_each(|offset| hide(offset..offset + 1, hidden));
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
            rows: self.rows,
            runs: self.runs.clone(),
            bitmaps: self.bitmaps.clone(),
            runs_made: self.runs_made,
            locks: self.locks,
            memory,
        }
    }

    /// Accounts for what there is; what was refused before may find room now. As for a copy, what decided transactions
    /// need is not refused.
    fn account(&self) {
        let _ = self.memory.resize(self.bytes());
    }

    fn bytes(&self) -> u64 {
        self.runs.len() as u64 * RUN_BYTES + self.bitmaps.iter().map(Bitmap::bytes).sum::<u64>()
    }

    /// Sets the end word of a row; NEVER removes it. Refused only if the row had none before.
    pub(crate) fn set_end(&mut self, offset: u32, word: Word) -> Result<(), StorageError> {
        let old = self.end(offset);
        if old == word {
            return Ok(());
        }
        assert!(old != Word::ALWAYS, "row {offset} is gone and cannot end again");
        if old == Word::NEVER && self.makes_run(offset, word) {
            self.memory.grow(RUN_BYTES)?;
        }
        self.replace(offset, old, word);
        Ok(())
    }

    /// Makes a row gone for everyone.
    pub(crate) fn set_gone(&mut self, offset: u32) {
        self.replace(offset, self.end(offset), Word::ALWAYS);
    }

    /// Whether a row without an end that gets this one needs a run of its own.
    fn makes_run(&self, offset: u32, word: Word) -> bool {
        let has_bitmap = word == Word::ALWAYS || self.bitmaps.iter().any(|bitmap| bitmap.word == word);
        let goes_on = |before| self.run_of(before).is_some_and(|(_, run)| run.word == word);
        word != Word::NEVER && !has_bitmap && !offset.checked_sub(1).is_some_and(goes_on)
    }

    fn replace(&mut self, offset: u32, old: Word, new: Word) {
        if old == new {
            return;
        }
        if old != Word::NEVER {
            self.remove(offset, old);
        }
        if new != Word::NEVER {
            self.insert(offset, new);
        }
        self.make_bitmaps();
        self.account();
    }

    /// Takes away the end of a row, which has this word.
    fn remove(&mut self, offset: u32, word: Word) {
        self.locks -= u32::from(word.is_lock());
        if let Some(bitmap) = self.bitmap_mut(word) {
            bitmap.remove(offset);
            self.bitmaps.retain(|bitmap| bitmap.rows > 0);
            return;
        }
        let Some((first, run)) = self.run_of(offset) else { unreachable!("row {offset} has an end") };
        let (before, after) = (offset - first, first + run.rows - offset - 1);
        if before > 0 {
            self.runs.insert(first, Run { rows: before, word });
        } else {
            self.runs.remove(&first);
        }
        if after > 0 {
            self.runs.insert(offset + 1, Run { rows: after, word });
        }
        self.runs_made += usize::from(before > 0 && after > 0);
    }

    /// Gives a row without an end one: in the bitmap of its word, in the run before or after it, or in one of its own.
    fn insert(&mut self, offset: u32, word: Word) {
        self.locks += u32::from(word.is_lock());
        if word == Word::ALWAYS && self.bitmap_mut(word).is_none() {
            self.bitmaps.push(Bitmap::new(word, self.rows));
        }
        if let Some(bitmap) = self.bitmap_mut(word) {
            bitmap.insert(offset);
            return;
        }
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
        self.runs_made += usize::from(rows == 1);
    }

    /// Gives words with many runs a bitmap instead, which takes about half of their memory or less; those with most
    /// first. Looks for them when enough runs were made, so that a row costs the same however many there are.
    fn make_bitmaps(&mut self) {
        let worth = (2 * u64::from(self.rows) / 8 / RUN_BYTES) as usize;
        let worth = worth.max(RUNS_MIN);
        if self.runs_made < worth.max(self.runs.len() / 4) {
            return;
        }
        self.runs_made = 0;
        let mut words: Vec<Word> = self.runs.values().map(|run| run.word).collect();
        words.sort_unstable();
        let mut many: Vec<&[Word]> = words.chunk_by(Word::eq).filter(|same| same.len() >= worth).collect();
        many.sort_by_key(|same| Reverse(same.len()));
        let taken = self.bitmaps.iter().filter(|bitmap| bitmap.word != Word::ALWAYS).count();
        for same in many.into_iter().take(BITMAPS_MAX - taken) {
            let mut bitmap = Bitmap::new(same[0], self.rows);
            self.runs.retain(|first, run| {
                let other = run.word != bitmap.word;
                if !other {
                    (*first..first + run.rows).for_each(|offset| bitmap.insert(offset));
                }
                other
            });
            self.bitmaps.push(bitmap);
        }
    }

    /// All end words, each row once; gone rows as ALWAYS.
    pub(crate) fn iter_ends<'a>(&'a self) -> impl Iterator<Item = (u32, Word)> + 'a {
        let of_bitmap = |bitmap: &'a Bitmap| bitmap.iter_within(0..self.rows).zip(std::iter::repeat(bitmap.word));
        let of_run = |(first, run): (&u32, &Run)| (*first..first + run.rows).zip(std::iter::repeat(run.word));
        self.bitmaps.iter().flat_map(of_bitmap).chain(self.runs.iter().flat_map(of_run))
    }

    /// The map as one snapshot sees it, without locks: what it sees has ended, the rest has not. Without locks the map
    /// itself.
    pub(crate) fn resolved(this: &Arc<Self>, snapshot: &Snapshot<'_>) -> Arc<Self> {
        if !this.has_locks() {
            return Arc::clone(this);
        }
        let mut copy = this.copy();
        copy.runs.retain(|_, run| snapshot.sees(run.word));
        copy.bitmaps.retain(|bitmap| snapshot.sees(bitmap.word));
        // Runs that touch, and bitmaps, may have the same word now; this map is not changed any more.
        copy.runs.values_mut().for_each(|run| run.word = Word::ALWAYS);
        copy.bitmaps.iter_mut().for_each(|bitmap| bitmap.word = Word::ALWAYS);
        copy.locks = 0;
        copy.account();
        Arc::new(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mvcc::{Outcome, Outcomes, StatementNumber, Timestamp, TransactionId};
    use eris_platform::random::SeededRandom;

    /// Nothing is decided.
    struct Undecided;

    impl Outcomes for Undecided {
        fn outcome(&self, _: TransactionId, _: StatementNumber) -> Outcome {
            Outcome::Active
        }
    }

    /// Random changes give the words that a plain array has, in bitmaps and otherwise in as few runs as there are, and
    /// what is accounted is what they cost.
    #[test]
    fn runs_and_bitmaps_say_what_single_words_said() {
        const ROWS: u32 = 200;
        let (memory, mut bitmaps) = (MemoryPool::unlimited(), 0);
        for seed in 0..20 {
            let mut random = SeededRandom::new(seed);
            let mut map = DeleteMap::new(&memory, ROWS);
            let mut words = vec![Word::NEVER; ROWS as usize];
            for _ in 0..2_000 {
                let offset = random.below(u64::from(ROWS)) as u32;
                let length = if random.chance(0.2) { random.below(30) as u32 } else { 1 };
                let word = match random.below(6) {
                    0 => Word::NEVER,
                    // The snapshot below sees the first of them.
                    lock @ 4.. => Word::lock(TransactionId(5 + lock), StatementNumber(0)),
                    number => Word::timestamp(Timestamp(number)),
                };
                for row in offset..(offset + length).min(ROWS) {
                    if words[row as usize] == Word::ALWAYS {
                        continue;
                    }
                    if random.chance(0.01) {
                        map.set_gone(row);
                        words[row as usize] = Word::ALWAYS;
                    } else {
                        map.set_end(row, word).unwrap();
                        words[row as usize] = word;
                    }
                }
            }
            let found: Vec<Word> = (0..ROWS).map(|row| map.end(row)).collect();
            assert_eq!(found, words, "seed {seed}");
            let mut listed: Vec<(u32, Word)> = map.iter_ends().collect();
            listed.sort_unstable_by_key(|(row, _)| *row);
            let expected = words.iter().zip(0..).filter(|(word, _)| **word != Word::NEVER);
            assert_eq!(listed, expected.map(|(word, row)| (row, *word)).collect::<Vec<_>>());
            let of_bitmaps: Vec<Word> = map.bitmaps.iter().map(|bitmap| bitmap.word).collect();
            bitmaps += of_bitmaps.iter().filter(|word| **word != Word::ALWAYS).count();
            let is_in_run = |word: Word| word != Word::NEVER && !of_bitmaps.contains(&word);
            let begins = |row: usize| is_in_run(words[row]) && (row == 0 || words[row - 1] != words[row]);
            assert_eq!(map.runs() as usize, (0..words.len()).filter(|row| begins(*row)).count());
            let bytes = u64::from(map.runs()) * RUN_BYTES + of_bitmaps.len() as u64 * 32;
            assert_eq!(map.memory.bytes(), bytes, "seed {seed}");
            let snapshot = Snapshot {
                visible: Timestamp(2),
                transaction: TransactionId(9),
                statement: StatementNumber(1),
                outcomes: &Undecided,
            };
            let sees = |row: u32| words[row as usize] != Word::NEVER && snapshot.sees(words[row as usize]);
            let mut hidden = Vec::new();
            for window in [0..ROWS, 60..130, 63..64, 64..65, 199..ROWS] {
                let any = map.hidden_in(&snapshot, window.clone(), &mut hidden);
                let expected: Vec<u8> = window.clone().map(|row| u8::from(sees(row))).collect();
                assert_eq!(any, expected.contains(&1), "seed {seed}, rows {window:?}");
                assert!(!any || hidden == expected, "seed {seed}, rows {window:?}");
            }
            assert_eq!(map.locks as usize, words.iter().filter(|word| word.is_lock()).count(), "seed {seed}");
            let resolved = DeleteMap::resolved(&Arc::new(map), &snapshot);
            let ended: Vec<bool> = (0..ROWS).map(|row| resolved.end(row) == Word::ALWAYS).collect();
            assert_eq!(ended, (0..ROWS).map(sees).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!((resolved.has_locks(), resolved.memory.bytes()), (false, resolved.bytes()), "seed {seed}");
        }
        assert!(bitmaps > 0, "no word had many runs");
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn all_rows_of_a_segment_end_in_a_database_without_room() {
        let memory = MemoryPool::new(16 << 20);
        let rows = memory.reserve_for_release("rows");
        rows.grow((16 << 20) - RUN_BYTES).unwrap();
        let mut map = DeleteMap::new(&memory, 60_000);
        let ends = Word::timestamp(Timestamp(7));
        (0..60_000).for_each(|row| map.set_end(row, ends).unwrap());
        // They are stamped from the last to the first, and vacated so: neither is ever refused.
        (0..60_000).rev().for_each(|row| map.set_end(row, Word::timestamp(Timestamp(8))).unwrap());
        (0..60_000).rev().for_each(|row| map.set_gone(row));
        assert_eq!((map.runs(), map.end(59_999)), (0, Word::ALWAYS));
    }

    /// Each second row is locked, stamped and vacated with a few bits a row.
    #[test]
    fn scattered_rows_of_a_segment_end_with_little_room() {
        const ROWS: u32 = 1 << 16;
        let memory = MemoryPool::unlimited();
        let mut map = DeleteMap::new(&memory, ROWS);
        let lock = Word::lock(TransactionId(5), StatementNumber(1));
        let mut most = 0;
        let mut note = |row: u32, map: &DeleteMap| {
            most = most.max(memory.used());
            assert_eq!(map.end(row + 1), Word::NEVER);
        };
        for row in (0..ROWS).step_by(2) {
            map.set_end(row, lock).unwrap();
            note(row, &map);
        }
        for row in (0..ROWS).step_by(2).rev() {
            map.set_end(row, Word::timestamp(Timestamp(8))).unwrap();
            note(row, &map);
        }
        assert_eq!((map.has_locks(), map.runs(), map.bitmaps.len()), (false, 0, 1));
        for row in (0..ROWS).step_by(2).rev() {
            map.set_gone(row);
            note(row, &map);
        }
        assert_eq!((map.end(0), map.end(1), memory.used()), (Word::ALWAYS, Word::NEVER, 8 << 10));
        assert!(most <= 32 << 10, "{most} bytes");
    }

    /// The bitmaps are few: what more transactions ended has runs, of which a segment is thawed.
    #[test]
    fn only_a_few_words_have_bitmaps() {
        const ROWS: u32 = 1 << 14;
        let mut map = DeleteMap::new(&MemoryPool::unlimited(), ROWS);
        let word = |row: u32| Word::timestamp(Timestamp(u64::from(1 + row / 512)));
        (0..ROWS).step_by(2).for_each(|row| map.set_end(row, word(row)).unwrap());
        assert_eq!((map.bitmaps.len(), map.runs()), (BITMAPS_MAX, ROWS / 2 - BITMAPS_MAX as u32 * 256));
        assert!((0..ROWS).all(|row| map.end(row) == if row % 2 == 0 { word(row) } else { Word::NEVER }));
    }
}
