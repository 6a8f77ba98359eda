//! What a client may get wrong, on purpose or by dying: a clear error, a connection that is usable afterwards, other
//! connections that notice nothing.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use std::net::Shutdown;
use std::time::{Duration, Instant};

use client::Server;
use client::wire::{Wire, message, query};
use eris_server::protocol::signal::STRANGERS_MAX;

/// A table of one row, and somebody in the middle of a transaction on it.
fn with_witness(server: &Server) -> Wire {
    let mut witness = Wire::start(server);
    witness.run("CREATE TABLE t (id int PRIMARY KEY, n smallint NOT NULL, name varchar(5), price numeric(6,2))");
    witness.run("INSERT INTO t VALUES (1, 1, 'one', 1.00)");
    witness.run("BEGIN");
    witness.run("INSERT INTO t VALUES (100, 1, NULL, NULL)");
    witness
}

/// The witness has noticed nothing, and nothing of what was done wrong is there.
fn assert_unharmed(server: &Server, mut witness: Wire) {
    assert_eq!(witness.run("SELECT count(*) FROM t").value(), "2");
    assert_eq!(witness.run("COMMIT").tags, ["COMMIT"]);
    assert_eq!(Wire::start(server).run("SELECT count(*) FROM t").value(), "2");
    drop(witness);
    server.wait_for_connections(0);
}

fn lines(ids: std::ops::Range<u32>, line: impl Fn(u32) -> String) -> String {
    ids.map(line).collect::<Vec<_>>().concat()
}

