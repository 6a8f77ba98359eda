//! Lines: at most 120 characters of code, no tab, no trailing white space, a newline at the end of the file.
//!
//! Prose (Markdown) and test scripts are not cut into lines of a length; a line that carries a link may be as long as
//! the link.

use crate::{Finding, SourceFile, Tree};

const RULE: &str = "lines";
/// `max_width` of `rustfmt.toml`.
const LINE_CHARS_MAX: usize = 120;

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().filter(|file| !is_test_script(file)).flat_map(check_file).collect()
}

/// sqllogictest files quote output as it is.
fn is_test_script(file: &SourceFile) -> bool {
    ["slt", "sql"].iter().any(|extension| file.has_extension(extension))
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, message: String| {
        findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
    };
    for (line, text) in file.lines() {
        let chars = text.chars().count();
        if chars > LINE_CHARS_MAX && !file.has_extension("md") && !text.contains("://") {
            report(line, format!("{chars} characters; {LINE_CHARS_MAX} fit on a line"));
        }
        if text.contains('\t') {
            report(line, "a tab: indent with spaces".to_owned());
        }
        if text.ends_with([' ', '\t', '\r']) {
            report(line, "white space at the end of the line".to_owned());
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        report(file.text.lines().count(), "a file ends with exactly one newline".to_owned());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_untidy_lines_are_found() {
        let long = "x".repeat(LINE_CHARS_MAX + 1) + "\n";
        for (path, text, count) in [
            ("a.rs", long.as_str(), 1),
            ("a.md", long.as_str(), 0),
            ("a.rs", &long[1..], 0),
            ("a.rs", "a\tb\n", 1),
            ("a.md", "a \n", 1),
            ("a.rs", "a\r\n", 1),
            ("a.rs", "a", 1),
            ("a.rs", "a\n\n", 1),
            ("a.slt", "a\tb \n", 0),
            ("a.rs", "", 0),
        ] {
            assert_eq!(check(&Tree::of(&[(path, text)])).len(), count, "{path}: {text:?}");
        }
    }
}
