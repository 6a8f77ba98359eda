//! Every Rust file opens with `//!`: what it is for and how it works.

use crate::{Finding, Tree};

const RULE: &str = "opening";
/// Shorter than this it says nothing that the file name does not say.
const OPENING_MIN_CHARS: usize = 12;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust_files().filter(|(file, _)| file.name() != "build.rs");
    files
        .filter_map(|(file, _)| {
            let opening: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).collect();
            let length: usize = opening.iter().map(|line| line.trim().chars().count()).sum();
            let message = match length {
                _ if opening.is_empty() => "opens without `//!`: say what the file is for",
                0..OPENING_MIN_CHARS => "opens with next to nothing: say what the file is for",
                _ => return None,
            };
            Some(Finding { path: file.path.clone(), line: 1, rule: RULE, message: message.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_purpose_are_found() {
        for text in
            ["use std::fs;\n", "\n//! A purpose after an empty line.\n", "//! Short.\n", "// A plain comment.\n"]
        {
            assert_eq!(check(&Tree::of(&[("crates/a/src/lib.rs", text)])).len(), 1, "{text}");
        }
        let fine = "//! A file\n//! with a purpose in two lines.\n";
        assert!(check(&Tree::of(&[("crates/a/src/lib.rs", fine), ("crates/a/build.rs", "")])).is_empty());
    }
}
