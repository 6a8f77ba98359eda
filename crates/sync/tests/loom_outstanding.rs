//! All interleavings of pieces that end, one of which made another.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_outstanding` for NAME in
//! `outstanding_finish`.
#![cfg(loom)]

mod explore;

use eris_sync::Outstanding;
use explore::{explore, run};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};

#[test]
fn loom_outstanding_ends_once_and_sees_all() {
    explore(|reversed| {
        let outstanding = Arc::new(Outstanding::new());
        let done = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        outstanding.add(2);
        let piece = |which: usize| -> Box<dyn FnOnce() -> usize + Send> {
            let (outstanding, done) = (Arc::clone(&outstanding), Arc::clone(&done));
            Box::new(move || {
                let mut last = 0;
                if which == 0 {
                    // It makes another one, which ends first.
                    outstanding.add(1);
                    last += usize::from(outstanding.finish(1));
                }
                done[which].store(true, Ordering::Relaxed);
                if outstanding.finish(1) {
                    last += 1;
                    let seen = [0, 1].map(|which: usize| done[which].load(Ordering::Relaxed));
                    assert_eq!(seen, [true, true], "the last sees what all did");
                }
                last
            })
        };
        let pieces = if reversed { vec![piece(1), piece(0)] } else { vec![piece(0), piece(1)] };
        assert_eq!(run(pieces).iter().sum::<usize>(), 1, "one is the last");
        assert_eq!(outstanding.count(), 0);
    });
}
