//! Dependencies between our crates point one way.

use crate::metadata::{GRAPH, Graph, Kind, sample};

/// From left to right: a crate depends only on crates in groups before its own, never on one in its own group.
/// Crates that do not exist yet have their place already.
const LAYERS: &[&[&str]] = &[
    &["eris-platform", "eris-sync"],
    &["eris-storage"],
    &["eris-engine"],
    &["eris-operators", "eris-durability", "eris-control", "eris-memtrace"],
    &["eris-query", "eris-workloads", "eris-binder"],
    &["eris-sql"],
    &["eris-loading", "eris-server"],
    &["eris"],
    &["eris-bench"],
    &["eris-cli"],
];
/// Checks the others, depends on none and is no dependency.
const TIDY: &str = "eris-tidy";
/// The model checker replaces the standard library's atomics in `sync` when it is switched on, and only then.
const MODEL_CHECKER: (&str, &str) = ("cfg(loom)", "loom");

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

fn violations(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for package in graph.members() {
        let layer = layer_of(&package.name);
        if layer.is_none() && package.name != TIDY {
            found.push(format!("{} has no layer", package.name));
        }
        for to in package.edges.iter().map(|edge| &graph.packages[edge.to]).filter(|to| to.is_member) {
            let points_left = matches!((layer_of(&to.name), layer), (Some(to), Some(from)) if to < from);
            if !points_left {
                found.push(format!("{} must not depend on {}", package.name, to.name));
            }
        }
    }
    found
}

fn dependencies_of_sync(graph: &Graph) -> Vec<&str> {
    let edges = graph.member("eris-sync").edges.iter().filter(|edge| edge.kind != Kind::Dev);
    edges
        .filter(|edge| {
            (edge.target.as_deref(), graph.packages[edge.to].name.as_str()) != (Some(MODEL_CHECKER.0), MODEL_CHECKER.1)
        })
        .map(|edge| graph.packages[edge.to].name.as_str())
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let found = violations(&GRAPH);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn sync_depends_on_nothing() {
    assert!(dependencies_of_sync(&GRAPH).is_empty(), "{:?}", dependencies_of_sync(&GRAPH));
}

#[test]
fn wrong_ways_are_found() {
    let graph = sample("eris-sync ->\neris-storage -> eris-sync libc\neris-engine -> eris-storage eris-sync");
    assert!(violations(&graph).is_empty());
    for (lines, count) in [
        ("eris-sync -> eris-platform", 1),
        ("eris-storage -> eris-engine", 1),
        ("eris-workloads -> eris-sql", 1),
        ("eris-storage -> eris-tidy", 1),
        ("eris-unknown -> libc", 1),
    ] {
        assert_eq!(violations(&sample(lines)).len(), count, "{lines}");
    }
    assert_eq!(dependencies_of_sync(&sample("eris-sync -> libc")), ["libc"]);
    let mut graph = sample("eris-sync -> loom");
    assert_eq!(dependencies_of_sync(&graph), ["loom"]);
    graph.packages[0].edges[0].target = Some(MODEL_CHECKER.0.to_owned());
    assert!(dependencies_of_sync(&graph).is_empty());
}
