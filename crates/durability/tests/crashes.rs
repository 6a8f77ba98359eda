//! Databases that lose their power or their process at any moment, on a disk that loses, tears and reorders what was
//! not synced.
//!
//! A seed is a database of a few lives. In each life clients work ([`bank`]) until the power goes, anywhere: between
//! two steps of workers, between two operations of the disk, while the database is opened. Then it is opened again on
//! what is left. Checked each time: what was told to be durable is there; what was rolled back is not; no commit is
//! missing in front of one that is there; each transaction is there as a whole or not at all; indexes agree with rows;
//! values of a sequence are not given twice; what was there after one crash is there after the next.
//!
//! `ERIS_SEEDS=1000 ERIS_TRANSACTIONS=1000` make it long; `ERIS_SEED=n` replays one seed.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod bank;
mod books;
mod schemas;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bank::{Bank, End, sequence_spec, transact};
use books::Books;
use eris_durability::{Database, DurabilityError, DurabilityOptions, open};
use eris_engine::{Durability, Engine, EngineError, EngineOptions, LogError, Sequence, SequenceId, Simulation};
use eris_platform::simulated::FileFault;
use eris_platform::{Env, Files, SeededRandom, SimulatedEnv};
use eris_storage::ContainerId;

/// Crashes of each seed at least, and lives until all transactions were begun at most.
const LIVES_MIN: u64 = 3;
const LIVES_MAX: u64 = 1_000;
/// Steps behind the last transaction of a life.
const STEPS_ALONE: u64 = 500;
const PATH: &str = "/db";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_is_there() {
    let transactions = number("ERIS_TRANSACTIONS", 300);
    let (first, seeds) = match std::env::var("ERIS_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (number("ERIS_FIRST_SEED", 1), number("ERIS_SEEDS", 40)),
    };
    let mut reached = Reached::default();
    for seed in first..first + seeds {
        let run = std::panic::AssertUnwindSafe(|| Life::run(seed, transactions, &mut reached));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!(
                "seed {seed} failed; replay: ERIS_SEED={seed} ERIS_TRANSACTIONS={transactions} cargo test --release \
                 -p eris-durability --test crashes nothing -- --nocapture"
            );
            std::panic::resume_unwind(panic);
        }
    }
    println!("{reached}");
    if seeds >= 40 && std::env::var_os("ERIS_FIRST_SEED").is_none() {
        reached.check();
    }
}

#[test]
fn a_seed_runs_the_same_twice() {
    let run = || {
        let mut reached = Reached::default();
        Life::run(3, 100, &mut reached);
        reached.to_string()
    };
    assert_eq!(run(), run());
}

/// What the runs met.
#[derive(Default)]
struct Reached {
    lives: u64,
    crashes_between_steps: u64,
    crashes_within_operations: u64,
    crashes_while_opening: u64,
    processes_killed: u64,
    committed: u64,
    rolled_back: u64,
    unknown: u64,
    unknown_survived: u64,
    asynchronous_lost: u64,
    files: u64,
    log_failures: u64,
    log_full: u64,
    closed: u64,
    checkpoints: u64,
    failed_checkpoints: u64,
    reused_bytes: u64,
    loaded_checkpoints: u64,
}

impl Reached {
    fn kinds(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("lives", self.lives),
            ("crashes between steps", self.crashes_between_steps),
            ("crashes within operations", self.crashes_within_operations),
            ("crashes while opening", self.crashes_while_opening),
            ("crashes of the process alone", self.processes_killed),
            ("commits", self.committed),
            ("rollbacks", self.rolled_back),
            ("commits whose end nobody heard of", self.unknown),
            ("such commits that are there", self.unknown_survived),
            ("asynchronous commits that were lost", self.asynchronous_lost),
            ("further log files", self.files),
            ("failed logs", self.log_failures),
            ("full disks", self.log_full),
            ("databases that were closed", self.closed),
            ("checkpoints", self.checkpoints),
            ("checkpoints that failed", self.failed_checkpoints),
            ("bytes of segments that were written before", self.reused_bytes),
            ("checkpoints that were loaded", self.loaded_checkpoints),
        ]
    }

    fn check(&self) {
        let missing: Vec<_> = self.kinds().into_iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind).collect();
        assert!(missing.is_empty(), "no run reached {missing:?}");
    }
}

