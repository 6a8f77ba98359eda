//! What a bulk load holds is accounted for. In a process of its own: it is the process's memory that is looked at.

#![cfg(target_env = "gnu")]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use eris_engine::{ContainerSpec, Engine, EngineOptions, Partitioning};
use eris_platform::allocator::heap_bytes;
use eris_platform::{CountingAllocator, RealEnv, SeededRandom};
use eris_storage::{Attribute, AttributeId, Batch, ContainerId, DataType, Layout, Schema, SchemaVersion, Value};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MIB: u64 = 1 << 20;
const BATCHES: i64 = 64;
/// Of a segment; each has a text of 1,000 bytes that cannot be compressed.
const ROWS: i64 = 1_024;
const TYPES: [DataType; 2] = [DataType::Int64, DataType::Text];

fn create(engine: &Engine) -> ContainerId {
    let container = engine.next_container_id();
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: false };
    let schema = Schema {
        container,
        version: SchemaVersion(1),
        attributes: Box::new([attribute("place", TYPES[0]), attribute("text", TYPES[1])]),
        indexes: Box::new([]),
        layout: Layout::Column,
        physical: None,
        segment_rows: ROWS as u32,
    };
    let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 64 };
    engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning }).expect("the id is fresh");
    container
}

/// Rows of one place, and one of another place.
fn rows(random: &mut SeededRandom, batch: i64) -> Batch {
    let mut row = |place| {
        let text: String = (0..1_000).map(|_| char::from(b' ' + random.below(95) as u8)).collect();
        vec![Value::Int64(place), Value::Text(text.into())]
    };
    let rows: Vec<Vec<Value>> = (0..=ROWS).map(|n| row(if n < ROWS { 0 } else { 1 + batch })).collect();
    Batch::from_rows(&TYPES, &rows)
}

/// Of each batch all rows but one make a segment. The one that waits for others of its partition keeps its own memory,
/// not that of the batch.
#[test]
fn rows_that_wait_for_a_segment_keep_no_memory_of_others() {
    let options = EngineOptions { workers: 2, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).expect("starts");
    let container = create(&engine);
    let loader = engine.clone();
    let load = async move {
        let mut random = SeededRandom::new(1);
        let unaccounted = || heap_bytes().expect("counted").saturating_sub(loader.memory().used());
        let before = unaccounted();
        let mut transaction = loader.begin();
        let mut bulk = transaction.bulk(container).expect("the container exists");
        for batch in 0..BATCHES {
            bulk.append(rows(&mut random, batch)).await.expect("there is room");
        }
        let held = unaccounted().saturating_sub(before);
        assert_eq!(bulk.finish().await.expect("there is room"), (BATCHES * (ROWS + 1)) as u64);
        transaction.commit().await.expect("nothing conflicts");
        held
    };
    let held = engine.block_on(load).expect("the task ends");
    assert!(held < 16 * MIB, "{held} bytes are held unaccounted, of {BATCHES} batches of 1 MiB each");
    engine.shutdown();
}
