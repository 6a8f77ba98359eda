//! What statements hold: under the limit, given back, and no longer than it is needed.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use eris_engine::{AdmissionOptions, ClassLimit, EngineOptions, Simulation, StatementClass};
use eris_platform::Env;
use eris_sql::{Database, DatabaseOptions, SessionOptions, SqlError};
use support::{Instance, take_all};

fn instance(memory_limit_bytes: u64) -> Instance {
    let engine = EngineOptions { workers: 1, nodes: 1, memory_limit_bytes, ..EngineOptions::default() };
    Instance::with_engine(engine, DatabaseOptions::default())
}

/// 53200 with the consumer's name; everything that was taken is given back, and smaller statements go on working.
#[test]
fn the_memory_limit_is_an_error_and_bytes_go_back() {
    let limit = 24 << 20;
    let instance = instance(limit);
    let mut client = instance.session();
    client.ok("CREATE TABLE big (id int PRIMARY KEY, t text)");
    client.ok("INSERT INTO big VALUES (1, 'x')");
    let memory = instance.database.engine().memory();
    let before = memory.used();
    let refused = loop {
        let sql = "INSERT INTO big SELECT a.id + b.id, repeat('x', 1000) \
                   FROM (SELECT max(id) AS id FROM big) a, (SELECT id FROM big) b";
        if let Err(error) = client.run(sql) {
            break error;
        }
    };
    assert_eq!(refused.sqlstate.as_str(), "53200", "{refused}");
    assert!(refused.detail.is_some() && refused.hint.as_deref().unwrap().contains("--memory-limit"), "{refused}");
    client.ok("DROP TABLE big");
    // What is dropped is freed once nobody reads it any more.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while memory.used() > before * 2 && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(memory.used() <= before * 2, "{} of {before} bytes are held: {:?}", memory.used(), memory.by_consumer());
    client.ok("CREATE TABLE small (id int PRIMARY KEY)");
    client.ok("INSERT INTO small VALUES (1)");
    assert_eq!(client.rows("SELECT * FROM small"), ["1"]);
}

/// A function that makes a text far longer than its arguments fails before it makes it.
#[test]
fn texts_are_bounded_before_they_are_built() {
    let limit = 64 << 20;
    let instance = instance(limit);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, a text)");
    client.ok("INSERT INTO t VALUES (1, 'a'), (2, 'b')");
    let used = instance.database.engine().memory().used();
    let started = std::time::Instant::now();
    for sql in [
        "SELECT length(repeat('x', 500000000))",
        "SELECT length(repeat(a, 50000000)) FROM t",
        "SELECT length(lpad(a, 50000000, 'xy')), id FROM t ORDER BY id",
        "SELECT length(rpad(a, 50000000)) FROM t",
        "SELECT length(replace(repeat('x', 10000), 'x', repeat('y', 10000)))",
    ] {
        assert_eq!(client.state(sql), "53200", "{sql}");
    }
    for sql in ["SELECT repeat('x', 2000000000)", "SELECT lpad(a, 2000000000, 'x') FROM t"] {
        assert_eq!(client.state(sql), "54000", "{sql}");
    }
    assert!(started.elapsed().as_secs() < 20, "nothing was built in {:?}", started.elapsed());
    assert_eq!(client.rows("SELECT length(repeat(a, 1000000)) FROM t"), ["1000000", "1000000"]);
    assert!(instance.database.engine().memory().used() <= used * 2, "bytes go back");
}

