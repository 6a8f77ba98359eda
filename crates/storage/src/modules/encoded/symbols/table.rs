//! A table of up to 255 symbols of one to eight bytes, and strings as codes of symbols: one byte each.
//!
//! ```text
//! symbols     0 "carefully "   1 "the "   2 "final"   ...
//! string      the final fox    codes  1 2 255 ' ' 7 255 'x'         255: the next byte stands for itself
//! ```
//! The table is trained as Boncz, Neumann and Leis describe it (FSST, VLDB 2020): a sample is compressed with the table
//! so far; symbols, and pairs of symbols that follow each other, are counted; those that would have saved most are the
//! next table. A few rounds are enough for words to grow together.

use crate::batch::Buffer;
use eris_platform::{Arena, DeterministicMap, MemoryExceeded};

/// The code before a byte that stands for itself.
const ESCAPE: u8 = 255;
/// Symbols of a table.
const SYMBOLS_MAX: usize = ESCAPE as usize;
/// Bytes of a symbol: a word.
pub(super) const SYMBOL_BYTES_MAX: usize = 8;
/// After so many rounds symbols can have grown to their full length, and what they displaced is forgotten.
const ROUNDS: usize = 5;
/// A byte without a symbol takes two bytes, so symbols of one byte count for more than what they cover.
const SINGLE_WEIGHT: u64 = 8;

/// Bytes of a symbol in the low bits, zeros above, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Symbol {
    bytes: u64,
    len: u8,
}

impl Symbol {
    fn single(byte: u8) -> Self {
        Self { bytes: u64::from(byte), len: 1 }
    }

    /// As much of both as fits.
    fn followed_by(self, next: Self) -> Self {
        let room = SYMBOL_BYTES_MAX as u8 - self.len;
        if room == 0 {
            return self;
        }
        let taken = next.len.min(room);
        let bytes = self.bytes | (next.bytes & low_bytes(taken)) << (8 * self.len);
        Self { bytes, len: self.len + taken }
    }

    fn matches(self, word: u64) -> bool {
        (word ^ self.bytes) & low_bytes(self.len) == 0
    }
}

const fn low_bytes(len: u8) -> u64 {
    if len >= 8 { u64::MAX } else { (1 << (8 * len)) - 1 }
}

/// Codes there are.
const CODES: usize = 256;

/// What decompression needs of a table: by code, a symbol's bytes and how many they are.
#[derive(Clone)]
pub(super) struct Symbols {
    words: Buffer<u64>,
    lens: Buffer<u8>,
}

/// What compression needs: for the first two bytes the symbols that begin with them, the longest first.
pub(super) struct Matcher {
    symbols: Vec<Symbol>,
    /// Symbols of two bytes and more with their codes, by first two bytes, the longest first.
    by_pair: Vec<(Symbol, u8)>,
    /// By two bytes: where their symbols begin.
    starts: Vec<u16>,
    /// By byte: its symbol.
    singles: Box<[u8; 256]>,
}

/// What a piece of a string becomes.
enum Piece {
    Symbol { code: u8, len: u8 },
    Byte(u8),
}

impl Matcher {
    fn new(symbols: Vec<Symbol>) -> Self {
        let mut by_pair: Vec<(Symbol, u8)> = Vec::new();
        let mut singles = Box::new([ESCAPE; 256]);
        for (code, symbol) in symbols.iter().enumerate() {
            if symbol.len == 1 {
                singles[symbol.bytes as usize] = code as u8;
            } else {
                by_pair.push((*symbol, code as u8));
            }
        }
        by_pair.sort_unstable_by_key(|(symbol, _)| (symbol.bytes as u16, std::cmp::Reverse(symbol.len), symbol.bytes));
        let mut starts = vec![u16::MAX; 1 << 16];
        for (position, (symbol, _)) in by_pair.iter().enumerate().rev() {
            starts[usize::from(symbol.bytes as u16)] = position as u16;
        }
        Self { symbols, by_pair, starts, singles }
    }

    /// The longest symbol at the front of `bytes`, which are not empty.
    fn next(&self, bytes: &[u8]) -> Piece {
        let word = match bytes.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let start = usize::from(self.starts[usize::from(word as u16)]);
        let candidates = self.by_pair.get(start..).unwrap_or_default().iter();
        let alike = candidates.take_while(|(symbol, _)| symbol.bytes as u16 == word as u16);
        for (symbol, code) in alike {
            if usize::from(symbol.len) <= bytes.len() && symbol.matches(word) {
                return Piece::Symbol { code: *code, len: symbol.len };
            }
        }
        match self.singles[usize::from(word as u8)] {
            ESCAPE => Piece::Byte(word as u8),
            code => Piece::Symbol { code, len: 1 },
        }
    }