#[test]
fn statements_that_are_wrong_say_how() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    let long = format!("SELECT {}", "(".repeat(10_000));
    let chain = format!("SELECT 1{}", " + 1".repeat(10_000));
    for (sql, sqlstate, says) in [
        // Malformed.
        ("SELEC 1", "42601", "SELEC"),
        ("SELECT * FROM", "42601", "end of input"),
        ("SELECT 'open", "42601", "unterminated"),
        (&*long, "54001", "too complex"),
        (&*chain, "54001", "too complex"),
        // Unknown names, with suggestions.
        ("SELECT * FROM tt", "42P01", "\"t\""),
        ("SELECT nam FROM t", "42703", "\"name\""),
        ("UPDATE t SET nn = 1", "42703", "\"n\""),
        ("INSERT INTO t (idd) VALUES (1)", "42703", "\"id\""),
        ("SELECT uper(name) FROM t", "42883", "upper"),
        ("SET statement_timeot = 1", "42704", ""),
        ("EXECUTE nothing", "26000", "nothing"),
        // Types.
        ("SELECT id FROM t WHERE name = 1 + true", "42883", "+"),
        ("INSERT INTO t VALUES ('x', 1)", "22P02", "integer"),
        ("SELECT cast('2024-02-30' AS date)", "22008", "2024-02-30"),
        // Values that do not fit.
        ("INSERT INTO t VALUES (2, 40000)", "22003", "smallint"),
        ("SELECT id + 2147483647 FROM t WHERE id = 1", "22003", "integer"),
        ("INSERT INTO t VALUES (2, 1, 'longer')", "22001", "varying(5)"),
        ("INSERT INTO t VALUES (2, 1, NULL, 12345.00)", "22003", "numeric"),
        ("SELECT 1 / (id - 1) FROM t WHERE id = 1", "22012", "division by zero"),
        // Constraints.
        ("INSERT INTO t VALUES (1, 1)", "23505", "(id)=(1)"),
        ("INSERT INTO t VALUES (2, NULL)", "23502", "\"n\""),
        ("UPDATE t SET n = NULL WHERE id = 1", "23502", "\"n\""),
        // What there is not, with what to do instead.
        ("CREATE TABLE u (a int REFERENCES t (id))", "0A000", "REFERENCES"),
        ("SELECT * FROM t FOR UPDATE", "0A000", "40001"),
    ] {
        let shown = &sql[..sql.len().min(60)];
        let reply = client.query(sql);
        assert_eq!(reply.sqlstate(), sqlstate, "{shown}: {reply:?}");
        let error = &reply.errors[0];
        let whole = format!("{} {} {}", error.message, error.detail, error.hint);
        assert!(whole.contains(says), "{shown}: {whole}");
        assert_eq!((reply.errors.len(), reply.status), (1, Some('I')), "{shown}");
        assert_eq!(client.run("SELECT 1").value(), "1", "after {shown}");
    }
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    client.send(&message(b'Q', b"SELECT '\xff\xfe'\0"));
    assert_eq!(client.until_ready().sqlstate(), "22021");
    client.send(&message(b'Q', b"SELECT 'a\0b'\0"));
    assert!(["08P01", "22021"].contains(&client.until_ready().sqlstate()), "a zero ends a text");
    let reply = client.copy("COPY t (id, n, name) FROM STDIN WITH (FORMAT csv)", b"7,1,ok\n8,1,\xc3\x28\n");
    assert_eq!(reply.sqlstate(), "22021", "{reply:?}");
    assert!(reply.errors[0].context.contains("line 2"), "{reply:?}");
    assert_eq!(client.run("SELECT 'ä'").value(), "ä");
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn bad_rows_of_a_copy_are_named_and_nothing_of_it_stays() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    let good = lines(1_000..3_000, |id| format!("{id},1,x,1.5\n"));
    for (bad, sqlstate, place) in [
        ("x,1,a,1\n", "22P02", "line 2001, column id: \"x\""),
        ("1,1,a,1\n", "23505", ""),
        ("9,,a,1\n", "23502", "line 2001"),
        ("9,70000,a,1\n", "22003", "line 2001, column n: \"70000\""),
        ("9,1,too long,1\n", "22001", "line 2001, column name: \"too long\""),
        ("9,1,a,99999\n", "22003", "line 2001, column price: \"99999\""),
        ("9,1,a\n", "22P04", "line 2001"),
        ("9,1,a,1,more\n", "22P04", "line 2001"),
        ("9,1,\"open,1\n", "22P04", "line 2001"),
    ] {
        let data = format!("{good}{bad}");
        let reply = client.copy("COPY t FROM STDIN WITH (FORMAT csv)", data.as_bytes());
        assert_eq!(reply.sqlstate(), sqlstate, "{bad}: {reply:?}");
        assert!(reply.errors[0].context.contains(place), "{bad}: {reply:?}");
        assert_eq!(reply.status, Some('I'));
        assert_eq!(client.run("SELECT count(*) FROM t").value(), "1", "after {bad}");
    }
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn garbage_bytes_end_a_connection_with_an_error() {
    let server = Server::start();
    let witness = with_witness(&server);
    for garbage in [&b"GET / HTTP/1.1\r\nHost: eris\r\n\r\n"[..], &[0xff; 5_000], &[0; 64], b"\x16\x03\x01\x02\0\x01"] {
        let mut stranger = Wire::silent(&server);
        stranger.try_send(garbage);
        stranger.stream.shutdown(Shutdown::Write).unwrap();
        let reply = stranger.until_ready();
        assert_eq!(reply.status, None, "a stranger is not served");
    }
    for garbage in [&vec![0xff; 70_000][..], b"\x99\0\0\0\x04", b"\0\0\0\0\0\0\0\0"] {
        let mut client = Wire::start(&server);
        client.run("BEGIN");
        client.run("UPDATE t SET n = 2 WHERE id = 1");
        client.try_send(garbage);
        let reply = client.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("08P01", None), "{reply:?}");
        // What it had locked is free again.
        let mut next = Wire::start(&server);
        assert_eq!(next.run("SELECT n FROM t WHERE id = 1").value(), "1");
        next.run("UPDATE t SET n = 1 WHERE id = 1");
    }
    assert_unharmed(&server, witness);
}

