//! Values of one type while they grow: in a vector, or in a piece of a block that all columns of a small batch share.
//!
//! A batch of one row and thirty columns would otherwise cost sixty allocations, which is most of a point access.

use super::buffer::Buffer;
use std::sync::Arc;

/// Memory shared by the columns of one batch, in words of the largest alignment.
pub(super) struct Block {
    start: *mut u128,
    words: usize,
}

// SAFETY: the block itself is never read or written; runs write disjoint pieces of it before they are shared, buffers
// only read.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(words: usize) -> Arc<Self> {
        let mut memory: Vec<u128> = Vec::with_capacity(words);
        let block = Self { start: memory.as_mut_ptr(), words: memory.capacity() };
        std::mem::forget(memory);
        Arc::new(block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` and `words` came from a forgotten vector of this type; `u128` needs no drop.
        drop(unsafe { Vec::from_raw_parts(self.start, 0, self.words) });
    }
}

/// A piece of a block, with room for `capacity` values of which `len` are written.
pub(super) struct Piece<T> {
    block: Arc<Block>,
    start: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: a piece is the only one that writes its part of the block, like a vector its memory.
unsafe impl<T: Send> Send for Piece<T> {}
// SAFETY: through a shared piece the values are only read.
unsafe impl<T: Sync> Sync for Piece<T> {}

/// See the module's documentation.
pub(super) enum Run<T> {
    Own(Vec<T>),
    Piece(Piece<T>),
}

/// Hands out the pieces of a block one behind the other.
pub(super) struct Pieces {
    block: Arc<Block>,
    used: usize,
}

impl Pieces {
    /// A block for columns whose values need these numbers of words.
    pub(super) fn new(words: usize) -> Self {
        Self { block: Block::new(words), used: 0 }
    }

    /// Words for `rows` values of `width` bytes.
    pub(super) fn words_of(rows: usize, width: usize) -> usize {
        (rows * width).div_ceil(size_of::<u128>())
    }

    /// The next piece, for `rows` values.
    pub(super) fn next<T: Copy>(&mut self, rows: usize) -> Run<T> {
        const { assert!(align_of::<T>() <= align_of::<u128>(), "a piece begins at a word") };
        let words = Self::words_of(rows, size_of::<T>());
        assert!(self.used + words <= self.block.words, "the block has room for all columns");
        // SAFETY: `used` words are within the block, as just asserted.
        let start = unsafe { self.block.start.add(self.used) }.cast::<T>();
        self.used += words;
        Run::Piece(Piece { block: Arc::clone(&self.block), start, len: 0, capacity: rows })
    }
}

impl<T: Copy + Send + Sync + 'static> Run<T> {
    pub(super) fn with_capacity(rows: usize) -> Self {
        Self::Own(Vec::with_capacity(rows))
    }

    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::Own(values) => values,
            // SAFETY: `len` values from `start` are written and belong to this piece alone.
            Self::Piece(piece) => unsafe { std::slice::from_raw_parts(piece.start, piece.len) },
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own(values) => values.len(),
            Self::Piece(piece) => piece.len,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self {
            Self::Own(values) => values.push(value),
            Self::Piece(piece) if piece.len < piece.capacity => {
                // SAFETY: place `len` is within the piece, which nobody else writes or reads.
                unsafe { piece.start.add(piece.len).write(value) };
                piece.len += 1;
            }
            Self::Piece(_) => {
                self.own().push(value);
            }
        }
    }

    pub(super) fn extend(&mut self, values: impl Iterator<Item = T>) {
        match self {
            Self::Own(own) => own.extend(values),
            Self::Piece(_) => values.for_each(|value| self.push(value)),
        }
    }

    pub(super) fn extend_from_slice(&mut self, values: &[T]) {
        match self {
            Self::Own(own) => own.extend_from_slice(values),
            Self::Piece(_) => values.iter().for_each(|value| self.push(*value)),
        }
    }

    pub(super) fn reserve_exact(&mut self, more: usize) {
        self.own().reserve_exact(more);
    }

    /// Only the first `len` values stay, in no more memory than they need.
    pub(super) fn truncate(&mut self, len: usize) {
        let values = self.own();
        values.truncate(len);
        values.shrink_to_fit();
    }

    /// Gives back the room that no value has taken. A piece belongs to a block, and stays as it is.
    pub(super) fn shrink_to_fit(&mut self) {
        if let Self::Own(values) = self {
            values.shrink_to_fit();
        }
    }

    /// The values in a vector: a piece that does not suffice is left.
    fn own(&mut self) -> &mut Vec<T> {
        if let Self::Piece(_) = self {
            *self = Self::Own(self.as_slice().to_vec());
        }
        match self {
            Self::Own(values) => values,
            Self::Piece(_) => unreachable!("just made its own"),
        }
    }

    pub(super) fn finish(self) -> Buffer<T> {
        match self {
            Self::Own(values) => values.into(),
            // SAFETY: the piece's values are written, nobody writes them any more, and the block keeps them alive.
            Self::Piece(piece) => unsafe { Buffer::from_parts(piece.block, piece.start, piece.len) },
        }
    }
}

impl<T: std::fmt::Debug + Copy + Send + Sync + 'static> std::fmt::Debug for Run<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}
