//! Budgets of a worker's step: whatever is endless, everybody else goes on. And how many partitions a table gets, so
//! that there is something to do for all workers.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use eris_engine::{
    Coalescing, ContainerSpec, Engine, EngineError, EngineOptions, Event, MicroOperator, OperatorState, Output,
    Partitioning, Simulation, yield_now, yield_to_tasks,
};
use eris_platform::{SimulatedEnv, test_load};
use eris_storage::{Batch, ContainerId, DataType, Gateway, Layout, PackedRows, Value};

use accounts::{KEY, by_key, everything, integers, lookup, row, schema};

const QUANTUM: Duration = Duration::from_micros(200);
/// Of virtual time for each batch that is read: four of them are a quantum.
const BATCH_TIME: Duration = Duration::from_micros(50);
/// More tasks than a worker polls in one round.
const SPINNERS: u64 = 600;
/// Tasks that compute, a piece after the other.
const COMPUTERS: u64 = 3;
/// So many that point accesses alone fill every quantum of partitions.
const READERS: i64 = 64;
/// Within so many steps each kind of work goes on.
const WINDOW: u64 = 128;
const WINDOWS: u64 = 3;
/// What a worker polls of its tasks in a step: quanta, and tasks if they take no time (`src/options.rs`).
const TASK_QUANTA: u32 = 4;
const TASKS_MAX: u64 = 2 * 512;
/// Beside tasks that are ready one of so many steps does long work.
const LONG_WORK_SHARE: u64 = 4;
/// Busy steps between two calls of maintenance.
const MAINTENANCE_SHARE: u64 = 16;

