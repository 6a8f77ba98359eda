//! The task that waits for a session's deadlines. It is there from the first one that is set to the end of the session,
//! and sleeps without a timer while there is none.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use eris_engine::Engine;

use super::session_activity::{Activity, Watch};

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) async fn watch(activity: Arc<Activity>, engine: Engine) {
    loop {
        let mut sleep: Option<Sleep> = match activity.look(engine.env().now()) {
            Watch::Over => return,
            Watch::Rest => None,
            Watch::Until(deadline) => Some(Box::pin(engine.sleep_until(deadline))),
        };
        poll_fn(|context| {
            // Registered before the sleep is looked at, so nothing that comes after is missed.
            if activity.wake_watchdog(context.waker()) {
                return Poll::Ready(());
            }
            match &mut sleep {
                Some(sleep) => sleep.as_mut().poll(context),
                None => Poll::Pending,
            }
        })
        .await;
    }
}
