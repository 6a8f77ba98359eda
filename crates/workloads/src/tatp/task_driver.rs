//! The closed loop over the task API: one task per client, on the engine's own workers and by the engine's own clock.

use super::population::Population;
use super::sql_driver::{Phase, PhaseHook, measured_latency};
use super::statistics::{ATTEMPTS_MAX, RunOptions, RunResult, Statistics};
use super::task::{Containers, TaskClient};
use super::transactions::{Completed, Inputs, Transaction};
use eris_engine::{Engine, EngineError, yield_now};
use eris_platform::Nanos;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long a client keeps its worker before it lets others work: half of what a command may keep a partition.
pub(super) const TURN: Duration = Duration::from_micros(100);

/// When a client stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The time of the run options is over.
    TimeIsOver,
    /// So many transactions are done, all of them measured: for runs that have to repeat exactly.
    Transactions(u64),
}

/// Drives the mix until the time is over; the first error of a client is the run's.
pub fn run(
    engine: &Engine,
    containers: Containers,
    population: &Arc<Population>,
    options: &RunOptions,
    on_phase: PhaseHook<'_>,
) -> Result<RunResult, EngineError> {
    run_clients(&TaskClient::new(engine, containers), population, options, on_phase)
}

/// The same with clients that are copies of this one.
pub fn run_clients(
    client: &TaskClient,
    population: &Arc<Population>,
    options: &RunOptions,
    on_phase: PhaseHook<'_>,
) -> Result<RunResult, EngineError> {
    let engine = client.engine();
    let (sender, receiver) = mpsc::channel();
    for number in 0..options.clients {
        let inputs = Inputs::new(Arc::clone(population), options.keys, options.seed.wrapping_add(u64::from(number)));
        let (client, options, sender) = (client.clone(), *options, sender.clone());
        engine.spawn(async move {
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(drive(client, inputs, options, Until::TimeIsOver).await);
        });
    }
    drop(sender);
    std::thread::sleep(options.warm_up);
    on_phase(Phase::MeasuringBegins);
    std::thread::sleep(options.measured);
    on_phase(Phase::MeasuringEnds);
    Ok(RunResult { statistics: merged(&receiver, options.clients)?, measured: options.measured })
}

/// What all clients counted, once they have ended.
pub(super) fn merged(
    receiver: &mpsc::Receiver<Result<Statistics, EngineError>>,
    clients: u32,
) -> Result<Statistics, EngineError> {
    let mut statistics = Statistics::default();
    for _ in 0..clients {
        let lost = |_| EngineError::OperatorPanicked("a client ended without a result".to_owned());
        statistics.merge(receiver.recv().map_err(lost)??);
    }
    Ok(statistics)
}

/// Runs a transaction until it does not lose against another one; with the number of attempts that were lost.
pub(super) async fn complete(
    client: &mut TaskClient,
    transaction: &Transaction,
) -> Result<(Completed, u64), EngineError> {
    let mut retries = 0;
    loop {
        match client.run(transaction).await {
            Err(error) if error.is_retryable() && retries + 1 < ATTEMPTS_MAX => {
                retries += 1;
                // The other transaction may need this worker to end.
                yield_now().await;
            }
            other => return Ok((other?, retries)),
        }
    }
}

/// One client's loop.
pub async fn drive(
    mut client: TaskClient,
    mut inputs: Inputs,
    options: RunOptions,
    until: Until,
) -> Result<Statistics, EngineError> {
    let env = Arc::clone(client.engine().env());
    let begin = env.now();
    let elapsed = |now: Nanos| Duration::from_nanos(now.as_nanos() - begin.as_nanos());
    let end_at = options.warm_up + options.measured;
    let mut statistics = Statistics::default();
    let mut transactions = 0;
    // Reading the clock costs as much as a small part of a transaction: one begins where its predecessor ended.
    let mut now = begin;
    let mut turn_ends = begin + TURN;
    loop {
        let start = elapsed(now);
        let done = match until {
            Until::TimeIsOver => start >= end_at,
            Until::Transactions(count) => transactions == count,
        };
        if done {
            return Ok(statistics);
        }
        let transaction = inputs.draw();
        let (completed, retries) = complete(&mut client, &transaction).await?;
        now = env.now();
        let end = elapsed(now);
        let latency = match until {
            Until::TimeIsOver => measured_latency(start, end, &options),
            Until::Transactions(_) => Some(end.saturating_sub(start)),
        };
        statistics.record(transaction.kind(), completed, retries, latency);
        transactions += 1;
        // In-place transactions never wait; this lets the worker get to its other duties. Runs that repeat exactly meet
        // each other more often, and their clock stands still within a turn.
        if now >= turn_ends || until != Until::TimeIsOver {
            yield_now().await;
            now = env.now();
            turn_ends = now + TURN;
        }
    }
}
