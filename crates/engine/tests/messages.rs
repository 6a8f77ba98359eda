//! The message layer under the simulator: who carries a message, how many go together, who gets one at all, and what
//! overtakes what. Answers alone would not tell; the counters do.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use eris_engine::{ContainerSpec, Engine, EngineOptions, Event, Partitioning, Simulation};
use eris_platform::{NodeId, test_load};
use eris_storage::{ContainerId, DataType, Layout, Value, key_of_values};

use accounts::{KEY, between, by_key, everything, pairs, row, schema};

const HERE: NodeId = NodeId(0);
const THERE: NodeId = NodeId(1);
/// Keys of one partition.
const SHARE: i64 = 20;

/// Everything goes as a message, and no partition is cut by itself.
fn by_messages(workers: usize, nodes: usize) -> EngineOptions {
    EngineOptions { workers, nodes, in_place: false, parallel_rows: 1_000_000, ..EngineOptions::default() }
}

/// A container with [`SHARE`] rows in each of its partitions, which lie on the nodes in their order.
fn filled(simulation: &mut Simulation, partitions: i64) -> ContainerId {
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let id = schema.container;
    let spec = ContainerSpec { schema, partitioning: Partitioning::Range(Box::new([KEY])) };
    let cut = |partition: i64| key_of_values(&[(&Value::Int64(partition * SHARE), DataType::Int64)]);
    let cuts: Vec<_> = (1..partitions).map(cut).collect();
    engine.create_range_container(spec, &cuts).expect("created");
    let fill = async move {
        let mut transaction = engine.begin();
        for key in 0..partitions * SHARE {
            transaction.insert(id, row(key, key * 10, None)).await.expect("inserted");
        }
        transaction.commit().await.expect("committed");
    };
    simulation.block_on(fill).expect("runs");
    simulation.run_until_idle().expect("runs");
    id
}

fn event(engine: &Engine, event: Event) -> u64 {
    engine.statistics().event(event)
}

/// Appends to the incoming buffer of one node by another one, and the messages in them.
fn transfers(engine: &Engine, source: NodeId, target: NodeId) -> (u64, u64) {
    let traffic = engine.traffic().into_iter().find(|pair| (pair.source, pair.target) == (source, target));
    traffic.map_or((0, 0), |traffic| (traffic.transfers, traffic.messages))
}

/// Each node reads and writes what lies on it; returns passes of coordinators and messages that stayed on their node.
fn local_work(seed: u64, nodes: usize, direct_append: bool) -> (u64, u64) {
    let options = EngineOptions { direct_append, ..by_messages(2 * nodes, nodes) };
    let mut simulation = Simulation::new(seed, options).expect("starts");
    let engine = simulation.engine().clone();
    let id = filled(&mut simulation, 2 * nodes as i64);
    let homes: Vec<NodeId> = engine.partitions().iter().map(|partition| partition.home).collect();
    let before = (event(&engine, Event::CoordinatorPasses), event(&engine, Event::LocalMessages));
    let remote = event(&engine, Event::RemoteMessages);
    let right = Arc::new(Mutex::new(0));
    for (partition, node) in homes.iter().enumerate() {
        let (client, right) = (engine.clone(), Arc::clone(&right));
        engine.spawn_on(*node, async move {
            let first = partition as i64 * SHARE;
            for key in first..first + SHARE {
                let mut transaction = client.begin();
                let found = pairs(&transaction.read(&by_key(id, key)).await.expect("read"));
                assert_eq!(found, [(key, key * 10)]);
                transaction.next_statement();
                transaction.delete(&by_key(id, key), None).await.expect("deleted");
                transaction.next_statement();
                transaction.insert(id, row(key, key, None)).await.expect("inserted");
                transaction.commit().await.expect("committed");
            }
            *right.lock().expect("one thread") += 1;
        });
    }
    simulation.run_until(|| *right.lock().expect("one thread") == homes.len()).expect("every client is answered");
    let passes = event(&engine, Event::CoordinatorPasses) - before.0;
    let messages = event(&engine, Event::LocalMessages) - before.1;
    assert_eq!(event(&engine, Event::RemoteMessages), remote, "nobody asked another node");
    let reader = engine.clone();
    let all = simulation.block_on(async move {
        let mut found =
            pairs(&reader.begin().scan(everything(id), None).expect("there").collect().await.expect("read"));
        found.sort_unstable();
        found
    });
    let expected: Vec<(i64, i64)> = (0..homes.len() as i64 * SHARE).map(|key| (key, key)).collect();
    assert_eq!(all.expect("runs"), expected);
    (passes, messages)
}

#[test]
fn messages_within_a_node_pass_the_coordinator_only_without_direct_append() {
    for seed in 0..test_load(8) {
        for nodes in [1, 3] {
            // Read, deletion and insertion are one message each.
            let messages = 3 * 2 * nodes as u64 * SHARE as u64;
            assert_eq!(local_work(seed, nodes, true), (0, messages), "seed {seed}, {nodes} nodes");
            let (passes, through) = local_work(seed, nodes, false);
            assert_eq!(through, messages, "the same messages go either way");
            assert!(passes > 0, "seed {seed}, {nodes} nodes: each of them passed a coordinator");
        }
    }
}

