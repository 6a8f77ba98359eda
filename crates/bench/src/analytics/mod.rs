//! `eris bench tpch` and `eris bench jcch`: load, run the queries beside their peers, check every answer, report.

mod churn;
mod load;
mod options;
mod peers;
#[cfg(test)]
mod plans;
mod refresh;
mod report;
mod statements;
mod suite;
mod verdict;

pub use churn::Churned;
pub use load::{Loaded, load};
pub use options::AnalyticsOptions;
pub use peers::{Peer, PeerAnswer, PeerKind};
pub use report::{AnalyticsReport, PeerResult, QueryResult};
pub use suite::{Generator, Query, Suite};
pub(crate) use verdict::Verdict;

use crate::error::BenchError;
use crate::figures::{geometric_mean, median};
use crate::instance::{Instance, TimedAnswer};
use crate::process::ProcessId;
use eris_workloads::connection::SqlFailure;
use eris_workloads::jcch::ParameterSet;
use eris_workloads::tpch::{FOREIGN_KEYS, forget_texts};
use refresh::Refresh;
use std::collections::BTreeMap;
use std::path::Path;

/// Runs the benchmark; `progress` gets a line per step.
pub fn analytics(options: &AnalyticsOptions, progress: &mut dyn FnMut(&str)) -> Result<AnalyticsReport, BenchError> {
    options.validate()?;
    let instance = Instance::start(&options.instance_options())?.with_work_mem(options.work_mem_bytes);
    progress(&format!("loading {}, scale factor {}", options.suite.title(), options.scale_factor));
    let loaded = load(&instance, options)?;
    let mut queries = options.suite.queries(options.scale_factor);
    let churned = change_rows(&instance, options, loaded.rows, &mut queries, progress)?;
    let mut peers = start_peers(options, progress)?;
    // All rows are generated, those of peers, too: the memory is the database's from here on.
    forget_texts();
    let refresh = Refresh::start(&instance, options.refresh_clients, options.scale_factor)?;
    let mut results = Vec::new();
    let mut peer_runs: Vec<PeerRuns> = peers.iter().map(|_| PeerRuns::default()).collect();
    for query in &queries {
        let mut runs = Vec::new();
        let mut verdict = Verdict::new(query);
        for repetition in 0..options.repeat {
            // A wrong or failed query is not repeated; its peers still are.
            if runs.iter().all(QueryResult::is_right) {
                runs.push(run_once(&instance, query, &mut verdict, repetition));
            }
            for (peer, runs) in peers.iter_mut().zip(&mut peer_runs) {
                runs.run(peer, query, &mut verdict)?;
            }
        }
        let Some(result) = summary(runs, verdict) else { unreachable!("a query runs at least once") };
        progress(&format!("{:>4}  {:>10.1} ms  {}", result.name, result.median_ms, result.answer));
        results.push(result);
    }
    let refresh_transactions = refresh.end()?;
    let medians: Vec<f64> = results.iter().map(|result| result.median_ms).collect();
    let peer_results = peers.iter().zip(peer_runs).map(|(peer, runs)| (peer.kind.name(), runs.result(peer, &queries)));
    let report = AnalyticsReport {
        benchmark: options.suite.name(),
        scale_factor: options.scale_factor,
        parameters: options.suite.parameters().map(ParameterSet::name),
        workload: options.suite.is_workload(),
        workers: options.workers,
        nodes: options.nodes,
        partitions: options.partitions,
        layout: options.layout.clone(),
        segment_rows: options.segment_rows,
        split_rows: options.split_rows,
        refresh_clients: options.refresh_clients,
        refresh_transactions,
        churn: churned,
        repeat: options.repeat,
        total_ms: medians.iter().sum(),
        geomean_ms: geometric_mean(&medians),
        load_ms: loaded.took.as_secs_f64() * 1_000.0,
        rss_bytes: ProcessId::own().rss_peak_bytes().unwrap_or(0),
        foreign_keys: FOREIGN_KEYS,
        results,
        peers: peer_results.collect(),
        counters: instance.counters(),
    };
    instance.shutdown();
    Ok(report)
}

/// Changes rows at random, if that is asked for; what a fresh load of the rows answers is right from then on.
fn change_rows(
    instance: &Instance,
    options: &AnalyticsOptions,
    loaded_rows: u64,
    queries: &mut [Query],
    progress: &mut dyn FnMut(&str),
) -> Result<Option<Churned>, BenchError> {
    if options.churn == 0 {
        return Ok(None);
    }
    progress(&format!("{} random transactions", options.churn));
    let churned = churn::churn(instance, options.churn)?;
    let rows = (loaded_rows + churned.inserted_rows).saturating_sub(churned.deleted_rows);
    progress(&format!("loading {rows} rows into a fresh instance"));
    churn::answer_by_fresh_load(instance, options, rows, queries)?;
    Ok(Some(churned))
}

/// Peers read the rows that ERIS reads: the given files, or a dump of the generated rows that is kept for the next run.
fn start_peers(options: &AnalyticsOptions, progress: &mut dyn FnMut(&str)) -> Result<Vec<Peer>, BenchError> {
    if options.peers.is_empty() {
        return Ok(Vec::new());
    }
    let generator = options.suite.generator(options.scale_factor)?;
    if let Some(data) = &options.data {
        // The given directory may be read-only: its files are linked beside the texts.
        let name = format!("eris-{}-linked-{}", options.suite.name(), std::process::id());
        let linked = std::env::temp_dir().join(name);
        generator.write_texts(&linked)?;
        load::link_files(data, &linked)?;
        return start_on(&linked, options, progress);
    }
    progress("writing the rows for the peers");
    let kept = generator.kept_directory();
    generator.write_directory(&kept)?;
    start_on(&kept, options, progress)
}

