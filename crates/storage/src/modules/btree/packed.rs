//! Leaves that are left behind by a run of ascending pairs, or by rows that moved, packed: what all their keys have in
//! common once, and of each key the bits in which they differ.
//!
//! ```text
//! keys     0000 0101 .... 0000 0 011 ....        in common 0, varying 1
//!          0000 0101 .... 0000 0 100 ....        ^^^^-^^^^      ^-^^^
//!          0000 0110 .... 0000 0 001 ....             high       low       two runs of varying bits
//! packed   01.011  01.100  10.001
//! ```
//! Varying bits lie in at most two runs (the widest gap between them is left out): a number that rises and a small one
//! behind it, or the segment and the offset of a row address. What is left out is the same for all keys, so packed keys
//! are ordered as the keys are. Handles are packed alike, or not stored at all when each is one more than the last.
//!
//! Sixty-four keys of *w* bits take *w* words. A pair is removed by a bit of its own, without any memory; an insert
//! unpacks the leaf.

use super::node::{Leaf, NODE_MAX, prefetch_all};

/// A key that may be packed.
pub(in crate::modules) trait NodeKey: Ord + Clone + Default {
    /// The key as a number, ordered as keys are; none for keys that are not of one width.
    fn to_number(&self) -> Option<u128> {
        None
    }

    /// The inverse of `to_number`.
    fn of_number(number: u128) -> Self {
        unreachable!("only keys that are numbers are packed, not {number}")
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl NodeKey for $type {
            #[inline]
            fn to_number(&self) -> Option<u128> {
                Some((*self).into())
            }

            #[inline]
            fn of_number(number: u128) -> Self {
                number as Self
            }
        }
    )*};
}

numbers!(u32, u64, u128);

/// Up to two runs of bits in a number; the low one lies at `low_shift`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Runs {
    low_shift: u8,
    low_width: u8,
    high_shift: u8,
    high_width: u8,
}

impl Runs {
    /// The runs that cover these bits.
    fn over(varying: u128) -> Self {
        if varying == 0 {
            return Self::default();
        }
        let (lowest, end) = (varying.trailing_zeros(), 128 - varying.leading_zeros());
        // The widest gap of zeros between two ones.
        let (mut gap, mut at) = ((end, end), lowest);
        while at < end {
            let ones_end = at + (!(varying >> at)).trailing_zeros();
            let next = if ones_end >= end { end } else { ones_end + (varying >> ones_end).trailing_zeros() };
            if next < end && next - ones_end > gap.1 - gap.0 {
                gap = (ones_end, next);
            }
            at = next;
        }
        Self {
            low_shift: lowest as u8,
            low_width: (gap.0 - lowest) as u8,
            high_shift: if gap.1 < end { gap.1 as u8 } else { 0 },
            high_width: (end - gap.1) as u8,
        }
    }

    fn width(self) -> u32 {
        u32::from(self.low_width) + u32::from(self.high_width)
    }

    fn mask(self) -> u128 {
        let ones = |width: u8| 1_u128.checked_shl(u32::from(width)).map_or(u128::MAX, |above| above - 1);
        ones(self.low_width) << self.low_shift | ones(self.high_width) << self.high_shift
    }

    /// The bits of a number that lie in the runs, side by side; there are at most 64.
    fn gather(self, number: u128) -> u64 {
        let low = (number >> self.low_shift) as u64 & low_ones(self.low_width.into());
        let high = (number >> self.high_shift) as u64 & low_ones(self.high_width.into());
        high.checked_shl(self.low_width.into()).unwrap_or(0) | low
    }

    /// The inverse of `gather`.
    fn scatter(self, gathered: u64) -> u128 {
        let low = gathered & low_ones(self.low_width.into());
        let high = gathered.checked_shr(self.low_width.into()).unwrap_or(0);
        u128::from(high) << self.high_shift | u128::from(low) << self.low_shift
    }

    fn to_bytes(self) -> [u8; 4] {
        [self.low_shift, self.low_width, self.high_shift, self.high_width]
    }

