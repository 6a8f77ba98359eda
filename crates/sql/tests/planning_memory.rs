//! What parsing and planning reserve beside what they allocate at most: the factors of `session/script.rs`, measured.
//! `--nocapture` prints them for each kind of statement.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod counting;
mod support;

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counting::{ALLOCATED, MOST};
use eris_engine::EngineOptions;
use eris_sql::{DatabaseOptions, SessionOptions};
use support::Instance;

/// So much is not charged (`FREE_BYTES`), and so much may also be taken by what is no statement's: caches, threads.
const FREE_BYTES: u64 = 16 << 20;

fn joined(count: usize, separator: &str, part: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        let _ = write!(text, "{}{}", if number == 0 { "" } else { separator }, part(number));
    }
    text
}

/// Statements of all kinds that are large, by name.
fn large() -> Vec<(&'static str, String)> {
    let wide = joined(1_600, ", ", |number| format!("c{number}"));
    vec![
        ("IN list of 100,000", format!("SELECT id FROM t WHERE id IN ({})", joined(100_000, ",", |n| n.to_string()))),
        (
            "INSERT of 30,000 rows",
            format!("INSERT INTO t VALUES {}", joined(30_000, ",", |n| format!("({n},{n},'text {n}')"))),
        ),
        ("VALUES of 100,000 rows", format!("VALUES {}", joined(100_000, ",", |n| format!("({n})")))),
        (
            "5,000 conditions",
            format!("SELECT id FROM t WHERE {}", joined(2_500, " OR ", |n| format!("(a = {n} AND id > {n})"))),
        ),
        (
            "100 expressions of 45 terms",
            format!(
                "SELECT {} FROM t",
                joined(100, ", ", |n| format!("{} AS c{n}", joined(45, " + ", |m| format!("a * {m}"))))
            ),
        ),
        (
            "100 CASE of 30 branches",
            format!(
                "SELECT {} FROM t",
                joined(100, ", ", |n| format!(
                    "CASE {} END AS c{n}",
                    joined(30, " ", |m| format!("WHEN a = {m} THEN id"))
                ))
            ),
        ),
        ("UNION ALL of 12 wide tables", joined(12, " UNION ALL ", |_| format!("SELECT {wide} FROM wide"))),
        (
            "joins of 4 wide tables",
            format!(
                "SELECT count(*) FROM {}",
                joined(4, " JOIN ", |n| if n == 0 {
                    "wide w0".to_owned()
                } else {
                    format!("wide w{n} ON w0.c0 = w{n}.c0")
                })
            ),
        ),
        (
            "WITH that doubles 4 times",
            format!(
                "WITH q0 AS (SELECT {wide} FROM wide), {} SELECT count(*) FROM q4",
                joined(4, ", ", |n| format!("q{} AS (SELECT * FROM q{n} UNION ALL SELECT * FROM q{n})", n + 1))
            ),
        ),
        ("a string of 8 MB", format!("SELECT length('{}')", "x".repeat(8_000_000))),
        ("a row of 8 MB", format!("INSERT INTO t VALUES (1, 1, '{}')", "x".repeat(8_000_000))),
        ("a condition of 8 MB", format!("SELECT id FROM t WHERE name = '{}'", "x".repeat(8_000_000))),
        ("300,000 blanks", format!("SELECT id{}FROM t", " \n".repeat(150_000))),
        ("100,000 comments", format!("SELECT id{}FROM t", "/* */--\n".repeat(50_000))),
        ("a comment of 16 MB", format!("SELECT id /*{}*/ FROM t", "x\n".repeat(8_000_000))),
        ("an update to 8 MB", format!("UPDATE t SET name = '{}' WHERE id = 1", "x".repeat(8_000_000))),
    ]
}

#[test]
fn what_is_reserved_covers_what_parsing_and_planning_take() {
    let engine = EngineOptions { workers: 1, memory_limit_bytes: 16 << 30, ..EngineOptions::default() };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id bigint PRIMARY KEY, a bigint, name text)");
    client.ok(&format!("CREATE TABLE wide ({})", joined(1_600, ", ", |number| format!("c{number} bigint"))));
    let mut wrong = Vec::new();
    for (name, sql) in large() {
        let mut session = instance.database.session(SessionOptions::default());
        let (over, memory) = (AtomicBool::new(false), instance.database.engine().memory());
        let before = ALLOCATED.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let (taken, reserved) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    let planning = memory.by_consumer().into_iter().find(|(name, _)| *name == "parsing and planning");
                    most = most.max(planning.map_or(0, |(_, bytes)| bytes));
                    std::thread::sleep(Duration::from_micros(200));
                }
                most
            });
            // On a worker, which has the stack for it.
            let text = sql.clone();
            let parsed = async move { session.parse(&text, &[]).map(drop) };
            let plans = instance.database.engine().block_on(parsed).expect("the engine runs");
            let taken = MOST.load(Ordering::Relaxed) - before;
            over.store(true, Ordering::Relaxed);
            let reserved = watcher.join().expect("it watches");
            assert!(plans.is_ok(), "{name}: {:?}", plans.err());
            (taken, reserved)
        });
        println!(
            "{name}: {} bytes of text, {taken} allocated at most, {reserved} reserved, {:.2} x",
            sql.len(),
            reserved as f64 / taken as f64
        );
        if taken > reserved.max(FREE_BYTES) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} take more than is reserved for them");
}
