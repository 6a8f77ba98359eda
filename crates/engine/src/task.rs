//! Tasks: the sequential part of a query, an `async` block that workers of its node poll.
//! Where a task is between a wake-up and a poll, [`TaskState`] draws and keeps.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use eris_platform::NodeId;
use eris_sync::TaskState;

use crate::counters::Event;
use crate::lock::{Lock, lock};
use crate::near::WeakRuntime;
use crate::runtime::Runtime;

thread_local! {
    /// Whether the task that is polled goes on with a further piece of long work.
    static NEXT_IS_PIECE: Cell<bool> = const { Cell::new(false) };
}

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Task {
    node: AtomicU16,
    state: TaskState,
    /// Whether the engine has it among those that wait.
    known: AtomicBool,
    future: Lock<Option<BoxedFuture>>,
    runtime: WeakRuntime,
}

impl Task {
    /// Creates the task and queues it on its node.
    pub fn start(runtime: &Arc<Runtime>, node: NodeId, future: BoxedFuture) {
        let task = Arc::new(Self {
            node: AtomicU16::new(runtime.acting_node(node).id.0),
            state: TaskState::queued(),
            known: AtomicBool::new(false),
            future: Lock::new(Some(future)),
            runtime: WeakRuntime::new(runtime),
        });
        task.enqueue(runtime);
    }

    /// Ends the task wherever it is; what it was at is dropped.
    fn give_up(&self) {
        let future = lock(&self.future).take();
        drop(future);
    }

    /// From now on the workers of another node poll it.
    pub fn set_node(&self, node: NodeId) {
        self.node.store(node.0, Ordering::Release);
    }

    fn enqueue(self: Arc<Self>, runtime: &Runtime) {
        let node = runtime.acting_node(NodeId(self.node.load(Ordering::Acquire)));
        node.push_task(self);
        runtime.wake_node(node.id);
    }

    /// Polls the task once. A panic ends the task only: whoever waits for its result sees it dropped.
    pub fn poll(self: &Arc<Self>, runtime: &Runtime) {
        self.state.start();
        runtime.counters.add(Event::TaskPolls, 1);
        NEXT_IS_PIECE.set(false);
        let waker = Waker::from(Arc::clone(self));
        let mut slot = lock(&self.future);
        let Some(future) = slot.as_mut() else { unreachable!("a queued task is not done, nor is the engine") };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(())) | Err(_) => {
                if polled.is_err() {
                    runtime.counters.add(Event::TaskPanics, 1);
                }
                self.state.end();
                let future = slot.take();
                drop(slot);
                drop(future);
                return;
            }
        }
        drop(slot);
        if !self.known.swap(true, Ordering::Relaxed) {
            runtime.waiting.add(self);
        }
        if self.state.pend() {
            // Woken while it ran.
            let node = runtime.acting_node(NodeId(self.node.load(Ordering::Acquire)));
            if NEXT_IS_PIECE.get() { node.push_piece(Arc::clone(self)) } else { node.push_task(Arc::clone(self)) }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.wake() {
            self.runtime.with(|runtime| Arc::clone(self).enqueue(runtime));
        }
    }
}

/// The tasks of an engine that wait or have waited, so that none outlives it: such a task is held by whoever is to wake
/// it, which as a rule is something that the task itself holds. One that ends with its first poll, as most do that read
/// or change a few rows, never comes here: who queues it holds it.
#[derive(Default)]
pub(crate) struct WaitingTasks {
    known: Lock<Known>,
}

#[derive(Default)]
struct Known {
    tasks: Vec<Weak<Task>>,
    /// At so many, those that are done are forgotten.
    full: usize,
}

impl WaitingTasks {
    fn add(&self, task: &Arc<Task>) {
        let mut known = lock(&self.known);
        if known.tasks.len() >= known.full {
            known.tasks.retain(|task| task.strong_count() > 0);
            known.full = 2 * known.tasks.len() + 64;
        }
        known.tasks.push(Arc::downgrade(task));
    }

    /// Ends those that there are; whether there were any.
    fn give_up(&self) -> bool {
        let tasks = std::mem::take(&mut lock(&self.known).tasks);
        tasks.iter().filter_map(Weak::upgrade).for_each(|task| task.give_up());
        !tasks.is_empty()
    }
}

/// Ends all tasks, queued or waiting; what they are at is dropped, which may begin further ones. Only when nobody polls
/// any more.
pub(crate) fn give_up_all(runtime: &Runtime) {
    loop {
        let mut any = false;
        for node in &runtime.nodes {
            while let Some(task) = node.tasks.pop_any().or_else(|| node.pieces.pop()) {
                task.give_up();
                any = true;
            }
        }
        if !runtime.waiting.give_up() && !any {
            return;
        }
    }
}

/// Lets the other tasks of the worker go first, once.
pub async fn yield_now() {
    give_way(false).await;
}

/// Between two pieces of long work, each a fraction of a millisecond: what is ready goes first. A worker does one such
/// piece a step, which is all that a task which becomes ready meanwhile has to wait for; however many those are, a
/// piece follows.
pub async fn yield_to_tasks() {
    give_way(true).await;
}

async fn give_way(next_is_piece: bool) {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        NEXT_IS_PIECE.set(next_is_piece);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