/// A build side is given back when nobody asks it any more: a chain of joins holds two at a time, the one that is
/// asked and the one that is made.
#[test]
fn a_chain_of_joins_gives_back_what_nobody_asks_any_more() {
    const ROWS: u64 = 10_000;
    const COLUMNS: u64 = 16;
    let instance = instance(1 << 30);
    let mut client = instance.session();
    // Few wide rows are the build side, and what is left of them is it again.
    let columns: Vec<String> = (0..COLUMNS).map(|column| format!("c{column}")).collect();
    client.ok(&format!("CREATE TABLE t0 (id int PRIMARY KEY, {} bigint)", columns.join(" bigint, ")));
    (1..7).for_each(|table| drop(client.ok(&format!("CREATE TABLE t{table} (id int PRIMARY KEY)"))));
    for table in 0..7 {
        let line = |id| match table {
            0 => format!("{id}{}\n", format!(",{id}").repeat(columns.len())),
            _ => format!("{id}\n"),
        };
        let rows = if table == 0 { ROWS } else { 20 * ROWS };
        let lines: String = (1..=rows).map(line).collect();
        client.run_with(&format!("COPY t{table} FROM STDIN (FORMAT csv)"), &[], Some(&lines)).unwrap();
    }
    let join = |table| format!(" JOIN t{table} ON t{table}.id = t{}.id", table - 1);
    let chain = (1..7).map(join).collect::<Vec<String>>().concat();
    let query = format!("SELECT count(*), sum({} + t6.id) FROM t0{chain}", columns.join(" + "));
    let plan = client.rows(&format!("EXPLAIN {query}")).join("\n");
    assert_eq!(plan.matches(&format!("Build by #0, {COLUMNS} columns")).count(), 6, "{plan}");

    let memory = instance.database.engine().memory();
    let one = ROWS * COLUMNS * size_of::<i64>() as u64;
    // A sixteenth of the limit is kept for what gives memory back.
    memory.set_limit((memory.used() + 5 * one) * 16 / 15);
    assert_eq!(client.rows(&query), [format!("{ROWS}|{}", (COLUMNS + 1) * (ROWS * (ROWS + 1) / 2))]);
}

/// A quarter of a million rows of 100 bytes and more, made of 500.
const MANY_WIDE_ROWS: &str = "SELECT a.n * 500 + b.n AS k, lpad((b.n * 500 + a.n)::text, 100, '0') AS t FROM s a, s b";

fn instance_with_rows(memory_limit_bytes: u64) -> Instance {
    let engine = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE s (n int PRIMARY KEY)");
    let lines: String = (0..500).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY s FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    drop(client);
    instance
}

/// Sorting and grouping more than the limit goes on in temporary files; afterwards nothing of them is left.
#[test]
fn what_does_not_fit_is_sorted_and_grouped_in_files() {
    let instance = instance_with_rows(24 << 20);
    let mut client = instance.session();
    let (memory, files) = (Arc::clone(instance.database.engine().memory()), instance.database.temp_files());
    let before = memory.used();
    let sorted = client.rows(&format!("SELECT k FROM ({MANY_WIDE_ROWS}) q ORDER BY t"));
    let expected = (0..500).flat_map(|b| (0..500).map(move |a| (a * 500 + b).to_string()));
    assert!(sorted.iter().cloned().eq(expected), "{} rows, first {:?}", sorted.len(), sorted.first());
    let spilled = files.statistics().written_bytes;
    assert!(spilled > 0, "the sort fitted");
    let grouped = format!(
        "SELECT count(*), sum(g.c), min(g.low), max(g.low) FROM \
         (SELECT k, count(*) AS c, min(t) AS low, count(DISTINCT t) AS d FROM ({MANY_WIDE_ROWS}) q GROUP BY k) g"
    );
    let expected = format!("250000|250000|{}|{:0>100}", "0".repeat(100), 249_999);
    assert_eq!(client.rows(&grouped), [expected]);
    assert!(files.statistics().written_bytes > spilled, "the groups fitted");
    // Columns other than those that are sorted go to the client, and so do rows without an order.
    let texts = client.rows(&format!("SELECT t FROM ({MANY_WIDE_ROWS}) q ORDER BY k % 1000, k"));
    assert_eq!((texts.len(), texts[1].as_str()), (250_000, format!("{:0>100}", 2).as_str()));
    let texts =
        client.rows(&format!("SELECT k, t FROM ({MANY_WIDE_ROWS}) q UNION ALL SELECT k, t FROM ({MANY_WIDE_ROWS}) r"));
    assert_eq!(texts.len(), 500_000);
    // Both inputs of a later stage that asks twice, and a limit.
    let twice = format!(
        "WITH q AS (SELECT t, min(k) AS k FROM ({MANY_WIDE_ROWS}) r GROUP BY t) \
         SELECT (SELECT count(*) FROM q), (SELECT max(k) FROM q), count(*) FROM \
         (SELECT t FROM q ORDER BY t LIMIT 70000) p"
    );
    assert_eq!(client.rows(&twice), ["250000|249999|70000"]);
    // The queue of the files lets go of them a moment after its answer.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let is_left = || files.statistics().used_bytes > 0 || memory.used() > before + (1 << 20);
    while is_left() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!is_left(), "{:?}, {} of {before}: {:?}", files.statistics(), memory.used(), memory.by_consumer());
}

