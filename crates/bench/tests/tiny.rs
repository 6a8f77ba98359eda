//! Every benchmark once with tiny inputs, so that none rots: the answers are right, the tables consistent, the reports
//! complete.

use std::collections::BTreeSet;
use std::path::PathBuf;

use eris_bench::{
    AnalyticsOptions, AnalyticsReport, BenchError, CacheQueriesOptions, CheckpointOptions, CommitsOptions,
    MixedOptions, RecoverFrom, RecoveryOptions, TatpOptions, TatpReport, Via, analytics, cache_queries, checkpoint,
    commits, fill, kv, mixed, recovery, tatp,
};
use eris_engine::Durability;
use eris_workloads::cache_queries::CacheData;
use eris_workloads::kv::{Baseline, KvOptions};
use eris_workloads::tpch::dump;
use serde_json::Value;

fn tiny_tpch() -> AnalyticsOptions {
    AnalyticsOptions { scale_factor: 0.01, repeat: 1, memory_limit_bytes: 2 << 30, ..AnalyticsOptions::default() }
}

fn run_tpch(options: &AnalyticsOptions) -> Result<AnalyticsReport, BenchError> {
    let report = analytics(options, &mut |_| {})?;
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
    let options = AnalyticsOptions {
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

/// Whatever can go on in temporary files does, and answers what it answers in memory.
#[test]
fn tpch_in_temporary_files() -> Result<(), BenchError> {
    let report = run_tpch(&AnalyticsOptions { work_mem_bytes: Some(1), ..tiny_tpch() })?;
    assert!(report.counters["temp_bytes_written"] > 0);
    Ok(())
}

#[test]
fn tpch_beside_writers() -> Result<(), BenchError> {
    let options = AnalyticsOptions { refresh_clients: 2, segment_rows: Some(1_000), repeat: 3, ..tiny_tpch() };
    assert!(run_tpch(&options)?.refresh_transactions > 0);
    Ok(())
}

#[test]
fn tpch_after_random_changes_and_beside_writers() -> Result<(), BenchError> {
    let options = AnalyticsOptions { churn: 60, refresh_clients: 2, segment_rows: Some(1_000), ..tiny_tpch() };
    let report = run_tpch(&options)?;
    let churned = report.churn.ok_or_else(|| BenchError::Options("nothing was changed".to_owned()))?;
    assert_eq!(churned.transactions, 60);
    assert!(churned.inserted_rows > 0 && churned.updated_rows > 0 && churned.deleted_rows > 0, "{churned:?}");
    assert!(report.counters["segments_thawed"] + report.counters["segments_compacted"] > 0, "{:?}", report.counters);
    Ok(())
}

#[test]
fn missing_files_are_named() {
    let options = AnalyticsOptions { data: Some("/nonexistent".into()), ..tiny_tpch() };
    match analytics(&options, &mut |_| {}) {
        Err(error) => assert!(error.to_string().contains("no region.tbl in /nonexistent"), "{error}"),
        Ok(_) => panic!("loaded nothing from nowhere"),
    }
}

#[test]
fn cache_queries_beside_the_bandwidth() -> Result<(), BenchError> {
    let data = CacheData {
        rows: 200_000,
        scanned_values: 1_000,
        aggregated_values: 100_000,
        groups: 100,
        keys: 5_000,
        ..CacheData::default()
    };
    let options = CacheQueriesOptions {
        data,
        repeat: 2,
        cached_rows: 70_000,
        cached_passes: 3,
        memory_limit_bytes: 1 << 30,
        ..CacheQueriesOptions::default()
    };
    let report = cache_queries(&options, &mut |_| {})?;
    assert!(report.is_right(), "{report:?}");
    let names: Vec<&str> = report.queries.iter().map(|query| query.name).collect();
    assert_eq!(names, ["scan", "aggregation", "join"]);
    for query in &report.queries {
        assert!(query.native && query.limit_bytes_per_s > 0.0 && query.share_of_limit_percent > 0.0, "{query:?}");
        assert!(0.0 < query.execution_ns_per_row && query.execution_ns_per_row <= query.ns_per_row, "{query:?}");
        for table in &query.tables {
            assert_eq!(table.rows, table.held.encoded_rows + table.held.unencoded_rows + table.held.open_rows);
            assert!(table.held.encoded_rows > 0 && table.bytes < table.value_bytes, "{table:?}");
        }
    }
    assert_eq!(report.queries[1].answer_rows, 100);
    assert_eq!(report.queries[2].answer_checksum, 200_000);
    assert!(report.cached_scan.codes_per_ns_and_core > 0.0 && report.cached_scan.bytes > 0, "{report:?}");
    let refused = CacheQueriesOptions { data: CacheData { groups: 0, ..data }, ..options };
    assert!(matches!(cache_queries(&refused, &mut |_| {}), Err(BenchError::Options(_))));
    Ok(())
}

/// A directory that does not exist.
fn new_directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("eris-tiny-{name}-{}", std::process::id()))
}

