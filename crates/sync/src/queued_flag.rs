//! Whether something is in a queue already, so that it is there once however many want it there.
//!
//! | who has work for it | who takes it out of the queue |
//! |---|---|
//! | 1. publish the work | 1. [`unmark`](QueuedFlag::unmark) |
//! | 2. [`mark`](QueuedFlag::mark): true, then put it into the queue | 2. look for work |
//!
//! Both change the flag in one step, and one of them is first. If the one who unmarks is, the other one's `mark` says
//! true, and the thing is queued again; else `unmark` sees the mark, and with it the work. With a plain store in place
//! of `unmark`'s exchange neither need be: the store may wait in the processor's buffer while its thread looks for
//! work, and the other one still finds the flag raised. The work would lie there until something else comes.

use std::sync::atomic::Ordering;

use crate::primitives::AtomicBool;

/// Publishes the work with the mark.
const MARK: Ordering = if cfg!(loom_weak = "queued_flag_mark") { Ordering::Relaxed } else { Ordering::Release };
/// Sees the work of those who found it marked.
const UNMARK: Ordering = if cfg!(loom_weak = "queued_flag_unmark") { Ordering::Relaxed } else { Ordering::Acquire };

/// See the [module](self).
#[derive(Debug)]
pub struct QueuedFlag {
    queued: AtomicBool,
}

impl Default for QueuedFlag {
    fn default() -> QueuedFlag {
        QueuedFlag::new()
    }
}

impl QueuedFlag {
    /// Not queued.
    pub fn new() -> QueuedFlag {
        QueuedFlag { queued: AtomicBool::new(false) }
    }

    /// True for the caller that has to put it into the queue. The work is published before.
    pub fn mark(&self) -> bool {
        !self.queued.swap(true, MARK)
    }

    /// It was taken out of the queue; the caller looks for work after this call.
    pub fn unmark(&self) {
        if cfg!(loom_weak = "queued_flag_store") {
            self.queued.store(false, Ordering::Release);
        } else {
            self.queued.swap(false, UNMARK);
        }
    }

    /// As of some moment: for descriptions.
    pub fn is_marked(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }
}