/// Beyond `temp_file_limit` the statement fails by itself, with PostgreSQL's code.
#[test]
fn the_limit_of_temporary_files_is_an_error_of_one_statement() {
    let instance = instance_with_rows(24 << 20);
    let mut client = instance.session();
    client.ok("SET temp_file_limit = 64");
    let query = format!("SELECT k FROM ({MANY_WIDE_ROWS}) q ORDER BY t");
    let refused = client.run(&query).unwrap_err();
    assert_eq!(refused.sqlstate.as_str(), "53400", "{refused}");
    assert!(refused.message.contains("temp_file_limit") && refused.hint.is_some(), "{refused}");
    assert_eq!(client.rows("SELECT count(*) FROM s"), ["500"]);
    client.ok("RESET temp_file_limit");
    assert_eq!(client.rows(&query).len(), 250_000);
}

/// The same answers with files from the second batch on as without any.
#[test]
fn work_mem_changes_no_answer() {
    let instance = instance_with_rows(1 << 30);
    let mut client = instance.session();
    client.ok("CREATE TABLE v (id int PRIMARY KEY, g int, t text, d numeric(12, 2))");
    let lines: String = (0..20_000)
        .map(|n| format!("{n},{},text {},{}.25\n", n % 700, n * 7_919 % 3_000, n % 97))
        .collect::<Vec<_>>()
        .concat();
    client.run_with("COPY v FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    let queries = [
        "SELECT g, count(*), sum(d), avg(d), min(t), max(id), count(DISTINCT t) FROM v GROUP BY g ORDER BY g",
        "SELECT DISTINCT t, g % 10 FROM v ORDER BY 1 DESC, 2",
        "SELECT id FROM v ORDER BY t, d DESC, id",
        "SELECT count(*) FROM (SELECT t FROM v UNION SELECT t FROM v WHERE g < 100) u",
        "SELECT a.g, sum(a.c) FROM (SELECT g, t, count(*) AS c FROM v GROUP BY g, t) a GROUP BY a.g ORDER BY 2, 1",
        "SELECT id, t FROM v ORDER BY t, id LIMIT 5 OFFSET 17000",
        "SELECT g, id, rank() OVER (PARTITION BY g ORDER BY t), sum(d) OVER (PARTITION BY g ORDER BY id) FROM v \
         ORDER BY g, id",
    ];
    let in_memory: Vec<Vec<String>> = queries.iter().map(|query| client.rows(query)).collect();
    client.ok("SET work_mem = '1B'");
    let before = instance.database.temp_files().statistics().written_bytes;
    for (query, expected) in queries.iter().zip(&in_memory) {
        assert_eq!(client.rows(query), *expected, "{query}");
    }
    assert!(instance.database.temp_files().statistics().written_bytes > before);
}

/// A quarter of a million rows of twenty numbers, of which the first is unique.
fn many_numbers() -> String {
    let number = |at: usize| format!("a.n * 500 + b.n + {at} AS c{at}");
    format!("SELECT {} FROM s a, s b", (0..20).map(number).collect::<Vec<_>>().join(", "))
}

