//! The resolved dependency graph of the workspace, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Build,
    Dev,
}

#[derive(Debug)]
pub struct Edge {
    /// Index into [`Graph::packages`].
    pub to: usize,
    pub kind: Kind,
    /// The platform or `cfg` the edge is restricted to.
    pub target: Option<String>,
}

#[derive(Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    /// A crate of this repository.
    pub is_member: bool,
    pub edges: Vec<Edge>,
    /// Names in the manifest, whether or not a feature switches them on.
    pub declared: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Graph {
    pub packages: Vec<Package>,
}

pub static GRAPH: LazyLock<Graph> = LazyLock::new(|| {
    let text = run_cargo_metadata();
    Graph::parse(&serde_json::from_slice(&text).expect("cargo metadata prints JSON"))
});

/// The workspace root.
pub fn root() -> PathBuf {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the crate's directory");
    [&manifest, "..", ".."].iter().collect()
}

/// Offline first: it is quicker, and a machine that built the workspace has what is needed unless a dependency of
/// another platform was never fetched.
fn run_cargo_metadata() -> Vec<u8> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let run = |extra: &[&str]| -> Output {
        let mut command = Command::new(&cargo);
        command.args(["metadata", "--format-version", "1"]).args(extra).current_dir(root());
        command.output().expect("cargo can be run")
    };
    let mut output = run(&["--offline"]);
    if !output.status.success() {
        output = run(&[]);
    }
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Graph {
    pub fn parse(metadata: &Value) -> Self {
        let members: BTreeSet<&str> = strings(&metadata["workspace_members"]).collect();
        let described = array(&metadata["packages"]);
        let index: BTreeMap<&str, usize> = described.iter().map(|package| text(&package["id"])).zip(0..).collect();
        let mut packages: Vec<Package> = described
            .iter()
            .map(|package| Package {
                name: text(&package["name"]).to_owned(),
                version: text(&package["version"]).to_owned(),
                license: package["license"].as_str().map(str::to_owned),
                is_member: members.contains(text(&package["id"])),
                edges: Vec::new(),
                declared: array(&package["dependencies"]).iter().map(|d| text(&d["name"]).to_owned()).collect(),
            })
            .collect();
        for node in array(&metadata["resolve"]["nodes"]) {
            let edges = &mut packages[index[text(&node["id"])]].edges;
            for dependency in array(&node["deps"]) {
                let to = index[text(&dependency["pkg"])];
                edges.extend(array(&dependency["dep_kinds"]).iter().map(|kind| Edge {
                    to,
                    kind: match kind["kind"].as_str() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some("dev") => Kind::Dev,
                        Some(other) => panic!("cargo knows a new kind of dependency: {other}"),
                    },
                    target: kind["target"].as_str().map(str::to_owned),
                }));
            }
        }
        Self { packages }
    }

    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_member)
    }

    pub fn member(&self, name: &str) -> &Package {
        self.members().find(|package| package.name == name).unwrap_or_else(|| panic!("no crate {name} here"))
    }

    /// What is compiled to build and test `start`: all its own dependencies and, from there on, theirs except the ones
    /// for their tests. Each with the path that leads to it.
    pub fn reached_from(&self, start: &Package) -> BTreeMap<&str, String> {
        let mut reached = BTreeMap::new();
        let mut open: Vec<(&Package, String)> = vec![(start, start.name.clone())];
        while let Some((package, path)) = open.pop() {
            let is_start = std::ptr::eq(package, start);
            for edge in package.edges.iter().filter(|edge| is_start || edge.kind != Kind::Dev) {
                let next = &self.packages[edge.to];
                let path = format!("{path} -> {}", next.name);
                if !reached.contains_key(next.name.as_str()) {
                    reached.insert(next.name.as_str(), path.clone());
                    open.push((next, path));
                }
            }
        }
        reached
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    array(value).iter().map(text)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("cargo metadata has {value} where a string is expected"))
}

/// A graph from lines `name -> dependency dependency`; names that start with `eris-` are members.
pub fn sample(lines: &str) -> Graph {
    let mut names: Vec<&str> = lines.split_whitespace().filter(|word| *word != "->").collect();
    names.sort_unstable();
    names.dedup();
    let package = |name: &&str| {
        let line = lines.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} ->")));
        let dependencies: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        let index = |dependency: &str| names.iter().position(|name| *name == dependency).expect("every name is listed");
        Package {
            name: (*name).to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            is_member: name.starts_with("eris-"),
            edges: dependencies.iter().map(|d| Edge { to: index(d), kind: Kind::Normal, target: None }).collect(),
            declared: dependencies.iter().map(|&d| d.to_owned()).collect(),
        }
    };
    Graph { packages: names.iter().map(package).collect() }
}

#[test]
fn the_graph_is_the_workspace() {
    assert!(GRAPH.members().count() > 5, "the workspace has its crates");
    let reached = GRAPH.reached_from(GRAPH.member("eris-cli"));
    assert!(reached.contains_key("datafusion-sql"), "the binary reaches what it is built from");
}

#[test]
fn reach_follows_paths_to_the_end() {
    let graph = sample("eris-a -> b\nb -> c\nc -> b");
    let reached = graph.reached_from(graph.member("eris-a"));
    assert_eq!(reached.get("c").map(String::as_str), Some("eris-a -> b -> c"));
}
