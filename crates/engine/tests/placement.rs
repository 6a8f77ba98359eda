//! Splits, merges and moves one by one, where the simulation does them all at once: orders that are refused, groups,
//! and what containers do by themselves when they grow.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod mover;
mod two_nodes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{Engine, EngineOptions, Event, IsolationLevel, MoveMethod, Partitioning, PlacementError, Simulation};
use eris_platform::{NodeId, SeededRandom, test_load};
use eris_storage::Layout;

use accounts::{KEY, SetAmount, everything, schema};
use mover::{poll_some, random_order};
use two_nodes::{
    HERE, ROWS, THERE, all, by_range, create, events, expected, insert, partitions, two_nodes, two_partitions,
};

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

/// Whoever gave an order may cease to wait for it: it is carried out or not begun, and the next ones are.
#[test]
fn orders_that_nobody_waits_for_leave_their_partitions_in_order() {
    // A link needs nobody to wait for it.
    let mut changed = [0; 3];
    for (order, changed) in changed.iter_mut().enumerate() {
        for (seed, polls) in (0..test_load(10)).flat_map(|seed| [(seed, 1), (seed, 2)]) {
            let mut simulation = Simulation::new(seed, two_nodes()).expect("starts");
            let (container, left, right) = two_partitions(&mut simulation);
            let (engine, id) = (simulation.engine().clone(), container.id());
            let before = partitions(&engine, id);
            let giver = engine.clone();
            simulation
                .block_on(async move {
                    match order {
                        0 => poll_some(giver.split_partition(left), polls).await,
                        1 => poll_some(giver.merge_partitions(right, left), polls).await,
                        _ => poll_some(giver.move_partition(left, THERE, MoveMethod::Copy), polls).await,
                    }
                })
                .expect("runs");
            simulation.run_until_idle().expect("comes to rest");
            *changed += usize::from(polls == 1 && partitions(&engine, id) != before);
            let reader = engine.clone();
            let (found, again) = simulation
                .block_on(async move {
                    let last = *reader.partition_ids(id).last().expect("a table has a partition");
                    (all(&reader, id).await, reader.split_partition(last).await)
                })
                .expect("runs");
            assert_eq!(found, expected(|key| key * 10), "order {order}, seed {seed}, {polls} polls");
            assert_eq!(again, Ok(()), "order {order}, seed {seed}, {polls} polls: the next order is carried out");
            simulation.run_until_idle().expect("comes to rest");
            simulation.check_partitions().expect("the partitions are whole");
            engine.drop_container(id).expect("dropped");
            drop(container);
            simulation.run_until_idle().expect("runs");
            let memory = Arc::clone(engine.memory());
            drop((simulation, engine));
            assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
        }
    }
    assert!(changed.iter().all(|changed| *changed > 0), "orders are carried out that nobody waits for: {changed:?}");
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
