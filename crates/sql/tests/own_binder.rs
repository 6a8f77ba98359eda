//! Statements that our own binder binds, beside the same statements bound by DataFusion.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_sql::{DatabaseOptions, SqlType};
use eris_storage::Value;
use support::{Answer, Client, Instance};

const TABLE: &str = "
    CREATE TABLE t (
        id int PRIMARY KEY, s smallint, b bigint, n numeric(12, 2), r real, f double precision, d date, ts timestamp,
        x text, v varchar(8), c char(4), q boolean, y bytea
    );
    INSERT INTO t VALUES
        (1, 1, 10000000000, 1.50, 1.1, 1.1, '2020-01-01', '2020-01-01 10:00:00', 'abc', 'abc', 'ab', true, '\\x01'),
        (2, -2, -5, -2.25, -0.5, 1e10, '2019-12-31', '2020-01-02', 'abd', 'b', 'cd', false, '\\x0203'),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, 32767, 9223372036854775807, 9999999999.99, 0, 0, '1970-01-01', '1970-01-01', '', 'ä%_', 'zz', true, ''),
        (5, 5, 5, 5, 5, 5, '2020-01-05', '2020-01-05', '5', '5', '5', false, '5')";

/// Expressions over the table's columns, as items and, if they are conditions, in WHERE.
const EXPRESSIONS: [&str; 93] = [
    "id",
    "t.id + 1",
    "s + s",
    "s + id",
    "b - id",
    "id * s",
    "b / 3",
    "id / s",
    "b % 7",
    "s % 2",
    "-s",
    "-b",
    "-n",
    "-f",
    "n + 1",
    "n + id",
    "n * n",
    "n * 1.5",
    "1 - n",
    "n / 3",
    "n % 2",
    "n / id",
    "r + r",
    "r * 2",
    "f + 1",
    "f - r",
    "f * n",
    "r + 1.5",
    "f / 2",
    "id = 2",
    "id <> 2",
    "2 < id",
    "s = 1",
    "s = 100000",
    "b = 5",
    "b > id",
    "n = 1.5",
    "n = 1.555",
    "n > 1",
    "n <= b",
    "r = 1.1",
    "f = 1.1",
    "f = r",
    "f > n",
    "d = '2020-01-01'",
    "ts >= '2020-01-01'",
    "x = 'abc'",
    "x < 'abd'",
    "v = 'abc'",
    "v = x",
    "c = 'ab'",
    "c < 'b'",
    "q",
    "NOT q",
    "q = true",
    "q IS TRUE",
    "q IS NOT FALSE",
    "y = '\\x01'",
    "y > '\\x01'",
    "x IS NULL",
    "n IS NOT NULL",
    "x LIKE 'ab%'",
    "x NOT LIKE '%d'",
    "v LIKE '_\\%\\_'",
    "x ILIKE 'AB_'",
    "x ~~ 'a%'",
    "id IN (1, 3, 9)",
    "id NOT IN (1, 3)",
    "s IN (1, 100000)",
    "b IN (5, 10000000000)",
    "n IN (1.5, 5)",
    "x IN ('abc', '5')",
    "v IN ('b', 'c')",
    "d IN ('2020-01-01', '1970-01-01')",
    "id IN (s, 3)",
    "x IN ('a', NULL)",
    "id BETWEEN 2 AND 4",
    "n NOT BETWEEN 0 AND 2",
    "d BETWEEN '2019-01-01' AND '2020-01-01'",
    "id = 1 OR id = 3",
    "id = 1 OR x = 'abd' AND q",
    "(q OR s > 1) AND id < 5",
    "id = 1 AND id = 2",
    "CASE WHEN q THEN id ELSE s END",
    "CASE id WHEN 1 THEN 'one' WHEN 2 THEN x END",
    "CASE WHEN id > 2 THEN n ELSE 0 END",
    "coalesce(s, id)",
    "coalesce(x, 'none')",
    "coalesce(n, 0)",
    "id::bigint + 1",
    "s::numeric(7, 1)",
    "n::numeric(12, 1)",
    "b::double precision / 3",
];

fn client(instance: &Instance) -> Client {
    let mut client = instance.session();
    client.ok(TABLE);
    client
}

/// What a statement gives, or its SQLSTATE, and whether our own binder bound it.
fn answer(client: &mut Client, sql: &str) -> (Result<Answer, String>, bool) {
    let before = client.session().database().bound_here();
    let answer = client.run(sql).map_err(|error| error.sqlstate.to_string());
    (answer, client.session().database().bound_here() > before)
}

