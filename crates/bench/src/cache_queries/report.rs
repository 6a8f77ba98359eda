//! The JSON that `eris bench cache-queries` writes; its fields stay, so that figures can be compared over time.

use super::CacheQueriesOptions;
use eris_workloads::cache_queries::Held;
use serde::Serialize;

const OK: &str = "ok";
const SHOWN: &str = "medians of the executions; ns_per_row from the text to the last row, by rows of the larger table; \
                     bytes_per_s and shares without the time until the plan was ready, each share beside the probe's \
                     passes just before";
const LIMIT: &str = "measured: as many threads as workers summing up as many bytes as the encoded columns have, in the \
                     same process";

#[derive(Debug, Clone, Serialize)]
pub struct CacheQueriesReport {
    pub benchmark: &'static str,
    pub rows: u64,
    pub scanned_values: u32,
    pub aggregated_values: u32,
    pub groups: u32,
    pub keys: u32,
    pub seed: u64,
    pub workers: usize,
    pub partitions: Option<usize>,
    pub repeat: usize,
    pub shown: &'static str,
    pub limit: &'static str,
    pub foreign_keys: &'static str,
    /// The largest resident set of this process, memory of the probes included.
    pub rss_bytes: u64,
    pub queries: Vec<CacheQueryFigures>,
    pub cached_scan: CachedScan,
}

/// How a table is held.
#[derive(Debug, Clone, Serialize)]
pub struct TableFigures {
    pub name: &'static str,
    pub rows: u64,
    /// Bytes of the values, 4 each, and what they take as they are held.
    pub value_bytes: u64,
    pub bytes: u64,
    pub bits_per_row: f64,
    #[serde(flatten)]
    pub held: Held,
}

#[derive(Debug, Clone, Serialize)]
pub struct CacheQueryFigures {
    pub name: &'static str,
    pub sql: String,
    /// Of the larger table.
    pub rows: u64,
    pub tables: Vec<TableFigures>,
    pub load_s: f64,
    /// Bytes of all columns that the query has to read.
    pub read_bytes: u64,
    pub ns_per_row: f64,
    pub execution_ns_per_row: f64,
    pub plan_us: f64,
    pub bytes_per_s: f64,
    pub limit_bytes_per_s: f64,
    pub share_of_limit_percent: f64,
    pub share_of_limit_percent_of_runs: Vec<f64>,
    /// Whether all executed plans had native operators only.
    pub native: bool,
    /// Of the last answer: its rows, and the sum over their first column.
    pub answer_rows: usize,
    pub answer_checksum: i64,
    /// `ok`, or what was wrong first.
    pub answer: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct CachedScan {
    pub rows: u64,
    pub values: u32,
    pub bits_per_code: u32,
    pub tables: Vec<TableFigures>,
    pub bytes: u64,
    pub l2_bytes: Option<u64>,
    /// `measured` or `unavailable`.
    pub l2_origin: &'static str,
    pub lies_in_l2: Option<bool>,
    pub workers: usize,
    /// Of one plan, in one session.
    pub executions_in_a_row: u32,
    pub execution_us: f64,
    pub codes_per_ns_and_core: f64,
    pub codes_per_ns_and_core_of_runs: Vec<f64>,
    /// An execution of the same query over an empty table.
    pub empty_execution_us: f64,
    /// As if an execution had no other part than its scan: without what the empty table takes.
    pub codes_per_ns_beyond_empty: Option<f64>,
    pub beyond_empty_origin: &'static str,
    pub bytes_per_s: f64,
    pub limit_bytes_per_s: f64,
    pub share_of_limit_percent: f64,
    /// `ok`, or what was wrong first.
    pub answer: String,
}

/// What is said of the answers to a query.
pub(super) fn verdict(wrong: Option<String>) -> String {
    wrong.map_or(OK.to_owned(), |wrong| format!("wrong: {wrong}"))
}

impl CacheQueriesReport {
    pub(super) fn new(
        options: &CacheQueriesOptions,
        queries: Vec<CacheQueryFigures>,
        cached_scan: CachedScan,
        rss_bytes: u64,
    ) -> Self {
        let data = &options.data;
        Self {
            benchmark: "cache-queries",
            rows: data.rows,
            scanned_values: data.scanned_values,
            aggregated_values: data.aggregated_values,
            groups: data.groups,
            keys: data.keys,
            seed: data.seed,
            workers: options.workers,
            partitions: options.partitions,
            repeat: options.repeat,
            shown: SHOWN,
            limit: LIMIT,
            foreign_keys: "not declared",
            rss_bytes,
            queries,
            cached_scan,
        }
    }

    pub fn is_right(&self) -> bool {
        self.queries.iter().map(|query| &query.answer).chain([&self.cached_scan.answer]).all(|answer| answer == OK)
    }
}
