//! Experiments: TPC-H, JCC-H, TATP, all of it mixed, the queries of the cache experiments, the key-value store,
//! commits, checkpoints and recovery on ERIS, beside other systems and what the machine itself can do, with reports as
//! JSON.

mod analytics;
mod cache_queries;
mod checkpoint;
mod commits;
mod directory;
mod error;
mod figures;
mod instance;
mod kv;
mod latencies;
mod mixed;
mod process;
mod recovery;
mod tatp;

pub use analytics::{
    AnalyticsOptions, AnalyticsReport, Churned, Generator, Loaded, Peer, PeerAnswer, PeerKind, PeerResult, Query,
    QueryResult, Suite, analytics, load as load_tables, run_query,
};
pub use cache_queries::{CacheQueriesOptions, CacheQueriesReport, CacheQueryFigures, CachedScan, cache_queries};
pub use checkpoint::{CheckpointLatencyReport, CheckpointOptions, checkpoint};
pub use commits::{CommitsOptions, CommitsReport, commits};
pub use error::BenchError;
pub use instance::{EmbeddedConnection, Instance, InstanceOptions, TimedAnswer};
pub use kv::kv;
pub use mixed::{MixedOptions, MixedReport, mixed};
pub use process::ProcessId;
pub use recovery::{Filled, RecoverFrom, RecoveryOptions, RecoveryReport, fill, recovery};
pub use tatp::{KindResult, Latency, TatpOptions, TatpReport, Via, tatp};
