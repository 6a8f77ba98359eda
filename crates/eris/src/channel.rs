//! A bounded queue between a task, which must not block, and a thread, which may: a waker for the one side and a
//! condition variable for the other. Either may be the sender.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Items that wait. A page is up to some thousand rows, so a few keep both sides busy.
const WAITING_MAX: usize = 4;

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// Of the side that is a task.
    waker: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

/// Dropped, it ends the stream.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// Dropped, it makes the sender stop.
pub(crate) struct Receiver<T>(Arc<Shared<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), waker: None, sender_gone: false, receiver_gone: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the other side, whichever kind it is.
    fn changed(&self, mut state: MutexGuard<'_, State<T>>) {
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// From a task: sends as soon as there is room; `false` when nobody will take it.
    pub(crate) async fn send(&self, item: T) -> bool {
        let mut item = Some(item);
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.receiver_gone {
                return Poll::Ready(false);
            }
            if state.items.len() >= WAITING_MAX {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            state.items.extend(item.take());
            self.0.changed(state);
            Poll::Ready(true)
        })
        .await
    }

    /// The same from a thread, which waits.
    pub(crate) fn send_blocking(&self, item: T) -> bool {
        let mut state = self.0.state();
        while state.items.len() >= WAITING_MAX && !state.receiver_gone {
            state = self.0.wait(state);
        }
        if state.receiver_gone {
            return false;
        }
        state.items.push_back(item);
        self.0.changed(state);
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.sender_gone = true;
        self.0.changed(state);
    }
}

impl<T> Receiver<T> {
    /// From a task: the next item; `None` at the end.
    pub(crate) async fn receive(&self) -> Option<T> {
        poll_fn(|context| {
            let mut state = self.0.state();
            if let Some(item) = state.items.pop_front() {
                self.0.changed(state);
                return Poll::Ready(Some(item));
            }
            if state.sender_gone {
                return Poll::Ready(None);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The same from a thread, which waits.
    pub(crate) fn receive_blocking(&self) -> Option<T> {
        let mut state = self.0.state();
        loop {
            if let Some(item) = state.items.pop_front() {
                self.0.changed(state);
                return Some(item);
            }
            if state.sender_gone {
                return None;
            }
            state = self.0.wait(state);
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receiver_gone = true;
        state.items.clear();
        self.0.changed(state);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake};

    use super::*;

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn a_task_sends_to_a_thread_in_order_and_never_far_ahead() {
        let (sender, receiver) = channel();
        let task = std::thread::spawn(move || {
            block_on(async move {
                for number in 0..10_000 {
                    assert!(sender.send(number).await);
                }
            });
        });
        for number in 0..10_000 {
            assert!(receiver.0.state().items.len() <= WAITING_MAX);
            assert_eq!(receiver.receive_blocking(), Some(number));
        }
        assert_eq!(receiver.receive_blocking(), None);
        task.join().unwrap();
    }

    #[test]
    fn a_thread_sends_to_a_task_in_order() {
        let (sender, receiver) = channel();
        let task = std::thread::spawn(move || {
            block_on(async move {
                let mut sum = 0u64;
                while let Some(number) = receiver.receive().await {
                    sum += number;
                }
                sum
            })
        });
        for number in 0..10_000 {
            assert!(sender.send_blocking(number));
        }
        drop(sender);
        assert_eq!(task.join().unwrap(), 49_995_000);
    }

    #[test]
    fn a_receiver_that_goes_stops_the_sender() {
        let (sender, receiver) = channel();
        let task = std::thread::spawn(move || {
            block_on(async move {
                let mut sent = 0;
                while sender.send(sent).await {
                    sent += 1;
                }
                sent
            })
        });
        assert_eq!(receiver.receive_blocking(), Some(0));
        drop(receiver);
        assert!(task.join().unwrap() <= 1 + WAITING_MAX);
        let (sender, receiver) = channel();
        drop(receiver);
        assert!(!sender.send_blocking(1));
    }
}
