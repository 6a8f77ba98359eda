//! No drawers: a file or directory named after nothing in particular collects everything. A thing lives with what it
//! serves.

use crate::{Finding, Tree};

const RULE: &str = "drawers";
const DRAWERS: &[&str] = &["util", "utils", "utilities", "common", "helper", "helpers", "misc", "stuff", "shared"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        for part in parts.filter(|part| DRAWERS.contains(part)) {
            let message = format!("`{part}` is a drawer: name it after what it holds");
            findings.push(Finding { path: file.path.clone(), line: 1, rule: RULE, message });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawers_are_found_as_files_and_directories() {
        for path in ["crates/a/src/utils.rs", "crates/a/src/common/mod.rs", "crates/helpers/src/lib.rs"] {
            assert_eq!(check(&Tree::of(&[(path, "")])).len(), 1, "{path}");
        }
        assert!(check(&Tree::of(&[("crates/a/src/utilisation.rs", "")])).is_empty());
    }
}
