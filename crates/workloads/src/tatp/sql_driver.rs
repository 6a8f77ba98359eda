//! The closed loop over SQL: one connection per client, no think time.

use super::population::Population;
use super::sql::SqlClient;
use super::statistics::{ATTEMPTS_MAX, RunOptions, RunResult, Statistics};
use super::transactions::Inputs;
use crate::connection::{SharedThread, SqlFailure};
use crate::crowd::{self, Member};
use std::io;
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Called when warm-up is over and when the measured time is, so that a caller can read the server's CPU time.
pub type PhaseHook<'a> = &'a mut dyn FnMut(Phase);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    MeasuringBegins,
    MeasuringEnds,
}

/// Drives the mix until the time is over, with the clients of a thread in one list; a failure of a client is that of
/// the run. Clients that hold their thread have one each.
pub fn run<C: SharedThread>(
    threads: Vec<Vec<SqlClient<C>>>,
    population: &Arc<Population>,
    options: &RunOptions,
    on_phase: PhaseHook<'_>,
) -> Result<RunResult, SqlFailure> {
    let clients: usize = threads.iter().map(Vec::len).sum();
    assert_eq!(clients, options.clients as usize, "every client has a connection of its own");
    let mut seeds = (0u64..).map(|number| options.seed.wrapping_add(number));
    let started = Barrier::new(threads.len() + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = threads
            .into_iter()
            .map(|clients| {
                let clients: Vec<_> = clients
                    .into_iter()
                    .zip(seeds.by_ref())
                    .map(|(client, seed)| (client, Inputs::new(Arc::clone(population), options.keys, seed)))
                    .collect();
                let started = &started;
                scope.spawn(move || {
                    started.wait();
                    drive_all(clients, options)
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
        // Connections end behind the measured time: a server's process that is gone by then would take its processor
        // time along.
        let joined: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        for thread in joined {
            match thread {
                Ok(Ok(clients)) => clients.into_iter().for_each(|(_, client)| match client {
                    Ok(client) => statistics.merge(client),
                    Err(error) => failure = Some(error),
                }),
                Ok(Err(error)) => failure = Some(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failure.map_or(Ok(RunResult { statistics, measured: options.measured }), Err)
    })
}

/// A client, and what it counted.
type Driven<C> = (SqlClient<C>, Result<Statistics, SqlFailure>);

/// Drives the clients of one thread.
fn drive_all<C: SharedThread>(
    clients: Vec<(SqlClient<C>, Inputs)>,
    options: &RunOptions,
) -> Result<Vec<Driven<C>>, SqlFailure> {
    let failed = |error: io::Error| SqlFailure::new("08006", format!("cannot wait for a connection: {error}"));
    let members: Result<Vec<_>, _> = clients
        .into_iter()
        .map(|(mut client, inputs)| {
            let socket = client.socket()?;
            let work = Box::pin(async move {
                let statistics = drive(&mut client, inputs, options).await;
                (client, statistics)
            });
            Ok(Member { socket, work: work as _ })
        })
        .collect();
    let members = members.map_err(failed)?;
    assert!(members.len() <= 1 || members.iter().all(|member| member.socket.is_some()), "clients hold their thread");
    crowd::run(members).map_err(failed)
}

async fn drive<C: SharedThread>(
    client: &mut SqlClient<C>,
    mut inputs: Inputs,
    options: &RunOptions,
) -> Result<Statistics, SqlFailure> {
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
            match client.run(&transaction).await {
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
