//! `eris bench`: the experiments of `eris-bench` from the command line. Progress goes to standard error, figures as
//! JSON to a file or to standard output.

mod analytics;
mod cache_queries;
mod checkpoint;
mod commits;
mod kv;
mod mixed;
mod recovery;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use eris_bench::{AnalyticsOptions, BenchError, ProcessId, TatpOptions, Via};
use eris_engine::Durability;
use eris_workloads::tatp::KeyDistribution;

use crate::failure::Failure;
use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub benchmark: Benchmark,
}

#[derive(Subcommand, Clone, Debug)]
pub enum Benchmark {
    /// TPC-H: load, run the 22 queries, check every answer
    Tpch(analytics::TpchArguments),
    /// JCC-H: the same tables with values that are related and very unequal; load, run the queries, check every answer
    Jcch(analytics::JcchArguments),
    /// A column scan, an aggregation and a foreign-key join over large columns, beside the bandwidth of the memory
    CacheQueries(cache_queries::CacheQueriesArguments),
    /// TATP: the telecom transactions, over the task API or over SQL
    Tatp(TatpArguments),
    /// Key-value store: tasks that look up 1,000 keys at a time, over the task API
    Kv(kv::KvArguments),
    /// Durable commits of one row: one client beside what disk and network take, many clients beside the log's counters
    Commits(commits::CommitsArguments),
    /// How long a database takes to be there again after its process was killed
    Recovery(recovery::RecoveryArguments),
    /// Point reads that arrive by the clock, alone and beside checkpoints
    Checkpoint(checkpoint::CheckpointArguments),
    /// Point reads and TATP that arrive by the clock, each beside a stream of TPC-H queries in the same database
    Mixed(mixed::MixedArguments),
}

