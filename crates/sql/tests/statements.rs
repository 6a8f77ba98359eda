//! What SQL files cannot say: plans that are kept, data in files and bytes, statements that are cancelled or collide.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod cancels;
mod old_snapshots;
mod support;
mod table_locks;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use eris_sql::DatabaseOptions;
use eris_storage::{Layout, Value};
use support::{Client, Instance};

fn instance() -> Instance {
    Instance::start(2, 1, DatabaseOptions::default())
}

/// A file that is gone with the test.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("eris-{}-{name}", std::process::id()));
        fs::write(&path, bytes).expect("the file is written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The text of numbered lines.
fn lines(numbers: std::ops::Range<u32>, line: impl Fn(u32) -> String) -> String {
    let lines: Vec<String> = numbers.map(line).collect();
    lines.join("\n") + "\n"
}

#[test]
fn executing_does_not_plan() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int)");
    client.ok("PREPARE put AS INSERT INTO t VALUES ($1, $2 + 1)");
    client.ok("PREPARE get AS SELECT n FROM t WHERE id = $1");
    client.ok("PREPARE change AS UPDATE t SET n = n + $2 WHERE id = $1");
    client.ok("PREPARE away AS DELETE FROM t WHERE id = $1");
    let planned = instance.database.planned();
    for id in 0..20 {
        client.ok(&format!("EXECUTE put({id}, -5)"));
        client.ok(&format!("EXECUTE change({id}, '7')"));
        assert_eq!(client.rows(&format!("EXECUTE get({id})")), ["3"]);
        client.ok(&format!("EXECUTE away({id})"));
    }
    assert_eq!(instance.database.planned(), planned, "EXECUTE finds its plan");
    // A computed argument is planned, the statement is not.
    assert_eq!(client.rows("EXECUTE get(1 + 1)"), Vec::<String>::new());
    assert_eq!(instance.database.planned(), planned + 1);
}

#[test]
fn a_text_is_planned_once_for_all_sessions() {
    let instance = instance();
    let mut first = instance.session();
    let mut second = instance.session();
    first.ok("CREATE TABLE t (id int PRIMARY KEY, n int)");
    first.ok("INSERT INTO t VALUES (1, 10)");
    let get = "SELECT n FROM t WHERE id = $1";
    let find = |client: &mut Client, id: i32| client.run_with(get, &[Value::Int32(id)], None).unwrap().rows.len();
    assert_eq!(find(&mut first, 1), 1);
    let planned = instance.database.planned();
    for id in 1..10 {
        assert_eq!(find(&mut second, id), usize::from(id == 1));
    }
    assert_eq!(instance.database.planned(), planned, "the second session finds the first one's plan");
    // Names that changed make it new, and right.
    second.ok("DROP TABLE t");
    second.ok("CREATE TABLE t (n text, id int PRIMARY KEY)");
    second.ok("INSERT INTO t VALUES ('ten', 1)");
    let answer = first.run_with(get, &[Value::Int32(1)], None).unwrap();
    assert_eq!(answer.rows, [[Some("ten".to_string())]]);
    // What depends on the session or the moment is never kept.
    assert_eq!(first.rows("SELECT current_setting('application_name') = ''"), ["t"]);
    first.ok("SET application_name = 'x'");
    assert_eq!(first.rows("SELECT current_setting('application_name') = ''"), ["f"]);
    assert_eq!(second.rows("SELECT current_setting('application_name') = ''"), ["t"]);
}