fn run_tatp(via: Via) -> Result<TatpReport, BenchError> {
    run_tatp_with(TatpOptions { via, ..TatpOptions::default() })
}

fn run_tatp_with(options: TatpOptions) -> Result<TatpReport, BenchError> {
    let options = TatpOptions {
        subscribers: 1_000,
        seconds: 0.5,
        warm_up_seconds: 0.1,
        permuted_numbers: true,
        memory_limit_bytes: 1 << 30,
        ..options
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
fn tatp_of_a_server_with_clients_that_share_threads() -> Result<(), BenchError> {
    let database = eris::Database::open(eris::Options::default()).expect("opens");
    let server = database.serve(([127, 0, 0, 1], 0).into()).expect("listens");
    let url = Some(format!("postgres://eris@{}/eris", server.local_address()));
    for (asked, threads) in [(1, 1), (3, 3), (9, 5)] {
        let via = Via::Sql { url: url.clone() };
        let options = TatpOptions { via, clients: 5, client_threads: Some(asked), ..TatpOptions::default() };
        assert_eq!(run_tatp_with(options)?.client_threads, Some(threads));
    }
    database.close();
    for (client_threads, url) in [(Some(0), url), (Some(2), None)] {
        let options = TatpOptions { via: Via::Sql { url }, client_threads, ..TatpOptions::default() };
        let refused = tatp(&options, &mut |_| {}).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("--client-threads"), "{refused}");
    }
    Ok(())
}

#[test]
fn tatp_with_a_log() -> Result<(), BenchError> {
    for (via, durability) in [
        (Via::Task, Durability::Asynchronous),
        (Via::Task, Durability::Synchronous),
        (Via::Sql { url: None }, Durability::Asynchronous),
    ] {
        let directory = new_directory("tatp");
        let options = TatpOptions { via, durability, directory: Some(directory.clone()), ..TatpOptions::default() };
        let report = run_tatp_with(options)?;
        let asynchronous = durability == Durability::Asynchronous;
        assert_eq!(report.log, Some(if asynchronous { "asynchronous" } else { "synchronous" }));
        assert!(report.counters["log_commits"] > 10, "{:?}", report.counters);
        assert!(!directory.exists(), "what was written stays");
    }
    Ok(())
}

#[test]
fn commits_beside_disk_and_echo() -> Result<(), BenchError> {
    let options = CommitsOptions {
        accounts: 1_000,
        rounds: 2,
        commits: 20,
        clients: 4,
        seconds: 0.1,
        ..CommitsOptions::new(new_directory("commits"))
    };
    let report = commits(&options, &mut |_| {})?;
    assert!(!options.directory.exists(), "what was written stays");
    assert!((20..=4_096).contains(&report.commit_bytes), "{} bytes of a commit", report.commit_bytes);
    assert!(report.request_bytes > 20 && report.answer_bytes > 10, "{report:?}");
    let one = &report.one_client;
    for of_one in [&one.disk, &one.disk_with_two_files, &one.task, &one.echo, &one.sql] {
        assert!(0.0 < of_one.p50_us && of_one.p50_us <= of_one.p99_us && of_one.p50_us_of_rounds.len() == 2);
    }
    for of_many in [&report.many_clients.task, &report.many_clients.sql] {
        assert!(of_many.commits_per_s > 0.0 && of_many.commits_per_sync >= 1.0 && of_many.idle_share < 1.0);
    }
    Ok(())
}

#[test]
fn recovery_from_each() -> Result<(), BenchError> {
    for from in [RecoverFrom::Checkpoint, RecoverFrom::Load, RecoverFrom::Transactions] {
        let options = RecoveryOptions {
            scale_factor: 0.01,
            transactions: 1_000,
            repeat: 2,
            memory_limit_bytes: 1 << 30,
            ..RecoveryOptions::new(new_directory("recovery"), from)
        };
        let mut fill_and_end = |options: &RecoveryOptions| {
            let (instance, filled) = fill(options)?;
            instance.abandon();
            Ok(filled)
        };
        let report = recovery(&options, &mut fill_and_end, &mut |_| {})?;
        assert!(report.right, "{:?}", report.violations);
        assert!(report.table_rows >= 1_000 && report.table_bytes > 50 * report.table_rows, "{report:?}");
        let replayed = if from == RecoverFrom::Checkpoint { 0..=0 } else { 8..=2_000 };
        assert!(replayed.contains(&report.transactions), "{report:?}");
        assert_eq!(report.checkpoint_file_bytes > 0, from == RecoverFrom::Checkpoint, "{report:?}");
        assert!(!options.directory.exists(), "what was written stays");
    }
    Ok(())
}

#[test]
fn point_reads_beside_checkpoints() -> Result<(), BenchError> {
    let options = CheckpointOptions {
        rows: 1_000,
        fresh_rows: 50_000,
        requests: 100,
        rounds: 2,
        seconds: 0.05,
        memory_limit_bytes: 1 << 30,
        ..CheckpointOptions::new(new_directory("checkpoint"))
    };
    let report = checkpoint(&options, &mut |_| {})?;
    assert!(report.alone.count >= 100 && report.beside_checkpoint.count >= 100, "{report:?}");
    assert!(report.p999_ratio > 0.0 && report.checkpoint_written_bytes >= report.fresh_bytes, "{report:?}");
    assert!(!options.directory.exists(), "what was written stays");
    Ok(())
}

#[test]
fn point_reads_and_tatp_beside_queries() -> Result<(), BenchError> {
    let options = MixedOptions {
        scale_factor: 0.01,
        subscribers: 1_000,
        rows: 1_000,
        requests: 100,
        rounds: 2,
        seconds: 0.1,
        memory_limit_bytes: 2 << 30,
        ..MixedOptions::default()
    };
    let report = mixed(&options, &mut |_| {})?;
    assert!(report.is_right(), "{:?} {:?} {:?}", report.stream.answers, report.tatp, report.freshness);
    // A pass that warms up, and three in each round.
    let passes = 1 + 3 * report.rounds as u64;
    assert!(report.rounds >= 2 && report.stream.answers.get("ok") == Some(&(22 * passes)), "{:?}", report.stream);
    let reads = &report.point_reads;
    assert!(reads.alone.count >= 100 && reads.beside_stream.count >= 100 && reads.p99_ratio > 0.0, "{reads:?}");
    assert!(report.stream.share_beside_reads > 0.0 && report.stream.share_beside_tatp > 0.0, "{:?}", report.stream);
    assert!(report.tatp.done_per_s > 0.0, "{:?}", report.tatp);
    let freshness = &report.freshness;
    assert_eq!(freshness.queries, 22 * report.rounds);
    assert!(0.0 < freshness.age_p50_us && freshness.age_p50_us <= freshness.age_max_us, "{freshness:?}");
    // The first commit of each pass is there before the pass begins, with a stamp of that moment.
    assert!(freshness.age_max_us < 60e6, "{freshness:?}");
    for wrong in [MixedOptions { rounds: 0, ..options.clone() }, MixedOptions { rate: Some(0.0), ..options }] {
        assert!(matches!(mixed(&wrong, &mut |_| {}), Err(BenchError::Options(_))), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn what_exists_is_not_overwritten() {
    let options = CommitsOptions::new(std::env::temp_dir());
    assert!(matches!(commits(&options, &mut |_| {}), Err(BenchError::Options(_))));
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
