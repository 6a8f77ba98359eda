//! How many pieces of something are under way, and who ends the last.
//!
//! A piece is counted before anybody can work on it, and one that makes others counts them before it ends itself, so
//! the number is zero only when nothing is left. The one that takes it to zero sees what all the others did.

use std::sync::atomic::Ordering;

use crate::primitives::AtomicU64;

/// Hands on what was done, and sees what others did.
const FINISH: Ordering = if cfg!(loom_weak = "outstanding_finish") { Ordering::Relaxed } else { Ordering::AcqRel };

/// See the [module](self).
#[derive(Debug)]
pub struct Outstanding {
    pieces: AtomicU64,
}

impl Default for Outstanding {
    fn default() -> Outstanding {
        Outstanding::new()
    }
}

impl Outstanding {
    /// None.
    pub fn new() -> Outstanding {
        Outstanding { pieces: AtomicU64::new(0) }
    }

    /// Counts pieces that nobody can work on yet.
    #[inline]
    pub fn add(&self, pieces: u64) {
        let before = self.pieces.fetch_add(pieces, Ordering::Relaxed);
        assert!(before.checked_add(pieces).is_some(), "pieces under way are counted exactly");
    }

    /// Counts pieces that ended; true for the caller that ended the last.
    ///
    /// # Panics
    /// If fewer were under way.
    #[inline]
    pub fn finish(&self, pieces: u64) -> bool {
        let before = self.pieces.fetch_sub(pieces, FINISH);
        assert!(pieces > 0 && before >= pieces, "a counter of pieces under way never goes negative");
        before == pieces
    }

    /// As of some moment: for descriptions.
    pub fn count(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }
}
