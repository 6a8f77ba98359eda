//! Global indexes under the simulator: a unique key that names no partition finds its row, in every snapshot, whatever
//! splits, moves, conflicts and rolls back meanwhile.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use accounts::{AMOUNT, KEY, SetAmount, SetKey, by_key, everything, pairs, row, schema};
use eris_engine::{
    ContainerSpec, Engine, EngineError, EngineOptions, GlobalIndexSpec, Partitioning, Read, Simulation, Transaction,
};
use eris_platform::{SeededRandom, test_load};
use eris_storage::{
    AttributeId, Batch, ContainerId, DataType, Layout, PackedRows, Predicate, ReadRequest, StorageError, Value,
};

const NOTE: AttributeId = AttributeId(2);
const KEYS: u64 = 60;
const AMOUNTS: u64 = 40;

/// A container of accounts by ranges of the key, with a global index over one attribute.
fn create(engine: &Engine, attribute: AttributeId) -> (ContainerId, ContainerId) {
    let container = engine.next_container_id();
    let schema = Arc::new(schema(container, Layout::Default, 16));
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("the id is fresh");
    let spec =
        GlobalIndexSpec { container, name: "accounts_global".into(), attributes: Box::new([attribute]), partitions: 3 };
    let hidden = engine.create_global_index(&spec).expect("the container is empty");
    (container, hidden)
}

fn read_by(container: ContainerId, attribute: AttributeId, value: Value) -> Read {
    let predicate = Predicate::equal(attribute, value);
    Read { container, request: ReadRequest { predicate, desired: Arc::new([KEY, AMOUNT]), order: None } }
}

fn options(random: &mut SeededRandom) -> EngineOptions {
    let nodes = 1 + random.index(2);
    EngineOptions {
        workers: 2,
        nodes,
        quantum: Duration::from_micros([0, 200][random.index(2)]),
        in_place: random.chance(0.5),
        incoming_buffer_bytes: [96, 1 << 16][random.index(2)],
        split_rows: [6, 1_000][random.index(2)],
        parallel_rows: 10,
        ..EngineOptions::default()
    }
}

/// What a transaction sees of one amount by the index is what it sees by a scan.
async fn compare(transaction: &mut Transaction, container: ContainerId, amount: i64) -> Result<(), EngineError> {
    let read = read_by(container, AMOUNT, Value::Int64(amount));
    let by_index = pairs(&transaction.read(&read).await?);
    let mut rows = PackedRows::default();
    transaction.read_rows(&read, &mut rows).await?;
    let all = pairs(&transaction.scan(everything(container), None)?.collect().await?);
    let by_scan: Vec<(i64, i64)> = all.into_iter().filter(|(_, found)| *found == amount).collect();
    assert_eq!(by_index, by_scan, "amount {amount} by the index and by a scan");
    assert_eq!(rows.len(), by_scan.len(), "row-wise as in batches");
    assert!(by_scan.len() <= 1, "amount {amount} is unique");
    Ok(())
}

async fn change(
    transaction: &mut Transaction,
    container: ContainerId,
    random: &mut SeededRandom,
) -> Result<(), EngineError> {
    for _ in 0..=random.below(3) {
        transaction.next_statement();
        let key = random.below(KEYS) as i64;
        let amount = random.below(AMOUNTS) as i64;
        let by_amount = read_by(container, AMOUNT, Value::Int64(amount));
        match random.below(8) {
            0 | 1 => drop(transaction.insert(container, row(key, amount, None)).await?),
            2 => drop(transaction.update(&by_key(container, key), Arc::new(SetAmount(amount))).await?),
            3 => drop(transaction.update(&by_amount, Arc::new(SetAmount(amount + 1))).await?),
            4 => drop(transaction.update(&by_amount, Arc::new(SetKey(key))).await?),
            5 => drop(transaction.delete(&by_key(container, key), None).await?),
            6 => drop(transaction.delete(&by_amount, None).await?),
            _ => compare(transaction, container, amount).await?,
        }
    }
    transaction.next_statement();
    compare(transaction, container, random.below(AMOUNTS) as i64).await
}

