//! Every dependency has a licence that `deny.toml` allows: one list for this test and for `cargo deny`.

use std::fs;

use crate::metadata::{GRAPH, Graph, root, sample};
use crate::spdx;

/// The strings of `allow = [...]` in section `[licenses]`.
fn allowed_licences(deny: &str) -> Vec<&str> {
    let section = deny.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let section = section.split("\n[").next().unwrap_or(section);
    let list = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    let entries = list.lines().map(|line| line.split('#').next().unwrap_or(line));
    entries
        .flat_map(|line| line.split(','))
        .map(|entry| entry.trim().trim_matches('"'))
        .filter(|e| !e.is_empty())
        .collect()
}

fn refused(graph: &Graph, allowed: &[&str]) -> Vec<String> {
    let refused = graph.packages.iter().filter(|package| {
        let license = package.license.as_deref().unwrap_or_default();
        spdx::is_satisfied(license, &|name| allowed.contains(&name)) != Ok(true)
    });
    refused.map(|package| format!("{} {}: {:?}", package.name, package.version, package.license)).collect()
}

#[test]
fn every_licence_is_allowed() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml lies at the root");
    let allowed = allowed_licences(&deny);
    assert!(allowed.contains(&"Apache-2.0"), "our own licence is on the list: {allowed:?}");
    let found = refused(&GRAPH, &allowed);
    assert!(found.is_empty(), "licences that deny.toml does not allow:\n{}", found.join("\n"));
}

#[test]
fn the_list_is_read_as_written() {
    let deny =
        "[graph]\nallow = [\"no\"]\n[licenses]\nconfidence = 1\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n[bans]\n";
    assert_eq!(allowed_licences(deny), ["MIT", "ISC"]);
    assert!(allowed_licences("[bans]\nallow = [\"x\"]\n").is_empty());
}

#[test]
fn other_licences_are_found() {
    let mut graph = sample("eris-a -> b c");
    assert!(refused(&graph, &["MIT"]).is_empty());
    graph.packages[0].license = Some("GPL-3.0-only".to_owned());
    graph.packages[1].license = None;
    assert_eq!(refused(&graph, &["MIT"]).len(), 2);
}
