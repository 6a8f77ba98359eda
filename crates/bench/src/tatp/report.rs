//! The JSON that `eris bench tatp` writes; its fields stay, so that figures can be compared over time.

use eris_workloads::histogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize)]
pub struct TatpReport {
    pub benchmark: &'static str,
    pub throughput_per_s: f64,
    /// Those of them that ended in a commit.
    pub qualified_per_s: f64,
    /// CPU time of the server while measuring, per completed transaction; the whole process when the server is part of
    /// it, `null` when no process is known.
    pub server_cpu_us_per_tx: Option<f64>,
    /// By kind of transaction; `null` where none completed.
    pub success_ratio: BTreeMap<&'static str, Option<f64>>,
    pub latency_us: Latency,
    pub results: Vec<KindResult>,
    pub retries: u64,
    pub subscribers: u32,
    pub measured_s: f64,
    pub clients: u32,
    /// Threads that the clients share; `null` for tasks.
    pub client_threads: Option<u32>,
    pub via: &'static str,
    /// Of the engine in this process; `null` for a server elsewhere.
    pub workers: Option<usize>,
    pub nodes: Option<usize>,
    pub partitions: Option<usize>,
    /// Whether commits go into a log, and whether they wait for it: `none`, `synchronous`, `asynchronous`.
    pub log: Option<&'static str>,
    pub in_place: Option<bool>,
    pub keys: &'static str,
    pub permuted_numbers: bool,
    pub foreign_keys: &'static str,
    pub throughput_rule: &'static str,
    pub success_rule: &'static str,
    /// How `GET_NEW_DESTINATION` asks for its two tables.
    pub new_destination: &'static str,
    pub load_ms: f64,
    pub consistent: bool,
    pub rows_checked: u64,
    pub violations: u64,
    pub violation_examples: Vec<String>,
    /// The engine's counters at the end; empty for a server elsewhere.
    pub counters: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    pub fn of(histogram: &Histogram) -> Self {
        let us = |quantile| histogram.quantile_ns(quantile) as f64 / 1_000.0;
        Self { p50: us(0.5), p90: us(0.9), p99: us(0.99), p999: us(0.999), max: histogram.max_ns() as f64 / 1_000.0 }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct KindResult {
    pub name: &'static str,
    pub completed: u64,
    pub success: u64,
    pub empty: u64,
    pub rejected: u64,
    pub retries: u64,
    pub latency_us: Latency,
}
