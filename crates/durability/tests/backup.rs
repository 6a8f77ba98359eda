//! Backups of databases that work: transactions ([`bank`]) and definitions ([`builders`]) go on while they are taken.
//!
//! A seed is a database with clients and builders, some checkpoints, and some backups at any moment. Each backup is
//! opened then, as it is, verified, and restored: it must have every commit up to its timestamp and no other, each as a
//! whole, and whatever its rows name must exist.
//!
//! `ERIS_SEEDS=1000` makes it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod bank;
mod books;
mod builders;
mod schemas;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bank::{Bank, End, sequence_spec, transact};
use books::Books;
use builders::Site;
use eris_durability::{BackupReport, Database, DurabilityOptions, back_up, open, restore, verify};
use eris_engine::{CancelHandle, Durability, Engine, EngineError, EngineOptions, Sequence, SequenceId, Simulation};
use eris_platform::{Env, SeededRandom, SimulatedEnv};
use eris_storage::Timestamp;

const PATH: &str = "/db";
const BACKUPS: usize = 3;
const TRANSACTIONS: u64 = 40;
const ROUNDS: i64 = 12;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn options(random: &mut SeededRandom) -> (EngineOptions, DurabilityOptions) {
    let engine = EngineOptions {
        workers: 1 + random.index(3),
        split_rows: [12, 40, 1_000][random.index(3)],
        quantum: Duration::from_micros([0, 20, 200][random.index(3)]),
        in_place: random.index(3) > 0,
        write_ahead_bytes: [100, 1_000, 1 << 20][random.index(3)],
        ..EngineOptions::default()
    };
    let durability = DurabilityOptions {
        log_file_bytes: [4 << 10, 64 << 10][random.index(2)],
        checkpoint_log_bytes: [3_000, 20_000, 1 << 30][random.index(3)],
        asynchronous_delay: Duration::from_micros([0, 500, 10_000][random.index(3)]),
        ..DurabilityOptions::default()
    };
    (engine, durability)
}

/// What a seed works with.
#[derive(Clone)]
struct World {
    bank: Bank,
    site: Site,
    sequence: SequenceId,
}

#[test]
fn a_backup_is_what_there_was_at_its_timestamp() {
    let (first, seeds) = match std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (number("ERIS_FIRST_SEED", 1), number("ERIS_SEEDS", 40)),
    };
    let (mut in_the_middle, mut names) = (0, 0);
    for seed in first..first + seeds {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        match std::panic::catch_unwind(run) {
            Ok(reached) => (in_the_middle, names) = (in_the_middle + reached.0, names + reached.1),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay: ERIS_SEED={seed} cargo test -p eris-durability --test backup");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{in_the_middle} backups in the middle of the work, {names} names in them");
    assert!(seeds < 40 || (in_the_middle > 20 && names > 40), "too little happened during backups");
}

/// Gives how many backups have some of the work and not all, and how many names all of them have.
fn run(seed: u64) -> (u64, usize) {
    let env = SimulatedEnv::new(seed);
    let mut random = SeededRandom::new(seed ^ 0xBAC);
    let (engine_options, durability_options) = options(&mut random);
    let mut simulation = Simulation::on(&env, engine_options.clone()).expect("starts");
    let database = Arc::new(open_at(&mut simulation, PATH, &durability_options));
    let engine = simulation.engine().clone();
    let (making, mut of_bank) = (engine.clone(), SeededRandom::new(random.next_u64()));
    let made = simulation.block_on(async move {
        let sequence = making.create_sequence(&sequence_spec())?;
        let (bank, site) = (Bank::create(&making, &mut of_bank).await?, Site::create(&making)?);
        Ok::<_, EngineError>(World { bank, site, sequence: sequence.id() })
    });
    let world = made.expect("ends").expect("makes");
    let known: Arc<Mutex<Books>> = Arc::default();
    for client in 0..=random.below(4) as i64 {
        spawn_client(&engine, &world, &known, client, SeededRandom::new(random.next_u64()));
    }
    world.site.build(&engine, &mut random, ROUNDS);
    let backups: Arc<Mutex<Vec<(String, BackupReport)>>> = Arc::default();
    for place in 0..BACKUPS {
        let (engine, backups, database) = (engine.clone(), Arc::clone(&backups), Arc::clone(&database));
        let pause = Duration::from_micros(random.below(15_000));
        engine.clone().spawn(async move {
            engine.sleep_until(engine.env().now() + pause).await;
            // Checkpoints are taken by the same code, and must not meet.
            if place == 0 {
                database.checkpoint().await.expect("a checkpoint is taken");
            }
            let path = format!("/backup-{place}");
            let report = back_up(&engine, Path::new(&path), CancelHandle::default()).await.expect("a backup is taken");
            backups.lock().expect("not poisoned").push((path, report));
        });
    }
    simulation.run_until_idle().expect("everybody comes to an end");
    let backups = std::mem::take(&mut *backups.lock().expect("not poisoned"));
    assert_eq!(backups.len(), BACKUPS);
    let committed = known.lock().expect("not poisoned").counts().0;
    let (mut in_the_middle, mut names) = (0, 0);
    for (path, report) in &backups {
        // Before somebody opens it and it takes checkpoints of its own.
        let (restored, files): (_, Arc<dyn Env>) = (format!("{path}-restored"), Arc::new(env.clone()));
        let told = restore(&files, Path::new(path), Path::new(&restored)).expect("it is restored");
        assert_eq!((told.timestamp, told.rows), (report.timestamp, report.rows));
        let copy = Copy { env: &env, engine: &engine_options, durability: &durability_options, world: &world };
        let (transactions, named) = copy.check(path, report, &known);
        assert_eq!(copy.check(&restored, report, &known), (transactions, named));
        in_the_middle += u64::from(transactions > 0 && transactions < committed);
        names += named;
    }
    // The source knows nothing of it.
    let closing = Arc::clone(&database);
    simulation.block_on(async move { closing.close().await }).expect("ends").expect("closes");
    drop((simulation, database, engine));
    let mut simulation = Simulation::on(&env, engine_options).expect("starts");
    let database = open_at(&mut simulation, PATH, &durability_options);
    let all = check_books(&mut simulation, &world, &known, Timestamp(u64::MAX));
    assert_eq!(all, committed);
    drop(database);
    (in_the_middle, names)
}

