//! Splits, merges and moves one by one, where the simulation does them all at once: messages that are under way while a
//! partition changes, forwarders, groups.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod mover;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    Coalescing, Container, ContainerSpec, Engine, EngineError, EngineOptions, Event, IsolationLevel, LockWait,
    MoveMethod, Partitioning, PlacementError, Simulation, Transaction,
};
use eris_platform::{NodeId, SeededRandom, test_load};
use eris_storage::{AttributeId, Batch, ContainerId, DataType, Layout, PartitionId, RowLock, Value, key_of_values};

use accounts::{
    AMOUNT, KEY, SetAmount, between, by_key, by_position, everything, integers, lookup, pairs, row, schema,
};
use mover::random_order;

const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);
const ROWS: i64 = 400;

fn two_nodes() -> EngineOptions {
    EngineOptions {
        workers: 2,
        nodes: 2,
        parallel_rows: 1_000_000,
        quantum: Duration::from_micros(50),
        ..EngineOptions::default()
    }
}

fn by_range() -> Partitioning {
    Partitioning::Range(Box::new([KEY]))
}

fn create(engine: &Engine, partitioning: Partitioning) -> Arc<Container> {
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created")
}

async fn insert(engine: &Engine, container: ContainerId, keys: impl Iterator<Item = i64>) {
    let mut transaction = engine.begin();
    for key in keys {
        transaction.insert(container, row(key, key * 10, None)).await.expect("inserted");
        transaction.next_statement();
    }
    transaction.commit().await.expect("committed");
}

async fn all(engine: &Engine, container: ContainerId) -> Vec<(i64, i64)> {
    let mut transaction = engine.begin();
    let mut found =
        pairs(&transaction.scan(everything(container), None).expect("there").collect().await.expect("read"));
    found.sort_unstable();
    found
}

fn partitions(engine: &Engine, container: ContainerId) -> Vec<(PartitionId, NodeId)> {
    let all = engine.partitions().into_iter().filter(|partition| partition.container == container);
    all.map(|partition| (partition.id, partition.home)).collect()
}

fn expected(amount: impl Fn(i64) -> i64) -> Vec<(i64, i64)> {
    (0..ROWS).map(|key| (key, amount(key))).collect()
}

