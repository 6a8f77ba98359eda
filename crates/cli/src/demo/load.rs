//! Loads TPC-H while a line tells how it goes.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use eris_bench::{AnalyticsOptions, Instance, load_tables};
use eris_sql::catalog::CATALOG_CONTAINER;

use crate::demo::screen::{Progress, count, megabytes, seconds};
use crate::failure::Failure;

/// Between two looks at the progress.
const GLANCE: Duration = Duration::from_millis(100);

/// Returns how long it took.
pub fn tpch(instance: &Instance, scale_factor: f64, workers: usize) -> Result<Duration, Failure> {
    let options = AnalyticsOptions { scale_factor, workers, ..AnalyticsOptions::default() };
    let start = Instant::now();
    let mut progress = Progress::new();
    let loaded = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        scope.spawn(move || {
            // The receiver waits below.
            let _ = sender.send(load_tables(instance, &options));
        });
        loop {
            match receiver.recv_timeout(GLANCE) {
                Ok(loaded) => return loaded.map(|loaded| loaded.took).map_err(Failure::from),
                Err(RecvTimeoutError::Timeout) => {
                    let used = instance.engine().memory().used();
                    progress.show(&format!("  loading ... {}, {}", seconds(start.elapsed()), megabytes(used)));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::new("loading ended without a result")),
            }
        }
    })?;
    let mut partitions = instance.engine().partitions();
    partitions.retain(|partition| partition.container != CATALOG_CONTAINER);
    let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
    let bytes: u64 = partitions.iter().map(|partition| partition.bytes).sum();
    progress.done(&format!(
        "  8 tables, {} rows, {} generated and loaded in {} ({} rows/s)",
        count(rows),
        megabytes(bytes),
        seconds(loaded),
        count((rows as f64 / loaded.as_secs_f64().max(1e-3)) as u64),
    ));
    Ok(loaded)
}