#[test]
fn parameters_have_the_types_of_their_places() {
    use eris_sql::SqlType;
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, name varchar(9), amount numeric(8,2), day date, big bigint)");
    let numeric = SqlType::Numeric { precision: 8, scale: 2 };
    let cases: [(&str, &[SqlType]); 7] = [
        ("SELECT * FROM t WHERE id = $1 AND name = $2", &[SqlType::Integer, SqlType::Text]),
        ("SELECT id + $1 FROM t WHERE day > $2", &[SqlType::Integer, SqlType::Date]),
        (
            "INSERT INTO t VALUES ($1, $2, $3, $4)",
            &[SqlType::Integer, SqlType::Varchar(Some(9)), numeric, SqlType::Date],
        ),
        ("UPDATE t SET amount = $2 WHERE big = $1", &[SqlType::BigInt, numeric]),
        ("SELECT $1::date, $2", &[SqlType::Date, SqlType::Text]),
        ("SELECT id FROM t LIMIT $1 OFFSET $2", &[SqlType::BigInt, SqlType::BigInt]),
        ("UPDATE t SET amount = $1 WHERE id IN (SELECT id FROM t WHERE day = $2)", &[numeric, SqlType::Date]),
    ];
    for (sql, expected) in cases {
        assert_eq!(client.parameters(sql), expected, "{sql}");
    }
}

#[test]
fn copy_from_a_file() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, name text, day date)");
    let rows = lines(0..50_000, |id| format!("{id};\"name {id}\";2024-01-{:02}", id % 28 + 1));
    let good = TestFile::new("good.csv", format!("id;name;day\n{rows}").as_bytes());
    let copy = |file: &TestFile| format!("COPY t FROM '{}' (FORMAT csv, HEADER, DELIMITER ';')", file.path());
    assert_eq!(client.ok(&copy(&good)).tag, "COPY 50000");
    assert_eq!(
        client.rows("SELECT count(*), min(day), max(name) FROM t WHERE id >= 100"),
        ["49900|2024-01-01|name 9999"]
    );
    client.ok("TRUNCATE t");
    let bad = TestFile::new("bad.csv", format!("id;name;day\n{rows}50000;x;never\n").as_bytes());
    let error = client.run(&copy(&bad)).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "22007");
    assert_eq!(error.context.as_deref(), Some("COPY t, line 50002, column day: \"never\""));
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"], "a COPY is all or nothing");
    let duplicate = TestFile::new("duplicate.csv", format!("id;name;day\n{rows}7;x;2024-01-01\n").as_bytes());
    assert_eq!(client.run(&copy(&duplicate)).unwrap_err().sqlstate.as_str(), "23505");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
    // Inside a block, with what was there before.
    client.ok("BEGIN");
    client.ok("INSERT INTO t VALUES (-1, 'before', NULL)");
    client.ok(&copy(&good));
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["50001"]);
    client.ok("ROLLBACK");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn copy_refuses_bytes_that_are_no_text() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, name text)");
    for (bytes, line) in [(&b"1,good\n2,\xff\xfe\n"[..], 2), (b"1,\xc3\n", 1), (b"1,a\n2,b\n3,\xed\xa0\x80\n", 3)] {
        let file = TestFile::new("bytes.csv", bytes);
        let error = client.run(&format!("COPY t FROM '{}' (FORMAT csv)", file.path())).unwrap_err();
        assert_eq!(error.sqlstate.as_str(), "22021", "{error}");
        assert_eq!(error.context.as_deref(), Some(&*format!("COPY t, line {line}")));
    }
    // Backslash sequences of the text format can make such bytes too.
    let error = client.run_with("COPY t FROM STDIN", &[], Some("1\t\\xff\n")).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "22021", "{error}");
    let error = client.run_with("COPY t FROM STDIN", &[], Some("1\ta\\000b\n")).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "22021", "{error}");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["0"]);
}

/// Starts a statement on a thread of its own, cancels it, and says how long that took.
fn cancelled(mut client: Client, sql: &'static str) -> (Client, Duration) {
    let handle = client.session().cancel_handle();
    let running = thread::spawn(move || {
        let error = client.run(sql).expect_err("the statement is cancelled");
        (client, error)
    });
    thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    // A cancel between two attempts or before the start finds nothing to cancel; clients ask again.
    while !running.is_finished() {
        handle.cancel();
        thread::sleep(Duration::from_millis(5));
        assert!(start.elapsed() < Duration::from_mins(1), "{sql} goes on");
    }
    let took = start.elapsed();
    let (client, error) = running.join().unwrap();
    assert_eq!(error.sqlstate.as_str(), "57014", "{sql}: {error}");
    (client, took)
}

