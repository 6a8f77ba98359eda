//! `eris bench kv`: load, drive, check, report.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eris_engine::Coalescing;
use eris_platform::interleave::interleave_allocations;
use eris_platform::{RealEnv, Topology};
use serde::Serialize;

use super::driver::{Run, drive, look_up_checked};
use super::hash_table::SharedStore;
use super::limit::{Limits, measure};
use super::options::{Baseline, KvError, KvOptions, coalescing_name};
use super::store::KvStore;
use super::{LOOKUPS_PER_TRANSACTION, checksum_keys, value_of};

/// A baseline that this machine cannot show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    pub reason: &'static str,
}

/// The figures. Those of a run are missing when the baseline is unavailable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KvReport {
    pub benchmark: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<Unavailable>,
    pub throughput_per_s: Option<f64>,
    pub per_worker_per_s: Option<f64>,
    /// Lookups for each second of processor time: what a worker does that has a processor to itself.
    pub per_processor_second: Option<f64>,
    pub processor_s: Option<f64>,
    pub lookups: Option<u64>,
    pub measured_s: Option<f64>,
    pub load_s: Option<f64>,
    pub pairs: u64,
    pub raw_bytes: u64,
    /// What the store reserves, index included.
    pub store_bytes: Option<u64>,
    pub workers: usize,
    pub nodes: usize,
    pub partitions: usize,
    pub access: &'static str,
    pub partitioned: &'static str,
    pub locality: &'static str,
    /// `none`, `partition` or `sender`.
    pub coalescing: &'static str,
    pub baseline: Option<&'static str>,
    pub direct_append: bool,
    pub tasks: usize,
    pub lookups_per_transaction: usize,
    pub limit: Option<Limits>,
    /// Lookups a second for each independent random read a second.
    pub share_of_random_reads: Option<f64>,
    /// Sum of the values of keys spread over the store, after the run; every value was compared with its key.
    pub checksum: Option<i64>,
    pub consistent: bool,
}

/// How long each limit is measured.
const LIMIT_TIME: Duration = Duration::from_millis(500);

struct Measured {
    run: Run,
    load: Duration,
    store_bytes: u64,
    checksum: i64,
}

/// Runs the benchmark; `progress` gets a line per phase.
pub fn run(options: &KvOptions, progress: &mut dyn FnMut(&str)) -> Result<KvReport, KvError> {
    options.validate()?;
    if options.baseline == Some(Baseline::Interleaved) {
        let topology = Topology::read(Path::new("/"));
        if topology.nodes.len() < 2 {
            return Ok(report(options, None, None));
        }
        interleave_allocations(&topology).map_err(|error| KvError::Placement(error.to_string()))?;
    }
    progress(&format!("loading {} pairs", options.pairs));
    let measured = match options.baseline {
        Some(Baseline::Shared) => run_shared(options, progress)?,
        Some(Baseline::Interleaved | Baseline::Pinned) | None => run_engine(options, progress)?,
    };
    progress("measuring what the machine can do");
    let limits = measure(measured.store_bytes, options.workers, LIMIT_TIME);
    Ok(report(options, Some(&measured), Some(limits)))
}

fn run_engine(options: &KvOptions, progress: &mut dyn FnMut(&str)) -> Result<Measured, KvError> {
    let start = Instant::now();
    let store = KvStore::load(Arc::new(RealEnv::new()), options)?;
    let load = start.elapsed();
    let store_bytes = store.engine().memory().used();
    progress(&format!("driving {} tasks for {} s", options.workers * options.tasks_per_worker, options.seconds));
    let run = drive(&store, options)?;
    progress("checking");
    let checking = store.clone();
    let checksum = store.engine().block_on(async move {
        let keys: Vec<i64> = checksum_keys(checking.pairs()).collect();
        let mut transaction = checking.engine().begin();
        let found = look_up_checked(&checking, &mut transaction, &keys, Coalescing::Sender, value_of).await?;
        transaction.commit().await?;
        Ok::<_, KvError>(found.sum)
    })??;
    store.engine().shutdown();
    Ok(Measured { run, load, store_bytes, checksum })
}

fn run_shared(options: &KvOptions, progress: &mut dyn FnMut(&str)) -> Result<Measured, KvError> {
    let start = Instant::now();
    let store = SharedStore::load(options.pairs, options.access);
    let load = start.elapsed();
    progress(&format!("driving {} threads for {} s", options.workers, options.seconds));
    let run = store.drive(options)?;
    let keys: Vec<i64> = checksum_keys(options.pairs).collect();
    let checksum = store.look_up_checked(&keys, Coalescing::Sender)?;
    Ok(Measured { run, load, store_bytes: store.bytes(), checksum })
}

fn report(options: &KvOptions, measured: Option<&Measured>, limit: Option<Limits>) -> KvReport {
    let throughput = measured.map(|measured| measured.run.throughput_per_s());
    let expected = checksum_keys(options.pairs).fold(0_i64, |sum, key| sum.wrapping_add(value_of(key)));
    KvReport {
        benchmark: "kv",
        unavailable: measured.is_none().then_some(Unavailable { reason: "one NUMA node" }),
        throughput_per_s: throughput,
        per_worker_per_s: throughput.map(|throughput| throughput / options.workers as f64),
        per_processor_second: measured.and_then(|measured| {
            Some(measured.run.lookups as f64 / measured.run.processor?.as_secs_f64().max(f64::MIN_POSITIVE))
        }),
        processor_s: measured.and_then(|measured| Some(measured.run.processor?.as_secs_f64())),
        lookups: measured.map(|measured| measured.run.lookups),
        measured_s: measured.map(|measured| measured.run.measured.as_secs_f64()),
        load_s: measured.map(|measured| measured.load.as_secs_f64()),
        pairs: options.pairs,
        raw_bytes: options.pairs * 16,
        store_bytes: measured.map(|measured| measured.store_bytes),
        workers: options.workers,
        nodes: options.engine_nodes(),
        partitions: options.partition_count(),
        access: options.access.name(),
        partitioned: options.partitioned_by.name(),
        locality: options.locality.name(),
        coalescing: coalescing_name(options.coalescing),
        baseline: options.baseline.map(Baseline::name),
        direct_append: options.direct_append,
        tasks: options.workers * options.tasks_per_worker,
        lookups_per_transaction: LOOKUPS_PER_TRANSACTION,
        limit,
        share_of_random_reads: throughput.zip(limit).map(|(lookups, limit)| lookups / limit.random_reads_per_s),
        checksum: measured.map(|measured| measured.checksum),
        consistent: measured.is_none_or(|measured| measured.checksum == expected),
    }
}
