//! One run: an engine with its tables, their clients, and everything that goes on beside them.

mod epilogue;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::{
    AdmissionOptions, ClassLimit, Container, ContainerSpec, Engine, EngineOptions, FaultOptions, GlobalIndexSpec,
    Partitioning, Read, Simulation,
};
use eris_platform::{NodeId, SeededRandom};
use eris_storage::{Batch, ContainerId, Layout, SegmentLayouts};

use crate::accounts::{self, everything, pairs};
use crate::chaos::{Chaos, move_schemas, panic_in_tasks, silence_injected_panics, vanish_containers};
use crate::coverage::Coverage;
use crate::elle::{Ending, Level, ListHistory, ListTransaction, Operation};
use crate::history::{History, run_client};
use crate::kin::{Kin, run_kin_client, run_kin_duet};
use crate::lists::{self, Lists, lists_of, run_list_client};
use crate::mover::{Mover, move_about};
use crate::rings::{self, Rings, TRANSACTIONS_OF_A_ROUND, run_duet, run_ring_client};
use crate::slow_log::SlowLog;
use crate::truncations::{Truncations, run_truncation_client};

/// The share of the transactions after which faults stop, in percent.
const FAULTY_PERCENT: u64 = 80;
/// Steps within which all that is left must end, and nobody have work any more, once faults have stopped: many times
/// what the longest of some thousand runs took, for each transaction.
const CALM_STEPS_PER_TRANSACTION: u64 = 20_000;
const CALM_STEPS_MIN: u64 = 2_000_000;
/// Bytes of the smallest buffer that takes any message: a header, and a command or two.
const ONE_MESSAGE_BYTES: usize = 96;

fn options(random: &mut SeededRandom) -> EngineOptions {
    let nodes = [1, 2, 4][random.index(3)];
    let limit = |running_max| ClassLimit { running_max, waiting_max: 2, wait_max: Duration::from_millis(20) };
    let point = random.chance(0.3).then(|| limit(1 + random.index(3)));
    EngineOptions {
        workers: nodes * (1 + random.index(2)),
        nodes,
        memory_limit_bytes: 1 << 30,
        quantum: Duration::from_micros([0, 0, 200][random.index(3)]),
        in_place: random.chance(0.7),
        updates_in_place: random.chance(0.8),
        direct_append: random.chance(0.5),
        incoming_buffer_bytes: [ONE_MESSAGE_BYTES, 512, 1 << 16][random.index(3)],
        worker_buffer_bytes: [64, 4_096][random.index(2)],
        split_rows: [8, 30, 1_000_000][random.index(3)],
        split_bytes: 1 << 30,
        parallel_rows: [16, 1_000_000][random.index(2)],
        maintenance_rows: [4, 64, 2_048][random.index(3)],
        result_batches_max: [1, 64][random.index(2)],
        rows_on_the_way_max: [1, 1 << 20][random.index(2)],
        tracked_entries_max: [1, 4_096, 4_096][random.index(3)],
        admission: AdmissionOptions { point, scan: None, load: None },
        // So few bytes that snapshots are revoked again and again, or none ever.
        old_version_limit_bytes: Some([0, 0, 0, 4_000][random.index(4)]),
        old_snapshot_grace: Duration::ZERO,
        ..EngineOptions::default()
    }
}

/// What goes wrong with the machine. Some runs have nothing of a kind, few have nothing at all.
fn faults(random: &mut SeededRandom) -> FaultOptions {
    FaultOptions {
        stall: [0.0, 0.000_5, 0.005][random.index(3)],
        stall_max: Duration::from_millis([1, 10, 120][random.index(3)]),
        slow: [0.0, 0.3][random.index(2)],
        slow_one_in: [3, 20][random.index(2)],
        latched: [0.0, 0.001, 0.02][random.index(3)],
        latched_steps_max: [3, 40][random.index(2)],
        memory: [0.0, 0.000_5, 0.01][random.index(3)],
    }
}

