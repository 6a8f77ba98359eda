//! Memory that several jobs fill at a time, each its own part.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Types whose zero bytes are a value.
///
/// # Safety
/// A value of all zero bytes is valid, and the type needs no drop.
pub(crate) unsafe trait Zeroable: Sized {}

macro_rules! zeroable {
    ($($type:ty),*) => {
        $(
            // SAFETY: plain numbers.
            unsafe impl Zeroable for $type {}
        )*
    };
}
zeroable!(u8, u16, i16, i32, i64, i128, u32, u64, u128, f32, f64);
// SAFETY: a pair of plain numbers.
unsafe impl Zeroable for (u64, u32) {}
// SAFETY: an atomic number lies in memory like the number.
unsafe impl Zeroable for std::sync::atomic::AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroable for std::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for std::sync::atomic::AtomicU64 {}

/// `len` zeros. Large memory comes zeroed from the system and is touched by whoever uses it first.
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Box<[T]> {
    // SAFETY: zeros are a value of `T`, as the trait says.
    unsafe { Box::<[T]>::new_zeroed_slice(len).assume_init() }
}

/// An atomic number, and the plain one that lies in memory alike.
///
/// # Safety
/// Both have the same layout.
pub(crate) unsafe trait Atomic: Sized {
    type Plain;
}

// SAFETY: the standard library says so.
unsafe impl Atomic for std::sync::atomic::AtomicU32 {
    type Plain = u32;
}
// SAFETY: the standard library says so.
unsafe impl Atomic for std::sync::atomic::AtomicU64 {
    type Plain = u64;
}

/// Numbers that nobody changes any more.
pub(crate) fn settled<A: Atomic>(numbers: Box<[A]>) -> Box<[A::Plain]> {
    let len = numbers.len();
    let start = Box::into_raw(numbers).cast::<A::Plain>();
    // SAFETY: the memory came from a box of as many numbers of the same layout.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len)) }
}

/// Values in consecutive parts; whoever asks for a part first has it.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    start: *mut T,
    /// Where each part begins, and the end of the last.
    bounds: Box<[usize]>,
    taken: Box<[AtomicBool]>,
}

// SAFETY: the memory is owned like that of a box; parts of it are handed out once each.
unsafe impl<T: Send> Send for Parts<T> {}
// SAFETY: as above: through a shared reference only exclusive, disjoint parts are reached.
unsafe impl<T: Send> Sync for Parts<T> {}

impl<T: Zeroable> Parts<T> {
    /// Zeros in parts that begin where `bounds` says; the last bound is the end.
    pub fn new(bounds: &[usize]) -> Self {
        assert!(bounds.first() == Some(&0) && bounds.is_sorted(), "parts follow each other: {bounds:?}");
        let start = Box::into_raw(zeros::<T>(bounds[bounds.len() - 1])).cast::<T>();
        let taken = (1..bounds.len()).map(|_| AtomicBool::new(false)).collect();
        Self { start, bounds: bounds.into(), taken }
    }

    /// Which values part `part` has.
    pub fn range(&self, part: usize) -> Range<usize> {
        self.bounds[part]..self.bounds[part + 1]
    }

    /// The part, for the one who fills it.
    ///
    /// # Panics
    /// If somebody had it before.
    #[expect(clippy::mut_from_ref, reason = "each part is handed out once")]
    pub fn take(&self, part: usize) -> &mut [T] {
        let range = self.range(part);
        assert!(!self.taken[part].swap(true, Ordering::Relaxed), "part {part} has two owners");
        // SAFETY: the range lies in the memory, is disjoint from other parts' and was never handed out before; the
        // borrow ends before `finish` takes the whole.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// All values.
    pub fn finish(mut self) -> Box<[T]> {
        let len = self.bounds[self.bounds.len() - 1];
        self.bounds = Box::new([0]);
        let start = std::mem::replace(&mut self.start, std::ptr::NonNull::dangling().as_ptr());
        // SAFETY: the memory came from a box of this length; what is left behind is an empty one.
        unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len)) }
    }
}

impl<T> Drop for Parts<T> {
    fn drop(&mut self) {
        let len = self.bounds[self.bounds.len() - 1];
        // SAFETY: the memory came from a box of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.start, len)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_filled_by_different_threads() {
        let parts = Parts::<u32>::new(&[0, 3, 3, 10]);
        std::thread::scope(|scope| {
            for part in 0..3 {
                let parts = &parts;
                scope.spawn(move || {
                    let from = parts.range(part).start as u32;
                    for (at, value) in parts.take(part).iter_mut().enumerate() {
                        *value = from + at as u32;
                    }
                });
            }
        });
        assert_eq!(*parts.finish(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        drop(Parts::<u64>::new(&[0, 5]));
    }

    #[test]
    #[should_panic(expected = "part 0 has two owners")]
    fn a_part_has_one_owner() {
        let parts = Parts::<u8>::new(&[0, 4]);
        let _ = parts.take(0);
        let _ = parts.take(0);
    }
}