/// A table of two partitions, the lower one on node 0, the upper one on node 1.
fn two_partitions(simulation: &mut Simulation) -> (Arc<Container>, PartitionId, PartitionId) {
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
fn on_node_0<T: Send + 'static>(simulation: &mut Simulation, future: impl Future<Output = T> + Send + 'static) -> T {
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

fn events(engine: &Engine, event: Event) -> u64 {
    engine.statistics().event(event)
}

/// Messages wait for the stopped node 1 while its partition is merged into the one on node 0, or copied there. Whatever
/// the command is, it meets each row once.
fn commands_under_way(change: impl Fn(&Engine, PartitionId, PartitionId) -> Order) {
    for command in 0..8 {
        let mut simulation = Simulation::new(command, two_nodes()).expect("starts");
        let (container, left, right) = two_partitions(&mut simulation);
        let (engine, id) = (simulation.engine().clone(), container.id());
        simulation.stop_node(THERE);
        // The commands leave under the table of now; node 0 answers its part.
        let found = Arc::new(Mutex::new(None));
        let (client, result) = (engine.clone(), Arc::clone(&found));
        engine.spawn_on(HERE, async move {
            let mut transaction = client.begin();
            let rows = match command {
                0 => {
                    let results = transaction.scan(everything(id), None).expect("there");
                    let mut found = pairs(&results.collect().await.expect("read"));
                    found.sort_unstable();
                    assert_eq!(found, expected(|key| key * 10), "each row is met once");
                    ROWS as u64
                }
                1 => transaction.update(&everything(id), Arc::new(SetAmount(7))).await.expect("updated"),
                2 => transaction.delete(&everything(id), None).await.expect("deleted"),
                3 => look_up(&mut transaction, id, KEY, Coalescing::Sender).await,
                // No partition can be told from an amount: each of them is asked.
                4 => look_up(&mut transaction, id, AMOUNT, Coalescing::Partition).await,
                5 => look_up(&mut transaction, id, AMOUNT, Coalescing::None).await,
                6 => {
                    let locked = transaction.lock_rows(&everything(id), RowLock::Share, LockWait::Wait).await;
                    let mut locked = pairs(&locked.expect("locked"));
                    locked.sort_unstable();
                    assert_eq!(locked, expected(|key| key * 10), "each row is locked once");
                    ROWS as u64
                }
                _ => {
                    let pinned = transaction.pin(id, &everything(id).request).await.expect("pinned");
                    let open: usize = pinned.open.iter().map(|batch| batch.rows).sum();
                    let sealed: u32 = pinned.segments.iter().map(|segment| segment.rows()).sum();
                    open as u64 + u64::from(sealed)
                }
            };
            transaction.commit().await.expect("committed");
            *result.lock().expect("one thread") = Some(rows);
        });
        simulation.run_until_idle().expect("runs");
        assert!(found.lock().expect("one thread").is_none(), "node 1 has not answered");
        let order = change(&engine, left, right);
        on_node_0(&mut simulation, order).expect("changed");
        // Who comes now uses the new table and does not wait for node 1.
        let reader = engine.clone();
        let before = on_node_0(&mut simulation, async move { all(&reader, id).await.len() });
        assert!(before as i64 == ROWS, "what is under way is not committed");
        let forwarders = engine.statistics().forwarders;
        assert_eq!(forwarders, 1, "who gave everything away stays as long as the command is under way");
        let forwarded = events(&engine, Event::Forwarded);
        simulation.resume_node(THERE);
        simulation.run_until_idle().expect("runs");
        assert_eq!(*found.lock().expect("one thread"), Some(ROWS as u64), "command {command}: every row counts once");
        assert!(events(&engine, Event::Forwarded) > forwarded, "the message was passed on");
        let reader = engine.clone();
        let after = simulation.block_on(async move { all(&reader, id).await }).expect("runs");
        let expected = match command {
            1 => expected(|_| 7),
            2 => Vec::new(),
            _ => expected(|key| key * 10),
        };
        assert_eq!(after, expected);
        simulation.run_until_idle().expect("runs");
        let statistics = engine.statistics();
        assert_eq!(statistics.forwarders, 0, "nobody pins an older table any more");
        assert_eq!(statistics.event(Event::ForwardersDropped), 1);
        engine.drop_container(id).expect("dropped");
        drop(container);
        simulation.run_until_idle().expect("runs");
        let memory = Arc::clone(engine.memory());
        drop((simulation, engine));
        assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
    }
}

/// Looks up every third row and some that are not there; says how many rows there are, if all was right.
async fn look_up(transaction: &mut Transaction, id: ContainerId, by: AttributeId, coalescing: Coalescing) -> u64 {
    let factor = if by == KEY { 1 } else { 10 };
    let wanted: Vec<i64> = (0..ROWS + 30).step_by(3).collect();
    let keys: Vec<i64> = wanted.iter().map(|key| key * factor).collect();
    let results = transaction.lookup_many(lookup(id, by, coalescing), &integers(&keys), None).expect("there");
    let found = by_position(keys.len(), &results.collect().await.expect("read"));
    for (key, found) in wanted.into_iter().zip(found) {
        let expected = if key < ROWS { vec![(key, key * 10)] } else { Vec::new() };
        assert_eq!(found, expected, "a key is found once");
    }
    ROWS as u64
}

type Order = std::pin::Pin<Box<dyn Future<Output = Result<(), PlacementError>> + Send>>;

#[test]
fn commands_under_way_meet_each_row_once_when_their_partition_merges() {
    commands_under_way(|engine, left, right| {
        let engine = engine.clone();
        Box::pin(async move { engine.merge_partitions(right, left).await })
    });
}

#[test]
fn commands_under_way_follow_a_partition_that_is_copied() {
    commands_under_way(|engine, _, right| {
        let engine = engine.clone();
        Box::pin(async move { engine.move_partition(right, HERE, MoveMethod::Copy).await })
    });
}

/// A row lock moves with its row: who waits for it goes on when its holder ends, and not before.
#[test]
fn locks_and_waits_survive_merges_and_moves() {
    for copied in [false, true] {
        let mut simulation = Simulation::new(8, two_nodes()).expect("starts");
        let (container, left, right) = two_partitions(&mut simulation);
        let (engine, id) = (simulation.engine().clone(), container.id());
        let waited = Arc::new(Mutex::new(None));
        let (client, result) = (engine.clone(), Arc::clone(&waited));
        simulation
            .block_on(async move {
                let mut holder = client.begin();
                let last = by_key(id, ROWS - 1);
                let locked = holder.lock_rows(&last, RowLock::Update, LockWait::Wait).await.expect("locked");
                assert_eq!(pairs(&locked), [(ROWS - 1, (ROWS - 1) * 10)]);
                let writer = client.clone();
                client.spawn(async move {
                    let mut transaction = writer.begin();
                    let rows = transaction.update(&by_key(id, ROWS - 1), Arc::new(SetAmount(3))).await.expect("waits");
                    transaction.commit().await.expect("committed");
                    *result.lock().expect("one thread") = Some(rows);
                });
                client.sleep_until(client.env().now() + Duration::from_millis(1)).await;
                let changed = if copied {
                    client.move_partition(right, HERE, MoveMethod::Copy).await
                } else {
                    client.merge_partitions(right, left).await
                };
                changed.expect("nobody reads");
                assert!(partitions(&client, id).iter().all(|(known, _)| *known != right));
                client.sleep_until(client.env().now() + Duration::from_millis(50)).await;
                let mut other = client.begin();
                let refused = other.lock_rows(&by_key(id, ROWS - 1), RowLock::KeyShare, LockWait::NoWait).await;
                assert!(matches!(refused, Err(EngineError::LockNotAvailable)), "the row is locked: {refused:?}");
                other.rollback();
                holder.rollback();
            })
            .expect("runs");
        simulation.run_until_idle().expect("runs");
        assert_eq!(*waited.lock().expect("one thread"), Some(1), "who waited has written");
        let reader = engine.clone();
        let after = simulation.block_on(async move { all(&reader, id).await }).expect("runs");
        assert_eq!(after, expected(|key| if key == ROWS - 1 { 3 } else { key * 10 }));
        engine.drop_container(id).expect("dropped");
        drop(container);
        simulation.run_until_idle().expect("runs");
        let memory = Arc::clone(engine.memory());
        drop((simulation, engine));
        assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
    }
}

#[test]
fn a_linked_partition_is_met_once_by_a_broadcast_under_way() {
    let mut simulation = Simulation::new(3, two_nodes()).expect("starts");
    let (container, left, right) = two_partitions(&mut simulation);
    let (engine, id) = (simulation.engine().clone(), container.id());
    simulation.stop_node(THERE);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (client, result) = (engine.clone(), Arc::clone(&found));
    engine.spawn_on(HERE, async move {
        *result.lock().expect("one thread") = all(&client, id).await;
    });
    simulation.run_until_idle().expect("runs");
    // The broadcast waits on node 1. The one that it has met goes there, the one that it has not leaves.
    let mover = engine.clone();
    let moved = on_node_0(&mut simulation, async move {
        mover.move_partition(left, THERE, MoveMethod::Link).await?;
        mover.move_partition(right, HERE, MoveMethod::Link).await
    });
    moved.expect("linked");
    simulation.resume_node(THERE);
    simulation.run_until_idle().expect("runs");
    let found = found.lock().expect("one thread").clone();
    assert_eq!(found, expected(|key| key * 10), "no partition was met twice, none was left out");
    assert_eq!(partitions(&engine, id), [(left, THERE), (right, HERE)]);
}

/// Six partitions in the order of their keys, on node 0 and node 1 in turn.
fn six_partitions(simulation: &mut Simulation) -> (Arc<Container>, Vec<PartitionId>) {
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let id = schema.container;
    let cut = |cut: i64| key_of_values(&[(&Value::Int64(cut * ROWS / 6), DataType::Int64)]);
    let spec = ContainerSpec { schema, partitioning: by_range() };
    let container = engine.create_range_container(spec, &(1..6).map(cut).collect::<Vec<_>>()).expect("created");
    let ids = engine.partition_ids(id);
    let moved = ids.clone();
    simulation
        .block_on(async move {
            insert(&engine, id, 0..ROWS).await;
            for (place, partition) in moved.into_iter().enumerate() {
                let home = [HERE, THERE][place % 2];
                engine.move_partition(partition, home, MoveMethod::Link).await.expect("linked");
            }
        })
        .expect("runs");
    simulation.run_until_idle().expect("runs");
    (container, ids)
}

/// A multicast waits on the stopped node 1 while one of its receivers there merges into one on node 0, one is copied to
/// node 0 and one on node 0, which has answered, is linked to node 1; a neighbour that it does not concern goes, too.
#[test]
fn a_multicast_under_way_meets_each_row_of_its_range_once() {
    // Rows of the second to the sixth partition: four of five others and a part of the last.
    const LOW: i64 = ROWS / 6 + 5;
    const HIGH: i64 = ROWS - 10;
    for command in 0..4 {
        let mut simulation = Simulation::new(command, two_nodes()).expect("starts");
        let (container, ids) = six_partitions(&mut simulation);
        let (engine, id) = (simulation.engine().clone(), container.id());
        simulation.stop_node(THERE);
        let found = Arc::new(Mutex::new(None));
        let (client, result) = (engine.clone(), Arc::clone(&found));
        engine.spawn_on(HERE, async move {
            let mut transaction = client.begin();
            let range = between(id, LOW, HIGH);
            let read = |batches: Vec<Batch>| {
                let mut rows = pairs(&batches);
                rows.sort_unstable();
                assert_eq!(rows, expected(|key| key * 10)[LOW as usize..=HIGH as usize], "each row is met once");
                rows.len() as u64
            };
            let rows = match command {
                0 => read(transaction.scan(range, None).expect("there").collect().await.expect("read")),
                1 => transaction.update(&range, Arc::new(SetAmount(7))).await.expect("updated"),
                2 => transaction.delete(&range, None).await.expect("deleted"),
                _ => read(transaction.lock_rows(&range, RowLock::Share, LockWait::Wait).await.expect("locked")),
            };
            transaction.commit().await.expect("committed");
            *result.lock().expect("one thread") = Some(rows);
        });
        let multicasts = events(&engine, Event::Multicasts);
        simulation.run_until_idle().expect("runs");
        assert_eq!(events(&engine, Event::Multicasts), multicasts + 1, "one message for five partitions");
        assert!(found.lock().expect("one thread").is_none(), "node 1 has not answered");
        let mover = engine.clone();
        let moved = on_node_0(&mut simulation, async move {
            mover.merge_partitions(ids[1], ids[2]).await?;
            mover.move_partition(ids[3], HERE, MoveMethod::Copy).await?;
            mover.move_partition(ids[4], THERE, MoveMethod::Link).await?;
            mover.move_partition(ids[0], THERE, MoveMethod::Link).await
        });
        moved.expect("changed");
        let forwarded = events(&engine, Event::Forwarded);
        simulation.resume_node(THERE);
        simulation.run_until_idle().expect("runs");
        assert_eq!(*found.lock().expect("one thread"), Some((HIGH - LOW + 1) as u64), "command {command}");
        assert!(events(&engine, Event::Forwarded) >= forwarded + 2, "the merged and the copied one pass it on");
        let reader = engine.clone();
        let mut after = expected(|key| if command == 1 && (LOW..=HIGH).contains(&key) { 7 } else { key * 10 });
        after.retain(|(key, _)| command != 2 || !(LOW..=HIGH).contains(key));
        assert_eq!(simulation.block_on(async move { all(&reader, id).await }).expect("runs"), after);
        engine.drop_container(id).expect("dropped");
        drop(container);
        simulation.run_until_idle().expect("runs");
        let memory = Arc::clone(engine.memory());
        drop((simulation, engine));
        assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
    }
}

#[test]
fn a_moved_partition_of_a_table_without_key_forwards_its_rows() {
    let mut simulation = Simulation::new(5, two_nodes()).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, Partitioning::Size { partitions: 1 });
    let id = container.id();
    let mover = engine.clone();
    simulation
        .block_on(async move {
            insert(&mover, id, 0..100).await;
            let (only, home) = partitions(&mover, id)[0];
            let other = if home == HERE { THERE } else { HERE };
            mover.move_partition(only, other, MoveMethod::Copy).await.expect("copied");
            let (new, now) = partitions(&mover, id)[0];
            assert!(new != only && now == other);
            insert(&mover, id, 100..ROWS).await;
            assert_eq!(all(&mover, id).await, expected(|key| key * 10));
            let merged = mover.merge_partitions(new, new).await;
            assert_eq!(merged, Err(PlacementError::NoPositions(id)));
        })
        .expect("runs");
    simulation.run_until_idle().expect("runs");
    assert_eq!(engine.statistics().forwarders, 0);
}