/// Other layouts for all partitions or for one, or those of the schema again, while everybody works.
async fn change_layouts(
    engine: Engine,
    container: ContainerId,
    mut random: SeededRandom,
    over: Arc<AtomicBool>,
    chaos: Arc<Chaos>,
    layouts: fn(&mut SeededRandom) -> SegmentLayouts,
) {
    while !over.load(Ordering::Relaxed) {
        engine.sleep_until(engine.env().now() + Duration::from_micros(random.below(3_000))).await;
        let list = engine.partition_ids(container);
        let partition = random.chance(0.5).then(|| list[random.index(list.len())]);
        let layouts = random.chance(0.85).then(|| layouts(&mut random));
        if let Err(error) = engine.set_layout(container, partition, layouts).await {
            chaos.expect(&error);
        }
    }
}

/// Both tables. The lists are alone, or grouped with the accounts.
fn create_tables(engine: &Engine, random: &mut SeededRandom) -> Result<(ContainerId, ContainerId, bool), String> {
    let layout =
        |random: &mut SeededRandom| [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)];
    let segment_rows = |random: &mut SeededRandom| [4, 16, 64][random.index(3)];
    let partitioning = |random: &mut SeededRandom| match random.below(3) {
        0 => Partitioning::Hash { attributes: Box::new([accounts::KEY]), partitions: 1 + random.index(5) },
        _ => Partitioning::Range(Box::new([accounts::KEY])),
    };
    let (id, list_id) = (engine.next_container_id(), engine.next_container_id());
    let schema = Arc::new(accounts::schema(id, layout(random), segment_rows(random)));
    let list_schema = Arc::new(lists::schema(list_id, layout(random), segment_rows(random)));
    let spec = ContainerSpec { schema, partitioning: partitioning(random) };
    let table: Arc<Container> = engine.create_container(spec).map_err(|error| error.to_string())?;
    let grouped = random.chance(0.3);
    if grouped {
        engine.create_container_alike(list_schema, &[lists::KEY], &table).map_err(|error| error.to_string())?;
    } else {
        let spec = ContainerSpec { schema: list_schema, partitioning: partitioning(random) };
        engine.create_container(spec).map_err(|error| error.to_string())?;
    }
    let attributes = Box::new([lists::CODE]);
    let partitions = 1 + random.index(3);
    let spec = GlobalIndexSpec { container: list_id, name: "lists_code_global".into(), attributes, partitions };
    engine.create_global_index(&spec).map_err(|error| error.to_string())?;
    Ok((id, list_id, grouped))
}

/// Decides commits some time after their records came, in their order.
async fn decide_commits(engine: Engine, log: SlowLog, mut random: SeededRandom, over: Arc<AtomicBool>) {
    let pause = [20, 200, 2_000][random.index(3)];
    while !over.load(Ordering::Relaxed) {
        engine.sleep_until(engine.env().now() + Duration::from_micros(random.below(pause))).await;
        for _ in 0..random.index(4) {
            log.decide(Ok(()));
        }
    }
    // What comes now waits for nobody.
    log.hurry();
}

/// The rings, by ranges or by hash; filled before anything goes wrong.
fn create_rings(simulation: &mut Simulation, random: &mut SeededRandom, chaos: &Arc<Chaos>) -> Result<Rings, String> {
    let engine = simulation.engine().clone();
    let container = engine.next_container_id();
    let layout = [Layout::Row, Layout::Column, Layout::Mixed, Layout::Default][random.index(4)];
    let schema = rings::schema(container, layout, [4, 16, 64][random.index(3)], random.chance(0.5));
    let partitioning = match random.below(3) {
        0 => Partitioning::Hash { attributes: Box::new([rings::KEY]), partitions: 1 + random.index(5) },
        _ => Partitioning::Range(Box::new([rings::KEY])),
    };
    engine
        .create_container(ContainerSpec { schema: Arc::new(schema), partitioning })
        .map_err(|error| error.to_string())?;
    let (attributes, partitions) = (Box::new([rings::CODE]), 1 + random.index(3));
    let spec = GlobalIndexSpec { container, name: "rings_code_global".into(), attributes, partitions };
    engine.create_global_index(&spec).map_err(|error| error.to_string())?;
    let size = 2 + random.index(5) as i64;
    let (count, history) = (1 + random.below(4) as i64, Arc::new(Mutex::new(rings::RingHistory::new(size))));
    let rings = Rings { engine, container, count, size, chaos: Arc::clone(chaos), history };
    let filled = rings.clone();
    let filled = simulation.block_on(async move { rings::fill(&filled).await });
    filled.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    Ok(rings)
}

