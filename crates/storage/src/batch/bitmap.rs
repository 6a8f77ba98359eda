//! One bit per row, least significant bit first, shared: validity and visibility.

use super::buffer::Buffer;

/// A run of bits inside a shared buffer of bytes.
#[derive(Clone)]
pub struct Bitmap {
    bytes: Buffer<u8>,
    /// Where the first bit lies, in bits.
    offset: usize,
    len: usize,
}

impl Bitmap {
    /// The `len` bits that begin `offset` bits into `bytes`.
    ///
    /// # Panics
    /// If the bytes hold fewer.
    pub fn new(bytes: Buffer<u8>, offset: usize, len: usize) -> Self {
        assert!(offset + len <= bytes.len() * 8, "{len} bits at {offset} in {} bytes", bytes.len());
        Self { bytes, offset, len }
    }

    /// Bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bit at `position`.
    #[inline]
    pub fn get(&self, position: usize) -> bool {
        debug_assert!(position < self.len, "bit {position} of {}", self.len);
        let bit = self.offset + position;
        self.bytes[bit >> 3] >> (bit & 7) & 1 != 0
    }

    /// `len` bits from `start`, sharing the bytes.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "slice {start}+{len} of {} bits", self.len);
        Self { bytes: self.bytes.clone(), offset: self.offset + start, len }
    }

    /// How many bits are not set.
    pub fn count_zeros(&self) -> usize {
        self.len - self.count_ones()
    }

    /// How many bits are set: whole bytes in the middle, the ends masked.
    pub fn count_ones(&self) -> usize {
        if self.len == 0 {
            return 0;
        }
        let (first, last) = (self.offset >> 3, (self.offset + self.len - 1) >> 3);
        let head_mask = 0xFF_u8 << (self.offset & 7);
        let tail_mask = 0xFF_u8 >> (7 - ((self.offset + self.len - 1) & 7));
        if first == last {
            return (self.bytes[first] & head_mask & tail_mask).count_ones() as usize;
        }
        let middle: usize = self.bytes[first + 1..last].iter().map(|byte| byte.count_ones() as usize).sum();
        middle
            + (self.bytes[first] & head_mask).count_ones() as usize
            + (self.bytes[last] & tail_mask).count_ones() as usize
    }

    /// The bytes, and where in them the first bit lies (in bits).
    pub fn buffer(&self) -> (&Buffer<u8>, usize) {
        (&self.bytes, self.offset)
    }

    /// The bits one by one.
    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.len).map(|position| self.get(position))
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(u8::from)).finish()
    }
}

impl PartialEq for Bitmap {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl FromIterator<bool> for Bitmap {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let mut builder = BitmapBuilder::default();
        for bit in bits {
            builder.push(bit);
        }
        builder.finish()
    }
}

/// Grows a bitmap bit by bit.
#[derive(Debug, Default, Clone)]
pub struct BitmapBuilder {
    bytes: Vec<u8>,
    len: usize,
}

impl BitmapBuilder {
    /// `len` bits, all set, with room for `capacity`.
    pub fn all_set(len: usize, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.max(len).div_ceil(8));
        bytes.resize(len.div_ceil(8), 0xFF);
        if len & 7 != 0 {
            bytes[len >> 3] = 0xFF >> (8 - (len & 7));
        }
        Self { bytes, len }
    }

    /// Appends one bit.
    #[inline]
    pub fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit {
            self.bytes[self.len >> 3] |= 1 << (self.len & 7);
        }
        self.len += 1;
    }

    /// Appends `n` set bits.
    pub fn push_set(&mut self, n: usize) {
        for _ in 0..n {
            self.push(true);
        }
    }

    /// Only the first `len` bits stay.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len.div_ceil(8));
        self.bytes.shrink_to_fit();
        if len & 7 != 0 {
            self.bytes[len >> 3] &= 0xFF >> (8 - (len & 7));
        }
        self.len = len;
    }

    /// Bits so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bit at `position`.
    #[inline]
    pub fn get(&self, position: usize) -> bool {
        self.bytes[position >> 3] >> (position & 7) & 1 != 0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bitmap.
    pub fn finish(self) -> Bitmap {
        Bitmap { offset: 0, len: self.len, bytes: self.bytes.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_within_any_slice() {
        let bits: Vec<bool> = (0..77).map(|i| i % 3 == 0 || i % 7 == 1).collect();
        let bitmap: Bitmap = bits.iter().copied().collect();
        for start in 0..bits.len() {
            for len in 0..=bits.len() - start {
                let slice = bitmap.slice(start, len);
                let ones = bits[start..start + len].iter().filter(|bit| **bit).count();
                assert_eq!(slice.count_ones(), ones, "{start}+{len}");
                assert_eq!(slice.count_zeros(), len - ones);
                assert!(slice.iter().eq(bits[start..start + len].iter().copied()));
            }
        }
    }

    #[test]
    fn starts_all_set() {
        for len in 0..20 {
            let mut builder = BitmapBuilder::all_set(len, 40);
            builder.push(false);
            let bitmap = builder.finish();
            assert_eq!((bitmap.count_ones(), bitmap.len()), (len, len + 1));
        }
    }
}
