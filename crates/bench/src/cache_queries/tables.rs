//! The tables of a query: filled by all workers, and left alone until they are cut and sealed.

use super::report::TableFigures;
use crate::error::BenchError;
use crate::instance::Instance;
use eris_storage::ContainerId;
use eris_workloads::cache_queries::{self, Answers, CacheData, CacheTable, Held};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Tables have settled when they are held as they were so long before.
const SETTLE: Duration = Duration::from_millis(500);
/// They are measured as they are if that takes longer.
const SETTLE_MAX: Duration = Duration::from_mins(5);

/// A table that was filled.
#[derive(Clone, Copy)]
pub(super) struct Filled {
    table: CacheTable,
    container: ContainerId,
    rows: u64,
}

/// Creates and fills tables; adds to `answers` what the queries find in them.
pub(super) fn load(
    instance: &Instance,
    data: CacheData,
    tables: &[CacheTable],
    partitions: Option<usize>,
    answers: &mut Answers,
) -> Result<Vec<Filled>, BenchError> {
    let empty = answers.clone();
    let mut filled = Vec::new();
    for &table in tables {
        instance.execute(&table.create_statement(partitions))?;
        let container = instance.container(table.name())?;
        // A task for each worker, with a stretch of its own: keys rise within it.
        let (sender, receiver) = mpsc::channel();
        let (parts, tasks) = (data.parts(table), instance.engine().worker_count() as u64);
        for task in 0..tasks {
            let range = parts * task / tasks..parts * (task + 1) / tasks;
            let (engine, sender, empty) = (instance.engine().clone(), sender.clone(), empty.clone());
            instance.engine().spawn(async move {
                let loaded = cache_queries::load(&engine, container, data, table, range, empty).await;
                // The receiver waits below for all tasks, unless one has failed already.
                let _ = sender.send(loaded);
            });
        }
        drop(sender);
        for loaded in receiver {
            answers.merge(&loaded?);
        }
        filled.push(Filled { table, container, rows: data.rows_of(table) });
    }
    Ok(filled)
}

/// Waits until partitions are cut and segments sealed; says how the rows are held then.
pub(super) fn settled(instance: &Instance, tables: &[Filled]) -> Result<Vec<TableFigures>, BenchError> {
    let look = || tables.iter().map(|filled| held(instance, *filled)).collect::<Result<Vec<Held>, BenchError>>();
    let end = Instant::now() + SETTLE_MAX;
    let mut before = look()?;
    loop {
        std::thread::sleep(SETTLE);
        let now = look()?;
        if now == before || Instant::now() >= end {
            return Ok(tables.iter().zip(now).map(|(filled, held)| figures(*filled, held)).collect());
        }
        before = now;
    }
}

fn held(instance: &Instance, filled: Filled) -> Result<Held, BenchError> {
    let engine = instance.engine().clone();
    let Filled { table, container, .. } = filled;
    Ok(instance.engine().block_on(async move { cache_queries::held(&engine, container, table).await })??)
}

fn figures(filled: Filled, held: Held) -> TableFigures {
    let bytes = held.bytes(filled.table);
    let value_bytes = filled.rows * 4 * filled.table.columns().len() as u64;
    let bits_per_row = bytes as f64 * 8.0 / filled.rows as f64;
    TableFigures { name: filled.table.name(), rows: filled.rows, value_bytes, bytes, bits_per_row, held }
}
