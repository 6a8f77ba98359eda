//! Names as rows: a second database on the same engine finds every table as the first one left it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write;

use eris_platform::SeededRandom;
use eris_sql::DatabaseOptions;
use support::catalog::{NAMES, definition_of, picture, reopen};
use support::{Client, Instance};

fn instance() -> Instance {
    Instance::start(2, 1, DatabaseOptions::default())
}

/// Asserts that opening again changes nothing; returns a client of the database that was opened.
fn survives(instance: &mut Instance) -> Client {
    let before = picture(&mut instance.session());
    reopen(instance).unwrap();
    let mut client = instance.session();
    let after = picture(&mut client);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    client
}

/// Every type of a column, with defaults in every form.
const TYPES: [(&str, &[&str]); 22] = [
    ("boolean", &["true", "'off'", "NOT true", "1 < 2", "NULL"]),
    ("smallint", &["0", "-32768", "32767", "'7'", "'7'::smallint", "NULL"]),
    ("integer", &["7", "-7", "+7", "2 + 3 * 4", "'-2147483648'", "CAST('5' AS integer)", "length('äöü')", "1.5"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807", "1::bigint", "abs(-5)"]),
    ("real", &["1.5", "'NaN'", "'-Infinity'", "1e-38", "'3.4028235e38'", "0.1", "'-0'"]),
    ("double precision", &["0.1", "'NaN'", "'Infinity'", "5e-324", "1.7976931348623157e308", "1e0 / 3", "sqrt(2)"]),
    ("numeric", &["1.5", "-0.0000000001", "9999999999999999999999999999.9999999999", "1", "round(2.567, 2)"]),
    ("numeric(5,2)", &["1.005", "-999.99", "0", "'12.3'"]),
    ("numeric(38,0)", &["99999999999999999999999999999999999999", "-1"]),
    ("numeric(38,38)", &["0.5", "-0.00000000000000000000000000000000000001"]),
    ("numeric(3)", &["999"]),
    ("date", &["'2024-02-29'", "date '0001-01-01'", "'9999-12-31'", "current_date", "'2024-01-01'::date + 30"]),
    (
        "timestamp",
        &[
            "now()",
            "current_timestamp",
            "now() - interval '1 day'",
            "'2024-02-29 12:34:56.789012'",
            "timestamp '1969-12-31 23:59:59.999999'",
            "date_trunc('hour', now())",
        ],
    ),
    (
        "text",
        &[
            "''",
            "'it''s'",
            "E'tab\\tline\\nback\\\\slash'",
            "$$dollar's$$",
            "'NULL'",
            "'{\"a\": 1}'",
            "'\"quoted\" \\u0041 \u{1F600}'",
            "upper('x') || 'y'",
            "current_user",
            "coalesce(NULL, current_user, 'it''s')",
            "CASE WHEN now() < '2000-01-01' THEN E'a\\'b' ELSE 'c' END",
            "CAST(now() AS date)::text || E'\\'\\\\'",
        ],
    ),
    ("varchar", &["'x'", "current_database()"]),
    ("varchar(5)", &["'abcde'", "'abc  '", "'äöüßé'"]),
    ("char", &["'x'"]),
    ("char(5)", &["'ab'", "'ab   '", "''"]),
    ("bpchar", &["'ab  '"]),
    ("bytea", &["'\\x00ff'", "''", "'a\\\\b\\001'"]),
    ("float(24)", &["1"]),
    ("float", &["1"]),
];

#[test]
fn every_type_and_every_default_survives() {
    let mut instance = instance();
    let mut client = instance.session();
    let mut columns = "id int PRIMARY KEY".to_string();
    let mut count = 0;
    for (sql_type, defaults) in TYPES {
        write!(columns, ", c{count} {sql_type}, c{} {sql_type} NOT NULL DEFAULT {}", count + 1, defaults[0]).unwrap();
        count += 2;
        for default in defaults {
            write!(columns, ", c{count} {sql_type} DEFAULT {default}").unwrap();
            count += 1;
        }
    }
    client.ok(&format!("CREATE TABLE every ({columns})"));
    client.ok("INSERT INTO every (id) VALUES (1)");
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO every (id) VALUES (2)");
    let row = |client: &mut Client, id| {
        let answer = client.ok(&format!("SELECT * FROM every WHERE id = {id}"));
        (answer.columns, answer.rows.into_iter().next().unwrap())
    };
    let ((names, first), (_, second)) = (row(&mut client, 1), row(&mut client, 2));
    assert_eq!(names.len(), count + 1);
    let momentary = client.rows(
        "SELECT column_name FROM information_schema.columns \
         WHERE lower(column_default) ~ 'now\\(|current_timestamp|current_date'",
    );
    assert_eq!(momentary.len(), 8, "{momentary:?}");
    for ((name, before), after) in names.iter().zip(&first).zip(&second).skip(1) {
        if momentary.contains(name) {
            assert!(before.is_some() && after.is_some(), "{name}");
        } else {
            assert_eq!(before, after, "{name}");
        }
    }
    // Nulls are refused where they were before.
    assert_eq!(client.state("INSERT INTO every (id, c1) VALUES (3, NULL)"), "23502");
    assert_eq!(client.state("INSERT INTO every (id) VALUES (2)"), "23505");
    // The definition is the same text, made from what was read.
    let definition = definition_of(instance.database.engine(), "every");
    client.ok("CREATE INDEX later ON every (c0)");
    let with_index = definition_of(instance.database.engine(), "every");
    let (columns, _) = definition.split_once("\"indexes\"").unwrap();
    assert!(with_index.starts_with(columns), "{with_index}\n{columns}");
}

/// Values from all over their types, as defaults and back.
#[test]
fn values_survive_as_defaults() {
    let mut instance = instance();
    let mut random = SeededRandom::new(0xCA7A);
    let mut columns = "id int PRIMARY KEY".to_string();
    for number in 0..300 {
        let bits = random.next_u64();
        let (sql_type, value) = match number % 9 {
            0 => ("smallint", (bits as i16).to_string()),
            1 => ("integer", (bits as i32).to_string()),
            2 => ("bigint", (bits as i64).to_string()),
            3 => ("real", f32::from_bits(bits as u32).to_string()),
            4 => ("double precision", f64::from_bits(bits).to_string()),
            5 => ("numeric(38,12)", format!("{}.{:012}", bits as i64, bits % 1_000_000_000_000)),
            6 => ("date", format!("{:04}-{:02}-{:02}", 1 + bits % 9999, 1 + bits % 12, 1 + bits % 28)),
            7 => ("bytea", format!("\\x{bits:016x}")),
            _ => ("text", bits.to_le_bytes().map(|byte| char::from(byte % 127 + 1)).iter().collect()),
        };
        write!(columns, ", c{number} {sql_type} DEFAULT '{}'", value.replace('\'', "''")).unwrap();
    }
    let mut client = instance.session();
    client.ok(&format!("CREATE TABLE t ({columns})"));
    client.ok("INSERT INTO t (id) VALUES (1)");
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO t (id) VALUES (2)");
    let rows = client.ok("SELECT * FROM t ORDER BY id").rows;
    assert_eq!(rows[0][1..], rows[1][1..]);
}

#[test]
fn what_ddl_left_behind_survives() {
    let mut instance = instance();
    let mut client = instance.session();
    for sql in [
        "CREATE TABLE single (id int PRIMARY KEY, a text)",
        "CREATE TABLE pair (a int, b text, c int, CONSTRAINT \"Key of pair\" PRIMARY KEY (b, a), UNIQUE (b, c))",
        "CREATE TABLE heap (a int, b int)",
        "CREATE TABLE \"Mixed Case\" (\"Id\" int PRIMARY KEY, \"sélect\" text, \"a\"\"b\" int)",
        "CREATE TABLE 表 (键 int PRIMARY KEY, \"\u{1F600}\" text DEFAULT '\u{1F600}')",
        "CREATE TABLE rows_only (id int PRIMARY KEY, t text) WITH (layout = row, partitions = 3, segment_rows = 8)",
        "CREATE TABLE columns_only (id int) WITH (layout = column, partitions = 2)",
        "CREATE INDEX ON single (a)",
        "CREATE UNIQUE INDEX unique_c ON pair (c, b)",
        "CREATE INDEX gone ON pair (a)",
        "CREATE INDEX \"Over 键\" ON 表 (\"\u{1F600}\", 键)",
        "DROP INDEX gone",
        "CREATE INDEX after_gone ON pair (a, c)",
        "CREATE TABLE emptied (id int PRIMARY KEY, n int DEFAULT 5)",
        "CREATE INDEX emptied_n ON emptied (n)",
        "INSERT INTO emptied VALUES (1, 1)",
        "TRUNCATE emptied",
        "INSERT INTO emptied (id) VALUES (2)",
        "CREATE TABLE dropped (id int)",
        "DROP TABLE dropped",
        // One name, several tables.
        "CREATE TABLE again (a int)",
        "DROP TABLE again",
        "CREATE TABLE again (b text, a int PRIMARY KEY)",
        // In blocks.
        "BEGIN",
        "CREATE TABLE together (id int PRIMARY KEY, n int)",
        "INSERT INTO together VALUES (1, 10), (2, 20)",
        "CREATE INDEX together_n ON together (n)",
        "COMMIT",
        "BEGIN",
        "CREATE TABLE rolled_back (id int)",
        "DROP TABLE single",
        "CREATE INDEX rolled_back_n ON together (id, n)",
        "TRUNCATE together",
        "ROLLBACK",
        "BEGIN",
        "CREATE TABLE short_lived (id int)",
        "DROP TABLE short_lived",
        "DROP TABLE again",
        "CREATE TABLE again (only int)",
        "TRUNCATE again",
        "INSERT INTO again VALUES (3)",
        "COMMIT",
        // A text of several statements is one transaction.
        "CREATE TABLE in_text (id int PRIMARY KEY); INSERT INTO in_text VALUES (1); CREATE INDEX ON in_text (id)",
    ] {
        client.ok(sql);
    }
    assert_eq!(client.state("CREATE TABLE failed (id int); INSERT INTO failed VALUES (1 / 0)"), "22012");
    for sql in [
        "INSERT INTO single VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO pair VALUES (1, 'x', 1), (2, 'x', 2)",
        "INSERT INTO heap VALUES (1, 1), (1, 1)",
        "INSERT INTO \"Mixed Case\" VALUES (1, 'é', 2)",
        "INSERT INTO 表 (键) VALUES (1)",
        "INSERT INTO rows_only SELECT a.id * 10 + b.id, 'x' FROM single a, single b",
        "INSERT INTO columns_only SELECT id FROM single",
    ] {
        client.ok(sql);
    }
    let plans = [
        "EXPLAIN SELECT * FROM single WHERE id = 1",
        "EXPLAIN SELECT * FROM single WHERE a = 'a'",
        "EXPLAIN SELECT * FROM pair WHERE b = 'x' AND a = 1",
        "EXPLAIN SELECT * FROM pair WHERE c = 1 AND b = 'x'",
        "EXPLAIN SELECT * FROM pair WHERE a = 1 AND c = 1",
        "EXPLAIN SELECT * FROM together WHERE n = 10",
        "EXPLAIN SELECT * FROM single JOIN together ON single.id = together.id WHERE n = 10",
        "EXPLAIN UPDATE together SET n = 1 WHERE id = 1",
    ];
    let before: Vec<_> = plans.iter().map(|plan| client.rows(plan)).collect();
    drop(client);
    for _ in 0..2 {
        let mut client = survives(&mut instance);
        for (plan, before) in plans.iter().zip(&before) {
            assert_eq!(client.rows(plan), *before, "{plan}");
        }
    }
    let mut client = instance.session();
    let tables = client.rows("SELECT table_name FROM information_schema.tables ORDER BY 1");
    let expected = [
        "Mixed Case",
        "again",
        "columns_only",
        "emptied",
        "heap",
        "in_text",
        "pair",
        "rows_only",
        "single",
        "together",
    ];
    assert_eq!(tables[..tables.len() - 1], expected);
    for (sql, state) in [
        ("INSERT INTO single VALUES (1, 'c')", "23505"),
        ("INSERT INTO pair VALUES (2, 'x', 7)", "23505"),
        ("INSERT INTO pair VALUES (7, 'x', 2)", "23505"),
        ("INSERT INTO pair VALUES (NULL, 'x', 9)", "23502"),
        ("CREATE TABLE single (a int)", "42P07"),
        ("CREATE INDEX single_pkey ON heap (a)", "42P07"),
        ("DROP INDEX pair_b_c_key", "2BP01"),
        ("DROP TABLE dropped", "42P01"),
    ] {
        assert_eq!(client.state(sql), state, "{sql}");
    }
    // And life goes on: what was there is changed, dropped, made anew.
    for sql in [
        "INSERT INTO emptied (id) VALUES (3)",
        "DROP INDEX unique_c",
        "CREATE INDEX unique_c ON pair (c)",
        "TRUNCATE pair",
        "INSERT INTO pair VALUES (1, 'x', 1)",
        "DROP TABLE single",
        "CREATE TABLE single (other int)",
        "DROP TABLE 表",
    ] {
        client.ok(sql);
    }
    drop(client);
    let mut client = survives(&mut instance);
    assert_eq!(client.rows("SELECT * FROM emptied ORDER BY id"), ["2|5", "3|5"]);
}

#[test]
fn the_widest_table_and_many_tables_survive() {
    let mut instance = instance();
    let mut client = instance.session();
    let columns: Vec<String> =
        (0..1_600).map(|number| format!("\"{}{number}\" varchar(99) DEFAULT 'ä{number}'", "ä".repeat(25))).collect();
    client.ok(&format!("CREATE TABLE wide ({}, PRIMARY KEY (\"{}7\"))", columns.join(", "), "ä".repeat(25)));
    client.ok(&format!("INSERT INTO wide (\"{}8\") VALUES ('x')", "ä".repeat(25)));
    for number in 0..200 {
        client.ok(&format!("CREATE TABLE t{number} (id int PRIMARY KEY, n int DEFAULT {number})"));
    }
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO t150 (id) VALUES (1)");
    assert_eq!(client.rows("SELECT n FROM t150"), ["150"]);
}

/// The catalog is no table of users: statements cannot name it, and the engine's views say what it is.
#[test]
fn the_catalog_shows_as_the_system_that_it_is() {
    let instance = instance();
    let mut client = instance.session();
    for query in NAMES.iter().filter(|query| !query.contains("pg_class")) {
        assert_eq!(client.rows(query), Vec::<String>::new(), "{query}");
    }
    assert_eq!(client.rows("SELECT relname FROM pg_class WHERE relkind <> 'v'"), Vec::<String>::new());
    client.ok("CREATE TABLE t (id int PRIMARY KEY)");
    client.ok("INSERT INTO t VALUES (1), (2)");
    for view in ["partitions", "segments"] {
        let sums = format!("SELECT system, count(*), sum(rows) FROM eris.{view} GROUP BY system ORDER BY system");
        let rows = client.rows(&sums);
        assert_eq!((rows.len(), &*rows[0]), (2, "f|1|2"), "{rows:?}");
    }
    assert_eq!(client.rows("SELECT DISTINCT container FROM eris.partitions WHERE system"), ["1"]);
}
