//! `eris bench checkpoint`: its options.

use std::path::{Path, PathBuf};

use clap::Args;
use eris_bench::CheckpointOptions;

#[derive(Args, Clone, Debug)]
pub struct CheckpointArguments {
    /// A new directory for the database, on the disk that is meant; removed again
    #[arg(long, value_name = "DIR")]
    db: PathBuf,
    /// Rows of the table that is read, 16 bytes each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,
    /// Rows that each checkpoint has to write
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    fresh_rows: u64,
    /// Reads in sum, alone and beside checkpoints each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
    /// Rounds at least
    #[arg(long, value_name = "N", default_value_t = 21)]
    rounds: usize,
    /// How long capacity is measured in each round
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Reads that arrive, of those that are possible
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    load_percent: u32,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CheckpointArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn options(&self) -> CheckpointOptions {
        CheckpointOptions {
            rows: self.rows,
            fresh_rows: self.fresh_rows,
            requests: self.requests,
            rounds: self.rounds,
            seconds: self.seconds,
            load_percent: self.load_percent,
            workers: self.workers,
            ..CheckpointOptions::new(self.db.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench checkpoint`, alone.
    #[derive(Debug, Parser)]
    struct Checkpoint {
        #[command(flatten)]
        arguments: CheckpointArguments,
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        assert!(Checkpoint::try_parse_from(["checkpoint"]).is_err(), "a directory has to be named");
        match Checkpoint::try_parse_from(["checkpoint", "--db", "dir"]) {
            Ok(checkpoint) => assert_eq!(checkpoint.arguments.options(), CheckpointOptions::new("dir".into())),
            Err(error) => panic!("{error}"),
        }
    }
}
