//! The key-value benchmark on simulated nodes: messages and traffic for each lookup, and what Table 3.2 makes of them.
//!
//! ```text
//! scaling [--nodes 1,2,4,8,16,32,64] [--pairs 500000] [--tasks 1] [--transactions 2] [--seed 1] [--json FILE]
//! ```

use eris_workloads::kv::{KvError, ScalingOptions, scaling};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = parse(std::env::args().skip(1)).and_then(|(options, json)| {
        let report = scaling(&options, &mut |line| eprintln!("{line}"))?;
        let text = serde_json::to_string_pretty(&report).map_err(|error| KvError::Options(error.to_string()))? + "\n";
        match json {
            None => print!("{text}"),
            Some(path) => std::fs::write(&path, text).map_err(|error| KvError::Options(format!("{path}: {error}")))?,
        }
        Ok(())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(ScalingOptions, Option<String>), KvError> {
    let (mut options, mut json) = (ScalingOptions::default(), None);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| KvError::Options(format!("{name} needs a value")))?;
        match name.as_str() {
            "--nodes" => options.nodes = value.split(',').map(number).collect::<Result<_, _>>()?,
            "--pairs" => options.pairs = number(&value)?,
            "--tasks" => options.tasks_per_worker = number(&value)?,
            "--transactions" => options.transactions_per_task = number(&value)?,
            "--seed" => options.seed = number(&value)?,
            "--json" => json = Some(value),
            _ => return Err(KvError::Options(format!("unknown option {name}"))),
        }
    }
    Ok((options, json))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, KvError> {
    text.parse().map_err(|_| KvError::Options(format!("\"{text}\" is no number")))
}
