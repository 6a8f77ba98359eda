//! `eris bench mixed`: point reads and TATP beside a stream of TPC-H queries, in one database.
//!
//! ```text
//!   load TPC-H, TATP, rows to read ─> a pass that only warms up
//!   a round:  a pass alone ─> the machine's noise, for as long
//!             capacity of reads, briefly ─> reads alone at half of it, for as long ─> the same reads beside a pass
//!             capacity of TATP, briefly ─> half of it beside a pass, with a heartbeat that tells how fresh answers are
//! ```
//! A pass is the 22 queries once. Reads and transactions arrive by the clock in timer tasks inside the workers, for as
//! long as the pass beside them takes; latency counts from the intended arrival. All is done in rounds, so that a
//! machine that slows down is slow to all of it.

mod heartbeat;
mod report;
mod stream;

pub use report::MixedReport;

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Engine, EngineError};
use eris_storage::ContainerId;
use eris_workloads::columns::{
    PointReads, PointReadsOptions, Shape, capacity, create, machine_noise, run_point_reads, run_point_reads_beside,
};
use eris_workloads::histogram::Histogram;
use eris_workloads::tatp::task::{Containers, StorageOptions, TaskClient};
use eris_workloads::tatp::{
    ArrivalOptions, Consistency, ForwardingChange, ForwardingKey, KeyDistribution, Population, PopulationOptions,
    RunOptions, RunResult, check, run_arrivals_beside, run_task_clients,
};

use crate::analytics::{AnalyticsOptions, Suite, load};
use crate::error::BenchError;
use crate::instance::{Instance, InstanceOptions};
use crate::latencies::Rounds;
use heartbeat::{Heartbeat, Seen};
use stream::Stream;

/// As `eris bench tatp` has by default.
const TATP_CLIENTS: u32 = 4;
/// A pass that takes longer than this has no reads beside it any more.
const PASS_MAX: Duration = Duration::from_hours(1);
/// After a load partitions are still cut and segments sealed.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two arrivals that show what the machine does on its own.
const NOISE_BETWEEN: Duration = Duration::from_micros(10);
/// However short passes are: more rounds than this do not help.
const ROUNDS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub struct MixedOptions {
    /// Of TPC-H.
    pub scale_factor: f64,
    /// Of TATP.
    pub subscribers: u32,
    /// Rows of the container that is read.
    pub rows: u64,
    /// Reads in sum, alone and beside the stream each; rounds at least.
    pub requests: u64,
    pub rounds: usize,
    /// How long a capacity is measured.
    pub seconds: f64,
    /// Reads and transactions that arrive, of those that are possible.
    pub load_percent: u32,
    /// Reads per second instead.
    pub rate: Option<f64>,
    pub workers: usize,
    pub memory_limit_bytes: u64,
}

impl Default for MixedOptions {
    fn default() -> Self {
        Self {
            scale_factor: 1.0,
            subscribers: 100_000,
            rows: 1_000_000,
            requests: 1_000_000,
            rounds: 5,
            seconds: 1.0,
            load_percent: 50,
            rate: None,
            workers: 2,
            memory_limit_bytes: 16 << 30,
        }
    }
}

impl MixedOptions {
    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        Suite::Tpch.generator(self.scale_factor)?;
        if self.subscribers == 0 || self.rows == 0 || self.requests == 0 || self.rounds == 0 {
            return refuse("--subscribers, --rows, --requests and --rounds are at least 1");
        }
        if !(1..=100).contains(&self.load_percent) {
            return refuse("--load-percent is 1 to 100");
        }
        if !(self.seconds > 0.0 && self.seconds < 1e6) {
            return refuse("--seconds is a positive number");
        }
        if self.rate.is_some_and(|rate| !(1.0..1e9).contains(&rate)) {
            return refuse("--rate is a number of reads per second");
        }
        Ok(())
    }

    fn share_of(&self, possible: f64) -> f64 {
        possible * f64::from(self.load_percent) / 100.0
    }
}

/// Runs the benchmark; `progress` gets a line per step.
pub fn mixed(options: &MixedOptions, progress: &mut dyn FnMut(&str)) -> Result<MixedReport, BenchError> {
    options.validate()?;
    let instance = Instance::start(&InstanceOptions {
        workers: options.workers,
        nodes: 1,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: true,
        split_rows: None,
    })?;
    let run = run(options, &instance, progress);
    instance.shutdown();
    run
}

fn run(options: &MixedOptions, instance: &Instance, progress: &mut dyn FnMut(&str)) -> Result<MixedReport, BenchError> {
    let engine = instance.engine();
    progress(&format!("loading TPC-H, scale factor {}, and {} subscribers", options.scale_factor, options.subscribers));
    let tables = AnalyticsOptions {
        scale_factor: options.scale_factor,
        workers: options.workers,
        memory_limit_bytes: options.memory_limit_bytes,
        ..AnalyticsOptions::default()
    };
    let loaded = load(instance, &tables)?;
    let population = Arc::new(Population::new(PopulationOptions::new(options.subscribers)));
    let containers = Containers::create(engine, StorageOptions::default())?;
    let (loading, subscribers) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &subscribers).await })??;
    let (creating, rows) = (engine.clone(), options.rows);
    let read = engine.block_on(async move { create(&creating, Shape::Keyed, rows).await })??;
    let heartbeat = Heartbeat::create(instance)?;
    std::thread::sleep(SETTLE);

    let queries = Suite::Tpch.queries(options.scale_factor);
    let mut bench = Bench {
        options,
        engine,
        read,
        client: TaskClient::new(engine, containers),
        population: &population,
        stream: Stream::new(instance, &queries, &heartbeat),
        heartbeat,
        measured: Measured::default(),
    };
    bench.pass_alone()?;
    while !bench.is_enough() && bench.measured.rounds < ROUNDS_MAX {
        let Measured { rounds, beside, .. } = &bench.measured;
        progress(&format!("round {}, {} reads beside the stream so far", rounds + 1, beside.count()));
        bench.round()?;
    }

    progress("checking consistency");
    let Bench { stream, measured, .. } = bench;
    let consistency = consistency(engine, containers, &population, &measured.tatp.changes)?;
    Ok(report::report(options, instance, loaded, stream.into_answers(), consistency, &measured))
}

