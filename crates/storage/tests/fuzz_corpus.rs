//! The inputs of the fuzz target `segment`, and as many of random bytes, without a fuzzer.

#![allow(clippy::unreachable, reason = "a test fails by panicking")]

#[path = "../../../fuzz/src/segment.rs"]
mod segment;
#[path = "../../../fuzz/src/segment_input.rs"]
mod segment_input;

use std::path::Path;

use eris_platform::SeededRandom;
use eris_storage::StoreCounters;

#[test]
fn segments_of_the_corpus_give_back_what_they_got() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/segment");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&directory).expect("the corpus is there") {
        segment::segments(&std::fs::read(entry.expect("a file").path()).expect("readable"));
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs} inputs");
}

#[test]
fn segments_of_random_bytes_give_back_what_they_got() {
    let mut random = SeededRandom::new(1);
    let mut exercised = StoreCounters::default();
    for number in 0..300_u64 {
        let length = random.below(1_500) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let counters = std::panic::catch_unwind(|| segment::segments(&bytes));
        exercised.add(&counters.unwrap_or_else(|_| panic!("input {number}")));
    }
    let StoreCounters { sealed, attached, thawed, compacted, rebuilt, splits, relocated, .. } = exercised;
    for count in [sealed, attached, thawed, compacted, rebuilt, splits, relocated] {
        assert!(count > 0, "segments change their format in every way: {exercised:?}");
    }
}
