//! What is decided once, by one atomic write, and may have exceptions that are known before.
//!
//! ```text
//!   whoever decides     except, except ... decide(value)         (one thread after the other)
//!   everybody else      look: the value, none yet, and whether there are exceptions
//! ```
//! Whoever sees the value sees that there are exceptions. Before that, exceptions may be seen late: nobody relies on
//! what is not decided yet without looking again.

use std::sync::atomic::Ordering;

use crate::primitives::{AtomicBool, AtomicU64};

/// No value is zero.
const NONE: u64 = 0;

/// Publishes the exceptions along with the value.
const DECIDE: Ordering = if cfg!(loom_weak = "decision_decide") { Ordering::Relaxed } else { Ordering::AcqRel };
/// Sees them.
const LOOK: Ordering = if cfg!(loom_weak = "decision_look") { Ordering::Relaxed } else { Ordering::Acquire };

/// See the [module](self).
#[derive(Debug)]
pub struct Decision {
    value: AtomicU64,
    has_exceptions: AtomicBool,
}

impl Default for Decision {
    fn default() -> Decision {
        Decision::new()
    }
}

impl Decision {
    /// Nothing is decided, and nothing excepted.
    pub fn new() -> Decision {
        Decision { value: AtomicU64::new(NONE), has_exceptions: AtomicBool::new(false) }
    }

    /// There are exceptions; which they are is kept elsewhere.
    ///
    /// # Panics
    /// If it is decided.
    #[inline]
    pub fn except(&self) {
        assert!(!self.is_decided(), "exceptions are made before the decision");
        // Published by the decision.
        self.has_exceptions.store(true, Ordering::Relaxed);
    }

    /// Decides, for good.
    ///
    /// # Panics
    /// If it is decided, or the value is zero.
    #[inline]
    pub fn decide(&self, value: u64) {
        assert!(value != NONE, "zero is no decision");
        let before = self.value.swap(value, DECIDE);
        assert!(before == NONE, "what is decided once is not decided again");
    }

    /// The value, and whether there are exceptions.
    #[inline]
    pub fn look(&self) -> (Option<u64>, bool) {
        // In this order: see the module.
        let value = self.value.load(LOOK);
        let has_exceptions = self.has_exceptions.load(Ordering::Relaxed);
        ((value != NONE).then_some(value), has_exceptions)
    }

    #[inline]
    pub fn is_decided(&self) -> bool {
        self.value.load(LOOK) != NONE
    }
}
