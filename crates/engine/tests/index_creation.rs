//! An index is created and dropped while partitions split, merge and move and keys rise: whatever becomes of them,
//! every partition has the index when it was created, and none when it was dropped.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod mover;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    ContainerSpec, Definition, Engine, EngineError, EngineOptions, MoveMethod, Partitioning, PlacementError, Simulation,
};
use eris_platform::{NodeId, test_load};
use eris_storage::{
    Batch, ContainerId, IndexDefinition, IndexId, IndexKind, Layout, Schema, SchemaVersion, StorageError,
};

use accounts::{AMOUNT, KEY, row, schema};
use mover::{Mover, move_about, poll_some};

const BY_AMOUNT: IndexId = IndexId(2);
const ROUNDS: usize = 12;
const KEYS: i64 = 120;

fn options(split_rows: u64, quantum: Duration) -> EngineOptions {
    EngineOptions {
        workers: 4,
        nodes: 2,
        quantum,
        split_rows,
        parallel_rows: 1_000_000,
        maintenance_rows: 4,
        ..EngineOptions::default()
    }
}

fn with_index(schema: &Schema, indexed: bool) -> Schema {
    let by_amount = IndexDefinition {
        id: BY_AMOUNT,
        name: "accounts_amount".into(),
        attributes: Box::new([AMOUNT]),
        unique: false,
        primary: false,
        kind: IndexKind::Ordered,
    };
    let kept = schema.indexes.iter().filter(|index| index.id != BY_AMOUNT).cloned();
    let indexes = kept.chain(indexed.then_some(by_amount)).collect();
    Schema { version: SchemaVersion(schema.version.0 + 1), indexes, ..schema.clone() }
}

/// The index comes and goes, and comes once more.
async fn create_and_drop(engine: &Engine, container: ContainerId) {
    for round in 0..=2 * ROUNDS {
        let schema = engine.container(container).expect("there").schema();
        let next = Arc::new(with_index(&schema, round % 2 == 0));
        match next.index(BY_AMOUNT).cloned() {
            Some(definition) => engine.create_index(definition, next).await.expect("created"),
            None => engine.drop_index(next).await.expect("dropped"),
        }
        engine.sleep_until(engine.env().now() + Duration::from_micros(100)).await;
    }
}

/// Rows are inserted one by one, in rising order or not.
async fn insert(engine: Engine, container: ContainerId, step: i64) {
    for number in 0..KEYS {
        let mut transaction = engine.begin();
        transaction.insert(container, row(number * step % KEYS, number, None)).await.expect("inserted");
        transaction.commit().await.expect("committed");
        engine.sleep_until(engine.env().now() + Duration::from_micros(200)).await;
    }
}

fn run(seed: u64, options: EngineOptions, step: i64, moves: bool) -> Simulation {
    let mut simulation = Simulation::new(seed, options).expect("starts");
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
    let container = schema.container;
    engine
        .create_container(ContainerSpec { schema, partitioning: Partitioning::Range(Box::new([KEY])) })
        .expect("created");
    let over = Arc::new(AtomicBool::new(false));
    let pause = Duration::from_micros(20);
    if moves {
        engine.spawn(move_about(Mover { engine: engine.clone(), container, seed, pause, over: Arc::clone(&over) }));
    }
    engine.spawn(insert(engine.clone(), container, step));
    let task = engine.clone();
    simulation.block_on(async move { create_and_drop(&task, container).await }).expect("runs");
    over.store(true, Ordering::Relaxed);
    simulation.run_until_idle().expect("comes to rest");
    simulation.check_partitions().expect("the indexes agree with the rows");
    let rows = engine.container(container).expect("there").rows();
    assert_eq!(rows, KEYS as u64, "all rows are there");
    simulation
}

fn count(simulation: &Simulation, name: &str) -> u64 {
    let events = simulation.engine().statistics().events;
    events.iter().find(|(event, _)| event.name() == name).map_or(0, |(_, count)| *count)
}

/// A partition is cut between the messages that two of its parents were sent.
#[test]
fn an_index_is_created_in_partitions_that_merge_and_split() {
    for seed in 0..test_load(40) {
        // 77 is prime to the number of keys.
        run(seed, options(8, Duration::ZERO), 77, true);
    }
}

/// The last partition is cut above its rows between the creation of the index and the change of the schema.
#[test]
fn an_index_is_created_while_keys_rise() {
    let mut cut = 0;
    for seed in 0..test_load(40) {
        let simulation = run(seed, options(12, Duration::ZERO), 1, false);
        cut += count(&simulation, "append_partitions");
    }
    assert!(cut > 0, "some partition was cut above its rows");
}