#[test]
fn a_scan_under_way_follows_a_partition_of_a_table_without_key() {
    let mut simulation = Simulation::new(5, two_nodes()).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, Partitioning::Size { partitions: 2 });
    let id = container.id();
    let client = engine.clone();
    simulation.block_on(async move { insert(&client, id, 0..ROWS).await }).expect("runs");
    simulation.run_until_idle().expect("runs");
    simulation.stop_node(THERE);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (client, result) = (engine.clone(), Arc::clone(&found));
    engine.spawn_on(HERE, async move {
        *result.lock().expect("one thread") = all(&client, id).await;
    });
    simulation.run_until_idle().expect("runs");
    let away = partitions(&engine, id).into_iter().find(|(_, home)| *home == THERE).expect("one on each node").0;
    let mover = engine.clone();
    on_node_0(&mut simulation, async move { mover.move_partition(away, HERE, MoveMethod::Copy).await })
        .expect("copied");
    simulation.resume_node(THERE);
    simulation.run_until_idle().expect("runs");
    let found = found.lock().expect("one thread").clone();
    assert_eq!(found, expected(|key| key * 10));
}

#[test]
fn orders_that_make_no_sense_are_errors() {
    let mut simulation = Simulation::new(5, two_nodes()).expect("starts");
    let (container, left, right) = two_partitions(&mut simulation);
    let engine = simulation.engine().clone();
    let other = create(&engine, by_range());
    simulation
        .block_on(async move {
            let foreign = partitions(&engine, other.id())[0].0;
            let merged = engine.merge_partitions(left, foreign).await;
            assert_eq!(merged, Err(PlacementError::NotNeighbours(left, foreign)));
            assert_eq!(engine.merge_partitions(right, right).await, Err(PlacementError::NotNeighbours(right, right)));
            let moved = engine.move_partition(left, NodeId(9), MoveMethod::Link).await;
            assert_eq!(moved, Err(PlacementError::NoSuchNode(NodeId(9))));
            assert_eq!(engine.split_partition(foreign).await, Err(PlacementError::NotDivisible(foreign)));
            engine.merge_partitions(left, right).await.expect("merged");
            let gone = partitions(&engine, container.id())[0].0;
            let gone = if gone == left { right } else { left };
            assert_eq!(engine.split_partition(gone).await, Err(PlacementError::NoSuchPartition(gone)));
        })
        .expect("runs");
}

