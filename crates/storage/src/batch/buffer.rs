//! A shared, immutable run of fixed-size values.
//!
//! A buffer is a pointer into memory that an owner keeps alive; the owner is behind an `Arc`, so that slices, batches
//! and Arrow arrays share it without copying. The memory goes when the last of them does.

use eris_platform::{Arena, MemoryExceeded};
use std::any::Any;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A run of `T` inside memory shared with others.
pub struct Buffer<T> {
    owner: Arc<dyn Any + Send + Sync>,
    start: *const T,
    len: usize,
}

// SAFETY: the memory is never written while an owner exists (constructors demand it), so sharing it between threads is
// sharing `&[T]`; the owner itself is `Send + Sync`.
unsafe impl<T: Sync> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T: Copy + Send + Sync + 'static> Buffer<T> {
    /// A buffer over `owner`'s values.
    pub fn from_owner<O>(owner: O) -> Self
    where
        O: AsRef<[T]> + Send + Sync + 'static,
    {
        let owner = Arc::new(owner);
        let values: &[T] = (*owner).as_ref();
        let (start, len) = (values.as_ptr(), values.len());
        // `as_ref` was called on the owner's final place; it is never called again, so what it returned stays.
        Self { owner, start, len }
    }

    /// A buffer of `len` values from `start`.
    ///
    /// # Safety
    /// The values are initialised, `owner` keeps them where they are, and nobody writes them any more.
    pub(super) unsafe fn from_parts(owner: Arc<dyn Any + Send + Sync>, start: *const T, len: usize) -> Self {
        Self { owner, start, len }
    }

    /// The part of the buffer at `range`, sharing its memory.
    ///
    /// # Panics
    /// If the range is not within the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "slice {range:?} of a buffer of {}", self.len);
        // SAFETY: `range.start <= self.len`, so the pointer stays within the owner's allocation or one past it.
        let start = unsafe { self.start.add(range.start) };
        Self { owner: Arc::clone(&self.owner), start, len: range.len() }
    }

    /// A copy of the values in the memory of `arena`, and the bytes it takes there.
    pub(crate) fn placed(&self, arena: &Arena) -> Result<(Self, u64), MemoryExceeded> {
        let mut block = arena.allocate_bytes(self.bytes(), align_of::<T>())?;
        assert!(block.len() == self.bytes(), "a block is as long as was asked for");
        // SAFETY: the block is ours alone and as long as the values, which are plain data (`Copy`).
        unsafe { std::ptr::copy_nonoverlapping(self.start.cast::<u8>(), block.as_mut_ptr(), block.len()) };
        let taken = block.footprint_bytes() as u64;
        let start = block.as_ptr().cast::<T>();
        // SAFETY: the block is aligned for `T`, holds `len` of them from here on unchanged, and stays where it is.
        Ok((unsafe { Self::from_parts(Arc::new(block), start, self.len) }, taken))
    }

    /// What keeps the memory alive.
    pub fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.owner)
    }

    /// Bytes of this run (not of what the owner holds besides).
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

impl<T> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), start: self.start, len: self.len }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `start..start + len` lies in memory that `owner` keeps alive and nobody writes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T: Copy + Send + Sync + 'static> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        Self::from_owner(values)
    }
}

impl<T: Copy + Send + Sync + 'static> Default for Buffer<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Copy + Send + Sync + 'static> FromIterator<T> for Buffer<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        values.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_outlive_the_whole() {
        let whole: Buffer<i32> = vec![1, 2, 3, 4].into();
        let part = whole.slice(1..3);
        assert_eq!(whole.as_ptr().wrapping_add(1), part.as_ptr());
        drop(whole);
        assert_eq!(&*part, &[2, 3]);
        assert!(part.slice(2..2).is_empty());
    }

    #[test]
    fn a_placed_buffer_has_its_values_in_the_arena() {
        let pool = eris_platform::MemoryPool::unlimited();
        let arena = Arena::new(eris_platform::NodeId(0), &pool);
        let values: Buffer<i128> = (0..1_000).map(i128::from).collect();
        let (placed, taken) = values.slice(10..900).placed(&arena).unwrap();
        assert_eq!(&*placed, &values[10..900]);
        assert_eq!((arena.allocated_bytes(), pool.used()), (taken, taken));
        assert!(taken >= 890 * 16);
        let part = placed.slice(5..7);
        drop((placed, values));
        assert_eq!(&*part, &[15, 16]);
        assert_eq!(pool.used(), taken, "a slice keeps the block");
        drop(part);
        assert_eq!(pool.used(), 0);
        let (empty, taken) = Buffer::<u8>::default().placed(&arena).unwrap();
        assert_eq!((empty.len(), taken), (0, 0));
    }

    #[test]
    #[should_panic(expected = "slice 1..4 of a buffer of 3")]
    fn refuses_a_slice_beyond_the_end() {
        let _ = Buffer::from(vec![1_u8, 2, 3]).slice(1..4);
    }
}
