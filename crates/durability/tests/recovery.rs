//! How a database is made again of its log: side by side, with words about how far it is, each record under the schema
//! of its time, and with the foreign keys and layouts that were defined.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod schemas;
mod shelf;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_durability::{DurabilityOptions, Phase, Progress, open};
use eris_engine::{
    ContainerSpec, Definition, EngineError, EngineOptions, ForeignKeySpec, KeySide, Partitioning, Read,
    ReferentialAction, Simulation,
};
use eris_platform::SimulatedEnv;
use eris_platform::simulated::{DiskFaults, PerMille};
use eris_storage::{
    AttributeId, Comparison, Condition, ContainerId, DataType, IndexDefinition, IndexId, IndexKind, PhysicalLayout,
    Predicate, ROW_STATIC, ReadRequest, Schema, SchemaVersion, SegmentLayouts, Test, Value,
};
use schemas::{attribute, schema};
use shelf::{PATH, Shelf, TABLE, create_other, insert, open_or_panic, options, row};

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
        let options = DurabilityOptions { replay_rows: usize::MAX, replay_key_bits: 0, ..options() };
        let (mut shelf, _) = opened_by(&env, workers, &options);
        assert_eq!(shelf.engine().statistics().committed, workers as u64, "transactions of the lanes");
        assert_eq!(shelf.keys(), keys);
    }
}

/// Rows without a key that agree in everything are named by the same values, and each of them is another one.
#[test]
fn all_of_the_rows_that_agree_in_everything_are_deleted_again() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    let engine = shelf.engine();
    let work = async move {
        let attributes = [attribute("key", DataType::Int64, false), attribute("text", DataType::Text, true)];
        let schema = schema(engine.next_container_id(), &attributes, false, 64);
        engine.create_container(ContainerSpec {
            schema,
            partitioning: Partitioning::Range(Box::new([AttributeId(0)])),
        })?;
        for keys in [5..6, 7..8, 5..6, 5..6] {
            insert(&engine, keys).await?;
        }
        let mut transaction = engine.begin();
        let test = Test::Compare(Comparison::Equal, Value::Int64(5));
        let conditions = Arc::new([Condition { attribute: AttributeId(0), test }]);
        let request = ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None };
        let deleted = transaction.delete(&Read { container: TABLE, request }, None).await?;
        transaction.commit().await?;
        Ok::<u64, EngineError>(deleted)
    };
    assert_eq!(shelf.simulation.block_on(work).expect("ends").expect("deletes"), 3);
    drop(shelf);
    env.lose_power();
    assert_eq!(open_or_panic(&env).keys(), [7]);
}

/// Deletes of several transactions are one statement when they are done again, as far as nothing comes between them.
#[test]
fn rows_that_came_again_between_deletes_are_deleted_again_as_often() {
    let env = SimulatedEnv::new(1);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.insert(0..30);
    for (deleted, inserted) in [(0..10, 5..8), (6..7, 6..7), (20..30, 29..30), (6..7, 0..0), (7..8, 40..41)] {
        shelf.delete(deleted.start..deleted.start + 1);
        shelf.delete(deleted.start + 1..deleted.end);
        shelf.insert(inserted);
    }
    let expected: Vec<i64> = std::iter::once(5).chain(10..20).chain([29, 40]).collect();
    for workers in [1, 2] {
        env.lose_power();
        let options = DurabilityOptions { replay_rows: usize::MAX, ..options() };
        assert_eq!(opened_by(&env, workers, &options).0.keys(), expected);
    }
}

