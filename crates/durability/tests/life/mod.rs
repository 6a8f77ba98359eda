//! A database between two crashes, on a machine whose power goes.

mod client;
mod watch;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_durability::{Database, DurabilityError, DurabilityOptions, open};
use eris_engine::{Engine, EngineError, EngineOptions, Sequence, SequenceId, Simulation};
use eris_platform::simulated::FileFault;
use eris_platform::{Env, Files, SeededRandom, SimulatedEnv};
use eris_storage::ContainerId;

use crate::bank::{Bank, patiently, sequence_spec};
use crate::books::{Books, Told};
use crate::plots::{self, Builders, Ground, Plots};
use crate::reached::Reached;
use crate::scribes::{self, Scribe, Scribes};
use client::Client;

pub use watch::Watch;

/// Crashes of each seed at least, and lives until all transactions were begun at most.
const LIVES_MIN: u64 = 3;
const LIVES_MAX: u64 = 1_000;
/// Steps behind the last transaction of a life.
const STEPS_ALONE: u64 = 500;
/// So many transactions for each step of a builder.
const TRANSACTIONS_PER_STEP: u64 = 4;
const PATH: &str = "/db";

/// What is known of a database; outlives the machine.
#[derive(Clone, Default)]
struct Known {
    /// What was made, once it was durable.
    made: Option<Made>,
    books: Arc<Mutex<Books>>,
    plots: Arc<Mutex<Plots>>,
    scribes: Arc<Mutex<Scribes>>,
}

/// What is there from the beginning to the end.
#[derive(Clone, Copy)]
struct Made {
    bank: Bank,
    sequence: SequenceId,
    lists: ContainerId,
    names: ContainerId,
}

impl Made {
    /// All containers of it.
    fn containers(&self) -> BTreeSet<ContainerId> {
        let Bank { accounts, movers, tokens, children, parents, entries, journal } = self.bank;
        let bank = [accounts, movers, tokens, children, parents, entries, journal];
        bank.into_iter().chain([self.lists, self.names]).collect()
    }

    fn sequence(&self, engine: &Engine) -> Arc<Sequence> {
        engine.sequence(self.sequence).expect("the sequence was durable")
    }
}

/// A machine between two crashes.
pub struct Life {
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
        replay_key_bits: [0, 2, 12][random.index(3)],
        ..DurabilityOptions::default()
    };
    (engine, durability)
}

impl Life {
    pub fn run(seed: u64, transactions: u64, reached: &mut Reached) {
        let env = SimulatedEnv::new(seed);
        let mut random = SeededRandom::new(seed ^ 0xC4A5);
        let mut known = Known::default();
        let each = transactions / (3 + random.below(4)) + 1;
        let mut lives = 0;
        loop {
            lives += 1;
            reached.lives += 1;
            let begun = known.books.lock().expect("not poisoned").begun();
            let last = lives > LIVES_MIN && begun >= transactions;
            Self::live(&env, &mut random, &mut known, each, last, reached);
            if last {
                break;
            }
            assert!(lives < LIVES_MAX, "{begun} of {transactions} transactions in {lives} lives");
        }
        let scribes = known.scribes.lock().expect("not poisoned");
        scribes.check();
        reached.scribes.add(scribes.counts);
        reached.plots.add(known.plots.lock().expect("not poisoned").counts);
        let books = known.books.lock().expect("not poisoned");
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
        known: &mut Known,
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
        let Some(made) = prepared else {
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
        let done = Arc::new(Mutex::new(Done::default()));
        let watch = Watch::default();
        let clients = start(&engine, made, known, random, transactions, &done, &watch);
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
            taken_alone += u64::from(done.lock().expect("not poisoned").clients == clients);
            taken > steps || taken_alone > STEPS_ALONE || power.is_powerless()
        });
        // Nobody has work: all clients are through.
        drop(ended);
        watch.check();
        {
            let done = done.lock().expect("not poisoned");
            reached.log_failures += done.failures;
            reached.log_full += done.full;
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
            end(life, (database, engine), env, false);
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
        end(life, (database, engine), env, kill);
    }

    fn open(&mut self, options: &DurabilityOptions) -> Result<Database, DurabilityError> {
        let engine = self.simulation.engine().clone();
        let options = options.clone();
        self.simulation
            .block_on(async move { open(&engine, PATH.as_ref(), &options, |_| {}).await })
            .expect("opening comes to its end")
    }

