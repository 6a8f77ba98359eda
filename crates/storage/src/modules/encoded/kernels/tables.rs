//! What the vector loops need to know of a width, computed at compile time.
//!
//! ```text
//! AVX-512    load 64 bytes, bring to each 8-byte word the bytes that hold its codes, shift each code into its lane
//!            word q of lanes of 16 bits: codes 4 q .. 4 q + 3, from byte (4 q w) / 8 on, 4 q w % 8 bits in
//! AVX2       the same with lanes of 32 or 64 bits: load 16 bytes twice, bring to each lane its bytes, shift
//! ```

use super::stored_width;

/// Bytes and shifts of one vector of 64 bytes.
#[repr(C, align(64))]
pub(super) struct WordTable {
    /// Which byte goes where.
    pub bytes: [u8; 64],
    /// At which bit of its word each byte begins.
    pub shifts: [u8; 64],
}

const fn word_table(lane_bits: u32, width: u32) -> WordTable {
    let mut table = WordTable { bytes: [0; 64], shifts: [0; 64] };
    let lane_bytes = lane_bits / 8;
    let lanes = 64 / lane_bits;
    let mut word = 0;
    while word < 8 {
        let bit = word * lanes * width;
        assert!(bit % 8 + lanes * width <= 64, "the codes of a word lie within eight bytes");
        let mut byte = 0;
        while byte < 8 {
            let at = (word * 8 + byte) as usize;
            table.bytes[at] = (bit / 8 + byte) as u8;
            let shift = bit % 8 + byte / lane_bytes * width + byte % lane_bytes * 8;
            // Beyond the word there are only bits that are masked away.
            table.shifts[at] = (shift % 64) as u8;
            byte += 1;
        }
        word += 1;
    }
    table
}

macro_rules! word_tables {
    ($($(#[$doc:meta])* $name:ident: $lane_bits:literal;)*) => {
        $(
            $(#[$doc])*
            pub(super) static $name: [WordTable; $lane_bits + 1] = {
                let mut tables = [const { word_table($lane_bits, 0) }; $lane_bits + 1];
                let mut width = 1;
                while width <= $lane_bits {
                    tables[width] = word_table($lane_bits, stored_width(width as u32));
                    width += 1;
                }
                tables
            };
        )*
    };
}

word_tables! {
    /// For lanes of 8 bits, by width.
    WORDS_8: 8;
    /// For lanes of 16 bits, by width.
    WORDS_16: 16;
    /// For lanes of 32 bits, by width.
    WORDS_32: 32;
    /// For lanes of 64 bits, by width.
    WORDS_64: 64;
}

/// Eight codes in lanes of 32 bits.
#[repr(C, align(32))]
pub(super) struct HalfTable {
    /// Which byte of its 16 goes where.
    pub bytes: [u8; 32],
    pub shifts: [u32; 8],
    /// Where the second 16 bytes begin.
    pub second: usize,
}

/// The widest codes that fit in 32 bits wherever they begin.
pub(super) const HALF_WIDTH_MAX: u32 = 25;

const fn half_table(width: u32) -> HalfTable {
    let mut table = HalfTable { bytes: [0; 32], shifts: [0; 8], second: (4 * width / 8) as usize };
    let mut code = 0;
    while code < 8 {
        let start = if code < 4 { 0 } else { table.second as u32 };
        let bit = code * width - start * 8;
        let mut byte = 0;
        while byte < 4 {
            let from = bit / 8 + byte;
            assert!(from < 16, "the bytes of a code are among those loaded");
            table.bytes[(code * 4 + byte) as usize] = from as u8;
            byte += 1;
        }
        table.shifts[code as usize] = bit % 8;
        code += 1;
    }
    table
}

/// By width.
pub(super) static HALVES: [HalfTable; HALF_WIDTH_MAX as usize + 1] = {
    let mut tables = [const { half_table(0) }; HALF_WIDTH_MAX as usize + 1];
    let mut width = 1;
    while width <= HALF_WIDTH_MAX {
        tables[width as usize] = half_table(width);
        width += 1;
    }
    tables
};

/// Four codes in lanes of 64 bits, the first four of eight or the last.
#[repr(C, align(32))]
pub(super) struct QuarterTable {
    /// Which byte of its 16 goes where.
    pub bytes: [u8; 32],
    pub shifts: [u64; 4],
    /// Where the 16 bytes of either pair of codes begin.
    pub starts: [usize; 2],
}

const fn quarter_table(width: u32, first: u32) -> QuarterTable {
    let mut table = QuarterTable { bytes: [0; 32], shifts: [0; 4], starts: [0; 2] };
    let mut code = 0;
    while code < 4 {
        let pair = code / 2;
        let begin = (first + 2 * pair) * width / 8;
        table.starts[pair as usize] = begin as usize;
        let bit = (first + code) * width - begin * 8;
        assert!(bit % 8 + width <= 64, "a code lies within eight bytes");
        let mut byte = 0;
        while byte < 8 {
            let from = bit / 8 + byte;
            assert!(from < 16, "the bytes of a code are among those loaded");
            table.bytes[(code * 8 + byte) as usize] = from as u8;
            byte += 1;
        }
        table.shifts[code as usize] = (bit % 8) as u64;
        code += 1;
    }
    table
}

/// By width: the first four of eight codes, and the last.
pub(super) static QUARTERS: [[QuarterTable; 2]; 65] = {
    let mut tables = [const { [quarter_table(0, 0), quarter_table(0, 0)] }; 65];
    let mut width = 1;
    while width <= 64 {
        let stored = stored_width(width as u32);
        tables[width] = [quarter_table(stored, 0), quarter_table(stored, 4)];
        width += 1;
    }
    tables
};