/// Time on a processor of the fallback lane's threads.
fn lane_nanos() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux lists threads").filter_map(Result::ok);
    let of_lane = threads.filter(|thread| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "eris-fallback")
    });
    let nanos = of_lane.filter_map(|thread| {
        std::fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok()
    });
    nanos.sum()
}

/// What was cancelled does not go on behind the client's back.
fn wait_until_lane_rests(sql: &str) {
    for _ in 0..600 {
        let before = lane_nanos();
        thread::sleep(Duration::from_millis(100));
        if lane_nanos() - before < 1_000_000 {
            return;
        }
    }
    panic!("the lane still works on {sql}");
}

#[test]
fn statements_are_cancelled_wherever_they_are() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let rows = lines(0..20_000, |id| format!("{id},{}", id % 100));
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&rows)).unwrap();
    let statements = [
        "SELECT pg_sleep(60)",
        // In the fallback lane.
        "SELECT count(*) FROM t a, t b, t c WHERE a.n + b.n + c.n = -1",
        "INSERT INTO t SELECT a.id + 20000, c.n FROM t a, t b, t c WHERE a.n + b.n + c.n = -1",
        "UPDATE t SET n = (SELECT count(*) FROM t a, t b, t c WHERE a.n + b.n + c.n = -1)",
    ];
    for sql in statements {
        let (back, took) = cancelled(client, sql);
        client = back;
        assert!(took < Duration::from_secs(10), "{sql} took {took:?} to stop");
        assert_eq!(client.rows("SELECT count(*), sum(n) FROM t"), ["20000|990000"], "after {sql}");
        wait_until_lane_rests(sql);
    }
    // In a block: it waits for its end.
    client.ok("BEGIN");
    client.ok("DELETE FROM t WHERE id < 10");
    let (mut client, _) = cancelled(client, "SELECT pg_sleep(60)");
    assert_eq!(client.state("SELECT 1"), "25P02");
    client.ok("ROLLBACK");
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["20000"]);
}

/// Single statements that collide are repeated until they succeed: no update is lost and no client sees 40001.
#[test]
fn colliding_statements_are_repeated() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 50;
    let instance = Instance::start(2, 2, DatabaseOptions { partitions: 3, ..DatabaseOptions::default() });
    instance.session().ok("CREATE TABLE counter (id int PRIMARY KEY, n int)");
    instance.session().ok("INSERT INTO counter VALUES (1, 0), (2, 0)");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = instance.session();
            client.ok("SET retries = 100000");
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    client.ok("UPDATE counter SET n = n + 1 WHERE id = 1");
                    // Found by a query, changed by key.
                    client.ok("UPDATE counter SET n = n + 1 WHERE id = (SELECT max(id) FROM counter)");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let expected = CLIENTS * ROUNDS;
    let rows = instance.session().rows("SELECT n FROM counter ORDER BY id");
    assert_eq!(rows, [expected.to_string(), expected.to_string()]);
    // In a block the loser is told.
    let mut loser = instance.session();
    for statement in ["UPDATE counter SET n = 1 WHERE id = 1", "DELETE FROM counter WHERE n IN (SELECT n FROM counter)"]
    {
        loser.ok("BEGIN");
        assert_eq!(loser.rows("SELECT count(*) FROM counter"), ["2"]);
        instance.session().ok("UPDATE counter SET n = 0 WHERE id = 1");
        assert_eq!(loser.state(statement), "40001");
        loser.ok("ROLLBACK");
    }
    loser.ok("UPDATE counter SET n = 1 WHERE id = 1");
}