#[test]
fn messages_whose_length_is_wrong_end_a_connection_with_an_error() {
    let server = Server::start();
    let witness = with_witness(&server);
    let used = server.memory_used();
    // Too short to be, longer than any message may be, negative.
    for length in [0_u32, 3, (1 << 30) + 1, i32::MAX as u32, u32::MAX] {
        let mut client = Wire::start(&server);
        client.try_send(&[b"Q", &length.to_be_bytes()[..], b"SELECT 1\0"].concat());
        let reply = client.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("08P01", None), "length {length}: {reply:?}");
    }
    // Bodies that end before they should, or go on after.
    let mut client = Wire::start(&server);
    for body in
        [&b"B\0\0\0\x08\0\0\0\x05"[..], b"P\0\0\0\x06x\0", b"D\0\0\0\x05S", b"E\0\0\0\x08\0\0\0\x01", b"C\0\0\0\x04"]
    {
        client.send(&[body, b"S\0\0\0\x04"].concat());
        let reply = client.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("08P01", Some('I')), "{body:?}: {reply:?}");
        assert_eq!(client.run("SELECT 1").value(), "1");
    }
    drop(client);
    server.wait_for_memory(used);
    assert_unharmed(&server, witness);
}

/// A client that goes without a word after it sent `bytes`.
fn vanish(server: &Server, prepare: &[&str], bytes: &[u8]) {
    // The client before is gone as well: otherwise it may be counted in the place of this one.
    server.wait_for_connections(1);
    let mut client = Wire::start(server);
    for sql in prepare {
        client.run(sql);
    }
    client.send(bytes);
    drop(client);
    server.wait_for_connections(1);
}

#[test]
fn a_client_that_vanishes_leaves_nothing_behind() {
    let server = Server::start();
    let witness = with_witness(&server);
    let used = server.memory_used();
    let row = b"d\0\0\0\x0a7,1,a\n";
    let copy = query("COPY t (id, n, name) FROM STDIN WITH (FORMAT csv)");
    let cases: [(&str, &[&str], Vec<u8>); 7] = [
        ("before it introduced itself", &[], Vec::new()),
        ("in the middle of a message", &[], b"Q\0\0\0\x20SELECT".to_vec()),
        ("in the middle of a message inside a transaction", &["BEGIN", "UPDATE t SET n = 2"], b"Q\0\0".to_vec()),
        ("inside a transaction", &["BEGIN", "UPDATE t SET n = 2", "INSERT INTO t VALUES (7, 1)"], Vec::new()),
        ("in the middle of a COPY", &[], [&copy[..], row, row].concat()),
        ("in the middle of a row of a COPY", &["BEGIN"], [&copy[..], row, b"d\0\0\0\xff7,"].concat()),
        ("while its statement runs", &["BEGIN", "UPDATE t SET n = 2"], query("SELECT pg_sleep(100)")),
    ];
    for (when, prepare, bytes) in cases {
        let started = Instant::now();
        vanish(&server, prepare, &bytes);
        assert!(started.elapsed() < Duration::from_secs(20), "{when}: its statement ends with it");
        let mut next = Wire::start(&server);
        assert_eq!(next.run("SELECT count(*) FROM t WHERE n = 1").value(), "1", "{when}: rolled back");
        // No lock is left: neither on the row nor on the key.
        next.run("UPDATE t SET n = 1 WHERE id = 1");
        next.run("INSERT INTO t VALUES (7, 1)");
        next.run("DELETE FROM t WHERE id = 7");
    }
    // More than may wait at one time.
    let mut half_open: Vec<Wire> = (0..STRANGERS_MAX + 50).map(|_| Wire::silent(&server)).collect();
    for client in &mut half_open[STRANGERS_MAX..] {
        client.send(b"\0\0\0");
    }
    let gave_way = half_open[0].until_ready();
    assert_eq!((gave_way.sqlstate(), gave_way.status), ("53300", None), "{gave_way:?}");
    assert_eq!(Wire::start(&server).run("SELECT 1").value(), "1", "the silent are in nobody's way");
    drop(half_open);
    server.wait_for_connections(1);
    server.wait_for_memory(used + (64 << 10));
    assert_unharmed(&server, witness);
}

