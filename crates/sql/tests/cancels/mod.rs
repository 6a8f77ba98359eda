//! A statement hears that it is cancelled wherever it is. How soon is printed; that it does is asserted.

mod in_files;
mod waiting_for_memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use eris_engine::{AdmissionOptions, ClassLimit, EngineOptions};
use eris_sql::{DatabaseOptions, SqlError};

use crate::support::{Client, Instance};

/// So much data that nothing below is over at once.
const ROWS: usize = 100_000;
/// Far beyond what any statement may take to hear it, also on a machine that does much else.
const HEARD_MAX: Duration = Duration::from_mins(2);

/// The rows of the table `big (id, n, s)`, as CSV.
fn big_rows() -> Arc<str> {
    let row = |id| format!("{id},{},row {}\n", id % 1_000, (id * 7_919) % ROWS);
    (0..ROWS).map(row).collect::<Vec<_>>().concat().into()
}

/// Runs a statement on a thread and cancels it, sooner each time if it was faster; gives how long it took to end, or
/// what it did instead.
fn cancelled(mut client: Client, sql: &str, data: Option<&Arc<str>>) -> (Client, Result<Duration, String>) {
    let mut delay = Duration::from_millis(200);
    loop {
        let handle = client.session().cancel_handle();
        let over = Arc::new(AtomicBool::new(false));
        let (text, input, flag) = (sql.to_string(), data.cloned(), Arc::clone(&over));
        let running = thread::spawn(move || {
            let answer = client.run_with(&text, &[], input.as_deref()).map(drop);
            let ended = Instant::now();
            flag.store(true, Ordering::Release);
            (client, answer, ended)
        });
        let started = Instant::now();
        while started.elapsed() < delay && !over.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1).min(delay / 4));
        }
        // Whoever asks between two parts of a statement hits nothing, and asks again.
        let asked = Instant::now();
        while !over.load(Ordering::Acquire) {
            handle.cancel();
            thread::sleep(Duration::from_millis(1));
            assert!(asked.elapsed() < HEARD_MAX, "{sql} goes on");
        }
        let (back, answer, ended) = running.join().unwrap();
        client = back;
        match answer {
            Err(error) if error.sqlstate.as_str() == "57014" => {
                return (client, Ok(ended.saturating_duration_since(asked)));
            }
            Err(error) => return (client, Err(error.to_string())),
            Ok(()) if delay < Duration::from_micros(50) => return (client, Err("is always over before".to_string())),
            Ok(()) => delay /= 2,
        }
    }
}

