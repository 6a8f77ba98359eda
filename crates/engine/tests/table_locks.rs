//! Table locks as tasks use them: accesses take them, strong ones wait, savepoints and ends give them back.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod accounts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    ContainerSpec, Engine, EngineError, EngineOptions, IsolationLevel, Partitioning, Read, Simulation, TableLockMode,
};
use eris_storage::{ContainerId, Layout, Predicate, ReadRequest};

use accounts::{KEY, row, schema};

type Told = Arc<Mutex<Vec<&'static str>>>;

fn start(seed: u64) -> (Simulation, Engine, ContainerId) {
    let options = EngineOptions { workers: 3, nodes: 1, ..EngineOptions::default() };
    let simulation = Simulation::new(seed, options).expect("starts");
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
    let container = schema.container;
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    (simulation, engine, container)
}

fn everything(container: ContainerId) -> Read {
    Read { container, request: ReadRequest { predicate: Predicate::all(), desired: Arc::new([KEY]), order: None } }
}

fn told(told: &Told) -> Vec<&'static str> {
    told.lock().expect("not poisoned").clone()
}

fn tell(told: &Told, what: &'static str) {
    told.lock().expect("not poisoned").push(what);
}

#[test]
fn accesses_are_waited_for_until_their_transaction_ends() {
    for seed in 0..20 {
        let (mut simulation, engine, container) = start(seed);
        let events = Told::default();
        let (mut reader, mut writer) = (engine.begin(), engine.begin());
        let (mut reader, mut writer) = simulation
            .block_on(async move {
                reader.read(&everything(container)).await.expect("read");
                writer.insert(container, row(1, 1, None)).await.expect("inserted");
                (reader, writer)
            })
            .expect("runs");
        let (task, order) = (engine.clone(), Arc::clone(&events));
        engine.spawn(async move {
            let mut share = task.begin();
            share.lock_table(container, TableLockMode::Share).await.expect("locked");
            tell(&order, "share");
        });
        let (task, order) = (engine.clone(), Arc::clone(&events));
        engine.spawn(async move {
            let mut strong = task.begin();
            strong.lock_table(container, TableLockMode::AccessExclusive).await.expect("locked");
            tell(&order, "access exclusive");
        });
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!(told(&events), Vec::<&str>::new());
        writer.set_lock_timeout(Some(Duration::ZERO));
        simulation.block_on(async move { writer.commit().await.expect("committed") }).expect("runs");
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!(told(&events), ["share"], "readers are in the way of the other one only");
        reader.set_lock_timeout(None);
        drop(reader);
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!(told(&events), ["share", "access exclusive"]);
        assert!(engine.table_locks().is_empty());
    }
}

/// A transaction whose first access is a lock sees everything that was committed before the lock, even without a wait.
#[test]
fn a_lock_that_comes_first_comes_before_the_snapshot() {
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let (mut simulation, engine, container) = start(1);
        let task = engine.clone();
        let outcome = simulation.block_on(async move {
            let (mut locker, mut other) = (task.begin_with(level), task.begin());
            other.insert(container, row(1, 1, None)).await.expect("inserted");
            other.commit().await.expect("committed");
            locker.lock_table(container, TableLockMode::AccessExclusive).await.expect("nobody is there");
            let seen = locker.read(&everything(container)).await.expect("read");
            assert_eq!(seen.iter().map(|batch| batch.rows).sum::<usize>(), 1, "{level:?}");
        });
        outcome.expect("runs");
    }
}

#[test]
fn a_savepoint_gives_back_what_was_locked_after_it() {
    let (mut simulation, engine, container) = start(1);
    let task = engine.clone();
    let outcome = simulation.block_on(async move {
        let (mut one, mut other) = (task.begin(), task.begin());
        one.read(&everything(container)).await.expect("read");
        let savepoint = one.savepoint();
        one.lock_table(container, TableLockMode::AccessExclusive).await.expect("nobody else is there");
        let refused = other.lock_table_now(container, TableLockMode::RowExclusive);
        assert!(matches!(refused, Err(EngineError::TableLockNotAvailable(_))), "{refused:?}");
        one.rollback_to(&savepoint).expect("its own");
        other.insert(container, row(1, 1, None)).await.expect("inserted");
        let refused = other.lock_table_now(container, TableLockMode::AccessExclusive);
        assert!(matches!(refused, Err(EngineError::TableLockNotAvailable(_))), "what was read before is locked");
    });
    outcome.expect("runs");
    assert!(engine.table_locks().is_empty());
}