#[derive(Default)]
struct Coverage {
    committed: u64,
    rolled_back: u64,
    duplicates: u64,
}

async fn client(engine: Engine, container: ContainerId, seed: u64, coverage: Arc<Mutex<Coverage>>) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..60 {
        let mut transaction = engine.begin();
        let result = change(&mut transaction, container, &mut random).await;
        match result {
            Ok(()) if random.chance(0.8) => {
                transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
                coverage.lock().expect("one thread").committed += 1;
            }
            Ok(()) => {
                transaction.rollback();
                coverage.lock().expect("one thread").rolled_back += 1;
            }
            Err(EngineError::Storage(StorageError::DuplicateKey { index_name, .. })) => {
                coverage.lock().expect("one thread").duplicates += u64::from(&*index_name == "accounts_global");
            }
            Err(error) => assert!(error.is_retryable(), "unexpected error: {error}"),
        }
    }
}

#[test]
fn every_row_has_its_entry_and_the_key_is_unique() {
    let coverage = Arc::new(Mutex::new(Coverage::default()));
    for seed in 0..test_load(60) {
        let mut random = SeededRandom::new(seed);
        let mut simulation = Simulation::new(seed, options(&mut random)).expect("the engine starts");
        let engine = simulation.engine().clone();
        let (container, hidden) = create(&engine, AMOUNT);
        let done = Arc::new(Mutex::new(0));
        for number in 0..4 {
            let (engine, done, coverage) = (engine.clone(), Arc::clone(&done), Arc::clone(&coverage));
            engine.clone().spawn(async move {
                client(engine, container, seed * 31 + number, coverage).await;
                *done.lock().expect("one thread") += 1;
            });
        }
        simulation.run_until(|| *done.lock().expect("one thread") == 4).expect("clients end");
        simulation.run_until_idle().expect("maintenance ends");
        let reader = engine.clone();
        simulation
            .block_on(async move {
                let mut transaction = reader.begin();
                let rows = transaction.scan(everything(container), None).expect("it exists").collect().await;
                let mut rows = pairs(&rows.expect("a scan succeeds"));
                // Entries are (amount, key).
                let entries = transaction.scan(everything(hidden), None).expect("it exists").collect().await;
                let mut entries = pairs(&entries.expect("a scan succeeds"));
                for entry in &mut entries {
                    *entry = (entry.1, entry.0);
                }
                rows.sort_unstable();
                entries.sort_unstable();
                assert_eq!(rows, entries, "seed {seed}: rows and entries");
                for (_, amount) in rows {
                    compare(&mut transaction, container, amount).await.expect("a read succeeds");
                }
            })
            .expect("the check ends");
        engine.drop_container(container).expect("it exists");
        assert!(engine.container(hidden).is_none(), "the index goes with its container");
        simulation.run_until_idle().expect("maintenance ends");
        let memory = Arc::clone(engine.memory());
        drop(simulation);
        drop(engine);
        assert_eq!(memory.used(), 0, "seed {seed}: {:?}", memory.by_consumer());
    }
    let coverage = coverage.lock().expect("one thread");
    assert!(coverage.committed > test_load(500));
    assert!(coverage.rolled_back > test_load(50) && coverage.duplicates > test_load(50));
}