/// What was done so far.
#[derive(Default)]
struct Progress {
    /// Polls of tasks that are ready all the time, and those since the last step began.
    polls: AtomicU64,
    polls_of_step: AtomicU64,
    /// The same of pieces of long work.
    pieces: AtomicU64,
    pieces_of_step: AtomicU64,
    /// Batches of the scan, and all batches since the last step began.
    scanned: AtomicU64,
    batches_of_step: AtomicU64,
    points: AtomicU64,
    written: AtomicU64,
    timers: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Takes time for each batch.
struct TakeTime {
    env: SimulatedEnv,
    progress: Arc<Progress>,
    scan: bool,
}

struct TakingTime {
    env: SimulatedEnv,
    progress: Arc<Progress>,
    scan: bool,
}

impl MicroOperator for TakeTime {
    fn open(&self) -> Box<dyn OperatorState> {
        let Self { env, progress, scan } = self;
        Box::new(TakingTime { env: env.clone(), progress: Arc::clone(progress), scan: *scan })
    }
}

impl OperatorState for TakingTime {
    fn batch(&mut self, _gateway: Gateway, _output: &mut Output<'_>) -> Result<(), EngineError> {
        self.env.advance(BATCH_TIME);
        add(&self.progress.batches_of_step);
        if self.scan {
            add(&self.progress.scanned);
        }
        Ok(())
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}

/// A table of one partition, with rows.
fn filled(simulation: &mut Simulation, rows: i64) -> ContainerId {
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let id = schema.container;
    let partitioning = Partitioning::Range(Box::new([KEY]));
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let fill = async move {
        let mut transaction = engine.begin();
        for key in 0..rows {
            transaction.insert(id, row(key, key, None)).await.expect("inserted");
        }
        transaction.commit().await.expect("committed");
    };
    simulation.block_on(fill).expect("runs");
    simulation.run_until_idle().expect("runs");
    id
}

fn start_work(simulation: &mut Simulation, poll_time: Duration) -> Arc<Progress> {
    let engine = simulation.engine().clone();
    let (scanned, read, written) = (filled(simulation, 400), filled(simulation, READERS), filled(simulation, 4));
    let progress = Arc::new(Progress::default());
    for _ in 0..SPINNERS {
        let (env, progress) = (simulation.env().clone(), Arc::clone(&progress));
        engine.spawn(async move {
            while !progress.is_over() {
                env.advance(poll_time);
                add(&progress.polls);
                add(&progress.polls_of_step);
                yield_now().await;
            }
        });
    }
    for _ in 0..COMPUTERS {
        let (env, progress) = (simulation.env().clone(), Arc::clone(&progress));
        engine.spawn(async move {
            while !progress.is_over() {
                env.advance(poll_time);
                add(&progress.pieces);
                add(&progress.pieces_of_step);
                yield_to_tasks().await;
            }
        });
    }
    let take_time = |scan| Arc::new(TakeTime { env: simulation.env().clone(), progress: Arc::clone(&progress), scan });
    let (client, operator, scan) = (engine.clone(), take_time(true), Arc::clone(&progress));
    engine.spawn(async move {
        while !scan.is_over() {
            let results = client.begin().scan(everything(scanned), Some(operator.clone())).expect("there");
            results.collect().await.expect("read");
        }
    });
    for key in 0..READERS {
        let (client, operator, points) = (engine.clone(), take_time(false), Arc::clone(&progress));
        engine.spawn(async move {
            while !points.is_over() {
                let results = client.begin().scan(by_key(read, key), Some(operator.clone())).expect("there");
                results.collect().await.expect("read");
                add(&points.points);
            }
        });
    }
    let (client, writes) = (engine.clone(), Arc::clone(&progress));
    engine.spawn(async move {
        let mut key = 4;
        while !writes.is_over() {
            let mut transaction = client.begin();
            transaction.insert(written, row(key, 0, None)).await.expect("inserted");
            transaction.commit().await.expect("committed");
            key += 1;
            add(&writes.written);
        }
    });
    let (client, timers) = (engine.clone(), Arc::clone(&progress));
    engine.spawn(async move {
        while !timers.is_over() {
            client.sleep_until(client.env().now() + QUANTUM).await;
            add(&timers.timers);
        }
    });
    progress
}

#[test]
fn everybody_goes_on_beside_tasks_that_are_ready_all_the_time() {
    for seed in 0..test_load(8) {
        for (poll_time, workers) in [(0, 1), (10, 1), (10, 2)] {
            let poll_time = Duration::from_micros(poll_time);
            let options = EngineOptions {
                workers,
                in_place: false,
                quantum: QUANTUM,
                parallel_rows: 1_000_000,
                // The scan is never stopped by its own task.
                result_batches_max: 1_000_000,
                ..EngineOptions::default()
            };
            let mut simulation = Simulation::new(seed, options).expect("starts");
            let progress = start_work(&mut simulation, poll_time);
            check_windows(&mut simulation, &progress, poll_time);
            progress.over.store(true, Ordering::Relaxed);
            simulation.run_until_idle().expect("all tasks end");
        }
    }
}

fn check_windows(simulation: &mut Simulation, progress: &Arc<Progress>, poll_time: Duration) {
    let engine = simulation.engine().clone();
    let counts = || {
        [
            ("polls", progress.polls.load(Ordering::Relaxed)),
            ("pieces", progress.pieces.load(Ordering::Relaxed)),
            ("scan", progress.scanned.load(Ordering::Relaxed)),
            ("points", progress.points.load(Ordering::Relaxed)),
            ("writes", progress.written.load(Ordering::Relaxed)),
            ("timers", progress.timers.load(Ordering::Relaxed)),
            ("maintenance", engine.statistics().event(Event::MaintenanceCalls)),
        ]
    };
    // One more than fits: the last one begins before the quanta are over.
    let polls_max = (TASK_QUANTA * QUANTUM).as_nanos().checked_div(poll_time.as_nanos());
    let polls_max = polls_max.map_or(TASKS_MAX, |polls| polls as u64 + 1);
    // The same for each of the partitions' quanta, and the scan may be before it.
    let batches_max = QUANTUM.as_nanos().div_ceil(BATCH_TIME.as_nanos()) as u64 + 1;
    for window in 0..=WINDOWS {
        let before = counts();
        let (mut steps, mut long_steps, mut scanned) = (0, 0, progress.scanned.load(Ordering::Relaxed));
        let passed = || {
            let polls = progress.polls_of_step.swap(0, Ordering::Relaxed);
            let pieces = progress.pieces_of_step.swap(0, Ordering::Relaxed);
            assert!(window == 0 || pieces <= 1, "{pieces} pieces of long work in a step");
            let batches = progress.batches_of_step.swap(0, Ordering::Relaxed);
            assert!(polls <= polls_max, "{polls} polls in a step, {polls_max} at most");
            assert!(batches <= batches_max, "{batches} batches in a step, {batches_max} at most");
            let scanned_before = std::mem::replace(&mut scanned, progress.scanned.load(Ordering::Relaxed));
            long_steps += u64::from(pieces > 0 || scanned > scanned_before);
            steps += 1;
            steps > WINDOW
        };
        simulation.run_until(passed).expect("there is always work");
        let most = WINDOW / LONG_WORK_SHARE + engine.worker_count() as u64;
        assert!(window == 0 || long_steps <= most, "{long_steps} of {WINDOW} steps with long work, {most} at most");
        // In the first one everything begins.
        for ((what, before), (_, after)) in before.into_iter().zip(counts()).filter(|_| window > 0) {
            assert!(after > before, "window {window}: nothing of {what} in {WINDOW} steps");
        }
        let maintained = |counts: &[(&str, u64)]| counts.last().map_or(0, |(_, calls)| *calls);
        let calls = maintained(&counts()) - maintained(&before);
        assert!(calls <= WINDOW / MAINTENANCE_SHARE + 1, "{calls} calls of maintenance in {WINDOW} busy steps");
    }
}

/// Messages that wait at a partition do not make messages of all that comes: a task runs them and goes on in place.
#[test]
fn a_point_access_in_place_serves_those_that_wait_before_it() {
    let options = EngineOptions { workers: 1, ..EngineOptions::default() };
    let mut simulation = Simulation::new(7, options).expect("starts");
    let id = filled(&mut simulation, 4);
    let engine = simulation.engine().clone();
    let over = Arc::new(AtomicBool::new(false));
    let (client, stop) = (engine.clone(), Arc::clone(&over));
    engine.spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let results = client.begin().scan(by_key(id, 1), None).expect("there");
            assert_eq!(results.collect().await.expect("read").len(), 1);
        }
    });
    let commands = {
        let engine = engine.clone();
        move || engine.statistics().event(Event::Commands)
    };
    let reading = async move {
        let mut served = 0;
        for _ in 0..100 {
            let before = commands();
            let mut transaction = engine.begin();
            let mut found = PackedRows::default();
            {
                let read = by_key(id, 2);
                let mut read = pin!(transaction.read_rows(&read, &mut found));
                let at_once = poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_ready())).await;
                assert!(at_once, "the read waits for a message, or is sent as one");
            }
            assert_eq!(found.len(), 1);
            served += commands() - before;
            transaction.commit().await.expect("committed");
            yield_now().await;
        }
        over.store(true, Ordering::Relaxed);
        served
    };
    let served = simulation.block_on(reading).expect("runs");
    assert!(served > 10, "{served} commands waited where a read came");
    simulation.run_until_idle().expect("all tasks end");
}

