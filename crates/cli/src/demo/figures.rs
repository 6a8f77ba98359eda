//! Counters, memory by consumer, time by phase.

use std::time::Duration;

use eris_bench::ProcessId;
use eris_engine::{Engine, Event};

use crate::demo::screen::{count, megabytes, seconds};

/// Consumers of memory that are shown; the rest is one line.
const CONSUMERS_SHOWN: usize = 8;

pub fn counters(engine: &Engine) {
    let statistics = engine.statistics();
    let of = |event| statistics.event(event);
    for (name, value, meaning) in [
        ("segments sealed", statistics.store.sealed, "open segments that filled up and became immutable columns"),
        ("segments attached", statistics.store.attached, "sealed segments that bulk loads brought"),
        ("segments thawed", statistics.store.thawed, "sealed segments that collected writes and were opened again"),
        ("segments compacted", statistics.store.compacted, "segments rewritten without their dead rows"),
        ("splits", of(Event::Splits), "partitions that were cut in two while queries ran"),
        ("local messages", of(Event::LocalMessages), "to partitions of the sender's node"),
        ("remote messages", of(Event::RemoteMessages), "to other nodes; `--nodes 2` makes two"),
        ("broadcasts", of(Event::Broadcasts), "to all partitions of a table"),
        ("multicasts", of(Event::Multicasts), "to the partitions that a range leaves, where these are many"),
        ("forwarded messages", of(Event::Forwarded), "passed on by a partition that had split"),
        ("in-place executions", of(Event::InPlace), "commands run by the worker that would have sent them"),
        ("commands", of(Event::Commands), "run from messages"),
        ("saved cursors", of(Event::SavedCursors), "scans that gave way after their quantum and went on later"),
        ("transactions committed", statistics.committed, ""),
        ("transactions aborted", statistics.aborted, "mostly write conflicts, which the clients repeat"),
        ("workers went to sleep", of(Event::Parks), "idle costs nothing"),
    ] {
        println!("  {name:<22} {:>14}   {meaning}", count(value));
    }
}

pub fn memory(engine: &Engine) {
    let statistics = engine.statistics();
    let mut consumers = statistics.memory_by_consumer.clone();
    consumers.retain(|(_, bytes)| *bytes > 0);
    consumers.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    for (name, bytes) in consumers.iter().take(CONSUMERS_SHOWN) {
        println!("  {name:<22} {:>14}", megabytes(*bytes));
    }
    let rest: u64 = consumers.iter().skip(CONSUMERS_SHOWN).map(|(_, bytes)| bytes).sum();
    if rest > 0 {
        println!("  {:<22} {:>14}", "other", megabytes(rest));
    }
    println!(
        "  {:<22} {:>14}   at the peak {}",
        "accounted",
        megabytes(statistics.memory_used_bytes),
        megabytes(statistics.memory_peak_bytes)
    );
    if let Some(bytes) = ProcessId::own().rss_peak_bytes() {
        println!("  {:<22} {:>14}   the process at its peak, as the kernel counts it", "resident", megabytes(bytes));
    }
}

pub fn time(total: Duration, phases: &[(&str, Duration)]) {
    for (name, time) in phases {
        println!("  {name:<28} {:>8}", seconds(*time));
    }
    let cpu = ProcessId::own().cpu_time().map_or_else(String::new, |cpu| {
        format!("   {} of CPU time, {:.1} cores on average", seconds(cpu), cpu.as_secs_f64() / total.as_secs_f64())
    });
    println!("  {:<28} {:>8}{cpu}", "in all", seconds(total));
}
