//! The whole SQL path under a seeded generator: schemas, data, changes in transactions and queries, made from a seed.
//!
//! Each statement is held against three oracles: an evaluator of our own with PostgreSQL's rules ([`evaluate`],
//! [`run`], [`model`]), which gives the rows or the errors that may be reported; the same query in the other lane; and
//! for conditions the sum over true, false and unknown. After each change the table is read as a whole.
//!
//! - `ERIS_SEEDS=2000` runs that many seeds, `ERIS_SEED=7` that one. A failing case is made smaller and printed with
//!   the command that repeats it.
//! - `ERIS_POSTGRES=postgres://...` runs the same statements there: it is the evaluator that is checked then.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod check;
mod evaluate;
mod expression;
mod generate;
mod minimise;
mod model;
mod query;
mod run;
mod target;
mod value;

use std::env;

use check::{Counts, Problem, check};
use evaluate::Mistake;
use generate::{Case, Dialect, Generator};
use minimise::minimise;
use target::{Embedded, Postgres};

/// Seeds of a run that names none; some seconds.
const SEEDS_DEFAULT: u64 = 60;
/// Seeds within which a mistake has to be found.
const MISTAKE_SEEDS_MAX: u64 = 60;

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

fn run_case(case: &Case, mistake: Option<Mistake>, counts: &mut Counts) -> Result<(), Problem> {
    match env::var("ERIS_POSTGRES") {
        Ok(url) => check(case, &mut Postgres::connect(&url, case), mistake, counts),
        Err(_) => check(case, &mut Embedded::open(case), mistake, counts),
    }
}

fn case_of(seed: u64) -> Case {
    Generator::case(seed, if env::var("ERIS_POSTGRES").is_ok() { Dialect::Both } else { Dialect::Eris })
}

/// The case in few statements, and the command that repeats it.
fn report(case: &Case, problem: Problem, mistake: Option<Mistake>) -> String {
    let mut fails = |case: &Case| run_case(case, mistake, &mut Counts::default()).err();
    let (case, problem) = minimise(case, problem, &mut fails);
    let Case { seed, workers, nodes, split_rows, .. } = case;
    let mut lines = vec![format!("-- {workers} workers, {nodes} nodes, split_rows = {split_rows}")];
    lines.extend(case.tables.iter().flat_map(|table| table.create(true)));
    lines.extend(case.statements.iter().map(ToString::to_string));
    let command = format!("ERIS_SEED={seed} cargo test --release -p eris --test generated_sql -- statements");
    format!("seed {seed}\n{}\n\n{}\nRepeat it with: {command}\n", lines.join(";\n"), problem.text)
}

#[test]
fn statements_do_what_the_evaluator_says() {
    let seeds = match variable("ERIS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("ERIS_SEEDS").unwrap_or(SEEDS_DEFAULT),
    };
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let (first, number) = (seeds.start, seeds.end - seeds.start);
    for seed in seeds {
        let case = case_of(seed);
        if let Err(problem) = run_case(&case, None, &mut counts) {
            failures.push(report(&case, problem, None));
            println!("{}", failures[failures.len() - 1]);
            // A few say enough.
            if failures.len() >= 10 {
                break;
            }
        }
    }
    let Counts { statements, errors, refused } = counts;
    println!("{number} seeds from {first}: {statements} statements, {errors} errors, {} not supported", refused.len());
    if env::var("ERIS_REFUSED").is_ok() {
        println!("{}", refused.join("\n"));
    }
    assert!(failures.is_empty(), "{} seeds failed:\n\n{}", failures.len(), failures.join("\n"));
    assert!(refused.len() * 50 <= statements, "more than 2 % is not supported:\n{}", refused.join("\n"));
}

/// An evaluator with one wrong rule: some seed shows it.
fn assert_noticed(mistake: Mistake) {
    for seed in 0..MISTAKE_SEEDS_MAX {
        let case = case_of(seed);
        if let Err(problem) = run_case(&case, Some(mistake), &mut Counts::default()) {
            let text = report(&case, problem, Some(mistake));
            assert!(text.contains(&format!("ERIS_SEED={seed} cargo test")), "{text}");
            assert!(text.lines().count() < 60, "a case of this size is not small:\n{text}");
            return;
        }
    }
    panic!("{mistake:?} is not noticed within {MISTAKE_SEEDS_MAX} seeds");
}

#[test]
fn a_comparison_with_null_that_is_false_is_noticed() {
    assert_noticed(Mistake::NullComparesFalse);
}

#[test]
fn not_in_that_forgets_null_is_noticed() {
    assert_noticed(Mistake::NotInForgetsNull);
}

#[test]
fn division_that_rounds_down_is_noticed() {
    assert_noticed(Mistake::DivisionFloors);
}

#[test]
fn an_outer_join_without_its_outer_rows_is_noticed() {
    assert_noticed(Mistake::JoinForgetsUnmatched);
}

#[test]
fn a_rollback_that_keeps_changes_is_noticed() {
    assert_noticed(Mistake::RollbackKeeps);
}
