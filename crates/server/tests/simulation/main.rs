//! SQL sessions under a seed: server, sessions, engine and clients on one thread, over 1, 2 or 4 nodes.
//!
//! Clients talk to the real server over simulated connections whose bytes arrive in pieces of any size. They run
//! transactions at random (see `generate`) in every manner of the protocol (`manner`), with cancel requests and
//! disconnects in between; some servers stop in the middle of it. Segments, partitions, buffers and quanta are tiny, so
//! that seals, thaws, splits, forwarded messages and saved cursors are everyday events. In some runs whatever can spill
//! does, operations on temporary files fail, or reservations of memory are refused: then a statement fails with its
//! error, and nothing else does. What the clients saw is checked
//! for snapshot isolation (`history`) against a model of the statements (`model`), and at the end the tables must hold
//! what the history says.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000 ERIS_NODES=4` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod client;
mod generate;
mod history;
mod manner;
mod model;
mod requests;
mod statement;
mod wire;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{EngineOptions, Event, Fault, FaultOptions, Simulation};
use eris_platform::simulated::NetworkOptions;
use eris_platform::{Env, SeededRandom, SimulatedEnv};
use eris_server::{Service, SqlHost};
use eris_sql::{Database, DatabaseOptions, Outcome, SessionOptions};
use eris_storage::{Batch, Layout, Value};

use client::{Client, World};
use generate::{Live, Shape};
use history::{Observed, Unreliable, check};
use statement::{Row, Table};

const NODES: [usize; 3] = [1, 2, 4];
/// The disk of temporary files.
const DISK_BYTES: u64 = 1 << 30;
/// Operations of the disk that may fail after the last statement.
const FAULTS_LEFT_MAX: usize = 1_000;
/// The consumer of what is on its way to temporary files and back.
const SPILLING: &str = "temporary files";

fn engine_options(nodes: usize, random: &mut SeededRandom) -> EngineOptions {
    EngineOptions {
        workers: nodes * (1 + random.index(2)),
        nodes,
        memory_limit_bytes: 1 << 30,
        quantum: Duration::from_micros([0, 0, 200][random.index(3)]),
        in_place: random.chance(0.7),
        incoming_buffer_bytes: [96, 512, 1 << 16][random.index(3)],
        worker_buffer_bytes: [64, 4_096][random.index(2)],
        split_rows: [8, 30, 100, 1_000_000][random.index(4)],
        split_bytes: 1 << 30,
        parallel_rows: [16, 1_000_000][random.index(2)],
        result_batches_max: [1, 64][random.index(2)],
        ..EngineOptions::default()
    }
}

fn database_options(random: &mut SeededRandom) -> DatabaseOptions {
    DatabaseOptions {
        // It has threads of its own, which no seed decides.
        fallback: false,
        layout: [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)],
        partitions: [0, 0, 1, 3][random.index(4)],
        segment_rows: [8, 16, 64][random.index(3)],
        // With one byte whatever can go on in temporary files does.
        work_mem_bytes: [0, 1][random.index(2)],
        ..DatabaseOptions::default()
    }
}

fn shape(random: &mut SeededRandom) -> Shape {
    Shape {
        keys: [10, 40, 200][random.index(3)],
        branches: [3, 12][random.index(2)],
        note_bytes_max: [6, 6, 6, 400][random.index(4)],
        copy_rows_max: [6, 40][random.index(2)],
    }
}

/// Counts over all seeds, to show that the runs reached what they are for.
#[derive(Default, Debug)]
struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    fn add(&mut self, name: impl Into<String>, count: u64) {
        *self.counts.entry(name.into()).or_default() += count;
    }

    fn require(&self, names: &[&str]) {
        for name in names {
            assert!(self.counts.get(*name).is_some_and(|count| *count > 0), "no run reached {name}: {self:#?}");
        }
    }
}

/// Runs statements in a session without a server; the rows of all of them.
async fn run_all(database: Database, statements: Vec<String>) -> Result<Vec<Batch>, String> {
    let mut session = database.session(SessionOptions::default());
    let mut batches = Vec::new();
    for statement in statements {
        let prepared = session.parse(&statement, &[]).map_err(|error| format!("{statement}: {error}"))?;
        for prepared in prepared {
            let outcome = session.execute(&prepared, &[]).await.map_err(|error| format!("{statement}: {error}"))?;
            if let Outcome::Rows(mut rows) = outcome {
                while let Some(batch) = rows.next().await.map_err(|error| error.to_string())? {
                    batches.push(batch);
                }
                rows.finish().await.map_err(|error| error.to_string())?;
            }
        }
    }
    session.close().await;
    Ok(batches)
}

