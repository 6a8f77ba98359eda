//! Memory at run time: limits of statements, columns at home, the watch over the process.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use accounts::{KEY, everything, integers, lookup, pairs, schema};
use eris_engine::{
    Coalescing, ContainerSpec, Engine, EngineError, EngineOptions, Event, LocalMemory, MoveMethod, Partitioning,
    Simulation,
};
use eris_platform::memory::RefusedBy;
use eris_platform::memory_controller::LimitReason;
use eris_platform::{NodeId, RealEnv};
use eris_storage::{Batch, ContainerId, DataType, Layout, Value};

const ROWS: i64 = 20_000;
const MIB: u64 = 1 << 20;

fn start(options: EngineOptions) -> Engine {
    Engine::start(Arc::new(RealEnv::new()), options).expect("the engine starts")
}

fn create(engine: &Engine, partitions: usize) -> ContainerId {
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Column, 4_096));
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    container
}

/// `ROWS` rows, bulk-loaded into segments of 4,096.
async fn load_into(engine: Engine, container: ContainerId) {
    let row = |key| vec![Value::Int64(key), Value::Int64(key * 2), Value::Text(format!("number {key}").into())];
    let rows: Vec<Vec<Value>> = (0..ROWS).map(row).collect();
    let rows = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows);
    let mut transaction = engine.begin();
    let mut bulk = transaction.bulk(container).expect("the container exists");
    bulk.append(rows).await.expect("keys are distinct");
    bulk.finish().await.expect("keys are distinct");
    transaction.commit().await.expect("nothing conflicts");
}

fn load(engine: &Engine) -> ContainerId {
    let container = create(engine, 2);
    engine.block_on(load_into(engine.clone(), container)).expect("the task ends");
    container
}

/// Reads everything with a limit for the statement; the results wait while nobody takes them.
fn read(engine: &Engine, container: ContainerId, limit: Option<u64>) -> Result<usize, EngineError> {
    let reader = engine.clone();
    let read = async move {
        let mut transaction = reader.begin();
        transaction.set_memory_limit(limit);
        let waiting = transaction.scan(everything(container), None)?;
        let pause = reader.env().now() + Duration::from_millis(20);
        reader.sleep_until(pause).await;
        let rows = pairs(&waiting.collect().await?).len();
        assert!(transaction.memory().peak() > 0, "results were accounted for");
        assert!(limit.is_none() || transaction.memory().used() == 0, "a statement gives everything back");
        Ok(rows)
    };
    engine.block_on(read).expect("the task ends")
}

#[test]
fn a_statement_fails_at_its_own_limit_and_others_go_on() {
    let engine = start(EngineOptions { workers: 2, ..EngineOptions::default() });
    let container = load(&engine);
    assert_eq!(read(&engine, container, Some(64 << 20)).expect("there is room"), ROWS as usize);
    let Err(EngineError::Memory(refused)) = read(&engine, container, Some(10_000)) else {
        panic!("20,000 rows do not fit in 10,000 bytes")
    };
    assert_eq!((refused.consumer, refused.limit), ("query results", 10_000));
    assert_eq!(refused.refused_by, RefusedBy::Statement);
    assert!(refused.to_string().contains("the limit of one statement"), "{refused}");
    assert_eq!(read(&engine, container, None).expect("others go on"), ROWS as usize);
    let held = engine.statistics().memory_by_consumer;
    assert!(held.contains(&("query results", 0)), "{held:?}");
    engine.shutdown();
}

/// One key in each message.
#[test]
fn messages_of_many_commands_are_charged_to_their_statement() {
    let engine = start(EngineOptions { workers: 2, ..EngineOptions::default() });
    let container = load(&engine);
    let reader = engine.clone();
    let absent = |keys: i64| integers(&(ROWS..ROWS + keys).collect::<Vec<_>>());
    let look_up = async move {
        let mut transaction = reader.begin();
        transaction.set_memory_limit(Some(64 << 10));
        let by_key = || lookup(container, KEY, Coalescing::None);
        let few = transaction.lookup_many(by_key(), &absent(100), None)?.collect().await?;
        assert!(few.iter().all(|batch| batch.rows == 0), "such keys are not there");
        assert_eq!(transaction.memory().peak(), 0, "few messages fit into buffers that are there");
        let many = transaction.lookup_many(by_key(), &absent(ROWS), None).map(drop);
        assert_eq!(transaction.memory().used(), 0, "what was refused is not charged");
        transaction.lookup_many(by_key(), &absent(500), None)?.collect().await?;
        assert!(transaction.memory().peak() > 500 * 8, "{}", transaction.memory().peak());
        assert_eq!(transaction.memory().used(), 0);
        many
    };
    let refused = engine.block_on(look_up).expect("the task ends");
    let Err(EngineError::Memory(refused)) = refused else { panic!("20,000 messages do not fit in 64 KiB") };
    assert_eq!((refused.consumer, refused.limit), ("messages", 64 << 10));
    engine.shutdown();
}

