//! The column scan where memory does not count: its codes lie in the second-level cache of the core that reads them.

use super::report::{CachedScan, verdict};
use super::{CacheQueriesOptions, tables};
use crate::error::BenchError;
use crate::figures::median;
use eris_workloads::cache_queries::{Answers, CacheData, CacheQuery, CacheTable};
use eris_workloads::columns::BandwidthProbe;
use std::fs;

/// The same query over nothing: what an execution takes however few rows there are.
const EMPTY: &str = "CREATE TABLE nothing (x int NOT NULL)";

pub(super) fn measure(options: &CacheQueriesOptions) -> Result<CachedScan, BenchError> {
    let instance = options.start(1)?;
    let (rows, values) = (options.cached_rows, 1_u32 << options.cached_bits);
    let data = CacheData { rows, scanned_values: values, ..options.data };
    let threshold = values as i32 / 2;
    let mut answers = Answers::new(&data, vec![threshold]);
    let filled = tables::load(&instance, data, &[CacheTable::A], options.partitions, &mut answers)?;
    let tables = tables::settled(&instance, &filled)?;
    instance.execute(EMPTY)?;
    let sql = CacheQuery::Scan.sql(threshold);
    let empty_sql = format!("SELECT COUNT(*) FROM nothing WHERE nothing.x > {threshold}");
    let bytes: u64 = tables.iter().map(|table| table.bytes).sum();
    let probe = BandwidthProbe::new(bytes, 1);
    let passes = options.cached_passes;
    let execution_ns = |sql: &str| {
        let answer = instance.query_repeatedly(sql, passes)?;
        Ok::<_, BenchError>((answer.total.saturating_sub(answer.plan).as_secs_f64() * 1e9 / f64::from(passes), answer))
    };
    let (mut scans_ns, mut empty_ns, mut limits, mut shares, mut wrong) = (vec![], vec![], vec![], vec![], None);
    for _ in 0..options.repeat {
        let limit = probe.passes(passes);
        let (scan_ns, answer) = execution_ns(&sql)?;
        empty_ns.push(execution_ns(&empty_sql)?.0);
        if let Err(message) = answers.check(CacheQuery::Scan, 0, &answer.rows) {
            wrong.get_or_insert(message);
        }
        shares.push(bytes as f64 * 1e9 / scan_ns / limit * 100.0);
        scans_ns.push(scan_ns);
        limits.push(limit);
    }
    instance.shutdown();
    let codes_per_ns: Vec<f64> = scans_ns.iter().map(|ns| rows as f64 / ns).collect();
    let (scan_ns, empty_ns) = (median(&scans_ns), median(&empty_ns));
    let l2_bytes = l2_bytes();
    Ok(CachedScan {
        rows,
        values,
        bits_per_code: options.cached_bits,
        tables,
        bytes,
        l2_bytes,
        l2_origin: if l2_bytes.is_some() { "measured" } else { "unavailable" },
        lies_in_l2: l2_bytes.map(|l2| bytes <= l2),
        workers: 1,
        executions_in_a_row: passes,
        execution_us: scan_ns / 1e3,
        codes_per_ns_and_core: median(&codes_per_ns),
        codes_per_ns_and_core_of_runs: codes_per_ns,
        empty_execution_us: empty_ns / 1e3,
        codes_per_ns_beyond_empty: (scan_ns > empty_ns).then(|| rows as f64 / (scan_ns - empty_ns)),
        beyond_empty_origin: "modelled",
        bytes_per_s: bytes as f64 * 1e9 / scan_ns,
        limit_bytes_per_s: median(&limits),
        share_of_limit_percent: median(&shares),
        answer: verdict(wrong),
    })
}

/// Bytes of the second-level cache of a core, if the system tells.
fn l2_bytes() -> Option<u64> {
    fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?.flatten().find_map(|cache| {
        let field = |name: &str| fs::read_to_string(cache.path().join(name)).ok();
        let is_second = field("level")?.trim() == "2";
        let kibibytes: u64 = field("size")?.trim().strip_suffix('K')?.parse().ok()?;
        is_second.then_some(kibibytes << 10)
    })
}
