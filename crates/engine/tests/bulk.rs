//! Bulk loads under the simulator: every row arrives once, whatever splits meanwhile, and nothing before the commit.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;
use std::time::Duration;

use accounts::{AMOUNT, KEY, everything, pairs, schema};
use eris_engine::{ContainerSpec, Engine, EngineOptions, Event, Partitioning, Simulation};
use eris_platform::{SeededRandom, test_load};
use eris_storage::{Batch, ContainerId, DataType, Layout, Value};

fn rows(keys: &[i64]) -> Batch {
    let rows: Vec<Vec<Value>> = keys
        .iter()
        .map(|key| vec![Value::Int64(*key), Value::Int64(key * 2), Value::Text(format!("row number {key}").into())])
        .collect();
    Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows)
}

/// A simulated engine with one empty container that is cut by ranges of its key.
fn cut_by_key(seed: u64, options: EngineOptions, segment_rows: u32) -> (Simulation, Engine, ContainerId) {
    let simulation = Simulation::new(seed, options).expect("the engine starts");
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, segment_rows));
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    (simulation, engine, container)
}

async fn load(engine: Engine, container: ContainerId, keys: Vec<i64>, chunk: usize) {
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container).expect("the container exists");
    for keys in keys.chunks(chunk) {
        bulk.append(rows(keys)).await.expect("keys are distinct");
    }
    assert_eq!(bulk.finish().await.expect("keys are distinct"), keys.len() as u64);
    transaction.commit().await.expect("nothing conflicts");
}

async fn count(engine: Engine, container: ContainerId) -> Vec<(i64, i64)> {
    let mut transaction = engine.begin();
    let results = transaction.scan(everything(container), None).expect("the container exists");
    let mut found = pairs(&results.collect().await.expect("a read succeeds"));
    found.sort_unstable();
    found
}

#[test]
fn parallel_loads_arrive_whole_while_partitions_split() {
    let mut split_moving = 0;
    let mut split_above = 0;
    for seed in 0..test_load(40) {
        let mut random = SeededRandom::new(seed);
        let options = EngineOptions {
            workers: 2,
            nodes: 1 + random.index(2),
            memory_limit_bytes: 1 << 30,
            quantum: Duration::from_micros([0, 200][random.index(2)]),
            split_rows: [300, 5_000][random.index(2)],
            parallel_rows: 200,
            ..EngineOptions::default()
        };
        let mut simulation = Simulation::new(seed, options).expect("the engine starts");
        let engine = simulation.engine().clone();
        let container = engine.next_container_id();
        let layout = [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)];
        // Segments above the size below which rows are inserted as rows, for whole and for odd parts.
        let segment_rows = [16, 64, 1_500][random.index(3)];
        let schema = Arc::new(schema(container, layout, segment_rows));
        let partitioning = match random.below(3) {
            0 => Partitioning::Hash { attributes: Box::new([KEY]), partitions: 3 },
            _ => Partitioning::Range(Box::new([KEY])),
        };
        engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
        let mut keys: Vec<i64> = (0..4_000).collect();
        let rising = random.chance(0.6);
        if !rising {
            random.shuffle(&mut keys);
        }
        let chunk = 1 + random.index(700);
        let loader = engine.clone();
        simulation
            .block_on(async move {
                let parts: Vec<Vec<i64>> = keys.chunks(2_000).map(<[i64]>::to_vec).collect();
                let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
                for part in parts {
                    let (task, done) = (loader.clone(), Arc::clone(&done));
                    loader.spawn(async move {
                        load(task, container, part, chunk).await;
                        done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    });
                }
                while done.load(std::sync::atomic::Ordering::SeqCst) < 2 {
                    let seen = count(loader.clone(), container).await.len();
                    assert!(seen.is_multiple_of(2_000), "a load is seen whole or not at all, not {seen} rows");
                }
            })
            .expect("the loads end");
        simulation.run_until_idle().expect("maintenance ends");
        let reader = engine.clone();
        let found = simulation.block_on(count(reader, container)).expect("the read ends");
        let expected: Vec<(i64, i64)> = (0..4_000).map(|key| (key, key * 2)).collect();
        assert_eq!(found, expected, "seed {seed}");
        let open = engine
            .partitions()
            .into_iter()
            .flat_map(|partition| partition.segments)
            .filter(|segment| !segment.sealed && segment.rows - segment.dead_rows >= segment_rows / 16);
        let open: Vec<_> = open.collect();
        assert!(open.is_empty(), "seed {seed}: open rows were left alone for long, but not sealed: {open:?}");
        let statistics = engine.statistics();
        split_moving += statistics.store.splits;
        split_above += statistics.event(Event::Splits) - statistics.store.splits;
    }
    assert!(split_moving > 0 && split_above > 0, "{split_moving} splits moved rows, {split_above} did not");
}

