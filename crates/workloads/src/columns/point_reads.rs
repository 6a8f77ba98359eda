//! Point reads that arrive by the clock, whatever becomes of earlier ones: the latency that a user sees beside a scan.
//!
//! Each worker has a task that knows when its next read is due and starts what is due: a task for each read, so that
//! one which has to wait holds up no other. Latency counts from the intended arrival, so a worker that was busy with
//! something else shows in every read that it kept waiting.

use super::{KEY, VALUE, sum_values, value_of};
use crate::histogram::Histogram;
use eris_engine::{Engine, EngineError, Read};
use eris_platform::{Nanos, NodeId, SeededRandom};
use eris_storage::{AttributeId, ContainerId, PackedRows, Predicate, ReadRequest, Value};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

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

struct Reader {
    engine: Engine,
    container: ContainerId,
    rows: u64,
    random: SeededRandom,
    desired: Arc<[AttributeId]>,
    found: PackedRows,
}

impl Reader {
    fn new(engine: &Engine, container: ContainerId, rows: u64, seed: u64) -> Self {
        Self {
            engine: engine.clone(),
            container,
            rows,
            random: SeededRandom::new(seed),
            desired: Arc::new([VALUE]),
            found: PackedRows::default(),
        }
    }

    async fn read_one(&mut self) -> Result<(), EngineError> {
        let key = self.random.below(self.rows);
        read(&self.engine, self.container, key, &self.desired, &mut self.found).await
    }
}

async fn read(
    engine: &Engine,
    container: ContainerId,
    key: u64,
    desired: &Arc<[AttributeId]>,
    found: &mut PackedRows,
) -> Result<(), EngineError> {
    let predicate = Predicate::equal(KEY, Value::Int64(key as i64));
    let request = ReadRequest { predicate, desired: Arc::clone(desired), order: None };
    let mut transaction = engine.begin();
    transaction.read_rows(&Read { container, request }, found).await?;
    transaction.commit().await?;
    let right = found.len() == 1 && found.i64(0, 0) == value_of(key);
    assert!(right, "key {key} has one row with its value");
    Ok(())
}

/// Reads as fast as one task per worker can for a while: point reads per second.
pub fn capacity(engine: &Engine, container: ContainerId, rows: u64, duration: Duration) -> Result<f64, EngineError> {
    let (sender, receiver) = mpsc::channel();
    for worker in 0..engine.worker_count() {
        let mut reader = Reader::new(engine, container, rows, worker as u64);
        let (sender, env) = (sender.clone(), Arc::clone(engine.env()));
        engine.spawn_on(engine.worker_node(worker), async move {
            let end = env.now() + duration;
            let mut reads = 0_u64;
            let mut result = Ok(());
            while result.is_ok() && env.now() < end {
                result = reader.read_one().await;
                reads += 1;
                if reads.is_multiple_of(64) {
                    reader.engine.sleep_until(Nanos(0)).await;
                }
            }
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(result.map(|()| reads));
        });
    }
    drop(sender);
    let mut reads = 0;
    for _ in 0..engine.worker_count() {
        reads += receiver.recv().map_err(|_| lost())??;
    }
    Ok(reads as f64 / duration.as_secs_f64())
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
    let (sender, receiver) = mpsc::channel();
    let workers = engine.worker_count();
    let between = Duration::from_secs_f64(workers as f64 / options.reads_per_s);
    for worker in 0..workers {
        let reader = Reader::new(engine, options.container, options.rows, options.seed + worker as u64);
        let first = between.mul_f64(worker as f64 / workers as f64);
        let sender = sender.clone();
        let node = engine.worker_node(worker);
        engine.spawn_on(node, async move {
            // As above.
            let _ = sender.send(arrive(reader, node, first, between, options.duration).await);
        });
    }
    drop(sender);
    let mut result = PointReads::default();
    for _ in 0..workers {
        result.latency.merge(&receiver.recv().map_err(|_| lost())??);
    }
    over.store(true, Ordering::Release);
    if options.beside_scan_of.is_some() {
        result.scans = scans.recv().map_err(|_| lost())??;
    }
    Ok(result)
}

/// The reads that arrived at one worker.
struct Arrived {
    running: AtomicU64,
    latency: Mutex<Result<Histogram, EngineError>>,
}

impl Arrived {
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

async fn arrive(
    mut reader: Reader,
    node: NodeId,
    first: Duration,
    between: Duration,
    duration: Duration,
) -> Result<Histogram, EngineError> {
    let env = Arc::clone(reader.engine.env());
    let begin = env.now();
    let end = begin + duration;
    let arrived = Arc::new(Arrived { running: AtomicU64::new(0), latency: Mutex::new(Ok(Histogram::default())) });
    for number in 0_u32.. {
        let due = begin + first + between * number;
        if due >= end {
            break;
        }
        if env.now() < due {
            reader.engine.sleep_until(due).await;
        }
        arrived.running.fetch_add(1, Ordering::AcqRel);
        let (key, container, desired) =
            (reader.random.below(reader.rows), reader.container, Arc::clone(&reader.desired));
        let (engine, env, arrived) = (reader.engine.clone(), Arc::clone(&env), Arc::clone(&arrived));
        reader.engine.spawn_on(node, async move {
            let result = read(&engine, container, key, &desired, &mut PackedRows::default()).await;
            arrived.ended(result.map(|()| env.now().0 - due.0));
        });
    }
    while arrived.running.load(Ordering::Acquire) > 0 {
        reader.engine.sleep_until(env.now() + DRAIN_LOOK).await;
    }
    let mut latency = arrived.latency.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *latency, Ok(Histogram::default()))
}
