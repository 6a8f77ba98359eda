//! How a database is made again of its log: side by side, with words about how far it is, and each record under the
//! schema of its time.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::Path;
use std::sync::{Arc, Mutex};

use eris_durability::{DurabilityOptions, Phase, Progress, open};
use eris_engine::{EngineError, EngineOptions, Simulation};
use eris_platform::SimulatedEnv;
use eris_storage::{AttributeId, IndexDefinition, IndexId, IndexKind, Schema, SchemaVersion};
use shelf::{PATH, Shelf, TABLE, insert, open_or_panic, options, row};

/// Opens with so many workers; what was told.
fn opened_by(env: &SimulatedEnv, workers: usize, options: &DurabilityOptions) -> (Shelf, Vec<Progress>) {
    let mut simulation = Simulation::on(env, EngineOptions { workers, ..EngineOptions::default() }).expect("starts");
    let (engine, options, told) = (simulation.engine().clone(), options.clone(), Arc::new(Mutex::new(Vec::new())));
    let tell = Arc::clone(&told);
    let opened = async move {
        let progress = |progress| tell.lock().expect("not poisoned").push(progress);
        open(&engine, Path::new(PATH), &options, progress).await
    };
    let database = simulation.block_on(opened).expect("ends").unwrap_or_else(|error| panic!("it opens: {error}"));
    let told = told.lock().expect("not poisoned").clone();
    (Shelf { simulation, database: Some(database) }, told)
}

/// Rows of one table are done again by as many lanes as there are workers, each in transactions of its own: where one
/// takes whatever its lane gets, there are as many as lanes.
#[test]
fn the_log_is_done_again_in_as_many_lanes_as_there_are_workers() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..400);
    drop(shelf);
    let keys: Vec<i64> = (0..400).collect();
    for workers in [1, 2, 4] {
        env.lose_power();
        let options = DurabilityOptions { replay_rows: usize::MAX, ..options() };
        let (mut shelf, _) = opened_by(&env, workers, &options);
        assert_eq!(shelf.engine().statistics().committed, workers as u64, "transactions of the lanes");
        assert_eq!(shelf.keys(), keys);
    }
}

/// Whoever waits for a large database hears how far it is, in either phase, and never more than there is.
#[test]
fn progress_is_told_while_a_checkpoint_and_a_log_are_read() {
    let env = SimulatedEnv::new(2);
    let options = DurabilityOptions { log_file_bytes: 64 << 20, ..options() };
    let (mut shelf, told) = opened_by(&env, 1, &options);
    assert_eq!(told.iter().filter(|progress| progress.done_bytes > 0).count(), 0, "there is nothing to be read");
    shelf.create();
    // Five segments, and 40 transactions of a megabyte.
    shelf.load(0..320);
    shelf.checkpoint();
    let engine = shelf.engine();
    let filled = async move {
        for key in 400..440 {
            let mut transaction = engine.begin();
            transaction.insert(TABLE, row(key, &"x".repeat(1 << 20))).await?;
            transaction.commit().await?;
        }
        Ok::<(), EngineError>(())
    };
    shelf.simulation.block_on(filled).expect("ends").expect("inserts");
    drop(shelf);
    env.lose_power();
    let (shelf, told) = opened_by(&env, 1, &options);
    for phase in [Phase::Checkpoint, Phase::Log] {
        let told: Vec<_> = told.iter().filter(|progress| progress.phase == phase).collect();
        let between = told.iter().filter(|progress| (1..progress.all_bytes).contains(&progress.done_bytes)).count();
        assert!(between >= 2, "{phase:?}: told {between} times on the way: {told:?}");
        assert!(told.windows(2).all(|pair| pair[0].done_bytes <= pair[1].done_bytes), "{told:?}");
        for progress in told {
            assert!(progress.done_bytes <= progress.all_bytes, "{progress:?}");
        }
    }
    let (all, _) = shelf.database.as_ref().expect("open").recovered();
    assert!(all.phase == Phase::Log && all.transactions == 40 && all.done_bytes > 40 << 20, "{all:?}");
}

