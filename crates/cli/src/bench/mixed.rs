//! `eris bench mixed`: its options.

use std::path::{Path, PathBuf};

use clap::Args;
use eris_bench::MixedOptions;

use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct MixedArguments {
    /// Scale factor of TPC-H; 1 is a gigabyte of text
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    sf: f64,
    /// Rows of TATP's table `subscriber`
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    subscribers: u32,
    /// Rows that are read by key, 16 bytes each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,
    /// Reads in sum, alone and beside the stream each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    requests: u64,
    /// Rounds at least; in each the 22 queries run alone, beside reads and beside TATP
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// How long a capacity is measured in each round
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
    /// Reads and transactions that arrive, of those that are possible
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    load_percent: u32,
    /// Reads per second, instead of a part of those that are possible
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Memory for data, queries and transactions
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl MixedArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn options(&self) -> MixedOptions {
        MixedOptions {
            scale_factor: self.sf,
            subscribers: self.subscribers,
            rows: self.rows,
            requests: self.requests,
            rounds: self.rounds,
            seconds: self.seconds,
            load_percent: self.load_percent,
            rate: self.rate,
            workers: self.workers,
            memory_limit_bytes: self.memory_limit.unwrap_or(MixedOptions::default().memory_limit_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench mixed`, alone.
    #[derive(Debug, Parser)]
    struct Mixed {
        #[command(flatten)]
        arguments: MixedArguments,
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        match Mixed::try_parse_from(["mixed"]) {
            Ok(mixed) => assert_eq!(mixed.arguments.options(), MixedOptions::default()),
            Err(error) => panic!("{error}"),
        }
    }
}
