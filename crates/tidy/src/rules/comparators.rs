//! Ways that exist to be measured against each other are options of the engine for the benchmarks of the core and for
//! tests, never settings of a server: what is above the core does not name them.

use crate::rust_text::word_positions;
use crate::{Finding, Tree};

const RULE: &str = "comparators";
const OPTIONS: &str = "crates/engine/src/options.rs";
const COMPARATORS: &[&str] = &["direct_append", "updates_in_place"];
/// Where sources may name them; any crate that is not here is above the core.
const CORE: &[&str] =
    &["platform", "sync", "storage", "engine", "operators", "durability", "control", "memtrace", "workloads", "tidy"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let declared = tree.file(OPTIONS).and_then(|file| file.code()).unwrap_or_default();
    for name in COMPARATORS {
        if word_positions(declared, name).next().is_none() {
            let message = format!("`{name}` is an option no more: take it off the list of this rule");
            findings.push(Finding { path: OPTIONS.to_owned(), line: 1, rule: RULE, message });
        }
    }
    for file in tree.files.iter().filter(|file| is_above_the_core(&file.path)) {
        // In the whole text: a setting's name is a string.
        for (line, text) in file.lines() {
            for name in COMPARATORS.iter().filter(|name| word_positions(text, name).next().is_some()) {
                let message = format!("`{name}` is for benchmarks of the core, not for a server");
                findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
            }
        }
    }
    findings
}

fn is_above_the_core(path: &str) -> bool {
    let name = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    name.is_some_and(|name| !CORE.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(samples: &[(&str, &str)]) -> Vec<String> {
        let options = (OPTIONS, "pub updates_in_place: bool,\npub direct_append: bool,\n");
        check(&Tree::of(&[&[options], samples].concat())).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn the_core_names_them() {
        assert_eq!(found(&[("crates/workloads/src/kv.rs", "direct_append: true,\n")]), Vec::<String>::new());
        assert_eq!(found(&[("crates/server/src/a.rs", "redirect_append();\n")]), Vec::<String>::new());
    }

    #[test]
    fn a_server_does_not() {
        for path in ["crates/sql/src/settings.rs", "crates/server/src/a.rs", "crates/cli/src/serve.rs"] {
            for text in ["direct_append: bool,\n", "name: \"updates_in_place\",\n"] {
                assert_eq!(found(&[(path, text)]), [path]);
            }
        }
    }

    #[test]
    fn an_option_that_is_gone_is_noticed() {
        assert_eq!(check(&Tree::of(&[(OPTIONS, "pub direct_append: bool,\n")])).len(), 1);
    }
}
