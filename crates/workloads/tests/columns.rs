//! The column workload with tiny inputs: sums and point reads are right, and both can run at the same time.

use eris_engine::{Engine, EngineOptions};
use eris_platform::RealEnv;
use eris_workloads::columns::{
    PointReadsOptions, Shape, capacity, create, expected_sum, run_point_reads, run_point_reads_beside, sum_values,
    value_of,
};
use std::sync::Arc;
use std::time::Duration;

const ROWS: u64 = 150_000;

#[test]
fn sums_and_point_reads_agree_with_the_formula() {
    let options = EngineOptions { workers: 2, parallel_rows: 40_000, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("the engine starts");
    for shape in [Shape::ValuesOnly { partitions: 3 }, Shape::Keyed] {
        let creator = engine.clone();
        let container = engine.block_on(async move { create(&creator, shape, ROWS).await });
        let container = container.expect("the task ends").expect("there is memory");
        let scanner = engine.clone();
        let sum = engine.block_on(async move { sum_values(&scanner, container).await });
        assert_eq!(sum.expect("the task ends").expect("a scan succeeds"), expected_sum(ROWS));
        if shape == Shape::Keyed {
            let possible = capacity(&engine, container, ROWS, Duration::from_millis(50)).expect("reads succeed");
            assert!(possible > 0.0);
            let options = PointReadsOptions {
                container,
                rows: ROWS,
                reads_per_s: 2_000.0,
                duration: Duration::from_millis(200),
                seed: 1,
                beside_scan_of: Some(container),
            };
            let reads = run_point_reads(&engine, options).expect("reads succeed");
            assert_eq!(reads.latency.count(), 400, "as many as were due");
            assert!(reads.scans > 0, "a scan ran beside them");
            let (sleeper, until) = (engine.clone(), engine.env().now() + Duration::from_millis(100));
            let options = PointReadsOptions { duration: Duration::from_mins(1), beside_scan_of: None, ..options };
            let work = async move { sleeper.sleep_until(until).await };
            let (reads, ()) = run_point_reads_beside(&engine, options, work).expect("reads succeed");
            // From a little after the work began to its end, which may be late on a busy machine.
            assert!(reads.latency.count() >= 100, "{} reads", reads.latency.count());
        }
    }
    engine.shutdown();
}

#[test]
fn values_are_spread_and_small_enough_to_be_summed_up() {
    assert_ne!(value_of(1), value_of(2));
    assert!((0..1_000_000).map(value_of).all(|value| (0..1 << 40).contains(&value)));
}
