//! What a crash takes of a sequence: no more values than were logged ahead, and none is given again.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use eris_durability::DurabilityOptions;
use eris_engine::SequenceSpec;
use eris_platform::SimulatedEnv;
use shelf::{Shelf, options, try_open};

/// Values that the log is told of ahead.
const AHEAD: i64 = 32;

fn opened(env: &SimulatedEnv) -> Shelf {
    // Definitions do not wait for a further file.
    let options = DurabilityOptions { log_file_bytes: 1 << 20, ..options() };
    try_open(env, &options).unwrap_or_else(|error| panic!("the database opens: {error}"))
}

/// How many values are missing between those of two lives, of which the first one takes this number.
fn lost(taken: i64, spec: &SequenceSpec, with_checkpoint: bool, with_power: bool) -> i64 {
    let env = SimulatedEnv::new(taken as u64);
    let mut shelf = opened(&env);
    shelf.create();
    let id = shelf.engine().create_sequence(spec).expect("it is made").id();
    let mut last = 0;
    for _ in 0..taken {
        last = shelf.engine().sequence(id).expect("it is there").next().expect("a value");
    }
    // A commit after them: what is before it in the log is durable.
    shelf.insert(0..1);
    if with_checkpoint {
        shelf.checkpoint();
    }
    drop(shelf);
    if with_power {
        env.kill_process();
    } else {
        env.lose_power();
    }
    let mut shelf = opened(&env);
    assert_eq!(shelf.keys(), [0]);
    let next = shelf.engine().sequence(id).expect("it is there").next().expect("a value");
    assert!(next > last, "{next} may have been given before: {last} was");
    assert_eq!((next - last) % spec.increment, 0);
    (next - last) / spec.increment - 1
}

#[test]
fn a_crash_takes_at_most_32_values_of_a_sequence_and_gives_none_again() {
    for (increment, cache) in [(1, 1), (10, 1), (1, 10)] {
        let spec = SequenceSpec { increment, cache, ..SequenceSpec::new("numbers") };
        // What a worker took for itself is lost, too.
        let bound = AHEAD + cache as i64 - 1;
        let mut most = 0;
        for taken in [1, 2, 9, 10, 11, 31, 32, 33, 34, 35, 66, 67, 100] {
            for (with_checkpoint, with_power) in [(false, false), (false, true), (true, false), (true, true)] {
                let lost = lost(taken, &spec, with_checkpoint, with_power);
                assert!(lost <= bound, "{lost} values are lost after {taken} of {spec:?}");
                most = most.max(lost);
            }
        }
        assert_eq!(most, bound, "so many may be lost of {spec:?}");
    }
}
