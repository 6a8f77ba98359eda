//! The 22 queries, each checked against a stored answer.

use std::time::{Duration, Instant};

use eris_bench::{Instance, QueryResult, Suite, run_query};

use crate::demo::screen::{Progress, seconds};

/// A round of all queries.
pub struct Round {
    pub elapsed: Duration,
    results: Vec<QueryResult>,
}

pub fn run(instance: &Instance, scale_factor: f64) -> Round {
    let start = Instant::now();
    let mut progress = Progress::new();
    let mut results = Vec::new();
    for query in &Suite::Tpch.queries(scale_factor) {
        progress.show(&format!("  {} ...", query.name));
        results.push(run_query(instance, query, 0));
    }
    let round = Round { elapsed: start.elapsed(), results };
    progress.done(&format!("  {} queries in {}", round.results.len(), seconds(round.elapsed)));
    round
}

impl Round {
    pub fn print(&self) {
        println!("\n  query   time (ms)   plan (ms)   rows   executed   answer");
        for result in &self.results {
            println!(
                "  {:<5} {:>11.1} {:>11.1} {:>6}   {:<8}   {}",
                result.name,
                result.median_ms,
                result.plan_ms,
                result.rows,
                if result.native { "native" } else { "fallback" },
                result.answer,
            );
        }
    }

    pub fn wrong(&self) -> usize {
        self.results.iter().filter(|result| !result.is_right()).count()
    }

    pub fn mean_ms(&self) -> f64 {
        self.results.iter().map(|result| result.median_ms).sum::<f64>() / self.results.len().max(1) as f64
    }

    pub fn planning(&self) -> Duration {
        Duration::from_secs_f64(self.results.iter().map(|result| result.plan_ms).sum::<f64>() / 1e3)
    }

    /// In one word, if none is wrong: some scale factors have no stored answers.
    pub fn verdict(&self) -> &'static str {
        if self.results.iter().all(|result| result.answer == "ok") { "right" } else { "unchecked or right" }
    }
}
