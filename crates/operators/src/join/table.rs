//! From the keys of probe rows to the first build row of each.

use eris_storage::{Column, Values};

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
    /// Nothing: the tag is the code. The sieve has one bit a code, if there is one: most codes of probe rows are not
    /// there then, and a bit says so sooner than a search that ends somewhere.
    Tag { sieve: Option<Box<[u64]>> },
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

/// Probe rows that have a partner, ascending, and the first partner of each, plus one.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub rows: Vec<u32>,
    pub firsts: Vec<u32>,
}

impl Found {
    /// Of the first partners of all rows.
    fn of(firsts: &[u32]) -> Self {
        Self::where_some(firsts.iter().copied())
    }

    /// Written without branches.
    fn where_some(firsts: impl ExactSizeIterator<Item = u32>) -> Self {
        let (mut rows, mut found, mut count) = (vec![0; firsts.len()], vec![0; firsts.len()], 0);
        for (row, first) in firsts.enumerate() {
            (rows[count], found[count]) = (row as u32, first);
            count += usize::from(first != NO_ROW);
        }
        rows.truncate(count);
        found.truncate(count);
        Self { rows, firsts: found }
    }

    fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        let mut kept = self.rows.iter().map(|row| stays(*row));
        self.firsts.retain(|_| kept.next() == Some(true));
        self.rows.retain(|row| stays(*row));
    }
}

impl Table {
    /// Whether it leads from ids of texts to rows.
    #[cfg(test)]
    pub fn goes_by_ids(&self) -> bool {
        match self {
            Self::Bits(space, _) | Self::Dense(space, _) | Self::Codes { space, .. } => space.has_texts(),
            Self::Empty | Self::General { .. } => false,
        }
    }

    /// Whether keys of these columns can be looked up.
    pub fn accepts(&self, keys: &[Column]) -> bool {
        match self {
            Self::Empty => true,
            Self::Bits(space, _) | Self::Dense(space, _) | Self::Codes { space, .. } => space.accepts(keys),
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
            Self::Codes { space, entries, exact } => {
                let codes = codes_of(space, keys, rows);
                match exact {
                    Exact::Tag { sieve: Some(sieve) } => find_sieved(space, entries, sieve, &codes, &mut firsts),
                    Exact::Tag { sieve: None } | Exact::Codes(_) => {
                        find_codes(space, entries, exact, &codes, &mut firsts);
                    }
                }
            }
            Self::General { keys: own, entries } => find_rows(own, entries, keys, null_equal, &mut firsts),
        }
        firsts
    }

    /// Those of the probe rows that have a partner.
    pub fn find_partners(&self, keys: &[Column], rows: usize, null_equal: bool) -> Found {
        if let ([key], Some(space)) = (keys, self.range_space())
            && (key.validity.is_none() || !space.has_null())
        {
            let found = match &key.values {
                Values::Boolean(values) => self.find_in_range(space, values),
                Values::Int16(values) => self.find_in_range(space, values),
                Values::Int32(values) => self.find_in_range(space, values),
                Values::Int64(values) => self.find_in_range(space, values),
                Values::Int128(_) | Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => None,
            };
            if let Some(mut found) = found {
                if key.validity.is_some() {
                    found.retain(|row| !key.is_null(row as usize));
                }
                return found;
            }
        }
        Found::of(&self.find(keys, rows, null_equal))
    }

    /// How codes come about, if they only count and most of what is not there is known at a glance.
    fn range_space(&self) -> Option<&CodeSpace> {
        match self {
            Self::Bits(space, _)
            | Self::Dense(space, _)
            | Self::Codes { space, exact: Exact::Tag { sieve: Some(_) }, .. } => Some(space),
            Self::Empty | Self::Codes { .. } | Self::General { .. } => None,
        }
    }

