//! Seeded histories over the whole engine on one thread, checked for snapshot isolation.
//!
//! Clients move amounts between accounts, insert and delete accounts, and sum everything up, over one to four nodes,
//! with tiny buffers, quanta and split limits, while a mover splits, merges and moves partitions at any step. Each
//! transaction notes what it read and wrote with its snapshot and commit timestamps; afterwards the history is replayed
//! in commit order by a checker that knows nothing of the engine: a read must return the newest version at or below its
//! snapshot, two committed writers of one key must not overlap, and a scan must see every key once.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod history;
mod mover;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{ContainerSpec, Engine, EngineError, EngineOptions, Event, Partitioning, Simulation, Transaction};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, Layout};

use accounts::{KEY, SetAmount, SetKey, by_key, everything, pairs, row, schema};
use history::{History, Observation, TransactionRecord};
use mover::{Mover, move_about};

/// What a slow reader does between two batches: longer than a change waits for cursors.
const SLOW_READER: Duration = Duration::from_millis(15);

/// One transaction of one client; what it saw and did goes into the record.
async fn transact(
    engine: &Engine,
    transaction: &mut Transaction,
    container: ContainerId,
    keys: i64,
    random: &mut SeededRandom,
    record: &mut TransactionRecord,
) -> Result<(), EngineError> {
    for _ in 0..=random.below(4) {
        transaction.next_statement();
        let key = random.below(keys as u64) as i64;
        match random.below(10) {
            0..=2 => {
                let found = pairs(&transaction.read(&by_key(container, key)).await?);
                record.observe(Observation::Key { key, found });
            }
            3..=5 => {
                let found = pairs(&transaction.read(&by_key(container, key)).await?);
                record.observe(Observation::Key { key, found: found.clone() });
                transaction.next_statement();
                let amount = random.below(1_000_000) as i64;
                let rows = transaction.update(&by_key(container, key), Arc::new(SetAmount(amount))).await?;
                assert_eq!(rows, found.len() as u64, "an update concerns the rows that a read of its snapshot sees");
                if rows > 0 {
                    record.write(key, Some(amount));
                }
            }
            6 => {
                let rows = transaction.delete(&by_key(container, key), None).await?;
                if rows > 0 {
                    record.write(key, None);
                }
            }
            7 => {
                let amount = random.below(1_000_000) as i64;
                let note = (random.below(2) == 0).then_some("ein Konto, größer als zwölf Bytes");
                transaction.insert(container, row(key, amount, note)).await?;
                record.write(key, Some(amount));
            }
            8 => {
                let found = pairs(&transaction.read(&by_key(container, key)).await?);
                record.observe(Observation::Key { key, found: found.clone() });
                transaction.next_statement();
                let to = random.below(keys as u64) as i64;
                let rows = transaction.update(&by_key(container, key), Arc::new(SetKey(to))).await?;
                assert_eq!(rows, found.len() as u64, "an update concerns the rows that a read of its snapshot sees");
                if let Some((_, amount)) = found.first() {
                    record.write(key, None);
                    record.write(to, Some(*amount));
                }
            }
            _ => {
                let mut results = transaction.scan(everything(container), None)?;
                let mut batches = Vec::new();
                let slow = random.below(20) == 0;
                while let Some(batch) = results.next().await? {
                    batches.push(batch);
                    if slow {
                        // Its cursors stand in the way of splits, merges and moves, and it pins an old table.
                        engine.sleep_until(engine.env().now() + SLOW_READER).await;
                    }
                }
                record.observe(Observation::All(pairs(&batches)));
            }
        }
    }
    Ok(())
}

async fn client(
    engine: Engine,
    container: ContainerId,
    keys: i64,
    transactions: u64,
    seed: u64,
    history: Arc<Mutex<History>>,
) {
    let mut random = SeededRandom::new(seed);
    for _ in 0..transactions {
        let mut transaction = engine.begin();
        let mut record = TransactionRecord::new(transaction.snapshot_timestamp());
        match transact(&engine, &mut transaction, container, keys, &mut random, &mut record).await {
            Ok(()) if random.below(10) == 0 => transaction.rollback(),
            Ok(()) => {
                let timestamp = transaction.commit().await.expect("a commit that conflicts nowhere succeeds");
                record.commit(timestamp);
            }
            Err(EngineError::Storage(error)) if is_expected(&error) => transaction.rollback(),
            Err(error) => panic!("unexpected error: {error}"),
        }
        history.lock().expect("one thread").add(record);
    }
}

fn options(random: &mut SeededRandom) -> EngineOptions {
    let nodes = [1, 2, 4][random.index(3)];
    EngineOptions {
        workers: nodes * (1 + random.index(2)),
        nodes,
        memory_limit_bytes: 1 << 30,
        quantum: Duration::from_micros([0, 0, 200][random.index(3)]),
        in_place: random.chance(0.7),
        incoming_buffer_bytes: [96, 512, 1 << 16][random.index(3)],
        worker_buffer_bytes: [64, 4_096][random.index(2)],
        split_rows: [8, 30, 1_000_000][random.index(3)],
        split_bytes: 1 << 30,
        parallel_rows: [16, 1_000_000][random.index(2)],
        maintenance_rows: [4, 64, 2_048][random.index(3)],
        result_batches_max: [1, 64][random.index(2)],
        ..EngineOptions::default()
    }
}

/// Counts over all seeds, to show that the runs reached what they are for.
#[derive(Default, Debug)]
struct Coverage {
    events: std::collections::BTreeMap<&'static str, u64>,
    sealed: u64,
    thawed: u64,
    compacted: u64,
    committed: u64,
    rolled_back: u64,
}

