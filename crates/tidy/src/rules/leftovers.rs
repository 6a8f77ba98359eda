//! Nothing is left half done: no debugging output, no placeholder, no note to oneself.
//!
//! Macros are searched in code only (a string may name them), notes anywhere, comments above all.

use crate::rust_text::word_positions;
use crate::{Finding, Tree};

const RULE: &str = "leftovers";
const MACROS: &[&str] = &["dbg", "todo", "unimplemented"];
/// In two halves, because this file is searched as well.
const NOTES: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for (line, text) in file.lines() {
            for note in NOTES.iter().filter(|note| word_positions(text, note).next().is_some()) {
                let message = format!("`{note}` left behind: do it or write it into the documentation");
                findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
            }
        }
        for (index, code) in file.code().unwrap_or_default().split('\n').enumerate() {
            for name in MACROS {
                if word_positions(code, name).any(|at| code[at + name.len()..].starts_with('!')) {
                    let message = format!("`{name}!` left behind");
                    findings.push(Finding { path: file.path.clone(), line: index + 1, rule: RULE, message });
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_and_notes_are_found_where_they_count() {
        let note = NOTES[0];
        let text = format!("//! a\nfn f() {{\n    dbg!(1); // {note}\n    g(\"todo!()\");\n    my_todo!();\n}}\n");
        let found = check(&Tree::of(&[("crates/a/src/lib.rs", &text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(check(&Tree::of(&[("docs/a.md", note)])).len(), 1);
        assert!(check(&Tree::of(&[("docs/a.md", "SQLSTATE XX000, dbg!")])).is_empty());
    }
}
