//! Latencies that were measured in rounds, as reports show them.

use eris_workloads::histogram::Histogram;
use serde::Serialize;

use crate::figures::median;

/// Of all rounds together, where nothing else is said.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    pub count: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p99_us_of_rounds: Vec<f64>,
    /// The median of the rounds.
    pub p999_us: f64,
    pub p999_us_of_all: f64,
    pub p999_us_of_rounds: Vec<f64>,
    pub max_us: f64,
}

/// The latencies of one kind, round by round and together.
#[derive(Default)]
pub(crate) struct Rounds {
    all: Histogram,
    p99_us: Vec<f64>,
    p999_us: Vec<f64>,
}

impl Rounds {
    pub fn add(&mut self, latency: &Histogram) {
        self.all.merge(latency);
        self.p99_us.push(us(latency, 0.99));
        self.p999_us.push(us(latency, 0.999));
    }

    pub fn count(&self) -> u64 {
        self.all.count()
    }

    pub fn latencies(&self) -> Latencies {
        Latencies {
            count: self.all.count(),
            p50_us: us(&self.all, 0.5),
            p99_us: us(&self.all, 0.99),
            p99_us_of_rounds: self.p99_us.clone(),
            p999_us: median(&self.p999_us),
            p999_us_of_all: us(&self.all, 0.999),
            p999_us_of_rounds: self.p999_us.clone(),
            max_us: self.all.max_ns() as f64 / 1e3,
        }
    }
}

fn us(latency: &Histogram, quantile: f64) -> f64 {
    latency.quantile_ns(quantile) as f64 / 1e3
}