/// Both sides of the joins are far larger than the limit.
#[test]
fn what_does_not_fit_is_joined_in_files() {
    let instance = instance_with_rows(16 << 20);
    let mut client = instance.session();
    let (memory, files) = (Arc::clone(instance.database.engine().memory()), instance.database.temp_files());
    let before = memory.used();
    let (many, all) = (many_numbers(), (0..20).map(|at| format!("sum(x.c{at} - y.c{at})")).collect::<Vec<_>>());
    let all = all.join(" + ");
    for (join, expected) in [
        (format!("SELECT count(*), {all} FROM ({many}) x JOIN ({many}) y ON x.c0 = y.c1"), "249999|4999980"),
        (format!("SELECT count(*), {all} FROM ({many}) x LEFT JOIN ({many}) y ON x.c0 = y.c1"), "250000|4999980"),
        (format!("SELECT count(*), {all} FROM ({many}) x FULL JOIN ({many}) y ON x.c0 = y.c1"), "250001|4999980"),
    ] {
        let written = files.statistics().written_bytes;
        assert_eq!(client.rows(&join), [expected], "{join}");
        assert!(files.statistics().written_bytes > written + (10 << 20), "{join} fitted");
    }
    // As many rows go to the client.
    let rows = client.rows(&format!("SELECT x.*, y.c2 FROM ({many}) x JOIN ({many}) y USING (c1)"));
    assert_eq!(rows.len(), 250_000);
    // The queue of the files lets go of them a moment after its answer.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let is_left = || files.statistics().used_bytes > 0 || memory.used() > before + (1 << 20);
    while is_left() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!is_left(), "{:?}, {} of {before}: {:?}", files.statistics(), memory.used(), memory.by_consumer());
}

/// Joins of all kinds that go on in files at once; nothing else in these queries writes to files.
#[test]
fn work_mem_changes_no_join() {
    let instance = instance_with_rows(1 << 30);
    let mut client = instance.session();
    client.ok("CREATE TABLE l (id int PRIMARY KEY, g int, t text)");
    client.ok("CREATE TABLE r (id int PRIMARY KEY, g int, t text)");
    for (table, rows, every) in [("l", 6_000, 11), ("r", 4_000, 13)] {
        let line = |n: usize| match n % every {
            0 => format!("{n},,\n"),
            _ => format!("{n},{},text {}\n", n * 7_919 % 2_500, n * 31 % 1_700),
        };
        let lines: String = (0..rows).map(line).collect::<Vec<_>>().concat();
        client.run_with(&format!("COPY {table} FROM STDIN (FORMAT csv)"), &[], Some(&lines)).unwrap();
    }
    let queries = [
        "SELECT count(*), sum(l.id), sum(r.id) FROM l JOIN r ON l.g = r.g",
        "SELECT count(*), sum(l.id), min(r.t) FROM l JOIN r ON l.t = r.t AND l.g < r.g",
        "SELECT count(*), sum(l.id), sum(r.id), count(r.t) FROM l LEFT JOIN r ON l.g = r.g AND l.id < r.id",
        "SELECT count(*), sum(l.id), sum(r.id), count(r.t) FROM l RIGHT JOIN r ON l.t = r.t",
        "SELECT count(*), sum(l.id), sum(r.id), min(l.t) FROM l FULL JOIN r ON l.g = r.g AND l.t = r.t",
        "SELECT count(*), sum(l.id) FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.g = l.g AND r.id <> l.id)",
        "SELECT count(*), sum(l.id) FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.t = l.t)",
        "SELECT count(*), sum(l.id) FROM l WHERE l.g NOT IN (SELECT g FROM r WHERE g IS NOT NULL)",
        "SELECT count(*), sum(l.id) FROM l WHERE l.g NOT IN (SELECT g FROM r)",
        "SELECT count(*), sum(l.id) FROM l WHERE l.id % 5 = 0 OR l.t IN (SELECT t FROM r WHERE r.id < 900)",
        "SELECT count(*), sum(a.id), sum(b.id) FROM l a JOIN l b ON a.g = b.g JOIN r ON r.t = b.t \
         LEFT JOIN r q ON q.id = a.g",
        "SELECT count(*), sum(u.id), min(r.t) \
         FROM (SELECT id, g FROM l UNION ALL SELECT id, id FROM r) u JOIN r ON u.g = r.g",
        "SELECT count(*), sum(l.id), sum(r.id) FROM l JOIN r ON l.id + r.id < 300",
        "SELECT count(*) FROM (SELECT l.id FROM l JOIN r ON l.g = r.g LIMIT 70) q",
        "SELECT (SELECT count(*) FROM l JOIN r USING (g)), count(*), sum(r.id) FROM l, r WHERE l.t = r.t",
    ];
    let in_memory: Vec<Vec<String>> = queries.iter().map(|query| client.rows(query)).collect();
    let explained = |client: &mut support::Client| {
        let counted = client.rows("EXPLAIN ANALYZE SELECT count(*) FROM l JOIN r ON l.g = r.g WHERE l.id + r.id > 99");
        let rows = |line: &String| line.split(" in ").next().unwrap_or_default().to_string();
        counted.iter().filter(|line| line.contains("probe") || line.contains("join")).map(rows).collect::<Vec<_>>()
    };
    let counted = explained(&mut client);
    client.ok("SET work_mem = '1B'");
    for (query, expected) in queries.iter().zip(&in_memory) {
        let written = instance.database.temp_files().statistics().written_bytes;
        assert_eq!(client.rows(query), *expected, "{query}");
        assert!(instance.database.temp_files().statistics().written_bytes > written, "{query} wrote nothing");
    }
    assert!(!counted.is_empty());
    assert_eq!(explained(&mut client), counted);
}

