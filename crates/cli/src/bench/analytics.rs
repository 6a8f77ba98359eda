//! `eris bench tpch` and `eris bench jcch`: the same tables and queries, with values of two kinds.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use eris_bench::{AnalyticsOptions, PeerKind, Suite};
use eris_workloads::jcch::ParameterSet;

use crate::resources::bytes;

#[derive(Args, Clone, Debug)]
pub struct TpchArguments {
    #[command(flatten)]
    common: CommonArguments,
}

#[derive(Args, Clone, Debug)]
pub struct JcchArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Whether queries ask for ordinary values or for those that are populous
    #[arg(long, value_enum, default_value_t = Parameters::Skewed)]
    parameters: Parameters,
    /// Run the 200 queries of the workload instead of one of each
    #[arg(long)]
    workload: bool,
}

#[derive(Args, Clone, Debug)]
struct CommonArguments {
    /// Scale factor; 1 is a gigabyte of text
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    sf: f64,
    /// Directory with `.tbl` files instead of generated rows
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Worker threads in total
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
    /// Nodes, virtual ones if need be
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// Partitions of each table; without it tables split by themselves
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// Layout of each table
    #[arg(long, value_enum)]
    layout: Option<TableLayout>,
    /// Rows of a segment
    #[arg(long, value_name = "N")]
    segment_rows: Option<u32>,
    /// Rows above which a partition is split
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    split_rows: Option<u64>,
    /// Clients that insert, change and delete rows beside the queries; no answer may show it
    #[arg(long, value_name = "N", default_value_t = 0)]
    refresh: usize,
    /// Random transactions before the queries: the answers have to be those of a fresh load of the rows they leave
    #[arg(long, value_name = "N", default_value_t = 0)]
    churn: u64,
    /// Memory for data and queries
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// An operator that holds more goes on in temporary files; with 1 all do that can
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    work_mem: Option<u64>,
    /// Runs of each query; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
    /// Systems to run beside, from `PyPI` packages; without a stored answer theirs is what answers are compared with
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEERS")]
    peers: Vec<PeerName>,
    /// Where the figures go; without it to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Parameters {
    Normal,
    Skewed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TableLayout {
    Row,
    Column,
    Mixed,
    Default,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PeerName {
    #[value(name = "duckdb")]
    DuckDb,
    #[value(name = "datafusion")]
    DataFusion,
    Hyper,
}

impl TpchArguments {
    pub fn options(&self) -> AnalyticsOptions {
        self.common.options(Suite::Tpch)
    }

    pub fn json(&self) -> Option<&Path> {
        self.common.json.as_deref()
    }
}

impl JcchArguments {
    pub fn options(&self) -> AnalyticsOptions {
        let parameters = match self.parameters {
            Parameters::Normal => ParameterSet::Normal,
            Parameters::Skewed => ParameterSet::Skewed,
        };
        self.common.options(Suite::Jcch { parameters, workload: self.workload })
    }

    pub fn json(&self) -> Option<&Path> {
        self.common.json.as_deref()
    }
}

impl CommonArguments {
    fn options(&self, suite: Suite) -> AnalyticsOptions {
        let default = AnalyticsOptions::default();
        AnalyticsOptions {
            suite,
            scale_factor: self.sf,
            data: self.data.clone(),
            workers: self.workers,
            nodes: self.nodes,
            partitions: self.partitions,
            layout: self.layout.and_then(|layout| Some(layout.to_possible_value()?.get_name().to_owned())),
            segment_rows: self.segment_rows,
            split_rows: self.split_rows,
            refresh_clients: self.refresh,
            churn: self.churn,
            memory_limit_bytes: self.memory_limit.unwrap_or(default.memory_limit_bytes),
            work_mem_bytes: self.work_mem,
            repeat: self.repeat,
            peers: self.peers.iter().map(|peer| peer.kind()).collect(),
        }
    }
}

impl PeerName {
    fn kind(self) -> PeerKind {
        match self {
            PeerName::DuckDb => PeerKind::DuckDb,
            PeerName::DataFusion => PeerKind::DataFusion,
            PeerName::Hyper => PeerKind::Hyper,
        }
    }
}
