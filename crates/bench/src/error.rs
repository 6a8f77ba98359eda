//! Why a benchmark could not be run. A wrong answer is not an error: it stands in the report.

use std::sync::Arc;

use eris::{DurabilityError, ServeError};
use eris_workloads::connection::SqlFailure;
use eris_workloads::kv::KvError;
use eris_workloads::tpch::tbl::TblError;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Engine(#[from] eris_engine::EngineError),
    #[error(transparent)]
    Open(#[from] eris::OpenError),
    #[error(transparent)]
    Files(#[from] DurabilityError),
    #[error("no checkpoint: {0}")]
    Checkpoint(#[from] Arc<DurabilityError>),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{0}")]
    Sql(#[from] SqlFailure),
    #[error(transparent)]
    Data(#[from] TblError),
    #[error(transparent)]
    KeyValue(#[from] KvError),
    #[error("peer {peer}: {message}")]
    Peer { peer: &'static str, message: String },
    #[error("{0}")]
    Options(String),
}