#[track_caller]
fn both_agree(client: &mut Client, sql: &str) {
    client.ok("SET own_binder = on");
    let (own, here) = answer(client, sql);
    assert!(here, "{sql} was not bound here: {own:?}");
    client.ok("SET own_binder = off");
    let (other, here) = answer(client, sql);
    assert!(!here, "own_binder = off");
    assert_eq!(own, other, "{sql}");
}

#[test]
fn expressions_mean_what_they_mean_to_datafusion() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for expression in EXPRESSIONS {
        both_agree(&mut client, &format!("SELECT id, {expression} FROM t"));
        // Of one row: in the task instead of the partitions.
        both_agree(&mut client, &format!("SELECT {expression} AS e, x FROM t AS t WHERE id = 2 ORDER BY 1"));
    }
    for condition in
        EXPRESSIONS.iter().skip_while(|text| **text != "id = 2").take_while(|text| !text.starts_with("CASE"))
    {
        both_agree(&mut client, &format!("SELECT * FROM t WHERE {condition}"));
        both_agree(&mut client, &format!("SELECT x, id FROM t WHERE id = 1 AND ({condition})"));
        both_agree(&mut client, &format!("SELECT t.*, n FROM t WHERE NOT ({condition}) LIMIT 2 OFFSET 1"));
    }
}

#[test]
fn rows_without_a_table_and_what_orders_and_limits_are_bound() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for sql in [
        "SELECT 'a' AS x, true, NULL, 1.50 + 1, date '2020-02-29', '7'::bigint, 5 / 2, 7 % 3, -5",
        "SELECT id, n AS m FROM t WHERE id IN (5, 1) AND id = 1 ORDER BY m DESC, n + 1 NULLS FIRST, 2 LIMIT 1",
        "SELECT x FROM t WHERE id = 3 ORDER BY id LIMIT 0",
        "SELECT id FROM t WHERE id = NULL",
        "SELECT id FROM t WHERE false",
        "SELECT id FROM t WHERE NULL OR q",
        "SELECT b + b FROM t WHERE id = 4",
        "SELECT 1 / (id - 2) FROM t",
        "SELECT 2147483647 + 1",
        "SELECT s * s FROM t WHERE id = 4",
        "SELECT coalesce(s, 1 / (id - 1)) FROM t WHERE id = 2",
    ] {
        both_agree(&mut client, sql);
    }
    // As in PostgreSQL; DataFusion's integer literals have 64 bits.
    client.ok("SET own_binder = on");
    for (sql, types) in [
        ("SELECT 1, 3000000000, 1.5, 10000000000000000000", vec!["integer", "bigint", "numeric", "numeric"]),
        ("SELECT $1, $2::date, $3 + 1, id = $4 FROM t", vec!["text", "date", "integer", "boolean"]),
        ("SELECT coalesce(c, v), CASE WHEN q THEN c ELSE x END FROM t", vec!["character", "text"]),
    ] {
        assert_eq!(types_of(&mut client, sql), types, "{sql}");
    }
    assert_eq!(
        client.parameters("SELECT $1, $2::date, $3 + 1, id = $4 FROM t WHERE n > $5 AND x < $6 LIMIT $7"),
        [
            SqlType::Text,
            SqlType::Date,
            SqlType::Integer,
            SqlType::Integer,
            SqlType::Numeric { precision: 12, scale: 2 },
            SqlType::Text,
            SqlType::BigInt
        ]
    );
}

fn types_of(client: &mut Client, sql: &str) -> Vec<&'static str> {
    client.types(sql).into_iter().map(SqlType::base_name).collect()
}

#[test]
fn changes_are_bound_and_change_the_same_rows() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for sql in [
        "UPDATE t SET s = s + 1, x = 'new', d = '2021-01-01', n = n * 1.005 WHERE id < 3",
        "UPDATE t AS u SET v = x, q = NOT u.q, f = n, ts = d WHERE u.x LIKE 'ab%' OR q",
        "UPDATE t SET id = id + 10",
        "UPDATE t SET b = NULL, c = 'a  ', y = '\\x00' WHERE n IS NULL",
        "UPDATE t SET n = 99999999999",
        "UPDATE t SET v = 'longer than eight'",
        "UPDATE t SET s = 40000 WHERE id = 1",
        "UPDATE t SET id = NULL WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
        "DELETE FROM t WHERE n > 1 AND x <> ''",
        "DELETE FROM t u WHERE u.q",
        "DELETE FROM t",
        "INSERT INTO t (id, n, x) VALUES (7, 1 + 0.5, coalesce(NULL::text, 'a')), (8, -(-2), 'b')",
    ] {
        let mut rows = Vec::new();
        for (setting, expected) in [("on", true), ("off", false)] {
            client.ok(&format!("SET own_binder = {setting}; BEGIN"));
            let (changed, here) = answer(&mut client, sql);
            assert_eq!(here, expected, "{sql}: {changed:?}");
            let changed = changed.map(|answer| answer.tag);
            let left = client.run("SELECT * FROM t ORDER BY id").map(|answer| answer.rows).unwrap_or_default();
            client.ok("ROLLBACK");
            rows.push((changed, left));
        }
        assert_eq!(rows[0], rows[1], "{sql}");
    }
}

