//! A queue of jobs with a thread that runs them.
//!
//! The thread takes all jobs that wait at once and runs them without a lock. When there are none it looks for new ones
//! for a few microseconds, because a log that is written often has its next job by then, and sleeps. A submitter pays
//! for waking it only when it sleeps.

use std::collections::VecDeque;
use std::hint;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::threads;
use crate::files::Files;
use crate::ids::CpuId;
use crate::io_queue::{IoJob, IoQueue, run_guarded};
use crate::limits;

/// Enough for code that reads and writes files. It is taken from the address space, which may be limited.
const STACK_BYTES: usize = 2 << 20;
/// How long the thread looks for a job before it sleeps: about what it costs to put it to sleep and wake it.
const SPIN_MAX: Duration = Duration::from_micros(5);
/// Looks between two glances at the clock.
const LOOKS_PER_GLANCE: u32 = 32;

/// Who gets the processor first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    Prompt,
    Normal,
    Background,
}

pub(super) struct RealIoQueue {
    shared: Arc<Shared>,
    /// Taken by the drop only.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// Whether there is something in `waiting`, for looking without the lock. It may lag: the lock decides.
    look: AtomicBool,
    wake: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<IoJob>,
    /// No job will follow.
    closed: bool,
    /// The thread waits for `wake`.
    sleeps: bool,
}

impl RealIoQueue {
    /// The thread may run on `cpus`: whoever starts it may be pinned to one that others wait for.
    pub(super) fn start(
        name: &str,
        files: Arc<dyn Files>,
        priority: Priority,
        cpus: Option<Vec<CpuId>>,
    ) -> io::Result<RealIoQueue> {
        let shared = Arc::new(Shared { waiting: Mutex::default(), look: AtomicBool::new(false), wake: Condvar::new() });
        // Who spins on the only CPU keeps the submitter from it.
        let spin = priority != Priority::Background && cpus.as_ref().is_some_and(|cpus| cpus.len() > 1);
        let thread = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn({
            let (shared, name) = (Arc::clone(&shared), name.to_owned());
            move || {
                if let Some(cpus) = cpus {
                    // What may not be changed is inherited.
                    let _ = limits::set_affinity(&cpus);
                }
                match priority {
                    Priority::Prompt => threads::take_short_turns(),
                    Priority::Normal => {}
                    Priority::Background => threads::work_in_bursts(),
                }
                let mut jobs = VecDeque::new();
                while shared.take(&mut jobs, spin) {
                    threads::rested();
                    jobs.drain(..).for_each(|job| run_guarded(&name, job, &*files));
                }
            }
        })?;
        Ok(RealIoQueue { shared, thread: Some(thread) })
    }
}

impl IoQueue for RealIoQueue {
    fn submit(&self, job: IoJob) {
        self.shared.change(|waiting| waiting.jobs.push_back(job));
    }
}

impl Drop for RealIoQueue {
    fn drop(&mut self) {
        self.shared.change(|waiting| waiting.closed = true);
        let Some(thread) = self.thread.take() else { return };
        // A job that drops the last reference to its own queue cannot wait for itself to end.
        if thread.thread().id() != thread::current().id() {
            // Panics of jobs end in `run_guarded`, so there is none to pass on.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what waits, and wakes the thread if it sleeps.
    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let wake = {
            let mut waiting = self.waiting();
            change(&mut waiting);
            self.look.store(true, Ordering::Release);
            mem::take(&mut waiting.sleeps)
        };
        if wake {
            self.wake.notify_one();
        }
    }

    /// Moves all jobs that wait to `jobs`, which is empty, and waits for one if there is none. False when the queue is
    /// closed and empty.
    fn take(&self, jobs: &mut VecDeque<IoJob>, spin: bool) -> bool {
        if spin {
            self.spin();
        }
        let mut waiting = self.waiting();
        loop {
            self.look.store(false, Ordering::Relaxed);
            if !waiting.jobs.is_empty() {
                mem::swap(jobs, &mut waiting.jobs);
                return true;
            }
            if waiting.closed {
                return false;
            }
            waiting.sleeps = true;
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            // It may have woken for no reason.
            waiting.sleeps = false;
        }
    }

    fn spin(&self) {
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_GLANCE {
                if self.look.load(Ordering::Acquire) {
                    return;
                }
                hint::spin_loop();
            }
            if start.elapsed() >= SPIN_MAX {
                return;
            }
        }
    }
}
