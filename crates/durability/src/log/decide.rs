//! Deciding what became durable, on the engine's workers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use eris_engine::{Engine, LogError, PendingCommit};

use super::Shared;

/// Commits whose end is known, in their order, until they are decided.
#[derive(Default)]
pub(super) struct Decisions {
    queue: Mutex<Queue>,
    /// Of the queue, and of what was taken from it and is being decided.
    length: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    commits: VecDeque<(PendingCommit, Result<(), LogError>)>,
    /// The task that decides, while there is one.
    waker: Option<Waker>,
    is_over: bool,
}

impl Decisions {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are not decided.
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// All these came to the same end.
    pub fn push(&self, commits: Vec<PendingCommit>, outcome: &Result<(), LogError>) {
        if commits.is_empty() {
            return;
        }
        self.length.fetch_add(commits.len(), Ordering::AcqRel);
        let waker = {
            let mut queue = self.queue();
            queue.commits.extend(commits.into_iter().map(|commit| (commit, outcome.clone())));
            queue.waker.clone()
        };
        match waker {
            Some(waker) => waker.wake(),
            // Nobody else does it (any more).
            None => self.decide_all(),
        }
    }

    /// Decides what there is.
    fn decide_all(&self) {
        let commits = std::mem::take(&mut self.queue().commits);
        let count = commits.len();
        PendingCommit::decide_all(commits);
        self.length.fetch_sub(count, Ordering::AcqRel);
    }

    /// Has the task look: there is something to be written soon.
    pub fn wake(&self) {
        if let Some(waker) = &self.queue().waker {
            waker.wake_by_ref();
        }
    }

    /// The task ends; what comes is decided by whoever finds it.
    pub fn end(&self) {
        let waker = {
            let mut queue = self.queue();
            queue.is_over = true;
            queue.waker.take()
        };
        self.decide_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Decides until the log is closed or gone. Also sees to what is to be written soon.
pub(super) async fn decide(engine: Engine, shared: Weak<Shared>) {
    let mut delay: Option<Delay> = None;
    poll_fn(move |context| poll(&engine, &shared, &mut delay, context)).await;
}

fn poll(engine: &Engine, shared: &Weak<Shared>, delay: &mut Option<Delay>, context: &mut Context<'_>) -> Poll<()> {
    let Some(shared) = shared.upgrade() else { return Poll::Ready(()) };
    {
        let mut queue = shared.decisions.queue();
        if queue.is_over {
            return Poll::Ready(());
        }
        queue.waker = Some(context.waker().clone());
    }
    shared.decisions.decide_all();
    let is_delayed = {
        let state = shared.state();
        state.end_watch(&shared);
        state.is_delayed
    };
    if delay.is_none() && is_delayed {
        *delay = Some(Box::pin(engine.sleep_until(shared.env.now() + shared.options.asynchronous_delay)));
    }
    if let Some(sleep) = delay
        && sleep.as_mut().poll(context).is_ready()
    {
        *delay = None;
        shared.state().write_now(&shared);
    }
    Poll::Pending
}
