//! What a bulk load holds unaccounted. In a process of its own: it is the process's memory that is looked at.

#![cfg(target_env = "gnu")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use eris_engine::{ContainerSpec, Engine, EngineOptions, Partitioning};
use eris_platform::allocator::heap_bytes;
use eris_platform::{CountingAllocator, RealEnv, SeededRandom};
use eris_storage::{Attribute, AttributeId, Batch, ContainerId, DataType, Layout, Schema, SchemaVersion, Value};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Tests look at the memory of the process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;
const BATCHES: i64 = 64;
/// Of a segment; each has a text of 1,000 bytes that cannot be compressed.
const ROWS: i64 = 1_024;
const TYPES: [DataType; 2] = [DataType::Int64, DataType::Text];

fn create(engine: &Engine, partitions: usize, segment_rows: i64) -> ContainerId {
    let container = engine.next_container_id();
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: false };
    let schema = Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("place", TYPES[0]), attribute("text", TYPES[1])]),
        indexes: Box::new([]),
        layout: Layout::Column,
        physical: None,
        segment_rows: segment_rows as u32,
    };
    let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions };
    engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning }).expect("the id is fresh");
    container
}

/// A segment of rows and one more. Rows of one place are in one partition.
fn rows(random: &mut SeededRandom, place: i64, place_of_last: i64) -> Batch {
    let mut row = |place| {
        let text: String = (0..1_000).map(|_| char::from(b' ' + random.below(95) as u8)).collect();
        vec![Value::Int64(place), Value::Text(text.into())]
    };
    let rows: Vec<Vec<Value>> = (0..=ROWS).map(|n| row(if n < ROWS { place } else { place_of_last })).collect();
    Batch::from_rows(&TYPES, &rows)
}

/// Bytes that are held unaccounted when all but the end of these batches was loaded.
fn held_by_load(engine: &Engine, batches: impl Iterator<Item = Batch> + Send + 'static) -> u64 {
    let container = create(engine, 64, ROWS);
    let loader = engine.clone();
    let load = async move {
        let unaccounted = || heap_bytes().expect("counted").saturating_sub(loader.memory().used());
        let before = unaccounted();
        let mut transaction = loader.begin();
        let mut bulk = transaction.bulk(container).expect("the container exists");
        for batch in batches {
            bulk.append(batch).await.expect("there is room");
        }
        let held = unaccounted().saturating_sub(before);
        assert_eq!(bulk.finish().await.expect("there is room"), (BATCHES * (ROWS + 1)) as u64);
        transaction.commit().await.expect("nothing conflicts");
        held
    };
    engine.block_on(load).expect("the task ends")
}

/// Of each batch all rows but one make a segment. The one that waits for others of its partition keeps its own memory,
/// not that of the batch.
#[test]
fn rows_that_wait_for_a_segment_keep_no_memory_of_others() {
    let _alone = ALONE.lock();
    let options = EngineOptions { workers: 2, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("starts");
    let last_elsewhere: fn(i64) -> (i64, i64) = |batch| (0, 1 + batch);
    let all_together: fn(i64) -> (i64, i64) = |batch| (batch, batch);
    for (what, places) in [("elsewhere", last_elsewhere), ("together", all_together)] {
        let mut random = SeededRandom::new(1);
        let batch = move |batch| {
            let (place, place_of_last) = places(batch);
            rows(&mut random, place, place_of_last)
        };
        let held = held_by_load(&engine, (0..BATCHES).map(batch));
        assert!(held < 16 * MIB, "{what}: {held} bytes are held unaccounted, of {BATCHES} batches of 1 MiB each");
    }
    engine.shutdown();
}

/// A load of few long rows: what is gathered for a segment that they never fill is bounded, in one partition and in
/// many, and brought into one piece only as far as that.
#[test]
fn long_rows_are_sent_before_they_are_a_segment() {
    const LIMIT: u64 = 256 * MIB;
    const TEXT_BYTES: usize = 256 << 10;
    let _alone = ALONE.lock();
    let options =
        EngineOptions { workers: 2, memory_limit_bytes: LIMIT, memory_watched: false, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("starts");
    for partitions in [1, 64] {
        let container = create(&engine, partitions, 1 << 16);
        let loader = engine.clone();
        let load = async move {
            let before = heap_bytes().expect("counted").saturating_sub(loader.memory().used());
            let (mut gathered, mut unaccounted) = (0, 0);
            let mut transaction = loader.begin();
            let mut bulk = transaction.bulk(container).expect("the container exists");
            // Four rows of a quarter of a MiB in each.
            for batch in 0..BATCHES {
                let row = |n| vec![Value::Int64(batch * 4 + n), Value::Text("x".repeat(TEXT_BYTES).into())];
                bulk.append(Batch::from_rows(&TYPES, &(0..4).map(row).collect::<Vec<_>>()))
                    .await
                    .expect("there is room");
                let consumers = loader.memory().by_consumer();
                let of_loads = consumers.into_iter().find(|(name, _)| *name == "bulk load");
                gathered = gathered.max(of_loads.map_or(0, |(_, bytes)| bytes));
                let now = heap_bytes().expect("counted").saturating_sub(loader.memory().used());
                unaccounted = unaccounted.max(now.saturating_sub(before));
            }
            assert_eq!(bulk.finish().await.expect("there is room"), 4 * BATCHES as u64);
            transaction.rollback();
            (gathered, unaccounted)
        };
        let (gathered, unaccounted) = engine.block_on(load).expect("the task ends");
        assert!(gathered <= LIMIT / 8 + 2 * MIB, "{partitions}: {gathered} bytes were gathered");
        assert!(unaccounted <= 24 * MIB, "{partitions}: {unaccounted} bytes were held unaccounted");
    }
    engine.shutdown();
}
