//! TATP over SQL: a server behind a URL, or sessions of a database in this process.

use super::{CpuMeter, Measured, TatpOptions};
use crate::directory::NewDirectory;
use crate::error::BenchError;
use crate::instance::{Instance, InstanceOptions};
use crate::process::ProcessId;
use eris::DurabilityOptions;
use eris_engine::Durability;
use eris_workloads::connection::{SharedThread, SqlConnection, SqlFailure};
use eris_workloads::postgres::{PostgresConnection, PostgresUrl};
use eris_workloads::tatp::sql::{DestinationStatements, SqlClient, load};
use eris_workloads::tatp::{Consistency, ForwardingChange, ForwardingKey, Population, check, run_over_sql};
use std::collections::BTreeMap;
use std::time::Instant;

pub(super) fn run(
    options: &TatpOptions,
    url: Option<&str>,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, BenchError> {
    if let Some(url) = url {
        let url: PostgresUrl = url.parse().map_err(|error| BenchError::Options(format!("--url: {error}")))?;
        let server = options.server;
        let meter = CpuMeter::new(move || server.and_then(ProcessId::tree_cpu_time));
        let open = || {
            let mut connection = connect(&url)?;
            tell(&mut connection, options.durability)?;
            Ok(connection)
        };
        return measure(options, &open, meter, progress);
    }
    let of_instance = InstanceOptions {
        workers: options.workers,
        nodes: options.nodes,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: options.in_place,
        split_rows: None,
    };
    let directory = options.directory.as_deref().map(NewDirectory::create).transpose()?;
    let instance = match &directory {
        None => Instance::start(&of_instance)?,
        Some(directory) => Instance::open(&of_instance, &directory.database(), &DurabilityOptions::default())?,
    };
    let meter = CpuMeter::new(|| ProcessId::own().cpu_time());
    let open = || {
        let mut connection: Box<dyn SqlConnection> = Box::new(instance.connect());
        tell(&mut *connection, options.durability)?;
        Ok(connection)
    };
    let mut measured = measure(options, &open, meter, progress)?;
    measured.counters = instance.counters();
    instance.shutdown();
    Ok(measured)
}

fn connect(url: &PostgresUrl) -> Result<PostgresConnection, SqlFailure> {
    let mut connection = PostgresConnection::connect(url)?;
    // Snapshot isolation is what ERIS has; where the setting exists, the server gives the same.
    match connection.execute("SET default_transaction_isolation = 'repeatable read'", &[]) {
        Err(failure) if failure.sqlstate.starts_with("08") => Err(failure),
        _ => Ok(connection),
    }
}

/// Says when commits are to be told; servers do it when they are on disk unless they are asked otherwise.
fn tell(connection: &mut dyn SqlConnection, durability: Durability) -> Result<(), SqlFailure> {
    match durability {
        Durability::Synchronous => Ok(()),
        Durability::Asynchronous => connection.execute("SET synchronous_commit = off", &[]).map(drop),
    }
}

type Open<'a, C> = &'a dyn Fn() -> Result<C, SqlFailure>;

fn measure<C: SharedThread>(
    options: &TatpOptions,
    open: Open<'_, C>,
    mut meter: CpuMeter,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, BenchError> {
    let population = options.population();
    progress(&format!("loading {} subscribers", options.subscribers));
    let start = Instant::now();
    let mut connection = open()?;
    let storage = options.partitions.map_or_else(String::new, |partitions| format!("partitions = {partitions}"));
    load(connection.holding(), &population, &storage)?;
    let load = start.elapsed();

    let (clients, destination) = clients(options, open)?;
    progress(&format!("driving {} clients for {} s", options.clients, options.seconds));
    let run = run_over_sql(clients, &population, &options.run_options(), &mut |phase| meter.on_phase(phase))?;

    progress("checking consistency");
    let consistency = consistency(connection.holding(), &population, &run.statistics.forwarding_changes)?;
    let new_destination = destination.name();
    Ok(Measured { run, server_cpu: meter.spent(), load, consistency, counters: BTreeMap::new(), new_destination })
}

/// The clients of each thread.
type Threads<C> = Vec<Vec<SqlClient<C>>>;

/// One client per connection, by thread. Where the server refuses the join as not supported, all ask with two
/// statements.
fn clients<C: SharedThread>(
    options: &TatpOptions,
    open: Open<'_, C>,
) -> Result<(Threads<C>, DestinationStatements), BenchError> {
    let threads = options.client_threads();
    let all = |destination| -> Result<Threads<C>, SqlFailure> {
        let of_thread = |thread| (thread..options.clients).step_by(threads as usize);
        let client = |_| SqlClient::new(open()?, destination);
        (0..threads).map(|thread| of_thread(thread).map(client).collect()).collect()
    };
    match all(DestinationStatements::Join) {
        Err(failure) if failure.sqlstate == "0A000" => {
            Ok((all(DestinationStatements::Separate)?, DestinationStatements::Separate))
        }
        other => Ok((other?, DestinationStatements::Join)),
    }
}

fn consistency(
    connection: &mut dyn SqlConnection,
    population: &Population,
    changes: &[(ForwardingKey, ForwardingChange)],
) -> Result<Consistency, SqlFailure> {
    check(population, changes, |table, subscribers| {
        let columns: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
        let sql = format!(
            "SELECT {} FROM {} WHERE s_id >= {} AND s_id < {}",
            columns.join(", "),
            table.name(),
            subscribers.start,
            subscribers.end
        );
        connection.execute(&sql, &[]).map(|result| result.rows)
    })
}
