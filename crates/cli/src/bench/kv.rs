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
    /// Whose keys a task looks up: local, shifted (by half of all nodes) or random
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