/// Each client looks at both rows and changes one of them, as a single statement that begins again when it fails at its
/// commit: no serial order lets the sum fall below what the condition keeps.
#[test]
fn single_statements_are_serializable_if_the_session_says_so() {
    let instance = Instance::start(2, 2, DatabaseOptions { partitions: 3, ..DatabaseOptions::default() });
    instance.session().ok("CREATE TABLE account (id int PRIMARY KEY, n int)");
    instance.session().ok("INSERT INTO account VALUES (1, 50), (2, 50)");
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let mut session = instance.session();
            session.ok("SET retries = 100000");
            session.ok("SET default_transaction_isolation = serializable");
            thread::spawn(move || {
                for round in 0..40 {
                    let id = 1 + (client + round) % 2;
                    session.ok(&format!(
                        "UPDATE account SET n = n - 7 WHERE id = {id} AND (SELECT sum(n) FROM account) >= 7"
                    ));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(instance.session().rows("SELECT sum(n) FROM account"), ["2"]);
}

/// A write waits for the transaction that has the row, and goes on when that is rolled back.
#[test]
fn a_write_waits_for_an_open_block() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    instance.session().ok("CREATE TABLE counter (id int PRIMARY KEY, n int)");
    instance.session().ok("INSERT INTO counter VALUES (1, 0)");
    let mut holder = instance.session();
    holder.ok("BEGIN");
    holder.ok("UPDATE counter SET n = 10 WHERE id = 1");
    let mut waiter = instance.session();
    let waiter = thread::spawn(move || {
        waiter.ok("UPDATE counter SET n = n + 1 WHERE id = 1");
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!waiter.is_finished(), "the row is taken");
    holder.ok("ROLLBACK");
    waiter.join().unwrap();
    assert_eq!(instance.session().rows("SELECT n FROM counter"), ["1"]);
}

/// Creating and dropping indexes while others write and read loses neither rows nor indexes.
#[test]
fn indexes_come_and_go_under_load() {
    let instance = Instance::start(2, 1, DatabaseOptions { segment_rows: 64, ..DatabaseOptions::default() });
    instance.session().ok("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let writer = {
        let mut client = instance.session();
        thread::spawn(move || {
            for id in 0..600 {
                client.ok(&format!("INSERT INTO t VALUES ({id}, {})", id % 10));
                if id % 3 == 0 {
                    client.ok(&format!("UPDATE t SET n = n + 10 WHERE id = {id}"));
                }
            }
        })
    };
    let mut client = instance.session();
    let mut rounds = 0;
    while !writer.is_finished() || rounds < 3 {
        for end in ["COMMIT", "ROLLBACK"] {
            client.ok("BEGIN");
            if client.run("CREATE INDEX by_n ON t (n)").is_ok() {
                client.rows("SELECT id FROM t WHERE n = 3");
                client.ok(end);
            } else {
                // Another row version was undecided.
                client.ok("ROLLBACK");
            }
            client.ok("DROP INDEX IF EXISTS by_n");
        }
        rounds += 1;
    }
    writer.join().unwrap();
    client.ok("CREATE INDEX by_n ON t (n)");
    for n in 0..20 {
        let through_index = client.rows(&format!("SELECT count(*) FROM t WHERE n = {n}"));
        let by_scan = client.rows(&format!("SELECT count(*) FROM t WHERE n + 0 = {n}"));
        assert_eq!(through_index, by_scan, "n = {n}");
    }
    assert_eq!(client.rows("SELECT count(*) FROM t"), ["600"]);
}

/// `EXPLAIN` as one text.
fn explained(client: &mut Client, sql: &str) -> String {
    client.rows(&format!("EXPLAIN {sql}")).join("\n")
}

#[test]
fn explain_shows_both_plans_and_the_lane() {
    let options = DatabaseOptions { layout: Layout::Column, segment_rows: 64, ..DatabaseOptions::default() };
    let instance = Instance::start(1, 1, options);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int, s text)");
    let rows = lines(0..200, |id| format!("{id},{},x", id % 10));
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&rows)).unwrap();
    client.ok("CREATE INDEX by_n ON t (n)");

    let point = explained(&mut client, "SELECT s FROM t WHERE id = 7");
    assert!(point.starts_with("Lookup t where id = 7: to the one partition that owns the key  [native]"), "{point}");
    assert!(point.contains("Micro-QEP of t in partition") && point.contains("t_pkey"), "{point}");
    assert!(point.ends_with("Lane: native"), "{point}");

    let scan = explained(&mut client, "SELECT n + 1 FROM t WHERE s <> 'y'");
    assert!(
        scan.starts_with("UnorderedScan t where s <> y: broadcast, pruned by partition table and segment bounds"),
        "{scan}"
    );
    assert!(scan.contains("compute: ") && scan.contains("[native, in each partition]"), "{scan}");

    let foreign = explained(&mut client, "SELECT id FROM t WHERE upper(s) = 'X'");
    assert!(foreign.contains("[native, foreign kernels, in each partition]"), "{foreign}");

    let groups = explained(&mut client, "SELECT n, count(*) FROM t GROUP BY n");
    assert!(groups.starts_with("Stage 0: Group by [#0]: CountAll(*)"), "{groups}");
    assert!(groups.contains("UnorderedScan t: broadcast") && groups.ends_with("Lane: native"), "{groups}");

    let joined = explained(&mut client, "SELECT a.id FROM t a, t b WHERE a.n = b.n");
    assert!(joined.contains("Stage 0: Build by #0") && joined.contains("probe stage 0: Inner by #"), "{joined}");
    assert!(joined.ends_with("Lane: native"), "{joined}");

    let join = explained(&mut client, "SELECT b.s FROM t a JOIN t b ON b.id = a.n WHERE a.id = 3");
    assert!(join.contains("KeyJoin: outer keys are sent to the partition that owns them"), "{join}");

    let windows = explained(&mut client, "SELECT id, rank() OVER (PARTITION BY s ORDER BY n DESC) FROM t");
    assert!(windows.contains("Window by [#2] in order #1 desc: Rank()"), "{windows}");
    assert!(windows.ends_with("Lane: native"), "{windows}");

    let sets = explained(&mut client, "SELECT s, n, count(*) FROM t GROUP BY ROLLUP (s, n)");
    assert!(sets.contains("expand: (") && sets.ends_with("Lane: native"), "{sets}");

    client.ok("CREATE INDEX by_both ON t USING inverted (s, n)");
    let postings = explained(&mut client, "SELECT id FROM t WHERE s = 'x' AND n = 3");
    assert!(postings.contains("inverted index scan by_both(s, n) where s = x AND n = 3"), "{postings}");

    let first = explained(&mut client, "SELECT DISTINCT ON (n) n, id FROM t ORDER BY n, id");
    assert!(first.contains("Window by [") && first.ends_with("Lane: native"), "{first}");

    let fallback = explained(&mut client, "SELECT id, stddev(n) OVER (ORDER BY id) FROM t");
    assert!(fallback.contains("Fallback: ") && fallback.contains("[fallback]"), "{fallback}");
    assert!(fallback.contains("ErisScan t") && fallback.contains("[native]"), "{fallback}");
    assert!(fallback.ends_with("Lane: fallback"), "{fallback}");

    let update = explained(&mut client, "UPDATE t SET n = 0 WHERE id = 7");
    assert!(update.starts_with("Update t: through the data gateway, in the partition  [native]"), "{update}");
    assert!(update.contains("  Lookup t where id = 7") && update.contains("Micro-QEP of t"), "{update}");

    let keyed = explained(&mut client, "DELETE FROM t WHERE n = (SELECT max(n) FROM t)");
    assert!(keyed.starts_with("Delete t: by key, the rows that a query finds  [native]"), "{keyed}");
    assert!(keyed.contains("its value is $1") && keyed.ends_with("Lane: native"), "{keyed}");

    let analyzed = explained(&mut client, "ANALYZE SELECT id FROM t WHERE n < 3");
    assert!(analyzed.contains("Rows: 60"), "{analyzed}");
    assert!(analyzed.contains("Planning: ") && analyzed.contains("Execution: "), "{analyzed}");
}

