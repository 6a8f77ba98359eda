//! Every benchmark once with tiny inputs, so that none rots: the answers are right, the tables consistent, the reports
//! complete.

use std::collections::BTreeSet;

use eris_bench::{BenchError, TatpOptions, TatpReport, TpchOptions, TpchReport, Via, kv, tatp, tpch};
use eris_workloads::kv::{Baseline, KvOptions};
use eris_workloads::tpch::dump;
use serde_json::Value;

fn tiny_tpch() -> TpchOptions {
    TpchOptions { scale_factor: 0.01, repeat: 1, memory_limit_bytes: 2 << 30, ..TpchOptions::default() }
}

fn run_tpch(options: &TpchOptions) -> Result<TpchReport, BenchError> {
    let report = tpch(options, &mut |_| {})?;
    for result in &report.results {
        assert_eq!(result.answer, "ok", "{} with {options:?}", result.name);
    }
    assert_eq!(report.results.len(), 22);
    Ok(report)
}

fn fields(report: &impl serde::Serialize) -> Vec<String> {
    match serde_json::to_value(report) {
        Ok(Value::Object(fields)) => fields.keys().cloned().collect(),
        other => panic!("a report is an object, not {other:?}"),
    }
}

#[test]
fn tpch_from_the_generator() -> Result<(), BenchError> {
    let report = run_tpch(&tiny_tpch())?;
    for name in ["benchmark", "total_ms", "geomean_ms", "load_ms", "rss_bytes", "results", "peers", "counters"] {
        assert!(fields(&report).contains(&name.to_owned()), "the report has no {name}");
    }
    let expected = ["answer", "median_ms", "name", "native", "plan_ms", "rows"];
    assert_eq!(fields(&report.results[0]), expected);
    let total: f64 = report.results.iter().map(|result| result.median_ms).sum();
    assert!((report.total_ms - total).abs() < 1e-6 && report.geomean_ms > 0.0);
    assert!(report.results.iter().all(|result| 0.0 < result.plan_ms && result.plan_ms < result.median_ms));
    Ok(())
}

#[test]
fn tpch_from_files_in_many_partitions_of_small_segments() -> Result<(), BenchError> {
    let directory = std::env::temp_dir().join(format!("eris-tiny-tpch-{}", std::process::id()));
    dump::write_directory(&directory, 0.01)?;
    let options = TpchOptions {
        data: Some(directory.clone()),
        nodes: 2,
        partitions: Some(7),
        layout: Some("mixed".to_owned()),
        segment_rows: Some(1_000),
        ..tiny_tpch()
    };
    let report = run_tpch(&options);
    std::fs::remove_dir_all(&directory)?;
    let report = report?;
    assert!(report.counters["messages_remote"] > 0, "two nodes that never talked");
    Ok(())
}

#[test]
fn missing_files_are_named() {
    let options = TpchOptions { data: Some("/nonexistent".into()), ..tiny_tpch() };
    match tpch(&options, &mut |_| {}) {
        Err(error) => assert!(error.to_string().contains("no region.tbl in /nonexistent"), "{error}"),
        Ok(_) => panic!("loaded nothing from nowhere"),
    }
}

fn run_tatp(via: Via) -> Result<TatpReport, BenchError> {
    let options = TatpOptions {
        subscribers: 1_000,
        seconds: 0.5,
        warm_up_seconds: 0.1,
        permuted_numbers: true,
        memory_limit_bytes: 1 << 30,
        via,
        ..TatpOptions::default()
    };
    let report = tatp(&options, &mut |_| {})?;
    assert!(report.consistent, "{:?}", report.violation_examples);
    assert!(report.throughput_per_s > 100.0, "{} transactions per second", report.throughput_per_s);
    assert!(report.latency_us.p50 <= report.latency_us.p99 && report.latency_us.p99 <= report.latency_us.p999);
    assert_eq!(report.foreign_keys, "not declared");
    for name in ["benchmark", "throughput_per_s", "server_cpu_us_per_tx", "success_ratio", "latency_us", "results"] {
        assert!(fields(&report).contains(&name.to_owned()), "the report has no {name}");
    }
    let names: BTreeSet<&str> = report.results.iter().map(|result| result.name).collect();
    assert_eq!((names.len(), report.results.len()), (7, 7), "one entry for each kind of transaction: {names:?}");
    let completed: u64 = report.results.iter().map(|result| result.completed).sum();
    assert_eq!(completed, (report.throughput_per_s * report.measured_s).round() as u64, "they add up");
    for kind in &report.results {
        assert_eq!(kind.completed, kind.success + kind.empty + kind.rejected, "{}", kind.name);
    }
    Ok(report)
}

#[test]
fn tatp_over_tasks() -> Result<(), BenchError> {
    let report = run_tatp(Via::Task)?;
    assert!(report.counters["executed_in_place"] > 0);
    Ok(())
}

#[test]
fn tatp_over_sql() -> Result<(), BenchError> {
    run_tatp(Via::Sql { url: None }).map(drop)
}

#[test]
fn kv_of_each_baseline() -> Result<(), BenchError> {
    for baseline in [None, Some(Baseline::Shared), Some(Baseline::Pinned)] {
        let options = KvOptions { pairs: 2_000, seconds: 0.1, warm_up_seconds: 0.0, baseline, ..KvOptions::default() };
        let report = kv(&options, &mut |_| {})?;
        assert!(report.consistent, "{report:?}");
        for name in ["benchmark", "throughput_per_s", "per_worker_per_s", "store_bytes", "limit", "consistent"] {
            assert!(fields(&report).contains(&name.to_owned()), "the report has no {name}");
        }
        // On a busy machine no transaction may have ended in time: then both are zero.
        let each = report.throughput_per_s.map(|all| all / options.workers as f64);
        assert!(each.is_some() && each == report.per_worker_per_s, "{report:?}");
    }
    Ok(())
}
