//! TATP over the task API, alone and beside analytical queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eris_bench::{Instance, Suite, run_query};
use eris_engine::{Engine, EngineError};
use eris_workloads::tatp::task::{Containers, StorageOptions};
use eris_workloads::tatp::{
    Consistency, KeyDistribution, Population, PopulationOptions, RunOptions, RunResult, check, run_over_tasks,
};

use crate::demo::screen::count;
use crate::failure::Failure;

/// Clients per worker: enough to keep one busy while others wait.
const CLIENTS_PER_WORKER: u32 = 2;
const WARM_UP: Duration = Duration::from_millis(200);
const SEED: u64 = 1;

/// The four tables in the engine of the demo.
pub struct Tatp {
    engine: Engine,
    pub containers: Containers,
    population: Arc<Population>,
    clients: u32,
    loading: Duration,
}

/// Queries that were answered beside transactions.
#[derive(Default)]
pub struct Beside {
    pub answered: u64,
    pub wrong: usize,
    total_ms: f64,
}

impl Beside {
    pub fn mean_ms(&self) -> f64 {
        self.total_ms / (self.answered.max(1) as f64)
    }
}

impl Tatp {
    pub fn load(engine: &Engine, subscribers: u32, workers: usize) -> Result<Tatp, Failure> {
        let start = Instant::now();
        let population =
            Arc::new(Population::new(PopulationOptions { seed: SEED, ..PopulationOptions::new(subscribers) }));
        let containers = Containers::create(engine, StorageOptions::default())?;
        let (loading, loaded) = (engine.clone(), population.clone());
        engine.block_on(async move { containers.load(&loading, &loaded).await })??;
        let clients = workers as u32 * CLIENTS_PER_WORKER;
        Ok(Tatp { engine: engine.clone(), containers, population, clients, loading: start.elapsed() })
    }

    pub fn load_time(&self) -> Duration {
        self.loading
    }

    pub fn run(&self, seconds: f64) -> Result<RunResult, Failure> {
        self.drive(seconds, SEED + 1)
    }

    /// Runs the transactions while the queries go round and round.
    pub fn run_beside(
        &self,
        seconds: f64,
        instance: &Instance,
        scale_factor: f64,
    ) -> Result<(RunResult, Beside), Failure> {
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let queries = scope.spawn(|| {
                let mut beside = Beside::default();
                for query in Suite::Tpch.queries(scale_factor).iter().cycle() {
                    if !running.load(Ordering::Relaxed) {
                        break;
                    }
                    let result = run_query(instance, query, 1 + beside.answered as usize);
                    beside.answered += 1;
                    beside.total_ms += result.median_ms;
                    beside.wrong += usize::from(!result.is_right());
                }
                beside
            });
            let transactions = self.drive(seconds, SEED + 1_000);
            running.store(false, Ordering::Relaxed);
            let beside = queries.join().map_err(|_| Failure::new("the queries ended without a result"))?;
            Ok((transactions?, beside))
        })
    }

    fn drive(&self, seconds: f64, seed: u64) -> Result<RunResult, Failure> {
        let options = RunOptions {
            clients: self.clients,
            warm_up: WARM_UP,
            measured: Duration::from_secs_f64(seconds),
            keys: KeyDistribution::NonUniform,
            seed,
        };
        Ok(run_over_tasks(&self.engine, self.containers, &self.population, &options, &mut |_| ())?)
    }

    /// Compares the tables with what the runs say they did to them.
    pub fn check(&self, runs: &[&RunResult]) -> Result<Consistency, Failure> {
        let changes: Vec<_> = runs.iter().flat_map(|run| run.statistics.forwarding_changes.iter().copied()).collect();
        let consistency = check(&self.population, &changes, |table, subscribers| {
            let (reading, containers) = (self.engine.clone(), self.containers);
            self.engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
        })?;
        Ok(consistency)
    }
}

pub fn print(label: &str, run: &RunResult) {
    let latency = run.statistics.latency();
    let us = |quantile: f64| latency.quantile_ns(quantile) as f64 / 1e3;
    println!(
        "  {label}: {} transactions/s; latency p50 {:.0} us, p99 {:.0} us, p99.9 {:.0} us; {} retries",
        count(run.throughput_per_s() as u64),
        us(0.5),
        us(0.99),
        us(0.999),
        count(run.statistics.retries()),
    );
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure::new(error)
    }
}
