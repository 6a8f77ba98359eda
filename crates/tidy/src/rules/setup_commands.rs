//! The README's set-up is exactly two commands, and continuous integration runs them as printed.
//!
//! Both read the block between the markers, so what a reader types is what is tested.

use crate::{Finding, Tree};

const RULE: &str = "set-up commands";
const README: &str = "README.md";
const BEGIN: &str = "<!-- setup:begin -->";
const END: &str = "<!-- setup:end -->";
const COMMANDS: [&str; 2] = ["cargo run --release -- demo", "cargo test --release --workspace"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let found = tree.file(README).map(|file| commands_of(&file.text)).unwrap_or_default();
    if found == COMMANDS {
        return Vec::new();
    }
    let message = format!("between {BEGIN} and {END} stand {found:?}, expected {COMMANDS:?}");
    vec![Finding { path: README.to_owned(), line: 1, rule: RULE, message }]
}

/// The lines of the code block between the markers, without its fence.
fn commands_of(readme: &str) -> Vec<&str> {
    let block = readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map_or("", |(block, _)| block);
    block.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("```")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_commands_pass() {
        let block = |commands: &str| format!("# E\n{BEGIN}\n```\n{commands}\n```\n{END}\nmore\n");
        let [demo, test] = COMMANDS;
        for (readme, findings) in [
            (block(&format!("{demo}\n{test}")), 0),
            (block(demo), 1),
            (block(&format!("{demo} --scale 1\n{test}")), 1),
            (format!("{demo}\n{test}\n"), 1),
        ] {
            assert_eq!(check(&Tree::of(&[(README, &readme)])).len(), findings, "{readme}");
        }
    }
}
