//! Seeded histories over the whole engine on one thread, checked for the isolation that was promised.
//!
//! Clients change, rename, insert, delete, lock and read accounts at both isolation levels, with savepoints and lock
//! timeouts, over one to four nodes, with tiny buffers, quanta and split limits, while layouts change and a mover
//! splits, merges and moves partitions at any step. Each transaction notes what it read, wrote and locked with the
//! snapshots of its statements and its commit timestamp; afterwards the history is replayed in commit order by a
//! checker that knows nothing of the engine: a read must return the newest version at or below the snapshot of its
//! statement, two committed writers of one key must not overlap, nobody writes what another one has locked, what was
//! rolled back to a savepoint was never there, and a scan must see every key once.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod history;
mod mover;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{ContainerSpec, Engine, EngineOptions, Event, Partitioning, Simulation};
use eris_platform::SeededRandom;
use eris_storage::{ContainerId, Layout, PartitionId};

use accounts::{KEY, everything, layouts, pairs, schema};
use history::{History, run_client};
use mover::{Mover, move_about};

/// Other layouts for all partitions or for one, or those of the schema again, while everybody works.
async fn change_layouts(engine: Engine, container: ContainerId, mut random: SeededRandom, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        engine.sleep_until(engine.env().now() + Duration::from_micros(random.below(3_000))).await;
        let list: Vec<PartitionId> =
            engine.partitions().iter().filter(|known| known.container == container).map(|known| known.id).collect();
        let partition = random.chance(0.5).then(|| list[random.index(list.len())]);
        let layouts = random.chance(0.85).then(|| layouts(&mut random));
        engine.set_layout(container, partition, layouts).await.expect("the layouts fit and the partition exists");
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
        updates_in_place: random.chance(0.8),
        direct_append: random.chance(0.5),
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
    rebuilt: u64,
    updated_in_place: u64,
    images_restored: u64,
    images_spilled: u64,
    committed: u64,
    rolled_back: u64,
    /// Committed after a rollback to a savepoint.
    committed_in_part: u64,
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
            run_client(engine, container, keys, share, seed.wrapping_mul(31) + number, history).await;
            *done.lock().expect("one thread") += 1;
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    if random.chance(0.5) {
        engine.spawn(change_layouts(engine.clone(), container, SeededRandom::new(seed + 77), Arc::clone(&over)));
    }
    if random.chance(0.7) {
        let pause = Duration::from_micros([20, 200, 2_000][random.index(3)]);
        let mover = Mover { engine: engine.clone(), container, seed, pause, over: Arc::clone(&over) };
        engine.spawn(move_about(mover));
    }
    simulation.run_until(|| *done.lock().expect("one thread") == clients).map_err(|error| error.to_string())?;
    over.store(true, Ordering::Relaxed);
    simulation.run_until_idle().map_err(|error| error.to_string())?;

    let history = history.lock().expect("one thread");
    let expected = history.check().map_err(|violation| format!("seed {seed}: {violation}"))?;
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
    coverage.rebuilt += statistics.store.rebuilt;
    coverage.updated_in_place += statistics.store.updated_in_place;
    coverage.images_restored += statistics.store.images_restored;
    coverage.images_spilled += statistics.store.images_spilled;
    let (committed, rolled_back, in_part) = history.counts();
    coverage.committed += committed;
    coverage.rolled_back += rolled_back;
    coverage.committed_in_part += in_part;
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
fn histories_are_isolated_as_promised() {
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
        Event::LockWaits,
        Event::Deadlocks,
        Event::LockTimeouts,
        Event::StatementRestarts,
    ] {
        assert!(coverage.events[event.name()] > 0, "no run reached {}", event.name());
    }
    assert!(coverage.sealed > 0 && coverage.thawed > 0 && coverage.compacted > 0, "no run reached a life-cycle step");
    assert!(coverage.rebuilt > 0, "no run rebuilt a segment");
    assert!(coverage.updated_in_place > 0 && coverage.images_restored > 0, "no run updated in place, or took it back");
    assert!(coverage.images_spilled > 0, "no run split or merged beside before-images");
    assert!(coverage.committed > 0 && coverage.rolled_back > 0, "runs commit and roll back");
    assert!(coverage.committed_in_part > 0, "runs commit what a savepoint left");
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