#[test]
fn keys_with_null_have_no_entry_and_long_text_is_found() {
    let mut simulation = Simulation::new(1, EngineOptions::default()).expect("the engine starts");
    let engine = simulation.engine().clone();
    let (container, hidden) = create(&engine, NOTE);
    let long = "ein Konto, größer als zwölf Bytes";
    simulation
        .block_on(async move {
            let mut transaction = engine.begin();
            for (key, note) in [(1, None), (2, None), (3, Some(long)), (4, Some(""))] {
                transaction.insert(container, row(key, 10 * key, note)).await.expect("NULL is a duplicate of nothing");
            }
            transaction.next_statement();
            let count = async |transaction: &mut Transaction| {
                let entries = transaction.scan(read_by_nothing(hidden), None).expect("it exists").collect().await;
                entries.expect("a scan succeeds").iter().map(|batch| batch.rows).sum::<usize>()
            };
            assert_eq!(count(&mut transaction).await, 2, "NULL has no entry");
            let found = transaction.read(&read_by(container, NOTE, Value::Text(long.into()))).await.expect("a read");
            assert_eq!(pairs(&found), [(3, 30)]);
            let missing = transaction.read(&read_by(container, NOTE, Value::Text("x".into()))).await.expect("a read");
            assert_eq!(pairs(&missing), []);
            let again = transaction.insert(container, row(5, 50, Some(long))).await.expect_err("the note is taken");
            assert!(again.to_string().contains("accounts_global"), "{again}");
        })
        .expect("the task ends");
}

fn read_by_nothing(container: ContainerId) -> Read {
    let request = ReadRequest { predicate: Predicate::all(), desired: Arc::new([AttributeId(0)]), order: None };
    Read { container, request }
}

#[test]
fn bulk_loads_enter_their_rows() {
    let mut simulation = Simulation::new(2, EngineOptions::default()).expect("the engine starts");
    let engine = simulation.engine().clone();
    let (container, hidden) = create(&engine, AMOUNT);
    simulation
        .block_on(async move {
            let rows = |keys: std::ops::Range<i64>| {
                let rows: Vec<Vec<Value>> =
                    keys.map(|key| vec![Value::Int64(key), Value::Int64(1_000 - key), Value::Null]).collect();
                Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows)
            };
            let mut transaction = engine.begin();
            let mut bulk = transaction.bulk(container).expect("it exists");
            for first in [0, 100, 200] {
                bulk.append(rows(first..first + 100)).await.expect("keys are distinct");
            }
            bulk.finish().await.expect("keys are distinct");
            transaction.commit().await.expect("nothing conflicts");

            let mut transaction = engine.begin();
            let found = transaction.read(&read_by(container, AMOUNT, Value::Int64(750))).await.expect("a read");
            assert_eq!(pairs(&found), [(250, 750)]);
            let entries = transaction.scan(read_by_nothing(hidden), None).expect("it exists").collect().await;
            assert_eq!(entries.expect("a scan succeeds").iter().map(|batch| batch.rows).sum::<usize>(), 300);
            let mut bulk = transaction.bulk(container).expect("it exists");
            // Other keys, but amounts that are taken.
            let taken = Batch::from_rows(
                &[DataType::Int64, DataType::Int64, DataType::Text],
                &[vec![Value::Int64(900), Value::Int64(750), Value::Null]],
            );
            let refused = bulk.append(taken).await.expect_err("the amount is taken");
            assert!(refused.to_string().contains("accounts_global"), "{refused}");
        })
        .expect("the task ends");
}

#[test]
fn what_cannot_have_a_global_index_is_told_why() {
    let mut simulation = Simulation::new(3, EngineOptions::default()).expect("the engine starts");
    let engine = simulation.engine().clone();
    let (container, _) = create(&engine, AMOUNT);
    let spec = |attributes: &[AttributeId]| GlobalIndexSpec {
        container,
        name: "another".into(),
        attributes: attributes.into(),
        partitions: 1,
    };
    let reason = |result: Result<ContainerId, EngineError>| result.expect_err("it is refused").to_string();
    assert!(reason(engine.create_global_index(&spec(&[]))).contains("no attributes"));
    assert!(reason(engine.create_global_index(&spec(&[AttributeId(9)]))).contains("no attribute"));
    let inserter = engine.clone();
    simulation
        .block_on(async move {
            let mut transaction = inserter.begin();
            transaction.insert(container, row(1, 1, None)).await.expect("the first row");
            transaction.commit().await.expect("nothing conflicts");
        })
        .expect("the task ends");
    simulation.run_until_idle().expect("maintenance ends");
    assert!(reason(engine.create_global_index(&spec(&[NOTE]))).contains("has rows"));
}
