//! Entering build rows into tables, from several jobs at a time.
//!
//! Entries change by compare-and-swap. A row whose key is there becomes the first of its chain; the row that was is
//! noted as the next one. Nobody looks rows up before all are entered.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::table::{NO_ROW, slot_of};
use crate::hash::prefetch;

/// How far ahead entries are asked for.
const AHEAD: usize = 16;

/// Chains of rows with equal keys.
#[derive(Debug)]
pub(super) struct Chains {
    /// The row (plus one) behind each row; none at all where only existence matters.
    pub next: Box<[AtomicU32]>,
    pub duplicates: AtomicBool,
}

impl Chains {
    #[inline]
    fn put_before(&self, row: usize, behind: u32) {
        self.next[row].store(behind, Ordering::Relaxed);
        if !self.duplicates.load(Ordering::Relaxed) {
            self.duplicates.store(true, Ordering::Relaxed);
        }
    }
}

/// Sets the bits of codes; `alone` says that no other job runs.
pub(super) fn enter_bits(bits: &[AtomicU64], codes: &[u64], miss: u64, alone: bool) {
    for code in codes {
        let (word, bit) = (&bits[(*code >> 6) as usize], 1 << (*code & 63));
        let before = word.load(Ordering::Relaxed);
        if *code == miss || before & bit != 0 {
            continue;
        }
        if alone {
            word.store(before | bit, Ordering::Relaxed);
        } else {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Enters rows from `start` on into the array of first rows.
pub(super) fn enter_dense(heads: &[AtomicU32], codes: &[u64], start: usize, chains: &Chains, miss: u64, alone: bool) {
    for (at, code) in codes.iter().enumerate() {
        if let Some(ahead) = codes.get(at + AHEAD) {
            prefetch(heads, *ahead as usize);
        }
        if *code == miss {
            continue;
        }
        let (head, row) = (&heads[*code as usize], start + at);
        let before = if alone {
            let before = head.load(Ordering::Relaxed);
            head.store(row as u32 + 1, Ordering::Relaxed);
            before
        } else {
            head.swap(row as u32 + 1, Ordering::Relaxed)
        };
        if before != NO_ROW {
            chains.put_before(row, before);
        }
    }
}

/// A hash table that is being filled.
pub(super) struct Entering<'a, E> {
    pub entries: &'a [AtomicU64],
    /// `None`: a key that is there is not entered again.
    pub chains: Option<&'a Chains>,
    /// Whether two rows have the same key.
    pub equal: E,
}

impl<E: Fn(usize, usize) -> bool> Entering<'_, E> {
    /// Enters rows from `start` on; `hash_and_tag` says where each belongs, or that it does not.
    pub fn enter(&self, rows: std::ops::Range<usize>, hash_and_tag: impl Fn(usize) -> Option<(u64, u64)>) {
        let end = rows.end;
        for row in rows {
            if row + AHEAD < end
                && let Some((hash, _)) = hash_and_tag(row + AHEAD)
            {
                prefetch(self.entries, slot_of(hash, self.entries.len()));
            }
            if let Some((hash, tag)) = hash_and_tag(row) {
                self.enter_one(row, hash, tag);
            }
        }
    }

    fn enter_one(&self, row: usize, hash: u64, tag: u64) {
        let mask = self.entries.len() - 1;
        let mut slot = slot_of(hash, self.entries.len());
        let own = tag | (row as u64 + 1);
        let mut entry = self.entries[slot].load(Ordering::Relaxed);
        loop {
            let before = entry as u32;
            let same = before != NO_ROW && entry & !0xFFFF_FFFF == tag && (self.equal)(before as usize - 1, row);
            if before != NO_ROW && !same {
                slot = (slot + 1) & mask;
                entry = self.entries[slot].load(Ordering::Relaxed);
                continue;
            }
            if same {
                match self.chains {
                    None => return,
                    Some(chains) => chains.put_before(row, before),
                }
            }
            match self.entries[slot].compare_exchange_weak(entry, own, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => entry = now,
            }
        }
    }
}