#[derive(Args, Clone, Debug)]
pub struct TatpArguments {
    /// Rows of table `subscriber`
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    subscribers: u32,
    /// Measured time
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Time before it that does not count
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warm_up: f64,
    /// Clients, each with one transaction under way
    #[arg(long, value_name = "N", default_value_t = 4)]
    clients: u32,
    /// Threads that the clients of a server share [default: as many as there are processors]
    #[arg(long, value_name = "N", requires = "url", value_parser = clap::value_parser!(u32).range(1..))]
    client_threads: Option<u32>,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Nodes, virtual ones if need be
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// Partitions of each table; without it tables split by themselves
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// Memory for data and transactions
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Interface that the transactions go through [default: task, or sql with --url]
    #[arg(long, value_enum)]
    via: Option<Interface>,
    /// A server to drive instead of a database in this process: postgres://user@host:port/database
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Process of that server, to count its CPU time
    #[arg(long, value_name = "PID", requires = "url")]
    server_pid: Option<u32>,
    /// Keep the database of this process in a new directory, which is removed again
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    db: Option<PathBuf>,
    /// Whether a commit is told once it is on disk, or, with off, once it is visible
    #[arg(long, value_name = "WHEN", default_value = "on", value_parser = ["on", "off"])]
    synchronous_commit: String,
    /// Never run a command in place: everything goes by message
    #[arg(long)]
    no_in_place: bool,
    /// How subscribers are drawn
    #[arg(long, value_enum, default_value_t = Keys::NonUniform)]
    keys: Keys,
    /// Make `sub_nbr` a permutation, so that `s_id` cannot be computed from it
    #[arg(long)]
    permute_numbers: bool,
    /// Seed of data and inputs
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Interface {
    Task,
    Sql,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keys {
    Uniform,
    NonUniform,
}

pub fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    // Figures are wanted even if nobody follows the progress.
    let mut progress = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    match &arguments.benchmark {
        Benchmark::Tpch(arguments) => run_analytics(&arguments.options(), arguments.json(), &mut progress),
        Benchmark::Jcch(arguments) => run_analytics(&arguments.options(), arguments.json(), &mut progress),
        Benchmark::CacheQueries(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::cache_queries(&arguments.options(), &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
            if report.is_right() { Ok(()) } else { Err(Failure::new("not every answer is right")) }
        }
        Benchmark::Tatp(arguments) => {
            let options = arguments.options()?;
            let figures = Figures::open(arguments.json.as_deref())?;
            let report = eris_bench::tatp(&options, &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
            if report.consistent { Ok(()) } else { Err(Failure::new("the tables are not consistent afterwards")) }
        }
        Benchmark::Kv(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::kv(&arguments.options(), &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
            if report.consistent { Ok(()) } else { Err(Failure::new("the values found are not those of their keys")) }
        }
        Benchmark::Commits(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::commits(&arguments.options(), &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)
        }
        Benchmark::Recovery(arguments) if arguments.fills() => recovery::fill(&arguments.options()),
        Benchmark::Recovery(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::recovery(&arguments.options(), &mut recovery::fill_and_kill, &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
            if report.right { Ok(()) } else { Err(Failure::Message(report.violations.join("; "))) }
        }
        Benchmark::Checkpoint(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::checkpoint(&arguments.options(), &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)
        }
        Benchmark::Mixed(arguments) => {
            let figures = Figures::open(arguments.json())?;
            let report = eris_bench::mixed(&arguments.options(), &mut progress)?;
            figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
            if report.is_right() { Ok(()) } else { Err(Failure::new("not every answer, table or snapshot is right")) }
        }
    }
}

fn run_analytics(
    options: &AnalyticsOptions,
    json: Option<&Path>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let figures = Figures::open(json)?;
    let report = eris_bench::analytics(options, progress)?;
    figures.write(&serde_json::to_value(&report).map_err(Failure::new)?)?;
    report.check().map_err(Failure::new)
}

impl TatpArguments {
    fn options(&self) -> Result<TatpOptions, Failure> {
        let default = TatpOptions::default();
        let via = match (self.via, &self.url) {
            (Some(Interface::Task), Some(_)) => {
                return Err(Failure::new("--url is for --via sql: the task API works in this process only"));
            }
            (Some(Interface::Task) | None, None) => Via::Task,
            (_, url) => Via::Sql { url: url.clone() },
        };
        Ok(TatpOptions {
            subscribers: self.subscribers,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up,
            clients: self.clients,
            client_threads: self.client_threads,
            workers: self.workers,
            nodes: self.nodes,
            partitions: self.partitions,
            memory_limit_bytes: self.memory_limit.unwrap_or(default.memory_limit_bytes),
            via,
            server: self.server_pid.map(ProcessId),
            directory: self.db.clone(),
            durability: match self.synchronous_commit.as_str() {
                "off" => Durability::Asynchronous,
                _ => Durability::Synchronous,
            },
            in_place: !self.no_in_place,
            keys: match self.keys {
                Keys::Uniform => KeyDistribution::Uniform,
                Keys::NonUniform => KeyDistribution::NonUniform,
            },
            permuted_numbers: self.permute_numbers,
            seed: self.seed,
        })
    }
}

/// Where the figures go. Opened before the benchmark, since minutes of work for a file that cannot be written are lost.
struct Figures<'a>(Option<Output<'a>>);

struct Output<'a> {
    path: &'a Path,
    file: File,
    /// Made by this run; taken away again if it has nothing to tell.
    is_new: bool,
}

impl<'a> Figures<'a> {
    fn open(path: Option<&'a Path>) -> Result<Figures<'a>, Failure> {
        let Some(path) = path else { return Ok(Figures(None)) };
        let is_new = !path.exists();
        // What a file has from another run stays until there is something better.
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| unwritable(path, &error))?;
        Ok(Figures(Some(Output { path, file, is_new })))
    }

    fn write(mut self, report: &serde_json::Value) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(report).map_err(Failure::new)? + "\n";
        let Some(output) = &mut self.0 else {
            return match io::stdout().write_all(text.as_bytes()) {
                // Who closes the pipe has read enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => Ok(written?),
            };
        };
        // A pipe or a terminal has no length to change.
        let regular = output.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if regular { output.file.set_len(0) } else { Ok(()) };
        emptied
            .and_then(|()| output.file.write_all(text.as_bytes()))
            .map_err(|error| unwritable(output.path, &error))?;
        output.is_new = false;
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // An empty file left behind is a blemish, not a failure.
            let _ = fs::remove_file(self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::Message(format!("cannot write the figures to {}: {error}", path.display()))
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        Failure::new(error)
    }
}