#[test]
fn explain_analyze_shows_what_was_expected_beside_what_came() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)");
    client.ok("INSERT INTO t SELECT g, g % 10 FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) a(g)");
    client.ok("CREATE TABLE few (n int PRIMARY KEY)");
    client.ok("INSERT INTO few VALUES (1), (2), (77)");
    let query = "SELECT n, count(*) FROM t WHERE id % 10 > 0 AND n IN (SELECT n FROM few) GROUP BY n";

    let analyzed = explained(&mut client, &format!("ANALYZE {query}"));
    // What storage gives, what a filter leaves, what has a partner, and what comes to the end of the stage.
    let line = |part: &str| analyzed.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{analyzed}"));
    assert!(line("UnorderedScan few").contains("  (3 rows)  [native]"), "{analyzed}");
    assert!(line("UnorderedScan t").contains("  (10 rows)  [native]"), "{analyzed}");
    assert!(line("filter: ").contains("  (9 rows)  [native"), "{analyzed}");
    assert!(line("probe stage 0").contains("  (2 rows)  [native"), "{analyzed}");
    assert!(line("Group by").contains(" rows come; 2 came in "), "{analyzed}");
    assert!(line("Rows: ") == "Rows: 2", "{analyzed}");

    // What comes is not known before it came; nor does a later EXPLAIN show what an earlier one saw.
    let explained_only = explained(&mut client, query);
    assert!(explained_only.contains(" rows come)") && !explained_only.contains("came"), "{explained_only}");

    // The query of a statement that changes rows is shown, too.
    let inserted = explained(&mut client, &format!("ANALYZE INSERT INTO few SELECT n + 100 FROM ({query}) q(n, c)"));
    assert!(inserted.contains(" rows come; 2 came in ") && inserted.contains("Rows: 2"), "{inserted}");
    // And nothing is left over from one that failed.
    let failing = "EXPLAIN ANALYZE SELECT count(*) FROM t, few WHERE t.n = few.n AND 1 / (t.n - 1) > 0";
    assert_eq!(client.state(failing), "22012");
    assert!(!explained(&mut client, query).contains("came"));
}

