//! The key-value benchmark on the bare engine, without SQL: the options of `eris bench kv`.
//!
//! ```text
//! kv [--pairs 10000000] [--seconds 10] [--warm-up 1] [--nodes 1] [--workers 2] [--partitions N] [--tasks 4]
//!    [--access index|ordered-index|scan] [--partitioned key|value] [--locality local|shifted|random]
//!    [--coalesced | --coalesce-in-partition] [--baseline interleaved|shared|pinned] [--through-coordinator]
//!    [--json FILE]
//! ```

use eris_engine::Coalescing;
use eris_workloads::kv::{KvError, KvOptions, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = parse(std::env::args().skip(1)).and_then(|(options, json)| {
        let report = run(&options, &mut |line| eprintln!("{line}"))?;
        let text = serde_json::to_string_pretty(&report).map_err(|error| KvError::Options(error.to_string()))? + "\n";
        match json {
            None => print!("{text}"),
            Some(path) => std::fs::write(&path, text).map_err(|error| KvError::Options(format!("{path}: {error}")))?,
        }
        Ok(report.consistent)
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("the values found are not those of their keys");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(KvOptions, Option<String>), KvError> {
    let (mut options, mut json) = (KvOptions::default(), None);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| KvError::Options(format!("{name} needs a value")));
        match name.as_str() {
            "--pairs" => options.pairs = number(&value()?)?,
            "--seconds" => options.seconds = number(&value()?)?,
            "--warm-up" => options.warm_up_seconds = number(&value()?)?,
            "--nodes" => options.nodes = number(&value()?)?,
            "--workers" => options.workers = number(&value()?)?,
            "--partitions" => options.partitions = Some(number(&value()?)?),
            "--tasks" => options.tasks_per_worker = number(&value()?)?,
            "--access" => options.access = value()?.parse()?,
            "--partitioned" => options.partitioned_by = value()?.parse()?,
            "--locality" => options.locality = value()?.parse()?,
            "--coalesced" => options.coalescing = Coalescing::Sender,
            "--coalesce-in-partition" => options.coalescing = Coalescing::Partition,
            "--baseline" => options.baseline = Some(value()?.parse()?),
            "--through-coordinator" => options.direct_append = false,
            "--json" => json = Some(value()?),
            _ => return Err(KvError::Options(format!("unknown option {name}"))),
        }
    }
    Ok((options, json))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, KvError> {
    text.parse().map_err(|_| KvError::Options(format!("\"{text}\" is no number")))
}