/// Joins of more pairs than anyone lives to see, on all workers: inside of partitions, in tasks over groups that are
/// the larger side, with rows that nobody fetches. Everybody else is served, and each can be cancelled.
#[test]
fn joins_without_end_leave_room_for_others() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE many (id int PRIMARY KEY, n int) WITH (partitions = 4)");
    client.run("CREATE TABLE few (id int PRIMARY KEY, n int)");
    let data = |rows| lines(0..rows, |id| format!("{id},{}\n", id % 1_000));
    client.copy("COPY many FROM STDIN WITH (FORMAT csv)", data(30_000).as_bytes());
    client.copy("COPY few FROM STDIN WITH (FORMAT csv)", data(20_000).as_bytes());
    let used = server.memory_used();
    for sql in [
        "SELECT count(*) FROM many a, many b, many c WHERE a.n + b.n < c.n",
        "SELECT count(*) FROM many a, many b, many c WHERE a.n * b.n = c.n - 3000",
        "SELECT count(*) FROM (SELECT id, max(n) AS n FROM many GROUP BY id) a, few b, few c WHERE a.n + b.n < c.n",
        "SELECT count(*) FROM many a LEFT JOIN many b ON a.n < b.n LEFT JOIN many c ON b.n < c.n",
        "SELECT count(*) FROM many a JOIN many b ON a.n = b.n JOIN many c ON a.n = c.n \
         JOIN many d ON a.n = d.n JOIN many e ON a.n = e.n",
        "SELECT a.n FROM many a, many b, many c",
    ] {
        let mut endless = [Wire::start(&server), Wire::start(&server)];
        for wire in &mut endless {
            wire.send(&query(sql));
        }
        std::thread::sleep(Duration::from_millis(200));
        for round in 0..20 {
            assert_eq!(client.run("SELECT count(*) FROM many").value(), "30000", "{sql}");
            client.run(&format!("UPDATE many SET n = n WHERE id = {round}"));
        }
        assert_eq!(Wire::start(&server).run("SELECT 1").value(), "1", "{sql}");
        for mut wire in endless {
            wire.cancel();
            let reply = wire.until_ready();
            assert_eq!((reply.sqlstate(), reply.status), ("57014", Some('I')), "{sql}: {:?}", reply.errors);
        }
        server.wait_for_memory(used + (256 << 10));
    }
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn a_cancelled_statement_is_over_and_its_connection_usable() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE many (id int PRIMARY KEY, n int)");
    let data = lines(0..30_000, |id| format!("{id},{}\n", id % 1_000));
    client.copy("COPY many FROM STDIN WITH (FORMAT csv)", data.as_bytes());
    let used = server.memory_used();
    let endless = "SELECT count(*) FROM many a, many b WHERE a.n + b.n < 0";
    for (sql, wait_ms) in [("SELECT pg_sleep(100)", 100), (endless, 300), ("COPY many FROM STDIN", 100)] {
        client.send(&query(sql));
        std::thread::sleep(Duration::from_millis(wait_ms));
        let started = Instant::now();
        client.cancel();
        let reply = client.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("57014", Some('I')), "{sql}: {reply:?}");
        assert!(started.elapsed() < Duration::from_secs(10), "{sql}: {:?}", started.elapsed());
        assert_eq!(client.run("SELECT count(*) FROM many").value(), "30000");
    }
    // Inside a block the block fails, as after any error.
    client.run("BEGIN");
    client.run("UPDATE many SET n = 0 WHERE id = 1");
    client.send(&query("SELECT pg_sleep(100)"));
    std::thread::sleep(Duration::from_millis(100));
    client.cancel();
    assert_eq!(client.until_ready().status, Some('E'));
    assert_eq!(client.query("SELECT 1").sqlstate(), "25P02");
    client.run("ROLLBACK");
    // A cancel that comes too late hits nothing.
    client.cancel();
    assert_eq!(client.run("SELECT n FROM many WHERE id = 1").value(), "1");
    server.wait_for_memory(used + (64 << 10));
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn a_text_that_is_too_long_is_refused_by_its_header() {
    let server = Server::start();
    let witness = with_witness(&server);
    let used = server.memory_used();
    let mut client = Wire::start(&server);
    // A hundred megabytes are announced and not sent: the answer comes all the same.
    let bytes = 100_u32 << 20;
    client.send(&[b"Q", &(bytes + 5).to_be_bytes()[..]].concat());
    let reply = client.until_ready();
    assert_eq!((reply.sqlstate(), reply.status), ("54000", Some('I')), "{:?}", reply.errors);
    assert!(reply.errors[0].hint.contains("max_text_bytes"), "{:?}", reply.errors);
    // What is sent of it then is skipped, and is held by nobody.
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        client.send(&piece);
        assert!(server.memory_used() < used + (8 << 20), "{}", server.memory_used());
    }
    client.send(b"\0");
    assert_eq!(client.run("SELECT 1").value(), "1");
    // The bound is the session's own.
    client.run("SET max_text_bytes = 2000");
    assert_eq!(client.query(&format!("SELECT '{}'", "x".repeat(3_000))).sqlstate(), "54000");
    assert_eq!(client.query("SET max_text_bytes = '1TB'").sqlstate(), "22023");
    client.run("RESET max_text_bytes");
    assert_eq!(client.run("SHOW max_text_bytes").value(), "64MB");
    drop(client);
    assert_unharmed(&server, witness);
}

