//! Which rows of a window still qualify: a bit per row, in words that begin where groups of codes do.

use super::kernels::{GROUP_CODES, Level, list_bits};
use crate::batch::ValidityView;
use crate::modules::filter::pack;
use std::ops::Range;

/// Rows of a window.
#[derive(Debug, Default)]
pub(in crate::modules) struct Selection {
    words: Vec<u64>,
    copy: Vec<u64>,
    window: Range<usize>,
}

impl Selection {
    /// Selects the whole window.
    pub(super) fn begin(&mut self, window: Range<usize>) {
        let first = window.start / GROUP_CODES;
        self.words.clear();
        self.words.resize(window.end.div_ceil(GROUP_CODES).saturating_sub(first), u64::MAX);
        if let Some(word) = self.words.first_mut() {
            *word &= u64::MAX << (window.start % GROUP_CODES);
        }
        if let Some(word) = self.words.last_mut() {
            *word &= u64::MAX >> (window.end.wrapping_neg() % GROUP_CODES);
        }
        if window.is_empty() {
            self.words.fill(0);
        }
        self.window = window;
    }

    /// The rows it was begun with.
    pub(super) fn window(&self) -> Range<usize> {
        self.window.clone()
    }

    /// The group of the first word.
    pub(super) fn first_group(&self) -> usize {
        self.window.start / GROUP_CODES
    }

    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// The words, and a copy of them to work on.
    pub(super) fn words_and_copy(&mut self) -> (&mut [u64], &mut [u64]) {
        self.copy.clone_from(&self.words);
        (&mut self.words, &mut self.copy)
    }

    /// Selects nothing.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Rows selected.
    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether a row of the window is selected.
    pub(super) fn holds(&self, row: usize) -> bool {
        let bit = row - self.first_group() * GROUP_CODES;
        self.words[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Keeps the rows that are accepted.
    pub(super) fn retain(&mut self, accepts: impl Fn(usize) -> bool) {
        let first = self.first_group() * GROUP_CODES;
        for (position, word) in self.words.iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let refused = !accepts(first + position * GROUP_CODES + bit as usize);
                *word &= !(u64::from(refused) << bit);
            }
        }
    }

    /// Takes rows out.
    pub(super) fn remove(&mut self, rows: Range<usize>) {
        let first = self.first_group() * GROUP_CODES;
        let (mut from, to) = (rows.start - first, rows.end - first);
        while from < to {
            let len = (64 - from % 64).min(to - from);
            self.words[from / 64] &= !((u64::MAX >> (64 - len)) << (from % 64));
            from += len;
        }
    }

    /// Keeps the rows whose byte of the mask is set, one byte for each row of the window.
    pub(super) fn keep_mask(&mut self, mask: &[u8]) {
        let (first, start) = (self.first_group() * GROUP_CODES, self.window.start);
        let (mut start, mut mask) = (start, mask);
        if start == first {
            // Whole words at once.
            let (groups, rest) = mask.as_chunks::<GROUP_CODES>();
            for (word, group) in self.words.iter_mut().zip(groups) {
                *word &= pack(group.as_chunks().0);
            }
            (start, mask) = (start + groups.len() * GROUP_CODES, rest);
        }
        for (position, _) in mask.iter().enumerate().filter(|(_, keep)| **keep == 0) {
            let bit = start + position - first;
            self.words[bit / 64] &= !(1 << (bit % 64));
        }
    }

    /// Keeps the rows that are not NULL, or are.
    pub(super) fn keep_valid(&mut self, validity: ValidityView<'_>, wanted: bool) {
        let first = self.first_group();
        match validity {
            ValidityView::All if wanted => {}
            ValidityView::All => self.clear(),
            ValidityView::Bits { bytes, offset } => {
                for (position, word) in self.words.iter_mut().enumerate() {
                    let bits = word_at(bytes, offset + (first + position) * GROUP_CODES);
                    *word &= if wanted { bits } else { !bits };
                }
            }
        }
    }

    /// Appends the offsets of the rows selected.
    pub(super) fn list(&self, found: &mut Vec<u32>) {
        list_bits(Level::best(), &self.words, (self.first_group() * GROUP_CODES) as u32, found);
    }
}

/// 64 bits from `bit` on; those behind the last byte are zero.
fn word_at(bytes: &[u8], bit: usize) -> u64 {
    let mut word = [0; 16];
    let from = bit >> 3;
    let len = bytes.len().saturating_sub(from).min(9);
    word[..len].copy_from_slice(&bytes[from..from + len]);
    (u128::from_le_bytes(word) >> (bit & 7)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Bitmap;
    use eris_platform::SeededRandom;

    #[test]
    fn windows_begin_and_end_anywhere() {
        let mut random = SeededRandom::new(1);
        let mut selection = Selection::default();
        for _ in 0..500 {
            let start = random.index(300);
            let window = start..start + random.index(300);
            selection.begin(window.clone());
            let mut rows: Vec<usize> = window.clone().collect();
            assert_eq!(selection.count(), rows.len());
            if !rows.is_empty() {
                let from = start + random.index(rows.len());
                let gone = from..from + random.index(window.end - from + 1);
                selection.remove(gone.clone());
                rows.retain(|row| !gone.contains(row));
            }
            let mask: Vec<u8> = window.clone().map(|row| u8::from(row % 7 != 3)).collect();
            selection.keep_mask(&mask);
            rows.retain(|row| row % 7 != 3);
            let bits: Bitmap = (0..700).map(|row| row % 5 != 1).collect();
            let (bytes, offset) = bits.buffer();
            let wanted = random.chance(0.5);
            selection.keep_valid(ValidityView::Bits { bytes, offset }, wanted);
            rows.retain(|row| (row % 5 != 1) == wanted);
            let mut found = Vec::new();
            selection.list(&mut found);
            assert_eq!(found, rows.iter().map(|row| *row as u32).collect::<Vec<_>>());
            assert!(rows.iter().all(|row| selection.holds(*row)));
        }
    }
}
