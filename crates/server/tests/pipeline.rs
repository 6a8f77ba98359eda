//! Statements between two Syncs are one transaction, as those of one text are: what drivers call pipeline mode.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use client::Server;
use client::wire::{Reply, Wire, message};

/// Parse, Bind and Execute of one statement without parameters.
fn extended(sql: &str) -> Vec<u8> {
    [
        message(b'P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat()),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'E', b"\0\0\0\0\0"),
    ]
    .concat()
}

/// Sends statements and one Sync, and reads up to its answer.
fn pipeline(client: &mut Wire, statements: &[&str]) -> Reply {
    let mut bytes: Vec<u8> = statements.iter().flat_map(|sql| extended(sql)).collect();
    bytes.extend(message(b'S', b""));
    client.send(&bytes);
    client.until_ready()
}

fn ids(client: &mut Wire) -> String {
    let rows = client.run("SELECT id FROM t ORDER BY id").rows;
    rows.into_iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>().join(" ")
}

fn server() -> (Server, Wire) {
    let server = Server::start();
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id int PRIMARY KEY)");
    (server, client)
}

#[test]
fn an_error_undoes_the_statements_before_it_and_skips_those_behind_it() {
    let (_server, mut client) = server();
    for bad in ["INSERT INTO t VALUES (1)", "SELECT 1 / 0", "SELECT nothing", "gibberish"] {
        let statements = ["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", bad, "INSERT INTO t VALUES (3)"];
        let reply = pipeline(&mut client, &statements);
        assert_eq!((reply.tags.len(), reply.errors.len(), reply.status), (2, 1, Some('I')), "{bad}: {reply:?}");
        assert_eq!(ids(&mut client), "", "{bad}");
    }
    let reply = pipeline(&mut client, &["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "SELECT * FROM t"]);
    assert_eq!((reply.rows.len(), reply.status), (2, Some('I')), "statements see what those before them did");
    assert_eq!(ids(&mut client), "1 2");
}

#[test]
fn others_see_it_at_sync_and_nothing_of_it_when_the_client_goes() {
    let (server, mut client) = server();
    let mut other = Wire::start(&server);
    client.send(&[extended("INSERT INTO t VALUES (1)"), message(b'H', b"")].concat());
    while client.until_message() != b'C' {}
    assert_eq!(ids(&mut other), "", "it may still be undone");
    client.send(&message(b'S', b""));
    assert_eq!(client.until_ready().status, Some('I'));
    assert_eq!(ids(&mut other), "1");
    client.send(&[extended("INSERT INTO t VALUES (2)"), message(b'H', b"")].concat());
    while client.until_message() != b'C' {}
    drop(client);
    server.wait_for_connections(1);
    assert_eq!(ids(&mut other), "1");
    other.run("INSERT INTO t VALUES (2)");
}

#[test]
fn lock_table_needs_a_block_or_statements_before_it() {
    let (_server, mut client) = server();
    for alone in [&["LOCK TABLE t"][..], &["LOCK TABLE t", "SELECT * FROM t"]] {
        let reply = pipeline(&mut client, alone);
        assert_eq!((reply.sqlstate(), reply.status), ("25P01", Some('I')), "{alone:?}: {reply:?}");
    }
    assert_eq!(client.query("LOCK TABLE t").sqlstate(), "25P01", "as in a text");
    for locks in [&["BEGIN", "LOCK TABLE t", "COMMIT"][..], &["SELECT * FROM t", "LOCK TABLE t"]] {
        let reply = pipeline(&mut client, locks);
        assert_eq!((reply.sqlstate(), reply.status), ("", Some('I')), "{locks:?}: {reply:?}");
    }
    for nothing in ["LOCK TABLE", "LOCK", "LOCK TABLE IN SHARE MODE"] {
        assert_eq!(pipeline(&mut client, &[nothing]).sqlstate(), "42601", "{nothing}");
        assert_eq!(client.query(nothing).sqlstate(), "42601", "{nothing}");
    }
}

#[test]
fn blocks_begin_and_end_among_other_statements() {
    let (_server, mut client) = server();
    let mut status = |statements: &[&str]| {
        let reply = pipeline(&mut client, statements);
        (reply.sqlstate().to_owned(), reply.status.unwrap(), ids_of(&mut client, reply.status))
    };
    let said = |sqlstate: &str, status, ids: &str| (sqlstate.to_owned(), status, ids.to_owned());
    // COMMIT and ROLLBACK end what has begun without BEGIN.
    let (one, two, three) = ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)");
    assert_eq!(status(&[one, "COMMIT", two, "SELECT 1 / 0"]), said("22012", 'I', "1"));
    assert_eq!(status(&[two, "ROLLBACK", three]), said("", 'I', "1 3"));
    // BEGIN takes along what was before it; Sync does not end a block.
    assert_eq!(status(&[two, "BEGIN", "DELETE FROM t WHERE id = 3"]), said("", 'T', ""));
    assert_eq!(status(&["SELECT 1 / 0", "SELECT 1"]), said("22012", 'E', ""));
    assert_eq!(status(&["SELECT 1"]), said("25P02", 'E', ""));
    assert_eq!(status(&["ROLLBACK", two]), said("", 'I', "1 2 3"));
    assert_eq!(status(&["BEGIN", "DELETE FROM t", "COMMIT", one, one]), said("23505", 'I', ""));
}

/// The rows, where looking at them changes nothing.
fn ids_of(client: &mut Wire, status: Option<char>) -> String {
    if status == Some('I') { ids(client) } else { String::new() }
}

#[test]
fn definitions_and_settings_belong_to_it() {
    let (_server, mut client) = server();
    let statements = ["CREATE TABLE u (id int)", "INSERT INTO u VALUES (1)", "SET TimeZone TO 'UTC'", "SELECT 1 / 0"];
    assert_eq!(pipeline(&mut client, &statements).sqlstate(), "22012");
    assert_eq!(client.query("SELECT * FROM u").sqlstate(), "42P01");
    assert_eq!(pipeline(&mut client, &["SET retries TO 7", "SELECT 1 / 0"]).sqlstate(), "22012");
    assert_ne!(client.run("SHOW retries").value(), "7");
    let statements = ["CREATE TABLE u (id int)", "INSERT INTO u VALUES (1)", "SET retries TO 7", "DROP TABLE t"];
    assert_eq!(pipeline(&mut client, &statements).errors.len(), 0);
    assert_eq!(client.run("SELECT * FROM u").rows.len(), 1);
    assert_eq!(client.run("SHOW retries").value(), "7");
    assert_eq!(client.query("SELECT * FROM t").sqlstate(), "42P01");
}

#[test]
fn a_copy_belongs_to_it() {
    let (_server, mut client) = server();
    let copy = |data: &[u8]| {
        [
            extended("INSERT INTO t VALUES (1)"),
            extended("COPY t FROM STDIN"),
            message(b'd', data),
            message(b'c', b""),
            extended("INSERT INTO t VALUES (5)"),
            message(b'S', b""),
        ]
        .concat()
    };
    client.send(&copy(b"2\nx\n"));
    assert_eq!(client.until_ready().sqlstate(), "22P02");
    assert_eq!(ids(&mut client), "");
    client.send(&copy(b"2\n3\n"));
    let reply = client.until_ready();
    assert_eq!(reply.tags, ["INSERT 0 1", "COPY data", "COPY 2", "INSERT 0 1"], "{reply:?}");
    assert_eq!(ids(&mut client), "1 2 3 5");
}

#[test]
fn a_conflict_of_the_first_statement_is_retried() {
    let (server, mut client) = server();
    client.run("INSERT INTO t VALUES (1)");
    let mut other = Wire::start(&server);
    other.run("BEGIN");
    other.run("DELETE FROM t");
    client.send(&[extended("DELETE FROM t"), message(b'S', b"")].concat());
    std::thread::sleep(std::time::Duration::from_millis(2));
    other.run("ROLLBACK");
    let reply = client.until_ready();
    assert_eq!(reply.tags, ["DELETE 1"], "{reply:?}");
}

#[test]
fn statements_of_one_text_are_one_transaction() {
    let (_server, mut client) = server();
    let reply = client.query("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT 1 / 0; SELECT 1");
    assert_eq!((reply.sqlstate(), reply.status), ("22012", Some('I')));
    assert_eq!(ids(&mut client), "");
    client.query("INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); SELECT 1 / 0");
    assert_eq!(ids(&mut client), "1");
    let reply = client.query("INSERT INTO t VALUES (2); BEGIN; INSERT INTO t VALUES (3)");
    assert_eq!(reply.status, Some('T'));
    client.run("ROLLBACK");
    assert_eq!(ids(&mut client), "1");
}

#[test]
fn an_error_among_rows_that_nobody_fetched_is_told_when_they_are() {
    const ROWS: usize = 50_000;
    let (_server, mut client) = server();
    client.run("CREATE TABLE many (id int PRIMARY KEY) WITH (partitions = 1, segment_rows = 1000)");
    let lines: Vec<String> = (1..=ROWS).map(|id| format!("{id}\n")).collect();
    client.copy("COPY many FROM STDIN", lines.concat().as_bytes());
    let execute = message(b'E', b"p\0\0\0\0\x01");
    let sync = message(b'S', b"");
    let opened = [
        message(b'P', format!("\0SELECT 1 / ({ROWS} - id) FROM many\0\0\0").as_bytes()),
        message(b'B', b"p\0\0\0\0\0\0\0\0"),
        execute.clone(),
        sync.clone(),
    ]
    .concat();
    for asked in [false, true] {
        client.run("BEGIN");
        client.send(&opened);
        let reply = client.until_ready();
        assert_eq!((reply.rows.len(), reply.status), (1, Some('T')), "{reply:?}");
        // The rest is read ahead, up to the division by zero.
        assert_eq!(client.query(&format!("INSERT INTO t VALUES ({})", usize::from(asked))).status, Some('T'));
        if asked {
            client.send(&[execute.clone(), sync.clone()].concat());
            let reply = client.until_ready();
            assert_eq!((reply.sqlstate(), reply.status), ("22012", Some('E')), "{reply:?}");
        }
        assert_eq!(client.query("COMMIT").tags, [if asked { "ROLLBACK" } else { "COMMIT" }]);
    }
    assert_eq!(ids(&mut client), "0");
}