/// As `scripts/simulate` reads it.
impl fmt::Display for Reached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds().iter().map(|(kind, count)| format!("\"{kind}\": {count}")).collect();
        write!(formatter, "coverage {{{}}}", kinds.join(", "))
    }
}

/// What clients know of their transactions; outlives the machine.
type Known = Arc<Mutex<Books>>;

/// A machine between two crashes.
struct Life {
    simulation: Simulation,
}

fn options(random: &mut SeededRandom) -> (EngineOptions, DurabilityOptions) {
    let nodes = [1, 1, 2][random.index(3)];
    let engine = EngineOptions {
        workers: nodes * (1 + random.index(2)),
        nodes,
        split_rows: [12, 40, 1_000][random.index(3)],
        parallel_rows: 1_000_000,
        quantum: Duration::from_micros([0, 20, 200][random.index(3)]),
        in_place: random.index(3) > 0,
        incoming_buffer_bytes: 16 << 10,
        write_ahead_bytes: [100, 1_000, 1 << 20][random.index(3)],
        ..EngineOptions::default()
    };
    let durability = DurabilityOptions {
        log_file_bytes: [4 << 10, 16 << 10, 64 << 10][random.index(3)],
        checkpoint_log_bytes: [3_000, 20_000, 1 << 30][random.index(3)],
        checkpoint_interval: Duration::from_millis([1, 20, 10_000][random.index(3)]),
        asynchronous_delay: Duration::from_micros([0, 500, 10_000][random.index(3)]),
        replay_rows: [1, 7, 1_000][random.index(3)],
        ..DurabilityOptions::default()
    };
    (engine, durability)
}

impl Life {
    fn run(seed: u64, transactions: u64, reached: &mut Reached) {
        let env = SimulatedEnv::new(seed);
        let mut random = SeededRandom::new(seed ^ 0xC4A5);
        let known: Known = Arc::default();
        let each = transactions / (3 + random.below(4)) + 1;
        let mut lives = 0;
        loop {
            lives += 1;
            reached.lives += 1;
            let begun = known.lock().expect("not poisoned").begun();
            let last = lives > LIVES_MIN && begun >= transactions;
            Self::live(&env, &mut random, &known, each, last, reached);
            if last {
                break;
            }
            assert!(lives < LIVES_MAX, "{begun} of {transactions} transactions in {lives} lives");
        }
        let books = known.lock().expect("not poisoned");
        reached.committed += books.counts().0;
        reached.rolled_back += books.counts().1;
        reached.unknown += books.unknown;
        reached.unknown_survived += books.unknown_survived;
        reached.asynchronous_lost += books.asynchronous_lost;
    }