#[test]
fn values_of_the_session_hold_for_one_statement() {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok(
        "CREATE TABLE e (id int PRIMARY KEY, at timestamp, made timestamp DEFAULT now(), by text DEFAULT current_user)",
    );
    let before = client.session().database().bound_here();
    client.ok("INSERT INTO e (id, at) VALUES (1, now())");
    client.ok("INSERT INTO e (id, at) VALUES (2, CURRENT_TIMESTAMP)");
    assert!(client.session().database().bound_here() >= before + 4, "values and defaults");
    let same =
        client.rows("SELECT count(*), bool_and(at = made), min(by) = current_user FROM e GROUP BY at ORDER BY at");
    assert_eq!(same, ["1|t|t", "1|t|t"], "one moment for each statement");
    let ages = client.rows("SELECT current_date - at::date < 2, now() > at FROM e");
    assert_eq!(ages, ["t|t", "t|t"]);
    assert_eq!(client.rows("SELECT current_user = 'someone', current_schema"), ["f|public"]);
}

#[test]
fn parameters_are_used_as_what_they_stand_beside() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for (sql, parameters, rows) in [
        ("SELECT x FROM t WHERE id = $1", vec![Value::Int32(2)], 1),
        ("SELECT x FROM t WHERE $1 = id", vec![Value::Int32(9)], 0),
        ("SELECT x FROM t WHERE id IN ($1, $2)", vec![Value::Int32(1), Value::Int32(5)], 2),
        ("SELECT x FROM t WHERE id BETWEEN $1 AND $2", vec![Value::Int32(2), Value::Int32(4)], 3),
        ("SELECT x FROM t WHERE d = $1 OR x = $2", vec![Value::Date(0), Value::Text("5".into())], 2),
        ("SELECT x FROM t WHERE v = $1", vec![Value::Text("abc".into())], 1),
        ("SELECT x FROM t ORDER BY 1", vec![], 5),
    ] {
        for setting in ["on", "off"] {
            client.ok(&format!("SET own_binder = {setting}"));
            let answer = client.run_with(sql, &parameters, None).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(answer.rows.len(), rows, "{sql}, own_binder = {setting}");
        }
    }
}

/// What is wrong is said by DataFusion's binder, whatever was tried before.
#[test]
fn mistakes_are_told_as_before() {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for (sql, state) in [
        ("SELECT nothing FROM t", "42703"),
        ("SELECT id FROM nothing", "42P01"),
        ("SELECT id = x FROM t", "42883"),
        ("SELECT id FROM t WHERE id", "42804"),
        ("SELECT id FROM t WHERE id = 'one'", "22P02"),
        ("UPDATE t SET nothing = 1", "42703"),
    ] {
        client.ok("SET own_binder = on");
        let own = client.run(sql).expect_err(sql);
        client.ok("SET own_binder = off");
        let other = client.run(sql).expect_err(sql);
        assert_eq!((own.sqlstate.as_str(), &own.message), (state, &other.message), "{sql}");
        assert_eq!(own.position, other.position, "{sql}");
    }
    client.ok("SET own_binder = on");
    let error = client.run("UPDATE t SET d = 1").expect_err("a number is no date");
    assert_eq!(error.message, "column \"d\" is of type date but expression is of type integer", "as in PostgreSQL");
}