    fn of_bytes([low_shift, low_width, high_shift, high_width]: [u8; 4]) -> Self {
        Self { low_shift, low_width, high_shift, high_width }
    }
}

/// So many ones, at most 64.
fn low_ones(width: u32) -> u64 {
    1_u64.checked_shl(width).map_or(u64::MAX, |above| above - 1)
}

/// Words before the packed keys: neighbours; removed pairs; runs of keys and of handles; the handles' common bits and
/// whether they rise by one; the keys' common bits.
mod word {
    pub(super) const NEIGHBOURS: usize = 0;
    pub(super) const REMOVED: usize = 1;
    pub(super) const RUNS: usize = 2;
    pub(super) const HANDLE: usize = 3;
    pub(super) const STEP: usize = 4;
    pub(super) const KEY: usize = 5;
    pub(super) const COUNT: usize = 7;
}

/// A leaf, packed: one piece of memory of just the size it needs. In one that is not full, the last pair comes again
/// and again, removed.
pub(super) struct Packed(Box<[u64]>);

impl Packed {
    /// Packs a leaf with pairs; none if it would not be less than half as large.
    pub(super) fn of<K: NodeKey>(leaf: &Leaf<K>) -> Option<Self> {
        let last = leaf.len.checked_sub(1)?;
        let first = leaf.keys[0].to_number()?;
        let mut varying = 0;
        for key in leaf.keys() {
            varying |= key.to_number()? ^ first;
        }
        let keys = Runs::over(varying);
        let rises = leaf.handles().windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        let handle = leaf.handles[0];
        let differing = leaf.handles().iter().fold(0, |varying, other| varying | (other ^ handle));
        let handles = if rises { Runs::default() } else { Runs::over(differing.into()) };
        if keys.width() > u64::BITS || Self::words(keys, handles) * size_of::<u64>() > size_of::<Leaf<K>>() / 2 {
            return None;
        }

        let mut words = vec![0; Self::words(keys, handles)].into_boxed_slice();
        let [k0, k1, k2, k3] = keys.to_bytes();
        let [h0, h1, h2, h3] = handles.to_bytes();
        words[word::NEIGHBOURS] = u64::from(leaf.previous) << 32 | u64::from(leaf.next);
        words[word::REMOVED] = !low_ones(leaf.len as u32);
        words[word::RUNS] = u64::from_le_bytes([k0, k1, k2, k3, h0, h1, h2, h3]);
        words[word::HANDLE] = handle & !(handles.mask() as u64);
        words[word::STEP] = u64::from(rises);
        let common = first & !keys.mask();
        (words[word::KEY], words[word::KEY + 1]) = (common as u64, (common >> 64) as u64);
        let behind = word::COUNT + keys.width() as usize;
        for at in 0..NODE_MAX {
            let (key, handle) = (&leaf.keys[at.min(last)], leaf.handles[at.min(last)]);
            put(&mut words[word::COUNT..], at, keys.width(), keys.gather(key.to_number()?));
            put(&mut words[behind..], at, handles.width(), handles.gather(handle.into()));
        }
        Some(Self(words))
    }

    /// One more than keys and handles need, so that two words can be read wherever one begins.
    fn words(keys: Runs, handles: Runs) -> usize {
        word::COUNT + keys.width() as usize + handles.width() as usize + 1
    }