#[test]
fn columns_lie_in_the_arena_of_their_partitions_home() {
    let options = EngineOptions { workers: 2, nodes: 2, local_memory: LocalMemory::On, ..EngineOptions::default() };
    let engine = start(options);
    let container = load(&engine);
    assert_eq!(read(&engine, container, None).expect("a read succeeds"), ROWS as usize);
    let nodes = engine.node_memory();
    assert_eq!(nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [NodeId(0), NodeId(1)]);
    for node in &nodes {
        // Half of the rows of 16 bytes and a view of 16 each, at least; what is still in open segments comes on top.
        let bytes = node.column_bytes.expect("the node has an arena");
        assert!(bytes > ROWS as u64 / 2 * 20, "{node:?}");
        let location = node.location.as_ref().expect("the node has an arena");
        let touched: u64 = location.by_node.values().sum();
        assert!(location.unavailable.is_some() || touched >= bytes / 2, "{node:?}");
        // On a machine with one NUMA node both are on it; what differs is said.
        let at_home = location.bytes_away_from(node.memory_node) == 0 && location.unavailable.is_none();
        assert!(at_home == node.remark.is_none(), "{node:?}");
    }
    let by_consumer = engine.statistics().memory_by_consumer;
    let columns = by_consumer.iter().find(|(name, _)| *name == "column segments").expect("columns are accounted for").1;
    assert!(columns >= nodes.iter().filter_map(|node| node.column_bytes).sum(), "{by_consumer:?}");
    engine.drop_container(container).expect("it exists");
    let deadline = Instant::now() + Duration::from_secs(10);
    while engine.node_memory().iter().any(|node| node.column_bytes != Some(0)) {
        assert!(Instant::now() < deadline, "columns of a dropped table stay: {:?}", engine.node_memory());
        std::thread::sleep(Duration::from_millis(5));
    }
    engine.shutdown();

    // By itself an engine makes arenas only where memory has several places.
    let engine = start(EngineOptions { workers: 2, nodes: 2, ..EngineOptions::default() });
    let nodes = engine.node_memory();
    let places = nodes.iter().any(|node| node.memory_node != nodes[0].memory_node);
    assert!(nodes.iter().all(|node| node.column_bytes.is_some() == places), "{nodes:?}");
    engine.shutdown();
}

/// Linked or copied, and back: sealed columns are in the memory of the new home, and none stay in that of the old one.
#[test]
fn sealed_columns_follow_a_partition_that_moves() {
    for method in [MoveMethod::Link, MoveMethod::Copy] {
        let options = EngineOptions { workers: 2, nodes: 2, local_memory: LocalMemory::On, ..EngineOptions::default() };
        let mut simulation = Simulation::new(11, EngineOptions { parallel_rows: 1 << 40, ..options }).expect("starts");
        let engine = simulation.engine().clone();
        let container = create(&engine, 1);
        simulation.block_on(load_into(engine.clone(), container)).expect("runs");
        simulation.run_until_idle().expect("comes to rest");
        let bytes_on = |node: NodeId| engine.node_memory()[node.index()].column_bytes.expect("the node has an arena");
        let first = engine.partitions()[0].home;
        let second = NodeId(1 - first.0);
        let loaded = bytes_on(first);
        assert!(loaded > ROWS as u64 * 20 && bytes_on(second) == 0, "the columns are at home");
        for (old, new) in [(first, second), (second, first)] {
            let mover = engine.clone();
            let moved = simulation.block_on(async move {
                let id = mover.partition_ids(container)[0];
                mover.move_partition(id, new, method).await
            });
            moved.expect("runs").expect("nobody is in the way");
            simulation.run_until_idle().expect("comes to rest");
            assert_eq!(engine.partitions()[0].home, new);
            assert_eq!(bytes_on(old), 0, "columns stayed where the partition was, by {method:?}");
            // Of copied rows those of the last segment are in an open one.
            let followed = bytes_on(new);
            assert!(followed * 4 >= loaded * 3, "{followed} of {loaded} bytes followed by {method:?}");
        }
        let reader = engine.clone();
        let found = simulation.block_on(async move {
            let mut transaction = reader.begin();
            transaction.scan(everything(container), None).expect("there").collect().await.expect("a read succeeds")
        });
        assert_eq!(pairs(&found.expect("runs")).len(), ROWS as usize);
        engine.drop_container(container).expect("it exists");
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!((bytes_on(first), bytes_on(second), engine.memory().used()), (0, 0, 0));
    }
}

