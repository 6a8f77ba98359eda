//! The key-value benchmark with little data: every variant finds every value, and its figures have what reports need.

use eris_engine::Coalescing;
use eris_workloads::kv::{Access, Baseline, KvError, KvOptions, KvStore, Locality, PartitionedBy, run};

fn options() -> KvOptions {
    KvOptions { pairs: 5_000, seconds: 0.05, warm_up_seconds: 0.0, ..KvOptions::default() }
}

#[test]
fn every_variant_finds_the_value_of_every_key() -> Result<(), KvError> {
    let mut variants = Vec::new();
    for access in [Access::Index, Access::OrderedIndex, Access::Scan] {
        for partitioned_by in [PartitionedBy::Key, PartitionedBy::Value] {
            for coalescing in [Coalescing::None, Coalescing::Partition, Coalescing::Sender] {
                variants.push(KvOptions { access, partitioned_by, coalescing, partitions: Some(3), ..options() });
            }
        }
    }
    for locality in [Locality::Local, Locality::Shifted, Locality::Random] {
        for direct_append in [false, true] {
            variants.push(KvOptions { locality, direct_append, nodes: 2, partitions: Some(5), ..options() });
        }
    }
    for access in [Access::Index, Access::OrderedIndex, Access::Scan] {
        for coalescing in [Coalescing::None, Coalescing::Sender] {
            variants.push(KvOptions { baseline: Some(Baseline::Shared), access, coalescing, ..options() });
        }
    }
    let mut checksum = None;
    for variant in variants {
        let report = run(&variant, &mut |_| {})?;
        assert!(report.consistent, "{report:?}");
        assert_eq!(*checksum.get_or_insert(report.checksum), report.checksum, "all variants hold the same pairs");
        assert!(report.throughput_per_s.is_some() && report.limit.is_some() && report.store_bytes > Some(0));
    }
    Ok(())
}

#[test]
fn pinned_partitions_have_a_node_and_a_worker_each() -> Result<(), KvError> {
    let pinned = KvOptions { baseline: Some(Baseline::Pinned), workers: 3, ..options() };
    let engine = KvStore::engine_options(&pinned);
    assert_eq!((engine.workers, engine.nodes), (3, 3), "a node has one worker: nobody else comes to its partitions");
    let report = run(&pinned, &mut |_| {})?;
    assert!(report.consistent, "{report:?}");
    assert_eq!((report.baseline, report.workers, report.nodes), (Some("pinned"), 3, 3));
    assert_eq!(report.partitions, 3, "one partition for each worker");
    let moving = run(&KvOptions { workers: 3, ..options() }, &mut |_| {})?;
    assert_eq!((moving.baseline, moving.nodes), (None, 1), "without it workers share a node and its partitions");
    assert_eq!(report.checksum, moving.checksum);
    Ok(())
}

#[test]
fn reports_have_the_keys_that_users_read() -> Result<(), KvError> {
    let report = run(&KvOptions { workers: 2, ..options() }, &mut |_| {})?;
    let json = serde_json::to_value(&report).map_err(|error| KvError::Options(error.to_string()))?;
    assert_eq!(json["benchmark"], "kv");
    // On a busy machine no transaction may have ended in time: then both are zero, but they are there.
    let throughput = json["throughput_per_s"].as_f64();
    assert!(throughput.is_some(), "{json}");
    assert_eq!(json["per_worker_per_s"].as_f64(), throughput.map(|all| all / 2.0));
    Ok(())
}

#[test]
fn what_the_machine_cannot_show_is_unavailable() -> Result<(), KvError> {
    let report = run(&KvOptions { baseline: Some(Baseline::Interleaved), ..options() }, &mut |_| {})?;
    assert_eq!(report.unavailable.is_some(), report.throughput_per_s.is_none());
    let json = serde_json::to_value(&report).map_err(|error| KvError::Options(error.to_string()))?;
    assert_eq!(json["benchmark"], "kv");
    if report.unavailable.is_some() {
        assert_eq!(json["unavailable"]["reason"], "one NUMA node");
    }
    Ok(())
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let wrong = [
        KvOptions { pairs: 0, ..options() },
        KvOptions { partitions: Some(1), nodes: 2, ..options() },
        KvOptions { seconds: 0.0, ..options() },
        KvOptions { workers: 1, nodes: 2, ..options() },
        KvOptions { locality: Locality::Local, partitioned_by: PartitionedBy::Value, ..options() },
    ];
    for options in wrong {
        assert!(matches!(run(&options, &mut |_| {}), Err(KvError::Options(_))), "{options:?}");
    }
}
