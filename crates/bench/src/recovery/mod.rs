//! `eris bench recovery`: how long it takes until a database is there again that ended without a word.
//!
//! ```text
//!   fill a directory ─> the process that did is killed ─> (read all files, open, count rows, close) x repeat
//! ```
//! It is recovered from a checkpoint with nothing behind it; or without one, from a log of loads or of transactions of
//! one row each. Files are not changed by opening them, but for a log file that begins, so all runs read the same.

mod fill;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eris::DurabilityOptions;
use eris_workloads::connection::SqlConnection;
use eris_workloads::tpch::Table;
use serde::Serialize;

pub use fill::{Filled, fill};

use crate::directory::NewDirectory;
use crate::error::BenchError;
use crate::figures::median;
use crate::instance::{Instance, InstanceOptions};
use fill::COUNTED;

/// No checkpoint comes by itself.
const CHECKPOINT_INTERVAL: Duration = Duration::from_hours(1_000);
/// Bytes that a plain read asks for.
const READ_BYTES: usize = 1 << 20;

/// What a database is made of when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoverFrom {
    /// A checkpoint of TPC-H's tables.
    Checkpoint,
    /// The log of a load of TPC-H's tables.
    Load,
    /// The log of transactions that insert one row each.
    Transactions,
}

impl RecoverFrom {
    pub fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Load => "load",
            Self::Transactions => "transactions",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecoveryOptions {
    /// A new directory on the disk that is meant; removed at the end.
    pub directory: PathBuf,
    pub from: RecoverFrom,
    /// Of TPC-H.
    pub scale_factor: f64,
    pub transactions: u64,
    pub repeat: usize,
    pub workers: usize,
    pub memory_limit_bytes: u64,
}

impl RecoveryOptions {
    /// The defaults, in a directory.
    pub fn new(directory: PathBuf, from: RecoverFrom) -> Self {
        Self {
            directory,
            from,
            scale_factor: 1.2,
            transactions: 2_000_000,
            repeat: 3,
            workers: 2,
            memory_limit_bytes: 12 << 30,
        }
    }

    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        if !(self.scale_factor > 0.0 && self.scale_factor.is_finite()) {
            return refuse("--sf is a positive number");
        }
        if self.transactions == 0 || self.repeat == 0 {
            return refuse("--transactions and --repeat are at least 1");
        }
        Ok(())
    }

