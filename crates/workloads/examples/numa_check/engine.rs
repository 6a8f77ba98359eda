//! The engine on all nodes: workers on their cpus, columns at home, transactions that stay consistent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eris_engine::{Coalescing, Engine, EngineOptions, Event, MoveMethod, PlacementError};
use eris_platform::interleave::interleave_allocations;
use eris_platform::{NodeId, Pinning, RealEnv, limits};
use eris_storage::PartitionId;
use eris_workloads::kv::{Baseline, KvOptions, KvStore, drive};
use eris_workloads::tatp::task::{Containers, StorageOptions};
use eris_workloads::tatp::{
    KeyDistribution, Population, PopulationOptions, RunOptions, check as consistency, run_over_tasks,
};

use crate::machine::read;
use crate::{Report, ensure};

const SUBSCRIBERS: u32 = 20_000;
const SEGMENT_ROWS: u32 = 4_096;
/// Of the key-value store: some tens of megabytes.
const PAIRS: u64 = 1_000_000;
/// How often a move is tried while somebody is at the partition, and the pause before the next time.
const MOVES_MAX: usize = 100;
const MOVE_PAUSE: Duration = Duration::from_millis(50);
/// Within this time maintenance has taken all columns along; an emulated machine takes seconds.
const FOLLOW_MAX: Duration = Duration::from_mins(2);

fn words(error: impl Display) -> String {
    error.to_string()
}

pub fn check(report: &mut Report) {
    // First: later there would be freed memory that the allocator uses again.
    report.check("interleaved memory of the key-value store is spread", interleaved);
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
    report.check("columns follow partitions that are linked", |_| moved(&engine, NodeId(0), MoveMethod::Link));
    report.check("columns follow partitions that are copied", |_| moved(&engine, NodeId(1), MoveMethod::Copy));
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

/// Moves all partitions to one node, and waits until their columns are there and nowhere else.
fn moved(engine: &Engine, to: NodeId, method: MoveMethod) -> Result<String, String> {
    let bytes = |engine: &Engine| -> Vec<u64> {
        engine.node_memory().iter().map(|node| node.column_bytes.unwrap_or(0)).collect()
    };
    let before: u64 = bytes(engine).iter().sum();
    let mut moved = 0;
    for partition in engine.partitions().iter().filter(|partition| partition.home != to) {
        move_to(engine, partition.id, to, method)?;
        moved += 1;
    }
    ensure(moved > 0, || format!("all partitions are on {to} already"))?;
    let begun = Instant::now();
    while bytes(engine).iter().enumerate().any(|(node, bytes)| node != to.index() && *bytes > 0) {
        ensure(begun.elapsed() < FOLLOW_MAX, || format!("columns of {moved} partitions stay: {:?}", bytes(engine)))?;
        std::thread::sleep(MOVE_PAUSE);
    }
    let nodes = engine.node_memory();
    let node = &nodes[to.index()];
    let (after, location) = (bytes(engine)[to.index()], node.location.as_ref().ok_or("the node has no arena")?);
    // Copied rows are in open segments first; those that are no full segment stay there for a while.
    ensure(after * 4 > before, || format!("{after} of {before} bytes followed {moved} partitions"))?;
    ensure(location.bytes_away_from(node.memory_node) == 0, || format!("columns of {to} lie elsewhere: {location}"))?;
    Ok(format!("{moved} partitions, {after} bytes of columns on {to} and none elsewhere"))
}

fn move_to(engine: &Engine, id: PartitionId, to: NodeId, method: MoveMethod) -> Result<(), String> {
    for _ in 0..MOVES_MAX {
        let mover = engine.clone();
        let result = engine.block_on(async move { mover.move_partition(id, to, method).await }).map_err(words)?;
        match result {
            // Somebody is at it, or it went with a change of its own.
            Err(PlacementError::Busy(_)) => std::thread::sleep(MOVE_PAUSE),
            Err(PlacementError::NoSuchPartition(_)) | Ok(()) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("{id:?} is busy all the time"))
}

/// Fills and drives the comparator whose memory is spread; on a thread of its own: the policy is a thread's, and that
/// of all it starts.
fn interleaved(report: &mut Report) -> Result<String, String> {
    let topology = read();
    let options = KvOptions {
        pairs: PAIRS,
        seconds: report.number("seconds").unwrap_or(2) as f64,
        warm_up_seconds: 0.2,
        workers: topology.cpus().count(),
        nodes: topology.nodes.len(),
        coalescing: Coalescing::Sender,
        baseline: Some(Baseline::Interleaved),
        memory_limit_bytes: 512 << 20,
        ..KvOptions::default()
    };
    let run = std::thread::scope(|scope| {
        let spread = scope.spawn(|| -> Result<_, String> {
            interleave_allocations(&topology).map_err(words)?;
            let before = resident_by_node()?;
            let store = KvStore::load(Arc::new(RealEnv::new()), &options).map_err(words)?;
            let after = resident_by_node()?;
            // Every answer is checked.
            let run = drive(&store, &options).map_err(words)?;
            store.engine().shutdown();
            let grown = |node: &NodeId| after.get(node).unwrap_or(&0).saturating_sub(*before.get(node).unwrap_or(&0));
            Ok((topology.nodes.iter().map(|node| grown(&node.id)).collect::<Vec<u64>>(), run))
        });
        spread.join().map_err(|_| "the thread panicked".to_owned())?
    });
    let (grown, run) = run?;
    let (all, least) = (grown.iter().sum::<u64>(), *grown.iter().min().unwrap_or(&0));
    // Some of it is memory of the threads, which is used again.
    ensure(all > PAIRS * 16 && least * grown.len() as u64 * 2 > all, || format!("bytes by node {grown:?}"))?;
    report.figure("key-value lookups, interleaved", run.throughput_per_s().round(), "1/s");
    Ok(format!("bytes by node {grown:?}, {:.0} lookups/s", run.throughput_per_s()))
}

/// Bytes of this process on each NUMA node of the operating system.
fn resident_by_node() -> Result<BTreeMap<NodeId, u64>, String> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").map_err(words)?;
    let mut bytes = BTreeMap::new();
    for line in maps.lines() {
        let named = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        let page = named("kernelpagesize_kB=").unwrap_or(4) << 10;
        for word in line.split(' ') {
            let counted = word.strip_prefix('N').and_then(|word| word.split_once('='));
            if let Some((node, pages)) = counted
                && let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>())
            {
                *bytes.entry(NodeId(node)).or_default() += pages * page;
            }
        }
    }
    Ok(bytes)
}

fn watched(engine: &Engine) -> Result<String, String> {
    let report = engine.memory_report().ok_or("nobody watches")?;
    ensure(report.observation.resident_bytes.is_some(), || report.to_string())?;
    ensure(report.accounted_bytes > 0 && report.limit_bytes <= report.configured_bytes, || report.to_string())?;
    Ok(report.to_string())
}