/// Chains are walked without recursion, and what is nested too deep for an expression is left to DataFusion.
#[test]
fn long_chains_are_bound_and_deep_ones_are_not() {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    let many = |part: &str, times: usize| vec![part; times].join(" ");
    both_agree_here(&mut client, &format!("SELECT id FROM t WHERE id = 1 {}", many("OR id = 2", 900)), "2");
    both_agree_here(&mut client, &format!("SELECT id {} FROM t WHERE id = 1", many("+ 1", 60)), "1");
    // What is copied for BETWEEN within BETWEEN doubles each time: that is left to DataFusion before it is much.
    let nested = (0..10).fold("q".to_string(), |inner, _| format!("({inner} BETWEEN false AND true)"));
    let (answer, here) = answer(&mut client, &format!("SELECT id FROM t WHERE {nested}"));
    assert!(answer.is_ok() && !here, "{answer:?}");
    let doubled = (0..25)
        .fold("SELECT id AS x FROM t".to_string(), |inner, _| format!("SELECT x + x - x AS x FROM ({inner}) AS s"));
    both_agree_here(&mut client, &format!("SELECT x FROM ({doubled}) AS s WHERE x > 3"), "2");
    let list: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    both_agree_here(&mut client, &format!("SELECT id FROM t WHERE id IN ({})", list.join(", ")), "5");
}

fn both_agree_here(client: &mut Client, sql: &str, rows: &str) {
    let (answer, here) = answer(client, sql);
    let count = answer.map(|answer| answer.rows.len().to_string());
    assert_eq!((count.as_deref(), here), (Ok(rows), true), "{}...", &sql[..60]);
}

/// What the simple protocol gives for a text, and how many queries were planned for it.
fn simply(client: &mut Client, sql: &str) -> (Result<Answer, (String, Option<usize>)>, u64) {
    let before = client.session().database().planned();
    let answer = client.simple(sql).map_err(|error| (error.sqlstate.to_string(), error.position));
    (answer, client.session().database().planned() - before)
}

#[test]
fn texts_that_differ_in_their_literals_share_a_plan() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for (first, other) in [
        ("SELECT x, id + 1 FROM t WHERE id = 1", "SELECT x, id + 7 FROM t WHERE id = 2;"),
        ("SELECT id FROM t WHERE x = 'abc' OR d = '2020-01-05'", " SELECT id FROM t WHERE x = '' OR d = '1970-01-01'"),
        ("SELECT id FROM t WHERE v = 'ab' AND q", "SELECT id FROM t WHERE v = 'much longer than eight' AND q"),
        ("SELECT id FROM t WHERE c = 'ab' LIMIT 1", "SELECT id FROM t WHERE c = 'ab ' LIMIT 5"),
        ("SELECT id, 1.50 FROM t WHERE n > 1.25 OR f < 1", "SELECT id, 2.75 FROM t WHERE n > 4.75 OR f < 0"),
        ("SELECT -5, 'a', id FROM t WHERE b IN (5, 7)", "SELECT -6, 'b''c', id FROM t WHERE b IN (9, 5)"),
        (
            "SELECT id FROM t WHERE y = '\\x01' AND ts > '2019-01-01'",
            "SELECT id FROM t WHERE y = '5' AND ts > '2020-01-01'",
        ),
        (
            "SELECT CASE id WHEN 1 THEN 'one' ELSE 'more' END FROM t",
            "SELECT CASE id WHEN 2 THEN 'two' ELSE 'other' END FROM t",
        ),
    ] {
        let (one, _) = simply(&mut client, first);
        let (two, planned) = simply(&mut client, other);
        assert_eq!(planned, 0, "{other} has the plan of {first}");
        client.ok("SET own_binder = off");
        assert_eq!(simply(&mut client, first).0, one, "{first}");
        assert_eq!(simply(&mut client, other).0, two, "{other}");
        client.ok("SET own_binder = on");
    }
    client.ok("BEGIN");
    assert_eq!(client.simple("UPDATE t SET x = 'p', n = n + 1.5, v = NULL WHERE id = 1").unwrap().tag, "UPDATE 1");
    let (answer, planned) = simply(&mut client, "UPDATE t SET x = 'q', n = n + 2.5, v = NULL WHERE id = 2");
    assert_eq!((answer.unwrap().tag.as_str(), planned), ("UPDATE 1", 0));
    assert_eq!(client.rows("SELECT x, n, v FROM t WHERE id < 3 ORDER BY id"), ["p|3.00|NULL", "q|0.25|NULL"]);
    assert_eq!(client.simple("DELETE FROM t WHERE id = 1").unwrap().tag, "DELETE 1");
    let (answer, planned) = simply(&mut client, "DELETE FROM t WHERE id = 99");
    assert_eq!((answer.unwrap().tag.as_str(), planned), ("DELETE 0", 0));
    client.ok("ROLLBACK");
}

