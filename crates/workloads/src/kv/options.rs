//! What to run.

use std::str::FromStr;

use eris_engine::{Coalescing, EngineError};
use eris_storage::Layout;
use thiserror::Error;

/// How a partition finds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Through a local hash index on the key.
    Index,
    /// Through a local ordered index, as in the sources.
    OrderedIndex,
    /// By a scan of its keys.
    Scan,
}

/// Which attribute the store is partitioned by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionedBy {
    /// A lookup names its partition.
    Key,
    /// A lookup goes to all partitions.
    Value,
}

/// Whose keys a task looks up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// Those of its own node.
    Local,
    /// Those of the node half of all nodes away.
    Shifted,
    /// All.
    Random,
}

impl Locality {
    /// The node whose keys a task on `node` of so many looks up; none for all keys.
    pub(super) fn home(self, node: usize, nodes: usize) -> Option<usize> {
        match self {
            Self::Local => Some(node),
            Self::Shifted => Some((node + nodes / 2) % nodes),
            Self::Random => None,
        }
    }
}

/// What ERIS is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// The same, with memory spread over all NUMA nodes page by page.
    Interleaved,
    /// One hash table (or one array to scan) that all threads read.
    Shared,
    /// Each partition bound to one worker, as in the data-oriented architecture before living partitions: a node for
    /// each worker.
    Pinned,
}

macro_rules! named {
    ($type:ident: $($variant:ident = $name:literal),+) => {
        impl $type {
            /// Its name in options and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl FromStr for $type {
            type Err = KvError;

            fn from_str(text: &str) -> Result<Self, KvError> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(KvError::Options(format!("\"{text}\" is none of {:?}", [$($name),+]))),
                }
            }
        }
    };
}

named!(Access: Index = "index", OrderedIndex = "ordered-index", Scan = "scan");
named!(PartitionedBy: Key = "key", Value = "value");
named!(Locality: Local = "local", Shifted = "shifted", Random = "random");
named!(Baseline: Interleaved = "interleaved", Shared = "shared", Pinned = "pinned");

/// Its name in reports.
pub(super) fn coalescing_name(coalescing: Coalescing) -> &'static str {
    match coalescing {
        Coalescing::None => "none",
        Coalescing::Partition => "partition",
        Coalescing::Sender => "sender",
    }
}

/// A run that could not be.
#[derive(Debug, Clone, Error)]
pub enum KvError {
    #[error("{0}")]
    Options(String),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An answer that is not the function of its key.
    #[error("{0}")]
    WrongAnswer(String),
    /// A simulated run that does not end.
    #[error("{0}")]
    Simulation(String),
    #[error("cannot place memory: {0}")]
    Placement(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct KvOptions {
    pub pairs: u64,
    pub seconds: f64,
    pub warm_up_seconds: f64,
    pub workers: usize,
    pub nodes: usize,
    /// None: as many as workers.
    pub partitions: Option<usize>,
    pub access: Access,
    pub partitioned_by: PartitionedBy,
    pub locality: Locality,
    pub coalescing: Coalescing,
    pub baseline: Option<Baseline>,
    /// Tasks on each worker: enough that none is idle while another's messages are under way.
    pub tasks_per_worker: usize,
    /// Whether messages for the own node pass by the coordinator.
    pub direct_append: bool,
    /// How the pairs are stored.
    pub layout: Layout,
    pub memory_limit_bytes: u64,
    pub seed: u64,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
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
            tasks_per_worker: 4,
            direct_append: true,
            layout: Layout::Column,
            memory_limit_bytes: 8 << 30,
            seed: 1,
        }
    }
}

impl KvOptions {
    /// Living partitions: one for each worker unless told otherwise, as the sources have it.
    pub fn partition_count(&self) -> usize {
        self.partitions.unwrap_or(self.workers)
    }

    /// Nodes of the engine: bound partitions have one for each worker.
    pub fn engine_nodes(&self) -> usize {
        if self.baseline == Some(Baseline::Pinned) { self.workers } else { self.nodes }
    }

    pub(super) fn validate(&self) -> Result<(), KvError> {
        let refuse = |text: &str| Err(KvError::Options(text.to_owned()));
        if self.pairs == 0 || self.pairs > i64::MAX as u64 {
            return refuse("there is at least one pair");
        }
        if self.workers == 0 || self.nodes == 0 || self.nodes > self.workers || self.tasks_per_worker == 0 {
            return refuse("there are workers, each with tasks, and at most as many nodes");
        }
        if self.partition_count() < self.engine_nodes() || self.partition_count() as u64 > self.pairs {
            return refuse("each node has a partition, each partition a pair");
        }
        if !(self.seconds > 0.0 && self.seconds < 1e6 && (0.0..1e6).contains(&self.warm_up_seconds)) {
            return refuse("seconds are a positive number");
        }
        if self.locality != Locality::Random && self.partitioned_by == PartitionedBy::Value {
            return refuse("local and shifted keys need partitions by key; by value, pairs of any key are anywhere");
        }
        Ok(())
    }
}
