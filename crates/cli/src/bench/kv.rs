//! `eris bench kv`: its options.

use std::path::{Path, PathBuf};

use clap::Args;
use eris_engine::Coalescing;
use eris_workloads::kv::{Access, Baseline, KvOptions, Locality, PartitionedBy};

use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct KvArguments {
    /// Pairs of an 8-byte key and an 8-byte value
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pairs: u64,
    /// Measured time
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Time before it that does not count
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    warm_up: f64,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Nodes, virtual ones if need be
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// Partitions; without it one for each worker
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// How a partition finds a key: index (hash), ordered-index or scan
    #[arg(long, value_name = "PATH", default_value = "index")]
    access: Access,
    /// Partitioned by key (a lookup goes to one partition) or value (to all)
    #[arg(long, value_name = "ATTRIBUTE", default_value = "key")]
    partitioned: PartitionedBy,
    /// Whose keys a task looks up: local, shifted (by half of all nodes; both by key only) or random
    #[arg(long, value_name = "WHOSE", default_value = "random")]
    locality: Locality,
    /// Put keys for one partition into one message and execute messages in batches
    #[arg(long)]
    coalesced: bool,
    /// What to run instead: interleaved (memory), shared (one table) or pinned (partitions bound to workers)
    #[arg(long, value_name = "VARIANT")]
    baseline: Option<Baseline>,
    /// Memory for the pairs
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Seed of the keys
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl KvArguments {
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    pub fn options(&self) -> KvOptions {
        let default = KvOptions::default();
        KvOptions {
            pairs: self.pairs,
            seconds: self.seconds,
            warm_up_seconds: self.warm_up,
            workers: self.workers,
            nodes: self.nodes,
            partitions: self.partitions,
            access: self.access,
            partitioned_by: self.partitioned,
            locality: self.locality,
            coalescing: if self.coalesced { Coalescing::Sender } else { Coalescing::None },
            baseline: self.baseline,
            memory_limit_bytes: self.memory_limit.unwrap_or(default.memory_limit_bytes),
            seed: self.seed,
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// `eris bench kv`, alone.
    #[derive(Debug, Parser)]
    struct Kv {
        #[command(flatten)]
        arguments: KvArguments,
    }

    fn parse(line: &str) -> Result<KvArguments, clap::Error> {
        let words = ["kv"].into_iter().chain(line.split_ascii_whitespace());
        Kv::try_parse_from(words).map(|kv| kv.arguments)
    }

    /// The options of a line that parses.
    fn options(line: &str) -> KvOptions {
        match parse(line) {
            Ok(arguments) => arguments.options(),
            Err(error) => panic!("{line}: {error}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_benchmark() {
        assert_eq!(options(""), KvOptions::default());
        assert_eq!(parse("").ok().and_then(|arguments| arguments.json), None);
        let expected = KvOptions {
            pairs: 10_000_000,
            seconds: 10.0,
            warm_up_seconds: 1.0,
            workers: 2,
            nodes: 1,
            partitions: None,
            access: Access::Index,
            partitioned_by: PartitionedBy::Key,
            locality: Locality::Random,
            coalescing: Coalescing::None,
            baseline: None,
            seed: 1,
            ..KvOptions::default()
        };
        assert_eq!(options(""), expected);
    }

    #[test]
    fn each_flag_sets_its_field_and_no_other() {
        let default = KvOptions::default;
        for (line, expected) in [
            ("--pairs 5000", KvOptions { pairs: 5_000, ..default() }),
            ("--seconds 2.5", KvOptions { seconds: 2.5, ..default() }),
            ("--warm-up 0.5", KvOptions { warm_up_seconds: 0.5, ..default() }),
            ("--nodes 4", KvOptions { nodes: 4, ..default() }),
            ("--workers 8", KvOptions { workers: 8, ..default() }),
            ("--partitions 16", KvOptions { partitions: Some(16), ..default() }),
            ("--access index", KvOptions { access: Access::Index, ..default() }),
            ("--access ordered-index", KvOptions { access: Access::OrderedIndex, ..default() }),
            ("--access scan", KvOptions { access: Access::Scan, ..default() }),
            ("--partitioned key", KvOptions { partitioned_by: PartitionedBy::Key, ..default() }),
            ("--partitioned value", KvOptions { partitioned_by: PartitionedBy::Value, ..default() }),
            ("--locality local", KvOptions { locality: Locality::Local, ..default() }),
            ("--locality shifted", KvOptions { locality: Locality::Shifted, ..default() }),
            ("--locality random", KvOptions { locality: Locality::Random, ..default() }),
            ("--coalesced", KvOptions { coalescing: Coalescing::Sender, ..default() }),
            ("--baseline interleaved", KvOptions { baseline: Some(Baseline::Interleaved), ..default() }),
            ("--baseline shared", KvOptions { baseline: Some(Baseline::Shared), ..default() }),
            ("--baseline pinned", KvOptions { baseline: Some(Baseline::Pinned), ..default() }),
            ("--memory-limit 1000000000", KvOptions { memory_limit_bytes: 1_000_000_000, ..default() }),
            ("--seed 7", KvOptions { seed: 7, ..default() }),
            ("--json out.json", default()),
        ] {
            assert_eq!(options(line), expected, "{line}");
        }
    }

    #[test]
    fn all_flags_together() {
        let line = "--pairs 1000 --seconds 1 --warm-up 0 --nodes 2 --workers 4 --partitions 8 --access scan \
                    --partitioned value --locality shifted --coalesced --baseline pinned --memory-limit 1000000 \
                    --seed 3 --json out.json";
        let expected = KvOptions {
            pairs: 1_000,
            seconds: 1.0,
            warm_up_seconds: 0.0,
            nodes: 2,
            workers: 4,
            partitions: Some(8),
            access: Access::Scan,
            partitioned_by: PartitionedBy::Value,
            locality: Locality::Shifted,
            coalescing: Coalescing::Sender,
            baseline: Some(Baseline::Pinned),
            memory_limit_bytes: 1_000_000,
            seed: 3,
            ..KvOptions::default()
        };
        assert_eq!(options(line), expected);
        assert_eq!(parse(line).ok().and_then(|arguments| arguments.json), Some(PathBuf::from("out.json")));
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for line in [
            "--pairs many",
            "--pairs -1",
            "--seconds soon",
            "--nodes 1.5",
            "--workers",
            "--partitions -4",
            "--access hash",
            "--access Index",
            "--partitioned both",
            "--locality near",
            "--coalesced yes",
            "--baseline atomic",
            "--baseline",
            "--memory-limit much",
            "--seed x",
            "--json",
            "--no-such-flag",
        ] {
            assert!(parse(line).is_err(), "{line} is not refused");
        }
    }
}