/// A table of the numbers 1 to `rows`.
fn make_numbers(client: &mut support::Client, rows: u64) {
    client.ok("CREATE TABLE numbers (n bigint PRIMARY KEY) WITH (layout = column)");
    let lines: String = (1..=rows).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY numbers FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
}

/// Fills a table until a row more is refused; how many rows there are.
fn fill(client: &mut support::Client) -> u64 {
    client.ok("CREATE TABLE full (id bigint PRIMARY KEY, n bigint) WITH (layout = column)");
    make_numbers(client, 64_000);
    let (mut rows, mut piece) = (0_u64, 64_000_u64);
    while piece > 0 {
        let sql = format!("INSERT INTO full SELECT {rows} + n, n FROM numbers WHERE n <= {piece}");
        match client.run(&sql) {
            Ok(_) => rows += piece,
            Err(error) => {
                assert_eq!(error.sqlstate.as_str(), "53200", "{error}");
                piece /= 4;
            }
        }
    }
    rows
}

/// A full database is read and changed row by row, emptied by one statement, and filled again.
#[test]
fn one_row_is_read_and_updated_and_all_rows_are_deleted_in_a_full_database() {
    let instance = instance(48 << 20);
    let mut client = instance.session();
    let rows = fill(&mut client);
    assert!(rows > 300_000, "{rows} rows fill the memory");
    for id in (1..=rows).step_by(rows as usize / 200) {
        assert_eq!(client.ok(&format!("UPDATE full SET n = n + 1 WHERE id = {id}")).tag, "UPDATE 1");
        assert_eq!(client.rows(&format!("SELECT id FROM full WHERE id = {id}")), [id.to_string()]);
    }
    // Rows fill more than long statements may take.
    let engine = instance.database.engine();
    let others = engine.memory().reserve("others");
    while others.grow(4 << 10).is_ok() {}
    assert_eq!(client.rows("SELECT count(*), min(id), max(id) FROM full"), [format!("{rows}|1|{rows}")]);
    drop(others);
    assert_eq!(client.ok("DELETE FROM full").tag, format!("DELETE {rows}"));
    assert_eq!(client.rows("SELECT count(*) FROM full"), ["0"]);
    for before in (0..rows / 2).step_by(64_000) {
        assert_eq!(client.ok(&format!("INSERT INTO full SELECT {before} + n, n FROM numbers")).tag, "INSERT 0 64000");
    }
}

