//! Layouts set by hand through the engine: of a container and of one partition, with bulk loads and splits behind them,
//! and mistakes.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;
use std::time::Duration;

use accounts::{KEY, everything, pairs, schema};
use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, Partitioning, Simulation};
use eris_storage::{
    AttributeId, Batch, COLUMN, COMPOSITE, ContainerId, DataType, ENCODED, Layout, LayoutMember, PartitionId,
    PhysicalLayout, ROW_STATIC, SegmentLayouts, StorageError, Value,
};

fn layout(members: &[(&str, &[u16])]) -> PhysicalLayout {
    let member = |(module, ids): &(&str, &[u16])| LayoutMember {
        module: (*module).into(),
        attributes: ids.iter().map(|id| AttributeId(*id)).collect(),
    };
    PhysicalLayout::new(members.iter().map(member).collect::<Vec<_>>())
}

fn divided() -> SegmentLayouts {
    let layout = layout(&[(COLUMN, &[1]), (ROW_STATIC, &[0, 2])]);
    SegmentLayouts { open: layout.clone(), sealed: layout }
}

fn simulation() -> (Simulation, Engine, ContainerId) {
    let options = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes: 1 << 30,
        quantum: Duration::from_micros(200),
        split_rows: 2_000,
        ..EngineOptions::default()
    };
    let simulation = Simulation::new(7, options).expect("the engine starts");
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 2 };
    let schema = Arc::new(schema(container, Layout::Default, 64));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the container is new");
    (simulation, engine, container)
}

async fn load(engine: &Engine, container: ContainerId, keys: std::ops::Range<i64>) {
    load_as(engine, container, keys, false).await;
}

async fn load_as(engine: &Engine, container: ContainerId, keys: std::ops::Range<i64>, encode_later: bool) {
    let rows: Vec<Vec<Value>> =
        keys.map(|key| vec![Value::Int64(key), Value::Int64(key * 2), Value::Text("a note".into())]).collect();
    let batch = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows);
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container).expect("the container exists");
    if encode_later {
        bulk = bulk.encode_later();
    }
    bulk.append(batch).await.expect("keys are distinct");
    bulk.finish().await.expect("keys are distinct");
    transaction.commit().await.expect("nothing conflicts");
}

async fn sum(engine: &Engine, container: ContainerId) -> (usize, i64) {
    let mut transaction = engine.begin();
    let results = transaction.scan(everything(container), None).expect("the container exists");
    let found = pairs(&results.collect().await.expect("a read succeeds"));
    (found.len(), found.iter().map(|(key, amount)| key + amount).sum())
}

/// How many sealed segments of each partition are composites, and how many are not.
fn composites(engine: &Engine) -> Vec<(PartitionId, usize, usize)> {
    let count = |partition: eris_engine::PartitionDescription| {
        let sealed = partition.segments.iter().filter(|segment| segment.sealed);
        let (composite, other): (Vec<_>, Vec<_>) = sealed.partition(|segment| segment.module == COMPOSITE);
        (partition.id, composite.len(), other.len())
    };
    engine.partitions().into_iter().map(count).collect()
}

/// How many sealed segments are held by a module.
fn held_by(engine: &Engine, module: &str) -> usize {
    let partitions = engine.partitions();
    let sealed = partitions.iter().flat_map(|partition| &partition.segments).filter(|segment| segment.sealed);
    sealed.filter(|segment| segment.module == module).count()
}

#[test]
fn segments_of_a_database_that_is_opened_are_encoded_when_it_is_open() {
    let (mut simulation, engine, container) = simulation();
    let opening = engine.begin_opening();
    let worker = engine.clone();
    simulation.block_on(async move { load_as(&worker, container, 0..1_000, true).await }).expect("the load ends");
    simulation.run_until_idle().expect("maintenance ends");
    // The last rows are too few for a segment of their own: they are sealed by and by.
    let (plain, sealed) = (held_by(&engine, COLUMN), held_by(&engine, ENCODED));
    assert!(plain > 10 && sealed <= 2, "{plain} wait, {sealed} are sealed");
    drop(opening);
    simulation.run_until_idle().expect("maintenance ends");
    assert_eq!((held_by(&engine, COLUMN), held_by(&engine, ENCODED)), (0, plain + sealed));
    let worker = engine.clone();
    let found = simulation.block_on(async move { sum(&worker, container).await });
    assert_eq!(found.expect("the read ends"), (1_000, 3 * 499_500));
}

