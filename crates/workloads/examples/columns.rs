//! Column scans against the memory's bandwidth, and point reads beside scans, on the bare engine:
//! `columns [name=value ...]` with the names below; prints JSON.
//!
//! ```text
//! rows=100000000 workers=2 repeat=5 point_rows=1000000 seconds=5 rounds=5 load_percent=50
//! ```
//! `point_rows=0` leaves out the point reads, `rows=0` the scan, which needs twice the memory of its column.

use eris_engine::{Engine, EngineError, EngineOptions};
use eris_platform::RealEnv;
use eris_workloads::columns::{
    BandwidthProbe, PointReads, PointReadsOptions, Shape, capacity, create, expected_sum, machine_noise,
    run_point_reads, sum_values,
};
use eris_workloads::histogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two arrivals that show what the machine does on its own.
const NOISE_BETWEEN: Duration = Duration::from_micros(10);

fn main() -> ExitCode {
    let mut options = BTreeMap::from([
        ("rows", 100_000_000),
        ("workers", 2),
        ("repeat", 5),
        ("point_rows", 1_000_000),
        ("seconds", 5),
        ("rounds", 5),
        ("load_percent", 50),
    ]);
    for argument in std::env::args().skip(1) {
        let parsed = argument.split_once('=').and_then(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
        let Some((option, value)) = parsed.and_then(|(name, value)| Some((options.get_mut(name)?, value))) else {
            eprintln!("\"{argument}\" is not name=number with one of {:?}", options.keys());
            return ExitCode::FAILURE;
        };
        *option = value;
    }
    match run(&options) {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &BTreeMap<&str, u64>) -> Result<Value, EngineError> {
    let workers = options["workers"] as usize;
    let start = |split: bool| {
        let defaults = EngineOptions { workers, memory_limit_bytes: 20 << 30, ..EngineOptions::default() };
        // A column alone is cut by size when it is created.
        let never = EngineOptions { split_rows: u64::MAX, split_bytes: u64::MAX, ..defaults.clone() };
        Engine::start(Arc::new(RealEnv::new()), if split { defaults } else { never })
    };
    let mut report = json!({ "benchmark": "columns", "workers": workers });
    if options["rows"] > 0 {
        let engine = start(false)?;
        report["scan"] = scan(&engine, options["rows"], workers, options["repeat"])?;
        engine.shutdown();
    }
    if options["point_rows"] > 0 && options["rounds"] > 0 {
        let engine = start(true)?;
        report["point_reads"] = point_reads(&engine, options)?;
        engine.shutdown();
    }
    Ok(report)
}

/// Passes over the column and over the probe's memory take turns, so that both meet the same machine.
fn scan(engine: &Engine, rows: u64, workers: usize, repeat: u64) -> Result<Value, EngineError> {
    let bytes = rows * size_of::<i64>() as u64;
    let probe = BandwidthProbe::new(bytes, workers);
    let loading = Instant::now();
    let creator = engine.clone();
    let shape = Shape::ValuesOnly { partitions: 4 * workers };
    let container = engine.block_on(async move { create(&creator, shape, rows).await })??;
    let loaded = loading.elapsed();
    let expected = expected_sum(rows);
    let (mut reached, mut limits, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    assert!(repeat > 0, "a scan has passes");
    for _ in 0..repeat {
        let limit = probe.pass();
        let scanner = engine.clone();
        let started = Instant::now();
        let sum = engine.block_on(async move { sum_values(&scanner, container).await })??;
        let bytes_per_s = bytes as f64 / started.elapsed().as_secs_f64();
        assert!(sum == expected, "the sum of {rows} values is {expected}, not {sum}");
        reached.push(bytes_per_s);
        limits.push(limit);
        shares.push(bytes_per_s / limit);
    }
    let bytes_per_s = median(&reached);
    Ok(json!({
        "rows": rows,
        "bytes": bytes,
        "load_s": loaded.as_secs_f64(),
        "sum": expected,
        "passes": repeat,
        "shown": "the median of the passes; the share is that of each pass and the probe's just before",
        "bytes_per_s": bytes_per_s,
        "rows_per_s": bytes_per_s / size_of::<i64>() as f64,
        "limit_bytes_per_s": median(&limits),
        "limit": "as many threads summing up as many bytes, in the same process",
        "share_of_limit": median(&shares),
        "share_of_limit_of_passes": shares,
    }))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn point_reads(engine: &Engine, options: &BTreeMap<&str, u64>) -> Result<Value, EngineError> {
    let rows = options["point_rows"];
    let creator = engine.clone();
    let (container, other) = engine.block_on(async move {
        let container = create(&creator, Shape::Keyed, rows).await?;
        Ok::<_, EngineError>((container, create(&creator, Shape::Keyed, rows).await?))
    })??;
    let seconds = Duration::from_secs(options["seconds"]);
    // Each of a load that is part of what the machine can do just then: its speed changes from minute to minute. For
    // the same reason all take turns.
    let reads = |beside_scan_of| {
        let possible = capacity(engine, container, rows, Duration::from_secs(2))?;
        let reads_per_s = possible * options["load_percent"] as f64 / 100.0;
        let reads = PointReadsOptions { container, rows, reads_per_s, duration: seconds, seed: 7, beside_scan_of };
        Ok::<_, EngineError>(shown(possible, reads_per_s, &run_point_reads(engine, reads)?))
    };
    let mut runs = [const { Vec::new() }; 3];
    let mut noise = Vec::new();
    for _ in 0..options["rounds"] {
        let latency = machine_noise(engine.worker_count(), NOISE_BETWEEN, seconds);
        noise.push(latencies(&latency));
        for (runs, beside_scan_of) in runs.iter_mut().zip([None, Some(other), Some(container)]) {
            runs.push(reads(beside_scan_of)?);
        }
    }
    let [alone, beside_another, beside_the_same] = runs.map(median_by_p99);
    let mut machine = median_by_p99(noise);
    machine["arrivals"] = json!("every 10 us at threads that only wait for them, without the engine");
    Ok(json!({
        "rows": rows,
        "load_percent": options["load_percent"],
        "quantum_us": engine.options().quantum.as_micros() as u64,
        "arrivals": "open loop, from timer tasks inside the workers; latency from the intended arrival",
        "shown": "of all rounds the one with the median p99",
        "machine": machine,
        "alone": alone,
        "beside_scan_of_another_table": beside_another,
        "beside_scan_of_the_same_table": beside_the_same,
    }))
}

/// The round in the middle, with what the others had.
fn median_by_p99(mut rounds: Vec<Value>) -> Value {
    let p99 = |round: &Value| round["p99_us"].as_f64().unwrap_or(f64::INFINITY);
    rounds.sort_by(|left, right| p99(left).total_cmp(&p99(right)));
    let all: Vec<f64> = rounds.iter().map(p99).collect();
    let mut median = rounds.swap_remove(rounds.len() / 2);
    median["p99_us_of_rounds"] = json!(all);
    median
}

fn shown(capacity_per_s: f64, reads_per_s: f64, reads: &PointReads) -> Value {
    let mut shown = latencies(&reads.latency);
    shown["capacity_per_s"] = json!(capacity_per_s);
    shown["reads_per_s"] = json!(reads_per_s);
    shown["scans"] = json!(reads.scans);
    shown
}

fn latencies(latency: &Histogram) -> Value {
    let quantile = |share| latency.quantile_ns(share) as f64 / 1e3;
    json!({
        "count": latency.count(),
        "p50_us": quantile(0.5),
        "p99_us": quantile(0.99),
        "p999_us": quantile(0.999),
        "max_us": latency.max_ns() as f64 / 1e3,
    })
}
