//! The core builds and tests without Arrow, DataFusion and tokio, and only `eris-sql` and its
//! compiled-once part `eris-binder` know DataFusion at all.

use crate::metadata::{GRAPH, Graph, sample};

const CORE: &[&str] = &[
    "eris-platform",
    "eris-sync",
    "eris-storage",
    "eris-engine",
    "eris-operators",
    "eris-durability",
    "eris-query",
    "eris-workloads",
];
/// A name with one of these as a whole or before a hyphen.
const FORBIDDEN_IN_CORE: &[&str] = &["arrow", "datafusion", "tokio", "parquet"];
const USERS_OF_DATAFUSION: [&str; 2] = ["eris-binder", "eris-sql"];

fn is_of_family(name: &str, family: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn forbidden_in_core(graph: &Graph, core: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for name in core {
        for (reached, path) in graph.reached_from(graph.member(name)) {
            if FORBIDDEN_IN_CORE.iter().any(|family| is_of_family(reached, family)) {
                found.push(path);
            }
        }
    }
    found
}

fn users_of_datafusion(graph: &Graph) -> Vec<&str> {
    let users = graph.members().filter(|package| package.declared.iter().any(|name| is_of_family(name, "datafusion")));
    users.map(|package| package.name.as_str()).collect()
}

/// Versions of all crates of the Arrow family in one lock file.
fn arrow_versions(graph: &Graph) -> Vec<&str> {
    let arrow = graph.packages.iter().filter(|package| is_of_family(&package.name, "arrow"));
    let mut versions: Vec<&str> = arrow.map(|package| package.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

#[test]
fn the_core_reaches_no_foreign_runtime() {
    let found = forbidden_in_core(&GRAPH, CORE);
    assert!(found.is_empty(), "the core reaches what it must not:\n{}", found.join("\n"));
}

#[test]
fn only_sql_names_datafusion() {
    assert_eq!(users_of_datafusion(&GRAPH), USERS_OF_DATAFUSION);
}

#[test]
fn there_is_one_version_of_arrow() {
    assert_eq!(arrow_versions(&GRAPH).len(), 1, "two versions of Arrow cannot exchange a batch");
}

#[test]
fn a_way_around_is_found() {
    let graph = sample("eris-storage -> libc clean\nclean -> tokio-util\neris-engine -> libc\ndatafusion-sql ->");
    assert_eq!(forbidden_in_core(&graph, &["eris-storage"]), ["eris-storage -> clean -> tokio-util"]);
    assert!(forbidden_in_core(&graph, &["eris-engine"]).is_empty());
    let graph = sample("eris-sql -> datafusion\neris-server -> datafusion-sql");
    assert_eq!(users_of_datafusion(&graph), ["eris-server", "eris-sql"]);
    let mut graph = sample("eris-sql -> arrow arrow-array arrowhead");
    assert_eq!(arrow_versions(&graph), ["1.0.0"]);
    graph.packages[0].version = "2.0.0".to_owned();
    assert_eq!(arrow_versions(&graph), ["1.0.0", "2.0.0"]);
}
