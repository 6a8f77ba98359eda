//! Work on files beside the workers: whoever submits a job goes on, and the job's last act is to tell who waits for it.
//!
//! A worker must not wait for a disk. It hands an [`IoQueue`] a job, ordinary blocking code over [`Files`], which runs
//! on the queue's own thread (or, in the simulated machine, when the driver lets it). With [`run`] a task awaits what
//! the job returns.

use std::future::Future;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::files::Files;
use crate::messages::tell;
use crate::threads::message_of;

/// What a queue runs.
pub type IoJob = Box<dyn FnOnce(&dyn Files) + Send>;

/// Runs jobs one after the other, strictly in the order in which they were submitted; queues do not wait for each
/// other. A job may submit jobs to its own queue: they run after those submitted before, and the thread does not go to
/// sleep in between.
///
/// A panic in a job is reported on standard error, and the next job runs. When the last reference to a queue is
/// dropped, jobs that wait are still run; for a real queue the drop waits for them, unless a job of the queue itself
/// drops it.
pub trait IoQueue: Send + Sync {
    fn submit(&self, job: IoJob);
}

/// Submits a job and gives a future of what it returns.
///
/// The job runs even if the future is never polled, or dropped. If it panics, or the queue loses it (the simulated
/// power is cut), the future resolves to an error.
pub fn run<T: Send + 'static>(
    queue: &Arc<dyn IoQueue>,
    job: impl FnOnce(&dyn Files) -> T + Send + 'static,
) -> IoTask<T> {
    let outcome = Arc::new(Mutex::new(Outcome::Awaited(None)));
    let promise = Promise { outcome: Arc::clone(&outcome) };
    queue.submit(Box::new(move |files| {
        // As a local it is dropped, and the task learns of it, also when the job panics.
        let promise = promise;
        let value = job(files);
        promise.settle(Ok(value));
    }));
    IoTask { outcome }
}

/// Call it before dropping a reference to a queue: dropping the last one waits for the queue's jobs, and after this
/// call the queue itself holds that one. For a worker whose job may wait for a disk that does not answer.
pub fn release(queue: &Arc<dyn IoQueue>) {
    let last = Arc::clone(queue);
    // It runs after all other jobs, so that what it drops has nothing left to wait for.
    queue.submit(Box::new(move |_| drop(last)));
}

/// What becomes of a job; see [`run`]. Polling it again after it was ready panics.
pub struct IoTask<T> {
    outcome: Arc<Mutex<Outcome<T>>>,
}

enum Outcome<T> {
    /// The job is not through. The waker is of the last poll.
    Awaited(Option<Waker>),
    Settled(io::Result<T>),
    /// The task has been told.
    Taken,
}

fn lock<T>(outcome: &Mutex<Outcome<T>>) -> MutexGuard<'_, Outcome<T>> {
    outcome.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Future for IoTask<T> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut outcome = lock(&self.outcome);
        match mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Awaited(waker) => {
                let waker = waker.filter(|waker| waker.will_wake(context.waker()));
                *outcome = Outcome::Awaited(Some(waker.unwrap_or_else(|| context.waker().clone())));
                Poll::Pending
            }
            Outcome::Settled(result) => Poll::Ready(result),
            Outcome::Taken => panic!("an I/O task was polled after it was ready"),
        }
    }
}

/// The job's side of a task: the first to settle it decides.
struct Promise<T> {
    outcome: Arc<Mutex<Outcome<T>>>,
}

impl<T> Promise<T> {
    fn settle(&self, result: io::Result<T>) {
        let waker = {
            let mut outcome = lock(&self.outcome);
            let Outcome::Awaited(waker) = &mut *outcome else { return };
            let waker = waker.take();
            *outcome = Outcome::Settled(result);
            waker
        };
        // Woken without the lock: a waker may run the task at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let reason = if thread::panicking() { "the I/O job panicked" } else { "the I/O job was lost with its queue" };
        self.settle(Err(io::Error::other(reason)));
    }
}

/// Runs a job of the queue `name`; a panic ends here.
pub(crate) fn run_guarded(name: &str, job: IoJob, files: &dyn Files) {
    // What a job shares with others it guards itself: locks here are taken over when their holder panicked.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(files))) {
        tell(format_args!("a job of the I/O queue \"{name}\" panicked: {}", message_of(payload.as_ref())));
    }
}