/// Where a literal means something else than a parameter, and where one is wrong: as if there were no templates.
#[test]
fn literals_that_are_no_parameters_are_planned_with_their_text() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    let texts = [
        "SELECT n, id FROM t WHERE id IN (1, 2) AND id < 9 ORDER BY 1",
        "SELECT n, id FROM t ORDER BY 2, 1 LIMIT 2",
        "SELECT id FROM t WHERE n = '1.555'",
        "SELECT id FROM t WHERE n = '1.5'",
        "SELECT id FROM t WHERE x LIKE 'ab%'",
        "SELECT id FROM t WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
        "SELECT id FROM t WHERE d > date '2019-12-31'",
        "SELECT id FROM t WHERE ts > timestamp '2019-12-31' + interval '1 day'",
        "SELECT x::varchar(2) FROM t WHERE id = 1",
        "SELECT id FROM t WHERE id = 'one'",
        "SELECT id FROM t WHERE nothing = 1",
        "SELECT count(*), 'a' FROM t WHERE id > 1 GROUP BY 2",
        "UPDATE t SET v = 'longer than eight' WHERE id = 1",
        "UPDATE t SET s = 40000 WHERE id = 1",
        "SELECT 1 / (id - 2) FROM t WHERE id = 2",
        "SELECT 1 / (id - 2) FROM t WHERE id = 2 ORDER BY id LIMIT 0",
        "DELETE FROM t WHERE.5",
        "SELECT id FROM t LIMIT.5",
        "SELECT 'abcdef'::char, 'abc  '::bpchar = 'abc'",
        "SELECT id FROM t WHERE c = 'abcdef'::char(2)",
        "UPDATE t SET b = 1, s = 70000 WHERE id = 999",
        "UPDATE t SET v = 'abcdefghijk' WHERE id = 999",
        "UPDATE t SET n = 99999999999 WHERE id = 999",
        "UPDATE t SET s = -2276194248 WHERE id = 999",
        "SELECT 70000::smallint FROM t WHERE id = 999",
        "SELECT id FROM t WHERE r IN (1.1, -0.5)",
        "SELECT id FROM t WHERE r NOT IN (1.1, 5)",
        "SELECT coalesce(n, '5.555') FROM t WHERE id = 3",
        "DELETE FROM t WHERE coalesce(n, '0.004') = 0",
        "SELECT -2147483648 - 1",
        "SELECT -(2147483648), -9223372036854775808",
        "SELECT -9223372036854775808 - 1",
        "\u{a0}SELECT 5",
    ];
    for text in texts {
        for _ in 0..2 {
            let own = simply(&mut client, text).0;
            client.ok("SET own_binder = off");
            let other = simply(&mut client, text).0;
            client.ok("SET own_binder = on");
            assert_eq!(own, other, "{text}");
        }
    }
    // A plan that a client prepared is DataFusion's, and a parameter that orders is a constant.
    client.prepare("SELECT x, id FROM t ORDER BY $1", &[Some(SqlType::Integer)]);
    assert_eq!(client.simple("SELECT x, id FROM t ORDER BY 1").unwrap().rows[0][1].as_deref(), Some("4"));
    // A template that was refused for its types says nothing of others.
    client.simple("SELECT  1.5::smallint FROM t WHERE id = 999").unwrap();
    assert_eq!(simply(&mut client, "SELECT  70000::smallint FROM t WHERE id = 999").0.unwrap_err().0, "22003");
    // A block that failed says so and nothing else.
    client.ok("BEGIN");
    client.simple("SELECT 1 / 0").expect_err("a division by zero");
    for _ in 0..2 {
        assert_eq!(simply(&mut client, "SELECT id FROM t WHERE id = 12").0.unwrap_err().0, "25P02");
    }
    client.ok("ROLLBACK");
    // A table that is made anew has a plan anew.
    let rows = |client: &mut Client| client.simple("SELECT id, x FROM t WHERE id = 2").unwrap().rows;
    assert_eq!(rows(&mut client), [[Some("2".to_string()), Some("abd".to_string())]]);
    client.ok("DROP TABLE t; CREATE TABLE t (x int, id bigint); INSERT INTO t VALUES (7, 2)");
    assert_eq!(rows(&mut client), [[Some("2".to_string()), Some("7".to_string())]]);
}

/// Others see the text that the client sent.
#[test]
fn a_statement_with_a_shared_plan_is_seen_by_its_own_text() {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = client(&instance);
    for number in [1, 2] {
        let text = format!("SELECT x FROM t WHERE id = {number}");
        client.simple(&text).unwrap();
        let seen = client.session().activity().report().query;
        assert_eq!(seen, text);
    }
}
