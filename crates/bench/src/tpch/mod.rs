//! `eris bench tpch`: load, run the 22 queries beside their peers, check every answer, report.

mod load;
mod peers;
mod refresh;
mod report;

#[cfg(test)]
mod plans;

pub use load::{Loaded, load};
pub use peers::{Peer, PeerAnswer, PeerKind};
pub use report::{PeerResult, QueryResult, TpchReport};

use crate::error::BenchError;
use crate::figures::{geometric_mean, median};
use crate::instance::{Instance, InstanceOptions};
use crate::process::ProcessId;
use eris_workloads::tpch::{FOREIGN_KEYS, QueryNumber, StoredAnswer, dump};
use refresh::Refresh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq)]
pub struct TpchOptions {
    pub scale_factor: f64,
    /// A directory of `.tbl` files; without one the rows are generated straight into the tables.
    pub data: Option<PathBuf>,
    pub workers: usize,
    pub nodes: usize,
    pub partitions: Option<usize>,
    pub layout: Option<String>,
    pub segment_rows: Option<u32>,
    /// A partition with more rows than this is split.
    pub split_rows: Option<u64>,
    /// Clients that insert, change and delete orders beside the queries, see `refresh`.
    pub refresh_clients: usize,
    pub memory_limit_bytes: u64,
    pub repeat: usize,
    pub peers: Vec<PeerKind>,
}

impl Default for TpchOptions {
    fn default() -> Self {
        Self {
            scale_factor: 1.0,
            data: None,
            workers: 2,
            nodes: 1,
            partitions: None,
            layout: None,
            segment_rows: None,
            split_rows: None,
            refresh_clients: 0,
            memory_limit_bytes: 16 << 30,
            repeat: 3,
            peers: Vec::new(),
        }
    }
}

impl TpchOptions {
    fn validate(&self) -> Result<(), BenchError> {
        let refuse = |message: &str| Err(BenchError::Options(message.to_owned()));
        if !(self.scale_factor > 0.0 && self.scale_factor.is_finite()) {
            return refuse("--sf is a positive number");
        }
        if self.repeat == 0 {
            return refuse("--repeat is at least 1");
        }
        Ok(())
    }