#[test]
fn messages_for_one_node_that_wait_together_go_together() {
    const CLIENTS: i64 = 2 * SHARE;
    for seed in 0..test_load(20) {
        for direct_append in [true, false] {
            let options = EngineOptions { direct_append, ..by_messages(4, 2) };
            let mut simulation = Simulation::new(seed, options).expect("starts");
            let engine = simulation.engine().clone();
            // The upper two partitions are on node 1.
            let id = filled(&mut simulation, 4);
            let before = transfers(&engine, HERE, THERE);
            let answered = Arc::new(Mutex::new(0));
            for key in CLIENTS..2 * CLIENTS {
                let (client, answered) = (engine.clone(), Arc::clone(&answered));
                engine.spawn_on(HERE, async move {
                    let found = pairs(&client.begin().read(&by_key(id, key)).await.expect("read"));
                    assert_eq!(found, [(key, key * 10)]);
                    *answered.lock().expect("one thread") += 1;
                });
            }
            simulation.step_without_coordinator(HERE, 200);
            assert_eq!(transfers(&engine, HERE, THERE), before, "nobody carries messages out of the node");
            simulation.run_until(|| *answered.lock().expect("one thread") == CLIENTS).expect("all are answered");
            let (carried, messages) = transfers(&engine, HERE, THERE);
            assert_eq!(
                (carried - before.0, messages - before.1),
                (1, CLIENTS as u64),
                "seed {seed}: all in one append"
            );
        }
    }
}

/// Point reads that fill the buffers on the way to a node that stands still, then a pin of the same partition.
#[test]
fn a_control_message_overtakes_a_backlog_that_found_no_room() {
    const CLIENTS: i64 = SHARE;
    const PIN: i64 = -1;
    for seed in 0..test_load(20) {
        for direct_append in [true, false] {
            // Room for a few messages only.
            let options = EngineOptions { direct_append, incoming_buffer_bytes: 512, ..by_messages(2, 2) };
            let mut simulation = Simulation::new(seed, options).expect("starts");
            let engine = simulation.engine().clone();
            let id = filled(&mut simulation, 2);
            let log: Arc<Mutex<Vec<i64>>> = Arc::default();
            simulation.stop_node(THERE);
            for key in SHARE..SHARE + CLIENTS {
                let (client, log) = (engine.clone(), Arc::clone(&log));
                engine.spawn_on(HERE, async move {
                    let found = pairs(&client.begin().read(&by_key(id, key)).await.expect("read"));
                    assert_eq!(found, [(key, key * 10)]);
                    log.lock().expect("one thread").push(key);
                });
            }
            let full = event(&engine, Event::BufferFull);
            simulation.run_until_idle().expect("runs");
            assert!(event(&engine, Event::BufferFull) > full, "the buffers are full");
            let (carried, _) = transfers(&engine, HERE, THERE);
            let (client, pinned) = (engine.clone(), Arc::clone(&log));
            engine.spawn_on(HERE, async move {
                // Its predicate names the partition, so that it goes there only.
                let request = by_key(id, SHARE).request;
                let scan = client.begin().pin(id, &request).await.expect("pinned");
                let open: usize = scan.open.iter().map(|batch| batch.rows).sum();
                assert!(open == 1 || !scan.segments.is_empty(), "the row is somewhere");
                pinned.lock().expect("one thread").push(PIN);
            });
            simulation.run_until_idle().expect("runs");
            assert_eq!(transfers(&engine, HERE, THERE).0, carried + 1, "seed {seed}: the pin found room");
            assert!(log.lock().expect("one thread").is_empty(), "node 1 has not answered");
            simulation.resume_node(THERE);
            simulation.run_until(|| log.lock().expect("one thread").len() as i64 == CLIENTS + 1).expect("all end");
            let log = log.lock().expect("one thread").clone();
            assert_eq!(log[0], PIN, "seed {seed}: the pin came before the reads: {log:?}");
        }
    }
}

/// What one read of a range costs: a message to each of a few partitions, or one to each node that has some of many.
struct Multicasts {
    sent: u64,
    multicasts: u64,
}

impl Multicasts {
    /// Of a range that leaves partitions on these nodes; the reader is on the first node.
    fn expected(homes: &[NodeId], of: usize) -> Self {
        if homes.len() < 4 {
            return Self { sent: homes.len() as u64, multicasts: 0 };
        }
        let here = homes.iter().filter(|home| **home == HERE).count();
        let away: BTreeSet<NodeId> = homes.iter().copied().filter(|home| *home != HERE).collect();
        Self { sent: (here + away.len()) as u64, multicasts: u64::from(homes.len() < of) }
    }
}

