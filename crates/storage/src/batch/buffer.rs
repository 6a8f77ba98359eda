//! A shared, immutable run of fixed-size values.
//!
//! A buffer is a pointer into memory that an owner keeps alive; the owner is behind an `Arc`, so that slices, batches
//! and Arrow arrays share it without copying. The memory goes when the last of them does.

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
    #[should_panic(expected = "slice 1..4 of a buffer of 3")]
    fn refuses_a_slice_beyond_the_end() {
        let _ = Buffer::from(vec![1_u8, 2, 3]).slice(1..4);
    }
}
