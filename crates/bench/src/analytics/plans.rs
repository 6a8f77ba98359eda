//! What the plans of the 22 queries look like on little data.

use super::{AnalyticsOptions, load};
use crate::error::BenchError;
use crate::instance::{Instance, InstanceOptions};
use eris_workloads::tpch::QueryNumber;

/// The lines of each query's plan.
fn plans() -> Result<Vec<(String, Vec<String>)>, BenchError> {
    // One worker loads the same rows to the same places each time, so that samples are the same.
    let options = AnalyticsOptions { scale_factor: 0.01, workers: 1, ..AnalyticsOptions::default() };
    let instance = Instance::start(&InstanceOptions {
        workers: options.workers,
        nodes: options.nodes,
        memory_limit_bytes: 2 << 30,
        in_place: true,
        split_rows: None,
    })?;
    load(&instance, &options)?;
    let mut plans = Vec::new();
    for query in QueryNumber::all() {
        let explained = instance.query(&format!("EXPLAIN {}", query.sql(options.scale_factor)));
        let explained = explained.map_err(|failure| BenchError::Options(format!("{}: {failure}", query.name())))?;
        let lines = explained.rows.iter().flatten().map(ToString::to_string);
        plans.push((query.name(), lines.collect()));
    }
    instance.shutdown();
    Ok(plans)
}

/// A line without what is estimated from samples.
fn without_estimates(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("  (about ") {
        kept.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    kept + rest
}

/// Plans as they were looked at last. `ERIS_BLESS=1` writes them anew: look at what changed before it is kept.
#[test]
fn each_query_has_the_plan_that_was_looked_at() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/analytics/plans.snap");
    let mut found = String::new();
    for (name, lines) in plans()? {
        let lines: Vec<String> = lines.iter().map(|line| without_estimates(line)).collect();
        found += &format!("{name}\n{}\n\n", lines.join("\n"));
    }
    if std::env::var_os("ERIS_BLESS").is_some() {
        std::fs::write(&file, &found)?;
    }
    let kept = std::fs::read_to_string(&file)?;
    for (kept, found) in kept.split("\n\n").zip(found.split("\n\n")) {
        assert_eq!(kept, found, "\nthe plan is another one; if it is meant to be: ERIS_BLESS=1 cargo test");
    }
    assert_eq!(kept.len(), found.len(), "queries that are missing");
    Ok(())
}

#[test]
fn subqueries_that_group_a_whole_table_are_passed_a_filter() -> Result<(), BenchError> {
    let plans = plans()?;
    assert!(plans.iter().all(|(_, lines)| lines.last().is_some_and(|line| line == "Lane: native")), "{plans:#?}");
    for (name, table) in [("q2", "partsupp"), ("q17", "lineitem"), ("q20", "lineitem")] {
        let Some((_, lines)) = plans.iter().find(|(other, _)| other == name) else { panic!("there is no {name}") };
        // The first table that goes into a group: the group's own line, the scan, the filter.
        let is_filtered = lines.windows(3).any(|lines| {
            lines[0].contains(": Group by [#")
                && lines[1].trim_start().starts_with(&format!("UnorderedScan {table}"))
                && lines[2].trim_start().starts_with("filter passed from stage")
        });
        assert!(is_filtered, "{name}\n{}", lines.join("\n"));
    }
    Ok(())
}
