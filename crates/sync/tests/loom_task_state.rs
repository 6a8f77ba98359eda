//! All interleavings of a poll and wake-ups.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_task_state` for NAME in
//! `task_state_wake`, `task_state_start`, `task_state_look`.
#![cfg(loom)]

mod explore;

use eris_sync::TaskState;
use explore::{explore, run};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

/// Polls until the task was not woken meanwhile; which things some poll found true.
fn polls(state: &TaskState, things: &[AtomicBool; 2]) -> [bool; 2] {
    let mut seen = [false; 2];
    loop {
        state.start();
        for (seen, thing) in seen.iter_mut().zip(things) {
            *seen |= thing.load(Ordering::Relaxed);
        }
        if !state.pend() {
            return seen;
        }
    }
}

/// What a waker made true is seen by a poll, or the task is queued by one of the wakers, who saw it idle.
#[test]
fn loom_task_state_loses_no_wake_up() {
    explore(|poller_first| {
        let state = Arc::new(TaskState::queued());
        let things = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let poll: Box<dyn FnOnce() -> ([bool; 2], bool) + Send> = {
            let (state, things) = (Arc::clone(&state), Arc::clone(&things));
            Box::new(move || (polls(&state, &things), false))
        };
        let wake = |which: usize| -> Box<dyn FnOnce() -> ([bool; 2], bool) + Send> {
            let (state, things) = (Arc::clone(&state), Arc::clone(&things));
            Box::new(move || {
                things[which].store(true, Ordering::Relaxed);
                ([false; 2], state.wake())
            })
        };
        let results = run(if poller_first { vec![poll, wake(0), wake(1)] } else { vec![wake(0), wake(1), poll] });
        let seen = [0, 1].map(|which| results.iter().any(|(seen, _)| seen[which]));
        let queues = results.iter().filter(|(_, queues)| *queues).count();
        assert!(queues <= 1, "the task is queued once");
        assert!(seen == [true, true] || queues == 1, "the task sleeps over what it waits for: {seen:?}");
        if queues == 1 {
            assert_eq!(polls(&state, &things), [true, true]);
        }
    });
}

/// After its end nobody queues a task.
#[test]
fn loom_task_state_ends() {
    explore(|waker_first| {
        let state = Arc::new(TaskState::queued());
        let poll: Box<dyn FnOnce() -> bool + Send> = {
            let state = Arc::clone(&state);
            Box::new(move || {
                state.start();
                state.end();
                false
            })
        };
        let wake: Box<dyn FnOnce() -> bool + Send> = {
            let state = Arc::clone(&state);
            Box::new(move || state.wake())
        };
        let queues = run(if waker_first { vec![wake, poll] } else { vec![poll, wake] });
        assert_eq!(queues, [false, false], "a task that is done is not queued");
        assert!(!state.wake());
    });
}
