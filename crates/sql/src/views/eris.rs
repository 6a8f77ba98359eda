//! Schema `eris`: what the engine tells about itself.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use eris_durability::{RecoveryReport, Stop};
use eris_engine::EVENTS;
use eris_platform::{MemoryReport, SettingDeclaration};
use eris_storage::ContainerId;

use super::{Columns, Named, Rows, View, activity, integers, texts};
use crate::catalog::CATALOG_CONTAINER;
use crate::settings::declarations;

pub(super) const VIEWS: [View; 8] = [
    ("counters", counters),
    ("memory", memory),
    ("memory_limit", memory_limit),
    ("partitions", partitions),
    ("recovery", recovery),
    ("segments", segments),
    ("settings", settings),
    ("transactions", activity::transactions),
];

fn counters(known: &Named<'_>) -> Columns {
    let engine = known.engine;
    let statistics = engine.statistics();
    let mut rows: Vec<(String, u64)> =
        EVENTS.iter().map(|event| (event.name().to_string(), statistics.event(*event))).collect();
    rows.push(("transactions committed".to_string(), statistics.committed));
    rows.push(("transactions aborted".to_string(), statistics.aborted));
    rows.push(("snapshots published".to_string(), statistics.snapshots));
    // What lies between the two is kept for the oldest.
    rows.push(("oldest snapshot".to_string(), statistics.oldest_snapshot));
    rows.push(("newest snapshot".to_string(), statistics.newest_snapshot));
    vec![
        ("name", texts(rows.iter().map(|(name, _)| name.clone()))),
        ("value", integers(rows.iter().map(|(_, value)| *value))),
    ]
}

fn memory(known: &Named<'_>) -> Columns {
    let engine = known.engine;
    let consumers = engine.memory().by_consumer();
    vec![
        ("consumer", texts(consumers.iter().map(|(name, _)| (*name).to_string()))),
        ("bytes", integers(consumers.iter().map(|(_, bytes)| *bytes))),
    ]
}

/// One row of what the process holds beside what is accounted, and the limit that follows from it; none without a limit
/// that is watched.
fn memory_limit(known: &Named<'_>) -> Columns {
    let or_null = |bytes: Option<u64>| bytes.map(|bytes| bytes as i64);
    Rows::new(known.engine.memory_report().iter().collect())
        .integer("configured_bytes", |report: &&MemoryReport| report.configured_bytes as i64)
        .integer("in_force_bytes", |report| report.limit_bytes as i64)
        .text("reason", |report| report.reason.to_string())
        .integer("accounted_bytes", |report| report.accounted_bytes as i64)
        .integer("unaccounted_bytes", |report| report.unaccounted_bytes as i64)
        .integer_or_null("resident_bytes", move |report| or_null(report.observation.resident_bytes))
        .integer_or_null("allocated_bytes", move |report| or_null(report.observation.heap_bytes))
        .integer("kept_by_allocator_bytes", |report| report.kept_bytes() as i64)
        .columns
}

fn partitions(known: &Named<'_>) -> Columns {
    let engine = known.engine;
    let list = engine.partitions();
    vec![
        ("partition", integers(list.iter().map(|partition| partition.id.0))),
        ("container", integers(list.iter().map(|partition| u64::from(partition.container.0)))),
        ("system", is_system(list.iter().map(|partition| partition.container))),
        ("node", integers(list.iter().map(|partition| u64::from(partition.home.0)))),
        ("rows", integers(list.iter().map(|partition| partition.rows))),
        ("bytes", integers(list.iter().map(|partition| partition.bytes))),
    ]
}

/// One row of how the database was opened; none if it lives in memory only.
fn recovery(known: &Named<'_>) -> Columns {
    let path = |path: &PathBuf| path.display().to_string();
    let aside = |report: &&RecoveryReport| {
        let names: Vec<String> = report.put_aside.iter().map(path).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let why = |report: &&RecoveryReport| match report.stop {
        Stop::End => "end".to_owned(),
        Stop::Torn => "torn".to_owned(),
        Stop::Damage => "damage".to_owned(),
    };
    Rows::new(known.recovery.into_iter().collect())
        .integer("opened_unix_us", |report: &&RecoveryReport| report.opened_unix_micros)
        .integer_or_null("checkpoint_timestamp", |report| report.checkpoint_timestamp.map(|timestamp| timestamp as i64))
        .integer_or_null("checkpoint_position", |report| report.checkpoint_position.map(|position| position as i64))
        .integer("log_from", |report| report.from as i64)
        .integer("log_to", |report| report.to as i64)
        .integer("transactions", |report| report.transactions as i64)
        .integer("records", |report| report.records as i64)
        .integer("bytes", |report| (report.to - report.from) as i64)
        .integer("took_us", |report| report.took.as_micros() as i64)
        .text("stopped", why)
        .text_or_null("stopped_file", |report| report.stop_file.as_ref().map(path))
        .integer("stopped_offset", |report| report.stop_offset as i64)
        .integer("bytes_after", |report| report.bytes_after as i64)
        .integer("records_after", |report| report.records_after as i64)
        .text_or_null("put_aside", aside)
        .columns
}

fn segments(known: &Named<'_>) -> Columns {
    let engine = known.engine;
    let list: Vec<_> = engine
        .partitions()
        .into_iter()
        .flat_map(|partition| {
            let (id, container) = (partition.id.0, partition.container);
            partition.segments.into_iter().map(move |segment| (id, container, segment))
        })
        .collect();
    vec![
        ("partition", integers(list.iter().map(|(partition, ..)| *partition))),
        ("container", integers(list.iter().map(|(_, container, _)| u64::from(container.0)))),
        ("system", is_system(list.iter().map(|(_, container, _)| *container))),
        ("segment", integers(list.iter().map(|(.., segment)| u64::from(segment.number.0)))),
        ("sealed", Arc::new(list.iter().map(|(.., segment)| Some(segment.sealed)).collect::<BooleanArray>())),
        ("module", texts(list.iter().map(|(.., segment)| segment.module.to_string()))),
        ("rows", integers(list.iter().map(|(.., segment)| u64::from(segment.rows)))),
        ("dead_rows", integers(list.iter().map(|(.., segment)| u64::from(segment.dead_rows)))),
        ("bytes", integers(list.iter().map(|(.., segment)| segment.bytes))),
    ]
}

/// Whether containers are ERIS's own, not those of tables and indexes.
fn is_system(containers: impl Iterator<Item = ContainerId>) -> ArrayRef {
    Arc::new(containers.map(|container| Some(container == CATALOG_CONTAINER)).collect::<BooleanArray>())
}

fn settings(_known: &Named<'_>) -> Columns {
    vec![
        ("name", texts(declarations().map(|setting| setting.name.to_string()))),
        ("type", texts(declarations().map(|setting| setting.type_name().to_string()))),
        ("default", texts(declarations().map(SettingDeclaration::default_text))),
        ("description", texts(declarations().map(SettingDeclaration::description))),
    ]
}
