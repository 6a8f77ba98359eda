//! A block of a posting list: up to 256 addresses, ascending, in as few bits as they need.
//!
//! What is held is each address's distance from the first. If no offset takes more than 16 bits, the upper 16 bits of
//! all offsets are left out before, so that the first row of a full segment is one away from the last of that before.
//! There are two forms; a block has the smaller one.
//!
//! ```text
//! distances   0  5  17  18  42
//! bitmap      100001000000000001100000 0000000000000000001     a bit for every address between the first and the last
//! split       low    0 1 1 2 2           distance mod 4, two bits each
//!             high   1010001100 00001    bits number distance / 4 + position: 0, 1+1, 4+2, 4+3, 10+4
//! ```
//! The split form is due to Elias (1974) and Fano (1971); with `n` addresses over a span of `s` it takes
//! `n (low + 1) + s / 2^low` bits, at best about `2 + log2(s / n)` bits an address, wherever in the span they lie.
//!
//! With the same form fewer addresses never take more room. So a removal needs no memory and cannot be refused.

use crate::address::RowAddress;

/// Addresses of a block at most. A change writes the whole block anew, in less than a microsecond; and the head of a
/// full block costs an eighth of a byte per address.
pub(super) const BLOCK_MAX: usize = 256;

/// The addresses of a block as they are, and one that is to be added.
pub(super) struct Unpacked {
    len: usize,
    values: [u64; BLOCK_MAX + 1],
}

impl Default for Unpacked {
    fn default() -> Self {
        Self { len: 0, values: [0; BLOCK_MAX + 1] }
    }
}

impl Unpacked {
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.values[..self.len]
    }

    pub(super) fn extend(&mut self, more: &[u64]) {
        self.values[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
    }

    pub(super) fn insert(&mut self, at: usize, address: u64) {
        self.values.copy_within(at..self.len, at + 1);
        self.values[at] = address;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.values.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bitmap,
    Split { low_bits: u8 },
}

/// How addresses are to be packed; its memory is reserved before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    form: Form,
    /// Whether offsets are taken as numbers of 16 bits.
    narrow: bool,
    words: usize,
}

/// An address as a number whose differences are distances. Keeps the order.
#[inline]
fn number(address: u64, narrow: bool) -> u64 {
    if narrow { address >> 32 << 16 | address & 0xFFFF } else { address }
}

#[inline]
fn address_of(number: u64, narrow: bool) -> u64 {
    if narrow { number >> 16 << 32 | number & 0xFFFF } else { number }
}

fn low_words(len: usize, low_bits: u8) -> usize {
    (len * usize::from(low_bits)).div_ceil(64)
}

impl Plan {
    /// The least memory for some addresses, of which there is at least one.
    pub(super) fn of(addresses: &[u64]) -> Self {
        let narrow = addresses.iter().all(|address| RowAddress::from_bits(*address).offset().0 <= 0xFFFF);
        let mut best = Self::sized(Form::Bitmap, narrow, addresses);
        let even = (span(addresses, narrow) / addresses.len() as u64).checked_ilog2().unwrap_or(0) as u8;
        // The best number is that of an even distribution or the next one; which, rounding decides.
        for low_bits in even..=(even + 1).min(63) {
            let split = Self::sized(Form::Split { low_bits }, narrow, addresses);
            if split.words < best.words {
                best = split;
            }
        }
        best
    }

    fn sized(form: Form, narrow: bool, addresses: &[u64]) -> Self {
        let (span, len) = (span(addresses, narrow), addresses.len());
        let words = match form {
            Form::Bitmap => (span / 64) as usize + 1,
            Form::Split { low_bits } => low_words(len, low_bits) + ((span >> low_bits) as usize + len).div_ceil(64),
        };
        Self { form, narrow, words }
    }

    pub(super) fn bytes(self) -> u64 {
        (self.words * size_of::<u64>()) as u64
    }
}

fn span(addresses: &[u64], narrow: bool) -> u64 {
    let (first, last) = (addresses[0], addresses[addresses.len() - 1]);
    number(last, narrow) - number(first, narrow)
}