fn open_at(simulation: &mut Simulation, path: &str, options: &DurabilityOptions) -> Database {
    let (engine, options, path) = (simulation.engine().clone(), options.clone(), path.to_owned());
    let opened = simulation.block_on(async move { open(&engine, Path::new(&path), &options, |_| {}).await });
    opened.expect("ends").unwrap_or_else(|error| panic!("it opens: {error}"))
}

/// Whether everything is there up to a timestamp; gives the transactions.
fn check_books(simulation: &mut Simulation, world: &World, known: &Arc<Mutex<Books>>, copied: Timestamp) -> u64 {
    let (engine, bank, books) = (simulation.engine().clone(), world.bank, Arc::clone(known));
    let checked = simulation.block_on(async move {
        let tables = bank.tables(&engine).await?;
        books.lock().expect("not poisoned").check_copy(&tables, copied);
        Books::check(&tables);
        Ok::<_, EngineError>(tables.journal.len() as u64)
    });
    checked.expect("ends").expect("reads succeed")
}

/// How a backup is looked at.
struct Copy<'c> {
    env: &'c SimulatedEnv,
    engine: &'c EngineOptions,
    durability: &'c DurabilityOptions,
    world: &'c World,
}

impl Copy<'_> {
    /// Gives transactions and names.
    fn check(&self, path: &str, report: &BackupReport, known: &Arc<Mutex<Books>>) -> (u64, usize) {
        let mut simulation = Simulation::on(self.env, self.engine.clone()).expect("starts");
        let (engine, of_task) = (simulation.engine().clone(), path.to_owned());
        let verified = simulation.block_on(async move { verify(&engine, Path::new(&of_task), 10, |_| {}).await });
        let verified = verified.expect("ends").expect("it is looked at");
        assert_eq!(verified.wrong, Vec::<String>::new(), "{path}");
        assert_eq!((verified.timestamp, verified.rows), (report.timestamp, report.rows), "{path}");
        drop(simulation);
        let mut simulation = Simulation::on(self.env, self.engine.clone()).expect("starts");
        let database = open_at(&mut simulation, path, self.durability);
        let transactions = check_books(&mut simulation, self.world, known, Timestamp(report.timestamp));
        let (engine, site) = (simulation.engine().clone(), self.world.site);
        let names = simulation.block_on(async move { site.check(&engine).await }).expect("ends").expect("reads");
        // Nothing that was given to a transaction that is there is given again.
        let engine = simulation.engine().clone();
        let sequence = engine.sequence(self.world.sequence).expect("the sequence is there");
        let (bank, next) = (self.world.bank, sequence.next().expect("a value"));
        let tickets = simulation.block_on(async move { bank.rows(&engine, bank.journal).await }).expect("ends");
        let highest = tickets.expect("reads").iter().map(|row| row.numbers[2]).max().unwrap_or(0);
        assert!(next > highest, "ticket {next} is given again, {highest} is used");
        simulation.run_until_idle().expect("comes to rest");
        simulation.check_partitions().expect("indexes agree with rows");
        // It leaves no trace in the copy that is compared.
        database.abandon();
        (transactions, names)
    }
}

fn spawn_client(engine: &Engine, world: &World, known: &Arc<Mutex<Books>>, client: i64, mut random: SeededRandom) {
    let (engine, bank, known) = (engine.clone(), world.bank, Arc::clone(known));
    let sequence: Arc<Sequence> = engine.sequence(world.sequence).expect("it was made");
    engine.clone().spawn(async move {
        for _ in 0..TRANSACTIONS {
            let txn = known.lock().expect("not poisoned").begin(client);
            let told = Arc::clone(&known);
            let committing = move || told.lock().expect("not poisoned").committing(txn);
            let ended = transact(&engine, bank, &sequence, txn, client, &mut random, committing).await;
            let mut known = known.lock().expect("not poisoned");
            match ended {
                Ok(End::Committed { timestamp, durability }) => {
                    known.committed(txn, timestamp, durability == Durability::Synchronous);
                }
                Ok(End::RolledBack) => known.rolled_back(txn),
                Err(error) if error.is_retryable() || matches!(error, EngineError::LockTimeout) => {
                    known.rolled_back(txn);
                }
                Err(other) => panic!("a client did not expect: {other}"),
            }
        }
    });
}
