//! The memory limit is reached: by INSERT, by COPY, by queries on either path. The statement fails with 53200 and says
//! what to do; the connection goes on; what was reserved is given back.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use std::time::{Duration, Instant};

use client::Server;
use client::wire::{Reply, Wire, message, query};
use eris_engine::EngineOptions;

const LIMIT: u64 = 48 << 20;
/// What connections may hold more or less than before.
const SLACK: u64 = 256 << 10;

fn server() -> Server {
    Server::with(EngineOptions { workers: 2, nodes: 1, memory_limit_bytes: LIMIT, ..EngineOptions::default() })
}

fn assert_refused(reply: &Reply, what: &str) {
    assert_eq!(reply.sqlstate(), "53200", "{what}: {reply:?}");
    assert!(reply.errors[0].hint.contains("memory"), "{what}: {reply:?}");
    assert!(reply.status.is_some(), "{what}: the connection goes on");
}

/// CSV of `rows` rows, each a number and a text that does not compress.
fn csv(rows: u64) -> String {
    let text = |id: u64| format!("{:x}", id.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(6);
    (0..rows).flat_map(|id| [id.to_string(), ",".to_owned(), text(id), "\n".to_owned()]).collect()
}

#[test]
fn inserts_beyond_the_limit_fail_and_their_memory_comes_back() {
    let server = server();
    let mut client = Wire::start(&server);
    let before = server.memory_used();
    for layout in ["row", "column", "mixed"] {
        client.run(&format!("CREATE TABLE t (id bigint PRIMARY KEY, name text) WITH (layout = {layout})"));
        let name = "x".repeat(100);
        let values: Vec<String> = (0..1_000).map(|id| format!("({id}, '{name}')")).collect();
        client.run(&format!("INSERT INTO t VALUES {}", values.join(", ")));
        let mut rows = 1_000;
        let refused = loop {
            let reply = client.query(&format!("INSERT INTO t SELECT id + {rows}, name FROM t"));
            if !reply.errors.is_empty() {
                break reply;
            }
            rows *= 2;
            assert!(rows < 10_000_000, "the limit is reached some time");
        };
        assert_refused(&refused, layout);
        assert_eq!(client.run("SELECT count(*) FROM t").value(), rows.to_string(), "the statement is atomic");
        // There is room again, at once or soon. In a block, the whole block is lost.
        client.run("BEGIN");
        let patience = Instant::now() + Duration::from_secs(20);
        while !client.query("INSERT INTO t VALUES (-1, 'x')").errors.is_empty() {
            assert!(Instant::now() < patience, "{} bytes stay reserved", server.memory_used());
            client.run("ROLLBACK");
            client.run("BEGIN");
        }
        // Rows that were sealed meanwhile take less, so more than once may fit now. Without the row of above.
        let refused = (1..100).find_map(|times| {
            let more = rows * times;
            let sql = format!("INSERT INTO t SELECT id + {more}, name FROM t WHERE id >= 0 AND id < {rows}");
            Some(client.query(&sql)).filter(|reply| !reply.errors.is_empty())
        });
        assert_refused(&refused.expect("the limit is reached some time"), layout);
        assert_eq!(client.query("SELECT 1").sqlstate(), "25P02");
        client.run("ROLLBACK");
        assert_eq!(client.run("SELECT count(*) FROM t WHERE id < 0").value(), "0");
        client.run("DROP TABLE t");
        server.wait_for_memory(before + SLACK);
    }
}

#[test]
fn a_copy_beyond_the_limit_fails_and_its_memory_comes_back() {
    let server = server();
    let mut client = Wire::start(&server);
    let before = server.memory_used();
    client.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    client.run("INSERT INTO t VALUES (-1, 'stays')");
    let with_row = server.memory_used();
    for _ in 0..2 {
        assert_refused(&client.copy("COPY t FROM STDIN WITH (FORMAT csv)", csv(1_200_000).as_bytes()), "COPY");
        assert_eq!(client.run("SELECT count(*) FROM t").value(), "1", "the statement is atomic");
        server.wait_for_memory(with_row + SLACK);
    }
    assert_eq!(client.copy("COPY t FROM STDIN WITH (FORMAT csv)", csv(10_000).as_bytes()).sqlstate(), "");
    assert_eq!(client.run("SELECT count(*) FROM t").value(), "10001");
    client.run("DROP TABLE t");
    server.wait_for_memory(before + SLACK);
}

/// A line that has not ended is reserved; another session's, for which there is no memory beside it, is refused.
#[test]
fn lines_that_do_not_end_are_reserved_and_refused() {
    const LINE: usize = 4 << 20;
    let server = server();
    let (mut waiting, mut other) = (Wire::start(&server), Wire::start(&server));
    waiting.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    let before = server.memory_used();
    waiting.send(&query("COPY t FROM STDIN WITH (FORMAT csv)"));
    waiting.send(&message(b'd', b"1,\"first line\nsecond "));
    for _ in 0..LINE / (32 << 10) {
        waiting.send(&message(b'd', &vec![b'x'; 32 << 10]));
    }
    let patience = Instant::now() + Duration::from_mins(1);
    while server.memory_used() < before + LINE as u64 / 2 {
        assert!(Instant::now() < patience, "{} bytes are reserved", server.memory_used() - before);
        std::thread::sleep(Duration::from_millis(1));
    }
    let endless = vec![b'x'; LIMIT as usize];
    for _ in 0..2 {
        let refused = other.copy("COPY t FROM STDIN", &endless);
        assert_refused(&refused, "COPY");
        assert_eq!(refused.errors[0].context, "COPY t, line 1");
        assert_eq!(other.run("SELECT count(*) FROM t").value(), "0", "the session goes on");
    }
    waiting.send(&message(b'd', b"\"\n"));
    waiting.send(&message(b'c', b""));
    let reply = waiting.until_ready();
    assert_eq!(reply.tags.last().map(String::as_str), Some("COPY 1"), "{reply:?}");
    let length = "first line\nsecond ".len() + LINE;
    assert_eq!(other.run("SELECT length(name) FROM t").value(), length.to_string());
    waiting.run("DROP TABLE t");
    server.wait_for_memory(before + SLACK);
}

/// A table of `rows` rows with an engine whose limit is changed afterwards.
fn loaded(rows: u64) -> (Server, Wire) {
    let server = Server::with(EngineOptions { workers: 2, nodes: 1, ..EngineOptions::default() });
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    assert_eq!(client.copy("COPY t FROM STDIN WITH (FORMAT csv)", csv(rows).as_bytes()).sqlstate(), "");
    (server, client)
}

/// Runs a query with more and more memory until it succeeds; who was refused on the way.
fn refusals(server: &Server, client: &mut Wire, sql: &str, rows: usize) -> Vec<String> {
    let used = server.memory_used();
    let mut refused = Vec::new();
    for step in 0.. {
        server.limit_memory(used + (16 << 10) + (step << 17) + ((step * step) << 14));
        let reply = client.query(sql);
        server.limit_memory(u64::MAX);
        if reply.errors.is_empty() {
            assert_eq!(reply.rows.len(), rows, "{sql}");
            break;
        }
        assert_refused(&reply, sql);
        refused.push(reply.errors[0].detail.clone());
        assert_eq!(client.run("SELECT 1").value(), "1");
        server.wait_for_memory(used + SLACK);
        assert!(step < 400, "some time there is enough: {:?}", reply.errors);
    }
    server.wait_for_memory(used + SLACK);
    refused
}

fn assert_path(client: &mut Wire, sql: &str, native: bool) {
    let plan = client.run(&format!("EXPLAIN {sql}")).rows;
    let fallback = plan.iter().flatten().flatten().any(|line| line.contains("[fallback]"));
    assert_eq!(fallback, !native, "{sql}: {plan:?}");
}

#[test]
fn a_native_aggregate_beyond_the_limit_fails() {
    let (server, mut client) = loaded(30_000);
    let sql = "SELECT name, count(*), max(name) FROM t GROUP BY name";
    assert_path(&mut client, sql, true);
    let refused = refusals(&server, &mut client, sql, 30_000);
    assert!(refused.iter().any(|detail| detail.contains("aggregate asked for")), "{refused:?}");
}

#[test]
fn a_native_aggregate_that_is_sorted_beyond_the_limit_fails() {
    let (server, mut client) = loaded(30_000);
    let sql = "SELECT name, count(*) FROM t GROUP BY name ORDER BY name DESC";
    assert_path(&mut client, sql, true);
    // Merging the groups takes more than sorting them: the sort alone is refused in the tests of the operators.
    let refused = refusals(&server, &mut client, sql, 30_000);
    assert!(refused.iter().any(|detail| detail.contains("aggregate asked for")), "{refused:?}");
}

#[test]
fn a_native_join_beyond_the_limit_fails() {
    let (server, mut client) = loaded(30_000);
    let sql = "SELECT a.id FROM t a, t b WHERE a.name = b.name AND a.id = b.id + 0 ORDER BY b.name";
    assert_path(&mut client, sql, true);
    let refused = refusals(&server, &mut client, sql, 30_000);
    assert!(refused.iter().any(|detail| detail.contains("join asked for")), "{refused:?}");
}

#[test]
fn a_fallback_query_beyond_the_limit_fails() {
    let (server, mut client) = loaded(30_000);
    let sql = "SELECT id, stddev(id) OVER (PARTITION BY name ORDER BY id) FROM t";
    assert_path(&mut client, sql, false);
    let refused = refusals(&server, &mut client, sql, 30_000);
    assert!(!refused.is_empty(), "{sql}");
}

#[test]
fn native_windows_beyond_the_limit_fail() {
    let (server, mut client) = loaded(30_000);
    let sql = "SELECT name, sum(id) OVER (PARTITION BY id % 7 ORDER BY id), lag(name) OVER (ORDER BY id) FROM t";
    assert_path(&mut client, sql, true);
    let refused = refusals(&server, &mut client, sql, 30_000);
    // Rows that do not fit go through files; a window without partitions has to fit.
    let consumers = ["sort asked for", "window asked for", "intermediate result asked for"];
    let by_window = |detail: &String| consumers.iter().any(|who| detail.contains(who));
    assert!(!refused.is_empty() && refused.iter().all(by_window), "{refused:?}");
}

#[test]
fn a_full_database_can_be_emptied() {
    for layout in ["row", "column"] {
        let server = server();
        let mut client = Wire::start(&server);
        let before = server.memory_used();
        client.run(&format!("CREATE TABLE t (id bigint PRIMARY KEY, name text) WITH (layout = {layout})"));
        let mut rows = 0;
        let mut piece = 1_000;
        while piece > 0 {
            let row = |id: u64| format!("({id}, '{id:x} is the name')");
            let values: Vec<String> = (rows..rows + piece).map(row).collect();
            if client.query(&format!("INSERT INTO t VALUES {}", values.join(", "))).errors.is_empty() {
                rows += piece;
            } else {
                piece /= 2;
            }
        }
        assert!(rows > 50_000, "{layout}: {rows} rows fill the memory");
        client.run("BEGIN");
        assert_eq!(client.run("DELETE FROM t WHERE id < 10000").tags, ["DELETE 10000"], "{layout}");
        client.run("ROLLBACK");
        let mut left = rows;
        while left > 0 {
            let delete = format!("DELETE FROM t WHERE id >= {}", left.saturating_sub(20_000));
            // What is kept for deletes may be used up by those before, until their rows are collected.
            let mut reply = client.query(&delete);
            for _ in 0..1_000 {
                if reply.errors.is_empty() {
                    break;
                }
                assert_refused(&reply, layout);
                std::thread::sleep(std::time::Duration::from_millis(10));
                reply = client.query(&delete);
            }
            assert_eq!(reply.tags, [format!("DELETE {}", left.min(20_000))], "{layout}");
            left = left.saturating_sub(20_000);
        }
        // The open segment stays.
        server.wait_for_memory(LIMIT / 2);
        client.run("INSERT INTO t VALUES (1, 'there is room')");
        client.run("DROP TABLE t");
        server.wait_for_memory(before + SLACK);
    }
}

#[test]
fn tables_of_a_full_database_are_dropped_and_truncated() {
    for command in ["TRUNCATE t", "DROP TABLE t", "BEGIN; DROP TABLE t; COMMIT"] {
        let (server, mut client) = loaded(30_000);
        let full = server.memory_used();
        server.limit_memory(full);
        assert_refused(&client.query("INSERT INTO t VALUES (-1, 'x')"), command);
        client.run(command);
        // What is dropped is freed once nobody reads it any more.
        server.wait_for_memory(full / 2);
        client.run("CREATE TABLE u (id bigint PRIMARY KEY)");
        client.run("INSERT INTO u VALUES (1)");
    }
}

#[test]
fn prepared_statements_without_end_are_refused() {
    let server = server();
    let mut client = Wire::start(&server);
    let before = server.memory_used();
    let text = format!("SELECT 1 AS {}", "x".repeat(5_000));
    let mut count = 0;
    let refused = loop {
        let reply = client.query(&format!("PREPARE p{count} AS {text}"));
        if !reply.errors.is_empty() {
            break reply;
        }
        count += 1;
        assert!(count < 1_000, "{} bytes are used", server.memory_used());
    };
    assert_eq!(refused.sqlstate(), "53200", "{refused:?}");
    assert!(count > 10, "{count}");
    client.run("DEALLOCATE ALL");
    server.wait_for_memory(before + SLACK);
    client.run(&format!("PREPARE p AS {text}"));
    assert_eq!(client.run("EXECUTE p").value(), "1");
}

/// A client prepares what empties a full database, and what tells it what fills it; as many as it likes it does not.
#[test]
fn a_few_statements_are_prepared_in_a_full_database() {
    let server = server();
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id bigint PRIMARY KEY)");
    client.run("INSERT INTO t VALUES (1), (2)");
    server.limit_memory(server.memory_used());
    for number in 0..6 {
        client.send(&message(b'P', format!("n{number}\0DELETE FROM t WHERE id = 1\0\0\0").as_bytes()));
        client.send(&message(b'S', b""));
        let named = client.until_ready();
        let prepared = client.query(&format!("PREPARE p{number} AS SELECT count(*) FROM t"));
        for reply in [named, prepared] {
            assert_eq!(reply.errors.is_empty(), number < 4, "{number}: {reply:?}");
            assert!(number < 4 || reply.sqlstate() == "53200", "{reply:?}");
        }
    }
    server.limit_memory(LIMIT);
    assert_eq!(client.run("EXECUTE p0").value(), "2");
}