/// When every statement has ended nothing of their temporary files is there: no bytes, no memory, and no name unless it
/// could not be removed.
fn check_temporary_files(env: &SimulatedEnv, database: &Database, disk_fails: bool) -> Result<(), String> {
    let (files, memory) = (database.temp_files(), database.engine().memory());
    let statistics = files.statistics();
    if statistics.used_bytes > 0 {
        return Err(format!("temporary files are left: {statistics:?}"));
    }
    if let Some(left) = memory.by_consumer().iter().find(|(consumer, bytes)| *consumer == SPILLING && *bytes > 0) {
        return Err(format!("memory is reserved for no statement: {left:?}"));
    }
    let disk = env.files();
    // Faults that were planned for statements may be left.
    let listed = || (0..FAULTS_LEFT_MAX).find_map(|_| disk.list(files.directory()).ok());
    let names = if disk.exists(files.directory()) { listed().unwrap_or_default() } else { Vec::new() };
    let free = disk.available_bytes(Path::new("/")).map_err(|error| error.to_string())?;
    if (names.is_empty() || disk_fails) && free == DISK_BYTES {
        return Ok(());
    }
    Err(format!("{} bytes are left on the disk, as {names:?}", DISK_BYTES - free))
}

fn rows_of(batches: &[Batch], table: Table) -> Vec<(Table, Row)> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.rows {
            let integer = |column| match batch.value(row, column) {
                Value::Int64(value) => value,
                other => panic!("column {column} is {other:?}"),
            };
            let note = match batch.value(row, 3) {
                Value::Null => None,
                Value::Text(text) => Some(text.to_string()),
                other => panic!("a note is {other:?}"),
            };
            rows.push((table, Row { id: integer(0), branch: integer(1), amount: integer(2), note }));
        }
    }
    rows.sort();
    rows
}

