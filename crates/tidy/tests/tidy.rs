//! Applies every house rule to this repository.
#![allow(clippy::expect_used, reason = "a test that cannot read the repository has failed")]

use std::path::PathBuf;
use std::sync::LazyLock;

use eris_tidy::{Finding, Tree, rules};

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the crate's directory");
    let root: PathBuf = [&manifest, "..", ".."].iter().collect();
    Tree::read(&root).expect("the workspace can be read")
});

#[track_caller]
fn holds(check: fn(&Tree) -> Vec<Finding>) {
    let findings: Vec<String> = check(&TREE).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn the_walk_sees_the_repository() {
    for path in ["Cargo.toml", "README.md", "GLOSSARY.md", "justfile", ".ci/run", "crates/tidy/src/lib.rs"] {
        assert!(TREE.file(path).is_some(), "{path} is missing from the walk");
    }
}

#[test]
fn comparators_are_no_settings() {
    holds(rules::comparators::check);
}

#[test]
fn a_storage_module_touches_three_files() {
    holds(rules::module_budget::check);
}

#[test]
fn no_dead_files() {
    holds(rules::dead_files::check);
}

#[test]
fn no_drawers() {
    holds(rules::drawers::check);
}

#[test]
fn files_are_short() {
    holds(rules::file_length::check);
}

#[test]
fn no_leftovers() {
    holds(rules::leftovers::check);
}

#[test]
fn lines_are_tidy() {
    holds(rules::lines::check);
}

#[test]
fn no_machine_paths() {
    holds(rules::machine_paths::check);
}

#[test]
fn files_say_what_they_are_for() {
    holds(rules::opening::check);
}

#[test]
fn readme_prints_the_two_commands() {
    holds(rules::setup_commands::check);
}

#[test]
fn unsafe_code_says_why() {
    holds(rules::unsafe_reasons::check);
}

#[test]
fn words_are_those_of_the_glossary() {
    holds(rules::vocabulary::check);
}