#[test]
fn sleeping_takes_its_time_and_answers() {
    let instance = instance();
    let mut client = instance.session();
    let start = Instant::now();
    assert_eq!(client.rows("SELECT pg_sleep(0.2)"), [""]);
    assert!(start.elapsed() >= Duration::from_millis(200));
    let start = Instant::now();
    assert_eq!(
        client.rows("SELECT 1, pg_sleep(0.1) AS a, 'x', pg_sleep(0.1), now() IS NOT NULL ORDER BY 1"),
        ["1||x||t"]
    );
    assert!(start.elapsed() >= Duration::from_millis(200));
    let start = Instant::now();
    assert_eq!(client.rows("SELECT pg_sleep(60) WHERE false"), Vec::<String>::new());
    assert_eq!(client.rows("SELECT pg_sleep(-1), pg_sleep(NULL)"), ["|"]);
    assert!(start.elapsed() < Duration::from_secs(30));
    let answer = client.run_with("SELECT pg_sleep($1), $2::int + 1", &[Value::Float64(0.01), Value::Int32(41)], None);
    assert_eq!(answer.unwrap().rows, [[Some(String::new()), Some("42".to_string())]]);
    assert_eq!(client.state("SELECT pg_sleep(1) FROM (VALUES (1)) v (x)"), "0A000");
}

/// The table from which a join's table is built: the first scan below the join, or in the first stage.
fn built_from(client: &mut Client, query: &str) -> String {
    let plan = client.rows(&format!("EXPLAIN {query}"));
    let scan_in = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("ErisScan ").or_else(|| line.strip_prefix("UnorderedScan ")).map(str::to_string)
    };
    let scan = plan.iter().find_map(|line| scan_in(line)).expect("a scan");
    scan.split([' ', ':']).next().expect("a name").to_string()
}