/// See the module's documentation.
pub(super) struct Block {
    first: u64,
    words: Box<[u64]>,
    len: u16,
    form: Form,
    narrow: bool,
}

const _: () = assert!(size_of::<Block>() == 32, "the head of a block is an eighth of a byte per address");
const _: () = assert!(BLOCK_MAX <= u16::MAX as usize, "a block counts its addresses in 16 bits");

impl Block {
    /// Packs addresses, ascending, by a plan for them.
    pub(super) fn new(addresses: &[u64], plan: Plan) -> Self {
        let Plan { form, narrow, words } = plan;
        let mut words = vec![0_u64; words].into_boxed_slice();
        let origin = number(addresses[0], narrow);
        let distances = addresses.iter().map(|address| number(*address, narrow) - origin);
        match form {
            Form::Bitmap => distances.for_each(|distance| set(&mut words, distance as usize)),
            Form::Split { low_bits } => {
                let (low, high) = words.split_at_mut(low_words(addresses.len(), low_bits));
                for (position, distance) in distances.enumerate() {
                    set(high, (distance >> low_bits) as usize + position);
                    put(low, position, low_bits, distance & ((1 << low_bits) - 1));
                }
            }
        }
        Self { first: addresses[0], words, len: addresses.len() as u16, form, narrow }
    }