#[test]
fn texts_of_many_statements_run_one_by_one_or_not_at_all() {
    let server = Server::start();
    let witness = with_witness(&server);
    let mut client = Wire::start(&server);
    let used = server.memory_used();
    let many = format!("INSERT INTO t VALUES (7, 1);{}", "SELECT 1;".repeat(1_000_000));
    assert_eq!(client.query(&many).sqlstate(), "54000", "a million statements");
    // A mistake at the end keeps the first from running.
    let wrong = format!("INSERT INTO t VALUES (7, 1);COMMIT;{}SELEC 1", "SELECT 1;".repeat(100));
    let reply = client.query(&wrong);
    assert_eq!((reply.sqlstate(), reply.tags.len()), ("42601", 0), "{:?}", reply.errors);
    // Later statements see what earlier ones made; all are one transaction.
    let reply = client.query("CREATE TABLE u (a int);INSERT INTO u VALUES (1);SELECT a FROM u;SELECT nothing FROM u");
    assert_eq!((reply.sqlstate(), reply.tags.len()), ("42703", 3), "{:?}", reply.errors);
    assert_eq!(client.query("SELECT a FROM u").sqlstate(), "42P01");
    let reply = client.run(&"SELECT 1;".repeat(2_000));
    assert_eq!(reply.tags.len(), 2_000);
    assert_eq!(client.run("SELECT count(*) FROM t WHERE id = 7").value(), "0");
    drop(client);
    server.wait_for_memory(used);
    assert_unharmed(&server, witness);
}

/// What a block that failed has built is gone, though its client says nothing more.
#[test]
fn an_index_of_a_block_that_failed_keeps_nobody_out() {
    let server = Server::start();
    let (mut failed, mut other) = (Wire::start(&server), Wire::start(&server));
    other.run("CREATE TABLE t (n int, id int, PRIMARY KEY (n, id))");
    other.run("INSERT INTO t VALUES (1, 1)");
    for round in 0..20 {
        failed.run("BEGIN");
        failed.run("CREATE UNIQUE INDEX u ON t (n)");
        assert_eq!(failed.query("SELEC").sqlstate(), "42601");
        other.run(&format!("INSERT INTO t VALUES (1, {})", round + 2));
        other.run("CREATE INDEX v ON t (n)");
        other.run("DROP INDEX v");
        other.run(&format!("DELETE FROM t WHERE id = {}", round + 2));
        failed.run("ROLLBACK");
    }
}
