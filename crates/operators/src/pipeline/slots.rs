//! A sink's data, in several places so that workers need not wait for each other.
//!
//! There are as many slots as workers. A thread prefers the slot that it had last, whose data its caches know, then one
//! that nobody ever had, then any that is free. Under the one-threaded simulator that is always the first.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

thread_local! {
    /// Its address tells threads apart; nothing is ordered by it.
    static HERE: Cell<u8> = const { Cell::new(0) };
}

/// What is behind a lock stays whole: a panic ends the query, and nobody reads the sink again.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Two lines apart, because a line's neighbour is fetched with it.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T> {
    /// The thread that used it last; 0 before the first.
    user: AtomicUsize,
    data: Mutex<T>,
}

#[derive(Debug)]
pub(crate) struct Slots<T>(Box<[Slot<T>]>);

impl<T> Slots<T> {
    /// At least one, each made by `make`.
    pub fn new(workers: usize, mut make: impl FnMut() -> T) -> Self {
        let slot = |_| Slot { user: AtomicUsize::new(0), data: Mutex::new(make()) };
        Self((0..workers.max(1)).map(slot).collect())
    }

    /// A slot that is free.
    pub fn any(&self) -> MutexGuard<'_, T> {
        let here = HERE.with(|here| std::ptr::from_ref(here) as usize);
        for wanted in [here, 0] {
            for slot in &self.0 {
                if slot.user.load(Ordering::Relaxed) == wanted
                    && let Some(guard) = try_lock(&slot.data)
                {
                    slot.user.store(here, Ordering::Relaxed);
                    return guard;
                }
            }
        }
        // More threads than slots, or threads that went away.
        let free = self.0.iter().find_map(|slot| try_lock(&slot.data));
        free.unwrap_or_else(|| lock(&self.0[0].data))
    }

    /// Those that nobody uses now, in order.
    pub fn free(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().filter_map(|slot| try_lock(&slot.data))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().map(|slot| lock(&slot.data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_keeps_the_first_slot_and_two_never_share() {
        let slots = Slots::new(2, || 0);
        for _ in 0..10 {
            *slots.any() += 1;
        }
        assert_eq!(slots.iter().map(|slot| *slot).collect::<Vec<_>>(), [10, 0]);
        let held = slots.any();
        std::thread::scope(|scope| {
            scope.spawn(|| *slots.any() += 5);
        });
        drop(held);
        assert_eq!(slots.iter().map(|slot| *slot).collect::<Vec<_>>(), [10, 5]);
    }
}
