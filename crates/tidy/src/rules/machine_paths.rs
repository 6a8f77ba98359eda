//! No path of one machine: what is written here works in any clone, under any name, for any user.

use crate::{Finding, Tree};

const RULE: &str = "machine paths";
/// In two halves, because this file is searched as well.
const PLACES: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("/tmp/pl", "an"),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (line, text) in file.lines() {
            for place in PLACES.iter().filter(|place| is_absolute_in(text, place)) {
                let message =
                    format!("`{place}` exists on one machine: name it relative to the workspace or by a variable");
                findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
            }
        }
    }
    findings
}

/// An absolute path starts with the slash: nothing of a path or a variable stands before it.
fn is_absolute_in(text: &str, place: &str) -> bool {
    text.match_indices(place).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '~' | '}' | ')' | '*'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_are_found_relative_ones_are_not() {
        for place in PLACES {
            for (text, count) in [
                (format!("see `{place}x`"), 1),
                (format!("--data {place}x"), 1),
                (format!("crates{place}x"), 0),
                (format!("${{BASE}}{place}x"), 0),
            ] {
                assert_eq!(check(&Tree::of(&[("docs/a.md", &text)])).len(), count, "{text}");
            }
        }
    }
}