    /// From power to no power.
    fn live(
        env: &SimulatedEnv,
        random: &mut SeededRandom,
        known: &Known,
        transactions: u64,
        last: bool,
        reached: &mut Reached,
    ) {
        let (engine_options, durability_options) = options(random);
        let kill = random.index(3) == 0;
        reached.processes_killed += u64::from(kill && !last);
        let files = env.simulated_files().clone();
        if !last && random.index(6) == 0 {
            env.lose_power_at(files.operations() + random.below(60));
        }
        let mut life = Self { simulation: Simulation::on(env, engine_options.clone()).expect("starts") };
        let opened = match life.open(&durability_options) {
            Ok(opened) => opened,
            Err(error) => {
                assert!(env.is_powerless(), "the database cannot be opened: {error}");
                reached.crashes_while_opening += 1;
                end(life, (), env, kill);
                return;
            }
        };
        if env.is_powerless() {
            reached.crashes_while_opening += 1;
        }
        reached.loaded_checkpoints += u64::from(env.files().exists(format!("{PATH}/checkpoint/manifest").as_ref()));
        let engine = life.simulation.engine().clone();
        let prepared = life.prepare(random, known);
        let Some((bank, sequence)) = prepared else {
            assert!(env.is_powerless(), "the bank can be made");
            end(life, (opened, engine), env, kill);
            return;
        };
        // Where the power goes, if it is not gone yet.
        let fault = random.index(8);
        match fault {
            _ if last => {}
            0..3 => env.lose_power_at(files.operations() + random.below(150)),
            3 => files.fail_at(files.operations() + random.below(60), FileFault::Broken),
            4 => {
                // An error: the power is gone.
                let used = files.available_bytes(PATH.as_ref()).map_or(0, |free| (1 << 40) - free);
                files.set_capacity(Some(used + random.below(60_000)));
            }
            _ => {}
        }
        let done = Arc::new(Mutex::new((0, 0, 0)));
        let clients = 1 + random.below(6) as i64;
        for client in 0..clients {
            let work = Client {
                engine: engine.clone(),
                bank,
                sequence: Arc::clone(&sequence),
                known: Arc::clone(known),
                number: client,
                random: SeededRandom::new(random.next_u64()),
                left: transactions / clients as u64 + 1,
            };
            let done = Arc::clone(&done);
            engine.spawn(async move {
                let (failures, full) = work.run().await;
                let mut done = done.lock().expect("not poisoned");
                done.0 += failures;
                done.1 += full;
                done.2 += 1;
            });
        }
        let database = Arc::new(opened);
        let told: Arc<Mutex<(u64, u64, u64)>> = Arc::default();
        for _ in 0..random.index(3) {
            let (database, told, engine) = (Arc::clone(&database), Arc::clone(&told), engine.clone());
            let pause = Duration::from_micros(random.below(30_000));
            let work = engine.clone();
            engine.spawn(async move {
                work.sleep_until(work.env().now() + pause).await;
                let outcome = database.checkpoint().await;
                let mut told = told.lock().expect("not poisoned");
                match outcome {
                    Ok(report) => {
                        told.0 += 1;
                        told.2 += report.reused_bytes;
                    }
                    Err(_) => told.1 += 1,
                }
            });
        }
        let steps = if last || fault < 3 { u64::MAX } else { random.below(transactions * 60) };
        let (mut taken, mut taken_alone) = (0, 0);
        let power = env.clone();
        let ended = life.simulation.run_until(|| {
            taken += 1;
            // Checkpoints that fail are tried again for ever.
            taken_alone += u64::from(done.lock().expect("not poisoned").2 == clients);
            taken > steps || taken_alone > STEPS_ALONE || power.is_powerless()
        });
        // Nobody has work: all clients are through.
        drop(ended);
        {
            let done = done.lock().expect("not poisoned");
            reached.log_failures += done.0;
            reached.log_full += done.1;
        }
        {
            let told = told.lock().expect("not poisoned");
            reached.checkpoints += told.0;
            reached.failed_checkpoints += told.1;
            reached.reused_bytes += told.2;
        }
        reached.files += u64::from(files_of_log(env) > 1);
        if last {
            let closing = Arc::clone(&database);
            life.simulation
                .block_on(async move { closing.close().await })
                .expect("ends")
                .expect("the last life has no faults");
            reached.closed += 1;
            end(life, (database, engine, sequence), env, false);
            let mut life = Self { simulation: Simulation::on(env, engine_options).expect("starts") };
            life.open(&durability_options).expect("a closed database can be opened");
            life.prepare(random, known).expect("nothing is lost");
            return;
        }
        if env.is_powerless() {
            reached.crashes_within_operations += 1;
        } else {
            reached.crashes_between_steps += 1;
        }
        database.abandon();
        files.set_capacity(None);
        end(life, (database, engine, sequence), env, kill);
    }

    fn open(&mut self, options: &DurabilityOptions) -> Result<Database, DurabilityError> {
        let engine = self.simulation.engine().clone();
        let options = options.clone();
        self.simulation
            .block_on(async move { open(&engine, PATH.as_ref(), &options, |_| {}).await })
            .expect("opening comes to its end")
    }

