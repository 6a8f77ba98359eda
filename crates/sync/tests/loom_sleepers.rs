//! All interleavings of a sleeper's last look and a waker's claim.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_sleepers` for NAME in
//! `sleepers_announce_fence`, `sleepers_claim_fence`,
//! `sleepers_stop_watching_fence`.
#![cfg(loom)]

mod explore;

use eris_sync::{Claimed, DoubleBuffer, Drain, Sleepers};
use explore::{explore, run};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Work for a certain worker: it does not block while the waker leaves without having claimed it.
#[test]
fn loom_sleepers_lose_no_wake_up() {
    explore(|waker_first| {
        let sleepers = Arc::new(Sleepers::new(1));
        let work = Arc::new(AtomicBool::new(false));
        let sleeper: Box<dyn FnOnce() -> bool + Send> = {
            let (sleepers, work) = (Arc::clone(&sleepers), Arc::clone(&work));
            Box::new(move || {
                sleepers.announce(0);
                let blocks = !work.load(Ordering::Relaxed);
                if !blocks {
                    sleepers.retract(0);
                }
                blocks
            })
        };
        let waker: Box<dyn FnOnce() -> bool + Send> = {
            let sleepers = Arc::clone(&sleepers);
            Box::new(move || {
                work.store(true, Ordering::Relaxed);
                sleepers.claim(0)
            })
        };
        let (blocks, claimed) = if waker_first {
            let results = run(vec![waker, sleeper]);
            (results[1], results[0])
        } else {
            let results = run(vec![sleeper, waker]);
            (results[0], results[1])
        };
        assert!(!blocks || claimed, "the worker sleeps, its work lies there, and nobody unparks it");
        assert_eq!(sleepers.asleep(), 0);
    });
}

/// The same with a real inbox as the work, and work for anybody.
#[test]
fn loom_sleepers_lose_no_message() {
    explore(|_| {
        let sleepers = Arc::new(Sleepers::new(1));
        let (producer, consumer) = DoubleBuffer::new(8);
        let sleeper = {
            let sleepers = Arc::clone(&sleepers);
            thread::spawn(move || {
                sleepers.announce(0);
                let blocks = !consumer.has_work();
                if !blocks {
                    sleepers.retract(0);
                }
                (blocks, consumer)
            })
        };
        let waker = {
            let sleepers = Arc::clone(&sleepers);
            thread::spawn(move || {
                producer.append(&[1]).unwrap();
                sleepers.claim_one()
            })
        };
        let (blocks, mut consumer) = sleeper.join().unwrap();
        let claimed = waker.join().unwrap();
        assert!(!blocks || claimed == Some(Claimed::Sleeper(0)), "the worker sleeps over a message");
        assert_eq!(consumer.try_drain(|_| {}), Drain::Drained(8));
    });
}

/// A worker that watched and goes to sleep: work that was given to the watcher is seen by its last look.
#[test]
fn loom_sleepers_watch_and_lose_nothing() {
    explore(|waker_first| {
        let sleepers = Arc::new(Sleepers::new(1));
        let work = Arc::new(AtomicBool::new(false));
        assert!(sleepers.watch(0));
        let sleeper: Box<dyn FnOnce() -> Option<Claimed> + Send> = {
            let (sleepers, work) = (Arc::clone(&sleepers), Arc::clone(&work));
            Box::new(move || {
                sleepers.stop_watching(0);
                sleepers.announce(0);
                let blocks = !work.load(Ordering::Relaxed);
                if !blocks {
                    sleepers.retract(0);
                }
                blocks.then_some(Claimed::Sleeper(0))
            })
        };
        let waker: Box<dyn FnOnce() -> Option<Claimed> + Send> = {
            let sleepers = Arc::clone(&sleepers);
            Box::new(move || {
                work.store(true, Ordering::Relaxed);
                sleepers.claim_one()
            })
        };
        let results = run(if waker_first { vec![waker, sleeper] } else { vec![sleeper, waker] });
        let (claimed, blocks) = if waker_first { (results[0], results[1]) } else { (results[1], results[0]) };
        assert!(blocks.is_none() || claimed == blocks, "the worker sleeps over work, claimed: {claimed:?}");
    });
}

/// Two workers, and work beside what the one who watches found: if that keeps it busy, the other one does not sleep
/// over the rest. `again`: the watcher did not notice that it was claimed, and watches once more first.
fn loom_busy_watcher(again: bool) {
    explore(move |waker_first| {
        const SLEEPER: usize = 0;
        const WATCHER: usize = 1;
        let sleepers = Arc::new(Sleepers::new(2));
        let work = Arc::new(AtomicBool::new(false));
        assert!(sleepers.watch(WATCHER));
        sleepers.announce(SLEEPER);
        let watcher: Box<dyn FnOnce() -> Option<Claimed> + Send> = {
            let (sleepers, work) = (Arc::clone(&sleepers), Arc::clone(&work));
            Box::new(move || {
                if again {
                    sleepers.watch(WATCHER);
                }
                // It has found something: from here on it does that and nothing else.
                sleepers.stop_watching(WATCHER);
                work.load(Ordering::Relaxed).then(|| sleepers.claim_one()).flatten()
            })
        };
        let waker: Box<dyn FnOnce() -> Option<Claimed> + Send> = {
            let sleepers = Arc::clone(&sleepers);
            Box::new(move || {
                work.store(true, Ordering::Relaxed);
                sleepers.claim_one()
            })
        };
        let claimed = run(if waker_first { vec![waker, watcher] } else { vec![watcher, waker] });
        let woken = claimed.contains(&Some(Claimed::Sleeper(SLEEPER)));
        assert!(
            woken,
            "the work lies there, the watcher does something else, and the other worker sleeps: {claimed:?}"
        );
    });
}

#[test]
fn loom_sleepers_are_woken_beside_a_busy_watcher() {
    loom_busy_watcher(false);
}

#[test]
fn loom_sleepers_are_woken_beside_a_busy_watcher_that_looked_twice() {
    loom_busy_watcher(true);
}

/// Two pieces of work that anybody can do wake two sleepers, never the same one twice.
#[test]
fn loom_sleepers_are_claimed_once() {
    explore(|_| {
        let sleepers = Arc::new(Sleepers::new(2));
        sleepers.announce(0);
        sleepers.announce(1);
        let claim = |sleepers: Arc<Sleepers>| -> Box<dyn FnOnce() -> Option<Claimed> + Send> {
            Box::new(move || sleepers.claim_one())
        };
        let mut claimed = run(vec![claim(Arc::clone(&sleepers)), claim(Arc::clone(&sleepers))]);
        claimed.sort_unstable();
        assert_eq!(claimed, [Some(Claimed::Sleeper(0)), Some(Claimed::Sleeper(1))]);
        assert_eq!(sleepers.claims(), 2);
    });
}

/// A worker whose block a timer ends while it is being claimed learns of the claim.
#[test]
fn loom_sleepers_retract_or_are_claimed() {
    explore(|reversed| {
        let sleepers = Arc::new(Sleepers::new(1));
        sleepers.announce(0);
        let (one, other) = (Arc::clone(&sleepers), Arc::clone(&sleepers));
        let claim: Box<dyn FnOnce() -> bool + Send> = Box::new(move || one.claim(0));
        let retract: Box<dyn FnOnce() -> bool + Send> = Box::new(move || other.retract(0));
        let cleared = run(if reversed { vec![retract, claim] } else { vec![claim, retract] });
        assert_ne!(cleared[0], cleared[1], "exactly one of them clears the bit");
    });
}