/// Parent and child by the same key: whatever happens to one happens to both, and rows of one key share a place.
#[test]
fn members_of_a_group_stay_alike_under_random_orders() {
    let mut reached = (0, 0, 0);
    for seed in 0..test_load(12) {
        let mut simulation = Simulation::new(seed, two_nodes()).expect("starts");
        let engine = simulation.engine().clone();
        let partitioning = match seed % 2 {
            0 => by_range(),
            _ => Partitioning::Hash { attributes: Box::new([KEY]), partitions: 3 },
        };
        let parent = create(&engine, partitioning);
        let child_schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
        let child = engine.create_container_alike(child_schema, &[KEY], &parent).expect("alike");
        let (driver, members) = (engine.clone(), [Arc::clone(&parent), Arc::clone(&child)]);
        simulation
            .block_on(async move {
                let mut random = SeededRandom::new(seed);
                for round in 0..40 {
                    let keys = round * 10..round * 10 + 10;
                    insert(&driver, members[0].id(), keys.clone()).await;
                    insert(&driver, members[1].id(), keys.step_by(2)).await;
                    let _ = random_order(&driver, members[random.index(2)].id(), &mut random).await;
                    assert!(driver.are_partitioned_alike(&members[0], &members[1]), "seed {seed}, round {round}");
                }
                assert_eq!(all(&driver, members[0].id()).await, expected(|key| key * 10));
                let half: Vec<(i64, i64)> = (0..ROWS).step_by(2).map(|key| (key, key * 10)).collect();
                assert_eq!(all(&driver, members[1].id()).await, half);
            })
            .expect("runs");
        simulation.run_until_idle().expect("runs");
        assert_eq!(engine.statistics().forwarders, 0);
        assert_eq!(partitions(&engine, parent.id()).len(), partitions(&engine, child.id()).len());
        reached.0 += events(&engine, Event::Merges);
        reached.1 += events(&engine, Event::Copies);
        reached.2 += events(&engine, Event::Splits);
        for container in [parent.id(), child.id()] {
            engine.drop_container(container).expect("dropped");
        }
        simulation.run_until_idle().expect("runs");
        drop((parent, child));
        let memory = Arc::clone(engine.memory());
        drop((simulation, engine));
        assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
    }
    assert!(reached.0 > 20 && reached.1 > 20 && reached.2 > 20, "orders were carried out: {reached:?}");
}

