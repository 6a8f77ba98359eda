//! The engine on all nodes: workers on their cpus, columns at home, transactions that stay consistent.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use eris_engine::{Engine, EngineOptions, Event};
use eris_platform::{NodeId, Pinning, RealEnv, limits};
use eris_workloads::tatp::task::{Containers, StorageOptions};
use eris_workloads::tatp::{
    KeyDistribution, Population, PopulationOptions, RunOptions, check as consistency, run_over_tasks,
};

use crate::machine::read;
use crate::{Report, ensure};

const SUBSCRIBERS: u32 = 20_000;
const SEGMENT_ROWS: u32 = 4_096;

fn words(error: impl Display) -> String {
    error.to_string()
}

pub fn check(report: &mut Report) {
    let topology = read();
    let options = EngineOptions {
        workers: topology.cpus().count(),
        nodes: topology.nodes.len(),
        pinning: Pinning::On,
        memory_limit_bytes: 512 << 20,
        ..EngineOptions::default()
    };
    let engine = match Engine::start(Arc::new(RealEnv::new()), options) {
        Ok(engine) => engine,
        Err(error) => return report.check("the engine starts", |_| Err(error.to_string())),
    };
    report.check("workers of the engine are pinned to their node", |_| workers(&engine));
    report.check("transactions on all nodes are consistent", |report| transactions(report, &engine));
    report.check("columns lie at home", |_| columns(&engine));
    report.check("the process is watched", |_| watched(&engine));
    engine.shutdown();
}

/// Asks workers of each node where they may run.
fn workers(engine: &Engine) -> Result<String, String> {
    let mut seen = BTreeSet::new();
    let topology = read();
    for (number, node) in topology.nodes.iter().enumerate() {
        for _ in 0..16 {
            let (sender, receiver) = std::sync::mpsc::channel();
            engine.spawn_on(NodeId(number as u16), async move {
                // The receiver waits below.
                let _ = sender.send(limits::affinity());
            });
            let allowed = receiver.recv().map_err(words)?.ok_or("a worker does not know where it may run")?;
            ensure(allowed.len() == 1 && node.cpus.contains(&allowed[0]), || {
                format!("a worker of node {number} may run on {allowed:?}")
            })?;
            seen.insert(allowed[0]);
        }
    }
    ensure(seen.len() >= topology.nodes.len(), || format!("workers ran on {seen:?} only"))?;
    Ok(format!("tasks ran on cpus {:?}", seen.iter().map(|cpu| cpu.0).collect::<Vec<_>>()))
}

fn transactions(report: &mut Report, engine: &Engine) -> Result<String, String> {
    let population = Arc::new(Population::new(PopulationOptions::new(SUBSCRIBERS)));
    let storage = StorageOptions {
        partitions: Some(2 * engine.worker_count()),
        segment_rows: SEGMENT_ROWS,
        ..Default::default()
    };
    let containers = Containers::create(engine, storage).map_err(words)?;
    let (loading, loaded) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &loaded).await }).map_err(words)?.map_err(words)?;
    let options = RunOptions {
        clients: 8,
        warm_up: Duration::from_millis(200),
        measured: Duration::from_secs(report.number("seconds").unwrap_or(2) as u64),
        keys: KeyDistribution::Uniform,
        seed: 7,
    };
    let result = run_over_tasks(engine, containers, &population, &options, &mut |_| {}).map_err(words)?;
    let found = consistency(&population, &result.statistics.forwarding_changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    })
    .map_err(words)?;
    ensure(found.violations == 0, || format!("{} violations: {:?}", found.violations, found.examples))?;
    let homes: BTreeSet<NodeId> = engine.partitions().iter().map(|partition| partition.home).collect();
    ensure(homes.len() == engine.node_count(), || format!("partitions are at home on {homes:?} only"))?;
    let remote = engine.statistics().event(Event::RemoteMessages);
    ensure(remote > 0, || "no message went to another node".to_owned())?;
    let rate = result.throughput_per_s();
    report.figure("TATP transactions", rate.round(), "1/s");
    Ok(format!("{} rows as they should be, {rate:.0} transactions/s, {remote} messages between nodes", found.rows))
}

fn columns(engine: &Engine) -> Result<String, String> {
    let mut seen = Vec::new();
    for node in engine.node_memory() {
        let bytes = node.column_bytes.ok_or_else(|| format!("{} has no arena", node.node))?;
        let location = node.location.ok_or("the arena says nothing about its place")?;
        ensure(bytes > 0 && location.bytes_on(node.memory_node) > 0, || format!("{} has no columns", node.node))?;
        ensure(location.bytes_away_from(node.memory_node) == 0 && node.remark.is_none(), || {
            format!("columns of {} lie elsewhere: {location}; {:?}", node.node, node.remark)
        })?;
        seen.push(bytes);
    }
    Ok(format!("bytes of sealed columns by node {seen:?}"))
}

fn watched(engine: &Engine) -> Result<String, String> {
    let report = engine.memory_report().ok_or("nobody watches")?;
    ensure(report.observation.resident_bytes.is_some(), || report.to_string())?;
    ensure(report.accounted_bytes > 0 && report.limit_bytes <= report.configured_bytes, || report.to_string())?;
    Ok(report.to_string())
}
