//! What statements hold: under the limit, given back, and no longer than it is needed.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_engine::EngineOptions;
use eris_sql::DatabaseOptions;
use support::Instance;

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