    /// One pass over the values, without their codes in between.
    fn find_in_range<T: Copy + Into<i64>>(&self, space: &CodeSpace, values: &[T]) -> Option<Found> {
        let (low, span) = space.range()?;
        let offset = |value: T| value.into().wrapping_sub(low) as u64;
        Some(match self {
            Self::Bits(_, bits) => {
                let rows = set_in(bits, span, values.iter().map(|value| offset(*value)));
                Found { firsts: vec![1; rows.len()], rows }
            }
            Self::Dense(_, heads) => Found::where_some(values.iter().map(|value| {
                let offset = offset(*value);
                heads[if offset < span { offset } else { space.miss } as usize]
            })),
            Self::Codes { entries, exact: Exact::Tag { sieve: Some(sieve) }, .. } => {
                let rows = set_in(sieve, span, values.iter().map(|value| offset(*value)));
                let codes: Vec<u64> = rows.iter().map(|row| offset(values[*row as usize])).collect();
                let mut firsts = vec![NO_ROW; rows.len()];
                find_codes(space, entries, &Exact::Tag { sieve: None }, &codes, &mut firsts);
                Found { rows, firsts }
            }
            Self::Empty | Self::Codes { .. } | Self::General { .. } => return None,
        })
    }
}

/// The positions of offsets below `span` whose bit is set.
#[expect(clippy::needless_bitwise_bool, reason = "without a branch that nobody can foresee")]
fn set_in(bits: &[u64], span: u64, offsets: impl ExactSizeIterator<Item = u64>) -> Vec<u32> {
    let (mut rows, mut count) = (vec![0_u32; offsets.len()], 0);
    for (row, offset) in offsets.enumerate() {
        // Behind the span nothing is read: the word is that of the first offsets, and the bit is not used.
        let inside = offset < span;
        let word = bits[if inside { offset >> 6 } else { 0 } as usize];
        rows[count] = row as u32;
        count += usize::from(inside & (word >> (offset & 63) & 1 != 0));
    }
    rows.truncate(count);
    rows
}

fn codes_of(space: &CodeSpace, keys: &[Column], rows: usize) -> Vec<u64> {
    let mut codes = vec![0; rows];
    space.codes(keys, &mut codes);
    codes
}

/// Sieves are made if at most one code in so many is there, ...
const SIEVED_MIN: u64 = 8;
/// ... and have at most so many bits for each row, two or three times what its entry takes, ...
const SIEVE_FACTOR: u64 = 256;
/// ... or as many as a second cache.
const SIEVE_MIN: u64 = 1 << 23;

/// How many words the sieve of so many rows has; 0: there is none.
pub(super) fn sieve_words(space: &CodeSpace, rows: usize) -> usize {
    let rows = rows as u64;
    let is_worth_it = space.domain <= (rows * SIEVE_FACTOR).max(SIEVE_MIN) && rows * SIEVED_MIN <= space.domain;
    if is_worth_it && space.is_short() { space.domain.div_ceil(64) as usize } else { 0 }
}

/// A bit for each code that is there, in so many words.
pub(super) fn sieve_of(space: &CodeSpace, codes: &[u64], words: usize) -> Box<[u64]> {
    let mut sieve = vec![0; words];
    for code in codes.iter().filter(|code| **code != space.miss) {
        sieve[(code >> 6) as usize] |= 1 << (code & 63);
    }
    sieve.into()
}

fn find_sieved(space: &CodeSpace, entries: &[u64], sieve: &[u64], codes: &[u64], firsts: &mut [u32]) {
    // A miss is behind the domain.
    for row in &set_in(sieve, space.domain, codes.iter().copied()) {
        let code = codes[*row as usize];
        firsts[*row as usize] = seek(entries, slot_of(mix(code), entries.len()), code << 32, |_| true);
    }
}

fn find_codes(space: &CodeSpace, entries: &[u64], exact: &Exact, codes: &[u64], firsts: &mut [u32]) {
    let mut slots = [0_usize; GROUP_ROWS];
    for (codes, firsts) in codes.chunks(GROUP_ROWS).zip(firsts.chunks_mut(GROUP_ROWS)) {
        for (slot, code) in slots.iter_mut().zip(codes) {
            *slot = slot_of(mix(*code), entries.len());
            prefetch(entries, *slot);
        }
        match exact {
            Exact::Tag { .. } => {
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

pub(super) fn find_rows(own: &[Column], entries: &[u64], keys: &[Column], null_equal: bool, firsts: &mut [u32]) {
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