/// Whoever asked may cease to wait at any moment: in the end all have the index, the container, too. Nobody changes the
/// schema meanwhile.
#[test]
fn an_index_that_nobody_waits_for_is_created_all_the_same() {
    let mut refused = 0;
    for polls in 1..5 {
        for seed in 0..test_load(10) {
            let mut simulation = Simulation::new(seed, options(8, Duration::ZERO)).expect("starts");
            let engine = simulation.engine().clone();
            let schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
            let container = schema.container;
            let partitioning = Partitioning::Range(Box::new([KEY]));
            engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
            simulation.block_on(insert(engine.clone(), container, 77)).expect("runs");
            let next = Arc::new(with_index(&engine.container(container).expect("there").schema(), true));
            let definition = next.index(BY_AMOUNT).expect("it has it").clone();
            let (task, schema) = (engine.clone(), Arc::clone(&next));
            let second = simulation.block_on(async move {
                poll_some(task.create_index(definition.clone(), Arc::clone(&schema)), polls).await;
                task.create_index(definition, schema).await
            });
            match second.expect("runs") {
                Err(EngineError::Storage(StorageError::Busy { .. })) => refused += 1,
                second => assert!(polls > 1, "the first one is under way: {second:?}"),
            }
            simulation.run_until_idle().expect("comes to rest");
            assert_eq!(engine.container(container).expect("there").schema(), next);
            simulation.check_partitions().expect("the indexes agree with the rows");
            let later = Arc::new(with_index(&next, false));
            let task = engine.clone();
            simulation.block_on(async move { task.drop_index(later).await }).expect("runs").expect("its turn has come");
        }
    }
    assert!(refused > 0, "some change was under way");
}

/// What waits for a change of its partition is tried once in a visit, not until the quantum is over.
#[test]
fn index_builds_that_wait_leave_the_quantum_to_others() {
    for seed in 0..test_load(10) {
        let simulation = run(seed, options(8, EngineOptions::default().quantum), 77, true);
        let commands = count(&simulation, "commands");
        assert!(commands < 100_000, "{commands} commands");
    }
}

/// A failed load blocks the move of its partition, and of those that lie alike, until its transaction ends. That
/// transaction may wait for the table lock of CREATE INDEX, so the move is given up and the index is created.
#[test]
fn an_index_is_created_beside_a_change_that_cannot_end() {
    for seed in 0..test_load(10) {
        let mut simulation = Simulation::new(seed, options(1_000_000, Duration::ZERO)).expect("starts");
        let engine = simulation.engine().clone();
        let partitioning = Partitioning::Range(Box::new([KEY]));
        let loaded = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
        let loaded = engine.create_container(ContainerSpec { schema: loaded, partitioning }).expect("created");
        let indexed = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
        let indexed = engine.create_container_alike(indexed, &[KEY], &loaded).expect("alike");
        let next = Arc::new(with_index(&indexed.schema(), true));
        let definition = next.index(BY_AMOUNT).expect("it has it").clone();
        let task = engine.clone();
        let created = simulation.block_on(async move {
            insert(task.clone(), indexed.id(), 77).await;
            let mut transaction = task.begin();
            let mut bulk = transaction.bulk(loaded.id()).expect("there");
            let twice = Batch::concat(&(0..16).map(|number| row(number / 2, number, None)).collect::<Vec<_>>());
            bulk.append(twice).await.expect_err("keys are unique");
            drop(bulk);
            let (mover, place) = (task.clone(), task.partition_ids(loaded.id())[0]);
            let moved = Arc::new(Mutex::new(None));
            let told = Arc::clone(&moved);
            task.spawn(async move {
                let away = NodeId(1);
                let result = mover.move_partition(place, away, MoveMethod::Copy).await;
                *told.lock().expect("no panic") = Some(result);
            });
            // Long enough for all rows to be copied.
            task.sleep_until(task.env().now() + Duration::from_millis(100)).await;
            assert!(moved.lock().expect("no panic").is_none(), "the load keeps the change from its end");
            task.create_index(definition, next).await.expect("created");
            while moved.lock().expect("no panic").is_none() {
                task.sleep_until(task.env().now() + Duration::from_millis(1)).await;
            }
            transaction.rollback();
            let moved = moved.lock().expect("no panic").take();
            assert!(matches!(moved, Some(Err(PlacementError::Busy(_)))), "{moved:?}");
        });
        created.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        simulation.run_until_idle().expect("comes to rest");
        simulation.check_partitions().expect("the indexes agree with the rows");
    }
}

/// The log knows that an index goes before the first partition ceases to keep it; so whoever lists definitions must.
#[test]
fn an_index_that_goes_is_no_definition_while_partitions_have_it() {
    let mut simulation = run(7, options(1_000, Duration::from_micros(20)), 1, false);
    let engine = simulation.engine().clone();
    let container = ContainerId(2);
    let has_index = |schema: &Schema| schema.index(BY_AMOUNT).is_some();
    let is_defined = |engine: &Engine| {
        engine.definitions().iter().any(|definition| match definition {
            Definition::Container { schema, .. } => schema.container == container && has_index(schema),
            _ => false,
        })
    };
    let schema = engine.container(container).expect("there").schema();
    assert!(has_index(&schema) && is_defined(&engine));
    let (task, next) = (engine.clone(), Arc::new(with_index(&schema, false)));
    engine.spawn(async move { task.drop_index(next).await.expect("dropped") });
    let mut between = 0;
    let ended = simulation.run_until(|| {
        let is_kept = has_index(&engine.container(container).expect("there").schema());
        between += u32::from(is_kept && !is_defined(&engine));
        assert!(is_kept || !is_defined(&engine), "an index is defined that nobody has");
        !is_kept
    });
    ended.expect("runs");
    assert!(between > 0, "partitions were moved while it was no definition");
}
