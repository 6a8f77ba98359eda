//! The message layer alone: no-op commands between tasks and partitions, nothing in place.
//!
//! ```text
//! messages [name=value ...]   workers=2 nodes=1 partitions=2 tasks=2 command_bytes=32 commands_per_message=1
//!                             commands=16384 seconds=3 direct=1 rounds=0
//! ```
//! Prints JSON: messages and commands a second, over all workers. The sums of what was sent and what arrived agree, or
//! the run fails. `direct=0` sends messages for the own node through the coordinator; with `rounds` both ways take
//! turns, so many times each, and the round with the median counts.

use eris_engine::{Engine, EngineOptions, Event, Probes};
use eris_platform::RealEnv;
use eris_workloads::kv::{KvOptions, KvStore, spent_while};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn main() -> ExitCode {
    let mut options = BTreeMap::from([
        ("workers", 2),
        ("nodes", 1),
        ("partitions", 2),
        ("tasks", 2),
        ("command_bytes", 32),
        ("commands_per_message", 1),
        ("commands", 16_384),
        ("seconds", 3),
        ("direct", 1),
        ("rounds", 0),
    ]);
    for argument in std::env::args().skip(1) {
        let parsed = argument.split_once('=').and_then(|(name, value)| Some((name, value.parse::<usize>().ok()?)));
        let Some((option, value)) = parsed.and_then(|(name, value)| Some((options.get_mut(name)?, value))) else {
            eprintln!("\"{argument}\" is not name=number with one of {:?}", options.keys());
            return ExitCode::FAILURE;
        };
        *option = value;
    }
    match run(&options) {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &BTreeMap<&str, usize>) -> Result<Value, Box<dyn Error>> {
    let mut report = json!({ "benchmark": "messages", "options": options });
    let add = |report: &mut Value, figures: Value| {
        for (name, figure) in figures.as_object().into_iter().flatten() {
            report[name] = figure.clone();
        }
    };
    if options["rounds"] == 0 {
        add(&mut report, measure(options, options["direct"] != 0)?);
        return Ok(report);
    }
    // The machine's speed changes from minute to minute: it meets both ways alike.
    let (mut direct, mut coordinator) = (Vec::new(), Vec::new());
    for _ in 0..options["rounds"] {
        direct.push(measure(options, true)?);
        coordinator.push(measure(options, false)?);
    }
    report["direct"] = median(direct);
    report["coordinator"] = median(coordinator);
    Ok(report)
}

/// The round in the middle, by messages a second.
fn median(mut rounds: Vec<Value>) -> Value {
    let messages_per_s = |round: &Value| round["messages_per_s"].as_f64().unwrap_or_default();
    rounds.sort_by(|one, other| messages_per_s(one).total_cmp(&messages_per_s(other)));
    rounds.swap_remove(rounds.len() / 2)
}

fn measure(options: &BTreeMap<&str, usize>, direct_append: bool) -> Result<Value, Box<dyn Error>> {
    let engine_options = EngineOptions {
        workers: options["workers"],
        nodes: options["nodes"],
        in_place: false,
        direct_append,
        ..EngineOptions::default()
    };
    let engine = Engine::start(Arc::new(RealEnv::new()), engine_options)?;
    let store = KvStore::create(
        &engine,
        &KvOptions {
            pairs: options["partitions"] as u64,
            nodes: options["nodes"],
            workers: options["workers"],
            partitions: Some(options["partitions"]),
            ..KvOptions::default()
        },
    )?;
    let probes = Probes {
        container: store.container(),
        commands: options["commands"],
        command_bytes: options["command_bytes"],
        commands_per_message: options["commands_per_message"],
    };
    let measured = Duration::from_secs(options["seconds"] as u64);
    let (sender, receiver) = mpsc::channel();
    let begin = engine.env().now() + Duration::from_millis(300);
    for _ in 0..options["tasks"] * options["workers"] {
        let (engine, probes, sender) = (engine.clone(), probes.clone(), sender.clone());
        let spawner = engine.clone();
        spawner.spawn(async move {
            let mut commands = 0;
            let result = loop {
                if engine.env().now() >= begin + measured {
                    break Ok(commands);
                }
                let mut transaction = engine.begin();
                match transaction.probe(&probes).await {
                    Ok(report) if report.sum != report.sent_sum || report.commands != probes.commands as u64 => {
                        break Err(format!("{report:?} of {probes:?}"));
                    }
                    Ok(report) if (begin..begin + measured).contains(&engine.env().now()) => {
                        commands += report.commands;
                    }
                    Ok(_) => {}
                    Err(error) => break Err(error.to_string()),
                }
                transaction.rollback();
            };
            // The receiver waits below; it is gone only if the run is.
            let _ = sender.send(result);
        });
    }
    drop(sender);
    let processor = spent_while(Duration::from_millis(300), measured);
    let mut commands = 0;
    while let Ok(result) = receiver.recv() {
        commands += result?;
    }
    let commands_per_s = commands as f64 / measured.as_secs_f64();
    let figures = json!({
        "messages_per_s": commands_per_s / options["commands_per_message"] as f64,
        "commands_per_s": commands_per_s,
        "commands_per_processor_second": processor.map(|spent| commands as f64 / spent.as_secs_f64().max(0.01)),
        "local_messages": engine.statistics().event(Event::LocalMessages),
        "remote_messages": engine.statistics().event(Event::RemoteMessages),
        "buffer_full": engine.statistics().event(Event::BufferFull),
    });
    engine.shutdown();
    Ok(figures)
}