/// A statement that was refused beside another one waits until that has ended, and is answered.
#[test]
fn a_refused_statement_waits_for_others_and_is_answered() {
    let instance = instance(64 << 20);
    let engine = instance.database.engine().clone();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, name text)");
    make_numbers(&mut client, 100_000);
    client.ok("INSERT INTO t SELECT n, 'the name of ' || n FROM numbers");
    let query = "SELECT count(*) FROM t a JOIN t b ON a.name = b.name";
    let other = |engine: &eris_engine::Engine| {
        let admit = engine.admit(eris_engine::StatementClass::Scan);
        let permit = engine.block_on(admit).unwrap().unwrap();
        (permit, take_all(engine, "other"))
    };
    let waits = |engine: &eris_engine::Engine| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while engine.admitted(eris_engine::StatementClass::Scan) != (1, 1) {
            assert!(std::time::Instant::now() < deadline, "the statement does not wait");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    let held = other(&engine);
    std::thread::scope(|scope| {
        let mut second = instance.session();
        let answer = scope.spawn(move || second.rows(query));
        waits(&engine);
        // Accesses by key do not wait.
        assert_eq!(client.rows("SELECT name FROM t WHERE id = 7"), ["the name of 7"]);
        drop(held);
        assert_eq!(answer.join().unwrap(), ["100000"]);
    });
    let held = other(&engine);
    client.ok("SET memory_wait_timeout = '50ms'");
    let error = client.run(query).unwrap_err();
    assert_eq!(error.sqlstate.as_str(), "53200", "{error}");
    assert!(error.detail.as_deref().unwrap_or_default().contains("waited"), "{error:?}");
    drop(held);
    assert_eq!(client.rows(query), ["100000"]);
    // Alone it goes on in files, in its first bytes. What cannot is refused at once: nothing is to be waited for.
    let _alone = take_all(&engine, "alone");
    client.ok("SET memory_wait_timeout = 0");
    assert_eq!(client.rows(query), ["100000"]);
    assert_eq!(client.state("SELECT max(n) FROM (SELECT sum(id) OVER (ORDER BY name) AS n FROM t) AS s"), "53200");
}

/// All waits of a statement together, on the clock of the simulator, take no longer than `memory_wait_timeout`: in an
/// open transaction it is refused without waiting, so the difference is what it waited.
#[test]
fn a_refused_statement_waits_no_longer_than_it_may() {
    const LIMIT: u64 = 64 << 20;
    const TIMEOUT: Duration = Duration::from_millis(100);
    const UPDATE: &str = "UPDATE t SET n = n + 1, name = 'another name that is about as long as those that are there'";
    let options = EngineOptions { workers: 2, nodes: 1, memory_limit_bytes: LIMIT, ..EngineOptions::default() };
    let mut simulation = Simulation::new(5, options).expect("starts");
    let engine = simulation.engine().clone();
    let opening = Database::open(engine.clone(), DatabaseOptions::default());
    let database = simulation.block_on(opening).expect("ends").expect("it opens");
    let mut session = Some(database.session(SessionOptions::default()));
    let mut run = |simulation: &mut Simulation, sql: &'static str, data: Option<String>| {
        let mut running = session.take().expect("no statement runs");
        let begun = simulation.env().now();
        let ran = async move {
            let answer = support::run(&mut running, sql, &[], data.as_deref()).await;
            (running, answer)
        };
        let (ended, answer) = simulation.block_on(ran).expect("ends");
        session = Some(ended);
        (answer, simulation.env().now() - begun)
    };
    run(&mut simulation, "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, name text)", None).0.expect("it is made");
    let lines = (1..=100_000).fold(String::new(), |lines, id| lines + &format!("{id},0,{id:0>60}\n"));
    run(&mut simulation, "COPY t FROM STDIN (FORMAT csv)", Some(lines)).0.expect("there is room");
    run(&mut simulation, "SET memory_wait_timeout = '100ms'", None).0.expect("a setting");
    let admitting = engine.clone();
    let other = async move { admitting.admit(StatementClass::Scan).await };
    let _other = simulation.block_on(other).expect("ends").expect("there is a place");
    let settle = |simulation: &mut Simulation| {
        let engine = engine.clone();
        let settled = async move { engine.reclaim_memory(Duration::from_secs(5)).await };
        simulation.block_on(settled).expect("ends");
    };
    settle(&mut simulation);
    let held = engine.memory().reserve("held");
    while engine.memory().free() > 3 << 20 {
        held.grow(64 << 10).expect("there is room");
    }
    let state = |error: &SqlError| error.sqlstate.to_string();
    run(&mut simulation, "BEGIN", None).0.expect("a block begins");
    let (refused, at_once) = run(&mut simulation, UPDATE, None);
    assert_eq!(state(&refused.expect_err("all rows do not fit")), "53200");
    run(&mut simulation, "ROLLBACK", None).0.expect("the block ends");
    settle(&mut simulation);
    let (refused, took) = run(&mut simulation, UPDATE, None);
    let error = refused.expect_err("others hold the memory");
    assert_eq!(state(&error), "53200");
    assert!(error.detail.as_deref().unwrap_or_default().contains("waited 100ms"), "{error:?}");
    let waited = took.saturating_sub(at_once);
    assert!(waited < 2 * TIMEOUT, "{waited:?}: {took:?} instead of {at_once:?}");
}

