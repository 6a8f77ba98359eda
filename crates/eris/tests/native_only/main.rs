//! What has to run on ERIS's own operators, in a database that has no fallback lane: TATP, DML, filtered scans, point
//! and range accesses, simple aggregates. What needs the lane is refused there, with a way out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod embedded;

use std::sync::Arc;
use std::time::Duration;

use embedded::EmbeddedConnection;
use eris::{Connection, Database, Options};
use eris_workloads::connection::SqlConnection;
use eris_workloads::tatp::sql::{DestinationStatements, SqlClient, load};
use eris_workloads::tatp::{
    KeyDistribution, Population, PopulationOptions, RunOptions, TransactionKind, check, run_over_sql,
};

/// How tables are stored and divided: every test runs under each.
const STORAGE: [&str; 4] = [
    "segment_rows = 64",
    "layout = row, partitions = 1",
    "layout = column, partitions = 7, segment_rows = 8",
    "layout = mixed, partitions = 4, segment_rows = 16",
];

fn open(fallback: bool) -> Database {
    let options = Options { workers: 2, nodes: 2, fallback, split_rows: 500, ..Options::default() };
    Database::open(options).expect("the database opens")
}

/// All rows of a query, columns joined by a bar, in the order of their text.
fn rows(connection: &mut Connection, sql: &str) -> Vec<String> {
    let result = connection.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |row, column| result.text(row, column).unwrap_or_else(|| "NULL".to_owned());
    let joined = |row| (0..result.columns.len()).map(|column| text(row, column)).collect::<Vec<_>>().join("|");
    let mut rows: Vec<String> = (0..result.row_count()).map(joined).collect();
    rows.sort();
    rows
}

fn changed(connection: &mut Connection, sql: &str) -> u64 {
    connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).rows_affected()
}

#[test]
fn tatp_is_consistent() {
    for storage in STORAGE {
        let database = open(false);
        let connect = || Box::new(EmbeddedConnection::new(database.connect())) as Box<dyn SqlConnection>;
        // Permuted numbers: whoever computes s_id from sub_nbr changes the wrong rows, which the check sees.
        let options = PopulationOptions { permuted_numbers: true, ..PopulationOptions::new(1_000) };
        let population = Arc::new(Population::new(options));
        let mut connection = connect();
        load(&mut *connection, &population, storage).unwrap();
        let client = || SqlClient::new(connect(), DestinationStatements::Join).unwrap();
        let clients = (0..4).map(|_| vec![client()]).collect();
        let options = RunOptions {
            clients: 4,
            warm_up: Duration::from_millis(50),
            measured: Duration::from_millis(600),
            keys: KeyDistribution::NonUniform,
            seed: 11,
        };
        let run = run_over_sql(clients, &population, &options, &mut |_| {}).unwrap();
        for kind in TransactionKind::ALL {
            assert!(run.statistics.of(kind).success > 0, "{storage}: no {} succeeded", kind.name());
        }
        let consistency = check(&population, &run.statistics.forwarding_changes, |table, subscribers| {
            let columns: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
            let (columns, name) = (columns.join(", "), table.name());
            let (start, end) = (subscribers.start, subscribers.end);
            let sql = format!("SELECT {columns} FROM {name} WHERE s_id >= {start} AND s_id < {end}");
            connection.execute(&sql, &[]).map(|result| result.rows)
        })
        .unwrap();
        assert!(consistency.is_consistent(), "{storage}: {:?}", consistency.examples);
        assert!(consistency.rows > 1_000, "{storage}: {} rows checked", consistency.rows);
        database.close();
    }
}

/// The table of the other tests. Row `i` of 1,000: `a` is `i % 10`, NULL in every seventh row; `price` is `i / 4`.
fn stock(connection: &mut Connection, storage: &str) {
    let create = "CREATE TABLE stock (id int PRIMARY KEY, a int, price numeric(10, 2) NOT NULL, name text, day date)";
    connection.execute(&format!("{create} WITH ({storage})")).unwrap();
    connection.execute("CREATE INDEX stock_a ON stock (a)").unwrap();
    for start in (0..1_000).step_by(250) {
        let value = |i: i32| {
            let a = if i % 7 == 0 { "NULL".to_owned() } else { (i % 10).to_string() };
            let (price, month) = (f64::from(i) / 4.0, i % 12 + 1);
            format!("({i}, {a}, {price:.2}, 'n{}', '2024-{month:02}-01')", i % 100)
        };
        let values: Vec<String> = (start..start + 250).map(value).collect();
        assert_eq!(changed(connection, &format!("INSERT INTO stock VALUES {}", values.join(", "))), 250);
    }
}

