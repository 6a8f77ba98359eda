//! Sums of one reader never fall, and in the end nothing is missing.
#![cfg(loom)]

use eris_sync::Counter;
use loom::sync::Arc;
use loom::thread;

#[test]
fn loom_counter_sums_only_grow() {
    loom::model(|| {
        let counter = Arc::new(Counter::new(1));
        let worker = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                counter.add(0, 1);
                counter.add(0, 2);
            })
        };
        let outsider = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || counter.add_shared(4))
        };
        let first = counter.sum();
        let second = counter.sum();
        assert!(first <= second, "the sum fell from {first} to {second}");
        worker.join().unwrap();
        outsider.join().unwrap();
        assert_eq!(counter.sum(), 7);
    });
}
