//! No dead file: every Rust file is compiled into something.
//!
//! A file is alive if it is the root of a target (`lib.rs`, `main.rs`, a build script, a file directly in `tests`,
//! `benches`, `examples`, `fuzz_targets` or `src/bin`) or if its parent module declares it. The parent is a file under
//! the same rule, so by induction every file without a finding is reachable from a root.

use crate::rust_text::word_positions;
use crate::{Finding, SourceFile, Tree};

const RULE: &str = "dead files";
const ROOT_NAMES: &[&str] = &["lib.rs", "main.rs", "build.rs"];
const ROOT_DIRECTORIES: &[&str] = &["/tests", "/benches", "/examples", "/fuzz_targets", "/src/bin"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let dead = tree.rust_files().filter(|(file, _)| !is_root(file) && !is_declared(tree, file));
    dead.map(|(file, _)| Finding {
        path: file.path.clone(),
        line: 1,
        rule: RULE,
        message: "no module declares this file: delete it or declare it".to_owned(),
    })
    .collect()
}

fn is_root(file: &SourceFile) -> bool {
    let directory = format!("/{}", file.directory());
    ROOT_NAMES.contains(&file.name()) || ROOT_DIRECTORIES.iter().any(|root| directory.ends_with(root))
}

fn is_declared(tree: &Tree, file: &SourceFile) -> bool {
    // `a/b.rs` is module b of directory a; `a/b/mod.rs` is module b of directory a as well.
    let (directory, module) = if file.name() == "mod.rs" {
        file.directory().rsplit_once('/').unwrap_or(("", file.directory()))
    } else {
        (file.directory(), file.name().trim_end_matches(".rs"))
    };
    let in_directory = ROOT_NAMES.iter().chain(&["mod.rs"]).map(|name| format!("{directory}/{name}"));
    let mut parents = in_directory.chain([format!("{directory}.rs")]).filter(|parent| *parent != file.path);
    parents.any(|parent| tree.file(&parent).is_some_and(|parent| declares(parent, module)))
        || tree.rust_files().any(|(other, _)| is_named_by_path(other, file))
        || in_tests_directory(tree, directory, module)
}

/// `mod name;` outside comments and strings.
fn declares(parent: &SourceFile, module: &str) -> bool {
    let code = parent.code().unwrap_or_default();
    word_positions(code, "mod").any(|at| {
        let rest = code[at + "mod".len()..].trim_start();
        rest.strip_prefix(module).is_some_and(|rest| rest.trim_start().starts_with(';'))
    })
}

/// `#[path = "some/file.rs"]` in the same directory or above it.
fn is_named_by_path(other: &SourceFile, file: &SourceFile) -> bool {
    let mut attributes = other.text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \""));
    file.path.starts_with(other.directory())
        && attributes.any(|rest| rest.split('"').next().is_some_and(|named| file.path.ends_with(named)))
}

/// A directory `tests/x` may be declared by any test target `tests/y.rs`.
fn in_tests_directory(tree: &Tree, directory: &str, module: &str) -> bool {
    directory.ends_with("/tests")
        && tree.rust_files().any(|(other, _)| other.directory() == directory && declares(other, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(samples: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(samples)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn declared_files_live() {
        let tree = [
            ("c/a/src/lib.rs", "pub mod one;\npub(crate) mod two;\n#[path = \"odd/four.rs\"]\nmod three;\n"),
            ("c/a/src/one.rs", "mod inner;\n"),
            ("c/a/src/one/inner.rs", ""),
            ("c/a/src/two/mod.rs", "mod deep;"),
            ("c/a/src/two/deep.rs", ""),
            ("c/a/src/odd/four.rs", ""),
            ("c/a/src/bin/tool.rs", ""),
            ("c/a/tests/slt.rs", "mod server;\n"),
            ("c/a/tests/server/mod.rs", ""),
            ("c/a/tests/matrix/main.rs", "mod run;"),
            ("c/a/tests/matrix/run.rs", ""),
        ];
        assert_eq!(dead(&tree), Vec::<String>::new());
    }

    #[test]
    fn files_nobody_declares_are_dead() {
        let tree = [
            ("c/a/src/lib.rs", "// mod one;\nmod two_;\nconst TEXT: &str = \"mod one;\";\nmod three {}\n"),
            ("c/a/src/one.rs", ""),
            ("c/a/src/two/mod.rs", "mod mod_;"),
            ("c/a/src/three.rs", ""),
        ];
        assert_eq!(dead(&tree), ["c/a/src/one.rs", "c/a/src/two/mod.rs", "c/a/src/three.rs"]);
    }
}
