//! All interleavings of two that try.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_try_latch` for NAME in
//! `try_latch_try`, `try_latch_unlock`.
#![cfg(loom)]

mod explore;

use eris_sync::TryLatch;
use explore::{explore, run};
use loom::sync::Arc;

#[test]
fn loom_try_latch_excludes_and_hands_on() {
    explore(|_| {
        let latch = Arc::new(TryLatch::new(0_u64));
        let raise = |latch: Arc<TryLatch<u64>>| -> Box<dyn FnOnce() -> u64 + Send> {
            Box::new(move || {
                latch.try_lock().map_or(0, |mut value| {
                    *value += 1;
                    1
                })
            })
        };
        let raised: u64 = run(vec![raise(Arc::clone(&latch)), raise(Arc::clone(&latch))]).iter().sum();
        assert!(raised >= 1, "both found the latch taken");
        assert_eq!(*latch.try_lock().unwrap(), raised);
    });
}
