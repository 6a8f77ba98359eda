//! All interleavings of few that finish.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_watermark` for NAME in
//! `watermark_fill`, `watermark_look`, `watermark_move`, `watermark_read`, `watermark_fence`.
#![cfg(loom)]

mod explore;

use eris_sync::WatermarkRing;
use explore::{explore, run};
use loom::cell::UnsafeCell;
use loom::sync::Arc;

/// What was done under timestamps 1 and 2.
struct Done([UnsafeCell<u64>; 2]);

// SAFETY: loom checks every access.
unsafe impl Sync for Done {}
// SAFETY: plain numbers.
unsafe impl Send for Done {}

impl Done {
    fn cell(&self, timestamp: u64) -> &UnsafeCell<u64> {
        &self.0[timestamp as usize - 1]
    }
}

type Body = Box<dyn FnOnce() + Send>;

fn in_order(mut threads: Vec<Body>, reversed: bool) {
    if reversed {
        threads.reverse();
    }
    run(threads);
}

/// When all are finished, the watermark is at the last, whoever came when.
#[test]
fn loom_watermark_reaches_the_last() {
    explore(|reversed| {
        let ring = Arc::new(WatermarkRing::new(4, 10));
        assert_eq!([ring.take(), ring.take(), ring.take()], [Some(11), Some(12), Some(13)]);
        let finish = |timestamps: &'static [u64]| -> Body {
            let ring = Arc::clone(&ring);
            Box::new(move || timestamps.iter().for_each(|&timestamp| ring.finish(timestamp)))
        };
        in_order(vec![finish(&[13, 11]), finish(&[12])], reversed);
        assert_eq!(ring.visible(), 13);
    });
}

/// What was done under a timestamp is seen by whoever sees the watermark there, whoever moved it.
#[test]
fn loom_watermark_publishes_what_was_done() {
    explore(|reversed| {
        let ring = Arc::new(WatermarkRing::new(2, 0));
        let done = Arc::new(Done([UnsafeCell::new(0), UnsafeCell::new(0)]));
        assert_eq!([ring.take(), ring.take()], [Some(1), Some(2)]);
        let finish = |timestamp: u64| -> Body {
            let (ring, done) = (Arc::clone(&ring), Arc::clone(&done));
            Box::new(move || {
                // SAFETY: each writes its own cell, and loom checks the readers.
                done.cell(timestamp).with_mut(|cell| unsafe { *cell = timestamp });
                ring.finish(timestamp);
            })
        };
        let read: Body = {
            let (ring, done) = (Arc::clone(&ring), Arc::clone(&done));
            Box::new(move || {
                let visible = ring.visible();
                for timestamp in 1..=visible {
                    // SAFETY: the watermark says that the writer is finished; loom checks it.
                    assert_eq!(done.cell(timestamp).with(|cell| unsafe { *cell }), timestamp);
                }
                assert!(ring.visible() >= visible, "the watermark fell");
            })
        };
        in_order(vec![finish(1), finish(2), read], reversed);
        assert_eq!(ring.visible(), 2);
    });
}

/// A full ring gives out nothing, and a slot is used again while others look at it.
#[test]
fn loom_watermark_reuses_slots() {
    explore(|reversed| {
        let ring = Arc::new(WatermarkRing::new(2, 0));
        assert_eq!([ring.take(), ring.take(), ring.take()], [Some(1), Some(2), None]);
        let (one, other) = (Arc::clone(&ring), Arc::clone(&ring));
        let first: Body = Box::new(move || {
            one.finish(1);
            if let Some(timestamp) = one.take() {
                assert_eq!(timestamp, 3);
                one.finish(timestamp);
            }
        });
        let second: Body = Box::new(move || other.finish(2));
        in_order(vec![first, second], reversed);
        assert_eq!(ring.visible(), ring.taken());
        assert_eq!(ring.visible(), 3, "a timestamp was finished before another was asked for");
    });
}
