//! Point reads that arrive by the clock, whatever becomes of earlier ones: the latency that a user sees beside a scan.
//!
//! Each worker has a task that knows when its next read is due and starts what is due: a task for each read, so that
//! one which has to wait holds up no other. Latency counts from the intended arrival, so a worker that was busy with
//! something else shows in every read that it kept waiting. Those that cannot be served wait to be started: a queue of
//! half-done reads would slow down the machine that is behind already, and grow until its memory is full.

use super::{KEY, VALUE, sum_values, value_of};
use crate::beside::{Work, WorkEnd};
use crate::histogram::Histogram;
use eris_engine::{Engine, EngineError, Read, yield_now};
use eris_platform::{Nanos, NodeId, SeededRandom};
use eris_storage::{AttributeId, ContainerId, PackedRows, Predicate, ReadRequest, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Reads that a worker has under way while its capacity is measured.
const CAPACITY_READS: u64 = 32;
/// Reads that a worker has under way at most; more that are due wait to be started. A few times as many as its capacity
/// is measured with, so that a backlog is worked off about as fast.
const STARTED_MAX: u64 = 128;
/// How often to look whether the last reads have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(1);

/// What is read, and how often.
#[derive(Clone, Copy, Debug)]
pub struct PointReadsOptions {
    /// A container of [`super::Shape::Keyed`].
    pub container: ContainerId,
    pub rows: u64,
    /// Over all workers.
    pub reads_per_s: f64,
    pub duration: Duration,
    pub seed: u64,
    /// A container whose values are summed up again and again meanwhile.
    pub beside_scan_of: Option<ContainerId>,
}

/// What became of the reads.
#[derive(Clone, Debug, Default)]
pub struct PointReads {
    pub latency: Histogram,
    /// Scans that ended meanwhile.
    pub scans: u64,
}

/// What a worker's reads have in common.
struct Reader {
    engine: Engine,
    node: NodeId,
    container: ContainerId,
    rows: u64,
    random: SeededRandom,
    desired: Arc<[AttributeId]>,
    started: Arc<Started>,
}

/// The reads that were started at one worker.
struct Started {
    running: AtomicU64,
    latency: Mutex<Result<Histogram, EngineError>>,
}

impl Started {
    fn ended(&self, result: Result<u64, EngineError>) {
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        match (result, &mut *latency) {
            (Ok(nanos), Ok(latency)) => latency.record(nanos),
            (Err(error), latency) => *latency = Err(error),
            (Ok(_), Err(_)) => {}
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Reader {
    fn new(engine: &Engine, worker: usize, container: ContainerId, rows: u64, seed: u64) -> Self {
        Self {
            engine: engine.clone(),
            node: engine.worker_node(worker),
            container,
            rows,
            random: SeededRandom::new(seed + worker as u64),
            desired: Arc::new([VALUE]),
            started: Arc::new(Started { running: AtomicU64::new(0), latency: Mutex::new(Ok(Histogram::default())) }),
        }
    }

    fn running(&self) -> u64 {
        self.started.running.load(Ordering::Acquire)
    }

    /// Starts a read of a random key in a task of its own; its latency counts from when it was due.
    fn start(&mut self, due: Nanos) {
        self.started.running.fetch_add(1, Ordering::AcqRel);
        let (engine, started) = (self.engine.clone(), Arc::clone(&self.started));
        let (container, key, desired) = (self.container, self.random.below(self.rows), Arc::clone(&self.desired));
        self.engine.spawn_on(self.node, async move {
            let result = read(&engine, container, key, &desired).await;
            started.ended(result.map(|()| engine.env().now().0 - due.0));
        });
    }

    /// The latencies, once all reads have ended.
    async fn latency(self) -> Result<Histogram, EngineError> {
        while self.running() > 0 {
            self.engine.sleep_until(self.engine.env().now() + DRAIN_LOOK).await;
        }
        let mut latency = self.started.latency.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *latency, Ok(Histogram::default()))
    }
}

async fn read(
    engine: &Engine,
    container: ContainerId,
    key: u64,
    desired: &Arc<[AttributeId]>,
) -> Result<(), EngineError> {
    let predicate = Predicate::equal(KEY, Value::Int64(key as i64));
    let request = ReadRequest { predicate, desired: Arc::clone(desired), order: None };
    let mut found = PackedRows::default();
    let mut transaction = engine.begin();
    transaction.read_rows(&Read { container, request }, &mut found).await?;
    transaction.commit().await?;
    let right = found.len() == 1 && found.i64(0, 0) == value_of(key);
    assert!(right, "key {key} has one row with its value");
    Ok(())
}

/// Point reads per second if each worker always has some to do, each in a task of its own like those that arrive.
pub fn capacity(engine: &Engine, container: ContainerId, rows: u64, duration: Duration) -> Result<f64, EngineError> {
    let reads = on_each_worker(engine, |worker| {
        let mut reader = Reader::new(engine, worker, container, rows, 0);
        async move {
            let end = reader.engine.env().now() + duration;
            while reader.engine.env().now() < end {
                while reader.running() < CAPACITY_READS {
                    let now = reader.engine.env().now();
                    reader.start(now);
                }
                yield_now().await;
            }
            reader.latency().await
        }
    })?;
    Ok(reads.count() as f64 / duration.as_secs_f64())
}

/// Runs a task on each worker and adds up their latencies.
fn on_each_worker<F: Future<Output = Result<Histogram, EngineError>> + Send + 'static>(
    engine: &Engine,
    task: impl Fn(usize) -> F,
) -> Result<Histogram, EngineError> {
    let (sender, receiver) = mpsc::channel();
    for worker in 0..engine.worker_count() {
        let (sender, task) = (sender.clone(), task(worker));
        engine.spawn_on(engine.worker_node(worker), async move {
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(task.await);
        });
    }
    drop(sender);
    let mut latency = Histogram::default();
    for _ in 0..engine.worker_count() {
        latency.merge(&receiver.recv().map_err(|_| lost())??);
    }
    Ok(latency)
}

fn lost() -> EngineError {
    EngineError::OperatorPanicked("a reader ended without a result".to_owned())
}

/// Runs the reads, and the scans beside them.
pub fn run_point_reads(engine: &Engine, options: PointReadsOptions) -> Result<PointReads, EngineError> {
    let over = Arc::new(AtomicBool::new(false));
    let (scans_sender, scans) = mpsc::channel();
    if let Some(scanned) = options.beside_scan_of {
        let (engine, over) = (engine.clone(), Arc::clone(&over));
        engine.clone().spawn(async move {
            let mut count = Ok(0);
            while let (Ok(done), false) = (&count, over.load(Ordering::Acquire)) {
                let done = *done;
                count = sum_values(&engine, scanned).await.map(|_| done + 1);
            }
            // As above.
            let _ = scans_sender.send(count);
        });
    }
    let latency = arrive_on_each_worker(engine, options, &WorkEnd::never())?;
    over.store(true, Ordering::Release);
    let mut result = PointReads { latency, scans: 0 };
    if options.beside_scan_of.is_some() {
        result.scans = scans.recv().map_err(|_| lost())??;
    }
    Ok(result)
}

/// Runs the reads for as long as some work does, at most for their own duration; gives what the work ends with, too.
///
/// Every read counts that was due before the work ended, also one that could not be started before.
pub fn run_point_reads_beside<T: Send + 'static>(
    engine: &Engine,
    options: PointReadsOptions,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(PointReads, T), EngineError> {
    let work = Work::start(engine, work);
    let latency = arrive_on_each_worker(engine, options, work.end())?;
    Ok((PointReads { latency, scans: 0 }, work.value()?))
}

fn arrive_on_each_worker(
    engine: &Engine,
    options: PointReadsOptions,
    work_end: &WorkEnd,
) -> Result<Histogram, EngineError> {
    let workers = engine.worker_count();
    let between = Duration::from_secs_f64(workers as f64 / options.reads_per_s);
    on_each_worker(engine, |worker| {
        let reader = Reader::new(engine, worker, options.container, options.rows, options.seed);
        let first = between.mul_f64(worker as f64 / workers as f64);
        arrive(reader, first, between, options.duration, work_end.clone())
    })
}

/// Starts reads when they are due, until the time is over or the work beside them has ended.
async fn arrive(
    mut reader: Reader,
    first: Duration,
    between: Duration,
    duration: Duration,
    work_end: WorkEnd,
) -> Result<Histogram, EngineError> {
    let env = Arc::clone(reader.engine.env());
    let begin = env.now();
    let end = begin + duration;
    for number in 0_u32.. {
        let due = begin + first + between * number;
        if due >= end {
            break;
        }
        if env.now() < due {
            reader.engine.sleep_until(due).await;
        }
        if work_end.is_by(due) {
            break;
        }
        while reader.running() >= STARTED_MAX {
            yield_now().await;
        }
        reader.start(due);
    }
    reader.latency().await
}
