//! Files stay short enough to be read in one go: 600 lines, with a list of exceptions that may only shrink.
//!
//! `crates/tidy/ratchet.txt` records for each exception the length it has. The ratchet turns one way: a file longer
//! than recorded fails, and so does an entry larger than its file needs, so that what was gained is kept. Nothing is
//! ever longer than 1,000 lines, recorded or not.

use std::collections::BTreeMap;

use crate::{Finding, Tree};

const RULE: &str = "file length";
const RATCHET: &str = "crates/tidy/ratchet.txt";
const LINES_MAX: usize = 600;
const LINES_MAX_EVER: usize = 1000;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |path: &str, line, message: String| {
        findings.push(Finding { path: path.to_owned(), line, rule: RULE, message });
    };
    let mut exceptions = BTreeMap::new();
    let list = tree.file(RATCHET);
    let entries = list.iter().flat_map(|file| file.lines());
    for (line, entry) in entries.filter(|(_, entry)| !entry.is_empty() && !entry.starts_with('#')) {
        match entry.split_once(' ').and_then(|(lines, path)| Some((lines.parse::<usize>().ok()?, path))) {
            Some((recorded, path)) => drop(exceptions.insert(path, (recorded, line))),
            None => report(RATCHET, line, "an entry reads `LINES PATH`".to_owned()),
        }
    }
    for (file, _) in tree.rust_files() {
        let lines = file.text.lines().count();
        let recorded = exceptions.remove(file.path.as_str());
        if lines > LINES_MAX_EVER {
            report(&file.path, lines, format!("{lines} lines; {LINES_MAX_EVER} is the end: split it"));
            continue;
        }
        match recorded {
            None if lines > LINES_MAX => {
                report(&file.path, lines, format!("{lines} lines; {LINES_MAX} fit in a file: split it by concept"));
            }
            Some((recorded, _)) if lines > recorded.max(LINES_MAX) => {
                report(&file.path, lines, format!("{lines} lines; it had {recorded} and may only become shorter"));
            }
            Some((_, line)) if lines <= LINES_MAX => {
                report(RATCHET, line, format!("{} fits now ({lines} lines): delete the entry", file.path));
            }
            Some((recorded, line)) if lines < recorded => {
                report(RATCHET, line, format!("{} has {lines} lines now: lower the entry", file.path));
            }
            _ => {}
        }
    }
    for (path, (_, line)) in exceptions {
        report(RATCHET, line, format!("{path} does not exist: delete the entry"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lines(lines: usize, ratchet: &str) -> usize {
        check(&Tree::of(&[("a.rs", &"x\n".repeat(lines)), (RATCHET, ratchet)])).len()
    }

    #[test]
    fn the_ratchet_turns_one_way() {
        for (lines, ratchet, findings) in [
            (600, "", 0),
            (601, "", 1),
            (601, "# reason\n601 a.rs\n", 0),
            (602, "601 a.rs\n", 1),
            (700, "701 a.rs\n", 1),
            (600, "601 a.rs\n", 1),
            (1000, "1000 a.rs\n", 0),
            (1001, "1001 a.rs\n", 1),
            (1, "601 b.rs\n", 1),
            (1, "many b.rs\n", 1),
        ] {
            assert_eq!(check_lines(lines, ratchet), findings, "{lines} lines, {ratchet:?}");
        }
    }
}
