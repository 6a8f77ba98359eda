//! What a layer above needs to keep a catalog: a container with a fixed id that no limit refuses, and writes in a
//! snapshot of now at the end of a transaction.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::Arc;

use accounts::{KEY, by_key, everything, pairs, row, schema};
use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, Partitioning, SYSTEM_CONTAINER, Simulation};
use eris_storage::{ContainerId, Layout, StorageError};

fn create(engine: &Engine, id: ContainerId) {
    let schema = Arc::new(schema(id, Layout::Default, 16));
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is free");
}

#[test]
fn a_full_database_takes_rows_of_the_system_container() {
    for in_place in [true, false] {
        let options = EngineOptions { workers: 1, in_place, ..EngineOptions::default() };
        let mut simulation = Simulation::new(1, options).expect("the engine starts");
        let engine = simulation.engine().clone();
        let id = engine.next_container_id();
        assert!(id > SYSTEM_CONTAINER, "{id:?} is given away");
        create(&engine, id);
        create(&engine, SYSTEM_CONTAINER);
        let run = async move {
            let memory = Arc::clone(engine.memory());
            memory.set_limit(memory.used());
            let mut transaction = engine.begin();
            let refused = transaction.insert(id, row(1, 1, None)).await;
            assert!(
                matches!(refused, Err(EngineError::Memory(_) | EngineError::Storage(StorageError::Memory(_)))),
                "{refused:?}"
            );
            drop(transaction);
            // Several segments of rows with a note, an index that grows, and a deletion.
            for key in 0..200 {
                let mut transaction = engine.begin();
                transaction.use_system_memory();
                transaction.insert(SYSTEM_CONTAINER, row(key, 1, Some("a note"))).await.expect("it is not refused");
                transaction.next_statement();
                let deleted = transaction.delete(&by_key(SYSTEM_CONTAINER, key - 1), None).await;
                assert_eq!(deleted.expect("it is not refused"), u64::from(key > 0));
                transaction.commit().await.expect("nothing conflicts");
            }
            assert!(memory.used() > memory.limit(), "it counts");
        };
        simulation.block_on(run).expect("the task ends");
        let (engine, memory) = (simulation.engine().clone(), Arc::clone(simulation.engine().memory()));
        simulation.run_until_idle().expect("nobody has work for ever");
        engine.drop_container(SYSTEM_CONTAINER).expect("it exists");
        engine.drop_container(id).expect("it exists");
        drop((engine, simulation));
        assert_eq!(memory.used(), 0);
    }
}

#[test]
fn a_statement_of_now_writes_what_is_younger_than_the_transaction() {
    let mut simulation = Simulation::new(2, EngineOptions::default()).expect("the engine starts");
    let engine = simulation.engine().clone();
    let id = engine.next_container_id();
    create(&engine, id);
    let run = async move {
        let mut old = engine.begin();
        assert!(old.read(&everything(id)).await.expect("it is read").iter().all(|batch| batch.rows == 0));
        let mut young = engine.begin();
        young.insert(id, row(1, 1, None)).await.expect("the key is free");
        young.commit().await.expect("nothing conflicts");
        old.next_statement();
        assert_eq!(old.delete(&by_key(id, 1), None).await.expect("nothing is seen"), 0);
        old.next_statement_now();
        assert_eq!(pairs(&old.read(&everything(id)).await.expect("it is read")), [(1, 1)]);
        assert_eq!(old.delete(&by_key(id, 1), None).await.expect("nobody else writes it"), 1);
        old.next_statement();
        old.insert(id, row(1, 2, None)).await.expect("the key is free again");
        old.commit().await.expect("nothing conflicts");
        let found = engine.begin().read(&everything(id)).await.expect("it is read");
        assert_eq!(pairs(&found), [(1, 2)]);
    };
    simulation.block_on(run).expect("the task ends");
    simulation.run_until_idle().expect("nobody has work for ever");
    assert_eq!(simulation.engine().statistics().snapshots, 0, "both snapshots are withdrawn");
}
