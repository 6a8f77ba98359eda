//! Experiments: TPC-H, TATP and the key-value store on ERIS, beside other systems, with reports as JSON.

mod error;
mod figures;
mod instance;
mod kv;
mod process;
mod tatp;
mod tpch;

pub use error::BenchError;
pub use instance::{EmbeddedConnection, Instance, InstanceOptions, TimedAnswer};
pub use kv::kv;
pub use process::ProcessId;
pub use tatp::{KindResult, Latency, TatpOptions, TatpReport, Via, tatp};
pub use tpch::{
    Peer, PeerAnswer, PeerKind, PeerResult, QueryResult, TpchOptions, TpchReport, load as load_tpch, run_query, tpch,
};