/// One run; its hash says whether another one went the same way.
fn run_seed(seed: u64, nodes: usize, transactions: u64, coverage: &mut Coverage) -> Result<u64, String> {
    let mut random = SeededRandom::new(seed);
    let engine_options = engine_options(nodes, &mut random);
    let database_options = database_options(&mut random);
    let network = NetworkOptions {
        pipe_bytes: [61, 1_000, 1 << 16][random.index(3)],
        short_probability: [0.0, 0.25][random.index(2)],
    };
    let refusals = [0.0, 0.000_3, 0.003][random.index(3)];
    let disk_fails = random.index(2) == 0;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let env = SimulatedEnv::with_network(seed, network);
    env.simulated_files().set_capacity(Some(DISK_BYTES));
    let mut simulation = Simulation::on(&env, engine_options).map_err(|error| text(&error))?;
    let engine = simulation.engine().clone();
    let opening = Database::open(engine.clone(), database_options);
    let database = simulation.block_on(opening).map_err(|error| text(&error))?.map_err(|error| text(&error))?;
    let observed = Arc::new(Observed::default());
    database.observe(observed.clone());

    let tables = Table::ALL.map(|table| {
        let name = table.name();
        format!(
            "CREATE TABLE {name} (id bigint PRIMARY KEY, branch bigint NOT NULL, amount bigint NOT NULL, note text); \
             CREATE INDEX ON {name} (branch)"
        )
    });
    simulation.block_on(run_all(database.clone(), tables.to_vec())).map_err(|error| text(&error))??;

    let address = SocketAddr::from(([127, 0, 0, 1], 5432));
    let server = Service::new(&engine, SqlHost::new(database.clone())).listen(address).map_err(|error| text(&error))?;
    let world = Arc::new(World {
        engine: engine.clone(),
        network: env.network().clone(),
        disk: disk_fails.then(|| env.simulated_files().clone()),
        port: address.port(),
        shape: shape(&mut random),
        live: Live::default(),
        observed: observed.clone(),
        records: Mutex::default(),
        clock: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        done: AtomicU64::new(0),
        events: Mutex::default(),
        doing: Mutex::default(),
    });
    if random.below(4) > 0 {
        let loader = Client::new(world.clone(), 0, random.next_u64());
        simulation.block_on(loader.load()).map_err(|error| text(&error))??;
    }
    simulation.set_faults(FaultOptions { memory: refusals, slow_one_in: 1, ..FaultOptions::default() });
    let clients = 1 + random.below(6);
    // Some servers stop among their clients, after as many transactions as the others run in all.
    let stops_after = (random.below(8) == 0).then(|| transactions + random.below(transactions));
    let planned = if stops_after.is_some() { 2 * transactions } else { transactions };
    let results = Arc::new(Mutex::new(Vec::new()));
    for number in 1..=clients {
        let client = Client::new(world.clone(), number, random.next_u64());
        let results = results.clone();
        engine.spawn(async move {
            let result = client.run(planned.div_ceil(clients)).await;
            results.lock().expect("one thread").push(result);
        });
    }
    let all_done = || {
        let results = results.lock().expect("one thread");
        results.len() as u64 == clients || results.iter().any(Result::is_err)
    };
    simulation
        .run_until(|| all_done() || stops_after.is_some_and(|count| world.done.load(Ordering::Relaxed) >= count))
        .map_err(|error| format!("{error}\n{:#?}", world.doing.lock().expect("one thread")))?;
    world.stopping.store(true, Ordering::Relaxed);
    let stopped = simulation.block_on(server.end()).map_err(|error| text(&error))?;
    if !stopped {
        return Err("sessions did not end in time".to_owned());
    }
    simulation.run_until(all_done).map_err(|error| text(&error))?;
    for result in results.lock().expect("one thread").drain(..) {
        result?;
    }
    simulation.stop_faults();
    simulation.run_until_idle().map_err(|error| text(&error))?;
    check_temporary_files(&env, &database, disk_fails)?;

    let records = world.records.lock().expect("one thread").clone();
    let unreliable = Unreliable { memory: refusals > 0.0, disk: disk_fails };
    let checked = check(&records, &observed, unreliable)?;
    for table in Table::ALL {
        let select = format!("SELECT id, branch, amount, note FROM {}", table.name());
        let reading = run_all(database.clone(), vec![select]);
        let found = rows_of(&simulation.block_on(reading).map_err(|error| text(&error))??, table);
        let expected: Vec<_> = checked.rows.iter().filter(|(of, _)| *of == table).cloned().collect();
        if found != expected {
            return Err(format!("at the end there is {found:?}, the history says {expected:?}"));
        }
    }
    let statistics = engine.statistics();
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{records:?} {:?} {}", statistics.events, simulation.steps()).as_bytes());
    for (event, count) in &statistics.events {
        coverage.add(event.name(), *count);
    }
    if statistics.event(Event::TaskPanics) > 0 || statistics.snapshots > 0 {
        return Err(format!("panics or published snapshots are left: {statistics:?}"));
    }
    let store = &statistics.store;
    for (name, count) in [
        ("segments sealed", store.sealed),
        ("segments attached", store.attached),
        ("segments thawed", store.thawed),
        ("segments evacuated", store.compacted),
        ("transactions", records.len() as u64),
        ("reservations refused", simulation.fault_count(Fault::MemoryRefused)),
        ("bytes in temporary files", database.temp_files().statistics().written_bytes),
        ("servers stopped among their clients", u64::from(stops_after.is_some())),
    ] {
        coverage.add(name, count);
    }
    for (name, count) in checked.counts {
        coverage.add(name, count);
    }
    for (name, count) in world.events.lock().expect("one thread").iter() {
        coverage.add(*name, *count);
    }

    let names = Table::ALL.map(Table::name).into_iter().chain(["side"]);
    let drops = names.map(|name| format!("DROP TABLE IF EXISTS {name}")).collect();
    simulation.block_on(run_all(database.clone(), drops)).map_err(|error| text(&error))??;
    simulation.run_until_idle().map_err(|error| text(&error))?;
    let memory = Arc::clone(engine.memory());
    drop((server, database, world, simulation, engine));
    if memory.used() != 0 {
        return Err(format!("{} bytes are still reserved: {:?}", memory.used(), memory.by_consumer()));
    }
    Ok(hasher.finish())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The nodes of a seed, unless the environment says otherwise: each number of them in turn.
fn nodes_of(seed: u64) -> usize {
    number("ERIS_NODES").map_or(NODES[seed as usize % NODES.len()], |nodes| nodes as usize)
}

fn run_and_name(seed: u64, nodes: usize, transactions: u64, coverage: &mut Coverage) -> u64 {
    run_seed(seed, nodes, transactions, coverage).unwrap_or_else(|failure| {
        panic!(
            "{failure}\nreplay: ERIS_SEED={seed} ERIS_NODES={nodes} ERIS_TRANSACTIONS={transactions} \
             cargo test --release -p eris-server --test simulation histories"
        )
    })
}

#[test]
fn histories_are_snapshot_isolated() {
    let transactions = number("ERIS_TRANSACTIONS").unwrap_or(1_000);
    let mut coverage = Coverage::default();
    if let Some(seed) = number("ERIS_SEED") {
        run_and_name(seed, nodes_of(seed), transactions, &mut coverage);
        eprintln!("{coverage:#?}");
        return;
    }
    let first = number("ERIS_FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("ERIS_SEEDS").unwrap_or(12) {
        run_and_name(seed, nodes_of(seed), transactions, &mut coverage);
    }
    eprintln!("{coverage:#?}");
    coverage.require(&[
        Event::LocalMessages.name(),
        Event::Broadcasts.name(),
        Event::Forwarded.name(),
        Event::InPlace.name(),
        Event::SavedCursors.name(),
        Event::Stalls.name(),
        Event::Splits.name(),
        Event::BufferFull.name(),
        Event::MaintenanceCalls.name(),
        "segments sealed",
        "segments attached",
        "segments thawed",
        "segments evacuated",
        "commits",
        "rollbacks",
        "lost with their client",
        "disconnects",
        "cancel requests",
        "portals",
        "error 22012",
        "error 23505",
        "error 40001",
        "error 57014",
        "error 53100",
        "error 53200",
        "error 58030",
        "bytes in temporary files",
        "names committed",
        "tables truncated",
    ]);
    if number("ERIS_NODES") != Some(1) {
        coverage.require(&[Event::RemoteMessages.name()]);
    }
}

#[test]
fn one_seed_runs_the_same_twice() {
    for seed in [3, 4, 5] {
        let run = || run_and_name(seed, nodes_of(seed), 150, &mut Coverage::default());
        assert_eq!(run(), run(), "ERIS_SEED={seed}");
    }
}