#[test]
fn a_load_with_a_duplicate_leaves_nothing_behind() {
    let options = EngineOptions { workers: 2, memory_limit_bytes: 1 << 30, ..EngineOptions::default() };
    let (mut simulation, engine, container) = cut_by_key(9, options, 1_024);
    let loader = engine.clone();
    let failed = simulation
        .block_on(async move {
            let mut transaction = loader.begin();
            let mut bulk = transaction.bulk(container).expect("the container exists");
            let keys: Vec<i64> = (0..5_000).chain([17]).collect();
            for keys in keys.chunks(500) {
                bulk.append(rows(keys)).await?;
            }
            bulk.finish().await
        })
        .expect("the load ends");
    assert!(failed.is_err(), "a duplicate key is refused");
    simulation.run_until_idle().expect("maintenance ends");
    let reader = engine.clone();
    assert!(simulation.block_on(count(reader, container)).expect("the read ends").is_empty());
}

/// A load that fails keeps its segment until its transaction is settled, and a split waits for that; commands wait for
/// the split only for a while.
#[test]
fn loads_that_fail_do_not_stop_a_partition_that_is_split() {
    let mut splits = 0;
    for seed in 0..test_load(30) {
        let options = EngineOptions {
            workers: 2,
            memory_limit_bytes: 1 << 30,
            quantum: Duration::ZERO,
            split_rows: 1_000,
            parallel_rows: 1_000_000,
            ..EngineOptions::default()
        };
        let (mut simulation, engine, container) = cut_by_key(seed, options, 64);
        let mut random = SeededRandom::new(seed);
        let mut kept: Vec<i64> = (0..4_000).map(|key| key * 2).collect();
        random.shuffle(&mut kept);
        let loader = engine.clone();
        let failed = simulation.block_on(async move {
            let (good, bad) = (loader.clone(), loader.clone());
            let loaded = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let told = Arc::clone(&loaded);
            loader.spawn(async move {
                load(good, container, kept, 300).await;
                told.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            let mut failed = 0;
            while !loaded.load(std::sync::atomic::Ordering::SeqCst) {
                let mut transaction = bad.begin();
                let mut bulk = transaction.bulk(container).expect("the container exists");
                let mut keys: Vec<i64> = (0..400).map(|_| random.below(4_000) as i64 * 2 + 1).collect();
                keys.push(keys[0]);
                let appended = bulk.append(rows(&keys)).await.is_ok();
                let refused = if appended {
                    bulk.finish().await.is_err()
                } else {
                    drop(bulk);
                    true
                };
                failed += usize::from(refused);
                // The client thinks about it before it gives up.
                let until = bad.env().now() + Duration::from_millis(random.below(100));
                bad.sleep_until(until).await;
                transaction.rollback();
            }
            (failed, count(bad, container).await.len())
        });
        let (failed, rows) = failed.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(failed > 0 && rows == 4_000, "seed {seed}: {failed} loads failed, {rows} rows");
        simulation.run_until_idle().expect("maintenance ends");
        splits += engine.statistics().store.splits;
    }
    assert!(splits > 0, "no split moved rows");
}

/// Rising keys leave full partitions behind: no row is moved by a split afterwards. Several rows share a position, as
/// the lines of an order do.
#[test]
fn rising_keys_are_loaded_without_moving_a_row() {
    for seed in 0..test_load(20) {
        let options = EngineOptions {
            workers: 2,
            memory_limit_bytes: 1 << 30,
            split_bytes: 200_000,
            parallel_rows: 2_000,
            ..EngineOptions::default()
        };
        let mut simulation = Simulation::new(seed, options).expect("the engine starts");
        let engine = simulation.engine().clone();
        let container = engine.next_container_id();
        let mut schema = schema(container, Layout::Default, 2_000);
        schema.indexes[0].attributes = Box::new([AMOUNT, KEY]);
        let partitioning = Partitioning::Range(Box::new([AMOUNT]));
        engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning }).expect("the id is fresh");
        // Two loads side by side, each with rising keys of its own.
        let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for part in [0..20_000, 20_000..40_000] {
            let (loader, done) = (engine.clone(), Arc::clone(&done));
            engine.spawn(async move {
                let mut transaction = loader.begin();
                let mut bulk = transaction.bulk(container).expect("the container exists");
                for first in part.clone().step_by(300) {
                    let line = |key: i64| vec![Value::Int64(key), Value::Int64(key / 7), Value::Text("a line".into())];
                    let lines: Vec<Vec<Value>> = (first..part.end.min(first + 300)).map(line).collect();
                    let types = [DataType::Int64, DataType::Int64, DataType::Text];
                    bulk.append(Batch::from_rows(&types, &lines)).await.expect("keys are distinct");
                }
                bulk.finish().await.expect("keys are distinct");
                transaction.commit().await.expect("nothing conflicts");
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        simulation.run_until_idle().expect("loads and maintenance end");
        assert_eq!(done.load(std::sync::atomic::Ordering::SeqCst), 2);
        let statistics = engine.statistics();
        assert_eq!(statistics.store.splits, 0, "seed {seed}: {} splits in all", statistics.event(Event::Splits));
        assert!(statistics.event(Event::Splits) > 4, "seed {seed}");
    }
}

/// A partition that copies rows to a sibling gives them away before a load has brought all others to it: it can be cut
/// nowhere else meanwhile, also where it copies slowly. One row lies above all that come, so no cut above helps.
#[test]
fn a_load_lets_the_splits_that_it_makes_necessary_end() {
    for (seed, maintenance_rows) in (0..test_load(20)).map(|seed| (seed, if seed % 4 == 3 { 1 } else { 64 })) {
        let options = EngineOptions {
            workers: 2,
            memory_limit_bytes: 1 << 30,
            split_rows: 6_000,
            parallel_rows: 1_000_000,
            maintenance_rows,
            ..EngineOptions::default()
        };
        let (mut simulation, engine, container) = cut_by_key(seed, options, 1_500);
        let loader = engine.clone();
        let largest = simulation
            .block_on(async move {
                load(loader.clone(), container, vec![1_000_000], 1).await;
                let mut transaction = loader.begin();
                let mut bulk = transaction.bulk(container).expect("the container exists");
                let keys: Vec<i64> = (0..60_000).collect();
                for keys in keys.chunks(500) {
                    bulk.append(rows(keys)).await.expect("keys are distinct");
                }
                bulk.finish().await.expect("keys are distinct");
                let largest = loader.partitions().into_iter().map(|partition| partition.rows).max();
                transaction.commit().await.expect("nothing conflicts");
                largest
            })
            .expect("the load ends");
        assert!(largest.is_some_and(|rows| rows <= 12_000), "seed {seed}: a partition has {largest:?} rows");
        simulation.run_until_idle().expect("maintenance ends");
        let reader = engine.clone();
        let found = simulation.block_on(count(reader, container)).expect("the read ends");
        assert!(found.iter().map(|(key, _)| *key).eq((0..60_000).chain([1_000_000])), "seed {seed}");
    }
}

/// What is less than a segment waits for no split: small loads take as long as they did.
#[test]
fn small_loads_wait_for_no_split() {
    for seed in 0..test_load(20) {
        let options = EngineOptions {
            workers: 2,
            memory_limit_bytes: 1 << 30,
            parallel_rows: 1_000_000,
            maintenance_rows: 1,
            ..EngineOptions::default()
        };
        let (mut simulation, engine, container) = cut_by_key(seed, options, 1_500);
        // Keys that do not rise: nothing is cut above.
        let mut keys: Vec<i64> = (0..20_000).map(|key| key * 2).collect();
        SeededRandom::new(seed).shuffle(&mut keys);
        let loader = engine.clone();
        let (partitions, took) = simulation
            .block_on(async move {
                load(loader.clone(), container, keys, 500).await;
                let only = loader.partition_ids(container)[0];
                let splitter = loader.clone();
                loader.spawn(async move { splitter.split_partition(only).await.expect("nobody stands in its way") });
                // Copying has begun.
                loader.sleep_until(loader.env().now() + Duration::from_micros(500)).await;
                let begin = loader.env().now();
                load(loader.clone(), container, (0..1_200).map(|key| key * 2 + 1).collect(), 400).await;
                (loader.partition_ids(container).len(), loader.env().now() - begin)
            })
            .expect("the loads end");
        assert_eq!(partitions, 1, "seed {seed}: the split was over");
        assert!(took < Duration::from_millis(50), "seed {seed}: the load took {took:?}");
        simulation.run_until_idle().expect("maintenance ends");
        assert_eq!(engine.partition_ids(container).len(), 2, "seed {seed}: there was a split");
        let reader = engine.clone();
        assert_eq!(simulation.block_on(count(reader, container)).expect("the read ends").len(), 21_200, "seed {seed}");
    }
}