    /// The pairs that were not removed, as a leaf.
    pub(super) fn unpack<K: NodeKey>(&self) -> Box<Leaf<K>> {
        let mut leaf = Leaf::new(self.next(), self.previous());
        for at in (0..NODE_MAX).filter(|at| self.has(*at)) {
            leaf.keys[leaf.len] = self.key(at);
            leaf.handles[leaf.len] = self.handle(at);
            leaf.len += 1;
        }
        leaf
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    pub(super) fn previous(&self) -> u32 {
        (self.0[word::NEIGHBOURS] >> 32) as u32
    }

    pub(super) fn next(&self) -> u32 {
        self.0[word::NEIGHBOURS] as u32
    }

    pub(super) fn set_previous(&mut self, node: u32) {
        self.0[word::NEIGHBOURS] = u64::from(node) << 32 | u64::from(self.next());
    }

    pub(super) fn set_next(&mut self, node: u32) {
        self.0[word::NEIGHBOURS] = u64::from(self.previous()) << 32 | u64::from(node);
    }

    /// Whether the pair at a position was not removed.
    pub(super) fn has(&self, at: usize) -> bool {
        self.0[word::REMOVED] >> at & 1 == 0
    }

    /// Removes the pair at a position; true if it was the last one.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        self.0[word::REMOVED] |= 1 << at;
        self.0[word::REMOVED] == u64::MAX
    }

    fn runs(&self) -> (Runs, Runs) {
        let [k0, k1, k2, k3, h0, h1, h2, h3] = self.0[word::RUNS].to_le_bytes();
        (Runs::of_bytes([k0, k1, k2, k3]), Runs::of_bytes([h0, h1, h2, h3]))
    }

    fn common(&self) -> u128 {
        u128::from(self.0[word::KEY + 1]) << 64 | u128::from(self.0[word::KEY])
    }

    fn number(&self, at: usize) -> u128 {
        let (keys, _) = self.runs();
        self.common() | keys.scatter(get(&self.0[word::COUNT..], at, keys.width()))
    }

    /// The key at a position, removed or not.
    pub(super) fn key<K: NodeKey>(&self, at: usize) -> K {
        K::of_number(self.number(at))
    }

    /// The handle at a position, removed or not.
    pub(super) fn handle(&self, at: usize) -> u64 {
        let (keys, handles) = self.runs();
        let own = get(&self.0[word::COUNT + keys.width() as usize..], at, handles.width());
        (self.0[word::HANDLE] + self.0[word::STEP] * at as u64) | handles.scatter(own) as u64
    }

    /// The first position whose key is not below this one, removed pairs included.
    pub(super) fn first_at_or_above<K: NodeKey>(&self, key: &K) -> usize {
        let Some(number) = key.to_number() else { unreachable!("only keys that are numbers are packed") };
        let (keys, _) = self.runs();
        if number & !keys.mask() == self.common() {
            let (packed, width) = (&self.0[word::COUNT..], keys.width());
            let sought = keys.gather(number);
            return first_where(|at| get(packed, at, width) >= sought);
        }
        first_where(|at| self.number(at) >= number)
    }

    /// Asks for all of it.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_all(&self.0);
    }
}

/// The first position for which something holds that holds for all behind it; the number of positions if for none.
fn first_where(holds: impl Fn(usize) -> bool) -> usize {
    let mut first = 0;
    for half in [NODE_MAX / 2, NODE_MAX / 4, NODE_MAX / 8, NODE_MAX / 16, NODE_MAX / 32, NODE_MAX / 64] {
        first += if holds(first + half - 1) { 0 } else { half };
    }
    first + usize::from(!holds(first))
}

const _: () = assert!(NODE_MAX == 64, "removed pairs are the bits of a word, and so many values of w bits are w words");

/// The value of `width` bits at a position.
#[inline]
fn get(words: &[u64], at: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let bit = at * width as usize;
    let (word, shift) = (bit / 64, (bit % 64) as u32);
    let pair = u128::from(words[word]) | u128::from(words[word + 1]) << 64;
    (pair >> shift) as u64 & low_ones(width)
}

/// Writes a value where there are only zeros.
fn put(words: &mut [u64], at: usize, width: u32, value: u64) {
    if width == 0 {
        return;
    }
    let bit = at * width as usize;
    let pair = u128::from(value) << (bit % 64);
    words[bit / 64] |= pair as u64;
    words[bit / 64 + 1] |= (pair >> 64) as u64;
}

#[cfg(test)]
mod tests {
    use super::super::node::NONE;
    use super::*;
    use eris_platform::SeededRandom;