    /// What stands between the parentheses of each table's WITH clause.
    fn storage_options(&self) -> String {
        let layout = self.layout.as_ref().map(|layout| format!("layout = {layout}"));
        let partitions = self.partitions.map(|partitions| format!("partitions = {partitions}"));
        let segment_rows = self.segment_rows.map(|rows| format!("segment_rows = {rows}"));
        [layout, partitions, segment_rows].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Runs the benchmark; `progress` gets a line per step.
pub fn tpch(options: &TpchOptions, progress: &mut dyn FnMut(&str)) -> Result<TpchReport, BenchError> {
    options.validate()?;
    let instance = Instance::start(&InstanceOptions {
        workers: options.workers,
        nodes: options.nodes,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: true,
        split_rows: options.split_rows,
    })?;
    progress(&format!("loading scale factor {}", options.scale_factor));
    let load = load(&instance, options)?.took;
    let mut peers = start_peers(options, progress)?;
    let refresh = Refresh::start(&instance, options.refresh_clients, options.scale_factor)?;
    let mut results = Vec::new();
    let mut peer_runs: Vec<PeerRuns> = peers.iter().map(|_| PeerRuns::default()).collect();
    for query in QueryNumber::all() {
        let mut runs = Vec::new();
        for repetition in 0..options.repeat {
            // A wrong or failed query is not repeated; its peers still are.
            if runs.iter().all(QueryResult::is_right) {
                runs.push(run_query(&instance, query, options.scale_factor, repetition));
            }
            for (peer, runs) in peers.iter_mut().zip(&mut peer_runs) {
                runs.run(peer, query, options.scale_factor)?;
            }
        }
        let Some(result) = summary(runs) else { unreachable!("a query runs at least once") };
        progress(&format!("{:>4}  {:>10.1} ms  {}", result.name, result.median_ms, result.answer));
        results.push(result);
    }
    let refresh_transactions = refresh.end()?;
    let medians: Vec<f64> = results.iter().map(|result| result.median_ms).collect();
    let peer_results = peers.iter().zip(peer_runs).map(|(peer, runs)| (peer.kind.name(), runs.result(peer)));
    let report = TpchReport {
        benchmark: "tpch",
        scale_factor: options.scale_factor,
        workers: options.workers,
        nodes: options.nodes,
        partitions: options.partitions,
        layout: options.layout.clone(),
        segment_rows: options.segment_rows,
        split_rows: options.split_rows,
        refresh_clients: options.refresh_clients,
        refresh_transactions,
        repeat: options.repeat,
        total_ms: medians.iter().sum(),
        geomean_ms: geometric_mean(&medians),
        load_ms: load.as_secs_f64() * 1_000.0,
        rss_bytes: ProcessId::own().rss_peak_bytes().unwrap_or(0),
        foreign_keys: FOREIGN_KEYS,
        results,
        peers: peer_results.collect(),
        counters: instance.counters(),
    };
    instance.shutdown();
    Ok(report)
}

/// Peers read the rows that ERIS reads: the given files, or a dump of the generated rows that is kept for the next run.
fn start_peers(options: &TpchOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Peer>, BenchError> {
    if options.peers.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(data) = &options.data {
        // The given directory may be read-only: its files are linked beside the texts.
        let linked = std::env::temp_dir().join(format!("eris-tpch-linked-{}", std::process::id()));
        dump::write_texts(&linked, options.scale_factor)?;
        load::link_files(data, &linked)?;
        return start_on(&linked, options, progress);
    }
    let texts = std::env::temp_dir().join(format!("eris-tpch-sf{}", options.scale_factor));
    progress("writing the rows for the peers");
    dump::write_directory(&texts, options.scale_factor)?;
    start_on(&texts, options, progress)
}

fn start_on(directory: &Path, options: &TpchOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Peer>, BenchError> {
    let start = |kind: &PeerKind| {
        progress(&format!("loading {}", kind.name()));
        Peer::start(*kind, directory, options.workers)
    };
    options.peers.iter().map(start).collect()
}

/// Runs one query once and checks its answer. `repetition` makes the text unlike any other, so that no cache keyed by
/// text can answer.
pub fn run_query(instance: &Instance, query: QueryNumber, scale_factor: f64, repetition: usize) -> QueryResult {
    let text = unlike_any_other(&query.sql(scale_factor), repetition);
    let name = query.name();
    match instance.query(&text) {
        Ok(answer) => QueryResult {
            name,
            median_ms: answer.total.as_secs_f64() * 1_000.0,
            plan_ms: answer.plan.as_secs_f64() * 1_000.0,
            native: answer.native,
            rows: answer.rows.len(),
            answer: match StoredAnswer::check_result(query, scale_factor, &answer.rows) {
                Ok(check) => check.as_str().to_owned(),
                Err(mismatch) => format!("wrong: {mismatch}"),
            },
        },
        Err(failure) => {
            let answer = format!("failed: {failure}");
            QueryResult { name, median_ms: 0.0, plan_ms: 0.0, native: false, rows: 0, answer }
        }
    }
}

/// The statement with a comment after its first word, where no clean-up of statement texts removes it.
fn unlike_any_other(sql: &str, repetition: usize) -> String {
    let (first, rest) = sql.split_once(char::is_whitespace).unwrap_or((sql, ""));
    format!("{first} /* repetition {repetition} */ {rest}")
}

/// The repetitions of one query as one result: medians, or the first run that was not right.
fn summary(runs: Vec<QueryResult>) -> Option<QueryResult> {
    let median_of = |part: fn(&QueryResult) -> f64| median(&runs.iter().map(part).collect::<Vec<_>>());
    let (median_ms, plan_ms) = (median_of(|run| run.median_ms), median_of(|run| run.plan_ms));
    let wrong = runs.iter().position(|run| !run.is_right()).unwrap_or(0);
    let result = runs.into_iter().nth(wrong)?;
    Some(QueryResult { median_ms, plan_ms, ..result })
}

/// A peer's repetitions of all queries.
#[derive(Debug, Default)]
struct PeerRuns {
    elapsed_ms: BTreeMap<QueryNumber, Vec<f64>>,
    right: BTreeMap<QueryNumber, bool>,
}

impl PeerRuns {
    fn run(&mut self, peer: &mut Peer, query: QueryNumber, scale_factor: f64) -> Result<(), BenchError> {
        if let Ok(answer) = peer.query(&query.name(), &query.sql(scale_factor))? {
            self.elapsed_ms.entry(query).or_default().push(answer.elapsed_ms);
            let stored = StoredAnswer::find(query, scale_factor);
            let right = stored.is_some_and(|stored| stored.check_as_printed(&answer.rows).is_ok());
            *self.right.entry(query).or_insert(true) &= right;
        }
        Ok(())
    }

    fn result(&self, peer: &Peer) -> PeerResult {
        let medians = QueryNumber::all().map(|query| (query.name(), self.elapsed_ms.get(&query).map(|ms| median(ms))));
        let results: BTreeMap<String, Option<f64>> = medians.collect();
        let known: Vec<f64> = results.values().flatten().copied().collect();
        PeerResult {
            version: peer.version.clone(),
            total_ms: known.iter().sum(),
            geomean_ms: geometric_mean(&known),
            load_ms: peer.load_ms,
            answers_right: self.right.values().filter(|right| **right).count(),
            results,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(median_ms: f64, answer: &str) -> QueryResult {
        QueryResult { name: "q1".to_owned(), median_ms, plan_ms: 1.0, native: true, rows: 4, answer: answer.to_owned() }
    }

    #[test]
    fn one_wrong_run_makes_a_query_wrong() {
        let runs = vec![result(1.0, "ok"), result(3.0, "wrong: 3 rows"), result(2.0, "ok")];
        let summary = summary(runs).unwrap();
        assert_eq!(summary.answer, "wrong: 3 rows");
        assert!((summary.median_ms - 2.0).abs() < 1e-12);
    }

    #[test]
    fn repetitions_differ_in_text_only() {
        assert_eq!(unlike_any_other("select\n    1", 2), "select /* repetition 2 */     1");
    }

    #[test]
    fn storage_options_are_those_given() {
        let mut options = TpchOptions::default();
        assert_eq!(options.storage_options(), "");
        options.layout = Some("mixed".to_owned());
        options.segment_rows = Some(1_000);
        assert_eq!(options.storage_options(), "layout = mixed, segment_rows = 1000");
    }

    #[test]
    fn impossible_options_are_refused() {
        for options in [
            TpchOptions { scale_factor: 0.0, ..TpchOptions::default() },
            TpchOptions { scale_factor: f64::NAN, ..TpchOptions::default() },
            TpchOptions { repeat: 0, ..TpchOptions::default() },
        ] {
            assert!(matches!(options.validate(), Err(BenchError::Options(_))), "{options:?}");
        }
    }
}
