//! The loops in plain Rust: what runs where there are no vectors, and what the others are compared with.

use super::{CodeRange, Codes, GROUP_CODES, Lane};
use std::mem::MaybeUninit;

pub(super) fn select(codes: Codes<'_>, test: CodeRange, first: usize, words: &mut [u64]) {
    for (position, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
        let from = (first + position) * GROUP_CODES;
        let bit = |code: usize| u64::from(test.accepts(codes.get(from + code))) << code;
        *word &= (0..GROUP_CODES).fold(0, |bits, code| bits | bit(code));
    }
}

pub(super) fn unpack<L: Lane>(codes: Codes<'_>, first: usize, base: u64, out: &mut [MaybeUninit<L>]) {
    for (position, out) in out.iter_mut().enumerate() {
        out.write(L::of(codes.get(first + position), base));
    }
}

/// Of 64 rows up to this many are listed bit by bit; more, by a loop over all of them that has no branches.
const BITS_LISTED_MAX: u32 = 20;

pub(super) fn list_bits(words: &[u64], first: u32, found: &mut Vec<u32>) {
    for (position, word) in words.iter().enumerate() {
        let base = first + (position * GROUP_CODES) as u32;
        let mut bits = *word;
        if bits.count_ones() <= BITS_LISTED_MAX {
            while bits != 0 {
                found.push(base + bits.trailing_zeros());
                bits &= bits - 1;
            }
        } else {
            let (start, mut count) = (found.len(), 0);
            found.resize(start + GROUP_CODES, 0);
            for offset in 0..GROUP_CODES as u32 {
                found[start + count] = base + offset;
                count += (bits >> offset & 1) as usize;
            }
            found.truncate(start + count);
        }
    }
}