/// One run of a seed.
struct Run {
    simulation: Simulation,
    engine: Engine,
    accounts: ContainerId,
    grouped: bool,
    lists: Lists,
    rings: Rings,
    kin: Kin,
    truncations: Truncations,
    /// What a task that is no client found wrong.
    failed: Arc<Mutex<Option<String>>>,
    history: Arc<Mutex<History>>,
    chaos: Arc<Chaos>,
    clients: u64,
    /// Clients that have ended, whether well or not.
    ended: Arc<AtomicU64>,
    /// Clients that came to their end.
    succeeded: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

/// The container of the global index of a table that has one.
fn hidden(container: ContainerId) -> ContainerId {
    ContainerId(container.0 + 1)
}

/// Notes the end of a client, also of one that panics.
struct Ended(Arc<AtomicU64>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a seed and checks it; says what is wrong.
pub fn run_seed(seed: u64, transactions: u64, coverage: &mut Coverage) -> Result<(), String> {
    silence_injected_panics();
    let mut random = SeededRandom::new(seed);
    let mut run = Run::begin(seed, &mut random)?;
    run.start_clients(transactions, seed, &mut random);
    run.start_troubles(seed, &mut random);
    run.until_done(transactions, &mut random, coverage)?;
    run.check_histories(coverage)?;
    run.check_rings()?;
    run.check_families()?;
    run.check_truncations()?;
    run.check_quiet_states(&mut random)?;
    run.check_rest(coverage)?;
    let memory = Arc::clone(run.engine.memory());
    drop(run);
    if memory.used() != 0 {
        return Err(format!("{} bytes are still reserved: {:?}", memory.used(), memory.by_consumer()));
    }
    Ok(())
}

impl Run {
    fn begin(seed: u64, random: &mut SeededRandom) -> Result<Self, String> {
        let mut simulation = Simulation::new(seed, options(random)).map_err(|error| error.to_string())?;
        let engine = simulation.engine().clone();
        let (accounts, container, grouped) = create_tables(&engine, random)?;
        let chaos = Arc::new(Chaos::default());
        let over = Arc::<AtomicBool>::default();
        let rings = create_rings(&mut simulation, random, &chaos)?;
        let kin = Kin::create(&mut simulation, random, &chaos)?;
        let truncations = Truncations::create(&engine, random, &chaos)?;
        if random.chance(0.4) {
            let log = SlowLog::default();
            log.attach(&engine);
            engine.spawn(decide_commits(engine.clone(), log, random.fork(), Arc::clone(&over)));
        }
        let options = if random.chance(0.9) { faults(random) } else { FaultOptions::default() };
        simulation.set_faults(options);
        let keys = [4, 12, 40][random.index(3)];
        let lists =
            Lists { engine: engine.clone(), container, keys, chaos: Arc::clone(&chaos), history: Arc::default() };
        let (failed, history, ended, succeeded) = Default::default();
        let clients = 0;
        Ok(Self {
            simulation,
            engine,
            accounts,
            grouped,
            lists,
            rings,
            kin,
            truncations,
            failed,
            history,
            chaos,
            clients,
            ended,
            succeeded,
            over,
        })
    }

    fn start_client(&mut self, client: impl Future<Output = ()> + Send + 'static) {
        self.clients += 1;
        let (ended, succeeded) = (Arc::clone(&self.ended), Arc::clone(&self.succeeded));
        self.engine.spawn(async move {
            let _ended = Ended(ended);
            client.await;
            succeeded.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn start_clients(&mut self, transactions: u64, seed: u64, random: &mut SeededRandom) {
        let keys = [8, 40, 200][random.index(3)];
        let (account_clients, list_clients) = (1 + random.below(4), 1 + random.below(5));
        let (ring_clients, duets) = (1 + random.below(3), random.below(3));
        // Families are not in every run: each kind of client gets its time.
        let (kin_clients, kin_duets) = [(0, 0), (2, 1), (1 + random.below(3), random.below(2))][random.index(3)];
        let truncation_clients = [0, 2, 1 + random.below(5)][random.index(3)];
        let others = ring_clients + duets + kin_clients + kin_duets + truncation_clients;
        let share = transactions / (account_clients + list_clients + others) + 1;
        for number in 0..account_clients {
            let (engine, history, chaos) = (self.engine.clone(), Arc::clone(&self.history), Arc::clone(&self.chaos));
            let seed = seed.wrapping_mul(31) + number;
            self.start_client(run_client(engine, self.accounts, keys, share, seed, history, chaos));
        }
        for number in 0..list_clients {
            self.start_client(run_list_client(self.lists.clone(), share, seed.wrapping_mul(37) + number));
        }
        for number in 0..ring_clients {
            self.start_client(run_ring_client(self.rings.clone(), share, seed.wrapping_mul(41) + number));
        }
        for number in 0..kin_clients {
            self.start_client(run_kin_client(self.kin.clone(), share, seed.wrapping_mul(47) + number));
        }
        for number in 0..kin_duets {
            let seed = seed.wrapping_mul(53) + number;
            self.start_client(run_kin_duet(self.kin.clone(), number as i64, share / 3 + 1, seed));
        }
        for _ in 0..truncation_clients {
            self.start_client(run_truncation_client(self.truncations.clone(), share, random.fork()));
        }
        let rounds = share / TRANSACTIONS_OF_A_ROUND + 1;
        for number in 0..duets {
            let (rings, failed) = (self.rings.clone(), Arc::clone(&self.failed));
            let seed = seed.wrapping_mul(43) + number;
            self.start_client(run_duet(rings, number as i64, rounds, seed, failed));
        }
    }

    fn start_troubles(&mut self, seed: u64, random: &mut SeededRandom) {
        let Self { engine, accounts, lists, rings, kin, chaos, over, .. } = self;
        let fixed = [*accounts, lists.container, rings.container, hidden(rings.container)];
        for container in fixed.into_iter().chain(kin.family.containers()) {
            if random.chance(0.5) {
                let random = SeededRandom::new(seed + 77 + u64::from(container.0));
                // Layouts name the attributes of a table.
                let layouts = if container == *accounts {
                    Some(accounts::layouts as fn(&mut SeededRandom) -> SegmentLayouts)
                } else {
                    (container == rings.container).then_some(rings::layouts as _)
                };
                if let Some(layouts) = layouts {
                    let (over, chaos) = (Arc::clone(over), Arc::clone(chaos));
                    engine.spawn(change_layouts(engine.clone(), container, random, over, chaos, layouts));
                }
            }
            if random.chance(0.7) {
                let pause = Duration::from_micros([20, 200, 2_000][random.index(3)]);
                let seed = seed + u64::from(container.0);
                engine.spawn(move_about(Mover {
                    engine: engine.clone(),
                    container,
                    seed,
                    pause,
                    over: Arc::clone(over),
                }));
            }
        }
        if random.chance(0.3) {
            engine.spawn(panic_in_tasks(lists.clone(), random.fork()));
        }
        if random.chance(0.3) {
            engine.spawn(move_schemas(lists.clone(), random.fork()));
        }
        if random.chance(0.2) {
            engine.spawn(vanish_containers(engine.clone(), Arc::clone(chaos), random.fork()));
        }
    }

    /// Safety, then liveness: until the clients are done and nobody has work.
    fn until_done(
        &mut self,
        transactions: u64,
        random: &mut SeededRandom,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        if self.engine.node_count() > 1 && random.chance(0.25) {
            self.help_node(transactions / 20, random)?;
            coverage.add("node helped", 1);
        }
        if self.engine.node_count() > 1 && random.chance(0.25) {
            self.run_until_finished(transactions * (5 + random.below(FAULTY_PERCENT - 5)) / 100)?;
            self.give_node_up(random);
            coverage.add("node given up", 1);
        }
        self.run_until_finished(transactions * FAULTY_PERCENT / 100)?;
        self.simulation.stop_faults();
        self.chaos.calm_down();
        self.simulation.limit_steps(CALM_STEPS_MIN + transactions * CALM_STEPS_PER_TRANSACTION);
        self.run_until_finished(u64::MAX)?;
        self.over.store(true, Ordering::Relaxed);
        self.simulation.run_until_idle().map_err(|error| error.to_string())?;
        if let Some(wrong) = self.failed.lock().expect("one thread").take() {
            return Err(wrong);
        }
        if self.succeeded.load(Ordering::Relaxed) == self.clients {
            Ok(())
        } else {
            Err("a client panicked, see above".to_owned())
        }
    }

    /// Until so many transactions are through, or the clients are.
    fn run_until_finished(&mut self, transactions: u64) -> Result<(), String> {
        let (chaos, ended, clients) = (Arc::clone(&self.chaos), Arc::clone(&self.ended), self.clients);
        let done = || chaos.transactions_finished() >= transactions || ended.load(Ordering::Relaxed) == clients;
        self.simulation.run_until(done).map_err(|error| error.to_string())
    }

    /// For so many transactions one node also does the work of another one when it has none. It cannot stand in for
    /// one that stands still: who spins for something that happens there never has nothing to do.
    fn help_node(&mut self, transactions: u64, random: &mut SeededRandom) -> Result<(), String> {
        let helped = random.index(self.engine.node_count());
        let helper = (helped + 1) % self.engine.node_count();
        let (helped, helper) = (NodeId(helped as u16), NodeId(helper as u16));
        self.engine.set_help(helper, helped).expect("both are there");
        self.run_until_finished(transactions)?;
        self.engine.end_help(helped).expect("it is there");
        Ok(())
    }

    /// A node dies: its workers stop, and what it had moves to the others.
    fn give_node_up(&mut self, random: &mut SeededRandom) {
        let node = NodeId(random.index(self.engine.node_count()) as u16);
        if random.chance(0.5) {
            self.simulation.stop_node(node);
        }
        self.engine.evacuate_node(node).expect("it is there, and not the last one");
    }

    fn read(&mut self, read: Read) -> Result<Vec<Batch>, String> {
        let engine = self.engine.clone();
        let results = self.simulation.block_on(async move {
            let mut transaction = engine.begin();
            transaction.scan(read, None)?.collect().await
        });
        results.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    fn check_histories(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        let expected = self.history.lock().expect("one thread").check()?;
        let mut found = pairs(&self.read(everything(self.accounts))?);
        found.sort_unstable();
        if found != expected {
            return Err(format!("at the end the accounts are {found:?}, the history says {expected:?}"));
        }
        let (committed, rolled_back, in_part) = self.history.lock().expect("one thread").counts();
        coverage.add("committed", committed);
        coverage.add("rolled back", rolled_back);
        coverage.add("committed in part", in_part);

        let begun = self.chaos.tick();
        let found = lists_of(&self.read(lists::every_list(self.lists.container))?);
        let mut list: ListHistory = std::mem::take(&mut *self.lists.history.lock().expect("one thread"));
        let rest = (0..self.lists.keys as i64).filter(|key| found.iter().all(|(known, _)| known != key));
        let missing: Vec<Operation> = rest.map(|key| Operation::Read { key, list: Vec::new() }).collect();
        let there = found.into_iter().map(|(key, list)| Operation::Read { key, list });
        list.transactions.push(ListTransaction {
            level: Level::Snapshot,
            operations: there.chain(missing).collect(),
            ending: Ending::Committed,
            begun,
            ended: Some(self.chaos.tick()),
        });
        list.check()
    }

    /// Indexes agree with rows, and nothing is left of anybody.
    fn check_rest(&mut self, coverage: &mut Coverage) -> Result<(), String> {
        self.check_codes()?;
        self.simulation.run_until_idle().map_err(|error| error.to_string())?;
        self.simulation.check_partitions()?;
        self.check_group(coverage)?;
        coverage.add_run(&self.simulation);
        for (what, count) in self.chaos.counts() {
            coverage.add(what, count);
        }
        if self.engine.options().incoming_buffer_bytes == ONE_MESSAGE_BYTES {
            coverage.add("one-message buffers", 1);
        }
        let statistics = self.engine.statistics();
        let remains = [
            (statistics.forwarders, "forwarders stay though nobody pins a table"),
            (statistics.snapshots, "snapshots are still published"),
            (statistics.waiting_transactions, "transactions wait for others"),
            (statistics.known_transactions, "transactions are still known"),
            (statistics.tracked_transactions, "transactions are still tracked"),
        ];
        if let Some((count, what)) = remains.iter().find(|(count, _)| *count > 0) {
            return Err(format!("{count} {what}"));
        }
        if let Some(left) = self.engine.table_locks().first() {
            return Err(format!("a table lock is still held: {left:?}"));
        }
        // The foreign key goes with the children.
        let family = self.kin.family.containers().into_iter().filter(|id| Some(*id) != self.kin.family.hidden);
        let truncated = self.truncations.containers().into_iter().map(|(_, container)| container);
        let fixed = [self.accounts, self.lists.container, self.rings.container];
        for container in fixed.into_iter().chain(family).chain(truncated) {
            self.engine.drop_container(container).map_err(|error| error.to_string())?;
        }
        self.simulation.run_until_idle().map_err(|error| error.to_string())
    }

    /// The global index has an entry for each list, and no others.
    fn check_codes(&mut self) -> Result<(), String> {
        let mut codes = pairs(&self.read(lists::codes(self.lists.container))?);
        codes.sort_unstable_by_key(|(key, code)| (*code, *key));
        if let Some(pair) = codes.windows(2).find(|pair| pair[0].1 == pair[1].1) {
            return Err(format!("two lists have one code: {pair:?}"));
        }
        // Entries are (code, key).
        let mut entries = pairs(&self.read(everything(hidden(self.lists.container)))?);
        entries.sort_unstable();
        let expected: Vec<(i64, i64)> = codes.iter().map(|(key, code)| (*code, *key)).collect();
        if entries == expected {
            Ok(())
        } else {
            Err(format!("the global index has {entries:?}, the lists have {expected:?}"))
        }
    }

    /// Members of a group have their partitions at the same places.
    fn check_group(&self, coverage: &mut Coverage) -> Result<(), String> {
        if !self.grouped {
            return Ok(());
        }
        let partitions = self.engine.partitions();
        let homes = |container: ContainerId| -> Vec<NodeId> {
            partitions.iter().filter(|known| known.container == container).map(|known| known.home).collect()
        };
        let (one, other) = (homes(self.accounts), homes(self.lists.container));
        coverage.add("coordinated group", u64::from(one.len() > 1));
        if one == other { Ok(()) } else { Err(format!("a group lies apart: {one:?} and {other:?}")) }
    }
}
