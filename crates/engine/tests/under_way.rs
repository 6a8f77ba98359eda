//! What is under way while a partition splits, merges or moves: messages meet each row once, locks and waits go along.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod two_nodes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    Coalescing, Container, ContainerSpec, Engine, EngineError, Event, LockWait, MoveMethod, Partitioning,
    PlacementError, Simulation, Transaction,
};
use eris_storage::{
    AttributeId, ContainerId, DataType, IndexId, IndexOrder, Layout, PartitionId, PinnedCursor, RowLock, Value,
    key_of_values,
};

use accounts::{AMOUNT, KEY, SetAmount, between, by_key, by_position, everything, integers, lookup, pairs, schema};
use two_nodes::{
    HERE, ROWS, THERE, all, by_range, create, events, expected, insert, on_node_0, partitions, two_nodes,
    two_partitions,
};

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
fn a_linked_partition_is_met_once_by_messages_under_way() {
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
    // A message waits on node 1. The partition that was met goes there, the one that was not leaves.
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

/// What happens between the sending of a multicast and its arrival.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Meanwhile {
    /// It waits on the stopped node 1. Of its receivers there one merges into one on node 0, one is copied, one is
    /// copied and cut; one on node 0, which has answered, goes to node 1, and so does one that it does not concern.
    Moves,
    /// Node 1 is given up while it waits there.
    GivesUp,
    /// Node 1 is given up before node 0 divides it.
    GivesUpFirst,
}

/// Rows of the second to the sixth of six partitions, but not the first ones and not the last ones.
const LOW: i64 = ROWS / 6 + 5;
const HIGH: i64 = ROWS - 10;
/// Ways to meet rows.
const COMMANDS: u64 = 6;

/// Meets the rows of the range by one multicast; says how many they were, if they were the right ones.
async fn meet_range(transaction: &mut Transaction, id: ContainerId, command: u64) -> u64 {
    let mut range = between(id, LOW, HIGH);
    let batches = match command {
        0 => transaction.scan(range, None).expect("there").collect().await.expect("read"),
        1 => {
            range.request.order = Some(IndexOrder { index: IndexId(1), descending: true });
            transaction.scan(range, None).expect("there").collect().await.expect("read")
        }
        2 => {
            let pinned = transaction.pin(id, &range.request).await.expect("pinned");
            let handle = transaction.snapshot_handle();
            let mut batches = pinned.open;
            for segment in &pinned.segments {
                let mut cursor = PinnedCursor::default();
                while let Some(batch) = segment.scan(&handle.snapshot(), &range.request, &mut cursor, 5).expect("read")
                {
                    batches.push(batch);
                }
            }
            batches
        }
        3 => transaction.lock_rows(&range, RowLock::Share, LockWait::Wait).await.expect("locked"),
        4 => return transaction.update(&range, Arc::new(SetAmount(7))).await.expect("updated"),
        _ => return transaction.delete(&range, None).await.expect("deleted"),
    };
    let mut rows = pairs(&batches);
    rows.sort_unstable();
    assert_eq!(rows, expected(|key| key * 10)[LOW as usize..=HIGH as usize], "each row is met once");
    rows.len() as u64
}

fn multicast_under_way(command: u64, meanwhile: Meanwhile) {
    let mut simulation = Simulation::new(command, two_nodes()).expect("starts");
    let (container, ids) = six_partitions(&mut simulation);
    let (engine, id) = (simulation.engine().clone(), container.id());
    simulation.stop_node(THERE);
    let found = Arc::new(Mutex::new(None));
    let (client, result) = (engine.clone(), Arc::clone(&found));
    engine.spawn_on(HERE, async move {
        let mut transaction = client.begin();
        let rows = meet_range(&mut transaction, id, command).await;
        transaction.commit().await.expect("committed");
        *result.lock().expect("one thread") = Some(rows);
    });
    let multicasts = events(&engine, Event::Multicasts);
    if meanwhile == Meanwhile::GivesUpFirst {
        simulation.step_without_coordinator(HERE, 200);
        assert_eq!(events(&engine, Event::Multicasts), multicasts, "the coordinator has not seen it");
    } else {
        simulation.run_until_idle().expect("runs");
        assert_eq!(events(&engine, Event::Multicasts), multicasts + 1, "one message for five partitions");
    }
    assert!(found.lock().expect("one thread").is_none(), "node 1 has not answered");
    let forwarded = events(&engine, Event::Forwarded);
    if meanwhile == Meanwhile::Moves {
        let mover = engine.clone();
        let moved = on_node_0(&mut simulation, async move {
            mover.merge_partitions(ids[1], ids[2]).await?;
            mover.move_partition(ids[3], HERE, MoveMethod::Copy).await?;
            mover.move_partition(ids[5], HERE, MoveMethod::Copy).await?;
            mover.split_partition(*mover.partition_ids(id).last().expect("a table has a partition")).await?;
            mover.move_partition(ids[4], THERE, MoveMethod::Link).await?;
            mover.move_partition(ids[0], THERE, MoveMethod::Link).await
        });
        moved.expect("changed");
        simulation.resume_node(THERE);
    } else {
        engine.evacuate_node(THERE).expect("evacuated");
    }
    simulation.run_until_idle().expect("runs");
    assert_eq!(*found.lock().expect("one thread"), Some((HIGH - LOW + 1) as u64), "{meanwhile:?}, {command}");
    assert_eq!(events(&engine, Event::Multicasts), multicasts + 1, "{meanwhile:?}, {command}");
    if meanwhile == Meanwhile::Moves {
        assert!(
            events(&engine, Event::Forwarded) >= forwarded + 3,
            "the merged, the copied and the cut one pass it on"
        );
    }
    let reader = engine.clone();
    let mut after = expected(|key| if command == 4 && (LOW..=HIGH).contains(&key) { 7 } else { key * 10 });
    after.retain(|(key, _)| command != 5 || !(LOW..=HIGH).contains(key));
    assert_eq!(on_node_0(&mut simulation, async move { all(&reader, id).await }), after);
    engine.drop_container(id).expect("dropped");
    drop(container);
    simulation.run_until_idle().expect("runs");
    let memory = Arc::clone(engine.memory());
    drop((simulation, engine));
    assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
}

#[test]
fn a_multicast_under_way_meets_each_row_of_its_range_once() {
    for command in 0..COMMANDS {
        multicast_under_way(command, Meanwhile::Moves);
    }
}

#[test]
fn a_multicast_to_a_node_that_is_given_up_meets_each_row_of_its_range_once() {
    for command in 0..COMMANDS {
        multicast_under_way(command, Meanwhile::GivesUp);
        multicast_under_way(command, Meanwhile::GivesUpFirst);
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
