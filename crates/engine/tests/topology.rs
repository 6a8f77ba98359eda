//! Nodes that stand still: with help from another node, or given up. Nothing is lost either way.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{ContainerSpec, Engine, EngineOptions, Event, Partitioning, PlacementError, Simulation};
use eris_platform::{NodeId, test_load};
use eris_storage::{ContainerId, Layout};

use accounts::{KEY, everything, pairs, row, schema};

const NODES: usize = 3;
const DEAD: NodeId = NodeId(1);
const CLIENTS: i64 = 9;
const ROUNDS: i64 = 30;

fn options() -> EngineOptions {
    EngineOptions {
        workers: NODES,
        nodes: NODES,
        parallel_rows: 1_000_000,
        quantum: Duration::from_micros(50),
        ..EngineOptions::default()
    }
}

/// A table over all nodes and clients on all nodes, each of which inserts rows one by one and sleeps now and then.
fn begin_work(simulation: &Simulation) -> (ContainerId, Arc<AtomicUsize>) {
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let container = schema.container;
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 2 * NODES };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let done = Arc::new(AtomicUsize::new(0));
    for client in 0..CLIENTS {
        let (engine, done) = (engine.clone(), Arc::clone(&done));
        let node = NodeId((client % NODES as i64) as u16);
        let spawner = engine.clone();
        spawner.spawn_on(node, async move {
            for round in 0..ROUNDS {
                let mut transaction = engine.begin();
                transaction.insert(container, row(client * ROUNDS + round, 1, None)).await.expect("inserted");
                transaction.next_statement();
                let seen = transaction.scan(everything(container), None).expect("there").collect().await.expect("read");
                assert!(!pairs(&seen).is_empty(), "a client sees its own row");
                transaction.commit().await.expect("committed");
                engine.sleep_until(engine.env().now() + Duration::from_micros(300)).await;
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    (container, done)
}

fn check_all_is_there(simulation: &mut Simulation, container: ContainerId) {
    let engine = simulation.engine().clone();
    let mut found = simulation
        .block_on(async move {
            let mut transaction = engine.begin();
            pairs(&transaction.scan(everything(container), None).expect("there").collect().await.expect("read"))
        })
        .expect("runs");
    found.sort_unstable();
    let expected: Vec<(i64, i64)> = (0..CLIENTS * ROUNDS).map(|key| (key, 1)).collect();
    assert_eq!(found, expected, "nothing is lost, nothing is there twice");
}

fn progress(engine: &Engine, container: ContainerId) -> u64 {
    engine.container(container).map_or(0, |container| container.rows())
}

#[test]
fn a_helper_finishes_the_work_of_a_stalled_node() {
    for seed in 0..test_load(30) {
        let mut simulation = Simulation::new(seed, options()).expect("starts");
        let engine = simulation.engine().clone();
        let (container, done) = begin_work(&simulation);
        let looks = Mutex::new(0);
        simulation
            .run_until(|| {
                *looks.lock().expect("one thread") += 1;
                progress(&engine, container) > seed
            })
            .expect("runs");
        simulation.stop_node(DEAD);
        simulation.run_until_idle().expect("runs");
        assert!(done.load(Ordering::Relaxed) < CLIENTS as usize, "without help the work on the stalled node waits");
        assert_eq!(engine.statistics().event(Event::Helped), 0, "nobody helps without an order");
        engine.set_help(NodeId(2), DEAD).expect("ordered");
        simulation.run_until(|| done.load(Ordering::Relaxed) == CLIENTS as usize).expect("the helper finishes it");
        assert!(engine.statistics().event(Event::Helped) > 0);
        check_all_is_there(&mut simulation, container);
        engine.end_help(DEAD).expect("ordered");
        simulation.resume_node(DEAD);
        let helped = engine.statistics().event(Event::Helped);
        check_all_is_there(&mut simulation, container);
        assert_eq!(engine.statistics().event(Event::Helped), helped, "help ends by order");
    }
}

#[test]
fn a_dead_node_is_evacuated_and_nothing_is_lost() {
    for seed in 0..test_load(60) {
        let mut simulation = Simulation::new(seed, options()).expect("starts");
        let engine = simulation.engine().clone();
        let (container, done) = begin_work(&simulation);
        simulation.run_until(|| progress(&engine, container) > 3 * seed).expect("runs");
        simulation.stop_node(DEAD);
        if seed % 3 > 0 {
            // Messages gather at the dead node before somebody notices.
            simulation.run_until_idle().expect("runs");
        }
        engine.evacuate_node(DEAD).expect("evacuated");
        simulation.run_until(|| done.load(Ordering::Relaxed) == CLIENTS as usize).expect("others finish the work");
        check_all_is_there(&mut simulation, container);
        assert!(engine.partitions().iter().all(|partition| partition.home != DEAD), "nothing lives there any more");
        assert_eq!(engine.evacuate_node(DEAD), Err(PlacementError::NoSuchNode(DEAD)));
        if seed % 2 > 0 {
            // The successor, too.
            simulation.stop_node(NodeId(0));
            engine.evacuate_node(NodeId(0)).expect("evacuated");
            check_all_is_there(&mut simulation, container);
            assert_eq!(engine.evacuate_node(NodeId(2)), Err(PlacementError::LastNode));
        }
        let memory = Arc::clone(engine.memory());
        engine.drop_container(container).expect("dropped");
        simulation.run_until_idle().expect("runs");
        drop((simulation, engine));
        assert_eq!(memory.used(), 0, "memory returns to zero: {:?}", memory.by_consumer());
    }
}
