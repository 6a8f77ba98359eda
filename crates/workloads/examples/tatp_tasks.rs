//! TATP on the bare engine, without SQL: `tatp_tasks [name=value ...]` with the names below.
//!
//! ```text
//! subscribers=100000 seconds=5 clients=4 workers=2 nodes=1 partitions=0 in_place=1 uniform=0 updates_in_place=1
//! rows=0 hashed_keys=0
//! ```

use eris_engine::{Engine, EngineError, EngineOptions};
use eris_platform::RealEnv;
use eris_storage::Layout;
use eris_workloads::tatp::task::{Containers, StorageOptions};
use eris_workloads::tatp::{
    KeyDistribution, Population, PopulationOptions, RunOptions, RunResult, TransactionKind, check, run_over_tasks,
};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut options = BTreeMap::from([
        ("subscribers", 100_000),
        ("seconds", 5),
        ("clients", 4),
        ("workers", 2),
        ("nodes", 1),
        ("partitions", 0),
        ("in_place", 1),
        ("uniform", 0),
        ("rows", 0),
        ("hashed_keys", 0),
        ("updates_in_place", 1),
    ]);
    for argument in std::env::args().skip(1) {
        let parsed = argument.split_once('=').and_then(|(name, value)| Some((name, value.parse::<u32>().ok()?)));
        let Some((option, value)) = parsed.and_then(|(name, value)| Some((options.get_mut(name)?, value))) else {
            eprintln!("\"{argument}\" is not name=number with one of {:?}", options.keys());
            return ExitCode::FAILURE;
        };
        *option = value;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &BTreeMap<&str, u32>) -> Result<(), EngineError> {
    let engine_options = EngineOptions {
        workers: options["workers"] as usize,
        nodes: options["nodes"] as usize,
        in_place: options["in_place"] != 0,
        updates_in_place: options["updates_in_place"] != 0,
        memory_limit_bytes: 8 << 30,
        ..EngineOptions::default()
    };
    let engine = Engine::start(Arc::new(RealEnv::new()), engine_options)?;
    let population = Arc::new(Population::new(PopulationOptions::new(options["subscribers"])));
    let partitions = (options["partitions"] > 0).then_some(options["partitions"] as usize);
    let storage = StorageOptions {
        partitions,
        layout: if options["rows"] == 0 { Layout::Default } else { Layout::Row },
        hashed_keys: options["hashed_keys"] != 0,
        ..StorageOptions::default()
    };
    let start = Instant::now();
    let containers = Containers::create(&engine, storage)?;
    let (loading, loaded) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &loaded).await })??;
    println!("loaded in {:.2} s", start.elapsed().as_secs_f64());
    let run_options = RunOptions {
        clients: options["clients"],
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(u64::from(options["seconds"])),
        keys: if options["uniform"] == 0 { KeyDistribution::NonUniform } else { KeyDistribution::Uniform },
        seed: 7,
    };
    let result = run_over_tasks(&engine, containers, &population, &run_options, &mut |_| {})?;
    print(&result);
    for (event, count) in &engine.statistics().events {
        println!("{:>24} {count}", event.name());
    }
    let consistency = check(&population, &result.statistics.forwarding_changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    })?;
    println!("{} rows checked, {} violations {:?}", consistency.rows, consistency.violations, consistency.examples);
    engine.shutdown();
    Ok(())
}

fn print(result: &RunResult) {
    let statistics = &result.statistics;
    println!("{:.0} transactions/s, {} retries", result.throughput_per_s(), statistics.retries());
    for kind in TransactionKind::ALL {
        let counts = statistics.of(kind);
        println!(
            "{:>24} {:>9} {:>6.3} p50 {:>8.1} us p99 {:>8.1} us p99.9 {:>8.1} us",
            kind.name(),
            counts.completed(),
            counts.success_ratio().unwrap_or(f64::NAN),
            counts.latency.quantile_ns(0.5) as f64 / 1e3,
            counts.latency.quantile_ns(0.99) as f64 / 1e3,
            counts.latency.quantile_ns(0.999) as f64 / 1e3,
        );
    }
}
