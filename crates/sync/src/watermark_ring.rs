//! The watermark: the highest timestamp below which everything is finished.
//!
//! Timestamps are taken in order and finished in any order, by any thread. A reader may use everything up to the
//! watermark and nothing above it, however much of that is finished.
//! ```text
//!  slot of t is t mod capacity        visible          taken
//!                                        v               v
//!  ... finished finished finished finished| open fin open |
//! ```
//! A finished timestamp is written into its slot; then whoever sees the slot after the watermark filled moves the
//! watermark on. Two that finish neighbours at the same time could each miss the other's slot and leave the watermark
//! behind for ever; a sequentially consistent fence between writing one's slot and looking at others' excludes
//! that: the later of the two fences sees both.
//!
//! The ring has room for a bounded number of timestamps above the watermark, and no more are given out.

use std::sync::atomic::Ordering;

use crate::line::Line;
use crate::primitives::{AtomicU64, fence};

/// Publishes what was done under a timestamp with its slot.
const FILL: Ordering = if cfg!(loom_weak = "watermark_fill") { Ordering::Relaxed } else { Ordering::Release };
/// Sees it.
const LOOK: Ordering = if cfg!(loom_weak = "watermark_look") { Ordering::Relaxed } else { Ordering::Acquire };
/// Hands it on to readers, and to whoever moves the watermark next.
const MOVE: Ordering = if cfg!(loom_weak = "watermark_move") { Ordering::Relaxed } else { Ordering::AcqRel };
/// Sees what was done up to the watermark.
const READ: Ordering = if cfg!(loom_weak = "watermark_read") { Ordering::Relaxed } else { Ordering::Acquire };

/// See the [module](self).
pub struct WatermarkRing {
    visible: Line<AtomicU64>,
    taken: Line<AtomicU64>,
    /// A slot holds the last timestamp of its residue class that was finished.
    slots: Box<[AtomicU64]>,
}

impl WatermarkRing {
    /// A ring for `capacity` timestamps in flight, with the watermark at `start`: the first timestamp is `start + 1`.
    ///
    /// # Panics
    /// If the capacity is not a power of two.
    pub fn new(capacity: usize, start: u64) -> WatermarkRing {
        assert!(capacity.is_power_of_two(), "a ring of {capacity} slots is not a power of two");
        // Slots begin with what would have been finished before `start`, or at least with what nobody waits for.
        let slots = (0..capacity).map(|_| AtomicU64::new(start)).collect();
        WatermarkRing { visible: Line(AtomicU64::new(start)), taken: Line(AtomicU64::new(start)), slots }
    }

    fn slot(&self, timestamp: u64) -> &AtomicU64 {
        &self.slots[(timestamp & (self.slots.len() as u64 - 1)) as usize]
    }

    /// The next timestamp, which must be [finished](Self::finish); `None` while too many are in flight.
    pub fn take(&self) -> Option<u64> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            // READ also orders the reuse of a slot after everything that was done under its previous timestamp.
            if taken - self.visible.load(READ).min(taken) >= self.slots.len() as u64 {
                return None;
            }
            match self.taken.compare_exchange_weak(taken, taken + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken + 1),
                Err(now) => taken = now,
            }
        }
    }

    /// Says that `timestamp` is finished, committed or void. What the caller did before is seen by whoever sees the
    /// watermark at or above it.
    ///
    /// # Panics
    /// If the timestamp is finished already, or was never taken.
    pub fn finish(&self, timestamp: u64) {
        let visible = self.visible.load(READ);
        assert!(
            visible < timestamp && timestamp - visible <= self.slots.len() as u64,
            "timestamp {timestamp} is not in flight: the watermark is {visible}"
        );
        self.slot(timestamp).store(timestamp, FILL);
        if !cfg!(loom_weak = "watermark_fence") {
            fence(Ordering::SeqCst);
        }
        self.advance();
    }

    /// Goes on behind `timestamp`, unless the ring is there already: what lies in between counts as finished. Not while
    /// somebody takes or finishes timestamps.
    ///
    /// # Panics
    /// If a timestamp is in flight.
    pub fn continue_behind(&self, timestamp: u64) {
        let (visible, taken) = (self.visible.load(READ), self.taken.load(Ordering::Relaxed));
        assert!(visible == taken, "timestamps {visible} to {taken} are in flight");
        if timestamp > taken {
            self.taken.store(timestamp, Ordering::Relaxed);
            self.visible.store(timestamp, Ordering::Release);
        }
    }

    fn advance(&self) {
        let mut visible = self.visible.load(Ordering::Relaxed);
        loop {
            let next = visible + 1;
            if self.slot(next).load(LOOK) == next {
                match self.visible.compare_exchange(visible, next, MOVE, Ordering::Relaxed) {
                    Ok(_) => visible = next,
                    Err(now) => visible = now,
                }
            } else {
                // Either `next` is open, or the watermark read is old and the slot belongs to a later timestamp
                // already; having seen that one, this load sees the watermark that let it be taken.
                let now = self.visible.load(Ordering::Relaxed);
                if now == visible {
                    return;
                }
                visible = now;
            }
        }
    }

    /// The watermark: everything up to here is finished. Never falls.
    pub fn visible(&self) -> u64 {
        self.visible.load(READ)
    }

    /// The highest timestamp given out.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}
