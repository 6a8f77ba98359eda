//! TATP over the task API: every configuration leaves consistent tables and finds what the rules say.

use eris_engine::{Engine, EngineError, EngineOptions};
use eris_platform::RealEnv;
use eris_storage::Layout;
use eris_workloads::tatp::task::{Containers, StorageOptions, TaskClient};
use eris_workloads::tatp::{
    ArrivalOptions, Consistency, KeyDistribution, Population, PopulationOptions, RunOptions, RunResult, Statistics,
    TransactionKind, check, run_arrivals_beside, run_over_tasks,
};
use std::sync::Arc;
use std::time::Duration;

const SUBSCRIBERS: u32 = 2_000;

fn population() -> Arc<Population> {
    // Permuted numbers: whoever computes s_id from sub_nbr changes the wrong rows, which the check sees.
    let options = PopulationOptions { permuted_numbers: true, ..PopulationOptions::new(SUBSCRIBERS) };
    Arc::new(Population::new(options))
}

fn run(engine_options: EngineOptions, storage: StorageOptions) -> Result<(RunResult, Consistency), EngineError> {
    let engine = Engine::start(Arc::new(RealEnv::new()), engine_options)?;
    let population = population();
    let containers = Containers::create(&engine, storage)?;
    let (loading, loaded) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &loaded).await })??;
    let options = RunOptions {
        clients: 8,
        warm_up: Duration::from_millis(100),
        measured: Duration::from_millis(900),
        keys: KeyDistribution::NonUniform,
        seed: 5,
    };
    let result = run_over_tasks(&engine, containers, &population, &options, &mut |_| {})?;
    let consistency = check(&population, &result.statistics.forwarding_changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    });
    engine.shutdown();
    Ok((result, consistency?))
}

fn assert_ratio(statistics: &Statistics, kind: TransactionKind, expected: std::ops::RangeInclusive<f64>) {
    let counts = statistics.of(kind);
    let ratio = counts.success_ratio().unwrap_or(f64::NAN);
    assert!(expected.contains(&ratio), "{}: {ratio} of {}", kind.name(), counts.completed());
}

fn assert_run(engine_options: EngineOptions, storage: StorageOptions) {
    let described = format!("{engine_options:?}, {storage:?}");
    let (result, consistency) = match run(engine_options, storage) {
        Ok(run) => run,
        Err(error) => panic!("{described}: {error}"),
    };
    assert!(consistency.is_consistent(), "{described}: {:?}", consistency.examples);
    let statistics = &result.statistics;
    assert!(statistics.completed() > 2_000, "{described}: {} transactions", statistics.completed());
    assert_ratio(statistics, TransactionKind::GetSubscriberData, 1.0..=1.0);
    assert_ratio(statistics, TransactionKind::UpdateLocation, 1.0..=1.0);
    assert_ratio(statistics, TransactionKind::GetAccessData, 0.55..=0.70);
    assert_ratio(statistics, TransactionKind::GetNewDestination, 0.08..=0.30);
}

fn options(workers: usize, nodes: usize) -> EngineOptions {
    EngineOptions { workers, nodes, ..EngineOptions::default() }
}

#[test]
fn one_worker_one_partition() {
    assert_run(options(1, 1), StorageOptions::default());
}

#[test]
fn two_workers_many_partitions() {
    assert_run(options(2, 1), StorageOptions { partitions: Some(7), ..StorageOptions::default() });
}

#[test]
fn two_nodes_by_messages_only() {
    let engine = EngineOptions { in_place: false, ..options(2, 2) };
    assert_run(engine, StorageOptions { partitions: Some(4), ..StorageOptions::default() });
}

#[test]
fn small_segments_and_splits_under_every_layout() {
    for layout in [Layout::Row, Layout::Column, Layout::Mixed] {
        let engine = EngineOptions { split_rows: 1_500, ..options(2, 1) };
        let hashed_keys = layout == Layout::Mixed;
        assert_run(engine, StorageOptions { layout, segment_rows: 256, partitions: None, hashed_keys });
    }
}

#[test]
fn transactions_arrive_by_the_clock_for_as_long_as_the_work_takes() -> Result<(), EngineError> {
    let engine = Engine::start(Arc::new(RealEnv::new()), EngineOptions { workers: 2, ..EngineOptions::default() })?;
    let population = population();
    let containers = Containers::create(&engine, StorageOptions::default())?;
    let (loading, loaded) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &loaded).await })??;
    let options =
        ArrivalOptions { clients: 3, transactions_per_s: 2_000.0, keys: KeyDistribution::NonUniform, seed: 7 };
    let (sleeper, until) = (engine.clone(), engine.env().now() + Duration::from_millis(300));
    let work = async move { sleeper.sleep_until(until).await };
    let client = TaskClient::new(&engine, containers);
    let (run, ()) = run_arrivals_beside(&client, &population, &options, work)?;
    // The work may end late on a busy machine, and the last of the transactions that are due then may be left.
    let (done, due) = (run.statistics.completed() as f64, 2_000.0 * run.measured.as_secs_f64());
    assert!(done > 100.0 && done <= due + 3.0, "{done} of {due} transactions");
    assert_eq!(run.statistics.latency().count(), run.statistics.completed());
    let consistency = check(&population, &run.statistics.forwarding_changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    })?;
    assert!(consistency.is_consistent(), "{:?}", consistency.examples);
    engine.shutdown();
    Ok(())
}
