//! `eris bench cache-queries`: its options.

use std::path::{Path, PathBuf};

use clap::Args;
use eris_bench::CacheQueriesOptions;
use eris_workloads::cache_queries::CacheData;

use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct CacheQueriesArguments {
    /// Rows of the table that is scanned, of the one that is grouped, and of the one that refers to keys
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    rows: u64,
    /// Different values of the column that is scanned
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    values: u32,
    /// Different values of the column whose maximum is asked for
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    aggregated_values: u32,
    /// Different values of the column that is grouped by
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    groups: u32,
    /// Primary keys, one row each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u32,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Partitions of each table without a key; without it tables split by themselves
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// Runs of each query; the median counts
    #[arg(long, value_name = "N", default_value_t = 7)]
    repeat: usize,
    /// Rows of the scan in the second-level cache
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    cached_rows: u64,
    /// Bits of each of its codes
    #[arg(long, value_name = "N", default_value_t = 4)]
    cached_bits: u32,
    /// Its executions in a row, in each run
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    cached_passes: u32,
    /// Memory for data, queries and the probes of the bandwidth, which take as much as the encoded columns
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Seed of the data
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CacheQueriesArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn options(&self) -> CacheQueriesOptions {
        CacheQueriesOptions {
            data: CacheData {
                rows: self.rows,
                scanned_values: self.values,
                aggregated_values: self.aggregated_values,
                groups: self.groups,
                keys: self.keys,
                seed: self.seed,
            },
            workers: self.workers,
            partitions: self.partitions,
            repeat: self.repeat,
            cached_rows: self.cached_rows,
            cached_bits: self.cached_bits,
            cached_passes: self.cached_passes,
            memory_limit_bytes: self.memory_limit.unwrap_or(CacheQueriesOptions::default().memory_limit_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench cache-queries`, alone.
    #[derive(Debug, Parser)]
    struct CacheQueries {
        #[command(flatten)]
        arguments: CacheQueriesArguments,
    }

    fn options(line: &str) -> CacheQueriesOptions {
        let words = ["cache-queries"].into_iter().chain(line.split_ascii_whitespace());
        match CacheQueries::try_parse_from(words) {
            Ok(parsed) => parsed.arguments.options(),
            Err(error) => panic!("{line}: {error}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        assert_eq!(options(""), CacheQueriesOptions::default());
    }

    #[test]
    fn each_flag_sets_its_field() {
        let line = "--rows 9 --values 8 --aggregated-values 7 --groups 6 --keys 5 --workers 4 --partitions 3 \
                    --repeat 2 --cached-rows 10 --cached-bits 11 --cached-passes 12 --memory-limit 1G --seed 13";
        let data = CacheData { rows: 9, scanned_values: 8, aggregated_values: 7, groups: 6, keys: 5, seed: 13 };
        let expected = CacheQueriesOptions {
            data,
            workers: 4,
            partitions: Some(3),
            repeat: 2,
            cached_rows: 10,
            cached_bits: 11,
            cached_passes: 12,
            memory_limit_bytes: 1 << 30,
        };
        assert_eq!(options(line), expected);
    }
}
