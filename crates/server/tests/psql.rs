//! Recorded psql sessions: what is typed, and what a PostgreSQL user expects to read.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use client::{Server, installed, texts};

fn has_psql() -> bool {
    installed("psql", &["--version"], "psql")
}

/// Feeds psql a script; returns what it printed, errors among the rest where they came up: both go into one pipe.
fn session(server: &Server, script: &str) -> String {
    let (mut printed, writer) = std::io::pipe().unwrap();
    let mut psql = server.psql();
    psql.stdin(Stdio::piped()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = psql.spawn().unwrap();
    // It has the pipe's ends for writing, too.
    drop(psql);
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn tables_rows_nulls_and_unicode() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let (output, errors) = texts(
        &server
            .psql()
            .args(["--tuples-only", "--no-align", "--command"])
            .arg(
                "CREATE TABLE book (id int PRIMARY KEY, title varchar(40) NOT NULL, price numeric(8,2), sold date);
                 INSERT INTO book VALUES (1, 'Grüße, 世界 🎈', 12.50, '2024-02-29'), (2, 'It''s', NULL, NULL);
                 UPDATE book SET price = price + 1 WHERE id = 1;",
            )
            .args(["--command", "SELECT * FROM book ORDER BY id", "--command"])
            .arg("SELECT count(*), sum(price), min(sold) FROM book")
            .args(["--command", "DELETE FROM book WHERE price IS NULL", "--command", "SELECT id FROM book"])
            .output()
            .unwrap(),
    );
    assert_eq!(errors, "");
    assert_eq!(output, "1|Grüße, 世界 🎈|13.50|2024-02-29\n2|It's||\n2|13.50|2024-02-29\n1\n");
}

#[test]
fn aligned_output_has_names_and_types() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let printed = session(&server, "SELECT 1 AS one, 'x' AS text, NULL AS nothing;\n");
    assert_eq!(printed, " one | text | nothing \n-----+------+---------\n   1 | x    | \n(1 row)\n\n");
}

#[test]
fn errors_say_where_and_leave_the_session_usable() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let script = "\\set VERBOSITY verbose
CREATE TABLE t (id int PRIMARY KEY, n int);
SELECT nope FROM t;
SELEC 1;
INSERT INTO t VALUES (1, 1), (1, 2);
SELECT 1 / 0;
INSERT INTO t VALUES (1, 2147483647);
SELECT n + 1 FROM t;
INSERT INTO t VALUES (1, 1);
SELECT * FROM missing;
SELECT 'still here' AS answer;
";
    let printed = session(&server, script);
    for sqlstate in ["42703", "42601", "23505", "22012", "22003", "42P01"] {
        assert!(printed.contains(&format!("ERROR:  {sqlstate}: ")), "{sqlstate} in:\n{printed}");
    }
    assert!(printed.contains("LINE 1: SELEC 1;"), "{printed}");
    assert!(printed.contains("still here"), "{printed}");
}

#[test]
fn transactions_commit_roll_back_and_fail_as_blocks() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let script = "\\pset tuples_only on
\\pset format unaligned
CREATE TABLE account (id int PRIMARY KEY, amount bigint NOT NULL);
BEGIN;
INSERT INTO account VALUES (1, 100), (2, 0);
COMMIT;
BEGIN;
UPDATE account SET amount = amount - 40 WHERE id = 1;
UPDATE account SET amount = amount + 40 WHERE id = 2;
SELECT 'inside', amount FROM account ORDER BY id;
ROLLBACK;
SELECT 'after rollback', amount FROM account ORDER BY id;
BEGIN;
UPDATE account SET amount = 1;
SELECT 1 / 0;
SELECT 'not run';
COMMIT;
SELECT 'after failure', amount FROM account ORDER BY id;
";
    let printed = session(&server, script);
    let expected = "inside|60\ninside|40\nafter rollback|100\nafter rollback|0\n\
                    ERROR:  division by zero\n\
                    ERROR:  current transaction is aborted, commands ignored until end of transaction block\n\
                    after failure|100\nafter failure|0\n";
    assert_eq!(printed, expected);
}

#[test]
fn several_statements_of_one_message_are_one_transaction() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let psql = |sql: &str| texts(&server.psql().args(["--tuples-only", "--no-align", "-c", sql]).output().unwrap());
    assert_eq!(psql("CREATE TABLE t (id int PRIMARY KEY)").1, "");
    assert!(psql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)").1.contains("duplicate key"));
    assert_eq!(psql("SELECT count(*) FROM t").0, "0\n");
    assert_eq!(psql("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)").1, "");
    assert_eq!(psql("SELECT count(*) FROM t").0, "2\n");
}