    /// The database in the directory as it is.
    fn open(&self) -> Result<Instance, BenchError> {
        let of_instance = InstanceOptions {
            workers: self.workers,
            nodes: 1,
            memory_limit_bytes: self.memory_limit_bytes,
            in_place: true,
            split_rows: None,
        };
        let durability = DurabilityOptions {
            checkpoint_log_bytes: u64::MAX,
            checkpoint_interval: CHECKPOINT_INTERVAL,
            ..DurabilityOptions::default()
        };
        Instance::open(&of_instance, &self.directory, &durability)
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct RecoveryReport {
    pub benchmark: &'static str,
    pub from: &'static str,
    pub file_system: String,
    pub workers: usize,
    pub table_rows: u64,
    pub table_bytes: u64,
    pub counted: &'static str,
    pub fill_s: f64,
    pub checkpoint_file_bytes: u64,
    pub log_file_bytes: u64,
    /// Of the log that was replayed.
    pub log_bytes: u64,
    pub transactions: u64,
    /// From the first look at the directory to a database that answers; the median, and each.
    pub open_s: f64,
    pub open_s_of_runs: Vec<f64>,
    pub table_bytes_per_s: f64,
    pub transactions_per_s: f64,
    /// All files, read just before each of these.
    pub plain_read_s: f64,
    pub plain_read_bytes_per_s: f64,
    pub plain_read: &'static str,
    /// The time of a plain read, as a share of that of opening.
    pub plain_read_share: f64,
    pub right: bool,
    pub violations: Vec<String>,
}

const PLAIN_READ: &str = "one thread, a MiB at a time, from the page cache: the files were written just before, and \
                          nothing was dropped from it";

/// Runs the benchmark. `fill_and_end` fills the directory that it is given, as [`fill`] does, and leaves it as a
/// process does that is killed. `progress` gets a line per step.
pub fn recovery(
    options: &RecoveryOptions,
    fill_and_end: &mut dyn FnMut(&RecoveryOptions) -> Result<Filled, BenchError>,
    progress: &mut dyn FnMut(&str),
) -> Result<RecoveryReport, BenchError> {
    options.validate()?;
    let directory = NewDirectory::create(&options.directory)?;
    let options = &RecoveryOptions { directory: directory.database(), ..options.clone() };
    progress("filling the directory");
    let filled = fill_and_end(options)?;
    let [checkpoint_file_bytes, log_file_bytes] =
        ["checkpoint", "log"].map(|name| file_bytes(&options.directory.join(name)));
    let (checkpoint_file_bytes, log_file_bytes) = (checkpoint_file_bytes?, log_file_bytes?);
    let (mut reads, mut opens, mut violations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut log_bytes, mut transactions, mut read_bytes) = (0, 0, 0);
    for run in 0..options.repeat {
        progress(&format!("opening, {} of {}", run + 1, options.repeat));
        let begun = Instant::now();
        read_bytes = read_all(&options.directory)?;
        reads.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        let instance = options.open()?;
        opens.push(begun.elapsed().as_secs_f64());
        let (recovered, _) = instance.files()?.recovered();
        (log_bytes, transactions) = (recovered.done_bytes, recovered.transactions);
        let rows = rows_of(&instance, options.from)?;
        if rows != filled.rows {
            violations.push(format!("{rows} rows where {} were committed", filled.rows));
        }
        instance.shutdown();
    }
    let (open_s, plain_read_s) = (median(&opens), median(&reads));
    Ok(RecoveryReport {
        benchmark: "recovery",
        from: options.from.name(),
        file_system: directory.file_system(),
        workers: options.workers,
        table_rows: filled.rows,
        table_bytes: filled.value_bytes,
        counted: COUNTED,
        fill_s: filled.seconds,
        checkpoint_file_bytes,
        log_file_bytes,
        log_bytes,
        transactions,
        open_s,
        open_s_of_runs: opens,
        table_bytes_per_s: filled.value_bytes as f64 / open_s,
        transactions_per_s: transactions as f64 / open_s,
        plain_read_s,
        plain_read_bytes_per_s: read_bytes as f64 / plain_read_s,
        plain_read: PLAIN_READ,
        plain_read_share: plain_read_s / open_s,
        right: violations.is_empty(),
        violations,
    })
}

/// Rows of the tables that were filled.
fn rows_of(instance: &Instance, from: RecoverFrom) -> Result<u64, BenchError> {
    let tables = match from {
        RecoverFrom::Checkpoint | RecoverFrom::Load => Table::ALL.map(Table::name).to_vec(),
        RecoverFrom::Transactions => vec!["entries"],
    };
    let mut connection = instance.connect();
    let mut rows = 0;
    for table in tables {
        let counted = connection.execute(&format!("SELECT count(*) FROM {table}"), &[])?.rows;
        let count = counted.first().and_then(|row| row[0].as_int());
        rows += count.ok_or_else(|| BenchError::Options(format!("no count of {table}")))? as u64;
    }
    Ok(rows)
}

/// The files in a directory, and those of directories in it.
fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    Ok(files)
}

fn file_bytes(directory: &Path) -> io::Result<u64> {
    files_below(directory)?.iter().map(|path| Ok(path.metadata()?.len())).sum()
}

/// Reads all files; how many bytes they have.
fn read_all(directory: &Path) -> io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    for path in files_below(directory)? {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => bytes += read as u64,
            }
        }
    }
    Ok(bytes)
}
