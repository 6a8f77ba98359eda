//! The JSON that `eris bench tpch` and `eris bench jcch` write; its fields stay, so that figures can be compared over
//! time.

use super::churn::Churned;
use super::verdict::{OK, UNCHECKED};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize)]
pub struct AnalyticsReport {
    pub benchmark: &'static str,
    pub scale_factor: f64,
    /// JCC-H: which set of parameters, and whether the queries are those of the workload.
    pub parameters: Option<&'static str>,
    pub workload: bool,
    pub workers: usize,
    pub nodes: usize,
    pub partitions: Option<usize>,
    pub layout: Option<String>,
    pub segment_rows: Option<u32>,
    pub split_rows: Option<u64>,
    /// Clients that inserted, changed and deleted rows beside the queries, and what they ran.
    pub refresh_clients: usize,
    pub refresh_transactions: u64,
    /// What was changed before the queries, whose answers are those of a fresh load then.
    pub churn: Option<Churned>,
    pub repeat: usize,
    /// Sum and geometric mean of the queries' medians.
    pub total_ms: f64,
    pub geomean_ms: f64,
    pub load_ms: f64,
    /// The largest resident set of this process, peers not included.
    pub rss_bytes: u64,
    pub foreign_keys: &'static str,
    pub results: Vec<QueryResult>,
    pub peers: BTreeMap<&'static str, PeerResult>,
    /// The engine's counters at the end.
    pub counters: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct QueryResult {
    pub name: String,
    /// From the SQL text to the last row; the median of the repetitions.
    pub median_ms: f64,
    /// The part of it until the plan was ready.
    pub plan_ms: f64,
    /// Whether the executed plan had native operators only.
    pub native: bool,
    pub rows: usize,
    /// `ok`, `unchecked`, what is wrong, or from which peer it differs, see `verdict`.
    pub answer: String,
}

impl QueryResult {
    /// Neither wrong nor failed.
    pub fn is_right(&self) -> bool {
        matches!(self.answer.as_str(), OK | UNCHECKED)
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct PeerResult {
    pub version: String,
    pub total_ms: f64,
    pub geomean_ms: f64,
    pub load_ms: f64,
    /// Queries whose answers equal the stored ones, or those of ERIS where none is stored, as far as the peer prints
    /// digits.
    pub answers_right: usize,
    /// Medians in milliseconds, `null` for a query that the peer could not run.
    pub results: BTreeMap<String, Option<f64>>,
    /// Why it could not.
    pub errors: BTreeMap<String, String>,
}

impl AnalyticsReport {
    /// Which queries are not right, and what is wrong with each.
    pub fn check(&self) -> Result<(), String> {
        all_right(&self.results)
    }
}

fn all_right(results: &[QueryResult]) -> Result<(), String> {
    let wrong = results.iter().filter(|result| !result.is_right());
    let wrong: Vec<String> = wrong.map(|result| format!("{} {}", result.name, result.answer)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("not every answer is right: {}", wrong.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_which_answers_are_not_right() {
        let result = |name: &str, answer: &str| {
            let (name, answer) = (name.to_owned(), answer.to_owned());
            QueryResult { name, median_ms: 1.0, plan_ms: 0.5, native: true, rows: 1, answer }
        };
        assert_eq!(all_right(&[result("q1", OK), result("q2", UNCHECKED)]), Ok(()));
        let results = [result("q1", "wrong: 3 rows"), result("q2", OK), result("q18", "failed: no memory")];
        let said = "not every answer is right: q1 wrong: 3 rows; q18 failed: no memory";
        assert_eq!(all_right(&results), Err(said.to_owned()));
    }
}
