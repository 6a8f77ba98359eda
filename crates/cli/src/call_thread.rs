//! Calls that may never return, made by a thread of their own.
//!
//! Writing to standard error waits for ever if it is a pipe that is full and not read, or a stopped terminal; opening a
//! file does where the file system does not answer. The thread that waits for signals has such calls made here, and
//! goes on, so that a signal ends the process in any case.
//!
//! There is a thread only while there are calls: one that waits for them would keep some tens of megabytes of address
//! space, which may be limited (`ulimit -v`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

type Call = Box<dyn FnOnce() + Send>;

/// Has calls made one after the other, in the order in which they were given. Clones share the order.
#[derive(Clone, Default)]
pub struct CallThread(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    waiting: VecDeque<Call>,
    /// Whether a thread makes them.
    is_running: bool,
}

impl CallThread {
    /// Has a call made; does not wait for it. Where no thread can be started, it waits for the next call.
    pub fn begin(&self, call: impl FnOnce() + Send + 'static) {
        let mut calls = self.lock();
        calls.waiting.push_back(Box::new(call));
        if calls.is_running {
            return;
        }
        let this = self.clone();
        let thread = thread::Builder::new().name("eris-messages".to_owned()).stack_size(256 << 10);
        calls.is_running = thread.spawn(move || this.make_calls()).is_ok();
    }

    /// Has a call made and waits for that, but no longer than this. Whether it was made in time.
    pub fn finish(&self, patience: Duration, call: impl FnOnce() + Send + 'static) -> bool {
        let (sender, done) = mpsc::channel();
        self.begin(move || {
            call();
            // The caller may have ceased to wait.
            let _ = sender.send(());
        });
        done.recv_timeout(patience).is_ok()
    }

    fn make_calls(&self) {
        while let Some(call) = self.next() {
            // The panic has been reported; the calls after it are made all the same.
            let _ = catch_unwind(AssertUnwindSafe(call));
        }
    }

    fn next(&self) -> Option<Call> {
        let mut calls = self.lock();
        let next = calls.waiting.pop_front();
        calls.is_running = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use super::*;

    #[test]
    fn calls_are_made_in_their_order_and_one_that_does_not_return_is_not_waited_for() {
        let thread = CallThread::default();
        let made = Arc::new(Mutex::new(Vec::new()));
        let note = |number| {
            let made = Arc::clone(&made);
            move || made.lock().unwrap().push(number)
        };
        thread.begin(note(1));
        thread.begin(note(2));
        assert!(thread.finish(Duration::from_mins(1), note(3)));
        assert_eq!(*made.lock().unwrap(), [1, 2, 3]);
        let (held, hold) = mpsc::channel::<()>();
        thread.begin(move || {
            let _ = hold.recv();
        });
        let begun = Instant::now();
        assert!(!thread.finish(Duration::from_millis(50), note(4)));
        assert!(begun.elapsed() < Duration::from_secs(30));
        drop(held);
        assert!(thread.finish(Duration::from_mins(1), note(5)));
        assert_eq!(*made.lock().unwrap(), [1, 2, 3, 4, 5]);
    }
}
