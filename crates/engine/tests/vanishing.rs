//! What a container leaves behind when it is dropped: nothing.

mod accounts;

use std::sync::Arc;

use eris_engine::{ContainerSpec, EngineError, EngineOptions, Partitioning, Simulation};
use eris_platform::test_load;
use eris_storage::Layout;

use accounts::{KEY, everything, row, schema};

/// Words of decided and of running transactions go with the partitions that nobody has settled them in.
#[test]
fn transactions_with_words_in_a_dropped_container_are_forgotten() {
    for seed in 0..test_load(20) {
        let mut simulation = Simulation::new(seed, EngineOptions::default()).expect("starts");
        let engine = simulation.engine().clone();
        let kept = Arc::new(schema(engine.next_container_id(), Layout::Row, 16));
        let dropped = Arc::new(schema(engine.next_container_id(), Layout::Row, 16));
        let containers = [kept.container, dropped.container];
        for schema in [kept, dropped] {
            let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 3 };
            engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
        }
        let task = engine.clone();
        let known = simulation
            .block_on(async move {
                let mut ended = task.begin();
                let mut running = task.begin();
                for container in containers {
                    ended.insert(container, row(1, 1, None)).await.expect("inserted");
                    running.insert(container, row(2, 2, None)).await.expect("inserted");
                    ended.next_statement();
                    running.next_statement();
                }
                ended.commit().await.expect("committed");
                task.drop_container(containers[1]).expect("it is there");
                let known = task.statistics().known_transactions;
                let refused = running.commit().await.expect_err("its rows are gone");
                assert!(matches!(refused, EngineError::ContainerReplaced(lost) if lost == containers[1]), "{refused}");
                known
            })
            .expect("runs");
        assert!(known > 0, "somebody has words in the container when it is dropped");
        simulation.run_until_idle().expect("comes to rest");
        let statistics = engine.statistics();
        assert_eq!((statistics.known_transactions, statistics.snapshots), (0, 0), "seed {seed}");
        simulation.check_partitions().expect("the other container is whole");
    }
}

/// Maintenance that waits for an old snapshot does not keep what is dropped.
#[test]
fn a_dropped_container_gives_its_memory_back_beside_an_old_snapshot() {
    let mut simulation = Simulation::new(1, EngineOptions::default()).expect("starts");
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Row, 16));
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: 3 };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let reader = engine.begin();
    let task = engine.clone();
    let changes = async move {
        let mut transaction = task.begin();
        for key in 0..20 {
            transaction.insert(container, row(key, 1, None)).await.expect("inserted");
            transaction.next_statement();
        }
        transaction.commit().await.expect("committed");
        let mut transaction = task.begin();
        transaction.delete(&everything(container), None).await.expect("deleted");
        transaction.commit().await.expect("committed");
    };
    simulation.block_on(changes).expect("runs");
    simulation.run_until_idle().expect("comes to rest");
    assert!(engine.memory().used() > 0, "the reader may see the rows");
    engine.drop_container(container).expect("it is there");
    simulation.run_until_idle().expect("comes to rest");
    assert_eq!(engine.memory().used(), 0, "{:?}", engine.memory().by_consumer());
    reader.rollback();
}
