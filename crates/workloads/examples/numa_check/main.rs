//! What only a machine with several NUMA nodes can show: `numa_check [name=value ...]`; `just numa` runs it in an
//! emulated one.
//!
//! ```text
//! nodes=4 cpus=2              what the machine is said to have, cpus on each node
//! distances=10,16;16,10      a row for each node (default: not checked)
//! spare=3                     the node that is filled until it has no memory left (default: none)
//! label=emulated              where times come from: emulated or measured
//! seconds=2                   of the transactions on the engine
//! ```
//! Each check prints a line when it is done. The last line, `report {...}`, is everything as JSON.

mod engine;
mod machine;
mod memory;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use eris_platform::{CpuId, limits};
use serde_json::{Value, json};

/// What the checks are given and what they found.
struct Report {
    options: BTreeMap<String, String>,
    checks: Vec<Value>,
    figures: Vec<Value>,
}

impl Report {
    fn number(&self, name: &str) -> Option<usize> {
        self.options.get(name)?.parse().ok()
    }

    fn figure(&mut self, name: &str, value: f64, unit: &str) {
        let origin = self.options.get("label").map_or("measured", String::as_str);
        self.figures.push(json!({ "name": name, "value": value, "unit": unit, "origin": origin }));
    }

    /// Runs a check, which says in words what it saw or what is wrong.
    fn check(&mut self, name: &str, run: impl FnOnce(&mut Report) -> Result<String, String>) {
        let start = Instant::now();
        let result = run(self);
        let (passed, seen) = (result.is_ok(), result.unwrap_or_else(|wrong| wrong));
        println!("{} {name}: {seen}", if passed { "ok   " } else { "WRONG" });
        let seconds = (start.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        self.checks.push(json!({ "name": name, "passed": passed, "seen": seen, "seconds": seconds }));
    }
}

/// An error with what is wrong, unless it holds.
fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wrong()) }
}

/// Runs `work` on a thread of its own that is bound to a cpu.
fn on_cpu<T: Send>(cpu: CpuId, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let bound = scope.spawn(move || limits::set_affinity(&[cpu]).map(|()| work()));
        let result = bound.join().map_err(|_| "the thread panicked".to_owned())?;
        result.map_err(|error| error.to_string())
    })
}

fn main() -> ExitCode {
    let mut options = BTreeMap::new();
    for argument in std::env::args().skip(1) {
        let Some((name, value)) = argument.split_once('=') else {
            eprintln!("\"{argument}\" is not name=value");
            return ExitCode::FAILURE;
        };
        options.insert(name.to_owned(), value.to_owned());
    }
    let mut report = Report { options, checks: Vec::new(), figures: Vec::new() };
    machine::check(&mut report);
    memory::check(&mut report);
    engine::check(&mut report);
    let passed = report.checks.iter().all(|check| check["passed"] == json!(true));
    println!("report {}", json!({ "passed": passed, "checks": report.checks, "figures": report.figures }));
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
