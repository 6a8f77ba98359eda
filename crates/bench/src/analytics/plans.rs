//! What the plans of the 22 queries look like on little data.

use super::{AnalyticsOptions, load};
use crate::error::BenchError;
use crate::instance::{Instance, InstanceOptions};
use eris_workloads::tpch::QueryNumber;

/// The lines of each query's plan.
fn plans() -> Result<Vec<(String, Vec<String>)>, BenchError> {
    let options = AnalyticsOptions { scale_factor: 0.01, ..AnalyticsOptions::default() };
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

#[test]
fn subqueries_that_group_a_whole_table_are_passed_a_filter() -> Result<(), BenchError> {
    let plans = plans()?;
    assert!(plans.iter().all(|(_, lines)| lines.last().is_some_and(|line| line == "Lane: native")), "{plans:#?}");
    for (name, table) in [("q17", "lineitem"), ("q20", "lineitem")] {
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