/// A sorted result, of which a client takes nothing, does not stay in memory when others have little left.
#[test]
fn a_client_that_does_not_read_gives_others_its_memory() {
    const ROWS: u64 = 200_000;
    let options = EngineOptions { workers: 2, nodes: 1, memory_watched: false, ..EngineOptions::default() };
    let server = Server::with(options);
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    assert_eq!(client.copy("COPY t FROM STDIN WITH (FORMAT csv)", csv(ROWS).as_bytes()).sqlstate(), "");
    let sql = "SELECT id, name FROM t ORDER BY id % 1000, id";
    let before = server.memory_used();
    let mut slow = Wire::start(&server);
    slow.send(&query(sql));
    let patience = Instant::now() + Duration::from_mins(1);
    while server.memory_used() < before + (16 << 20) {
        assert!(Instant::now() < patience, "{} bytes are no result", server.memory_used() - before);
        std::thread::sleep(Duration::from_millis(1));
    }
    // What the sort worked with goes; then a sixth of the limit is left.
    std::thread::sleep(Duration::from_millis(500));
    server.limit_memory(server.memory_used() * 4 / 3);
    server.wait_for_memory(before + (4 << 20));
    assert_eq!(client.run("SELECT count(*) FROM t").value(), ROWS.to_string());
    let rows = slow.until_ready().rows;
    let ids = (0..1_000).flat_map(|part| (0..ROWS / 1_000).map(move |n| (n * 1_000 + part).to_string()));
    assert!(rows.iter().map(|row| row[0].clone().unwrap_or_default()).eq(ids), "{} rows", rows.len());
}

/// A value that a client does not read is in the buffer of its connection whole. It has no more than it needs, and is
/// given back with it.
#[test]
fn large_values_for_clients_that_do_not_read_are_reserved() {
    const BYTES: u64 = 20_000_000;
    let options = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes: 512 << 20,
        memory_watched: false,
        ..EngineOptions::default()
    };
    let server = Server::with(options);
    let mut slow: Vec<Wire> = (0..4).map(|_| Wire::start(&server)).collect();
    for client in &mut slow {
        client.send(&query(&format!("SELECT repeat('x', {BYTES})")));
    }
    let patience = Instant::now() + Duration::from_mins(1);
    while server.memory_of("reply") < 4 * BYTES {
        assert!(Instant::now() < patience, "{} bytes are reserved", server.memory_of("reply"));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(server.memory_of("reply") < 4 * (BYTES + 1_000), "{}", server.memory_of("reply"));
    for client in &mut slow {
        let reply = client.until_ready();
        assert_eq!(reply.value().len() as u64, BYTES);
    }
    // They are still connected.
    assert_eq!(server.memory_of("reply"), 0);
}
