//! Nobody uses what a collector took for unused.
//!
//! Must fail when weakened:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom_oldest` for NAME in
//! `oldest_leave`, `oldest_look`, `oldest_user_fence`, `oldest_collector_fence`.
#![cfg(loom)]

use eris_sync::OldestInUse;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// A collector that believes a value to be unused is right at that moment and for ever.
#[test]
fn loom_oldest_is_not_above_what_is_used() {
    loom::model(|| {
        let slots = Arc::new(OldestInUse::new(2));
        let now = Arc::new(AtomicU64::new(1));
        let collected = {
            let (slots, now) = (Arc::clone(&slots), Arc::clone(&now));
            thread::spawn(move || {
                now.store(2, Ordering::Release);
                slots.oldest(|| now.load(Ordering::Acquire))
            })
        };
        let used = slots.announce(0, || now.load(Ordering::Acquire));
        let collected = collected.join().unwrap();
        assert!(collected <= used, "{used} is in use, and all below {collected} was collected");
        assert!(slots.oldest(|| 2) <= used);
        slots.replace(0, None);
        assert!(slots.is_empty() && slots.oldest(|| 2) == 2);
    });
}

/// What was read under a value was read before a collector throws it away.
#[test]
fn loom_oldest_orders_use_before_collection() {
    loom::model(|| {
        let slots = Arc::new(OldestInUse::new(1));
        let now = Arc::new(AtomicU64::new(1));
        let thing = Arc::new(UnsafeCell::new(7));
        let used = slots.announce(0, || now.load(Ordering::Acquire));
        let collector = {
            let (slots, now, thing) = (Arc::clone(&slots), Arc::clone(&now), Arc::clone(&thing));
            thread::spawn(move || {
                now.store(2, Ordering::Release);
                if slots.oldest(|| now.load(Ordering::Acquire)) > used {
                    // SAFETY: nobody uses what belongs to the older value; loom checks it.
                    thing.with_mut(|thing| unsafe { *thing = 0 });
                }
            })
        };
        // SAFETY: it is in use; loom checks it.
        assert_eq!(thing.with(|thing| unsafe { *thing }), 7);
        slots.replace(0, None);
        collector.join().unwrap();
    });
}
