//! A latch that is tried and never waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::primitives::{AtomicBool, UnsafeCell};

/// Sees what the previous holder did.
const TRY: Ordering = if cfg!(loom_weak = "try_latch_try") { Ordering::Relaxed } else { Ordering::Acquire };
/// Publishes what this holder did.
const UNLOCK: Ordering = if cfg!(loom_weak = "try_latch_unlock") { Ordering::Relaxed } else { Ordering::Release };

/// The latch without what it protects.
#[derive(Debug)]
pub struct RawTryLatch {
    held: AtomicBool,
}

impl Default for RawTryLatch {
    fn default() -> RawTryLatch {
        RawTryLatch::new()
    }
}

impl RawTryLatch {
    pub fn new() -> RawTryLatch {
        RawTryLatch { held: AtomicBool::new(false) }
    }

    /// Takes the latch if it is free.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        // The load keeps those who fail from taking the cache line away from the holder.
        !self.held.load(Ordering::Relaxed) && self.held.compare_exchange(false, true, TRY, Ordering::Relaxed).is_ok()
    }

    /// Releases the latch.
    ///
    /// # Safety
    /// The caller took the latch, has not released it since, and is done with what it protects.
    pub unsafe fn unlock(&self) {
        assert!(self.held.load(Ordering::Relaxed), "a latch was released that nobody holds");
        self.held.store(false, UNLOCK);
    }

    /// Whether somebody held it a moment ago.
    pub fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}

/// A latch around a value.
pub struct TryLatch<T> {
    latch: RawTryLatch,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one holder at a time, so sharing the latch sends the value between threads.
unsafe impl<T: Send> Sync for TryLatch<T> {}
// SAFETY: the latch owns the value.
unsafe impl<T: Send> Send for TryLatch<T> {}

impl<T> TryLatch<T> {
    pub fn new(value: T) -> TryLatch<T> {
        TryLatch { latch: RawTryLatch::new(), value: UnsafeCell::new(value) }
    }

    /// Exclusive access to the value, if nobody has it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.latch.try_lock().then(|| Guard::new(self))
    }

    /// Whether somebody held it a moment ago.
    pub fn is_locked(&self) -> bool {
        self.latch.is_locked()
    }
}

/// Access to the value of a [`TryLatch`]; releases it on drop.
#[cfg(not(loom))]
pub struct Guard<'a, T> {
    latch: &'a TryLatch<T>,
    /// Not `Sync` by itself, as sharing the guard shares the value.
    value: std::marker::PhantomData<&'a mut T>,
}

#[cfg(not(loom))]
impl<'a, T> Guard<'a, T> {
    fn new(latch: &'a TryLatch<T>) -> Guard<'a, T> {
        Guard { latch, value: std::marker::PhantomData }
    }
}

#[cfg(not(loom))]
impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the latch is held as long as the guard lives.
        unsafe { &*self.latch.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the latch is held as long as the guard lives, and the guard is borrowed exclusively.
        unsafe { &mut *self.latch.value.get() }
    }
}

/// Access to the value of a [`TryLatch`]; tells loom for how long it is used.
#[cfg(loom)]
pub struct Guard<'a, T> {
    latch: &'a TryLatch<T>,
    value: Option<loom::cell::MutPtr<T>>,
}

#[cfg(loom)]
impl<'a, T> Guard<'a, T> {
    fn new(latch: &'a TryLatch<T>) -> Guard<'a, T> {
        Guard { latch, value: Some(latch.value.get_mut()) }
    }
}

#[cfg(loom)]
impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            // SAFETY: loom checks that the access is exclusive.
            Some(value) => unsafe { value.deref() },
            None => unreachable!("the access ends with the guard"),
        }
    }
}

#[cfg(loom)]
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &self.value {
            // SAFETY: loom checks that the access is exclusive.
            Some(value) => unsafe { value.deref() },
            None => unreachable!("the access ends with the guard"),
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        #[cfg(loom)]
        {
            self.value = None;
        }
        // SAFETY: the guard was made by taking the latch, and its access to the value ends here.
        unsafe { self.latch.latch.unlock() };
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T> fmt::Debug for TryLatch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TryLatch").field("latch", &self.latch).finish_non_exhaustive()
    }
}
