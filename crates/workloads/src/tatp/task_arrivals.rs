//! The mix by the clock, for as long as some other work takes: each client is a task that knows when its next
//! transaction is due.
//!
//! A client has one transaction under way, as in the closed loop, so that half the rate of that loop is half its work.
//! Who is late makes up for it. Latency counts from when a transaction was due.

use super::keys::KeyDistribution;
use super::population::Population;
use super::statistics::{RunResult, Statistics};
use super::task::TaskClient;
use super::task_driver::{TURN, complete, merged};
use super::transactions::Inputs;
use crate::beside::{Work, WorkEnd};
use eris_engine::{EngineError, yield_now};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Which transactions come, and how many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalOptions {
    pub clients: u32,
    /// Over all clients.
    pub transactions_per_s: f64,
    pub keys: KeyDistribution,
    pub seed: u64,
}

/// Drives the mix with copies of this client until the work has ended; gives what the work ends with, too.
///
/// Transactions that were due by then and not begun are not made up for: they are missing in the throughput.
pub fn run_arrivals_beside<T: Send + 'static>(
    client: &TaskClient,
    population: &Arc<Population>,
    options: &ArrivalOptions,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(RunResult, T), EngineError> {
    let engine = client.engine();
    let clients = f64::from(options.clients);
    let between = Duration::from_secs_f64(clients / options.transactions_per_s);
    let (sender, receiver) = mpsc::channel();
    let begin = engine.env().now();
    let work = Work::start(engine, work);
    for number in 0..options.clients {
        let inputs = Inputs::new(Arc::clone(population), options.keys, options.seed.wrapping_add(u64::from(number)));
        let first = between.mul_f64(f64::from(number) / clients);
        let (client, work_end, sender) = (client.clone(), work.end().clone(), sender.clone());
        engine.spawn(async move {
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(arrive(client, inputs, first, between, work_end).await);
        });
    }
    drop(sender);
    let statistics = merged(&receiver, options.clients)?;
    let measured = engine.env().now() - begin;
    Ok((RunResult { statistics, measured }, work.value()?))
}

/// One client's transactions when they are due, until the work beside them has ended.
async fn arrive(
    mut client: TaskClient,
    mut inputs: Inputs,
    first: Duration,
    between: Duration,
    work_end: WorkEnd,
) -> Result<Statistics, EngineError> {
    let engine = client.engine().clone();
    let env = Arc::clone(engine.env());
    let begin = env.now();
    let mut statistics = Statistics::default();
    let mut now = begin;
    let mut turn_ends = begin + TURN;
    for number in 0_u32.. {
        let due = begin + first + between * number;
        let early = now < due;
        if early {
            engine.sleep_until(due).await;
        } else if now >= turn_ends {
            yield_now().await;
        }
        if early || now >= turn_ends {
            now = env.now();
            turn_ends = now + TURN;
        }
        if work_end.is_by(now) {
            break;
        }
        let transaction = inputs.draw();
        let (completed, retries) = complete(&mut client, &transaction).await?;
        now = env.now();
        statistics.record(transaction.kind(), completed, retries, Some(now - due));
    }
    Ok(statistics)
}