#[test]
fn a_wait_ends_by_timeout_and_by_cancel_and_leaves_nothing() {
    let (mut simulation, engine, container) = start(2);
    let task = engine.clone();
    let outcome = simulation.block_on(async move {
        let mut holder = task.begin();
        holder.lock_table(container, TableLockMode::AccessExclusive).await.expect("nobody is there");
        let mut waiter = task.begin();
        for timeout in [Duration::ZERO, Duration::from_millis(3)] {
            waiter.set_lock_timeout(Some(timeout));
            let failed = waiter.insert(container, row(1, 1, None)).await;
            assert!(matches!(failed, Err(EngineError::LockTimeout)), "{failed:?}");
        }
        waiter.set_lock_timeout(None);
        let (cancel, sleeper) = (waiter.cancel_handle(), task.clone());
        task.spawn(async move {
            sleeper.sleep_until(sleeper.env().now() + Duration::from_millis(1)).await;
            cancel.cancel();
        });
        let failed = waiter.read(&everything(container)).await;
        assert!(matches!(failed, Err(EngineError::Cancelled)), "{failed:?}");
        assert_eq!(task.table_locks().len(), 1, "only the holder's is there");
    });
    outcome.expect("runs");
}

#[test]
fn two_that_want_more_of_what_both_have_are_a_deadlock() {
    for seed in 0..20 {
        let (mut simulation, engine, container) = start(seed);
        let events = Told::default();
        for _ in 0..2 {
            let (task, order) = (engine.clone(), Arc::clone(&events));
            engine.spawn(async move {
                let mut transaction = task.begin();
                transaction.read(&everything(container)).await.expect("read");
                task.sleep_until(task.env().now() + Duration::from_millis(1)).await;
                match transaction.lock_table(container, TableLockMode::AccessExclusive).await {
                    Ok(()) => tell(&order, "locked"),
                    Err(EngineError::Deadlock) => tell(&order, "deadlock"),
                    Err(other) => panic!("{other}"),
                }
            });
        }
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!(told(&events), ["deadlock", "locked"], "seed {seed}");
    }
}

#[test]
fn who_waited_sees_what_it_waited_for_if_it_has_seen_nothing_before() {
    let (mut simulation, engine, container) = start(3);
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let task = engine.clone();
        let (mut reader, mut writer) = (engine.begin_with(level), engine.begin());
        let key = level as i64;
        let (found, order) = (Told::default(), Told::default());
        let mut writer = simulation
            .block_on(async move {
                writer.lock_table(container, TableLockMode::AccessExclusive).await.expect("locked");
                writer.insert(container, row(key, 1, None)).await.expect("inserted");
                writer
            })
            .expect("runs");
        let told_by = Arc::clone(&found);
        task.spawn(async move {
            let read = reader.read(&everything(container)).await.expect("read");
            let rows: usize = read.iter().map(|batch| batch.rows).sum();
            tell(&told_by, if rows as i64 == key + 1 { "all" } else { "too few" });
        });
        simulation.run_until_idle().expect("comes to rest");
        writer.set_lock_timeout(None);
        simulation.block_on(async move { writer.commit().await.expect("committed") }).expect("runs");
        simulation.run_until_idle().expect("comes to rest");
        assert_eq!((told(&found), told(&order).len()), (vec!["all"], 0), "{level:?}");
    }
}

#[test]
fn a_transaction_whose_container_was_dropped_at_once_does_not_commit() {
    let (mut simulation, engine, container) = start(4);
    let task = engine.clone();
    let outcome = simulation.block_on(async move {
        let mut writer = task.begin();
        writer.insert(container, row(1, 1, None)).await.expect("inserted");
        task.drop_container(container).expect("it is there");
        writer.commit().await
    });
    let committed = outcome.expect("runs");
    assert!(matches!(committed, Err(EngineError::ContainerReplaced(gone)) if gone == container), "{committed:?}");
}

/// Replacing a container reads and writes all of its rows in the snapshot, so a later wait must not renew the snapshot.
#[test]
fn who_has_replaced_a_container_keeps_its_snapshot() {
    let (mut simulation, engine, container) = start(5);
    let other_schema = Arc::new(schema(engine.next_container_id(), Layout::Row, 8));
    let other = other_schema.container;
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema: other_schema, partitioning }).expect("created");
    let task = engine.clone();
    let (mut first, mut writer) = simulation
        .block_on(async move {
            let mut first = task.begin_with(IsolationLevel::Serializable);
            let mut reader = task.begin_with(IsolationLevel::Serializable);
            reader.read(&everything(container)).await.expect("read");
            reader.commit().await.expect("committed");
            first.lock_to_replace(container).await.expect("no lock and no write is in the way");
            let mut writer = task.begin();
            writer.insert(other, row(2, 1, None)).await.expect("inserted");
            (first, writer)
        })
        .expect("runs");
    let found = Told::default();
    let told_by = Arc::clone(&found);
    engine.spawn(async move {
        // Waits for the writer.
        first.lock_table(other, TableLockMode::Share).await.expect("locked");
        let read = first.read(&everything(other)).await.expect("read");
        tell(&told_by, if read.iter().all(|batch| batch.rows == 0) { "nothing" } else { "rows" });
    });
    simulation.run_until_idle().expect("comes to rest");
    writer.set_lock_timeout(None);
    simulation.block_on(async move { writer.commit().await.expect("committed") }).expect("runs");
    simulation.run_until_idle().expect("comes to rest");
    assert_eq!(told(&found), ["nothing"]);
}