#[test]
fn copy_loads_good_rows_and_names_the_bad_one() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let script = "\\pset tuples_only on
\\pset format unaligned
CREATE TABLE t (id int PRIMARY KEY, name text, day date);
COPY t FROM STDIN WITH (FORMAT csv, HEADER true);
id,name,day
1,\"Müller, Anna\",2024-01-01
2,,
\\.
SELECT * FROM t ORDER BY id;
COPY t FROM STDIN WITH (FORMAT csv);
3,fine,2024-01-01
4,bad,not a date
5,fine,2024-01-01
\\.
SELECT count(*) FROM t;
";
    let printed = session(&server, script);
    // psql writes errors at once and rows when its buffer is full.
    assert!(printed.contains("1|Müller, Anna|2024-01-01\n2||\n"), "{printed}");
    assert!(printed.contains("not a date") && printed.contains("line 2"), "{printed}");
    assert!(printed.contains("\n2\n"), "the statement is atomic: {printed}");
}

#[test]
fn an_interrupt_cancels_the_statement_and_the_connection_stays() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let mut child = server
        .psql()
        .args(["--tuples-only", "--no-align", "-c", "SELECT pg_sleep(60)", "-c", "SELECT 'after'"])
        .spawn()
        .unwrap();
    server.wait_for_connections(1);
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let status = child.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "the statement was cancelled");
    assert!(!status.success());
    server.wait_for_connections(0);
    let output = server.psql().args(["-Atc", "SELECT 'after'"]).output().unwrap();
    assert_eq!(texts(&output).0, "after\n");
}

#[test]
fn clients_side_by_side_and_one_that_is_killed() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let run = |sql: &str| texts(&server.psql().args(["-Atc", sql]).output().unwrap());
    assert_eq!(run("CREATE TABLE t (id int PRIMARY KEY, n int)").1, "");
    let mut victim = server.psql();
    victim.stdin(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let typed = b"BEGIN;\nINSERT INTO t VALUES (1, 1);\nSELECT pg_sleep(60);\n";
    victim.stdin.as_mut().unwrap().write_all(typed).unwrap();
    server.wait_for_connections(1);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(run("SELECT count(*) FROM t").0, "0\n", "others see only what is committed");
    victim.kill().unwrap();
    victim.wait().unwrap();
    server.wait_for_connections(0);
    // The killed client's insert is rolled back: the key is free.
    let (_, errors) = run("INSERT INTO t VALUES (1, 2)");
    assert_eq!(errors, "");
    assert_eq!(run("SELECT n FROM t").0, "2\n");
}

#[test]
fn strangers_are_refused() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let refused = |option: &str| texts(&server.psql().args([option, "-c", "SELECT 1"]).output().unwrap()).1;
    assert!(refused("--username=root").contains("role \"root\" does not exist"));
    assert!(refused("--dbname=other").contains("database \"other\" does not exist"));
}

#[test]
fn backslash_commands_show_names() {
    if !has_psql() {
        return;
    }
    let server = Server::start();
    let script = "CREATE TABLE book (id int PRIMARY KEY, title varchar(40) NOT NULL DEFAULT 'untitled', \
                  price numeric(8,2), UNIQUE (id, title));
CREATE INDEX by_price ON book (price);
CREATE TABLE plain (a int);
\\dt
\\d book
\\d plain
\\di by*
\\l
\\dn pub*
";
    let printed = session(&server, script);
    // As PostgreSQL 15 and its psql print it.
    let expected = "       List of relations
 Schema | Name  | Type  | Owner
--------+-------+-------+-------
 public | book  | table | eris
 public | plain | table | eris
(2 rows)

                                  Table \"public.book\"
 Column |         Type          | Collation | Nullable |            Default
--------+-----------------------+-----------+----------+-------------------------------
 id     | integer               |           | not null |
 title  | character varying(40) |           | not null | 'untitled'::character varying
 price  | numeric(8,2)          |           |          |
Indexes:
    \"book_pkey\" PRIMARY KEY, btree (id)
    \"book_id_title_key\" UNIQUE CONSTRAINT, btree (id, title)
    \"by_price\" btree (price)

               Table \"public.plain\"
 Column |  Type   | Collation | Nullable | Default
--------+---------+-----------+----------+---------
 a      | integer |           |          |

             List of relations
 Schema |   Name   | Type  | Owner | Table
--------+----------+-------+-------+-------
 public | by_price | index | eris  | book
(1 row)
";
    for (printed, expected) in printed.lines().zip(expected.lines()) {
        assert_eq!(printed.trim_end(), expected.trim_end(), "in\n{printed}");
    }
    assert!(
        printed.contains(" eris | eris  | UTF8     | C       | C     |            | libc            |"),
        "{printed}"
    );
    assert!(printed.contains(" public | eris"), "{printed}");
    assert!(!printed.contains("ERROR"), "{printed}");
}