#[test]
fn joins_are_built_from_the_side_of_which_filters_keep_less() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE large (id int PRIMARY KEY, kind text, note text) WITH (segment_rows = 1000)");
    client.ok("CREATE TABLE small (id int PRIMARY KEY, kind text) WITH (segment_rows = 1000)");
    let line = |id: u32| {
        let (kind, note) = (if id.is_multiple_of(10) { "rare" } else { "common" }, id.is_multiple_of(100));
        format!("{id},{kind},{}", if note { "seen" } else { "not" })
    };
    let large = TestFile::new("large.csv", lines(0..20_000, line).as_bytes());
    let small = TestFile::new("small.csv", lines(0..3_000, |id| format!("{id},any")).as_bytes());
    client.ok(&format!("COPY large FROM '{}' WITH (FORMAT csv)", large.path()));
    client.ok(&format!("COPY small FROM '{}' WITH (FORMAT csv)", small.path()));
    for native in ["on", "off"] {
        client.ok(&format!("SET native = {native}"));
        check_built_sides(&mut client);
    }
}

/// What a transaction has loaded others do not see, a sample neither; it must not stay empty when they do.
#[test]
fn a_sample_that_was_taken_too_early_is_not_kept() {
    let instance = instance();
    let mut client = instance.session();
    let sql = "SELECT count(*) FROM t a JOIN t b ON a.id = b.id WHERE a.kind = 'rare'";
    let expected = |client: &mut Client| {
        let plan = client.rows(&format!("EXPLAIN {sql}"));
        plan.iter().find(|line| line.starts_with("Stage 0")).expect("a stage").clone()
    };
    let file = TestFile::new(
        "early.csv",
        lines(0..3_000, |id| format!("{id},{}", if id % 30 == 0 { "rare" } else { "common" })).as_bytes(),
    );
    client.ok("BEGIN");
    client.ok("CREATE TABLE t (id int PRIMARY KEY, kind text) WITH (segment_rows = 1000)");
    client.ok(&format!("COPY t FROM '{}' WITH (FORMAT csv)", file.path()));
    assert_eq!(client.rows(sql), ["100"]);
    client.ok("COMMIT");
    let stage = expected(&mut client);
    let rows: f64 =
        stage.split("(about ").nth(1).and_then(|rest| rest.split(' ').next()).expect("rows").parse().unwrap();
    assert!((30.0..300.0).contains(&rows), "one row in thirty of 3,000: {stage}");
}

fn check_built_sides(client: &mut Client) {
    let mut built = |condition: &str| {
        let joined = "SELECT max(s.kind), max(l.note) FROM large l, small s WHERE l.id = s.id AND";
        built_from(client, &format!("{joined} {condition}"))
    };
    // Nothing but a sample can tell these two apart.
    assert_eq!(built("l.kind = 'common'"), "small");
    assert_eq!(built("l.note = 'seen'"), "large");
    // Nor these, which storage does not evaluate.
    assert_eq!(built("l.kind LIKE '%omm%'"), "small");
    assert_eq!(built("l.note LIKE '%ee%'"), "large");
    // What the sample does not meet is rare, and an expression that fails on one of its rows tells nothing.
    assert_eq!(built("l.note = 'never'"), "large");
    assert_eq!(built("10 / (l.id % 2) = 3"), "small");
}

/// Sorted rows go through further steps on all workers, a batch at a time.
#[test]
fn sorted_rows_stay_in_order_behind_the_sort() {
    let instance = Instance::start(4, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (a int)");
    let numbers: Vec<String> = (0..150).map(|number| format!("({number})")).collect();
    client.ok(&format!("INSERT INTO t VALUES {}", numbers.join(", ")));
    for query in [
        "SELECT x.a, x.a * 200 + y.a FROM t x, t y ORDER BY 2 DESC",
        "SELECT n FROM (SELECT x.a * 200 + y.a AS n FROM t x, t y ORDER BY 1 DESC LIMIT 20000) q WHERE n <> 7",
    ] {
        for _ in 0..40 {
            let rows = client.rows(query);
            let last = |row: &String| row.rsplit('|').next().and_then(|text| text.parse::<i64>().ok()).unwrap();
            let found: Vec<i64> = rows.iter().map(last).collect();
            assert!(found.len() > 19_000 && found.is_sorted_by(|a, b| a > b), "{query}: {} rows", found.len());
        }
    }
}