struct Bench<'b> {
    options: &'b MixedOptions,
    engine: &'b Engine,
    /// The container that is read.
    read: ContainerId,
    client: TaskClient,
    population: &'b Arc<Population>,
    stream: Stream<'b>,
    heartbeat: Heartbeat,
    measured: Measured,
}

#[derive(Default)]
struct Measured {
    rounds: usize,
    machine: Rounds,
    alone: Rounds,
    beside: Rounds,
    read_capacities: Vec<f64>,
    reads_per_s: Vec<f64>,
    /// Of each pass.
    alone_ms: Vec<f64>,
    beside_reads_ms: Vec<f64>,
    beside_tatp_ms: Vec<f64>,
    tatp: MeasuredTatp,
    /// At the queries beside TATP.
    seen: Vec<Seen>,
    /// From one commit of the heartbeat to the next.
    heartbeat: Histogram,
}

#[derive(Default)]
struct MeasuredTatp {
    capacities: Vec<f64>,
    asked_per_s: Vec<f64>,
    done_per_s: Vec<f64>,
    latency: Histogram,
    changes: Vec<(ForwardingKey, ForwardingChange)>,
}

impl Bench<'_> {
    fn is_enough(&self) -> bool {
        let Measured { rounds, alone, beside, .. } = &self.measured;
        *rounds >= self.options.rounds && alone.count().min(beside.count()) >= self.options.requests
    }

    fn round(&mut self) -> Result<(), BenchError> {
        let alone_ms = self.pass_alone()?;
        self.measured.alone_ms.push(alone_ms);
        self.reads(Duration::from_secs_f64(alone_ms / 1e3))?;
        self.tatp()?;
        self.measured.rounds += 1;
        Ok(())
    }

    fn pass_alone(&mut self) -> Result<f64, BenchError> {
        let answers = self.engine.block_on(self.stream.pass())?;
        Ok(self.stream.check(answers).total_ms)
    }

    /// The machine's own noise, reads alone, and reads beside a pass.
    fn reads(&mut self, alone_for: Duration) -> Result<(), BenchError> {
        let Self { options, engine, read, .. } = *self;
        self.measured.machine.add(&machine_noise(engine.worker_count(), NOISE_BETWEEN, alone_for));
        let possible = capacity(engine, read, options.rows, Duration::from_secs_f64(options.seconds))?;
        let reads = PointReadsOptions {
            container: read,
            rows: options.rows,
            reads_per_s: options.rate.unwrap_or_else(|| options.share_of(possible)),
            duration: alone_for,
            seed: self.measured.rounds as u64,
            beside_scan_of: None,
        };
        self.measured.read_capacities.push(possible);
        self.measured.reads_per_s.push(reads.reads_per_s);
        let PointReads { latency, .. } = run_point_reads(engine, reads)?;
        self.measured.alone.add(&latency);
        let reads = PointReadsOptions { duration: PASS_MAX, ..reads };
        let (PointReads { latency, .. }, answers) = run_point_reads_beside(engine, reads, self.stream.pass())?;
        self.measured.beside.add(&latency);
        self.measured.beside_reads_ms.push(self.stream.check(answers).total_ms);
        Ok(())
    }

    /// TATP by itself, and a pass beside a part of that.
    fn tatp(&mut self) -> Result<(), BenchError> {
        let Self { options, population, .. } = *self;
        let seconds = Duration::from_secs_f64(options.seconds);
        // Other inputs in each round.
        let seed = self.measured.rounds as u64 * 2 * u64::from(TATP_CLIENTS);
        let keys = KeyDistribution::default();
        let all = RunOptions { clients: TATP_CLIENTS, warm_up: seconds / 5, measured: seconds, keys, seed };
        let alone = run_task_clients(&self.client, population, &all, &mut |_| {})?;
        let part = ArrivalOptions {
            clients: TATP_CLIENTS,
            transactions_per_s: options.share_of(alone.throughput_per_s()),
            keys,
            seed: seed + u64::from(TATP_CLIENTS),
        };
        let beating = self.heartbeat.start()?;
        let (beside, answers) = run_arrivals_beside(&self.client, population, &part, self.stream.pass())?;
        self.measured.heartbeat.merge(&beating.end()?);
        let pass = self.stream.check(answers);
        self.measured.beside_tatp_ms.push(pass.total_ms);
        self.measured.seen.extend(pass.seen);
        self.measured.tatp.add(&alone, part.transactions_per_s, &beside);
        Ok(())
    }
}

impl MeasuredTatp {
    fn add(&mut self, alone: &RunResult, asked_per_s: f64, beside: &RunResult) {
        self.capacities.push(alone.throughput_per_s());
        self.asked_per_s.push(asked_per_s);
        self.done_per_s.push(beside.throughput_per_s());
        self.latency.merge(&beside.statistics.latency());
        for run in [alone, beside] {
            self.changes.extend_from_slice(&run.statistics.forwarding_changes);
        }
    }
}

/// TATP's tables after all its runs.
fn consistency(
    engine: &Engine,
    containers: Containers,
    population: &Population,
    changes: &[(ForwardingKey, ForwardingChange)],
) -> Result<Consistency, EngineError> {
    check(population, changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    })
}