/// Lets time pass.
fn nap(simulation: &mut Simulation, time: Duration) {
    let engine = simulation.engine().clone();
    let until = engine.env().now() + time;
    simulation.block_on(async move { engine.sleep_until(until).await }).expect("runs");
}

/// In a full database a partition that has outgrown its limits is not split over and over: its segments stay what they
/// are meanwhile.
#[test]
fn a_split_without_memory_is_tried_again_after_a_while() {
    let split_rows = ROWS as u64 + 500;
    let options = EngineOptions { workers: 2, memory_limit_bytes: 64 * MIB, split_rows, ..EngineOptions::default() };
    let mut simulation = Simulation::new(7, EngineOptions { parallel_rows: 1 << 40, ..options }).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, 1);
    simulation.block_on(load_into(engine.clone(), container)).expect("runs");
    simulation.run_until_idle().expect("comes to rest");
    let held = engine.memory().reserve("test");
    while held.grow(4_096).is_ok() {}
    held.shrink(400 << 10);
    let writer = engine.clone();
    let insert = async move {
        let row = |key| vec![Value::Int64(key), Value::Int64(0), Value::Text("more".into())];
        let rows: Vec<Vec<Value>> = (ROWS..ROWS + 1_000).map(row).collect();
        let rows = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows);
        let mut transaction = writer.begin();
        transaction.insert(container, rows).await.expect("there is room for them");
        transaction.commit().await.expect("nothing conflicts");
    };
    simulation.block_on(insert).expect("runs");
    while held.grow(4_096).is_ok() {}
    nap(&mut simulation, Duration::from_secs(5));
    let given_up = engine.statistics().event(Event::ChangesGivenUp);
    assert!((1..=2).contains(&given_up), "{given_up} times");
    assert_eq!(engine.partition_ids(container).len(), 1);
    drop(held);
    nap(&mut simulation, Duration::from_secs(15));
    assert!(engine.partition_ids(container).len() > 1, "there is memory now");
}

/// A segment for which there was no memory is sealed when there is some again, also if no transaction ends.
#[test]
fn what_lacked_memory_is_sealed_when_there_is_some() {
    let options = EngineOptions { workers: 2, memory_limit_bytes: 64 * MIB, ..EngineOptions::default() };
    let mut simulation = Simulation::new(7, EngineOptions { parallel_rows: 1 << 40, ..options }).expect("starts");
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, 4_096));
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 1 };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    let writer = engine.clone();
    let fill = async move {
        // Its snapshot does not see the rows, so they are not sealed before it ends.
        let reader = writer.begin();
        let row = |key| vec![Value::Int64(key), Value::Int64(key), Value::Text("note".into())];
        let rows: Vec<Vec<Value>> = (0..4_096).map(row).collect();
        let rows = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows);
        let mut transaction = writer.begin();
        transaction.insert(container, rows).await.expect("there is room for them");
        transaction.commit().await.expect("nothing conflicts");
        writer.sleep_until(writer.env().now() + Duration::from_millis(50)).await;
        // Also what is kept for those that give memory back.
        let held = writer.memory().reserve_for_release("test");
        while held.grow(4_096).is_ok() {}
        drop(reader);
        held
    };
    let held = simulation.block_on(fill).expect("runs");
    let sealed = || {
        let segments = engine.partitions().into_iter().flat_map(|partition| partition.segments);
        segments.map(|segment| segment.sealed).collect::<Vec<_>>()
    };
    nap(&mut simulation, Duration::from_secs(1));
    assert_eq!(sealed(), [false], "there is no room for a copy");
    drop(held);
    nap(&mut simulation, Duration::from_secs(10));
    assert_eq!(sealed(), [true]);
}

const SEGMENT_ROWS: i64 = 4_096;