#[test]
fn segments_are_encoded_at_once_where_plain_columns_would_take_half_of_the_memory() {
    let (mut simulation, engine, container) = simulation();
    let _opening = engine.begin_opening();
    let taken = engine.memory().reserve("half of it");
    taken.grow(1 << 20).expect("there is room");
    engine.memory().set_limit(2 << 20);
    let worker = engine.clone();
    simulation.block_on(async move { load_as(&worker, container, 0..1_000, true).await }).expect("the load ends");
    assert!(held_by(&engine, COLUMN) == 0 && held_by(&engine, ENCODED) > 0);
}

#[test]
fn one_partition_is_rebuilt_and_then_the_whole_container() {
    let (mut simulation, engine, container) = simulation();
    let worker = engine.clone();
    simulation.block_on(async move { load(&worker, container, 0..1_000).await }).expect("the load ends");
    simulation.run_until_idle().expect("maintenance ends");
    let before = composites(&engine);
    assert!(before.iter().all(|(_, composite, other)| *composite == 0 && *other > 0), "{before:?}");
    let (one, worker) = (before[0].0, engine.clone());
    let found = simulation.block_on(async move {
        worker.set_layout(container, Some(one), Some(divided())).await.expect("the layouts fit");
        sum(&worker, container).await
    });
    assert_eq!(found.expect("the read ends"), (1_000, 3 * 499_500));
    simulation.run_until_idle().expect("maintenance ends");
    for (id, composite, other) in composites(&engine) {
        assert_eq!((composite > 0, other > 0), (id == one, id != one), "partition {id}");
    }
    let statistics = engine.access_statistics(container).expect("the container exists");
    let records: u64 = statistics.iter().map(|(_, statistics)| statistics.records).sum();
    let links: u64 = statistics.iter().map(|(_, statistics)| statistics.attributes[1].links).sum();
    assert_eq!((statistics.len(), records, links), (2, 1_000, 1_000), "one load, one scan of keys and amounts");
    // The container: also what is loaded and split off from now on.
    let worker = engine.clone();
    let found = simulation.block_on(async move {
        worker.set_layout(container, None, Some(divided())).await.expect("the layouts fit");
        load(&worker, container, 1_000..6_000).await;
        sum(&worker, container).await
    });
    assert_eq!(found.expect("the read ends"), (6_000, 3 * 17_997_000));
    simulation.run_until_idle().expect("maintenance ends");
    let after = composites(&engine);
    assert!(after.len() > 2, "a partition has split");
    assert!(after.iter().all(|(_, composite, other)| *composite > 0 && *other == 0), "{after:?}");
    // And back to what the schema says.
    let worker = engine.clone();
    let back = simulation.block_on(async move { worker.set_layout(container, None, None).await });
    back.expect("the task ends").expect("the container exists");
    simulation.run_until_idle().expect("maintenance ends");
    assert!(composites(&engine).iter().all(|(_, composite, _)| *composite == 0));
}

#[test]
fn mistakes_are_errors_and_change_nothing() {
    let (mut simulation, engine, container) = simulation();
    let wrong = layout(&[(COLUMN, &[0, 1])]);
    let left_out = SegmentLayouts { open: divided().open, sealed: wrong };
    let cases = [
        (container, None, left_out.clone()),
        (container, Some(PartitionId(999)), divided()),
        (ContainerId(999), None, divided()),
    ];
    for (container, partition, layouts) in cases {
        let worker = engine.clone();
        let result = simulation.block_on(async move { worker.set_layout(container, partition, Some(layouts)).await });
        let error = result.expect("the task ends").expect_err("a mistake");
        let expected = matches!(
            error,
            EngineError::Storage(StorageError::Layout { .. }) | EngineError::NoSuchContainer(ContainerId(999))
        );
        assert!(expected, "{error}");
    }
    let container = engine.container(container).expect("the container exists");
    assert!(container.schema().physical.is_none());
    let mut schema = schema(engine.next_container_id(), Layout::Row, 64);
    schema.physical = Some(Arc::new(left_out));
    let spec = ContainerSpec { schema: Arc::new(schema), partitioning: Partitioning::Range(Box::new([KEY])) };
    assert!(matches!(engine.create_container(spec), Err(EngineError::Storage(StorageError::Layout { .. }))));
}
