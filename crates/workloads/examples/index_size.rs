//! Upserts and lookups over the size of the index, on the bare engine: an ordered index beside a hash index and beside
//! one table that all threads write. `index_size [name=number ...]` with the names below; prints JSON.
//!
//! ```text
//! smallest=1000 largest=10000000 factor=10 seconds=2 workers=2 partitions=2 tasks=4 memory=8589934592 seed=1
//! ```
//! `tasks` are those of each worker.

use eris_workloads::index_size::{IndexSizeOptions, run};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let default = IndexSizeOptions::default();
    let mut options = BTreeMap::from([
        ("smallest", 1_000),
        ("largest", 10_000_000),
        ("factor", 10),
        ("seconds", default.seconds as u64),
        ("workers", default.workers as u64),
        ("partitions", default.partitions as u64),
        ("tasks", default.tasks_per_worker as u64),
        ("memory", default.memory_limit_bytes),
        ("seed", default.seed),
    ]);
    for argument in std::env::args().skip(1) {
        let parsed = argument.split_once('=').and_then(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
        let Some((option, value)) = parsed.and_then(|(name, value)| Some((options.get_mut(name)?, value))) else {
            eprintln!("\"{argument}\" is not name=number with one of {:?}", options.keys());
            return ExitCode::FAILURE;
        };
        *option = value;
    }
    let next = |size: &u64| size.checked_mul(options["factor"].max(2));
    let sizes = std::iter::successors(Some(options["smallest"].max(1)), next);
    let report = run(
        &IndexSizeOptions {
            sizes: sizes.take_while(|size| *size <= options["largest"]).collect(),
            seconds: options["seconds"] as f64,
            workers: options["workers"] as usize,
            partitions: options["partitions"] as usize,
            tasks_per_worker: options["tasks"] as usize,
            memory_limit_bytes: options["memory"],
            seed: options["seed"],
        },
        &mut |line| eprintln!("{line}"),
    );
    match report.map(|report| serde_json::to_string_pretty(&report)) {
        Ok(Ok(text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
