//! All interleavings of two who have work and the one who takes the thing out of the queue.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_queued_flag` for NAME in
//! `queued_flag_mark`, `queued_flag_unmark`, `queued_flag_store`.
#![cfg(loom)]

mod explore;

use eris_sync::QueuedFlag;
use explore::{explore, run};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

/// A piece of work is seen by the visit under way, or the thing is queued again, once.
#[test]
fn loom_queued_flag_loses_no_work() {
    explore(|visitor_first| {
        let flag = Arc::new(QueuedFlag::new());
        let work = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        assert!(flag.mark(), "it is in the queue");
        let visit: Box<dyn FnOnce() -> ([bool; 2], bool) + Send> = {
            let (flag, work) = (Arc::clone(&flag), Arc::clone(&work));
            Box::new(move || {
                flag.unmark();
                ([0, 1].map(|which: usize| work[which].load(Ordering::Relaxed)), false)
            })
        };
        let give = |which: usize| -> Box<dyn FnOnce() -> ([bool; 2], bool) + Send> {
            let (flag, work) = (Arc::clone(&flag), Arc::clone(&work));
            Box::new(move || {
                work[which].store(true, Ordering::Relaxed);
                ([false; 2], flag.mark())
            })
        };
        let threads = if visitor_first { vec![visit, give(0), give(1)] } else { vec![give(0), give(1), visit] };
        let results = run(threads);
        let seen = [0, 1].map(|which| results.iter().any(|(seen, _)| seen[which]));
        let queued = results.iter().filter(|(_, queues)| *queues).count();
        assert!(queued <= 1, "it is in the queue once");
        assert!(seen == [true, true] || queued == 1, "work lies there, and nobody will come: {seen:?}");
        assert_eq!(flag.is_marked(), queued == 1);
    });
}
