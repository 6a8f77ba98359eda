//! Degree of parallelism: how many partitions a statement's reads are under way in at the same time.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eris_engine::{
    ContainerSpec, EngineError, EngineOptions, MicroOperator, OperatorState, Output, Partitioning, Simulation,
};
use eris_platform::{SimulatedEnv, test_load};
use eris_storage::{ContainerId, Gateway, Layout};

use accounts::{KEY, everything, row, schema};

const PARTITIONS: usize = 12;
const ROWS: i64 = 600;
const WORKERS: usize = 4;
/// Of virtual time for each batch: about three quanta for a partition.
const BATCH_TIME: Duration = Duration::from_micros(200);

/// Counts commands between their first batch and their last one.
#[derive(Clone)]
struct Counting {
    env: SimulatedEnv,
    under_way: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    rows: Arc<AtomicUsize>,
    fails: bool,
}

impl Counting {
    fn new(simulation: &Simulation, fails: bool) -> Self {
        let count = Arc::<AtomicUsize>::default;
        Self { env: simulation.env().clone(), under_way: count(), most: count(), rows: count(), fails }
    }
}

impl MicroOperator for Counting {
    fn open(&self) -> Box<dyn OperatorState> {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Box::new(self.clone())
    }
}

impl OperatorState for Counting {
    fn batch(&mut self, gateway: Gateway, _output: &mut Output<'_>) -> Result<(), EngineError> {
        self.env.advance(BATCH_TIME);
        let rows = self.rows.fetch_add(gateway.batch.rows, Ordering::Relaxed);
        if self.fails && rows > 0 { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A table of many partitions.
fn filled(simulation: &mut Simulation) -> ContainerId {
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let id = schema.container;
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: PARTITIONS };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let fill = async move {
        let mut transaction = engine.begin();
        for key in 0..ROWS {
            transaction.insert(id, row(key, key, None)).await.expect("inserted");
        }
        transaction.commit().await.expect("committed");
    };
    simulation.block_on(fill).expect("runs");
    id
}

/// Reads everything; how many partitions were at it at the same time, and the rows.
fn read(seed: u64, parallelism: Option<usize>) -> (usize, usize) {
    let options = EngineOptions { workers: WORKERS, ..EngineOptions::default() };
    let mut simulation = Simulation::new(seed, options).expect("starts");
    let id = filled(&mut simulation);
    let counting = Counting::new(&simulation, false);
    let (engine, operator) = (simulation.engine().clone(), Arc::new(counting.clone()));
    let read = async move {
        let mut transaction = engine.begin();
        transaction.limit_parallelism(parallelism);
        let results = transaction.scan(everything(id), Some(operator)).expect("there");
        results.collect().await.expect("read");
    };
    simulation.block_on(read).expect("runs");
    simulation.run_until_idle().expect("nothing is left over");
    assert_eq!(counting.under_way.load(Ordering::Relaxed), 0);
    (counting.most.load(Ordering::Relaxed), counting.rows.load(Ordering::Relaxed))
}

#[test]
fn as_many_partitions_are_read_at_once_as_the_statement_may() {
    let (mut most, mut unlimited) = ([0; 3], 0);
    for seed in 0..test_load(10) {
        for limit in 1..=3 {
            let (found, rows) = read(seed, Some(limit));
            assert!(found <= limit, "seed {seed}: {found} at once, {limit} at most");
            assert_eq!(rows, ROWS as usize, "seed {seed}, {limit} at once");
            most[limit - 1] = most[limit - 1].max(found);
        }
        let (found, rows) = read(seed, None);
        assert_eq!(rows, ROWS as usize, "seed {seed}");
        unlimited = unlimited.max(found);
    }
    assert_eq!(most, [1, 2, 3], "what is allowed is used");
    assert!(unlimited > 3, "{unlimited} at once without a limit");
}

/// Commands that never got to start are dropped with the others when the dataflow fails, or nobody wants it any more.
#[test]
fn commands_that_wait_for_others_end_with_their_dataflow() {
    for seed in 0..test_load(10) {
        for fails in [true, false] {
            let options = EngineOptions { workers: WORKERS, ..EngineOptions::default() };
            let mut simulation = Simulation::new(seed, options).expect("starts");
            let id = filled(&mut simulation);
            let counting = Counting::new(&simulation, fails);
            let (engine, operator) = (simulation.engine().clone(), Arc::new(counting.clone()));
            let read = async move {
                let mut transaction = engine.begin();
                transaction.limit_parallelism(Some(1));
                let results = transaction.scan(everything(id), Some(operator)).expect("there");
                if fails {
                    results.collect().await.expect_err("it fails");
                } else {
                    drop(results);
                }
            };
            simulation.block_on(read).expect("runs");
            simulation.run_until_idle().expect("nothing is left over");
            let rows = counting.rows.load(Ordering::Relaxed);
            assert!(rows < ROWS as usize, "seed {seed}, fails: {fails}: all rows were read");
            // A command holds its dataflow, and that a snapshot.
            assert_eq!(simulation.engine().statistics().snapshots, 0, "seed {seed}, fails: {fails}");
        }
    }
}