/// What becomes of a load for whose second segment only `room` bytes are left, until a task gives another MiB back
/// after `given_back`, or which is cancelled after a while; and how long that took.
fn load_in_full_memory(
    room: u64,
    given_back: Duration,
    cancelled: Option<Duration>,
) -> (Result<u64, EngineError>, Duration) {
    let options = EngineOptions { workers: 2, memory_limit_bytes: 64 * MIB, ..EngineOptions::default() };
    let mut simulation = Simulation::new(7, options).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, 1);
    let segment = |number: i64| {
        let text = |key: i64| Value::Text(format!("number {}", key * 7_919 % 1_000_003).into());
        let row = |key| vec![Value::Int64(key), Value::Int64(key), text(key)];
        let rows: Vec<Vec<Value>> = (number * SEGMENT_ROWS..(number + 1) * SEGMENT_ROWS).map(row).collect();
        Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows)
    };
    let (first, second, loader) = (segment(0), segment(1), engine.clone());
    let load = async move {
        let mut transaction = loader.begin();
        let handle = transaction.cancel_handle();
        let mut bulk = transaction.bulk(container).expect("the container exists");
        bulk.append(first).await.expect("there is room for it");
        let held = Arc::new(loader.memory().reserve("test"));
        while held.grow(4_096).is_ok() {}
        held.shrink(room);
        let began = loader.env().now();
        let (giver, gives_back) = (loader.clone(), Arc::clone(&held));
        loader.spawn(async move {
            giver.sleep_until(began + given_back).await;
            gives_back.shrink(MIB);
        });
        if let Some(time) = cancelled {
            let canceller = loader.clone();
            loader.spawn(async move {
                canceller.sleep_until(began + time).await;
                handle.cancel();
            });
        }
        let appended = bulk.append(second).await;
        let took = loader.env().now().since(began);
        drop(held);
        (if let Err(error) = appended { Err(error) } else { bulk.finish().await }, took)
    };
    simulation.block_on(load).expect("the task ends")
}

/// A load waits instead of losing its rows if it is refused memory that is released soon after, for the rows that it
/// gathers or for a segment of them.
#[test]
fn a_load_waits_for_memory_that_comes_back() {
    let (soon, later, never) = (Duration::from_millis(100), Duration::from_millis(500), Duration::from_hours(1));
    for (room, consumer) in [(4_096, "bulk load"), (256 << 10, "column segments")] {
        for given_back in [soon, later] {
            let (loaded, took) = load_in_full_memory(room, given_back, None);
            assert_eq!(loaded.expect("there is memory in the end"), 2 * SEGMENT_ROWS as u64, "{consumer}");
            assert!(took >= given_back, "{consumer}: it needed no more memory");
        }
        let (loaded, took) = load_in_full_memory(room, never, None);
        let refused = loaded.expect_err("it does not wait for ever");
        assert_eq!(refused.memory_exceeded().map(|refused| refused.consumer), Some(consumer), "{refused}");
        assert!(took > later && took < Duration::from_secs(2), "{consumer}: {took:?}");
        let (loaded, took) = load_in_full_memory(room, never, Some(soon));
        assert!(matches!(loaded, Err(EngineError::Cancelled)), "{consumer}: {loaded:?}");
        assert!(took < soon + Duration::from_millis(50), "{consumer}: {took:?}");
    }
}

/// One test, because both parts look at the memory of this process.
#[test]
fn the_process_is_watched_while_there_is_work_and_an_idle_engine_sleeps() {
    let configured = 4 << 30;
    let options = EngineOptions { workers: 2, memory_limit_bytes: configured, ..EngineOptions::default() };
    let engine = start(options);
    let container = load(&engine);
    let busy = |until: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !until() {
            assert!(Instant::now() < deadline, "{:?}", engine.statistics().memory_report);
            read(&engine, container, None).expect("a read succeeds");
        }
    };
    let unaccounted = || engine.statistics().memory_report.map_or(0, |report| report.unaccounted_bytes);
    // Somebody holds memory that nobody accounts for: the limit goes down by as much while the engine works.
    let forgotten = std::hint::black_box(vec![1_u8; 600 << 20]);
    busy(&|| unaccounted() > 600 * MIB);
    let report = engine.statistics().memory_report.expect("the process is watched");
    assert_eq!(report.reason, LimitReason::Unaccounted);
    assert_eq!(report.limit_bytes + report.unaccounted_bytes, configured);
    assert_eq!(engine.memory().configured_limit(), configured);
    assert!(engine.memory().limit() < configured - 600 * MIB);
    let scan = engine.memory().reserve("scan");
    let refused = scan.grow(configured - 600 * MIB).expect_err("the process would pass its limit");
    assert_eq!(refused.refused_by, RefusedBy::Unaccounted);
    // It comes back by itself.
    drop(forgotten);
    busy(&|| unaccounted() < 500 * MIB);
    assert!(engine.memory().limit() > configured - 500 * MIB);

    // Without work nobody wakes up to look but, a few times, to give memory back: first one worker, then whom it asked.
    let parks = || engine.statistics().event(Event::Parks);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let before = parks();
        std::thread::sleep(Duration::from_secs(3));
        if parks() == before {
            break;
        }
        assert!(Instant::now() < deadline, "an idle engine sleeps");
    }

    let unwatched = start(EngineOptions { memory_watched: false, ..EngineOptions::default() });
    assert_eq!(unwatched.memory_report().map(|report| report.reason), None);
    unwatched.shutdown();
    engine.shutdown();
}