/// On a clock that stands still within a step no quantum ends, and a step ends all the same.
#[test]
fn a_step_visits_so_many_partitions_though_they_take_no_time() {
    const PARTITIONS: u64 = 150;
    const STEP_VISITS_MAX: u64 = 64;
    let mut simulation = Simulation::new(5, EngineOptions::default()).expect("starts");
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Column, 16));
    let id = schema.container;
    let partitioning = Partitioning::Hash { attributes: Box::new([KEY]), partitions: PARTITIONS as usize };
    engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    let (client, done) = (engine.clone(), Arc::new(AtomicBool::new(false)));
    let is_done = Arc::clone(&done);
    engine.spawn(async move {
        let results = client.begin().scan(everything(id), None).expect("there");
        assert!(results.collect().await.expect("read").is_empty(), "the table is empty");
        done.store(true, Ordering::Relaxed);
    });
    let (mut before, mut of_steps) = (0, Vec::new());
    let passed = || {
        let commands = engine.statistics().event(Event::Commands);
        of_steps.push(commands - before);
        before = commands;
        is_done.load(Ordering::Relaxed)
    };
    simulation.run_until(passed).expect("runs");
    of_steps.retain(|commands| *commands > 0);
    assert_eq!(of_steps, [STEP_VISITS_MAX, STEP_VISITS_MAX, PARTITIONS - 2 * STEP_VISITS_MAX]);
}

