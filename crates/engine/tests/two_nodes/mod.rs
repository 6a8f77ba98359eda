//! A table on two nodes, for tests about who gets its messages while its partitions change.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Container, ContainerSpec, Engine, EngineOptions, Event, MoveMethod, Partitioning, Simulation};
use eris_platform::NodeId;
use eris_storage::{ContainerId, Layout, PartitionId};

use crate::accounts::{KEY, everything, pairs, row, schema};

pub const HERE: NodeId = NodeId(0);
pub const THERE: NodeId = NodeId(1);
pub const ROWS: i64 = 400;

pub fn two_nodes() -> EngineOptions {
    EngineOptions {
        workers: 2,
        nodes: 2,
        parallel_rows: 1_000_000,
        quantum: Duration::from_micros(50),
        ..EngineOptions::default()
    }
}

pub fn by_range() -> Partitioning {
    Partitioning::Range(Box::new([KEY]))
}

pub fn create(engine: &Engine, partitioning: Partitioning) -> Arc<Container> {
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created")
}

pub async fn insert(engine: &Engine, container: ContainerId, keys: impl Iterator<Item = i64>) {
    let mut transaction = engine.begin();
    for key in keys {
        transaction.insert(container, row(key, key * 10, None)).await.expect("inserted");
        transaction.next_statement();
    }
    transaction.commit().await.expect("committed");
}

pub async fn all(engine: &Engine, container: ContainerId) -> Vec<(i64, i64)> {
    let mut transaction = engine.begin();
    let mut found =
        pairs(&transaction.scan(everything(container), None).expect("there").collect().await.expect("read"));
    found.sort_unstable();
    found
}

pub fn partitions(engine: &Engine, container: ContainerId) -> Vec<(PartitionId, NodeId)> {
    let all = engine.partitions().into_iter().filter(|partition| partition.container == container);
    all.map(|partition| (partition.id, partition.home)).collect()
}

pub fn expected(amount: impl Fn(i64) -> i64) -> Vec<(i64, i64)> {
    (0..ROWS).map(|key| (key, amount(key))).collect()
}

/// A table of two partitions, the lower one on node 0, the upper one on node 1.
pub fn two_partitions(simulation: &mut Simulation) -> (Arc<Container>, PartitionId, PartitionId) {
    let engine = simulation.engine().clone();
    let container = create(&engine, by_range());
    let id = container.id();
    let ids = simulation
        .block_on(async move {
            insert(&engine, id, 0..ROWS).await;
            let only = partitions(&engine, id)[0].0;
            engine.split_partition(only).await.expect("split");
            let ids = partitions(&engine, id);
            engine.move_partition(ids[0].0, HERE, MoveMethod::Link).await.expect("linked");
            engine.move_partition(ids[1].0, THERE, MoveMethod::Link).await.expect("linked");
            (ids[0].0, ids[1].0)
        })
        .expect("runs");
    simulation.run_until_idle().expect("runs");
    (container, ids.0, ids.1)
}

/// Runs a task on node 0 until it is done, while node 1 may stand still.
pub fn on_node_0<T: Send + 'static>(
    simulation: &mut Simulation,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let slot = Arc::new(Mutex::new(None));
    let result = Arc::clone(&slot);
    simulation.engine().spawn_on(HERE, async move {
        let value = future.await;
        *result.lock().expect("one thread") = Some(value);
    });
    simulation.run_until(|| slot.lock().expect("one thread").is_some()).expect("runs");
    let value = slot.lock().expect("one thread").take();
    value.expect("it is done")
}

pub fn events(engine: &Engine, event: Event) -> u64 {
    engine.statistics().event(event)
}
