//! The closed loop over SQL: one thread and one connection per client, no think time.

use super::population::Population;
use super::sql::SqlClient;
use super::statistics::{ATTEMPTS_MAX, RunOptions, RunResult, Statistics};
use super::transactions::Inputs;
use crate::connection::SqlFailure;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Called when warm-up is over and when the measured time is, so that a caller can read the server's CPU time.
pub type PhaseHook<'a> = &'a mut dyn FnMut(Phase);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    MeasuringBegins,
    MeasuringEnds,
}

/// Drives the mix with the given clients until the time is over; the first failure of a client ends the run.
pub fn run(
    clients: Vec<SqlClient>,
    population: &Arc<Population>,
    options: &RunOptions,
    on_phase: PhaseHook<'_>,
) -> Result<RunResult, SqlFailure> {
    assert_eq!(clients.len(), options.clients as usize, "every client has a connection of its own");
    let started = Barrier::new(clients.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .zip(0u64..)
            .map(|(mut client, number)| {
                let inputs = Inputs::new(Arc::clone(population), options.keys, options.seed.wrapping_add(number));
                let started = &started;
                scope.spawn(move || {
                    started.wait();
                    let statistics = drive(&mut client, inputs, options);
                    // Its connection ends behind the measured time: a server's process that is gone by then would take
                    // its processor time along.
                    (client, statistics)
                })
            })
            .collect();
        started.wait();
        let begin = Instant::now();
        std::thread::sleep(options.warm_up);
        on_phase(Phase::MeasuringBegins);
        std::thread::sleep((begin + options.warm_up + options.measured).saturating_duration_since(Instant::now()));
        on_phase(Phase::MeasuringEnds);
        let mut statistics = Statistics::default();
        let mut failure = None;
        for thread in threads {
            match thread.join() {
                Ok((_, Ok(client))) => statistics.merge(client),
                Ok((_, Err(error))) => failure = Some(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failure.map_or(Ok(RunResult { statistics, measured: options.measured }), Err)
    })
}

fn drive(client: &mut SqlClient, mut inputs: Inputs, options: &RunOptions) -> Result<Statistics, SqlFailure> {
    let begin = Instant::now();
    let mut statistics = Statistics::default();
    let end_at = options.warm_up + options.measured;
    loop {
        let transaction = inputs.draw();
        let start = begin.elapsed();
        if start >= end_at {
            return Ok(statistics);
        }
        let mut attempts = 1;
        let completed = loop {
            match client.run(&transaction) {
                Err(failure) if failure.is_retryable() && attempts < ATTEMPTS_MAX => attempts += 1,
                other => break other?,
            }
        };
        let end = begin.elapsed();
        statistics.record(transaction.kind(), completed, attempts - 1, measured_latency(start, end, options));
    }
}

/// The latency, if the transaction ended within the measured time.
pub(super) fn measured_latency(start: Duration, end: Duration, options: &RunOptions) -> Option<Duration> {
    let measured = options.warm_up..=options.warm_up + options.measured;
    measured.contains(&end).then(|| end.saturating_sub(start))
}