    /// Appends a string as codes.
    pub(super) fn compress(&self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            match self.next(bytes) {
                Piece::Symbol { code, len } => {
                    out.push(code);
                    bytes = &bytes[usize::from(len)..];
                }
                Piece::Byte(byte) => {
                    out.extend([ESCAPE, byte]);
                    bytes = &bytes[1..];
                }
            }
        }
    }

    /// A table that suits strings like these.
    pub(super) fn trained(sample: &[&[u8]]) -> Self {
        (0..ROUNDS).fold(Self::new(Vec::new()), |table, _| table.refined(sample))
    }

    /// The table of the symbols that would have saved most.
    fn refined(&self, sample: &[&[u8]]) -> Self {
        let mut pieces: DeterministicMap<Symbol, u64> = DeterministicMap::default();
        for string in sample {
            let (mut rest, mut before) = (*string, None::<Symbol>);
            while !rest.is_empty() {
                let symbol = match self.next(rest) {
                    Piece::Symbol { code, .. } => self.symbols[usize::from(code)],
                    Piece::Byte(byte) => Symbol::single(byte),
                };
                rest = &rest[usize::from(symbol.len)..];
                *pieces.entry(symbol).or_default() += 1;
                // The next table may do without a symbol, but not without its beginning.
                if symbol.len > 1 {
                    *pieces.entry(Symbol::single(symbol.bytes as u8)).or_default() += 1;
                }
                if let Some(before) = before.filter(|before| usize::from(before.len) < SYMBOL_BYTES_MAX) {
                    *pieces.entry(before.followed_by(symbol)).or_default() += 1;
                }
                before = Some(symbol);
            }
        }
        let gain = |symbol: &Symbol, count: u64| {
            let weight = if symbol.len == 1 { SINGLE_WEIGHT } else { u64::from(symbol.len) };
            weight * count
        };
        let met_twice = pieces.into_iter().filter(|(symbol, count)| *count > 1 || symbol.len == 1);
        let mut candidates: Vec<(u64, Symbol)> = met_twice.map(|(symbol, n)| (gain(&symbol, n), symbol)).collect();
        candidates.sort_unstable_by_key(|(gain, symbol)| (std::cmp::Reverse(*gain), *symbol));
        Self::new(candidates.into_iter().take(SYMBOLS_MAX).map(|(_, symbol)| symbol).collect())
    }

    /// The table for decompression.
    pub(super) fn symbols(&self) -> Symbols {
        let (mut words, mut lens) = (vec![0; CODES], vec![0; CODES]);
        for (code, symbol) in self.symbols.iter().enumerate() {
            (words[code], lens[code]) = (symbol.bytes, symbol.len);
        }
        Symbols { words: words.into(), lens: lens.into() }
    }
}

impl Symbols {
    /// The matcher that compressed with this table. It finds the same symbols again, so equal strings have equal codes.
    pub(super) fn matcher(&self) -> Matcher {
        let symbols = self.words.iter().zip(self.lens.iter()).map(|(bytes, len)| Symbol { bytes: *bytes, len: *len });
        Matcher::new(symbols.take_while(|symbol| symbol.len > 0).collect())
    }

    /// Memory.
    pub(super) const BYTES: usize = CODES * (size_of::<u64>() + 1);

    /// Appends a string that is given as codes.
    #[inline]
    pub(super) fn decompress(&self, codes: &[u8], out: &mut Vec<u8>) {
        // Every symbol is written as a whole word, so there must be room for one behind the last.
        out.reserve((codes.len() + 1) * SYMBOL_BYTES_MAX);
        let (Some(words), Some(lens)) = (self.words.first_chunk::<CODES>(), self.lens.first_chunk::<CODES>()) else {
            unreachable!("every code has an entry")
        };
        let start = out.as_mut_ptr();
        let mut len = out.len();
        let mut rest = codes;
        while let [code, behind @ ..] = rest {
            rest = behind;
            let (mut word, mut taken) = (words[usize::from(*code)], lens[usize::from(*code)]);
            if *code == ESCAPE
                && let [byte, behind @ ..] = rest
            {
                (word, taken, rest) = (u64::from(*byte), 1, behind);
            }
            // SAFETY: each code grows the string by at most eight bytes, and room was made for one code more.
            unsafe { start.add(len).cast::<u64>().write_unaligned(word) };
            len += usize::from(taken);
        }
        // SAFETY: so many bytes were written from the old end on.
        unsafe { out.set_len(len) };
    }

    /// The same table in the memory of `arena`, and the bytes it takes there.
    pub(super) fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        let (words, taken) = self.words.placed(arena)?;
        let (lens, more) = self.lens.placed(arena)?;
        Ok((Self { words, lens }, taken + more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eris_platform::{SeededRandom, test_load};

    #[test]
    fn strings_come_back_and_repetitions_are_found() {
        let mut random = SeededRandom::new(1);
        for round in 0..test_load(20) {
            let words: Vec<Vec<u8>> = (0..20)
                .map(|_| (0..random.index(12)).map(|_| random.next_u64() as u8 | u8::from(round % 2 == 0)).collect())
                .collect();
            let strings: Vec<Vec<u8>> = (0..300)
                .map(|_| (0..random.index(8)).flat_map(|_| words[random.index(20)].clone()).collect())
                .collect();
            let sample: Vec<&[u8]> = strings.iter().step_by(3).map(Vec::as_slice).collect();
            let matcher = Matcher::trained(&sample);
            let symbols = matcher.symbols();
            let (mut compressed, mut plain) = (0, 0);
            for string in &strings {
                let (mut codes, mut back) = (Vec::new(), vec![1, 2]);
                matcher.compress(string, &mut codes);
                symbols.decompress(&codes, &mut back);
                assert_eq!(back[2..], string[..]);
                let mut again = Vec::new();
                symbols.matcher().compress(string, &mut again);
                assert_eq!(again, codes);
                (compressed, plain) = (compressed + codes.len(), plain + string.len());
            }
            assert!(compressed * 3 < plain, "{compressed} of {plain} bytes");
        }
    }

    #[test]
    fn what_was_never_seen_is_escaped() {
        let matcher = Matcher::trained(&[]);
        let (mut codes, mut back) = (Vec::new(), Vec::new());
        matcher.compress(b"abc", &mut codes);
        assert_eq!(codes, [ESCAPE, b'a', ESCAPE, b'b', ESCAPE, b'c']);
        matcher.symbols().decompress(&codes, &mut back);
        assert_eq!(back, b"abc");
    }
}
