//! JCC-H at a small scale: both sets of its queries run on ERIS's own operators alone, on tables of several shapes, and
//! say what DuckDB says of the same rows.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use eris::{Database, Options};
use eris_bench::{
    AnalyticsOptions, AnalyticsReport, BenchError, Instance, PeerKind, Suite, analytics, load_tables, run_query,
};
use eris_workloads::jcch::{ParameterSet, Population, dump};
use std::process::{Command, Stdio};

fn jcch(parameters: ParameterSet) -> Suite {
    Suite::Jcch { parameters, workload: false }
}

fn options(suite: Suite, scale_factor: f64) -> AnalyticsOptions {
    AnalyticsOptions { suite, scale_factor, repeat: 1, memory_limit_bytes: 2 << 30, ..AnalyticsOptions::default() }
}

fn run(options: &AnalyticsOptions) -> Result<AnalyticsReport, BenchError> {
    let report = analytics(options, &mut |_| {})?;
    for result in &report.results {
        assert!(result.answer == "ok" && result.native, "{} with {options:?}: {}", result.name, result.answer);
    }
    Ok(report)
}

/// In a database that has no other operators than its own; the answers are those stored.
#[test]
fn queries_are_right_and_native() -> Result<(), BenchError> {
    let memory_limit_bytes = 2 << 30;
    let database = Database::open(Options { fallback: false, memory_limit_bytes, ..Options::default() })?;
    let instance = Instance::of(&database);
    load_tables(&instance, &options(jcch(ParameterSet::Normal), 0.01))?;
    for parameters in ParameterSet::ALL {
        for query in jcch(parameters).queries(0.01) {
            let result = run_query(&instance, &query, 0);
            assert_eq!(result.answer, "ok", "{} of {}", query.name, parameters.name());
            let plan = instance.query(&format!("EXPLAIN {}", query.sql))?.rows;
            let plan: Vec<String> = plan.iter().map(|line| line[0].to_string()).collect();
            let native = plan.last().is_some_and(|line| line == "Lane: native");
            let fallback = plan.iter().any(|line| line.contains("fallback"));
            let (name, set, plan) = (&query.name, parameters.name(), plan.join("\n"));
            assert!(native && !fallback && result.native, "{name} of {set}:\n{plan}");
        }
    }
    database.close();
    Ok(())
}

#[test]
fn many_partitions_of_small_segments_from_files() -> Result<(), BenchError> {
    let directory = std::env::temp_dir().join(format!("eris-tiny-jcch-{}", std::process::id()));
    dump::write_directory(&directory, &Population::new(0.01).unwrap())?;
    let run_all = || -> Result<(), BenchError> {
        ParameterSet::ALL.into_iter().zip(["column", "row"]).try_for_each(|(parameters, layout)| {
            let options = AnalyticsOptions {
                data: Some(directory.clone()),
                nodes: 2,
                partitions: Some(7),
                layout: Some(layout.to_owned()),
                segment_rows: Some(1_000),
                ..options(jcch(parameters), 0.01)
            };
            let report = run(&options)?;
            assert_eq!((report.benchmark, report.parameters), ("jcch", Some(parameters.name())));
            Ok(())
        })
    };
    let ran = run_all();
    std::fs::remove_dir_all(&directory)?;
    ran
}

/// Whatever can go on in temporary files does, and answers what it answers in memory.
#[test]
fn answers_are_the_same_in_temporary_files() -> Result<(), BenchError> {
    for parameters in ParameterSet::ALL {
        let options = AnalyticsOptions { work_mem_bytes: Some(1), ..options(jcch(parameters), 0.01) };
        assert!(run(&options)?.counters["temp_bytes_written"] > 0, "{options:?}");
    }
    Ok(())
}

/// What the writers do to rows, no query may see.
#[test]
fn answers_stay_beside_writers() -> Result<(), BenchError> {
    for parameters in ParameterSet::ALL {
        let options = AnalyticsOptions {
            segment_rows: Some(1_000),
            split_rows: Some(5_000),
            refresh_clients: 2,
            repeat: 3,
            ..options(jcch(parameters), 0.01)
        };
        assert!(run(&options)?.refresh_transactions > 0, "{options:?}");
    }
    Ok(())
}

/// What stays of random changes, in segments that were sealed, thawed and compacted and partitions that were merged,
/// answers as a fresh load of the same rows.
#[test]
fn answers_are_those_of_a_fresh_load() -> Result<(), BenchError> {
    for parameters in ParameterSet::ALL {
        let options = AnalyticsOptions { segment_rows: Some(1_000), churn: 40, ..options(jcch(parameters), 0.01) };
        let churned = run(&options)?.churn.unwrap();
        assert!(churned.inserted_rows > 0 && churned.updated_rows > 0 && churned.deleted_rows > 0, "{churned:?}");
    }
    Ok(())
}

/// Where no answers are stored: the workload, and a scale factor of no importance.
#[test]
fn answers_are_compared_with_those_of_a_peer() -> Result<(), BenchError> {
    if !has_duckdb() {
        return Ok(());
    }
    let skewed = Suite::Jcch { parameters: ParameterSet::Skewed, workload: true };
    for (suite, queries) in [(skewed, 200), (jcch(ParameterSet::Normal), 22)] {
        let options = AnalyticsOptions { peers: vec![PeerKind::DuckDb], ..options(suite, 0.005) };
        let report = run(&options)?;
        assert_eq!((report.results.len(), report.workload), (queries, queries == 200));
        assert_eq!(report.peers["duckdb"].answers_right, queries);
    }
    let unchecked = analytics(&options(jcch(ParameterSet::Skewed), 0.005), &mut |_| {})?;
    assert_eq!(unchecked.check(), Ok(()));
    assert!(unchecked.results.iter().all(|result| result.answer == "unchecked"));
    Ok(())
}

/// Continuous integration has it; whoever has not runs the rest.
fn has_duckdb() -> bool {
    let python = std::env::var_os("ERIS_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
    let asked = Command::new(python).args(["-c", "import duckdb"]).stderr(Stdio::null()).status();
    let has = asked.is_ok_and(|status| status.success());
    if !has {
        println!("skipped: python3 has no duckdb (pip install duckdb==2.0.0)");
    }
    has
}
