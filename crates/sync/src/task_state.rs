//! Where a task is between being woken and being polled; it is queued once, and no wake-up is lost.
//!
//! ```text
//!             wake                start               pend
//!   Idle ------------> Queued -------------> Running ---------> Idle
//!                        ^                      | wake
//!                        +------- pend ------ Notified          end: Done
//! ```
//! Who wakes has made something true that the poll looks at. A wake-up of a task that is queued or notified already
//! changes nothing, and yet it writes the state: only so does the next poll, which changes the state after it, see what
//! was made true. If it only looked, its look could come before that poll's start and what it made true after that
//! poll's end, and neither would know of the other.

use std::sync::atomic::Ordering;

use crate::primitives::AtomicU8;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const NOTIFIED: u8 = 3;
const DONE: u8 = 4;

/// Publishes what the waker made true.
const WAKE: Ordering = if cfg!(loom_weak = "task_state_wake") { Ordering::Relaxed } else { Ordering::Release };
/// Sees it.
const START: Ordering = if cfg!(loom_weak = "task_state_start") { Ordering::Relaxed } else { Ordering::Acquire };

/// See the [module](self). What a poll changes is protected otherwise.
#[derive(Debug)]
pub struct TaskState {
    state: AtomicU8,
}

impl TaskState {
    /// Of a task that its maker is about to queue.
    pub fn queued() -> TaskState {
        TaskState { state: AtomicU8::new(QUEUED) }
    }

    /// A poll begins.
    ///
    /// # Panics
    /// If the task was not queued, or somebody polls it.
    pub fn start(&self) {
        let before = self.state.swap(RUNNING, START);
        assert!(before == QUEUED, "a task is queued once and polled by one worker at a time");
    }

    /// A poll ends, and the task goes on later. True if it was woken meanwhile: the caller queues it again.
    pub fn pend(&self) -> bool {
        if self.state.compare_exchange(RUNNING, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return false;
        }
        // An exchange, not a store: it keeps what wakers published for the next start.
        let before = self.state.swap(QUEUED, Ordering::Relaxed);
        assert!(before == NOTIFIED, "while a task runs only wake-ups come");
        true
    }

    /// The task is done; wake-ups are for nothing from now on.
    pub fn end(&self) {
        self.state.store(DONE, Ordering::Relaxed);
    }

    /// True for the caller that has to queue the task. What the task waits for was made true before.
    pub fn wake(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = match state {
                IDLE => QUEUED,
                RUNNING => NOTIFIED,
                DONE => return false,
                waiting if cfg!(loom_weak = "task_state_look") && waiting != RUNNING => return false,
                waiting => waiting,
            };
            match self.state.compare_exchange_weak(state, next, WAKE, Ordering::Relaxed) {
                Ok(before) => return before == IDLE,
                Err(newer) => state = newer,
            }
        }
    }
}