    #[test]
    fn runs_leave_the_widest_gap_out() {
        let runs = |low_shift, low_width, high_shift, high_width| Runs { low_shift, low_width, high_shift, high_width };
        assert_eq!(Runs::over(0), Runs::default());
        assert_eq!(Runs::over(0b1), runs(0, 1, 0, 0));
        assert_eq!(Runs::over(0b111 << 32), runs(32, 3, 0, 0));
        assert_eq!(Runs::over(0b1011 << 32 | 0b101), runs(0, 3, 32, 4));
        assert_eq!(Runs::over(1 << 127 | 1), runs(0, 1, 127, 1));
        assert_eq!(Runs::over(u128::MAX), runs(0, 128, 0, 0));
        assert_eq!(Runs::over(0b1101), runs(0, 1, 2, 2));
    }

    /// Full leaves of all kinds of keys and handles.
    fn leaf(random: &mut SeededRandom) -> Box<Leaf<u128>> {
        let (keys, handles) = (random.below(3), random.below(4));
        let start = u128::from(random.below(u64::MAX)) << random.below(64);
        let shift = random.below(60);
        let mut pairs: Vec<(u128, u64)> = (0..NODE_MAX as u64)
            .map(|at| {
                let key = match keys {
                    0 => start.wrapping_add(u128::from(at) << shift),
                    1 => u128::from(random.below(9)) << (shift + 40) | u128::from(at) << shift,
                    _ => start ^ u128::from(random.below(1 << 20)) << shift,
                };
                let handle = match handles {
                    0 => shift + at,
                    1 => random.below(3) << 32 | at,
                    2 => at << 40 | random.below(1 << 20),
                    _ => 7,
                };
                (key, handle)
            })
            .collect();
        pairs.sort_unstable();
        let mut leaf = Leaf::new(NONE, 5);
        for (at, (key, handle)) in pairs.into_iter().enumerate() {
            leaf.insert(at, key, handle);
        }
        leaf
    }

    #[test]
    fn packed_leaves_are_what_they_were() {
        let mut random = SeededRandom::new(1);
        let (mut packed_ones, mut ascending) = (0, 0);
        for _ in 0..3_000 {
            let leaf = leaf(&mut random);
            let Some(mut packed) = Packed::of(&leaf) else { continue };
            packed_ones += 1;
            ascending += u64::from(packed.0[word::STEP] == 1);
            for at in 0..NODE_MAX {
                assert_eq!((packed.key::<u128>(at), packed.handle(at)), (leaf.keys[at], leaf.handles[at]));
            }
            for around in leaf.keys.iter().flat_map(|key| [key.wrapping_sub(1), *key, key.wrapping_add(1), !key]) {
                let expected = leaf.keys().partition_point(|other| *other < around);
                assert_eq!(packed.first_at_or_above(&around), expected, "{around:x} in {:x?}", leaf.keys);
            }
            packed.set_previous(8);
            packed.set_next(9);
            assert!(!packed.remove(3));
            let left: Box<Leaf<u128>> = packed.unpack();
            let expected: Vec<u128> =
                leaf.keys.iter().enumerate().filter(|(at, _)| *at != 3).map(|(_, key)| *key).collect();
            assert_eq!((left.keys(), left.previous, left.next), (&expected[..], 8, 9));
        }
        assert!(packed_ones > 1_000 && ascending > 100, "{packed_ones} of 3,000, {ascending} with rising handles");
    }

    #[test]
    fn a_leaf_that_gains_little_is_not_packed() {
        let mut random = SeededRandom::new(2);
        let mut leaf = Leaf::new(NONE, NONE);
        let mut keys: Vec<u64> = (0..NODE_MAX).map(|_| random.below(u64::MAX)).collect();
        keys.sort_unstable();
        for (at, key) in keys.into_iter().enumerate() {
            leaf.insert(at, key, random.below(u64::MAX));
        }
        assert!(Packed::of(&leaf).is_none());
    }
}
