//! When workers look for the end of a commit instead of going to sleep: where the disk is fast, and somebody waits.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use eris_engine::{CommitLog, Durability};
use eris_platform::simulated::{DiskFaults, PerMille};
use eris_platform::{NodeId, SimulatedEnv};
use shelf::{TABLE, open_or_panic, row};

/// Whether the log said so while the last of a few lone commits was on its way.
fn is_looked_for(durability: Durability, latency: Duration) -> bool {
    let env = SimulatedEnv::new(1);
    let faults = DiskFaults { latency_min: latency, latency_max: latency, slow: PerMille(0), ..DiskFaults::default() };
    env.simulated_files().set_disk_faults(faults);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    let (engine, log) = (shelf.engine(), shelf.database.as_ref().expect("open").log().clone());
    let told = shelf.simulation.block_on(async move {
        let mut told = false;
        for key in 0..20 {
            let mut transaction = engine.begin();
            transaction.set_durability(durability);
            transaction.insert(TABLE, row(key, "")).await.expect("it is new");
            let mut commit = pin!(transaction.commit());
            told = false;
            let done = poll_fn(|context| {
                let polled = commit.as_mut().poll(context);
                let node = log.about_to_tell();
                told |= node.is_some();
                assert!(node.is_none_or(|node| node == NodeId(0)), "where the task is that decides");
                polled
            });
            done.await.expect("commits");
            assert_eq!(log.about_to_tell(), None, "it was told: nobody waits for commit {key} any more");
        }
        told
    });
    told.expect("ends")
}

#[test]
fn fast_commits_are_looked_for_and_no_others() {
    assert!(is_looked_for(Durability::Synchronous, Duration::from_micros(100)));
    assert!(!is_looked_for(Durability::Synchronous, Duration::from_micros(400)), "they sleep");
    assert!(!is_looked_for(Durability::Asynchronous, Duration::from_micros(100)), "nobody waits");
}
