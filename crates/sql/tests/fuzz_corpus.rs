//! The inputs from which fuzzing starts, and those that once failed, through the target's own function.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fuzz/src/ast_pass.rs"]
mod ast_pass;
#[path = "../../../fuzz/src/sql_text.rs"]
mod sql_text;

use std::path::Path;

use ast_pass::{Verdict, judge};

#[test]
fn the_corpus_is_accepted_or_refused() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ast_pass");
    let mut paths: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut sum = Verdict::default();
    for path in &paths {
        let data = std::fs::read(path).unwrap();
        let verdict = judge(&sql_text::text_of(&data));
        assert!(verdict.accepted + verdict.refused > 0, "{} says something", path.display());
        sum.accepted += verdict.accepted;
        sum.refused += verdict.refused;
    }
    assert!(sum.accepted >= 30 && sum.refused >= 10, "both ways are walked: {sum:?}");
}