fn start_on(
    directory: &Path,
    options: &AnalyticsOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Peer>, BenchError> {
    let start = |kind: &PeerKind| {
        progress(&format!("loading {}", kind.name()));
        Peer::start(*kind, directory, options.workers)
    };
    options.peers.iter().map(start).collect()
}

/// Runs one query once and checks its answer. `repetition` makes the text unlike any other, so that no cache keyed by
/// text can answer.
pub fn run_query(instance: &Instance, query: &Query, repetition: usize) -> QueryResult {
    run_once(instance, query, &mut Verdict::new(query), repetition)
}

fn run_once(instance: &Instance, query: &Query, verdict: &mut Verdict<'_>, repetition: usize) -> QueryResult {
    judged(query, verdict, instance.query(&unlike_any_other(&query.sql, repetition)))
}

/// What became of a query that ran once, and what is to be said of its answer.
pub(crate) fn judged(query: &Query, verdict: &mut Verdict<'_>, answer: Result<TimedAnswer, SqlFailure>) -> QueryResult {
    let name = query.name.clone();
    match answer {
        Ok(answer) => QueryResult {
            name,
            median_ms: answer.total.as_secs_f64() * 1_000.0,
            plan_ms: answer.plan.as_secs_f64() * 1_000.0,
            native: answer.native,
            rows: answer.rows.len(),
            answer: verdict.on_own(&answer.rows),
        },
        Err(failure) => {
            let answer = format!("failed: {failure}");
            QueryResult { name, median_ms: 0.0, plan_ms: 0.0, native: false, rows: 0, answer }
        }
    }
}

/// The statement with a comment after its first word, where no clean-up of statement texts removes it.
pub(crate) fn unlike_any_other(sql: &str, repetition: usize) -> String {
    let (first, rest) = sql.split_once(char::is_whitespace).unwrap_or((sql, ""));
    format!("{first} /* repetition {repetition} */ {rest}")
}

/// The repetitions of one query as one result: medians, and the first run that was not right or else the verdict.
fn summary(runs: Vec<QueryResult>, verdict: Verdict<'_>) -> Option<QueryResult> {
    let median_of = |part: fn(&QueryResult) -> f64| median(&runs.iter().map(part).collect::<Vec<_>>());
    let (median_ms, plan_ms) = (median_of(|run| run.median_ms), median_of(|run| run.plan_ms));
    let wrong = runs.iter().position(|run| !run.is_right());
    let result = runs.into_iter().nth(wrong.unwrap_or(0))?;
    let answer = if wrong.is_some() { result.answer } else { verdict.in_the_end() };
    Some(QueryResult { median_ms, plan_ms, answer, ..result })
}

/// A peer's repetitions of all queries, by their names.
#[derive(Debug, Default)]
struct PeerRuns {
    elapsed_ms: BTreeMap<String, Vec<f64>>,
    right: BTreeMap<String, bool>,
    errors: BTreeMap<String, String>,
}

impl PeerRuns {
    fn run(&mut self, peer: &mut Peer, query: &Query, verdict: &mut Verdict<'_>) -> Result<(), BenchError> {
        let name = query.name.clone();
        if self.errors.contains_key(&name) {
            return Ok(()); // It may have taken minutes to find out.
        }
        match peer.query(&name, &query.sql)? {
            Ok(answer) => {
                self.elapsed_ms.entry(name.clone()).or_default().push(answer.elapsed_ms);
                *self.right.entry(name).or_insert(true) &= verdict.on_peer(peer.kind, &answer.rows);
            }
            Err(error) => drop(self.errors.insert(name, error)),
        }
        Ok(())
    }

    fn result(self, peer: &Peer, queries: &[Query]) -> PeerResult {
        let median_of = |query: &Query| self.elapsed_ms.get(&query.name).map(|ms| median(ms));
        let results: BTreeMap<String, Option<f64>> =
            queries.iter().map(|query| (query.name.clone(), median_of(query))).collect();
        let known: Vec<f64> = results.values().flatten().copied().collect();
        PeerResult {
            version: peer.version.clone(),
            total_ms: known.iter().sum(),
            geomean_ms: geometric_mean(&known),
            load_ms: peer.load_ms,
            answers_right: self.right.values().filter(|right| **right).count(),
            results,
            errors: self.errors,
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
        let query = &Suite::Tpch.queries(0.01)[0];
        let runs = vec![result(1.0, "ok"), result(3.0, "wrong: 3 rows"), result(2.0, "ok")];
        let wrong = summary(runs, Verdict::new(query)).unwrap();
        assert_eq!(wrong.answer, "wrong: 3 rows");
        assert!((wrong.median_ms - 2.0).abs() < 1e-12);
        assert_eq!(summary(vec![result(1.0, "ok")], Verdict::new(query)).unwrap().answer, "ok");
    }

    #[test]
    fn repetitions_differ_in_text_only() {
        assert_eq!(unlike_any_other("select\n    1", 2), "select /* repetition 2 */     1");
    }
}
