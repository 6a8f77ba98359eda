//! TATP over the task API of an engine that this process starts.

use super::{CpuMeter, Measured, TatpOptions};
use crate::directory::NewDirectory;
use crate::error::BenchError;
use crate::instance;
use crate::process::ProcessId;
use eris::DurabilityOptions;
use eris_workloads::tatp::task::{Containers, StorageOptions, TaskClient};
use eris_workloads::tatp::{check, run_task_clients};
use std::sync::Arc;
use std::time::Instant;

pub(super) fn run(options: &TatpOptions, progress: &mut dyn FnMut(&str)) -> Result<Measured, BenchError> {
    let engine = instance::start_engine(&instance::InstanceOptions {
        workers: options.workers,
        nodes: options.nodes,
        memory_limit_bytes: options.memory_limit_bytes,
        in_place: options.in_place,
        split_rows: None,
    })?;
    let directory = options.directory.as_deref().map(NewDirectory::create).transpose()?;
    let open =
        |directory: &NewDirectory| instance::open_files(&engine, &directory.database(), &DurabilityOptions::default());
    let files = directory.as_ref().map(open).transpose()?;
    let population = options.population();
    progress(&format!("loading {} subscribers", options.subscribers));
    let start = Instant::now();
    let storage = StorageOptions { partitions: options.partitions, ..StorageOptions::default() };
    let containers = Containers::create(&engine, storage)?;
    let (loading, loaded) = (engine.clone(), Arc::clone(&population));
    engine.block_on(async move { containers.load(&loading, &loaded).await })??;
    let load = start.elapsed();

    progress(&format!("driving {} clients for {} s", options.clients, options.seconds));
    let mut meter = CpuMeter::new(|| ProcessId::own().cpu_time());
    let client = TaskClient::new(&engine, containers).with_durability(options.durability);
    let run = run_task_clients(&client, &population, &options.run_options(), &mut |phase| meter.on_phase(phase))?;

    progress("checking consistency");
    let consistency = check(&population, &run.statistics.forwarding_changes, |table, subscribers| {
        let reading = engine.clone();
        engine.block_on(async move { containers.rows(&reading, table, subscribers).await })?
    })?;
    let mut counters = instance::counters(&engine);
    if let Some(files) = files {
        counters.extend(instance::log_counters(&files));
        engine.block_on(async move { files.close().await })??;
    }
    engine.shutdown();
    Ok(Measured { run, server_cpu: meter.spent(), load, consistency, counters, new_destination: "two reads by key" })
}
