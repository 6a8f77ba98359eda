//! When checkpoints are taken: on demand, when the log has grown, and after a while.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use eris_engine::Engine;
use eris_platform::messages::tell;

use super::take::{CheckpointReport, Checkpointer};
use crate::error::DurabilityError;
use crate::log::Log;
use crate::options::DurabilityOptions;

/// A disk on which a checkpoint failed is left alone for so long at least.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Where checkpoints are asked for.
#[derive(Default)]
pub(crate) struct Control {
    state: Mutex<State>,
}

type Outcome = Result<CheckpointReport, Arc<DurabilityError>>;

#[derive(Default)]
struct State {
    /// Checkpoints that were asked for, begun and finished, by number.
    asked: u64,
    finished: u64,
    last: Option<Outcome>,
    is_over: bool,
    /// Of the task that takes them.
    waker: Option<Waker>,
    waiting: Vec<Waker>,
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a checkpoint taken that begins after this call; returns when it is.
    pub async fn checkpoint(&self) -> Outcome {
        let number = {
            let mut state = self.state();
            state.asked += 1;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
            state.asked
        };
        poll_fn(|context| {
            let mut state = self.state();
            if state.finished >= number
                && let Some(last) = &state.last
            {
                return Poll::Ready(last.clone());
            }
            if state.is_over {
                return Poll::Ready(Err(Arc::new(eris_engine::EngineError::ShuttingDown.into())));
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The log has grown.
    pub fn wake(&self) {
        if let Some(waker) = &self.state().waker {
            waker.wake_by_ref();
        }
    }

    /// No further ones are taken.
    pub fn end(&self) {
        let waiting = {
            let mut state = self.state();
            state.is_over = true;
            let own = state.waker.take();
            std::mem::take(&mut state.waiting).into_iter().chain(own).collect::<Vec<_>>()
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

type Delay = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes checkpoints until the database is closed.
pub(crate) async fn run(
    engine: Engine,
    log: Log,
    control: Weak<Control>,
    mut checkpointer: Checkpointer,
    options: DurabilityOptions,
) {
    let mut failed_before = false;
    loop {
        let pause =
            if failed_before { options.checkpoint_interval.max(RETRY_PAUSE) } else { options.checkpoint_interval };
        let Some(numbers) = wait(&engine, &log, &control, (options.checkpoint_log_bytes, pause)).await else { return };
        let outcome = checkpointer.take(&engine, &log).await.map_err(Arc::new);
        if let Err(error) = &outcome {
            log.fail_if_lost(error);
        }
        log.checkpoint_ended(outcome.is_ok());
        if let Err(error) = &outcome
            && !failed_before
        {
            tell(format_args!("no checkpoint could be taken: {error}; the log is kept, another try follows"));
        }
        failed_before = outcome.is_err();
        let Some(control) = control.upgrade() else { return };
        let waiting = {
            let mut state = control.state();
            state.finished = numbers;
            state.last = Some(outcome);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits until a checkpoint is due, by the bytes or the time since the last one; gives the number of the last one that
/// was asked for. None: no more.
async fn wait(engine: &Engine, log: &Log, control: &Weak<Control>, (log_bytes, pause): (u64, Duration)) -> Option<u64> {
    let mut delay: Option<Delay> = None;
    poll_fn(|context| {
        let Some(control) = control.upgrade() else { return Poll::Ready(None) };
        let (asked, is_asked) = {
            let mut state = control.state();
            if state.is_over {
                return Poll::Ready(None);
            }
            state.waker = Some(context.waker().clone());
            (state.asked, state.asked > state.finished)
        };
        let grown = log.grown_bytes();
        if is_asked || grown >= log_bytes {
            return Poll::Ready(Some(asked));
        }
        // Idle costs nothing: the clock runs only when there is something to be written.
        if grown > 0 {
            let deadline = engine.env().now() + pause;
            let sleep = delay.get_or_insert_with(|| Box::pin(engine.sleep_until(deadline)));
            if sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(Some(asked));
            }
        }
        Poll::Pending
    })
    .await
}
