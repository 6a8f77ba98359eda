//! I/O queues without threads: a job waits until its time has come and the driver lets it run.
//!
//! A job is due some random time after it was submitted, but never before the one ahead of it in its queue. Jobs that
//! are due run in the order of their times, those of the same time in the order in which their queues were made.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::disk::Generation;
use super::files::SimulatedFiles;
use crate::io_queue::{IoJob, IoQueue, run_guarded};
use crate::random::SeededRandom;
use crate::time::Nanos;

/// In the order in which they were made. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct QueueNumber(u64);

/// All I/O queues of a simulated machine.
pub(super) struct SimulatedIoQueues {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<AtomicU64>,
    files: SimulatedFiles,
    queues: Mutex<Queues>,
}

struct Queues {
    random: SeededRandom,
    number_next: u64,
    by_number: BTreeMap<QueueNumber, Queue>,
}

struct Queue {
    name: Arc<str>,
    /// When the power is lost the jobs are, and no further ones are taken.
    generation: Generation,
    jobs: VecDeque<WaitingJob>,
    /// When the job that was submitted last is or was due.
    due_last: Nanos,
    /// Nobody can submit any more.
    closed: bool,
}

impl Queue {
    fn is_finished(&self) -> bool {
        self.closed && self.jobs.is_empty()
    }
}

struct WaitingJob {
    due: Nanos,
    job: IoJob,
}

impl SimulatedIoQueues {
    pub(super) fn new(random: SeededRandom, clock: Arc<AtomicU64>, files: SimulatedFiles) -> SimulatedIoQueues {
        let queues = Queues { random, number_next: 0, by_number: BTreeMap::new() };
        SimulatedIoQueues { shared: Arc::new(Shared { clock, files, queues: Mutex::new(queues) }) }
    }

    pub(super) fn add(&self, name: &str) -> SimulatedIoQueue {
        let mut queues = self.shared.queues();
        let number = QueueNumber(queues.number_next);
        queues.number_next += 1;
        let queue = Queue {
            name: name.into(),
            generation: self.shared.files.generation(),
            jobs: VecDeque::new(),
            due_last: Nanos::ZERO,
            closed: false,
        };
        queues.by_number.insert(number, queue);
        SimulatedIoQueue { shared: Arc::downgrade(&self.shared), number }
    }

    /// Runs the jobs that are due, also those that become due by it, and returns how many.
    pub(super) fn run(&self) -> usize {
        self.drop_lost();
        let mut count = 0;
        while let Some((name, job)) = self.take_due() {
            run_guarded(&name, job, &self.shared.files);
            count += 1;
            // The job may have cut the power.
            self.drop_lost();
        }
        count
    }

    fn take_due(&self) -> Option<(Arc<str>, IoJob)> {
        let now = self.shared.now();
        let mut queues = self.shared.queues();
        let (due, number) = queues.next()?;
        if due > now {
            return None;
        }
        let queue = queues.by_number.get_mut(&number)?;
        let taken = queue.jobs.pop_front().map(|waiting| (Arc::clone(&queue.name), waiting.job));
        queues.drop_finished(number);
        taken
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.drop_lost();
        self.shared.queues().next().map(|(due, _)| due)
    }

    /// Drops the jobs of queues that the power loss took.
    pub(super) fn drop_lost(&self) {
        let generation = self.shared.files.generation();
        let lost: Vec<_> = {
            let mut queues = self.shared.queues();
            let dead = queues.by_number.values_mut().filter(|queue| queue.generation != generation);
            let lost = dead.flat_map(|queue| mem::take(&mut queue.jobs)).collect();
            queues.by_number.retain(|_, queue| !queue.is_finished());
            lost
        };
        // Dropped without the lock: jobs may own queues and wake tasks.
        drop(lost);
    }
}

impl Shared {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.load(Ordering::Relaxed))
    }
}

impl Queues {
    /// When the next job is due, and where.
    fn next(&self) -> Option<(Nanos, QueueNumber)> {
        let first = |(number, queue): (&QueueNumber, &Queue)| Some((queue.jobs.front()?.due, *number));
        self.by_number.iter().filter_map(first).min()
    }

    fn drop_finished(&mut self, number: QueueNumber) {
        if self.by_number.get(&number).is_some_and(Queue::is_finished) {
            self.by_number.remove(&number);
        }
    }
}

/// One queue. Jobs may own it, so it does not own the queues that own the jobs.
pub(super) struct SimulatedIoQueue {
    shared: Weak<Shared>,
    number: QueueNumber,
}

impl IoQueue for SimulatedIoQueue {
    fn submit(&self, job: IoJob) {
        // Without a machine, or after it lost its power, the job is dropped unseen.
        let Some(shared) = self.shared.upgrade() else { return };
        let faults = shared.files.disk_faults();
        let generation = shared.files.generation();
        let mut queues = shared.queues();
        let Queues { random, by_number, .. } = &mut *queues;
        let Some(queue) = by_number.get_mut(&self.number) else { unreachable!("{:?} is open and gone", self.number) };
        if queue.generation != generation {
            drop(queues);
            return;
        }
        queue.due_last = queue.due_last.max(shared.now() + faults.latency(random));
        queue.jobs.push_back(WaitingJob { due: queue.due_last, job });
    }
}

impl Drop for SimulatedIoQueue {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut queues = shared.queues();
        if let Some(queue) = queues.by_number.get_mut(&self.number) {
            queue.closed = true;
        }
        queues.drop_finished(self.number);
    }
}
