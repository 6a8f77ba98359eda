//! Who shares a sync with whom.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use eris_durability::{DurabilityOptions, LogStatistics};
use eris_engine::{Durability, Engine, EngineError};
use eris_platform::SimulatedEnv;
use eris_platform::simulated::{DiskFaults, PerMille};
use shelf::{Shelf, TABLE, open_or_panic, options, row, try_open};

const OTHERS: i64 = 60;

/// A commit on its way, as far as it gets without waiting.
async fn begin_commit(engine: &Engine, key: i64) -> Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>> {
    let mut transaction = engine.begin();
    transaction.set_durability(Durability::Synchronous);
    transaction.insert(TABLE, row(key, &format!("the text of row {key}"))).await.expect("it is new");
    let mut commit: Pin<Box<dyn Future<Output = _> + Send>> =
        Box::pin(async move { transaction.commit().await.map(drop) });
    let polled = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await;
    assert!(polled.is_pending(), "a commit waits for the disk");
    commit
}

/// A database on a disk that takes its time: nothing is written before everybody waits.
fn opened(env: &SimulatedEnv) -> Shelf {
    let latency = Duration::from_millis(10);
    let faults = DiskFaults { latency_min: latency, latency_max: latency, slow: PerMille(0), ..DiskFaults::default() };
    env.simulated_files().set_disk_faults(faults);
    let opened = try_open(env, &DurabilityOptions { log_file_bytes: 1 << 20, ..options() });
    let mut shelf = opened.unwrap_or_else(|error| panic!("the database opens: {error}"));
    shelf.create();
    shelf.insert(0..1);
    shelf
}

fn statistics(shelf: &Shelf) -> LogStatistics {
    shelf.database.as_ref().expect("open").log().statistics()
}

/// One commit finds the log idle; all that come while it is written share the next sync, however many they are.
#[test]
fn commits_that_come_while_a_batch_is_written_share_one_sync() {
    let env = SimulatedEnv::new(1);
    let mut shelf = opened(&env);
    let (engine, before) = (shelf.engine(), statistics(&shelf));
    let committed = async move {
        let first = begin_commit(&engine, 1).await;
        let mut others = Vec::new();
        for key in 2..2 + OTHERS {
            others.push(begin_commit(&engine, key).await);
        }
        first.await.expect("commits");
        for other in others {
            other.await.expect("commits");
        }
    };
    shelf.simulation.block_on(committed).expect("ends");
    let after = statistics(&shelf);
    assert_eq!((after.commits - before.commits, after.syncs - before.syncs), (1 + OTHERS as u64, 2));
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), (0..2 + OTHERS).collect::<Vec<_>>());
}

/// Nobody waits for company: commits one behind the other have a sync each.
#[test]
fn a_commit_that_finds_the_log_idle_is_written_at_once_and_alone() {
    let env = SimulatedEnv::new(2);
    let mut shelf = opened(&env);
    let before = statistics(&shelf);
    shelf.insert(1..21);
    let after = statistics(&shelf);
    assert_eq!((after.commits - before.commits, after.syncs - before.syncs), (20, 20));
}