/// One statement has the only place, and others wait for it.
#[test]
fn queries_of_views_alone_are_never_queued() {
    let only = ClassLimit { running_max: 1, waiting_max: 10, wait_max: Duration::from_mins(2) };
    let options = EngineOptions {
        workers: 2,
        nodes: 1,
        admission: AdmissionOptions { scan: Some(only), ..AdmissionOptions::default() },
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(options, DatabaseOptions::default());
    let engine = instance.database.engine().clone();
    let mut client = instance.session();
    make_numbers(&mut client, 1_000);
    let admit = engine.admit(StatementClass::Scan);
    let held = engine.block_on(admit).unwrap().unwrap();
    std::thread::scope(|scope| {
        let mut second = instance.session();
        let answer = scope.spawn(move || second.rows("SELECT count(*) FROM numbers"));
        let deadline = Instant::now() + Duration::from_mins(1);
        while engine.admitted(StatementClass::Scan) != (1, 1) {
            assert!(Instant::now() < deadline, "the statement does not wait");
            std::thread::sleep(Duration::from_millis(2));
        }
        // One that was queued would fail with it.
        client.ok("SET statement_timeout = '30s'");
        for (sql, answer) in [
            ("SELECT count(*) > 0, sum(bytes) > 0 FROM eris.memory", "t|t"),
            ("SELECT sum(rows) FROM eris.partitions WHERE NOT system", "1000"),
            ("SELECT relname FROM pg_class WHERE relname LIKE 'numbers%' ORDER BY relname LIMIT 1", "numbers"),
            ("SELECT a.name FROM eris.settings a JOIN eris.settings b USING (name) WHERE name = 'layout'", "layout"),
        ] {
            assert_eq!(client.rows(sql), [answer], "{sql}");
            assert_eq!(engine.admitted(StatementClass::Scan), (1, 1), "{sql} had a place");
        }
        // Beside a table a view waits like any other.
        client.ok("SET statement_timeout = 300");
        assert_eq!(client.state("SELECT count(*) FROM eris.memory, numbers"), "57014");
        drop(held);
        assert_eq!(answer.join().unwrap(), ["1000"]);
    });
}

/// Several statements lack the memory to start, and none that runs will release any: they do not wait for each other,
/// and the only worker keeps serving.
#[test]
fn statements_that_cannot_start_do_not_wait_for_one_another() {
    let instance = instance(64 << 20);
    let engine = instance.database.engine().clone();
    let mut client = instance.session();
    make_numbers(&mut client, 10_000);
    let _held = take_all(&engine, "all");
    let ended = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut other = instance.session();
            let ended = &ended;
            scope.spawn(move || {
                let run = other.run("SELECT count(*) FROM (SELECT n % 5000, count(*) FROM numbers GROUP BY 1) q");
                let state = run.err().map(|error| error.sqlstate.as_str().to_owned());
                assert!(state.as_deref().is_none_or(|state| state == "53200"), "{state:?}");
                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            });
        }
        while ended.load(std::sync::atomic::Ordering::Relaxed) < 4 {
            assert_eq!(client.rows("SELECT n FROM numbers WHERE n = 7"), ["7"]);
        }
    });
}

