//! The README's second command compiles no registry crate again: with the same version and the same features, what the
//! first compiled serves the second too.
//!
//! A crate's features are the union of what its users in one command ask for, and tests bring users of their own. So
//! the features of each registry crate under the first command have to be among those under the second.

use std::collections::BTreeSet;
use std::process::Command;

use crate::metadata::root;

/// `cargo run` builds the default member; `cargo test --workspace` builds all members with what their tests need.
const FIRST: &[&str] = &["--edges", "normal,build"];
const SECOND: &[&str] = &["--workspace", "--edges", "normal,build,dev"];

/// Lines `name vX feature,feature`, of registry crates only.
fn compiled_by(selection: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["tree", "--quiet", "--prefix", "none", "--format", "{p} {f}"]).args(selection);
    let output = command.current_dir(root()).output().expect("cargo can be run");
    assert!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    registry_crates(&String::from_utf8_lossy(&output.stdout))
}

/// A path in parentheses marks a crate of this repository, `(*)` one that was listed before.
fn registry_crates(tree: &str) -> BTreeSet<String> {
    let lines = tree.lines().map(|line| line.trim_end_matches("(*)").replace("(proc-macro) ", ""));
    let registry = lines.filter(|line| !line.is_empty() && !line.contains(" ("));
    registry.map(|line| line.trim_end().to_owned()).collect()
}

fn compiled_again(first: &BTreeSet<String>, second: &BTreeSet<String>) -> Vec<String> {
    let again = first.difference(second).map(|line| {
        let name_and_version = line.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ");
        let others: Vec<&str> =
            second.iter().filter(|other| other.starts_with(&name_and_version)).map(String::as_str).collect();
        format!("{line}\n    but then: {}", others.join("; "))
    });
    again.collect()
}

#[test]
fn both_commands_build_the_same_dependencies() {
    let first = compiled_by(FIRST);
    assert!(first.len() > 50, "the first command builds the database: {first:?}");
    let again = compiled_again(&first, &compiled_by(SECOND));
    assert!(again.is_empty(), "features differ, so these are compiled twice:\n{}", again.join("\n"));
}

#[test]
fn another_feature_is_found() {
    let first = registry_crates("eris v0.1.0 (here) \nlibc v0.2.1 std\nlog v0.4.1 \nserde v1.0.0 (proc-macro) x (*)\n");
    assert_eq!(
        first.iter().map(String::as_str).collect::<Vec<_>>(),
        ["libc v0.2.1 std", "log v0.4.1", "serde v1.0.0 x"]
    );
    let second = registry_crates("libc v0.2.1 extra,std\nlog v0.4.1\nserde v1.0.0 x\n");
    assert_eq!(compiled_again(&first, &second), ["libc v0.2.1 std\n    but then: libc v0.2.1 extra,std"]);
}