fn run_seed(seed: u64, transactions: u64, coverage: &mut Coverage) -> Result<(), String> {
    let mut random = SeededRandom::new(seed);
    let options = options(&mut random);
    let layout = [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)];
    let segment_rows = [4, 16, 64][random.index(3)];
    let keys = [8, 40, 200][random.index(3)];
    let clients = 1 + random.below(6);
    let mut simulation = Simulation::new(seed, options).map_err(|error| error.to_string())?;
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let partitioning = match random.below(3) {
        0 => Partitioning::Hash { attributes: Box::new([KEY]), partitions: 1 + random.index(5) },
        _ => Partitioning::Range(Box::new([KEY])),
    };
    let schema = Arc::new(schema(container, layout, segment_rows));
    engine.create_container(ContainerSpec { schema, partitioning }).map_err(|error| error.to_string())?;

    let history = Arc::new(Mutex::new(History::default()));
    let done = Arc::new(Mutex::new(0));
    for number in 0..clients {
        let (engine, history, done) = (engine.clone(), Arc::clone(&history), Arc::clone(&done));
        let share = transactions / clients + 1;
        let spawner = engine.clone();
        spawner.spawn(async move {
            client(engine, container, keys, share, seed.wrapping_mul(31) + number, history).await;
            *done.lock().expect("one thread") += 1;
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    if random.chance(0.7) {
        let pause = Duration::from_micros([20, 200, 2_000][random.index(3)]);
        let mover = Mover { engine: engine.clone(), container, seed, pause, over: Arc::clone(&over) };
        engine.spawn(move_about(mover));
    }
    simulation.run_until(|| *done.lock().expect("one thread") == clients).map_err(|error| error.to_string())?;
    over.store(true, Ordering::Relaxed);
    simulation.run_until_idle().map_err(|error| error.to_string())?;

    let history = history.lock().expect("one thread");
    history.check().map_err(|violation| format!("seed {seed}: {violation}"))?;
    let expected = history.final_state();
    let reader = engine.clone();
    let found = simulation
        .block_on(async move {
            let mut transaction = reader.begin();
            let results = transaction.scan(everything(container), None).expect("the container exists");
            let mut found = pairs(&results.collect().await.expect("a scan of a quiet engine"));
            found.sort_unstable();
            found
        })
        .map_err(|error| error.to_string())?;
    if found != expected {
        return Err(format!("seed {seed}: at the end the table holds {found:?}, the history says {expected:?}"));
    }
    let statistics = engine.statistics();
    for (event, count) in &statistics.events {
        *coverage.events.entry(event.name()).or_default() += count;
    }
    coverage.sealed += statistics.store.sealed;
    coverage.thawed += statistics.store.thawed;
    coverage.compacted += statistics.store.compacted;
    let (committed, rolled_back) = history.counts();
    coverage.committed += committed;
    coverage.rolled_back += rolled_back;
    if statistics.forwarders != 0 {
        return Err(format!("seed {seed}: {} forwarders stay though nobody pins a table", statistics.forwarders));
    }
    if statistics.snapshots != 0 {
        return Err(format!("seed {seed}: {} snapshots are still published", statistics.snapshots));
    }
    engine.drop_container(container).map_err(|error| error.to_string())?;
    simulation.run_until_idle().map_err(|error| error.to_string())?;
    let memory = Arc::clone(engine.memory());
    drop(simulation);
    drop(engine);
    if memory.used() != 0 {
        return Err(format!("seed {seed}: {} bytes are still reserved: {:?}", memory.used(), memory.by_consumer()));
    }
    Ok(())
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn histories_are_snapshot_isolated() {
    let transactions = number("ERIS_TRANSACTIONS", 300);
    let mut coverage = Coverage::default();
    if let Some(seed) = std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        run_seed(seed, transactions, &mut coverage).expect("the seed is clean");
        eprintln!("{coverage:#?}");
        return;
    }
    let first = number("ERIS_FIRST_SEED", 1);
    for seed in first..first + number("ERIS_SEEDS", 60) {
        if let Err(failure) = run_seed(seed, transactions, &mut coverage) {
            panic!(
                "{failure}\nreplay: ERIS_SEED={seed} ERIS_TRANSACTIONS={transactions} \
                 cargo test -p eris-engine --test simulation"
            );
        }
    }
    eprintln!("{coverage:#?}");
    for event in [
        Event::LocalMessages,
        Event::RemoteMessages,
        Event::Broadcasts,
        Event::Forwarded,
        Event::InPlace,
        Event::SavedCursors,
        Event::Stalls,
        Event::Splits,
        Event::Merges,
        Event::Links,
        Event::Copies,
        Event::ForwardersDropped,
        Event::RowsHandedOver,
        Event::ChangesGivenUp,
        Event::BufferFull,
        Event::MaintenanceCalls,
    ] {
        assert!(coverage.events[event.name()] > 0, "no run reached {}", event.name());
    }
    assert!(coverage.sealed > 0 && coverage.thawed > 0 && coverage.compacted > 0, "no run reached a life-cycle step");
    assert!(coverage.committed > 0 && coverage.rolled_back > 0, "runs commit and roll back");
}

#[test]
fn one_seed_runs_the_same_twice() {
    let run = |seed| {
        let mut coverage = Coverage::default();
        run_seed(seed, 100, &mut coverage).expect("the seed is clean");
        format!("{coverage:?}")
    };
    assert_eq!(run(4), run(4));
}

/// Conflicts and duplicate keys are part of the game.
fn is_expected(error: &eris_storage::StorageError) -> bool {
    error.is_retryable() || matches!(error, eris_storage::StorageError::DuplicateKey { .. })
}
