//! Checkpoints that nobody asks for: by the size of the log, and by the time since the first commit behind the last
//! one; and what follows one that failed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::time::Duration;

use eris_durability::DurabilityOptions;
use eris_platform::SimulatedEnv;
use shelf::{PATH, Shelf, files, is, open_or_panic, options, try_open};

const NEVER: Duration = Duration::from_hours(10_000);

fn opened(env: &SimulatedEnv, checkpoint_log_bytes: u64, checkpoint_interval: Duration) -> Shelf {
    let options = DurabilityOptions { checkpoint_log_bytes, checkpoint_interval, ..options() };
    let mut shelf = try_open(env, &options).unwrap_or_else(|error| panic!("the database opens: {error}"));
    shelf.create();
    shelf
}

fn sleep(shelf: &mut Shelf, span: Duration) {
    let engine = shelf.engine();
    let slept = async move { engine.sleep_until(engine.env().now() + span).await };
    shelf.simulation.block_on(slept).expect("ends");
}

/// The last checkpoint, if there is one.
fn manifest(env: &SimulatedEnv) -> Option<Vec<u8>> {
    env.simulated_files().contents(format!("{PATH}/checkpoint/manifest"))
}

fn log_bytes(shelf: &Shelf) -> u64 {
    shelf.database.as_ref().expect("open").log().statistics().bytes
}

#[test]
fn a_checkpoint_comes_whenever_the_log_has_grown_by_so_many_bytes() {
    const BYTES: u64 = 10_000;
    let env = SimulatedEnv::new(1);
    let mut shelf = opened(&env, BYTES, NEVER);
    let (mut key, mut before) = (0, None);
    for round in 0..4 {
        // What comes while a checkpoint is taken counts for the next one, so that this one may come early.
        let (begun, mut rows) = (log_bytes(&shelf), 0);
        while manifest(&env) == before {
            let grown = log_bytes(&shelf) - begun;
            assert!(grown < BYTES + 1_000, "round {round}: {grown} bytes of log and no checkpoint");
            shelf.insert(key..key + 1);
            (key, rows) = (key + 1, rows + 1);
            sleep(&mut shelf, Duration::from_millis(20));
        }
        let grown = log_bytes(&shelf) - begun;
        assert!(grown > BYTES * 9 / 10, "round {round}: a checkpoint after {grown} bytes, {rows} rows");
        before = manifest(&env);
        sleep(&mut shelf, Duration::from_hours(1));
        assert_eq!(manifest(&env), before, "round {round}: nothing was written since, and another checkpoint came");
    }
    let logs = files(&env).iter().filter(|(path, _)| is(path, "log")).count() as u64;
    let all = log_bytes(&shelf) / options().log_file_bytes;
    assert!(logs < all / 2, "{logs} of {all} log files are there: those in front of a checkpoint go");
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..key).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_comes_a_while_after_the_first_commit_behind_the_last_one() {
    const INTERVAL: Duration = Duration::from_mins(5);
    let env = SimulatedEnv::new(2);
    let mut shelf = opened(&env, u64::MAX, INTERVAL);
    // The table is a first change.
    sleep(&mut shelf, INTERVAL + Duration::from_secs(1));
    let mut before = manifest(&env);
    assert!(before.is_some(), "the table is in a checkpoint");
    for key in 0..3 {
        sleep(&mut shelf, INTERVAL * 10);
        assert_eq!(manifest(&env), before, "without changes there is no further checkpoint");
        shelf.insert(2 * key..2 * key + 1);
        sleep(&mut shelf, INTERVAL.saturating_sub(Duration::from_secs(2)));
        // A later commit does not put it off.
        shelf.insert(2 * key + 1..2 * key + 2);
        assert_eq!(manifest(&env), before, "not yet");
        sleep(&mut shelf, Duration::from_secs(3));
        assert_ne!(manifest(&env), before, "the interval is over");
        before = manifest(&env);
    }
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..6).collect::<Vec<_>>());
}

/// Another process takes the directory of checkpoints away, or gives it back.
fn take_away(env: &SimulatedEnv, is_taken: bool) {
    let (place, away) = (format!("{PATH}/checkpoint"), format!("{PATH}/away"));
    let (from, to) = if is_taken { (&place, &away) } else { (&away, &place) };
    env.simulated_files().move_directory(from, to);
}

#[test]
fn a_checkpoint_that_failed_is_tried_again_after_each_interval_until_one_succeeds() {
    const INTERVAL: Duration = Duration::from_mins(5);
    let env = SimulatedEnv::new(3);
    let mut shelf = opened(&env, u64::MAX, INTERVAL);
    let operations = || env.simulated_files().operations();
    take_away(&env, true);
    for key in 0..4 {
        // Commits go on.
        shelf.insert(key..key + 1);
        sleep(&mut shelf, Duration::from_secs(1));
        let before = operations();
        sleep(&mut shelf, INTERVAL);
        assert!(operations() > before, "try {key}: nothing was tried");
        assert_eq!(manifest(&env), None, "there is no place for it");
    }
    take_away(&env, false);
    // Nothing was written since the last try.
    sleep(&mut shelf, INTERVAL + Duration::from_secs(1));
    assert!(manifest(&env).is_some(), "with a place for it the next try succeeds");
    let before = operations();
    sleep(&mut shelf, INTERVAL * 10);
    assert_eq!(operations(), before, "nothing is left to be tried again");
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), [0, 1, 2, 3]);
}

#[test]
fn a_checkpoint_that_failed_is_tried_again_when_the_log_has_grown_once_more() {
    const BYTES: u64 = 10_000;
    let env = SimulatedEnv::new(4);
    let mut shelf = opened(&env, BYTES, NEVER);
    let mut key = 0;
    let mut grow_by = |shelf: &mut Shelf, bytes: u64, is_enough: &dyn Fn() -> bool| {
        let begun = log_bytes(shelf);
        while log_bytes(shelf) - begun < bytes && !is_enough() {
            shelf.insert(key..key + 1);
            key += 1;
            sleep(shelf, Duration::from_millis(20));
        }
    };
    take_away(&env, true);
    grow_by(&mut shelf, BYTES * 5 / 2, &|| false);
    assert_eq!(manifest(&env), None, "there is no place for it");
    take_away(&env, false);
    grow_by(&mut shelf, BYTES + 1_000, &|| manifest(&env).is_some());
    assert!(manifest(&env).is_some(), "no checkpoint after {BYTES} further bytes of log");
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..key).collect::<Vec<_>>());
}
