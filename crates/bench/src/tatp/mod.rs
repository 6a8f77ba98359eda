//! `eris bench tatp`: load, drive, check, report.

mod over_sql;
mod over_tasks;
mod report;

pub use report::{KindResult, Latency, TatpReport};

use crate::error::BenchError;
use crate::process::ProcessId;
use eris_engine::Durability;
use eris_workloads::tatp::{
    Consistency, FOREIGN_KEYS, KeyDistribution, Phase, Population, PopulationOptions, RunOptions, RunResult,
    SUCCESS_RULE, THROUGHPUT_RULE, TransactionKind,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Through which interface the transactions go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// The task API of an engine in this process.
    Task,
    /// SQL: sessions in this process, or a server if there is a URL.
    Sql { url: Option<String> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct TatpOptions {
    pub subscribers: u32,
    pub seconds: f64,
    pub warm_up_seconds: f64,
    pub clients: u32,
    /// Threads that the clients of a server share; without it as many as there are processors.
    pub client_threads: Option<u32>,
    pub workers: usize,
    pub nodes: usize,
    pub partitions: Option<usize>,
    pub memory_limit_bytes: u64,
    pub via: Via,
    /// The server whose CPU time is counted, when there is a URL.
    pub server: Option<ProcessId>,
    /// A new directory in which the database of this process is kept, and removed at the end. Without one there is no
    /// log.
    pub directory: Option<PathBuf>,
    /// When commits are told; without a log it does not matter.
    pub durability: Durability,
    pub in_place: bool,
    pub keys: KeyDistribution,
    pub permuted_numbers: bool,
    pub seed: u64,
}

impl Default for TatpOptions {
    fn default() -> Self {
        Self {
            subscribers: 100_000,
            seconds: 10.0,
            warm_up_seconds: 1.0,
            clients: 4,
            client_threads: None,
            workers: 2,
            nodes: 1,
            partitions: None,
            memory_limit_bytes: 8 << 30,
            via: Via::Task,
            server: None,
            directory: None,
            durability: Durability::default(),
            in_place: true,
            keys: KeyDistribution::NonUniform,
            permuted_numbers: false,
            seed: 1,
        }
    }
}

impl TatpOptions {
    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        if self.subscribers == 0 || self.clients == 0 {
            return refuse("--subscribers and --clients are at least 1");
        }
        if !(self.seconds > 0.0 && self.seconds < 1e6 && (0.0..1e6).contains(&self.warm_up_seconds)) {
            return refuse("--seconds is a positive number");
        }
        if self.client_threads == Some(0) {
            return refuse("--client-threads is at least 1");
        }
        if self.client_threads.is_some() && !self.drives_server() {
            return refuse("--client-threads is for clients of a server; without --url each client has a thread");
        }
        if self.directory.is_some() && self.drives_server() {
            return refuse("--db is for a database in this process; a server behind --url has its own");
        }
        Ok(())
    }

    fn drives_server(&self) -> bool {
        matches!(self.via, Via::Sql { url: Some(_) })
    }

    /// Threads of SQL clients: clients of a server share some, a session in this process holds its own.
    fn client_threads(&self) -> u32 {
        let processors = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let threads = if self.drives_server() { self.client_threads.unwrap_or_else(processors) } else { self.clients };
        threads.min(self.clients)
    }

    fn population(&self) -> Arc<Population> {
        Arc::new(Population::new(PopulationOptions {
            seed: self.seed,
            permuted_numbers: self.permuted_numbers,
            ..PopulationOptions::new(self.subscribers)
        }))
    }

    fn run_options(&self) -> RunOptions {
        RunOptions {
            clients: self.clients,
            warm_up: Duration::from_secs_f64(self.warm_up_seconds),
            measured: Duration::from_secs_f64(self.seconds),
            keys: self.keys,
            // Inputs are no function of the data's seed.
            seed: self.seed.wrapping_add(0x7a79),
        }
    }
}

/// What a binding hands back for the report.
struct Measured {
    run: RunResult,
    server_cpu: Option<Duration>,
    load: Duration,
    consistency: Consistency,
    counters: BTreeMap<String, u64>,
    new_destination: &'static str,
}

/// Runs the benchmark; `progress` gets a line per phase.
pub fn tatp(options: &TatpOptions, progress: &mut dyn FnMut(&str)) -> Result<TatpReport, BenchError> {
    options.validate()?;
    let measured = match &options.via {
        Via::Task => over_tasks::run(options, progress)?,
        Via::Sql { url } => over_sql::run(options, url.as_deref(), progress)?,
    };
    Ok(report(options, measured))
}

fn report(options: &TatpOptions, measured: Measured) -> TatpReport {
    let statistics = &measured.run.statistics;
    let seconds = measured.run.measured.as_secs_f64();
    let completed = statistics.completed();
    let kinds = TransactionKind::ALL.map(|kind| {
        let counts = statistics.of(kind);
        KindResult {
            name: kind.name(),
            completed: counts.completed(),
            success: counts.success,
            empty: counts.empty,
            rejected: counts.rejected,
            retries: counts.retries,
            latency_us: Latency::of(&counts.latency),
        }
    });
    let in_process = !options.drives_server();
    TatpReport {
        benchmark: "tatp",
        throughput_per_s: measured.run.throughput_per_s(),
        qualified_per_s: statistics.qualified() as f64 / seconds,
        server_cpu_us_per_tx: measured.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / completed.max(1) as f64),
        success_ratio: TransactionKind::ALL.map(|kind| (kind.name(), statistics.of(kind).success_ratio())).into(),
        latency_us: Latency::of(&statistics.latency()),
        results: kinds.into(),
        retries: statistics.retries(),
        subscribers: options.subscribers,
        measured_s: seconds,
        clients: options.clients,
        client_threads: matches!(options.via, Via::Sql { .. }).then(|| options.client_threads()),
        via: match &options.via {
            Via::Task => "task",
            Via::Sql { .. } => "sql",
        },
        workers: in_process.then_some(options.workers),
        nodes: in_process.then_some(options.nodes),
        partitions: options.partitions,
        log: match (&options.directory, options.durability) {
            _ if !in_process => None,
            (None, _) => Some("none"),
            (Some(_), Durability::Synchronous) => Some("synchronous"),
            (Some(_), Durability::Asynchronous) => Some("asynchronous"),
        },
        in_place: in_process.then_some(options.in_place),
        keys: options.keys.name(),
        permuted_numbers: options.permuted_numbers,
        foreign_keys: FOREIGN_KEYS,
        throughput_rule: THROUGHPUT_RULE,
        success_rule: SUCCESS_RULE,
        new_destination: measured.new_destination,
        load_ms: measured.load.as_secs_f64() * 1_000.0,
        consistent: measured.consistency.is_consistent(),
        rows_checked: measured.consistency.rows,
        violations: measured.consistency.violations,
        violation_examples: measured.consistency.examples,
        counters: measured.counters,
    }
}

/// Reads a process's CPU time when measuring begins and ends.
struct CpuMeter {
    read: Box<dyn Fn() -> Option<Duration>>,
    begin: Option<Duration>,
    end: Option<Duration>,
}

impl CpuMeter {
    fn new(read: impl Fn() -> Option<Duration> + 'static) -> Self {
        Self { read: Box::new(read), begin: None, end: None }
    }

    fn on_phase(&mut self, phase: Phase) {
        match phase {
            Phase::MeasuringBegins => self.begin = (self.read)(),
            Phase::MeasuringEnds => self.end = (self.read)(),
        }
    }

    fn spent(&self) -> Option<Duration> {
        Some(self.end?.saturating_sub(self.begin?))
    }
}
