//! `eris bench cache-queries`: the three queries of 001, each beside what the memory gives at best.
//!
//! ```text
//!   a query:   load ─> partitions cut, segments sealed ─> probe of the bandwidth ─> query ──┐ in turns
//!                                                          └───────────<───────────────────┘
//!   in cache:  the scan again, of a column that lies in the second-level cache, by one worker, many times in a row
//! ```
//! Each query has a database of its own, so that only its tables are in memory, and the probe reads as many bytes as
//! the encoded columns have, with as many threads as there are workers. Every answer is compared with what the
//! generator counted ([`eris_workloads::cache_queries`]).

mod cached;
mod report;
mod tables;

pub use report::{CacheQueriesReport, CacheQueryFigures, CachedScan};

use crate::analytics::unlike_any_other;
use crate::error::BenchError;
use crate::figures::median;
use crate::instance::{Instance, InstanceOptions};
use crate::process::ProcessId;
use eris_workloads::cache_queries::{Answers, CacheData, CacheQuery, checksum};
use eris_workloads::columns::BandwidthProbe;
use std::time::Instant;

/// A probe reads at least so many bytes, over and over if need be, so that the start of its threads does not count.
const PROBE_BYTES_MIN: u64 = 1 << 30;

#[derive(Clone, Debug, PartialEq)]
pub struct CacheQueriesOptions {
    pub data: CacheData,
    pub workers: usize,
    /// Partitions of each table without a key; without it tables split by themselves.
    pub partitions: Option<usize>,
    /// Executions of each query; the median counts.
    pub repeat: usize,
    /// The scan in cache: rows, bits of a code, executions in a row.
    pub cached_rows: u64,
    pub cached_bits: u32,
    pub cached_passes: u32,
    pub memory_limit_bytes: u64,
}

impl Default for CacheQueriesOptions {
    fn default() -> Self {
        Self {
            data: CacheData::default(),
            workers: 2,
            partitions: None,
            repeat: 7,
            cached_rows: 1 << 20,
            cached_bits: 4,
            cached_passes: 1_000,
            memory_limit_bytes: 16 << 30,
        }
    }
}

impl CacheQueriesOptions {
    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        let data = &self.data;
        if data.rows == 0 || self.repeat == 0 || self.workers == 0 || self.cached_rows == 0 || self.cached_passes == 0 {
            return refuse("--rows, --repeat, --workers, --cached-rows and --cached-passes are at least 1");
        }
        let domain = 1..=i32::MAX as u32;
        let counts = [data.scanned_values, data.aggregated_values, data.groups, data.keys];
        if !counts.iter().all(|count| domain.contains(count)) {
            return refuse("--values, --aggregated-values, --groups and --keys are 1 to 2147483647");
        }
        if !(1..=30).contains(&self.cached_bits) {
            return refuse("--cached-bits is 1 to 30");
        }
        Ok(())
    }

    fn start(&self, workers: usize) -> Result<Instance, BenchError> {
        Instance::start(&InstanceOptions {
            workers,
            nodes: 1,
            memory_limit_bytes: self.memory_limit_bytes,
            in_place: true,
            split_rows: None,
        })
    }
}

/// Runs the benchmark; `progress` gets a line per step.
pub fn cache_queries(
    options: &CacheQueriesOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<CacheQueriesReport, BenchError> {
    options.validate()?;
    let mut queries = Vec::new();
    for query in CacheQuery::ALL {
        progress(&format!("{}: loading", query.name()));
        let figures = measure(options, query)?;
        progress(&format!(
            "{:>11}  {:>8.3} ns/row  {:>5.1} % of the bandwidth  {}",
            figures.name, figures.ns_per_row, figures.share_of_limit_percent, figures.answer
        ));
        queries.push(figures);
    }
    progress("scan in cache");
    let cached_scan = cached::measure(options)?;
    let rss_bytes = ProcessId::own().rss_peak_bytes().unwrap_or(0);
    Ok(CacheQueriesReport::new(options, queries, cached_scan, rss_bytes))
}

/// One query, in a database that has its tables only.
fn measure(options: &CacheQueriesOptions, query: CacheQuery) -> Result<CacheQueryFigures, BenchError> {
    let instance = options.start(options.workers)?;
    let data = options.data;
    let mut answers = Answers::new(&data, data.thresholds(options.repeat));
    let loading = Instant::now();
    let filled = tables::load(&instance, data, query.tables(), options.partitions, &mut answers)?;
    let load_s = loading.elapsed().as_secs_f64();
    let tables = tables::settled(&instance, &filled)?;
    let read_bytes: u64 = tables.iter().map(|table| table.bytes).sum();
    let probe = BandwidthProbe::new(read_bytes, options.workers);
    let probe_passes = PROBE_BYTES_MIN.div_ceil(probe.bytes()) as u32;
    let mut runs = Runs::default();
    for execution in 0..options.repeat {
        let limit = probe.passes(probe_passes);
        let sql = query.sql(answers.threshold(execution));
        let answer = instance.query(&unlike_any_other(&sql, execution))?;
        let execution_s = answer.total.saturating_sub(answer.plan).as_secs_f64();
        let bytes_per_s = read_bytes as f64 / execution_s;
        runs.total_s.push(answer.total.as_secs_f64());
        runs.plan_s.push(answer.plan.as_secs_f64());
        runs.bytes_per_s.push(bytes_per_s);
        runs.limits.push(limit);
        runs.shares_percent.push(bytes_per_s / limit * 100.0);
        runs.not_native += usize::from(!answer.native);
        runs.rows = answer.rows.len();
        runs.checksum = checksum(&answer.rows);
        if let Err(wrong) = answers.check(query, execution, &answer.rows) {
            runs.wrong.get_or_insert(wrong);
        }
    }
    instance.shutdown();
    Ok(runs.figures(&data, query, tables, load_s, read_bytes))
}

/// The executions of one query.
#[derive(Default)]
struct Runs {
    total_s: Vec<f64>,
    plan_s: Vec<f64>,
    bytes_per_s: Vec<f64>,
    limits: Vec<f64>,
    shares_percent: Vec<f64>,
    /// Executions with an operator that is not native.
    not_native: usize,
    /// Of the last answer.
    rows: usize,
    checksum: i64,
    /// What was wrong first.
    wrong: Option<String>,
}

impl Runs {
    fn figures(
        self,
        data: &CacheData,
        query: CacheQuery,
        tables: Vec<report::TableFigures>,
        load_s: f64,
        read_bytes: u64,
    ) -> CacheQueryFigures {
        let ns_per_row = |seconds: f64| seconds * 1e9 / data.rows as f64;
        let execution_s: Vec<f64> = self.bytes_per_s.iter().map(|rate| read_bytes as f64 / rate).collect();
        CacheQueryFigures {
            name: query.name(),
            sql: query.sql(0).replace("> 0", "> ?"),
            rows: data.rows,
            tables,
            load_s,
            read_bytes,
            ns_per_row: ns_per_row(median(&self.total_s)),
            execution_ns_per_row: ns_per_row(median(&execution_s)),
            plan_us: median(&self.plan_s) * 1e6,
            bytes_per_s: median(&self.bytes_per_s),
            limit_bytes_per_s: median(&self.limits),
            share_of_limit_percent: median(&self.shares_percent),
            share_of_limit_percent_of_runs: self.shares_percent,
            native: self.not_native == 0,
            answer_rows: self.rows,
            answer_checksum: self.checksum,
            answer: report::verdict(self.wrong),
        }
    }
}
