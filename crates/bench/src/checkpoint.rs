//! `eris bench checkpoint`: point reads that arrive by the clock, alone and while a checkpoint is taken.
//!
//! ```text
//!   a round: load a container that no checkpoint has ─> capacity ─> reads alone, for as long ──────┐ in turns
//!                                                               └─> reads beside a checkpoint <────┘
//! ```
//! Reads come from timer tasks inside the workers, at a share of the capacity that was measured just before; latency
//! counts from the intended arrival, whatever a worker was doing then. What the machine does on its own is beside it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eris::DurabilityOptions;
use eris_durability::{CheckpointReport, Database};
use eris_engine::{Engine, EngineError};
use eris_storage::ContainerId;
use eris_workloads::columns::{
    PointReads, PointReadsOptions, Shape, capacity, create, machine_noise, run_point_reads, run_point_reads_beside,
};
use serde::Serialize;

use crate::directory::NewDirectory;
use crate::error::BenchError;
use crate::figures::median;
use crate::instance::{InstanceOptions, open_files, start_engine};
use crate::latencies::{Latencies, Rounds};

/// Rows of two integers.
const ROW_BYTES: u64 = 16;
/// A checkpoint that takes longer than this is not waited for.
const CHECKPOINT_MAX: Duration = Duration::from_mins(10);
/// No checkpoint comes by itself.
const CHECKPOINT_INTERVAL: Duration = Duration::from_hours(1_000);
/// After a load partitions are still cut and segments sealed.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two arrivals that show what the machine does on its own.
const NOISE_BETWEEN: Duration = Duration::from_micros(10);
/// However short checkpoints are: more rounds than this do not help.
const ROUNDS_MAX: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointOptions {
    /// A new directory on the disk that is meant; removed at the end.
    pub directory: PathBuf,
    /// Rows of the container that is read.
    pub rows: u64,
    /// Rows that each checkpoint has to write.
    pub fresh_rows: u64,
    /// Reads in sum, alone and beside checkpoints each; rounds at least.
    pub requests: u64,
    pub rounds: usize,
    /// How long capacity is measured, and the first reads alone.
    pub seconds: f64,
    pub load_percent: u32,
    pub workers: usize,
    pub memory_limit_bytes: u64,
}