#[test]
fn a_pruned_scan_is_sent_to_the_partitions_that_its_predicate_leaves() {
    const PARTITIONS: i64 = 8;
    for nodes in [1, 4] {
        let mut simulation = Simulation::new(nodes as u64, by_messages(4, nodes)).expect("starts");
        let engine = simulation.engine().clone();
        let id = filled(&mut simulation, PARTITIONS);
        let middle = SHARE / 2;
        let homes: Vec<NodeId> = engine.partitions().iter().map(|partition| partition.home).collect();
        for first in 0..PARTITIONS {
            for last in first..PARTITIONS {
                let (low, high) = (first * SHARE + middle, last * SHARE + middle);
                let sent = || event(&engine, Event::LocalMessages) + event(&engine, Event::RemoteMessages);
                let (before, executed) = (sent(), event(&engine, Event::Commands));
                let (broadcasts, multicasts) = (event(&engine, Event::Broadcasts), event(&engine, Event::Multicasts));
                let reader = engine.clone();
                let found = Arc::new(Mutex::new(None));
                let result = Arc::clone(&found);
                engine.spawn_on(HERE, async move {
                    let results = reader.begin().scan(between(id, low, high), None).expect("there");
                    let mut found = pairs(&results.collect().await.expect("read"));
                    found.sort_unstable();
                    *result.lock().expect("one thread") = Some(found);
                });
                simulation.run_until(|| found.lock().expect("one thread").is_some()).expect("is answered");
                let rows: Vec<(i64, i64)> = (low..=high).map(|key| (key, key * 10)).collect();
                assert_eq!(*found.lock().expect("one thread"), Some(rows));
                let left = &homes[first as usize..=last as usize];
                let expected = Multicasts::expected(left, homes.len());
                assert_eq!(sent() - before, expected.sent, "{nodes} nodes, keys {low} to {high}");
                assert_eq!(event(&engine, Event::Multicasts) - multicasts, expected.multicasts, "{left:?}");
                let to_all = u64::from(left.len() == homes.len());
                assert_eq!(event(&engine, Event::Broadcasts) - broadcasts, to_all, "the widest range leaves all");
                assert_eq!(event(&engine, Event::Commands) - executed, left.len() as u64, "each of them scans once");
            }
        }
        let broadcasts = event(&engine, Event::Broadcasts);
        let reader = engine.clone();
        let scan = async move { reader.begin().scan(everything(id), None).expect("there").collect().await.is_ok() };
        assert!(simulation.block_on(scan).expect("runs"));
        assert_eq!(event(&engine, Event::Broadcasts), broadcasts + 1, "without a predicate all are asked at once");
    }
}

/// Room for no batch at all would let nothing move.
#[test]
fn results_have_room_for_one_batch_at_least() {
    for result_batches_max in [0, 1] {
        let options = EngineOptions { result_batches_max, ..by_messages(2, 2) };
        let mut simulation = Simulation::new(5, options).expect("starts");
        let engine = simulation.engine().clone();
        let id = filled(&mut simulation, 4);
        let found = simulation
            .block_on(async move {
                let found = engine.begin().scan(everything(id), None).expect("there").collect().await.expect("read");
                pairs(&found).len() as i64
            })
            .expect("the scan ends");
        assert_eq!(found, 4 * SHARE);
    }
}

#[test]
fn a_transaction_with_an_open_stream_runs_nothing_in_place() {
    let options = EngineOptions { in_place: true, ..by_messages(2, 1) };
    let mut simulation = Simulation::new(3, options).expect("starts");
    let engine = simulation.engine().clone();
    let id = filled(&mut simulation, 2);
    let checks = async move {
        let counts = || (event(&engine, Event::InPlace), event(&engine, Event::LocalMessages));
        let mut transaction = engine.begin();
        let before = counts();
        assert_eq!(pairs(&transaction.read(&by_key(id, 7)).await.expect("read")), [(7, 70)]);
        assert_eq!(counts(), (before.0 + 1, before.1), "nothing is under way: in place");

        let mut stream = transaction.scan(everything(id), None).expect("there");
        let mut found = pairs(&[stream.next().await.expect("read").expect("rows")]);
        let before = counts();
        assert_eq!(pairs(&transaction.read(&by_key(id, 7)).await.expect("read")), [(7, 70)]);
        transaction.next_statement();
        transaction.insert(id, row(2 * SHARE, 0, None)).await.expect("inserted");
        transaction.next_statement();
        transaction.delete(&by_key(id, 2 * SHARE), None).await.expect("deleted");
        assert_eq!(counts(), (before.0, before.1 + 3), "the stream is open: by messages");
        let mut other = engine.begin();
        assert_eq!(pairs(&other.read(&by_key(id, 7)).await.expect("read")), [(7, 70)]);
        assert_eq!(counts().0, before.0 + 1, "the stream of another transaction does not count");

        while let Some(batch) = stream.next().await.expect("read") {
            found.extend(pairs(&[batch]));
        }
        assert_eq!(found.len() as i64, 2 * SHARE, "the stream has what its statement saw");
        drop(stream);
        let before = counts();
        assert_eq!(pairs(&transaction.read(&by_key(id, 7)).await.expect("read")), [(7, 70)]);
        assert_eq!(counts(), (before.0 + 1, before.1), "the stream is closed: in place again");
    };
    simulation.block_on(checks).expect("every check passes");
}