/// The schema of the table with a unique index on its text, or without.
fn schema_of(shelf: &Shelf, version: u32, unique: bool) -> (Arc<Schema>, IndexDefinition) {
    let before = shelf.engine().container(TABLE).expect("there is a table").schema();
    let index = IndexDefinition {
        id: IndexId(7),
        name: "text".into(),
        attributes: Box::new([AttributeId(1)]),
        unique: true,
        primary: false,
        kind: IndexKind::Ordered,
    };
    let mut indexes: Vec<_> = before.indexes.iter().filter(|index| index.primary).cloned().collect();
    indexes.extend(unique.then(|| index.clone()));
    let schema = Schema { version: SchemaVersion(version), indexes: indexes.into(), ..Schema::clone(&before) };
    (Arc::new(schema), index)
}

fn set_unique(shelf: &mut Shelf, version: u32, unique: bool) {
    let ((schema, index), engine) = (schema_of(shelf, version, unique), shelf.engine());
    let changed =
        async move { if unique { engine.create_index(index, schema).await } else { engine.drop_index(schema).await } };
    shelf.simulation.block_on(changed).expect("ends").expect("the schema changes");
}

/// Puts the text of another key's row into a row.
fn try_double(shelf: &mut Shelf, key: i64, text_of: i64) -> Result<(), EngineError> {
    let engine = shelf.engine();
    let doubled = async move {
        let mut transaction = engine.begin();
        transaction.insert(TABLE, row(key, &format!("the text of row {text_of}"))).await?;
        transaction.commit().await.map(drop)
    };
    shelf.simulation.block_on(doubled).expect("ends")
}

/// Two rows of one text before a unique index comes and after it has gone: under the last schema, or the first one that
/// has the index, the log could not be done again.
#[test]
fn a_record_is_done_again_under_the_schema_of_its_time() {
    for checkpoint_behind in [None, Some(1), Some(2), Some(3)] {
        let env = SimulatedEnv::new(3);
        let mut shelf = open_or_panic(&env);
        let checkpoint = |shelf: &mut Shelf, step| {
            if checkpoint_behind == Some(step) {
                shelf.checkpoint();
            }
        };
        shelf.create();
        shelf.insert(0..10);
        try_double(&mut shelf, 10, 3).expect("nothing forbids it");
        checkpoint(&mut shelf, 1);
        shelf.delete(10..11);
        set_unique(&mut shelf, 2, true);
        shelf.insert(20..30);
        try_double(&mut shelf, 30, 21).expect_err("the index forbids it");
        // One text goes from row to row: by their keys alone they could be done again in any order.
        try_double(&mut shelf, 100, 100).expect("it is new");
        for key in 100..120 {
            shelf.delete(key..key + 1);
            try_double(&mut shelf, key + 1, 100).expect("the text is free");
        }
        shelf.delete(120..121);
        checkpoint(&mut shelf, 2);
        shelf.insert(30..31);
        set_unique(&mut shelf, 3, false);
        try_double(&mut shelf, 40, 21).expect("nothing forbids it any more");
        checkpoint(&mut shelf, 3);
        try_double(&mut shelf, 41, 21).expect("nor another one");
        shelf.delete(40..42);
        set_unique(&mut shelf, 4, true);
        let engine = shelf.engine();
        shelf.simulation.block_on(async move { insert(&engine, 50..55).await }).expect("ends").expect("inserts");
        drop(shelf);
        env.lose_power();
        let (mut shelf, _) = opened_by(&env, 4, &DurabilityOptions { replay_rows: 1, ..options() });
        let expected: Vec<i64> = (0..10).chain(20..31).chain(50..55).collect();
        assert_eq!(shelf.keys(), expected, "a checkpoint behind step {checkpoint_behind:?}");
        let schema = shelf.engine().container(TABLE).expect("there is a table").schema();
        assert_eq!((schema.version, schema.indexes.len()), (SchemaVersion(4), 2));
        try_double(&mut shelf, 60, 21).expect_err("the index that is there works");
        shelf.simulation.run_until_idle().expect("comes to rest");
        assert_eq!(shelf.simulation.check_partitions(), Ok(()));
    }
}