/// Gives many results for each batch, and takes time for each.
struct GiveMany {
    env: SimulatedEnv,
    given: Arc<AtomicU64>,
}

struct GivingMany {
    env: SimulatedEnv,
    given: Arc<AtomicU64>,
    left: u64,
}

const MANY: u64 = 100;

impl MicroOperator for GiveMany {
    fn open(&self) -> Box<dyn OperatorState> {
        Box::new(GivingMany { env: self.env.clone(), given: Arc::clone(&self.given), left: 0 })
    }
}

impl OperatorState for GivingMany {
    fn batch(&mut self, _gateway: Gateway, output: &mut Output<'_>) -> Result<(), EngineError> {
        assert_eq!(self.left, 0, "no batch comes before the last one is done");
        self.left = MANY;
        self.go_on(output)
    }

    fn is_behind(&self) -> bool {
        self.left > 0
    }

    fn go_on(&mut self, output: &mut Output<'_>) -> Result<(), EngineError> {
        while self.left > 0 {
            self.env.advance(BATCH_TIME);
            output.emit(row(0, 0, None))?;
            add(&self.given);
            self.left -= 1;
            if output.pauses() {
                break;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _output: &mut Output<'_>) -> Result<(), EngineError> {
        assert_eq!(self.left, 0, "a command ends when its last batch is done");
        Ok(())
    }
}

/// What an operator makes of one batch may take forever: others have turns, and results wait for whoever takes them.
#[test]
fn an_operator_stops_within_a_batch_when_its_time_or_the_room_for_results_is_up() {
    for looks_up in [false, true] {
        for result_batches_max in [1, 3, 1_000_000] {
            let options = EngineOptions {
                workers: 1,
                in_place: false,
                quantum: QUANTUM,
                result_batches_max,
                ..EngineOptions::default()
            };
            let mut simulation = Simulation::new(11, options).expect("starts");
            let id = filled(&mut simulation, 4);
            let (engine, given) = (simulation.engine().clone(), Arc::new(AtomicU64::new(0)));
            let operator = Arc::new(GiveMany { env: simulation.env().clone(), given: Arc::clone(&given) });
            let (client, taken) = (engine.clone(), Arc::new(AtomicU64::new(0)));
            let taking = Arc::clone(&taken);
            engine.spawn(async move {
                let mut transaction = client.begin();
                let mut results = if looks_up {
                    let lookup = lookup(id, KEY, Coalescing::Sender);
                    transaction.lookup_many(lookup, &integers(&[0, 1, 2, 3]), Some(operator)).expect("there")
                } else {
                    transaction.scan(everything(id), Some(operator)).expect("there")
                };
                while results.next().await.expect("read").is_some() {
                    add(&taking);
                }
            });
            let (client, reads) = (engine.clone(), Arc::new(AtomicU64::new(0)));
            let (reading, until) = (Arc::clone(&reads), Arc::clone(&taken));
            engine.spawn(async move {
                while until.load(Ordering::Relaxed) < MANY {
                    client.begin().scan(by_key(id, 1), None).expect("there").collect().await.expect("read");
                    add(&reading);
                }
            });
            let mut before = 0;
            let passed = || {
                let given = given.load(Ordering::Relaxed);
                let of_step = given - std::mem::replace(&mut before, given);
                let most = QUANTUM.as_nanos().div_ceil(BATCH_TIME.as_nanos()) as u64 + 1;
                assert!(of_step <= most, "{of_step} results in a step, {most} at most");
                let waiting = given - taken.load(Ordering::Relaxed);
                assert!(waiting <= result_batches_max as u64, "{waiting} results wait");
                taken.load(Ordering::Relaxed) == MANY
            };
            simulation.run_until(passed).expect("runs");
            simulation.run_until_idle().expect("all tasks end");
            assert_eq!(given.load(Ordering::Relaxed), MANY, "each result comes once");
            let reads = reads.load(Ordering::Relaxed);
            assert!(reads >= 5, "{reads} reads came through meanwhile");
        }
    }
}

/// Inserts `keys` one thousand at a time, as whoever fills a table by SQL does.
async fn insert_all(engine: &Engine, container: ContainerId, keys: &[i64]) {
    for keys in keys.chunks(1_000) {
        let rows: Vec<Vec<Value>> =
            keys.iter().map(|key| vec![Value::Int64(*key), Value::Int64(0), Value::Null]).collect();
        let rows = Batch::from_rows(&[DataType::Int64, DataType::Int64, DataType::Text], &rows);
        let mut transaction = engine.begin();
        transaction.insert(container, rows).await.expect("inserted");
        transaction.commit().await.expect("committed");
    }
}

/// Partitions of a table of so many rows under default options, in an engine of so many workers.
fn partitions_of(rows: i64, workers: usize, rising: bool) -> usize {
    let options = EngineOptions { workers, ..EngineOptions::default() };
    let mut simulation = Simulation::new(rows as u64, options).expect("starts");
    let engine = simulation.engine().clone();
    let schema = Arc::new(schema(engine.next_container_id(), Layout::Default, 1 << 16));
    let id = schema.container;
    let partitioning = Partitioning::Range(Box::new([KEY]));
    let container = engine.create_container(ContainerSpec { schema, partitioning }).expect("created");
    // Every key once; 7,919 is a prime that divides none of the numbers of rows.
    let keys: Vec<i64> = (0..rows).map(|row| if rising { row } else { row * 7_919 % rows }).collect();
    simulation.block_on(async move { insert_all(&engine, id, &keys).await }).expect("runs");
    simulation.run_until_idle().expect("runs");
    assert_eq!(container.rows(), rows as u64);
    container.partition_count()
}

/// A partition for each 65,536 rows that are begun, until there are two for each worker.
#[test]
fn a_table_gets_partitions_for_its_rows_until_each_worker_has_two() {
    for rising in [false, true] {
        assert_eq!(partitions_of(50_000, 2, rising), 1, "rising: {rising}");
        let found = partitions_of(70_000, 1, rising);
        assert!(found >= 2, "{found} partitions for one worker, rising: {rising}");
        let found = partitions_of(200_000, 2, rising);
        assert!(found >= 4, "{found} partitions for two workers, rising: {rising}");
    }
}

/// A task that waits is held by what is to wake it, which is held by the task.
#[test]
fn a_run_that_ends_in_the_middle_leaves_nothing() {
    let mut simulation = Simulation::new(1, EngineOptions::default()).expect("the engine starts");
    let engine = simulation.engine().clone();
    let waker = Arc::new(Mutex::new(None));
    let waits = Arc::clone(&waker);
    simulation.engine().spawn(async move {
        poll_fn(|context| {
            *waits.lock().expect("nobody panicked") = Some(context.waker().clone());
            Poll::<()>::Pending
        })
        .await;
        drop(engine);
    });
    simulation.run_until(|| waker.lock().expect("nobody panicked").is_some()).expect("tasks are polled");
    assert_eq!(Arc::strong_count(&waker), 2);
    drop(simulation);
    assert_eq!(Arc::strong_count(&waker), 1, "the task is gone, and with it the engine that it held");
}
