//! `eris bench kv`: the key-value micro-benchmark, which needs no SQL; see [`eris_workloads::kv`].

use eris_workloads::kv::{self, KvOptions, KvReport};

use crate::error::BenchError;

/// Runs the benchmark; `progress` gets a line per phase.
pub fn kv(options: &KvOptions, progress: &mut dyn FnMut(&str)) -> Result<KvReport, BenchError> {
    Ok(kv::run(options, progress)?)
}