#[test]
fn a_group_needs_the_same_types() {
    let simulation = Simulation::new(1, two_nodes()).expect("starts");
    let engine = simulation.engine().clone();
    let parent = create(&engine, by_range());
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
    let text = eris_storage::AttributeId(2);
    let alike = engine.create_container_alike(schema, &[text], &parent);
    assert_eq!(alike.err(), Some(PlacementError::NotAlike));
}

/// Rows with rising keys.
const INSERTED: i64 = 4_000;

/// Keys that rise by single inserts: the table grows by fresh partitions at its upper end, on the nodes in turn.
#[test]
fn rising_keys_append_partitions_and_move_few_rows() {
    let options = EngineOptions { parallel_rows: 200, split_rows: 600, ..two_nodes() };
    let mut simulation = Simulation::new(11, options).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, by_range());
    let (id, client) = (container.id(), engine.clone());
    let found = simulation
        .block_on(async move {
            for chunk in 0..INSERTED / 50 {
                insert(&client, id, chunk * 50..chunk * 50 + 50).await;
                client.sleep_until(client.env().now() + Duration::from_millis(1)).await;
            }
            all(&client, id).await.len()
        })
        .expect("runs");
    assert_eq!(found as i64, INSERTED);
    simulation.run_until_idle().expect("runs");
    let moved = events(&engine, Event::RowsHandedOver);
    assert!(moved * 20 < INSERTED as u64, "{moved} of {INSERTED} rows moved");
    let homes: Vec<NodeId> = partitions(&engine, id).iter().map(|(_, home)| *home).collect();
    assert!(events(&engine, Event::AppendPartitions) >= 6, "append partitions: {homes:?}");
    let (here, there) = (homes.iter().filter(|home| **home == HERE).count(), homes.len());
    assert!(here * 3 >= there && here * 3 <= 2 * there, "they go round over the nodes: {homes:?}");
}