    /// Finds the bank as it must be, or makes it; none if the power went.
    fn prepare(&mut self, random: &mut SeededRandom, known: &Known) -> Option<(Bank, Arc<Sequence>)> {
        let engine = self.simulation.engine().clone();
        let made = known.lock().expect("not poisoned").made;
        let Some((bank, sequence)) = made else {
            let mut random = SeededRandom::new(random.next_u64());
            let making = engine.clone();
            let made = self.simulation.block_on(async move { make(&making, &mut random).await }).expect("ends").ok()?;
            let (bank, sequence) = made;
            known.lock().expect("not poisoned").made = Some((bank, sequence.id()));
            return Some((bank, sequence));
        };
        let sequence = engine.sequence(sequence).expect("the sequence was durable");
        let check = engine.clone();
        let books = Arc::clone(known);
        self.simulation
            .block_on(async move {
                let journal = bank.rows(&check, bank.journal).await?;
                let entries = bank.rows(&check, bank.entries).await?;
                let accounts = bank.rows(&check, bank.accounts).await?;
                let movers = bank.rows(&check, bank.movers).await?;
                let tokens = bank.rows(&check, bank.tokens).await?;
                let mut books = books.lock().expect("not poisoned");
                books.recovered(&journal);
                Books::check(&journal, &entries, &accounts, &movers, &tokens);
                Ok::<_, EngineError>(())
            })
            .expect("checking comes to its end")
            .expect("reads succeed");
        self.simulation.run_until_idle().expect("comes to rest");
        // It takes as long as the recovery.
        if random.index(3) == 0 {
            let wrong = self.simulation.block_on(async move { engine.check_integrity(3).await }).expect("ends");
            assert_eq!(wrong.expect("reads succeed"), Vec::<String>::new());
        }
        Some((bank, sequence))
    }
}

/// Makes a bank, instead of what a crash may have left of an attempt.
async fn make(engine: &Engine, random: &mut SeededRandom) -> Result<(Bank, Arc<Sequence>), EngineError> {
    for id in (1..100).map(ContainerId) {
        // Hidden containers go with those that they belong to.
        match engine.container(id).map(|_| engine.drop_container(id)) {
            None | Some(Ok(()) | Err(EngineError::NoSuchContainer(_))) => {}
            Some(Err(error)) => return Err(error),
        }
    }
    for id in (1..100).map(SequenceId) {
        if engine.sequence(id).is_some() {
            engine.drop_sequence(id)?;
        }
    }
    let sequence = engine.create_sequence(&sequence_spec())?;
    Ok((Bank::create(engine, random).await?, sequence))
}

/// The power goes, and with it the machine, or only the process ends: what was not synced can still be read then, and
/// is lost another time. What the process had is given back.
fn end<T>(life: Life, rest: T, env: &SimulatedEnv, kill: bool) {
    let memory = Arc::clone(life.simulation.engine().memory());
    life.simulation.engine().shutdown();
    drop(rest);
    drop(life);
    if kill {
        env.kill_process();
    } else {
        env.lose_power();
    }
    assert_eq!(memory.used(), 0, "bytes that nobody gave back: {:?}", memory.by_consumer());
}

fn files_of_log(env: &SimulatedEnv) -> usize {
    env.files().list(format!("{PATH}/log").as_ref()).map_or(0, |names| names.len())
}

/// Runs transactions one after the other.
struct Client {
    engine: Engine,
    bank: Bank,
    sequence: Arc<Sequence>,
    known: Known,
    number: i64,
    random: SeededRandom,
    left: u64,
}

impl Client {
    async fn run(mut self) -> (u64, u64) {
        let (mut failures, mut full) = (0, 0);
        for _ in 0..self.left {
            let txn = self.known.lock().expect("not poisoned").begin(self.number);
            let known = Arc::clone(&self.known);
            let committing = move || known.lock().expect("not poisoned").committing(txn);
            let ended =
                transact(&self.engine, self.bank, &self.sequence, txn, self.number, &mut self.random, committing).await;
            let mut known = self.known.lock().expect("not poisoned");
            match ended {
                Ok(End::Committed { timestamp, durability }) => {
                    known.committed(txn, timestamp, durability == Durability::Synchronous);
                }
                Ok(End::RolledBack) => known.rolled_back(txn),
                Err(EngineError::Log(LogError::Failed { .. })) => {
                    // It may be there or not: the books know it as one that commits, or has not come so far.
                    failures += 1;
                    return (failures, full);
                }
                Err(EngineError::Log(LogError::Full { .. })) => {
                    full += 1;
                    known.rolled_back(txn);
                    return (failures, full);
                }
                Err(error) if error.is_retryable() || matches!(error, EngineError::LockTimeout) => {
                    known.rolled_back(txn);
                }
                Err(EngineError::Sequence(_)) => {
                    known.rolled_back(txn);
                    return (failures, full);
                }
                Err(other) => panic!("a client did not expect: {other}"),
            }
        }
        (failures, full)
    }
}
