//! Nobody gets a number twice, also when two share a slot whose block is used up.
//!
//! No ordering matters here: each number is taken by one atomic step.
#![cfg(loom)]

use eris_sync::NumberBlocks;
use loom::sync::Arc;
use loom::thread;

#[test]
fn loom_numbers_are_unique() {
    loom::model(|| {
        let numbers = Arc::new(NumberBlocks::new(2));
        let others: Vec<_> = [0, 1]
            .map(|slot| {
                let numbers = Arc::clone(&numbers);
                thread::spawn(move || [numbers.next(slot), numbers.next(slot)])
            })
            .into();
        let mut all = vec![numbers.next(0)];
        all.extend(others.into_iter().flat_map(|other| other.join().unwrap()));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
    });
}
