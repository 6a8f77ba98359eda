//! What SQL defines is there again after the server was killed, and is enforced: from the log alone, from a checkpoint,
//! and from a checkpoint with a log behind it.
//!
//! Whatever else the dialect comes to define belongs here (`crates/sql/tests/refusals.rs` lists what it refuses).

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;

use eris_workloads::connection::SqlConnection;
use eris_workloads::postgres::PostgresConnection;
use support::{Place, Server};

/// A server and a client of it.
struct Served {
    connection: PostgresConnection,
    _server: Server,
}

impl Served {
    fn start(directory: &str) -> Served {
        let server = Server::start(directory);
        Served { connection: server.connect(), _server: server }
    }

    fn ok(&mut self, sql: &str) -> Vec<String> {
        let answer = self.connection.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let joined = |row: &Vec<_>| row.iter().map(ToString::to_string).collect::<Vec<String>>().join("|");
        answer.rows.iter().map(joined).collect()
    }

    fn state(&mut self, sql: &str) -> String {
        self.connection.execute(sql, &[]).expect_err(sql).sqlstate
    }
}

const DEFINED: [&str; 17] = [
    "CREATE TABLE goods (id int PRIMARY KEY, name varchar(10) NOT NULL DEFAULT 'none', price numeric(7,2) DEFAULT 1.5, \
     made date DEFAULT '2024-02-29', sold boolean NOT NULL DEFAULT false, seven int DEFAULT 1 + 2 * 3, \
     owner text DEFAULT current_user, at timestamp DEFAULT now())",
    "CREATE TABLE pairs (a int, b int, n int, CONSTRAINT pairs_key PRIMARY KEY (a, b))",
    "CREATE TABLE once (a int UNIQUE, b int)",
    "CREATE TABLE heap (a int, b text)",
    "CREATE TABLE stored (id int PRIMARY KEY, t text) WITH (layout = row, partitions = 3, segment_rows = 8)",
    "CREATE TABLE dropped (id int PRIMARY KEY)",
    "CREATE INDEX goods_price ON goods (price)",
    "CREATE UNIQUE INDEX pairs_n ON pairs (a, n)",
    "CREATE INDEX goods_made ON goods (made)",
    "DROP INDEX goods_made",
    "DROP TABLE dropped",
    "INSERT INTO goods (id, at) VALUES (1, '2024-02-29 13:14:15'), (2, NULL)",
    "INSERT INTO pairs VALUES (1, 1, 1), (1, 2, 2)",
    "INSERT INTO once VALUES (1, 1), (NULL, 2), (NULL, 3)",
    "INSERT INTO heap VALUES (7, 'gone')",
    "TRUNCATE heap",
    "INSERT INTO heap VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
];

/// What clients can find out about definitions and rows.
const PICTURE: [&str; 8] = [
    "SELECT table_name, column_name, column_default, is_nullable, data_type, character_maximum_length, \
     numeric_precision, numeric_scale FROM information_schema.columns ORDER BY table_name, ordinal_position",
    "SELECT t.relname, c.relname, i.indisprimary, i.indisunique, pg_get_indexdef(i.indexrelid), \
     pg_get_constraintdef(o.oid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
     JOIN pg_class t ON t.oid = i.indrelid LEFT JOIN pg_constraint o ON o.conindid = i.indexrelid ORDER BY 1, 2",
    "SELECT count(*) FROM eris.partitions WHERE NOT system",
    "SELECT * FROM goods ORDER BY id",
    "SELECT * FROM pairs ORDER BY a, b",
    "SELECT * FROM once ORDER BY b",
    "SELECT * FROM heap ORDER BY a",
    "SELECT * FROM stored ORDER BY id",
];

fn picture(server: &mut Served) -> Vec<String> {
    PICTURE.iter().flat_map(|query| std::iter::once((*query).to_owned()).chain(server.ok(query))).collect()
}

/// What definitions refuse.
const REFUSED: [(&str, &str); 9] = [
    ("INSERT INTO goods (id) VALUES (1)", "23505"),
    ("INSERT INTO goods (id, name) VALUES (99, NULL)", "23502"),
    ("INSERT INTO goods (id, name) VALUES (99, 'more than ten')", "22001"),
    ("INSERT INTO goods (id, price) VALUES (99, 100000)", "22003"),
    ("INSERT INTO pairs VALUES (1, 1, 9)", "23505"),
    ("INSERT INTO pairs VALUES (1, 9, 1)", "23505"),
    ("INSERT INTO once VALUES (1, 9)", "23505"),
    ("CREATE TABLE pairs_n (id int)", "42P07"),
    ("SELECT * FROM dropped", "42P01"),
];

/// Definitions refuse what they should, and give what they should.
fn check(server: &mut Served, when: &str) {
    for (sql, state) in REFUSED {
        assert_eq!(server.state(sql), state, "{when}: {sql}");
    }
    server.ok("INSERT INTO goods (id) VALUES (100)");
    let made = server.ok("SELECT name, price, made, sold, seven, owner FROM goods WHERE id = 100 AND at IS NOT NULL");
    assert_eq!(made, ["none|1.50|2024-02-29|false|7|eris"], "{when}");
    assert_eq!(server.ok("SELECT id FROM goods WHERE price = 1.5 ORDER BY id"), ["1", "2", "100"], "{when}");
    server.ok("DELETE FROM goods WHERE id = 100");
}

#[test]
fn definitions_survive_kills_and_are_enforced() {
    let place = Place::new("restarts-definitions");
    let directory = place.path("db");
    let manifest = Path::new(&directory).join("checkpoint").join("manifest");
    let mut server = Served::start(&directory);
    for sql in DEFINED {
        server.ok(sql);
    }
    check(&mut server, "before");
    let before = picture(&mut server);
    drop(server);
    assert!(!manifest.exists(), "there is nothing but the log");
    let mut server = Served::start(&directory);
    assert_eq!(picture(&mut server), before);
    check(&mut server, "from the log");
    server.ok("CHECKPOINT");
    drop(server);
    assert!(manifest.exists());
    let mut server = Served::start(&directory);
    assert_eq!(picture(&mut server), before);
    check(&mut server, "from a checkpoint");
    for sql in [
        "CREATE TABLE later (a int UNIQUE DEFAULT 3)",
        "CREATE INDEX heap_b ON heap (b)",
        "DROP INDEX goods_price",
        "DROP TABLE stored",
        "CREATE TABLE stored (id int PRIMARY KEY, n int NOT NULL)",
        "INSERT INTO later VALUES (DEFAULT)",
    ] {
        server.ok(sql);
    }
    let changed = picture(&mut server);
    assert_ne!(changed, before);
    drop(server);
    let mut server = Served::start(&directory);
    assert_eq!(picture(&mut server), changed);
    check(&mut server, "from a checkpoint and a log behind it");
    assert_eq!(server.state("INSERT INTO later VALUES (DEFAULT)"), "23505");
    assert_eq!(server.state("INSERT INTO stored VALUES (1, NULL)"), "23502");
}