    /// Finds everything as it must be, or makes it; none if the power went.
    fn prepare(&mut self, random: &mut SeededRandom, known: &mut Known) -> Option<Made> {
        let engine = self.simulation.engine().clone();
        let Some(made) = known.made else {
            let mut random = SeededRandom::new(random.next_u64());
            let making = engine.clone();
            let made = self.simulation.block_on(async move { make(&making, &mut random).await }).expect("ends");
            let made = made.ok()?;
            known.made = Some(made);
            return Some(made);
        };
        let (check, known) = (engine.clone(), known.clone());
        self.simulation
            .block_on(async move { look(&check, made, &known).await })
            .expect("checking comes to its end")
            .expect("reads succeed");
        self.simulation.run_until_idle().expect("comes to rest");
        // It takes as long as the recovery.
        if random.index(3) == 0 {
            let wrong = self.simulation.block_on(async move { engine.check_integrity(3).await }).expect("ends");
            assert_eq!(wrong.expect("reads succeed"), Vec::<String>::new());
        }
        Some(made)
    }
}

/// Whether everything is there that must be, and nothing else.
async fn look(engine: &Engine, made: Made, known: &Known) -> Result<(), EngineError> {
    let bank = made.bank;
    let tables = bank.tables(engine).await?;
    known.books.lock().expect("not poisoned").recovered(&tables);
    Books::check(&tables);
    let lists = scribes::all_lists(engine, made.lists).await?;
    known.scribes.lock().expect("not poisoned").recovered(lists, &tables.transactions());
    let containers = made.containers();
    let kept = [plots::HOME, plots::CODES, plots::TICKETS];
    let ground = Ground { names: made.names, containers: &containers, kept };
    plots::check(engine, ground, &tables, &known.plots).await?;
    let guests = known.plots.lock().expect("not poisoned").has_guests();
    plots::enforce(engine, bank, &tables, guests).await
}

/// Makes all of it, instead of what a crash may have left of an attempt.
async fn make(engine: &Engine, random: &mut SeededRandom) -> Result<Made, EngineError> {
    for id in (1..100).map(ContainerId) {
        for key in engine.foreign_keys(id).unwrap_or_default() {
            patiently(engine, || engine.drop_foreign_key(key.child.container, &key.name)).await?;
        }
        // Hidden containers go with those that they belong to.
        if engine.container(id).is_some() {
            match patiently(engine, || engine.drop_container(id)).await {
                Ok(()) | Err(EngineError::NoSuchContainer(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    for id in (1..100).map(SequenceId) {
        if engine.sequence(id).is_some() {
            patiently(engine, || Ok(engine.drop_sequence(id)?)).await?;
        }
    }
    let sequence = patiently(engine, || engine.create_sequence(&sequence_spec())).await?.id();
    let names = patiently(engine, || plots::make_names(engine)).await?;
    let lists = scribes::make_lists(engine).await?;
    // Its first commit is the last one: all of it is durable.
    let bank = Bank::create(engine, random).await?;
    Ok(Made { bank, sequence, lists, names })
}

/// What the clients of a life came to.
#[derive(Default)]
struct Done {
    clients: u64,
    /// Clients that met a log that failed, and one without room.
    failures: u64,
    full: u64,
}

impl Done {
    fn add(&mut self, told: Result<(), EngineError>) {
        self.clients += 1;
        match told.map_err(|error| Told::by(&error)) {
            Err(Told::Nothing) => self.failures += 1,
            Err(Told::Full) => self.full += 1,
            Ok(()) | Err(Told::NoValue | Told::RolledBack) => {}
        }
    }
}

/// Starts everybody who works; gives the number of clients.
fn start(
    engine: &Engine,
    made: Made,
    known: &Known,
    random: &mut SeededRandom,
    transactions: u64,
    done: &Arc<Mutex<Done>>,
    watch: &Watch,
) -> u64 {
    let clients = 1 + random.below(6);
    for client in 0..clients {
        let work = Client {
            engine: engine.clone(),
            bank: made.bank,
            sequence: made.sequence(engine),
            known: Arc::clone(&known.books),
            number: client as i64,
            random: SeededRandom::new(random.next_u64()),
            left: transactions / clients + 1,
        };
        let done = Arc::clone(done);
        engine.spawn(watch.clone().over(async move {
            let told = work.run().await;
            done.lock().expect("not poisoned").add(told);
        }));
    }
    let scribes = 2 + random.below(3);
    for scribe in clients..clients + scribes {
        let mut work = Scribe {
            engine: engine.clone(),
            bank: made.bank,
            lists: made.lists,
            sequence: made.sequence(engine),
            books: Arc::clone(&known.books),
            scribes: Arc::clone(&known.scribes),
            client: scribe as i64,
            random: SeededRandom::new(random.next_u64()),
        };
        let (done, left) = (Arc::clone(done), transactions / 2 / scribes + 1);
        engine.spawn(watch.clone().over(async move {
            let mut told = Ok(());
            for _ in 0..left {
                if told.is_ok() {
                    told = work.transact().await;
                }
            }
            drop(work);
            done.lock().expect("not poisoned").add(told);
        }));
    }
    let (engine, plots) = (engine.clone(), Arc::clone(&known.plots));
    Builders { engine, plots, bank: made.bank, names: made.names, watch: watch.clone() }
        .start(random, transactions / TRANSACTIONS_PER_STEP + 1);
    clients + scribes
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