/// Runs under every way of storing, without the fallback lane.
fn with_stock(test: impl Fn(&mut Connection)) {
    for storage in STORAGE {
        let database = open(false);
        let mut connection = database.connect();
        stock(&mut connection, storage);
        test(&mut connection);
        drop(connection);
        database.close();
    }
}

/// Queries that are native, with the number of rows that they find in [`stock`].
const QUERIES: [(&str, usize); 22] = [
    // By key: one row, none, a list, ranges.
    ("SELECT * FROM stock WHERE id = 500", 1),
    ("SELECT * FROM stock WHERE id = -1", 0),
    ("SELECT name FROM stock WHERE id IN (1, 2, 3, 5000)", 3),
    ("SELECT id FROM stock WHERE id BETWEEN 100 AND 199", 100),
    ("SELECT id FROM stock WHERE id > 990", 9),
    ("SELECT id FROM stock WHERE id >= 10 AND id < 20 AND a = 5", 1),
    // Through an index.
    ("SELECT id FROM stock WHERE a = 3", 86),
    ("SELECT id FROM stock WHERE a > 7 AND a <= 9", 172),
    ("SELECT id FROM stock WHERE a IS NULL", 143),
    // By scans with filters, those that storage evaluates and others.
    ("SELECT id, price FROM stock WHERE price < 2.5", 10),
    ("SELECT id FROM stock WHERE name = 'n42' AND day >= '2024-06-01'", 7),
    ("SELECT id FROM stock WHERE name LIKE 'n1%' AND NOT a = 1", 76),
    ("SELECT id FROM stock WHERE a IS DISTINCT FROM 3 AND id < 10", 9),
    ("SELECT id FROM stock WHERE a + 1 > 9 OR price * 2 < 1", 88),
    ("SELECT id FROM stock WHERE CASE WHEN a IS NULL THEN id ELSE a END = 7", 86),
    ("SELECT id % 7, price + 1, upper(name) FROM stock WHERE extract(month FROM day) = 2", 84),
    ("SELECT id FROM stock LIMIT 17", 17),
    // Aggregates.
    ("SELECT count(*), count(a), sum(a), min(name), max(price), avg(price) FROM stock", 1),
    ("SELECT a, count(*), sum(price) FROM stock WHERE id < 500 GROUP BY a", 11),
    ("SELECT DISTINCT name FROM stock", 100),
    ("SELECT a, sum(price) FROM stock GROUP BY a ORDER BY a", 11),
    // A join whose inner rows are found by key.
    ("SELECT s.name, t.name FROM stock s JOIN stock t ON t.id = s.a WHERE s.id = 8", 1),
];

/// Statements that need the fallback lane.
const FOREIGN: [&str; 4] = [
    "SELECT id, stddev(price) OVER (ORDER BY id) FROM stock",
    "SELECT id, variance(price) OVER (PARTITION BY a) FROM stock",
    "DELETE FROM stock WHERE id IN (SELECT CAST(stddev(a) OVER (ORDER BY id) AS int) FROM stock)",
    "INSERT INTO stock SELECT id + 5000, CAST(stddev(a) OVER (ORDER BY id) AS int), price FROM stock",
];

#[test]
fn queries_find_their_rows() {
    with_stock(|connection| {
        for (sql, count) in QUERIES {
            assert_eq!(rows(connection, sql).len(), count, "{sql}");
        }
        assert_eq!(rows(connection, "SELECT * FROM stock WHERE id = 7"), ["7|NULL|1.75|n7|2024-08-01"]);
        assert_eq!(
            rows(
                connection,
                "SELECT count(*), count(a), sum(a), min(id), max(price), avg(id) FROM stock WHERE id < 100"
            ),
            ["100|85|385|0|24.75|49.5000000000"]
        );
        assert_eq!(
            rows(connection, "SELECT a, count(*), sum(id) FROM stock WHERE id < 8 GROUP BY a"),
            ["1|1|1", "2|1|2", "3|1|3", "4|1|4", "5|1|5", "6|1|6", "NULL|2|7"]
        );
    });
}

