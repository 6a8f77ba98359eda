//! The JSON that `eris bench mixed` writes; its fields stay, so that figures can be compared over time.

use std::collections::BTreeMap;

use eris_workloads::tatp::{Consistency, THROUGHPUT_RULE};
use serde::Serialize;

use super::{Measured, MixedOptions, TATP_CLIENTS, heartbeat};
use crate::analytics::Loaded;
use crate::figures::{median, quantile};
use crate::instance::Instance;
use crate::latencies::Latencies;
use crate::process::ProcessId;
use crate::tatp::Latency;

const ARRIVALS: &str = "open loop, from timer tasks inside the workers; latency from the intended arrival";
const SHOWN: &str = "ratios and shares: medians of those of the rounds; rates and times: medians of the rounds, \
                     and each where so named; latencies: of all rounds together where nothing else is said";
const STREAM: &str = "the 22 queries one after the other over SQL, each in a transaction that reads the heartbeat \
                      first; from the text of a query to its last row, without the reading";

#[derive(Clone, Debug, Serialize)]
pub struct MixedReport {
    pub benchmark: &'static str,
    pub workers: usize,
    pub scale_factor: f64,
    pub tpch_rows: u64,
    pub tpch_value_bytes: u64,
    pub subscribers: u32,
    /// Rows of the container that is read, 16 bytes each.
    pub rows: u64,
    pub rss_bytes: u64,
    pub load_percent: u32,
    pub rounds: usize,
    pub arrivals: &'static str,
    pub shown: &'static str,
    pub point_reads: PointReadsReport,
    pub stream: StreamReport,
    pub tatp: TatpBeside,
    pub freshness: Freshness,
    /// The engine's counters at the end.
    pub counters: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PointReadsReport {
    pub capacity_per_s: f64,
    pub reads_per_s: f64,
    /// Arrivals at threads that do nothing else, without the engine.
    pub machine: Latencies,
    pub alone: Latencies,
    pub beside_stream: Latencies,
    /// p99 beside the stream, of that alone.
    pub p99_ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    pub rule: &'static str,
    pub alone_ms: f64,
    pub alone_ms_of_rounds: Vec<f64>,
    pub beside_reads_ms_of_rounds: Vec<f64>,
    pub beside_tatp_ms_of_rounds: Vec<f64>,
    /// Of its speed alone.
    pub share_beside_reads: f64,
    pub share_beside_tatp: f64,
    /// How many were `ok`, `unchecked`, or whatever is wrong.
    pub answers: BTreeMap<String, u64>,
    pub right: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct TatpBeside {
    pub clients: u32,
    pub throughput_rule: &'static str,
    /// In the closed loop, alone.
    pub capacity_per_s: f64,
    /// Beside the stream: how many were due, and how many were done by its end.
    pub asked_per_s: f64,
    pub done_per_s: f64,
    pub latency_us: Latency,
    pub consistent: bool,
    pub violations: u64,
    pub violation_examples: Vec<String>,
}

/// Of the newest commit that a query sees, beside TATP.
#[derive(Clone, Debug, Serialize)]
pub struct Freshness {
    pub rule: &'static str,
    pub queries: usize,
    pub age_p50_us: f64,
    pub age_max_us: f64,
    /// Queries that did not see a commit which had been told before they began.
    pub stale: usize,
    pub commits: u64,
    /// From one commit to the next.
    pub interval_p50_us: f64,
    pub interval_max_us: f64,
}

impl MixedReport {
    /// Whether answers, tables and snapshots are what they have to be.
    pub fn is_right(&self) -> bool {
        self.stream.right && self.tatp.consistent && self.freshness.stale == 0
    }
}

pub(super) fn report(
    options: &MixedOptions,
    instance: &Instance,
    loaded: Loaded,
    (answers, right): (BTreeMap<String, u64>, bool),
    consistency: Consistency,
    measured: &Measured,
) -> MixedReport {
    let tatp = &measured.tatp;
    MixedReport {
        benchmark: "mixed",
        workers: options.workers,
        scale_factor: options.scale_factor,
        tpch_rows: loaded.rows,
        tpch_value_bytes: loaded.value_bytes,
        subscribers: options.subscribers,
        rows: options.rows,
        rss_bytes: ProcessId::own().rss_peak_bytes().unwrap_or(0),
        load_percent: options.load_percent,
        rounds: measured.rounds,
        arrivals: ARRIVALS,
        shown: SHOWN,
        point_reads: point_reads(measured),
        stream: StreamReport {
            rule: STREAM,
            alone_ms: median(&measured.alone_ms),
            share_beside_reads: ratio(&measured.alone_ms, &measured.beside_reads_ms),
            share_beside_tatp: ratio(&measured.alone_ms, &measured.beside_tatp_ms),
            alone_ms_of_rounds: measured.alone_ms.clone(),
            beside_reads_ms_of_rounds: measured.beside_reads_ms.clone(),
            beside_tatp_ms_of_rounds: measured.beside_tatp_ms.clone(),
            answers,
            right,
        },
        tatp: TatpBeside {
            clients: TATP_CLIENTS,
            throughput_rule: THROUGHPUT_RULE,
            capacity_per_s: median(&tatp.capacities),
            asked_per_s: median(&tatp.asked_per_s),
            done_per_s: median(&tatp.done_per_s),
            latency_us: Latency::of(&tatp.latency),
            consistent: consistency.is_consistent(),
            violations: consistency.violations,
            violation_examples: consistency.examples,
        },
        freshness: freshness(measured),
        counters: instance.counters(),
    }
}

fn point_reads(measured: &Measured) -> PointReadsReport {
    let (alone, beside_stream) = (measured.alone.latencies(), measured.beside.latencies());
    PointReadsReport {
        capacity_per_s: median(&measured.read_capacities),
        reads_per_s: median(&measured.reads_per_s),
        machine: measured.machine.latencies(),
        p99_ratio: ratio(&beside_stream.p99_us_of_rounds, &alone.p99_us_of_rounds),
        alone,
        beside_stream,
    }
}

fn freshness(measured: &Measured) -> Freshness {
    let ages_us: Vec<f64> = measured.seen.iter().map(|seen| seen.age.as_secs_f64() * 1e6).collect();
    Freshness {
        rule: heartbeat::RULE,
        queries: ages_us.len(),
        age_p50_us: median(&ages_us),
        age_max_us: quantile(&ages_us, 1.0),
        stale: measured.seen.iter().filter(|seen| seen.stale).count(),
        commits: measured.heartbeat.count(),
        interval_p50_us: measured.heartbeat.quantile_ns(0.5) as f64 / 1e3,
        interval_max_us: measured.heartbeat.max_ns() as f64 / 1e3,
    }
}

/// The median of the rounds' ratios.
fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}
