//! What functions that make texts allocate: nothing beyond the limit, little while a statement is planned, and nothing
//! that stays with plans that are kept.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod counting;
mod support;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use counting::{ALLOCATED, MOST};
use eris_engine::EngineOptions;
use eris_sql::{DatabaseOptions, SessionOptions};
use support::Instance;

/// What is allocated belongs to one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What a database allocates for itself while a statement runs.
const SLACK: u64 = 16 << 20;

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn instance(memory_limit_bytes: u64) -> Instance {
    // What else this process holds does not count.
    let engine =
        EngineOptions { workers: 1, nodes: 1, memory_limit_bytes, memory_watched: false, ..EngineOptions::default() };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, a text)");
    client.ok("INSERT INTO t VALUES (1, 'abcdefghijklmnop')");
    instance
}

/// What a call allocates at most beyond what was there before.
fn most(call: impl FnOnce()) -> u64 {
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    call();
    MOST.load(Ordering::Relaxed) - before
}

/// A query that doubles its text again and again.
fn doubled(times: usize, operator: &str, innermost: &str) -> String {
    (0..times).fold(innermost.to_owned(), |inner, _| match operator {
        "||" => format!("SELECT a || a AS a FROM ({inner}) s"),
        function => format!("SELECT {function}(a, a) AS a FROM ({inner}) s"),
    })
}

/// Different constants of at least so many bytes.
fn constants(bytes: usize, count: usize) -> String {
    let all: Vec<String> = (bytes..bytes + count).map(|times| format!("repeat('x', {times})")).collect();
    all.join(", ")
}

#[test]
fn texts_beyond_the_limit_are_refused_before_they_are_allocated() {
    let _alone = alone();
    let limit = 64 << 20;
    let instance = instance(limit);
    let mut client = instance.session();
    let used = instance.database.engine().memory().used();
    let long: Vec<String> = (600_000..600_012).map(|times| format!("repeat(a, {times})")).collect();
    let many = |separator: &str| long.join(separator);
    let statements = [
        format!("SELECT length(a) FROM ({}) s", doubled(24, "||", "SELECT a FROM t")),
        format!("SELECT length(a) FROM ({}) s", doubled(24, "concat", "SELECT a FROM t")),
        format!("SELECT length(a) FROM ({}) s", doubled(14, "||", "SELECT repeat('x', 20000) AS a")),
        "SELECT repeat('x', 120000000)".to_owned(),
        "SELECT lpad('x', 120000000, 'ab')".to_owned(),
        // Each is there beside all others.
        format!("SELECT {} FROM t", many(", ")),
        format!("SELECT length({}) FROM t", many(" || ")),
        format!("SELECT length(concat_ws('-', {})) FROM t", many(", ")),
        "SELECT length(concat_ws(repeat(a, 1000000), 'a', 'b', 'c', 'd', 'e', 'f')) FROM t".to_owned(),
        "SELECT length(regexp_replace(repeat(a, 300000), '(.)', '<\\1\\1\\1\\1>', 'g')) FROM t".to_owned(),
        "SELECT length(translate(repeat(a, 2000000), 'abcdefgh', '€€€€€€€€')) FROM t".to_owned(),
        "SELECT length(overlay(repeat(a, 1500000) placing repeat(a, 1500000) from 3 for 1)) FROM t".to_owned(),
        "INSERT INTO t VALUES (2, repeat('x', 30000000)), (3, repeat('y', 30000000))".to_owned(),
        "VALUES (1, repeat('x', 30000000)), (2, repeat('y', 30000000)), (3, repeat('z', 30000000))".to_owned(),
        // Constants within one expression.
        format!("SELECT length(concat({})) FROM t", constants(25_000_000, 20)),
        format!("SELECT length(concat({})) FROM t", constants(2_000_000, 20)),
    ];
    for sql in statements {
        let taken = most(|| assert_eq!(client.state(&sql), "53200", "{sql}"));
        assert!(taken < limit + SLACK, "{taken} bytes were allocated at a limit of {limit}: {sql}");
    }
    // What fits is answered, and given back with its statement.
    assert_eq!(client.rows("SELECT length(repeat('x', 10000000) || 'y')"), ["10000001"]);
    let fits = format!("SELECT length(a) FROM ({}) s", doubled(18, "||", "SELECT a FROM t"));
    assert_eq!(client.rows(&fits), [(16 << 18).to_string()]);
    assert_eq!(client.rows("SELECT (a || NULL) IS NULL, a || 1, 'x' || id FROM t"), ["t|abcdefghijklmnop1|x1"]);
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["1"]);
    assert!(instance.database.engine().memory().used() <= used * 2, "bytes go back");
}

/// While a statement is planned nothing interrupts it, and nobody reserves what it makes.
#[test]
fn long_constants_are_computed_when_the_statement_runs() {
    let _alone = alone();
    let instance = instance(4 << 30);
    for sql in [
        "SELECT lpad('x', 300000000)",
        "SELECT length(repeat('xy', 100000000) || 'z')",
        "SELECT id FROM t WHERE a = repeat('x', 200000000)",
        "SELECT replace(repeat('x', 100000), 'x', repeat('y', 4000)) FROM t",
        "INSERT INTO t VALUES (2, repeat('x', 200000000))",
        "UPDATE t SET a = rpad('x', 200000000, 'yz')",
    ] {
        let mut session = instance.database.session(SessionOptions::default());
        let started = Instant::now();
        let taken = most(|| {
            // On a worker, which has the stack for it.
            let parsed = async move { session.parse(sql, &[]).map(drop) };
            let planned = instance.database.engine().block_on(parsed).expect("the engine runs");
            assert!(planned.is_ok(), "{sql}: {:?}", planned.err());
        });
        assert!(taken < SLACK, "{taken} bytes were allocated to plan {sql}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?} to plan {sql}", started.elapsed());
    }
    // They mean what they meant.
    let mut client = instance.session();
    client.ok("INSERT INTO t VALUES (2, repeat('x', 10000)), (3, repeat('x', 10000))");
    client.ok("UPDATE t SET a = rpad(a, 10001, 'y') WHERE a = repeat('x', 10000) AND id = 3");
    assert_eq!(client.rows("SELECT id FROM t WHERE a = repeat('x', 10000)"), ["2"]);
    assert_eq!(client.rows("SELECT length(a), right(a, 2) FROM t WHERE id = 3"), ["10001|xy"]);
    assert_eq!(client.rows("SELECT length(repeat('ab', 5000)) + id FROM t ORDER BY 1"), ["10001", "10002", "10003"]);
    client.ok("CREATE TABLE d (id int, a text DEFAULT repeat('x', 10000))");
    client.ok("INSERT INTO d (id) VALUES (1)");
    assert_eq!(client.rows("SELECT length(a) FROM d"), ["10000"]);
}

#[test]
fn plans_that_are_kept_hold_no_long_constants() {
    let _alone = alone();
    let instance = instance(1 << 30);
    let mut client = instance.session();
    client.rows("SELECT length(repeat('x', 9999999)) FROM t");
    let before = ALLOCATED.load(Ordering::Relaxed);
    for number in 0..60 {
        let length = 10_000_000 + number;
        let sql = format!("SELECT length(repeat('x', {length})) FROM t WHERE a <> repeat('y', {length})");
        assert_eq!(client.rows(&sql), [length.to_string()]);
    }
    let kept = ALLOCATED.load(Ordering::Relaxed).saturating_sub(before);
    assert!(kept < 2 * SLACK, "{kept} bytes stay with 60 plans");
}
