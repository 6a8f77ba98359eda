//! The oldest value in use of one that only grows: below it, things may be thrown away.
//!
//! Each slot announces the oldest value that is used under it; slots belong to workers, so that announcing writes no
//! line that others write. Whoever throws away reads the present value and then all slots.
//! ```text
//!  user:       read now = 7 | write slot 7 | FENCE | read now again: still 7, so 7 is in use (else once more)
//!  collector:  read now = 9 | FENCE | read slots: the oldest of 9 and what stands there
//! ```
//! Of the two fences one is the later. If it is the collector's, it sees the slot. If it is the user's, its second look
//! sees 9 or more, and it announces that instead: so nobody uses what a collector took for unused.

use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::{AtomicU64, fence};

/// What was done with a value comes before giving it up.
const LEAVE: Ordering = if cfg!(loom_weak = "oldest_leave") { Ordering::Relaxed } else { Ordering::Release };
/// Sees that.
const LOOK: Ordering = if cfg!(loom_weak = "oldest_look") { Ordering::Relaxed } else { Ordering::Acquire };

/// No value is in use under a slot.
const NONE: u64 = u64::MAX;

/// See the [module](self).
pub struct OldestInUse {
    slots: Box<[Line<AtomicU64>]>,
}

impl OldestInUse {
    pub fn new(slots: usize) -> OldestInUse {
        OldestInUse { slots: (0..slots).map(|_| Line(AtomicU64::new(NONE))).collect() }
    }

    /// Announces the present value under an empty slot and returns it. One caller at a time per slot.
    pub fn announce(&self, slot: usize, now: impl Fn() -> u64) -> u64 {
        let slot = &self.slots[slot];
        let mut value = now();
        loop {
            slot.store(value, Ordering::Relaxed);
            fence_of_user();
            let again = now();
            if again == value {
                return value;
            }
            value = again;
        }
    }

    /// Replaces what stands under a slot by a younger value, or by none. One caller at a time per slot.
    pub fn replace(&self, slot: usize, value: Option<u64>) {
        self.slots[slot].store(value.unwrap_or(NONE), LEAVE);
    }

    /// The oldest value in use, or that will be: the present one if none is.
    pub fn oldest(&self, now: impl FnOnce() -> u64) -> u64 {
        let now = now();
        fence_of_collector();
        self.slots.iter().map(|slot| slot.load(LOOK)).min().map_or(now, |oldest| oldest.min(now))
    }

    /// Whether no slot announces a value, at some moment.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.load(LOOK) == NONE)
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

fn fence_of_user() {
    if !cfg!(loom_weak = "oldest_user_fence") {
        fence(Ordering::SeqCst);
    }
}

fn fence_of_collector() {
    if !cfg!(loom_weak = "oldest_collector_fence") {
        fence(Ordering::SeqCst);
    }
}