/// The statement after a refused one does not fail because of what that held.
#[test]
fn what_a_refused_statement_held_is_there_for_the_next() {
    let instance = instance(96 << 20);
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id bigint PRIMARY KEY, a bigint, name text) WITH (layout = column)");
    make_numbers(&mut client, 150_000);
    client.ok("INSERT INTO t SELECT n, n, 'the name ' || n FROM numbers");
    let query = "SELECT count(*) FROM (SELECT name, count(*) FROM t GROUP BY name) q";
    let rows = client.rows(query);
    let memory = instance.database.engine().memory();
    // There is room for the query, and none for a second version of all rows.
    memory.set_limit(memory.used() + (24 << 20));
    assert_eq!(client.rows(query), rows);
    let update = format!("UPDATE t SET a = a + 1, name = name || '{}'", "0123456789".repeat(30));
    for _ in 0..5 {
        assert_eq!(client.state(&update), "53200");
        assert_eq!(client.rows(query), rows);
        assert_eq!(client.ok("UPDATE t SET a = 0 WHERE id = 5").tag, "UPDATE 1");
    }
}

/// What parsing and planning take is reserved before they begin: a long list is refused for its tokens or, where these
/// fit, for its plan. Under a larger limit it is answered, and nothing stays reserved.
#[test]
fn long_lists_are_refused_before_they_are_parsed_or_planned() {
    let engine = EngineOptions {
        workers: 1,
        nodes: 1,
        memory_limit_bytes: 64 << 20,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY)");
    client.ok("INSERT INTO t VALUES (7)");
    let memory = instance.database.engine().memory();
    let before = memory.used();
    let items = |count: u32| (0..count).map(|item| item.to_string()).collect::<Vec<_>>();
    let values = format!("VALUES ({})", items(60_000).join("),("));
    let insert = format!("INSERT INTO t {values}");
    // Its tokens take 46 MB, its plan 60 MB more.
    let in_list = format!("SELECT count(*) FROM t WHERE id IN ({})", items(30_000).join(","));
    let planning = || memory.by_consumer().into_iter().find(|(name, _)| *name == "parsing and planning");
    for (sql, reserved) in [(&values, 0), (&insert, 0), (&in_list, 40 << 20)] {
        let what = &sql[..20];
        let refused = client.run(sql).unwrap_err();
        assert_eq!(refused.sqlstate.as_str(), "53200", "{what}: {refused}");
        let detail = refused.detail.as_deref().unwrap_or_default();
        assert!(detail.contains("parsing and planning asked for"), "{what}: {refused}");
        assert!(memory.peak() >= before + reserved, "{what}: {} were reserved at most", memory.peak());
        assert_eq!(planning(), Some(("parsing and planning", 0)), "{what}");
        assert!(memory.used() <= before + (1 << 20), "{what}: {} of {before} bytes are held", memory.used());
        assert_eq!(client.rows("SELECT id FROM t"), ["7"], "{what}: the session goes on");
    }
    // A list of honest length fits.
    let short = format!("SELECT count(*) FROM t WHERE id IN ({})", items(1_000).join(","));
    assert_eq!(client.rows(&short), ["1"]);
    memory.set_limit(1 << 30);
    assert_eq!(client.rows(&in_list), ["1"]);
    assert_eq!(planning(), Some(("parsing and planning", 0)));
}