#[test]
fn every_statement_hears_that_it_is_cancelled() {
    let scan = ClassLimit { running_max: 2, waiting_max: 10, wait_max: Duration::from_mins(5) };
    let options = EngineOptions {
        workers: 2,
        nodes: 1,
        admission: AdmissionOptions { scan: Some(scan), ..AdmissionOptions::default() },
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(options, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE big (id int PRIMARY KEY, n int, s text)");
    client.ok("CREATE TABLE copied (id int, n int, s text)");
    let rows = big_rows();
    client.run_with("COPY big FROM STDIN (FORMAT csv)", &[], Some(&rows)).unwrap();
    let terms: Vec<String> = (0..400).map(|at| format!("(a.n = {at} AND b.n <> {at} * 2)")).collect();
    let joins: Vec<String> = (0..12).map(|at| format!("JOIN big t{at} USING (id)")).collect();
    let planned = format!("SELECT count(*) FROM big a {} WHERE a.n IN (SELECT n FROM big)", joins.join(" "));
    let conditions = format!("SELECT count(*) FROM big a, big b WHERE {}", terms.join(" OR "));

    let cases: Vec<(&str, String)> = [
        ("scan", "SELECT count(*) FROM big WHERE s LIKE '%9%8%7%6%5%4%'"),
        ("rows to the client", "SELECT * FROM big"),
        ("sort", "SELECT s, n FROM big ORDER BY s DESC, n"),
        ("spilling sort", "SET work_mem = '64kB'; SELECT s, n FROM big ORDER BY s DESC, n"),
        ("group", "SELECT s, count(*), sum(n) FROM big GROUP BY s"),
        ("spilling group", "SET work_mem = '64kB'; SELECT s, count(*), sum(n) FROM big GROUP BY s"),
        ("count distinct", "SELECT count(DISTINCT s), count(DISTINCT n) FROM big"),
        ("hash join", "SELECT count(*), sum(a.id) FROM big a JOIN big b ON a.n = b.n"),
        ("join with a condition", "SELECT count(*) FROM big a JOIN big b ON a.n = b.n AND a.id < b.id"),
        ("cross join of two", "SELECT sum(a.id + b.n) FROM big a, big b"),
        ("cross join of three", "SELECT count(*) FROM big a, big b, big c"),
        ("cross join, condition", "SELECT count(*) FROM big a, big b, big c WHERE a.n + b.n + c.n = -1"),
        ("window", "SELECT sum(w) FROM (SELECT sum(n) OVER (PARTITION BY n % 7 ORDER BY s) AS w FROM big) x"),
        ("subquery by row", "SELECT count(*) FROM big a WHERE id < (SELECT avg(b.id) FROM big b WHERE b.n = a.n)"),
        (
            "EXISTS",
            "SELECT count(*) FROM big a WHERE EXISTS (SELECT 1 FROM big b WHERE b.id + 1 > a.id AND b.n = -a.n)",
        ),
        ("union", "SELECT s FROM big UNION SELECT s || 'x' FROM big UNION SELECT s || 'y' FROM big"),
        ("INSERT of a query", "INSERT INTO copied SELECT * FROM big"),
        ("UPDATE", "UPDATE big SET n = n + 1, s = s || 'x'"),
        (
            "UPDATE by subquery",
            "UPDATE big SET n = (SELECT count(*) FROM big a, big b, big c WHERE a.n + b.n + c.n = -1)",
        ),
        ("DELETE", "DELETE FROM big WHERE s LIKE '%1%'"),
        ("CREATE INDEX", "DROP INDEX IF EXISTS big_s; CREATE INDEX big_s ON big (s, n)"),
        ("CREATE UNIQUE INDEX", "DROP INDEX IF EXISTS big_u; CREATE UNIQUE INDEX big_u ON big (s, id)"),
        ("EXPLAIN ANALYZE", "EXPLAIN ANALYZE SELECT count(*) FROM big a, big b, big c"),
        ("pg_sleep", "SELECT pg_sleep(600)"),
        ("planning many joins", &planned),
        ("planning many conditions", &conditions),
    ]
    .map(|(what, sql)| (what, sql.to_string()))
    .into();
    let mut table = Vec::new();
    for (what, sql) in &cases {
        let (back, took) = cancelled(client, sql, None);
        client = back;
        client.ok("RESET work_mem");
        table.push((*what, took));
    }
    let (back, took) = cancelled(client, "COPY copied FROM STDIN (FORMAT csv)", Some(&rows));
    client = back;
    table.push(("COPY FROM", took));

    // Waits for others.
    let mut other = instance.session();
    other.ok("BEGIN");
    other.ok("UPDATE big SET n = -1 WHERE id = 7");
    for (what, sql) in [
        ("wait for a row", "UPDATE big SET n = -2 WHERE id = 7"),
        ("wait for a row of many", "DELETE FROM big"),
        ("wait for a key", "INSERT INTO big VALUES (100000000, 1, 'x')"),
        ("LOCK TABLE", "BEGIN; LOCK TABLE big IN ACCESS EXCLUSIVE MODE"),
        ("TRUNCATE waits", "TRUNCATE big"),
        ("CREATE INDEX waits", "CREATE INDEX waits ON big (n)"),
    ] {
        if what == "wait for a key" {
            other.ok("INSERT INTO big VALUES (100000000, 1, 'x')");
        }
        let (back, took) = cancelled(client, sql, None);
        client = back;
        client.ok("ROLLBACK");
        table.push((what, took));
    }
    other.ok("ROLLBACK");

    // Two run, the third waits to be admitted.
    let long = "SELECT count(*) FROM big a, big b, big c WHERE a.n + b.n + c.n = -1";
    let running: Vec<_> = (0..2)
        .map(|_| {
            let mut session = instance.session();
            let handle = session.session().cancel_handle();
            (handle, thread::spawn(move || -> Result<(), SqlError> { session.run(long).map(drop) }))
        })
        .collect();
    let waits = || instance.database.engine().statistics().event(eris_engine::Event::AdmissionWaits);
    let before = waits();
    let (mut client, took) = cancelled(client, long, None);
    table.push(("admission", took));
    assert!(waits() > before, "it waited to be admitted");
    for (handle, thread) in running {
        while !thread.is_finished() {
            handle.cancel();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(thread.join().unwrap().unwrap_err().sqlstate.as_str(), "57014");
    }
    for (what, took) in &table {
        let text = took.as_ref().map(|took| format!("{:8.1} ms", took.as_secs_f64() * 1_000.0));
        println!("{what:28} {}", text.unwrap_or_else(String::clone));
    }
    let wrong: Vec<_> = table.iter().filter(|(_, took)| took.is_err()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(client.rows("SELECT count(*) FROM big WHERE id < 0"), ["0"], "the session goes on");
}
