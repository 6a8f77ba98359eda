//! Random histories of inserts, updates, deletes, reads, pins, saved cursors, commits, aborts, bulk loads, splits and
//! maintenance, compared with a reference that knows nothing of segments.

use crate::history::driver::{Driver, coverage};

/// Fewer seeds need not reach everything.
const SEEDS_FOR_COVERAGE: usize = 200;

fn run(seeds: std::ops::Range<u64>, steps: usize) {
    let enough = seeds.clone().count() >= SEEDS_FOR_COVERAGE;
    let mut counters = Vec::new();
    for seed in seeds {
        counters.extend(Driver::new(seed).run(steps));
    }
    let coverage = coverage(&counters);
    println!("{coverage:?}");
    let reached = coverage.values().all(|count| *count > 0);
    assert!(reached || !enough, "some event never happened: {coverage:?}");
}

/// `ERIS_SEEDS=1000` runs more, `ERIS_SEEDS=from..to` others.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ERIS_SEEDS") else { return 0..300 };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    from.parse().unwrap()..to.parse().unwrap()
}

#[cfg(not(feature = "bug_visibility"))]
#[test]
fn stores_agree_with_the_reference() {
    run(seeds(), 600);
}

/// The planted bug must be found.
#[cfg(feature = "bug_visibility")]
#[test]
#[should_panic(expected = "seed")]
fn visibility_off_by_one_is_found() {
    run(seeds(), 600);
}
