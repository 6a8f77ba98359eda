//! `eris bench recovery`: its options, and the process that fills the directory and is killed.
//!
//! ```text
//!   eris bench recovery ──starts──> eris bench recovery --fill ──> "{rows, bytes}" ──> waits
//!            <──────────────── one line of JSON ─────────────────────────┘              │
//!            ── SIGKILL ───────────────────────────────────────────────────────────────>┘
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use eris_bench::{BenchError, Filled, RecoverFrom, RecoveryOptions};

use crate::failure::Failure;
use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct RecoveryArguments {
    /// A new directory for the database, on the disk that is meant; removed again
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// What it is recovered from
    #[arg(long, value_enum, default_value_t = From::Checkpoint)]
    from: From,
    /// Scale factor of TPC-H
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2)]
    sf: f64,
    /// Transactions of one row each, for `--from transactions`
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    transactions: u64,
    /// How often the directory is opened; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Memory for the data
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Only fill the directory, say with what, and wait for the end
    #[arg(long, hide = true)]
    fill: bool,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// A checkpoint of TPC-H's tables
    Checkpoint,
    /// The log of a load of TPC-H's tables
    Load,
    /// The log of transactions that insert a row each
    Transactions,
}

impl RecoveryArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn fills(&self) -> bool {
        self.fill
    }

    pub fn options(&self) -> RecoveryOptions {
        let from = match self.from {
            From::Checkpoint => RecoverFrom::Checkpoint,
            From::Load => RecoverFrom::Load,
            From::Transactions => RecoverFrom::Transactions,
        };
        let default = RecoveryOptions::new(self.db.clone(), from);
        RecoveryOptions {
            scale_factor: self.sf,
            transactions: self.transactions,
            repeat: self.repeat,
            workers: self.workers,
            memory_limit_bytes: self.memory_limit.unwrap_or(default.memory_limit_bytes),
            ..default
        }
    }
}

/// Fills the directory, says with what, and waits to be killed; ends if nobody is left who would do that.
pub fn fill(options: &RecoveryOptions) -> Result<(), Failure> {
    let (instance, filled) = eris_bench::fill(options)?;
    let line = serde_json::to_string(&filled).map_err(Failure::new)?;
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    instance.abandon();
    Ok(())
}

/// Has another process fill a directory, and kills it.
pub fn fill_and_kill(options: &RecoveryOptions) -> Result<Filled, BenchError> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["bench", "recovery", "--fill", "--from", options.from.name(), "--db"])
        .arg(&options.directory)
        .args(["--sf", &options.scale_factor.to_string()])
        .args(["--transactions", &options.transactions.to_string()])
        .args(["--workers", &options.workers.to_string()])
        .args(["--memory-limit", &options.memory_limit_bytes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let told = process.stdout.take().map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line));
    // SIGKILL. If it has ended already, it said nothing, or nothing that can be used.
    let killed = process.kill();
    let ended = process.wait()?;
    told?;
    killed?;
    serde_json::from_str(&line)
        .map_err(|_| BenchError::Options(format!("the process that fills the directory ended: {ended}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench recovery`, alone.
    #[derive(Debug, Parser)]
    struct Recovery {
        #[command(flatten)]
        arguments: RecoveryArguments,
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        assert!(Recovery::try_parse_from(["recovery"]).is_err(), "a directory has to be named");
        match Recovery::try_parse_from(["recovery", "--db", "dir"]) {
            Ok(recovery) => {
                assert_eq!(recovery.arguments.options(), RecoveryOptions::new("dir".into(), RecoverFrom::Checkpoint));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