impl CheckpointOptions {
    /// The defaults, in a directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            rows: 1_000_000,
            fresh_rows: 20_000_000,
            requests: 1_000_000,
            // The machine alone spreads p99.9 by a factor of a hundred from round to round: their median needs many.
            rounds: 21,
            seconds: 1.0,
            load_percent: 50,
            workers: 2,
            memory_limit_bytes: 8 << 30,
        }
    }

    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        if self.rows == 0 || self.fresh_rows == 0 || self.requests == 0 || self.rounds == 0 {
            return refuse("--rows, --fresh-rows, --requests and --rounds are at least 1");
        }
        if !(1..=100).contains(&self.load_percent) {
            return refuse("--load-percent is 1 to 100");
        }
        if !(self.seconds > 0.0 && self.seconds < 1e6) {
            return refuse("--seconds is a positive number");
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct CheckpointLatencyReport {
    pub benchmark: &'static str,
    pub file_system: String,
    pub workers: usize,
    pub rows: u64,
    pub database_bytes: u64,
    pub fresh_bytes: u64,
    pub load_percent: u32,
    pub rounds: usize,
    pub arrivals: &'static str,
    pub shown: &'static str,
    /// Without the engine.
    pub machine: Latencies,
    pub alone: Latencies,
    pub beside_checkpoint: Latencies,
    /// p99.9 beside a checkpoint, of that alone: the ratio of the medians of the rounds, and of all reads together.
    pub p999_ratio: f64,
    pub p999_ratio_of_all: f64,
    pub capacity_per_s: f64,
    pub checkpoint_s: f64,
    pub checkpoint_s_of_rounds: Vec<f64>,
    pub checkpoint_written_bytes: u64,
}

const ARRIVALS: &str = "open loop, from timer tasks inside the workers; latency from the intended arrival";
const SHOWN: &str = "of p99.9 the median over the rounds, and each; the others of all reads together";

/// Runs the benchmark; `progress` gets a line per step.
pub fn checkpoint(
    options: &CheckpointOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<CheckpointLatencyReport, BenchError> {
    options.validate()?;
    let directory = NewDirectory::create(&options.directory)?;
    let engine = start_engine(&InstanceOptions {
        workers: options.workers,
        nodes: 1,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: true,
        split_rows: None,
    })?;
    let durability = DurabilityOptions {
        checkpoint_log_bytes: u64::MAX,
        checkpoint_interval: CHECKPOINT_INTERVAL,
        ..DurabilityOptions::default()
    };
    let files = open_files(&engine, &directory.database(), &durability)?;
    let mut bench = Bench { options, engine: &engine, files: &files, measured: Measured::default() };
    let run = bench.run(progress);
    let measured = bench.measured;
    engine.block_on(async move { files.close().await })??;
    engine.shutdown();
    run.map(|()| measured.report(options, directory.file_system()))
}

struct Bench<'b> {
    options: &'b CheckpointOptions,
    engine: &'b Engine,
    files: &'b Arc<Database>,
    measured: Measured,
}

#[derive(Default)]
struct Measured {
    machine: Rounds,
    alone: Rounds,
    beside: Rounds,
    capacities: Vec<f64>,
    checkpoints: Vec<CheckpointReport>,
}

impl Bench<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
        let container = self.create(self.options.rows)?;
        self.take_checkpoint()?;
        let first = Duration::from_secs_f64(self.options.seconds);
        let mut alone_for = first;
        while !self.is_enough() && self.measured.checkpoints.len() < ROUNDS_MAX {
            let round = self.measured.checkpoints.len();
            progress(&format!("round {}, {} reads so far", round + 1, self.measured.beside.count()));
            let fresh = self.create(self.options.fresh_rows)?;
            std::thread::sleep(SETTLE);
            self.measured.machine.add(&machine_noise(self.engine.worker_count(), NOISE_BETWEEN, alone_for));
            let possible = capacity(self.engine, container, self.options.rows, first)?;
            self.measured.capacities.push(possible);
            let reads = PointReadsOptions {
                container,
                rows: self.options.rows,
                reads_per_s: possible * f64::from(self.options.load_percent) / 100.0,
                duration: alone_for,
                seed: round as u64,
                beside_scan_of: None,
            };
            // In turns, so that a machine that slows down is slow to both.
            if round.is_multiple_of(2) {
                self.alone(reads)?;
                alone_for = self.beside(reads)?;
            } else {
                alone_for = self.beside(reads)?;
                self.alone(reads)?;
            }
            self.engine.drop_container(fresh)?;
        }
        Ok(())
    }

    fn is_enough(&self) -> bool {
        let Measured { alone, beside, checkpoints, .. } = &self.measured;
        let least = alone.count().min(beside.count());
        checkpoints.len() >= self.options.rounds && least >= self.options.requests
    }

    fn create(&self, rows: u64) -> Result<ContainerId, EngineError> {
        let engine = self.engine.clone();
        self.engine.block_on(async move { create(&engine, Shape::Keyed, rows).await })?
    }

    fn take_checkpoint(&self) -> Result<CheckpointReport, BenchError> {
        let files = Arc::clone(self.files);
        Ok(self.engine.block_on(async move { files.checkpoint().await })??)
    }

    fn alone(&mut self, reads: PointReadsOptions) -> Result<(), BenchError> {
        let PointReads { latency, .. } = run_point_reads(self.engine, reads)?;
        self.measured.alone.add(&latency);
        Ok(())
    }

    /// Reads for as long as a checkpoint takes; gives how long that was.
    fn beside(&mut self, reads: PointReadsOptions) -> Result<Duration, BenchError> {
        let reads = PointReadsOptions { duration: CHECKPOINT_MAX, ..reads };
        let files = Arc::clone(self.files);
        let work = async move { files.checkpoint().await };
        let (PointReads { latency, .. }, taken) = run_point_reads_beside(self.engine, reads, work)?;
        let taken = taken?;
        let fresh_bytes = self.options.fresh_rows * ROW_BYTES;
        if taken.written_bytes < fresh_bytes {
            let message = format!("a checkpoint wrote {} bytes where {fresh_bytes} are new", taken.written_bytes);
            return Err(BenchError::Options(message));
        }
        self.measured.beside.add(&latency);
        self.measured.checkpoints.push(taken);
        Ok(taken.took)
    }
}

impl Measured {
    fn report(&self, options: &CheckpointOptions, file_system: String) -> CheckpointLatencyReport {
        let (alone, beside_checkpoint) = (self.alone.latencies(), self.beside.latencies());
        let seconds: Vec<f64> = self.checkpoints.iter().map(|taken| taken.took.as_secs_f64()).collect();
        let written: Vec<f64> = self.checkpoints.iter().map(|taken| taken.written_bytes as f64).collect();
        CheckpointLatencyReport {
            benchmark: "checkpoint",
            file_system,
            workers: options.workers,
            rows: options.rows,
            database_bytes: (options.rows + options.fresh_rows) * ROW_BYTES,
            fresh_bytes: options.fresh_rows * ROW_BYTES,
            load_percent: options.load_percent,
            rounds: self.checkpoints.len(),
            arrivals: ARRIVALS,
            shown: SHOWN,
            machine: self.machine.latencies(),
            p999_ratio: beside_checkpoint.p999_us / alone.p999_us,
            p999_ratio_of_all: beside_checkpoint.p999_us_of_all / alone.p999_us_of_all,
            alone,
            beside_checkpoint,
            capacity_per_s: median(&self.capacities),
            checkpoint_s: median(&seconds),
            checkpoint_s_of_rounds: seconds,
            checkpoint_written_bytes: median(&written) as u64,
        }
    }
}