#[test]
fn rows_change_by_key_by_range_and_by_condition() {
    with_stock(|connection| {
        let count = |connection: &mut Connection, condition: &str| {
            rows(connection, &format!("SELECT count(*) FROM stock WHERE {condition}"))[0].parse::<u64>().unwrap()
        };
        assert_eq!(changed(connection, "UPDATE stock SET price = 0, name = NULL WHERE id = 1"), 1);
        assert_eq!(rows(connection, "SELECT * FROM stock WHERE id = 1"), ["1|1|0.00|NULL|2024-02-01"]);
        assert_eq!(changed(connection, "UPDATE stock SET a = a + 100 WHERE id BETWEEN 10 AND 19"), 10);
        assert_eq!(count(connection, "a > 99"), 9);
        assert_eq!(changed(connection, "UPDATE stock SET a = 50 WHERE a IS NULL AND name LIKE 'n1%'"), 16);
        assert_eq!(changed(connection, "UPDATE stock SET id = id + 10000 WHERE id = 2"), 1);
        assert_eq!(count(connection, "id IN (2, 10002)"), 1);
        assert_eq!(changed(connection, "DELETE FROM stock WHERE id = 3"), 1);
        assert_eq!(changed(connection, "DELETE FROM stock WHERE id >= 900 AND id < 950"), 50);
        assert_eq!(changed(connection, "DELETE FROM stock WHERE price > 200 OR a = 50"), 161);
        assert_eq!(count(connection, "id >= 0"), 1_000 - 1 - 50 - 161);
        assert_eq!(
            changed(connection, "INSERT INTO stock SELECT id + 20000, a, price, name FROM stock WHERE id < 10"),
            8
        );
        let error = connection.execute("INSERT INTO stock VALUES (5000, 1, 1), (4, 1, 1)").err().unwrap();
        assert_eq!(error.sqlstate.as_str(), "23505", "{error}");
        assert_eq!(count(connection, "id = 5000"), 0, "a statement is all or nothing");

        connection.execute("BEGIN").unwrap();
        assert_eq!(changed(connection, "DELETE FROM stock WHERE id < 20000"), 788);
        assert_eq!(changed(connection, "INSERT INTO stock VALUES (6, 6, 6, 'back', '2024-01-01')"), 1);
        assert_eq!(count(connection, "id < 20000"), 1, "a transaction reads its own writes");
        connection.execute("ROLLBACK").unwrap();
        assert_eq!(count(connection, "id < 20000"), 788);
        assert_eq!(changed(connection, "DELETE FROM stock"), 796);
    });
}

#[test]
fn what_needs_the_lane_is_refused_with_a_way_out() {
    with_stock(|connection| {
        for sql in FOREIGN {
            let Err(error) = connection.execute(sql) else { panic!("{sql} ran without the fallback lane") };
            assert_eq!(error.sqlstate.as_str(), "0A000", "{sql}: {error}");
            let hint = error.hint.as_deref().unwrap_or_default();
            assert!(error.message.contains("a plan that is not native"), "{sql}: {error}");
            assert!(hint.contains("fallback lane is switched off: rewrite the query"), "{sql}: {error}");
        }
        // A session cannot allow what the database does not have.
        connection.execute("SET fallback = on").unwrap();
        assert!(connection.execute(FOREIGN[0]).is_err());
        assert_eq!(rows(connection, "SELECT count(*) FROM stock"), ["1000"]);
    });
}

#[test]
fn explain_says_so_where_both_lanes_are_open() {
    let database = open(true);
    let mut connection = database.connect();
    stock(&mut connection, STORAGE[0]);
    let plan = |connection: &mut Connection, sql: &str| rows(connection, &format!("EXPLAIN {sql}")).join("\n");
    let changes = [
        "INSERT INTO stock VALUES (5000, 1, 1), (5001, 2, 2)",
        "INSERT INTO stock SELECT id + 5000, a, price FROM stock WHERE id < 10",
        "UPDATE stock SET price = price + 1 WHERE id = 4",
        "UPDATE stock SET a = 1 WHERE id BETWEEN 5 AND 50 AND name = 'n7'",
        "UPDATE stock SET id = id + 5000 WHERE id = 3",
        "DELETE FROM stock WHERE a = 3",
        "DELETE FROM stock",
    ];
    for sql in QUERIES.iter().map(|(sql, _)| *sql).chain(changes) {
        let plan = plan(&mut connection, sql);
        assert!(plan.contains("Lane: native") && !plan.contains("[fallback]"), "{sql}\n{plan}");
    }
    for sql in FOREIGN {
        let plan = plan(&mut connection, sql);
        assert!(plan.contains("Lane: fallback") && plan.contains("[fallback]"), "{sql}\n{plan}");
    }
    drop(connection);
    database.close();
}