    /// A plan for some of this block's addresses that takes no more memory than the block.
    pub(super) fn plan_rest(&self, rest: &[u64]) -> Plan {
        let same = Plan::sized(self.form, self.narrow, rest);
        assert!(same.words <= self.words.len(), "fewer addresses need no more room");
        let best = Plan::of(rest);
        if best.words < same.words { best } else { same }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Bytes beside the head.
    pub(super) fn bytes(&self) -> u64 {
        size_of_val::<[u64]>(&self.words) as u64
    }

    /// No address is smaller.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// No address is greater.
    pub(super) fn last(&self) -> u64 {
        let last_set = |words: &[u64]| words.len() * 64 - 1 - words[words.len() - 1].leading_zeros() as usize;
        let distance = match self.form {
            Form::Bitmap => last_set(&self.words) as u64,
            Form::Split { low_bits } => {
                let (position, low) = (self.len() - 1, low_words(self.len(), low_bits));
                let high = last_set(&self.words[low..]) - position;
                (high as u64) << low_bits | get(&self.words, position, low_bits)
            }
        };
        address_of(number(self.first, self.narrow) + distance, self.narrow)
    }

    /// Appends all addresses.
    pub(super) fn unpack(&self, out: &mut Unpacked) {
        let (origin, narrow) = (number(self.first, self.narrow), self.narrow);
        let values = &mut out.values[out.len..out.len + self.len()];
        let mut position = 0;
        match self.form {
            Form::Bitmap => for_each_set(&self.words, |bit| {
                values[position] = address_of(origin + bit as u64, narrow);
                position += 1;
            }),
            Form::Split { low_bits } => {
                for_each_set(&self.words[low_words(self.len(), low_bits)..], |bit| {
                    let distance = ((bit - position) as u64) << low_bits | get(&self.words, position, low_bits);
                    values[position] = address_of(origin + distance, narrow);
                    position += 1;
                });
            }
        }
        out.len += self.len();
    }
}

#[inline]
fn set(words: &mut [u64], bit: usize) {
    words[bit / 64] |= 1 << (bit % 64);
}

/// Calls `visit` with the numbers of the bits that are set, ascending.
#[inline]
fn for_each_set(words: &[u64], mut visit: impl FnMut(usize)) {
    for (number, word) in words.iter().enumerate() {
        let mut left = *word;
        while left != 0 {
            visit(number * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
}

/// Writes a number of some bits; all of them are zero before.
fn put(words: &mut [u64], position: usize, bits: u8, value: u64) {
    let (at, shift) = (position * usize::from(bits) / 64, position * usize::from(bits) % 64);
    if bits == 0 {
        return;
    }
    words[at] |= value << shift;
    if shift + usize::from(bits) > 64 {
        words[at + 1] |= value >> (64 - shift);
    }
}

/// Reads it. Words follow: those of the high parts.
#[inline]
fn get(words: &[u64], position: usize, bits: u8) -> u64 {
    let (at, shift) = (position * usize::from(bits) / 64, position * usize::from(bits) % 64);
    (words[at] >> shift | words[at + 1] << 1 << (63 - shift)) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RowOffset, SegmentNumber};
    use eris_platform::{SeededRandom, test_load};
    use std::collections::BTreeSet;

    /// An address as a posting has it.
    fn bits(segment: u32, offset: u32) -> u64 {
        RowAddress::new(SegmentNumber(segment), RowOffset(offset)).to_bits()
    }

    fn unpacked(block: &Block) -> Vec<u64> {
        let mut out = Unpacked::default();
        block.unpack(&mut out);
        out.as_slice().to_vec()
    }

    fn check(addresses: &[u64]) -> Block {
        let plan = Plan::of(addresses);
        let block = Block::new(addresses, plan);
        assert_eq!(unpacked(&block), addresses);
        assert_eq!((block.first(), block.last()), (addresses[0], addresses[addresses.len() - 1]));
        assert_eq!((block.len(), block.bytes()), (addresses.len(), plan.bytes()));
        block
    }

    /// Addresses of rows that lie densely or sparsely, in segments of some size, or anywhere.
    fn addresses(random: &mut SeededRandom) -> Vec<u64> {
        let (segment_rows, gap) = ([16, 1 << 16, 1 << 20][random.index(3)], 1 << random.below(14));
        let anywhere = random.chance(0.1);
        let mut row = random.below(1 << 20);
        let mut all = BTreeSet::new();
        for _ in 0..=random.index(BLOCK_MAX) {
            row += 1 + random.below(gap);
            let near = bits((row / segment_rows) as u32, (row % segment_rows) as u32);
            all.insert(if anywhere { random.next_u64() } else { near });
        }
        all.into_iter().collect()
    }

    #[test]
    fn unpack_what_was_packed() {
        for extreme in [&[0][..], &[u64::MAX], &[0, u64::MAX], &[0, 1, u64::MAX - 1, u64::MAX], &[7, 8, 9]] {
            check(extreme);
        }
        let mut forms = [0; 4];
        for seed in 0..test_load(2_000) {
            let block = check(&addresses(&mut SeededRandom::new(seed)));
            forms[usize::from(block.narrow) * 2 + usize::from(block.form == Form::Bitmap)] += 1;
        }
        assert!(forms.iter().all(|count| *count > 0), "{forms:?}");
    }

    #[test]
    fn shrink_with_each_removal() {
        for seed in 0..test_load(100) {
            let mut random = SeededRandom::new(seed);
            let mut left = addresses(&mut random);
            let mut block = check(&left);
            while left.len() > 1 {
                left.remove(if random.chance(0.2) { 0 } else { random.index(left.len()) });
                let smaller = Block::new(&left, block.plan_rest(&left));
                assert!(smaller.bytes() <= block.bytes(), "seed {seed}");
                assert_eq!(unpacked(&smaller), left, "seed {seed}");
                block = smaller;
            }
        }
    }

    #[test]
    fn take_few_bits_an_address() {
        let bits_each = |rows: &mut dyn Iterator<Item = u64>| {
            let addresses: Vec<u64> =
                rows.take(BLOCK_MAX).map(|row| bits((row >> 16) as u32, row as u32 & 0xFFFF)).collect();
            check(&addresses).bytes() as f64 * 8.0 / BLOCK_MAX as f64
        };
        assert!(bits_each(&mut (65_000..)) <= 1.0, "rows one behind the other, over the end of a segment");
        let mut random = SeededRandom::new(1);
        let mut row = 0;
        let mut every = |gap: u64| {
            let mut rows = std::iter::from_fn(|| {
                row += 1 + random.below(2 * gap - 1);
                Some(row)
            });
            bits_each(&mut rows)
        };
        assert!(every(2) < 2.5 && every(50) < 8.0 && every(1_000) < 12.5);
    }
}