/// A table without a key that has outgrown its limits gets a partition more. Nothing moves: what comes goes there.
#[test]
fn an_outgrown_partition_by_size_gets_a_sibling() {
    let options = EngineOptions { split_rows: 100, ..two_nodes() };
    let mut simulation = Simulation::new(13, options).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, Partitioning::Size { partitions: 2 });
    let (id, client) = (container.id(), engine.clone());
    let rows_of = |engine: &Engine| -> Vec<u64> {
        let all = engine.partitions().into_iter().filter(|partition| partition.container == id);
        all.map(|partition| partition.rows).collect()
    };
    simulation.block_on(async move { insert(&client, id, 0..180).await }).expect("runs");
    simulation.run_until_idle().expect("runs");
    assert_eq!((rows_of(&engine), events(&engine, Event::Splits)), (vec![90, 90], 0), "both have room");

    // A scan that is under way meets the siblings, too, and no row twice.
    simulation.stop_node(THERE);
    let found = Arc::new(Mutex::new(None));
    let (client, result) = (engine.clone(), Arc::clone(&found));
    engine.spawn_on(HERE, async move {
        let mut transaction = client.begin_with(IsolationLevel::ReadCommitted);
        let rows = transaction.update(&everything(id), Arc::new(SetAmount(7))).await.expect("updated");
        transaction.commit().await.expect("committed");
        *result.lock().expect("one thread") = Some(rows);
    });
    simulation.run_until_idle().expect("runs");
    assert!(found.lock().expect("one thread").is_none(), "node 1 has not answered");
    simulation.resume_node(THERE);
    let client = engine.clone();
    simulation.block_on(async move { insert(&client, id, 180..ROWS).await }).expect("runs");
    simulation.run_until_idle().expect("runs");
    assert_eq!(*found.lock().expect("one thread"), Some(180), "each row is met once");

    let rows = rows_of(&engine);
    assert!(rows.len() > 2 && rows.iter().sum::<u64>() == ROWS as u64, "siblings take rows: {rows:?}");
    assert!(rows[2..].iter().all(|rows| *rows > 0), "what comes goes to the smallest: {rows:?}");
    assert_eq!(events(&engine, Event::Splits), rows.len() as u64 - 2);
    assert_eq!(events(&engine, Event::RowsHandedOver), 0, "no row moves");
    let reader = engine.clone();
    let after = simulation.block_on(async move { all(&reader, id).await }).expect("runs");
    assert_eq!(after, expected(|key| if key < 180 { 7 } else { key * 10 }));
    engine.drop_container(id).expect("dropped");
    drop(container);
    simulation.run_until_idle().expect("runs");
    let memory = Arc::clone(engine.memory());
    drop((simulation, engine));
    assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
}

/// The same number of rows in random order is cut in the middle.
#[test]
fn keys_in_random_order_split_in_the_middle() {
    let options = EngineOptions { parallel_rows: 200, split_rows: 600, ..two_nodes() };
    let mut simulation = Simulation::new(11, options).expect("starts");
    let engine = simulation.engine().clone();
    let container = create(&engine, by_range());
    let (id, client) = (container.id(), engine.clone());
    simulation
        .block_on(async move {
            for chunk in 0..40 {
                insert(&client, id, (0..50).map(|key| (chunk * 50 + key) * 7_919 % 10_007)).await;
                client.sleep_until(client.env().now() + Duration::from_millis(1)).await;
            }
        })
        .expect("runs");
    simulation.run_until_idle().expect("runs");
    assert!(events(&engine, Event::Splits) >= 3 && events(&engine, Event::AppendPartitions) == 0);
}
