//! A sync that fails ends the log: nothing that comes later is acknowledged, whoever asks is told why, and what is
//! there can be read. A log file that cannot be made ends nothing.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_durability::DurabilityOptions;
use eris_engine::{Durability, Engine, EngineError, LogError};
use eris_platform::simulated::{DiskFaults, FailedSync, FileFault};
use eris_platform::{Env, SimulatedEnv};
use shelf::{PATH, Shelf, TABLE, create_other, open_or_panic, options, row, try_open};

/// A database with five rows, whose next operations on files are a write and a sync for each batch.
fn opened(env: &SimulatedEnv) -> Shelf {
    let opened = try_open(env, &DurabilityOptions { log_file_bytes: 1 << 20, ..options() });
    let mut shelf = opened.unwrap_or_else(|error| panic!("the database opens: {error}"));
    shelf.create();
    shelf.insert(0..5);
    shelf
}

async fn commit(engine: &Engine, key: i64, durability: Durability) -> Result<(), EngineError> {
    let mut transaction = engine.begin();
    transaction.set_durability(durability);
    transaction.insert(TABLE, row(key, &format!("the text of row {key}"))).await?;
    transaction.commit().await.map(drop)
}

fn try_commit(shelf: &mut Shelf, key: i64, durability: Durability) -> Result<(), EngineError> {
    let engine = shelf.engine();
    shelf.simulation.block_on(async move { commit(&engine, key, durability).await }).expect("ends")
}

fn assert_failed<T>(outcome: Result<T, EngineError>, what: &str) {
    match outcome.map(drop).expect_err(what) {
        EngineError::Log(error @ LogError::Failed { is_over: true, .. }) => {
            let text = error.to_string();
            assert!(text.contains("no more commits are accepted") && text.contains("Input/output error"), "{text}");
        }
        other => panic!("{what}: {other}"),
    }
}

/// Whatever a failed sync does to what was written, and whether the kernel would call the next one a success.
#[test]
fn after_a_failed_sync_no_commit_is_acknowledged_any_more() {
    for (seed, failed_sync) in [FailedSync::LosesWrites, FailedSync::KeepsWrites].into_iter().enumerate() {
        let env = SimulatedEnv::new(seed as u64);
        env.simulated_files().set_disk_faults(DiskFaults { failed_sync, ..DiskFaults::default() });
        let mut shelf = opened(&env);
        let files = env.simulated_files();
        files.fail_at(files.operations() + 1, FileFault::Broken);
        assert_failed(try_commit(&mut shelf, 5, Durability::Synchronous), "its sync failed");
        let syncs = shelf.database.as_ref().expect("open").log().statistics().syncs;
        for (key, durability) in
            [(6, Durability::Synchronous), (7, Durability::Asynchronous), (8, Durability::Synchronous)]
        {
            assert_failed(try_commit(&mut shelf, key, durability), "the log has failed");
        }
        assert_failed(create_other(&shelf.engine()), "nor a table");
        let checkpoint = shelf.try_checkpoint().expect_err("a checkpoint needs the log").to_string();
        assert!(checkpoint.contains("no more commits are accepted"), "{checkpoint}");
        assert_eq!(shelf.database.as_ref().expect("open").log().statistics().syncs, syncs, "it is not tried again");
        assert_eq!(shelf.keys(), [0, 1, 2, 3, 4], "what was acknowledged can be read");
        drop(shelf);
        env.lose_power();
        // Whether the commit whose sync failed is there nobody was told.
        let found = open_or_panic(&env).keys();
        assert!(found == [0, 1, 2, 3, 4] || found == [0, 1, 2, 3, 4, 5], "{failed_sync:?}: {found:?}");
    }
}

/// Also those whose records are behind the failed batch already.
#[test]
fn commits_that_wait_behind_a_failed_sync_fail_with_it() {
    let env = SimulatedEnv::new(9);
    let mut shelf = opened(&env);
    let files = env.simulated_files();
    files.fail_at(files.operations() + 1, FileFault::Broken);
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    for key in 5..25 {
        let (engine, outcomes) = (shelf.engine(), Arc::clone(&outcomes));
        shelf.engine().spawn(async move {
            let outcome = commit(&engine, key, Durability::Synchronous).await;
            outcomes.lock().expect("not poisoned").push(outcome);
        });
    }
    shelf.simulation.run_until(|| outcomes.lock().expect("not poisoned").len() == 20).expect("all end");
    for outcome in std::mem::take(&mut *outcomes.lock().expect("not poisoned")) {
        assert_failed(outcome, "none of them is durable");
    }
}

#[test]
fn a_log_file_that_cannot_be_made_refuses_commits_until_it_can_be() {
    let env = SimulatedEnv::new(10);
    let opened = try_open(&env, &DurabilityOptions { log_file_bytes: 8 << 10, ..options() });
    let mut shelf = opened.unwrap_or_else(|error| panic!("the database opens: {error}"));
    shelf.create();
    shelf.insert(0..1);
    // The next log files cannot have their names.
    let taken = (1..20).map(|number| PathBuf::from(format!("{PATH}/log/{number}.spare"))).collect::<Vec<_>>();
    for name in &taken {
        env.files().create_directory(name).expect("it is free");
    }
    let refused = |shelf: &mut Shelf, key| try_commit(shelf, key, Durability::Synchronous).err();
    let (next, error) =
        (1..1_000).find_map(|key| Some((key, refused(&mut shelf, key)?))).expect("the file there is has an end");
    assert!(next > 20, "{next} commits went into the file there is");
    match &error {
        EngineError::Log(LogError::Failed { reason, is_over: false }) => {
            assert!(reason.contains("File exists"), "{reason}");
        }
        other => panic!("not for want of room: {other}"),
    }
    assert!(!error.to_string().contains("no more commits"), "{error}");
    assert!(refused(&mut shelf, next).is_some(), "and again");
    assert_eq!(shelf.keys(), (0..next).collect::<Vec<_>>());
    for name in &taken {
        env.files().remove_directory(name).expect("it is empty");
    }
    let engine = shelf.engine();
    let slept = async move { engine.sleep_until(engine.env().now() + Duration::from_secs(2)).await };
    shelf.simulation.block_on(slept).expect("ends");
    shelf.insert(next..next + 100);
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..next + 100).collect::<Vec<_>>(), "nothing is lost");
}
