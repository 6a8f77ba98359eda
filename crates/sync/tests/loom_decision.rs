//! All interleavings of a decision with exceptions, and those who look at it or wait for it.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_decision` for NAME in
//! `decision_decide`, `decision_look`.
#![cfg(loom)]

mod explore;

use eris_sync::Decision;
use explore::{explore, run};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};

const VALUE: u64 = 7;

/// Two look, each twice: what one has seen decided stays decided, with its exceptions.
#[test]
fn loom_decision_is_seen_with_its_exceptions() {
    explore(|reversed| {
        let decision = Arc::new(Decision::new());
        let decide: Box<dyn FnOnce() + Send> = {
            let decision = Arc::clone(&decision);
            Box::new(move || {
                decision.except();
                decision.decide(VALUE);
            })
        };
        let look = || -> Box<dyn FnOnce() + Send> {
            let decision = Arc::clone(&decision);
            Box::new(move || {
                let first = decision.look();
                let second = decision.look();
                for seen in [first, second] {
                    assert!(matches!(seen, (None, _) | (Some(VALUE), true)), "a decision without exceptions: {seen:?}");
                }
                assert!(first.0.is_none() || second == first, "a decision is for good");
            })
        };
        run(if reversed { vec![look(), look(), decide] } else { vec![decide, look(), look()] });
        assert_eq!(decision.look(), (Some(VALUE), true));
    });
}

/// Who registers and then looks does not sleep over an exception, nor over the decision, if each is followed by a look
/// at who waits. The lock stands for that of the waiters.
#[test]
fn loom_decision_leaves_nobody_waiting() {
    for write in [Decision::except, |decision: &Decision| decision.decide(VALUE)] {
        explore(move |reversed| {
            let decision = Arc::new(Decision::new());
            let waits = Arc::new(Mutex::new(false));
            let woken = Arc::new(AtomicBool::new(false));
            let writer: Box<dyn FnOnce() -> bool + Send> = {
                let (decision, waits, woken) = (Arc::clone(&decision), Arc::clone(&waits), Arc::clone(&woken));
                Box::new(move || {
                    write(&decision);
                    if *waits.lock().expect("nobody panics") {
                        woken.store(true, Ordering::Relaxed);
                    }
                    false
                })
            };
            let waiter: Box<dyn FnOnce() -> bool + Send> = {
                let (decision, waits) = (Arc::clone(&decision), Arc::clone(&waits));
                Box::new(move || {
                    *waits.lock().expect("nobody panics") = true;
                    decision.look() == (None, false)
                })
            };
            let sleeps = run(if reversed { vec![waiter, writer] } else { vec![writer, waiter] });
            let sleeps = sleeps.into_iter().any(|sleeps| sleeps);
            assert!(!sleeps || woken.load(Ordering::Relaxed), "it sleeps, and nobody wakes it");
        });
    }
}