/// Blocks of a checkpoint are read and loaded side by side: on a disk that takes its time with each, four take a
/// quarter of it.
#[test]
fn a_checkpoint_is_loaded_by_as_many_as_there_are_workers() {
    const BLOCKS: i64 = 40;
    let latency = Duration::from_millis(100);
    let env = SimulatedEnv::new(6);
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.load(0..64 * BLOCKS);
    shelf.checkpoint();
    shelf.close();
    let faults = DiskFaults { latency_min: latency, latency_max: latency, slow: PerMille(0), ..DiskFaults::default() };
    env.simulated_files().set_disk_faults(faults);
    for workers in [1, 2, 4] {
        let (mut shelf, _) = opened_by(&env, workers, &options());
        let (_, took) = shelf.database.as_ref().expect("open").recovered();
        // Whoever loads has one block read ahead, and this disk takes its time with both at once.
        let alone = latency * BLOCKS as u32 / 2;
        let share = alone / workers as u32;
        assert!(took >= share && took < share + alone / 8, "{workers} workers: {took:?}, one alone {alone:?}");
        assert_eq!(shelf.keys(), (0..64 * BLOCKS).collect::<Vec<_>>());
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

/// Containers whose rows refer to those of the table, key by key.
const CHILD: ContainerId = ContainerId(3);
const OTHER_CHILD: ContainerId = ContainerId(4);

fn reference(name: &str, child: ContainerId, on_delete: ReferentialAction) -> ForeignKeySpec {
    let side = |container, name: &str| KeySide { container, name: name.into(), attributes: [AttributeId(0)].into() };
    ForeignKeySpec {
        name: name.into(),
        child: side(child, "child"),
        parent: side(TABLE, "parent"),
        on_delete,
        on_update: ReferentialAction::Restrict,
    }
}

fn refer(shelf: &mut Shelf, spec: &ForeignKeySpec) {
    let (engine, spec) = (shelf.engine(), spec.clone());
    shelf.simulation.block_on(async move { engine.create_foreign_key(&spec).await }).expect("ends").expect("it holds");
}

fn try_child(shelf: &mut Shelf, container: ContainerId, key: i64) -> Result<(), EngineError> {
    let engine = shelf.engine();
    let inserted = async move {
        let mut transaction = engine.begin();
        transaction.insert(container, row(key, "")).await?;
        transaction.commit().await.map(drop)
    };
    shelf.simulation.block_on(inserted).expect("ends")
}

fn try_delete(shelf: &mut Shelf, key: i64) -> Result<u64, EngineError> {
    let engine = shelf.engine();
    let test = Test::Compare(Comparison::Equal, Value::Int64(key));
    let conditions = Arc::new([Condition { attribute: AttributeId(0), test }]);
    let request = ReadRequest { predicate: Predicate { conditions }, desired: Arc::from([]), order: None };
    let deleted = async move {
        let mut transaction = engine.begin();
        let rows = transaction.delete(&Read { container: TABLE, request }, None).await?;
        transaction.commit().await.map(|_| rows)
    };
    shelf.simulation.block_on(deleted).expect("ends")
}

/// That a change is refused by the foreign key of this name.
fn assert_violated<T>(outcome: Result<T, EngineError>, name: &str, what: &str) {
    match outcome.map(drop).expect_err(what) {
        EngineError::ForeignKeyViolation(violation) => assert_eq!(&*violation.constraint, name, "{what}"),
        other => panic!("{what}: {other}"),
    }
}

/// Of the log alone, or of a checkpoint in front of or behind their definitions: those that are there are enforced from
/// both sides, those that were dropped, by name or with their child, are not.
#[test]
fn foreign_keys_are_as_they_were_defined_and_enforced() {
    let stays = reference("stays", CHILD, ReferentialAction::NoAction);
    let (child, parent) = ("a child without a parent", "a parent with a child");
    for checkpoint_behind in [None, Some(1), Some(2), Some(3)] {
        let env = SimulatedEnv::new(4);
        let mut shelf = open_or_panic(&env);
        let checkpoint = |shelf: &mut Shelf, step| {
            if checkpoint_behind == Some(step) {
                shelf.checkpoint();
            }
        };
        shelf.create();
        create_other(&shelf.engine()).expect("creates");
        create_other(&shelf.engine()).expect("creates");
        shelf.insert(0..10);
        try_child(&mut shelf, CHILD, 3).expect("nothing forbids it");
        for (name, of) in [("dropped", CHILD), ("of a child that goes", OTHER_CHILD)] {
            refer(&mut shelf, &reference(name, of, ReferentialAction::Restrict));
        }
        checkpoint(&mut shelf, 1);
        refer(&mut shelf, &stays);
        checkpoint(&mut shelf, 2);
        shelf.engine().drop_foreign_key(CHILD, "dropped").expect("it is there");
        shelf.engine().drop_container(OTHER_CHILD).expect("nobody refers to it");
        assert_violated(try_child(&mut shelf, CHILD, 99), "stays", child);
        checkpoint(&mut shelf, 3);
        try_child(&mut shelf, CHILD, 5).expect("it has a parent");
        drop(shelf);
        env.lose_power();
        let mut shelf = open_or_panic(&env);
        let what = format!("a checkpoint behind step {checkpoint_behind:?}");
        for side in [CHILD, TABLE] {
            let found = shelf.engine().foreign_keys(side).expect("the container is there");
            assert_eq!(found, std::slice::from_ref(&stays), "{what}");
        }
        assert_violated(try_child(&mut shelf, CHILD, 99), "stays", child);
        assert_violated(try_delete(&mut shelf, 5), "stays", parent);
        assert_eq!(try_delete(&mut shelf, 7).expect("nobody refers to it"), 1, "{what}");
        // Dropped now, it stays so.
        shelf.engine().drop_foreign_key(CHILD, "stays").expect("it is there");
        try_child(&mut shelf, CHILD, 99).expect("nothing forbids it any more");
        drop(shelf);
        env.lose_power();
        let mut shelf = open_or_panic(&env);
        let left = shelf.engine().foreign_keys(CHILD).expect("the container is there");
        assert!(left.is_empty(), "{what}: {left:?}");
        try_child(&mut shelf, CHILD, 98).expect("nothing forbids it");
        assert_eq!(try_delete(&mut shelf, 3).expect("nothing forbids it"), 1, "{what}");
    }
}

/// What the container, and each of its partitions, was told about layouts; and the modules of its sealed segments.
fn layouts(shelf: &Shelf) -> (Vec<Option<SegmentLayouts>>, Vec<&'static str>) {
    let engine = shelf.engine();
    let defined = engine.definitions().into_iter().find_map(|definition| match definition {
        Definition::Container { schema, .. } if schema.container == TABLE => Some(schema.physical.clone()),
        _ => None,
    });
    let told = engine.partition_histories().into_iter().filter(|history| history.container == TABLE);
    let told = told.map(|history| history.layouts);
    let all = defined.into_iter().chain(told).map(|layouts| layouts.as_deref().cloned()).collect();
    let partitions = engine.partitions();
    let of_table = partitions.iter().filter(|partition| partition.container == TABLE);
    let sealed = of_table.flat_map(|partition| &partition.segments).filter(|segment| segment.sealed);
    (all, sealed.map(|segment| segment.module).collect())
}

fn set_layouts(shelf: &mut Shelf, layouts: Option<SegmentLayouts>) {
    let engine = shelf.engine();
    let set = async move { engine.set_layout(TABLE, None, layouts).await };
    shelf.simulation.block_on(set).expect("ends").expect("sets");
}

/// Layouts of a container that were set by hand, and taken back by hand.
#[test]
fn layouts_of_a_container_are_set_again() {
    let env = SimulatedEnv::new(5);
    let rows =
        SegmentLayouts { open: PhysicalLayout::single(ROW_STATIC, 2), sealed: PhysicalLayout::single(ROW_STATIC, 2) };
    let mut shelf = open_or_panic(&env);
    shelf.create();
    shelf.checkpoint();
    set_layouts(&mut shelf, Some(rows.clone()));
    shelf.load(0..640);
    drop(shelf);
    env.lose_power();
    let mut shelf = open_or_panic(&env);
    shelf.simulation.run_until_idle().expect("maintenance ends");
    let (told, modules) = layouts(&shelf);
    assert!(told.len() > 1 && told.iter().all(|layouts| layouts.as_ref() == Some(&rows)), "{told:?}");
    assert!(modules.len() >= 10 && modules.iter().all(|module| *module == ROW_STATIC), "{modules:?}");
    set_layouts(&mut shelf, None);
    shelf.insert(640..641);
    drop(shelf);
    env.lose_power();
    let mut shelf = open_or_panic(&env);
    let (told, _) = layouts(&shelf);
    assert!(told.len() > 1 && told.iter().all(Option::is_none), "{told:?}");
    assert_eq!(shelf.keys(), (0..641).collect::<Vec<_>>());
}
