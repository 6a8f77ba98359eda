//! From the keys of probe rows to the first build row of each.

use eris_storage::Column;

use super::codes::CodeSpace;
use crate::hash::{hash_rows, mix, prefetch, rows_equal};

/// Rows that are looked up together: enough to hide one another's cache misses, few enough to stay in the first cache.
const GROUP_ROWS: usize = 128;

/// Row numbers are kept plus one; 0 is none.
pub(super) const NO_ROW: u32 = 0;

/// Where a hash belongs in a table of `entries`, a power of two: its uppermost bits.
#[inline]
pub(super) fn slot_of(hash: u64, entries: usize) -> usize {
    // A multiplication's upper half, so that one entry needs no special case.
    ((u128::from(hash) * entries as u128) >> 64) as usize
}

/// What is compared before anything else is looked at: an entry's upper half.
#[inline]
pub(super) fn tag_of(hash: u64) -> u64 {
    hash << 32
}

/// What tells build rows apart whose tags are equal.
#[derive(Debug)]
pub(super) enum Exact {
    /// Nothing: the tag is the code.
    Tag,
    /// Their codes.
    Codes(Box<[u64]>),
}

#[derive(Debug)]
pub(super) enum Table {
    /// No build row has a partner.
    Empty,
    /// One bit a code, and one for the miss.
    Bits(CodeSpace, Box<[u64]>),
    /// The first row of each code, and of the miss.
    Dense(CodeSpace, Box<[u32]>),
    /// Entries of tag and row.
    Codes { space: CodeSpace, entries: Box<[u64]>, exact: Exact },
    /// The same with key columns.
    General { keys: Vec<Column>, entries: Box<[u64]> },
}

impl Table {
    /// Whether keys of these columns can be looked up.
    pub fn accepts(&self, keys: &[Column]) -> bool {
        match self {
            Self::Empty | Self::Bits(..) | Self::Dense(..) | Self::Codes { .. } => true,
            Self::General { keys: own, .. } => {
                own.len() == keys.len()
                    && own.iter().zip(keys).all(|(own, key)| own.values.physical() == key.values.physical())
            }
        }
    }

    /// The first row (plus one) of each probe row's key. Where only existence is known, any number but 0.
    pub fn find(&self, keys: &[Column], rows: usize, null_equal: bool) -> Vec<u32> {
        let mut firsts = vec![NO_ROW; rows];
        match self {
            Self::Empty => {}
            Self::Bits(space, bits) => {
                for (first, code) in firsts.iter_mut().zip(codes_of(space, keys, rows)) {
                    *first = (bits[(code >> 6) as usize] >> (code & 63) & 1) as u32;
                }
            }
            Self::Dense(space, heads) => {
                for (first, code) in firsts.iter_mut().zip(codes_of(space, keys, rows)) {
                    *first = heads[code as usize];
                }
            }
            Self::Codes { space, entries, exact } => find_codes(space, entries, exact, keys, &mut firsts),
            Self::General { keys: own, entries } => find_rows(own, entries, keys, null_equal, &mut firsts),
        }
        firsts
    }
}

fn codes_of(space: &CodeSpace, keys: &[Column], rows: usize) -> Vec<u64> {
    let mut codes = vec![0; rows];
    space.codes(keys, &mut codes);
    codes
}

fn find_codes(space: &CodeSpace, entries: &[u64], exact: &Exact, keys: &[Column], firsts: &mut [u32]) {
    let codes = codes_of(space, keys, firsts.len());
    let mut slots = [0_usize; GROUP_ROWS];
    for (codes, firsts) in codes.chunks(GROUP_ROWS).zip(firsts.chunks_mut(GROUP_ROWS)) {
        for (slot, code) in slots.iter_mut().zip(codes) {
            *slot = slot_of(mix(*code), entries.len());
            prefetch(entries, *slot);
        }
        match exact {
            Exact::Tag => {
                for ((first, code), slot) in firsts.iter_mut().zip(codes).zip(slots) {
                    if *code != space.miss {
                        *first = seek(entries, slot, *code << 32, |_| true);
                    }
                }
            }
            Exact::Codes(own) => {
                // The entry whose tag fits is almost always the right one: its code is asked for in the meantime.
                for ((first, code), slot) in firsts.iter_mut().zip(codes).zip(slots) {
                    if *code != space.miss {
                        *first = seek(entries, slot, tag_of(mix(*code)), |_| true);
                        if *first != NO_ROW {
                            prefetch(own, *first as usize - 1);
                        }
                    }
                }
                for ((first, code), slot) in firsts.iter_mut().zip(codes).zip(slots) {
                    if *first != NO_ROW && own[*first as usize - 1] != *code {
                        *first = seek(entries, slot, tag_of(mix(*code)), |row| own[row] == *code);
                    }
                }
            }
        }
    }
}

fn find_rows(own: &[Column], entries: &[u64], keys: &[Column], null_equal: bool, firsts: &mut [u32]) {
    let hashes = hash_rows(keys, firsts.len());
    let mut slots = [0_usize; GROUP_ROWS];
    for (group, firsts) in firsts.chunks_mut(GROUP_ROWS).enumerate() {
        let start = group * GROUP_ROWS;
        for (slot, hash) in slots.iter_mut().zip(&hashes[start..start + firsts.len()]) {
            *slot = slot_of(*hash, entries.len());
            prefetch(entries, *slot);
        }
        for (at, first) in firsts.iter_mut().enumerate() {
            let row = start + at;
            if null_equal || !keys.iter().any(|key| key.is_null(row)) {
                *first = seek(entries, slots[at], tag_of(hashes[row]), |other| rows_equal(own, other, keys, row));
            }
        }
    }
}

/// The row of the entry whose tag fits and for which `equal` is true.
#[inline]
fn seek(entries: &[u64], mut slot: usize, tag: u64, equal: impl Fn(usize) -> bool) -> u32 {
    let mask = entries.len() - 1;
    loop {
        let entry = entries[slot];
        let row = entry as u32;
        if row == NO_ROW || (entry & !0xFFFF_FFFF == tag && equal(row as usize - 1)) {
            return row;
        }
        slot = (slot + 1) & mask;
    }
}
