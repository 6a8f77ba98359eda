//! What a client is told when something is wrong: code, message, detail, hint, place in the text; and that the session
//! goes on.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_engine::EngineOptions;
use eris_sql::{DatabaseOptions, SqlError};
use support::{Client, Instance};

fn instance() -> Instance {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, total numeric(8,2), placed date)");
    client.ok("INSERT INTO orders VALUES (1, 'Ada', 10, '2024-01-01')");
    instance
}

fn error(client: &mut Client, sql: &str) -> SqlError {
    match client.run(sql) {
        Ok(answer) => panic!("{sql} gave {answer:?}"),
        Err(error) => error,
    }
}

/// Position: the character of the text, counted from one, that `^` stands under.
#[test]
fn errors_point_at_the_name() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE other (id int PRIMARY KEY)");
    let cases = [
        ("42703", "SELECT custmer FROM orders", "       ^"),
        ("42703", "SELECT id FROM orders WHERE custmer = 'x'", "                            ^"),
        ("42703", "SELECT 'äöü', o.custmer FROM orders o", "              ^"),
        ("42703", "SELECT id AS custmer FROM orders ORDER BY customr", "                                          ^"),
        ("42703", "INSERT INTO orders (id, custmer) VALUES (1, 'x')", "                        ^"),
        ("42703", "UPDATE orders SET custmer = 'x'", "                  ^"),
        ("42703", "DELETE FROM orders WHERE custmer = 'x'", "                         ^"),
        ("42703", "COPY orders (id, custmer) FROM STDIN", "                 ^"),
        ("42703", "CREATE INDEX ON orders (custmer)", "                        ^"),
        ("42703", "EXPLAIN SELECT custmer FROM orders", "               ^"),
        ("42703", "PREPARE p AS SELECT custmer FROM orders", "                    ^"),
        ("42702", "SELECT id FROM orders, other", "       ^"),
        ("42P01", "SELECT * FROM oders", "              ^"),
        ("42P01", "INSERT INTO oders VALUES (1)", "            ^"),
        ("42P01", "DROP TABLE oders", "           ^"),
        ("42P01", "SELECT x.id FROM orders", "       ^"),
        ("42883", "SELECT uper('x')", "       ^"),
        ("42601", "SELECT id FROM orders WHERE )", "                            ^"),
        ("42601", "EXPLAIN SELECT id FROM orders WHERE )", "                                    ^"),
        (
            "42601",
            "EXPLAIN (ANALYZE) WITH q AS (SELECT 1) SELECT * FROM q WHERE )",
            "                                                             ^",
        ),
    ];
    for (state, sql, mark) in cases {
        let error = error(&mut client, sql);
        let expected = mark.chars().position(|c| c == '^').map(|at| at + 1);
        assert_eq!((error.sqlstate.as_str(), error.position), (state, expected), "{sql}\n{error}");
    }
}

/// The place is counted from the start of the client's text, whichever statement of it is wrong, and whenever it is
/// found out.
#[test]
fn positions_count_over_the_whole_text() {
    let instance = instance();
    let mut client = instance.session();
    let place = |client: &mut Client, sql: &str| {
        let position = error(client, sql).position;
        position.map(|position| sql.chars().skip(position - 1).take(4).collect::<String>())
    };
    assert_eq!(place(&mut client, "\n  SELECT\n  nope FROM orders").as_deref(), Some("nope"));
    assert_eq!(place(&mut client, "SELECT 'ß';\nSELECT nope FROM orders").as_deref(), Some("nope"));
    assert_eq!(
        place(&mut client, "SELECT 1; -- ü\nSELECT 2; SELECT nope FROM orders; SELECT 3").as_deref(),
        Some("nope")
    );
    assert_eq!(
        place(&mut client, "CREATE TABLE made (a int); INSERT INTO made VALUES (1); SELECT nope FROM made").as_deref(),
        Some("nope")
    );
    assert_eq!(place(&mut client, "SELECT 1;\nSELEC 2").as_deref(), Some("SELE"));
    // The same statement found in the plan cache, with other text before it.
    client.ok("SELECT id FROM orders");
    let mut other = instance.session();
    other.ok("DROP TABLE orders");
    assert_eq!(place(&mut client, "SELECT id FROM orders"), Some("orde".to_string()));
    assert_eq!(place(&mut client, "  SELECT id FROM orders"), Some("orde".to_string()));
}

#[test]
fn hints_say_what_to_do() {
    let instance = instance();
    let mut client = instance.session();
    let cases = [
        ("SELECT custmer FROM orders", "Perhaps you meant \"customer\"."),
        ("SELECT * FROM oders", "Perhaps you meant \"orders\"."),
        ("SELECT o.custmer FROM orders o", "Perhaps you meant \"customer\"."),
        ("SELECT ordes.id FROM orders", "Perhaps you meant the table \"orders\"."),
        ("SET layuot = row", "Perhaps you meant \"layout\"."),
        ("SHOW memory_limit", "It is chosen at start, with --memory-limit; the view eris.memory_limit shows it."),
        ("CREATE TABLE t (a int) WITH (layuot = row)", "Perhaps you meant \"layout\"."),
        ("CREATE TABLE t (a intt)", "There are boolean, smallint, integer"),
        ("DROP INDEX orders_pky", "Perhaps you meant \"orders_pkey\"."),
        ("SELECT customer + 1 FROM orders", "You might need to add explicit type casts."),
        ("UPDATE orders SET placed = true", "You will need to rewrite or cast the expression."),
        ("CREATE TABLE t (a int REFERENCES orders)", "Foreign keys are not enforced yet: leave REFERENCES out."),
        ("INSERT INTO orders VALUES (1) ON CONFLICT DO NOTHING", "Try the INSERT, and UPDATE when it answers 23505"),
    ];
    for (sql, hint) in cases {
        let error = error(&mut client, sql);
        let given = error.hint.clone().unwrap_or_default();
        assert!(given.contains(hint), "{sql}\n{error}");
    }
}

#[test]
fn details_name_the_key_and_the_limit() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE keyed (a int, d date, b boolean, n numeric(4,1), PRIMARY KEY (a, d, b, n))");
    client.ok("INSERT INTO keyed VALUES (1, '2024-02-29', true, 1.5)");
    let duplicate = error(&mut client, "INSERT INTO keyed VALUES (1, '2024-02-29', true, 1.5)");
    assert_eq!(duplicate.detail.as_deref(), Some("Key (a, d, b, n)=(1, 2024-02-29, t, 1.5) already exists."));
    let overflow = error(&mut client, "INSERT INTO keyed VALUES (1, '2024-02-29', true, 1234)");
    assert_eq!(overflow.sqlstate.as_str(), "22003");
    let detail = overflow.detail.unwrap();
    assert!(detail.contains("precision 4, scale 1") && detail.contains("less than 10^3"), "{detail}");
}

/// What PostgreSQL 15 answers to the same mistake.
#[test]
fn codes_are_those_of_postgresql() {
    let instance = instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE other (id int PRIMARY KEY, tag varchar(3), done boolean)");
    let cases = [
        ("22001", "INSERT INTO other VALUES (1, 'long')"),
        ("22003", "INSERT INTO other VALUES (99999999999)"),
        ("22007", "SELECT 'x'::date"),
        ("22007", "SELECT 'x'::interval"),
        ("22007", "SELECT interval '1 nonsense'"),
        ("22008", "SELECT '2024-02-30'::date"),
        ("22012", "SELECT 1 / 0"),
        ("22023", "COPY other FROM STDIN WITH (FORMAT nonsense)"),
        ("22023", "COPY other FROM STDIN WITH (NULL E'\\n')"),
        ("22P02", "SELECT 'x'::int"),
        ("22P02", "INSERT INTO other VALUES ('x')"),
        ("23502", "INSERT INTO orders (id) VALUES (7)"),
        ("23505", "INSERT INTO orders (id, customer) VALUES (1, 'x')"),
        ("25001", "BEGIN; SELECT id FROM orders; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        ("25001", "SELECT 1; DISCARD ALL"),
        ("25006", "BEGIN READ ONLY; DELETE FROM orders"),
        ("25006", "BEGIN READ ONLY; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; DELETE FROM orders"),
        ("26000", "EXECUTE nothing"),
        ("26000", "DEALLOCATE nothing"),
        ("3F000", "CREATE TABLE nowhere.t (a int)"),
        ("42501", "CREATE TABLE pg_catalog.t (a int)"),
        ("42501", "DROP TABLE pg_catalog.pg_class"),
        ("42601", "COPY other FROM STDIN WITH (FORMAT csv, FORMAT csv)"),
        ("42601", "CREATE TABLE t (a int NULL NOT NULL)"),
        ("42701", "CREATE TABLE t (a int, a int)"),
        ("42702", "SELECT id FROM orders, other"),
        ("42703", "SELECT nothing FROM orders"),
        ("42704", "CREATE TABLE t (a nothing)"),
        ("42712", "SELECT * FROM orders a, other a"),
        ("42712", "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a"),
        ("42803", "SELECT customer, sum(id) FROM orders"),
        ("42804", "SELECT id FROM orders WHERE id"),
        ("42804", "SELECT NOT id FROM orders"),
        ("42804", "SELECT * FROM orders JOIN other ON orders.id"),
        ("42809", "SELECT row_number() FROM orders"),
        ("42809", "COPY other FROM '/'"),
        ("42883", "SELECT nothing(1)"),
        ("42883", "SELECT -customer FROM orders"),
        ("42883", "SELECT customer + 1 FROM orders"),
        ("42883", "SELECT id LIKE 'x' FROM orders"),
        ("42P01", "SELECT * FROM nothing"),
        ("42P01", "SELECT nothing.* FROM orders"),
        ("42P01", "SELECT orders.* FROM orders o"),
        ("42P01", "COPY nothing FROM '/no/such/file'"),
        ("42P05", "PREPARE twice AS SELECT 1; PREPARE twice AS SELECT 1"),
        ("42P07", "CREATE TABLE orders (a int)"),
        ("42P10", "SELECT id FROM orders ORDER BY 2"),
        ("42P10", "SELECT id FROM orders GROUP BY 2"),
        ("42P10", "SELECT DISTINCT id FROM orders ORDER BY customer"),
        ("42P10", "WITH a(x, y) AS (SELECT 1) SELECT * FROM a"),
        ("42P20", "SELECT * FROM orders WHERE row_number() OVER () = 1"),
        ("58P01", "COPY other FROM '/no/such/file'"),
    ];
    let mut wrong = Vec::new();
    for (state, sql) in cases {
        let error = error(&mut client, sql);
        client.ok("ROLLBACK");
        if error.sqlstate.as_str() != state {
            wrong.push(format!("{sql}: {error} instead of {state}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// After any error the same session answers.
#[test]
fn the_session_goes_on() {
    let instance = instance();
    let mut client = instance.session();
    let wrong = [
        "SELEC",
        "SELECT",
        "SELECT * FROM missing",
        "SELECT 1/0",
        "SELECT 1/0 FROM orders",
        "SELECT sum(total) / 0 FROM orders GROUP BY customer",
        "SELECT a.id FROM orders a, orders b WHERE 1 / (a.id - b.id) > 0",
        "SELECT 2147483647 + id FROM orders",
        "INSERT INTO orders VALUES (1, 'again', 1, NULL)",
        "INSERT INTO orders (id) VALUES (2)",
        "INSERT INTO orders SELECT id + 1, NULL, 1, NULL FROM orders",
        "UPDATE orders SET customer = NULL",
        "UPDATE orders SET total = total * 1000000",
        "DELETE FROM orders WHERE 1 / (id - 1) = 1",
        "CREATE TABLE orders (a int)",
        "SELECT * FROM orders FOR UPDATE",
        "EXECUTE nothing",
        "SELECT \u{0}",
        "SELECT 'unterminated",
        "SELECT $1",
        "SELECT id FROM orders LIMIT 'x'",
        "COPY orders FROM '/no/such/file'",
        "SET layout = round",
        "COMMIT AND CHAIN",
    ];
    for sql in wrong {
        error(&mut client, sql);
        assert_eq!(client.rows("SELECT count(*), min(customer) FROM orders"), ["1|Ada"], "after {sql}");
    }
    assert_eq!(client.rows("SELECT sum(total) FROM orders"), ["10.00"]);
}

#[test]
fn what_is_too_large_is_refused_by_its_bound() {
    use eris_sql::SqlError;
    use eris_sql::front::{self, BOUNDS_DEFAULT, Cutter, Size};
    // As a session does it: the piece, the text, the size.
    let refused = |sql: &str| -> Option<SqlError> {
        for piece in Cutter::new(sql) {
            let checked = BOUNDS_DEFAULT.check_piece(&piece).and_then(|()| {
                for statement in front::parse_within(&sql[piece.range.clone()], &BOUNDS_DEFAULT)? {
                    BOUNDS_DEFAULT.check_size(&Size::of(&statement.ast))?;
                }
                Ok(())
            });
            if let Err(error) = checked {
                return Some(error);
            }
        }
        None
    };
    let doubling: String =
        (1..31).map(|at| format!(", c{at} AS (SELECT a.x FROM c{0} a, c{0} b)", at - 1)).collect::<Vec<_>>().concat();
    let nested =
        |open: &str, close: &str, depth: usize| format!("SELECT {}1{}", open.repeat(depth), close.repeat(depth));
    let joins: String = (0..1_000).map(|at| format!(" JOIN t t{at} ON t{at}.a = t.a")).collect::<Vec<_>>().concat();
    for (sql, state) in [
        (format!("WITH c0 AS (SELECT 1 AS x){doubling} SELECT * FROM c30"), "54001"),
        (nested("(", " BETWEEN 1 AND 2)", 40), "54001"),
        (nested("nullif(", ", 1)", 40), "54001"),
        (nested("(", ")", 10_000), "54001"),
        (nested("NOT ", "", 10_000), "54001"),
        (nested("- ", "", 10_000), "54001"),
        (nested("NOT ", "", 110), "54001"),
        (nested("CASE WHEN true THEN ", " END", 110), "54001"),
        (nested("EXISTS (SELECT ", ")", 15), "54001"),
        (nested("(SELECT ", ")", 40), "54001"),
        (format!("SELECT 1{}", " + 1".repeat(299)), "54001"),
        (format!("SELECT 'a'{}", " || 'a'".repeat(1_500)), "54001"),
        (format!("SELECT CASE{} END", " WHEN a THEN 1".repeat(1_200)), "54001"),
        (format!("SELECT 1 WHERE true{}", " OR true".repeat(10_000)), "54001"),
        (format!("SELECT 1 WHERE (a, b) IN ((1, 2){})", ", (1, 2)".repeat(6_000)), "54001"),
        (format!("SELECT 1 FROM t{joins}"), "54001"),
        (format!("SELECT 1{}", ", 1".repeat(1_700)), "54011"),
        (
            format!(
                "CREATE TABLE t (a0 int{})",
                (1..1_700).map(|at| format!(", a{at} int")).collect::<Vec<_>>().concat()
            ),
            "54011",
        ),
        (format!("SELECT 1 IN (1{})", ", 1".repeat(1_000_000)), "54000"),
        (format!("INSERT INTO t VALUES (1){}", ", (1)".repeat(1_000_000)), "54000"),
    ] {
        let error = refused(&sql).map(|error| error.sqlstate.to_string());
        assert_eq!(error.as_deref(), Some(state), "{}", &sql[..sql.len().min(60)]);
    }
    // What is large and honest passes.
    for sql in [
        format!("SELECT 1 IN (1{})", ", 1".repeat(100_000)),
        format!("INSERT INTO t VALUES (1, 'x'){}", ", (1, 'x')".repeat(50_000)),
        format!("SELECT 1 WHERE a = 0{}", " OR a = 1".repeat(1_400)),
        format!(
            "SELECT 1 FROM t{}",
            (0..100).map(|at| format!(" JOIN t t{at} ON t{at}.a = t.a")).collect::<Vec<_>>().concat()
        ),
        format!("{}SELECT 1{}", "SELECT EXISTS (".repeat(10), ")".repeat(10)),
    ] {
        assert_eq!(refused(&sql), None, "{}", &sql[..sql.len().min(60)]);
    }
}

/// What stands around a statement is not read, and what the tokenizer keeps of a comment within it is one token.
#[test]
fn comments_and_blanks_are_no_tokens_and_cost_what_is_kept_of_them() {
    let engine = EngineOptions {
        workers: 1,
        nodes: 1,
        memory_limit_bytes: 256 << 20,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(engine, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("SET max_statement_tokens = 100");
    let comment = format!("/* {} */", "x y ".repeat(500_000));
    let blanks = " ".repeat(3_000_000);
    for (text, what) in [
        (format!("{comment} SELECT 1"), "a comment before"),
        (format!("SELECT 1 {comment}"), "a comment after"),
        (format!("SELECT {comment} 1"), "a comment within"),
        (format!("-- {comment}\nSELECT 1"), "a line of comment before"),
        (format!("{blanks}SELECT 1"), "blanks before"),
        (format!("SELECT 1{blanks}; {comment}"), "blanks after"),
    ] {
        match client.run(&text) {
            Ok(answer) => assert_eq!(answer.rows, [[Some("1".to_string())]], "{what}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    // Blanks within a statement are not counted, but the tokenizer holds each.
    assert_eq!(error(&mut client, &format!("SELECT{blanks}1")).sqlstate.as_str(), "53200");
    assert_eq!(error(&mut client, &format!("SELECT 1{}", " + 1".repeat(60))).sqlstate.as_str(), "54000");
}

/// A bound that is set low refuses what is above it in this session; the session goes on, and others are as before.
#[test]
fn each_bound_is_a_setting_of_the_session() {
    let instance = instance();
    let (mut client, mut other) = (instance.session(), instance.session());
    let list = |items: usize| format!("SELECT 1 IN (0{})", ", 0".repeat(items - 1));
    let doubled = "WITH a AS (SELECT 1 AS x), b AS (SELECT p.x FROM a p, a q), c AS (SELECT p.x FROM b p, b q), \
                   d AS (SELECT p.x FROM c p, c q) SELECT count(*) FROM d";
    let text = format!("SELECT length('{}')", "x".repeat(2_000));
    let brackets = format!("SELECT {}1{}", "(".repeat(40), ")".repeat(40));
    let conditions = format!("SELECT id FROM orders WHERE id = 1{}", " OR id = 2".repeat(21));
    // The least and the most that the setting takes, and between them a value that refuses the statement.
    for (setting, [least, low, most], sql, state, answer) in [
        ("max_text_bytes", [1_000, 2_000, 256 << 20], text, "54000", "2000"),
        ("max_text_statements", [1, 2, 10_000_000], "SELECT 1; SELECT 2; SELECT 3".to_owned(), "54000", "3"),
        ("max_statement_tokens", [100, 100, 32_000_000], list(101), "54000", "f"),
        ("max_list_items", [10, 20, 10_000_000], list(21), "54000", "f"),
        ("max_nesting", [10, 20, 100], brackets, "54001", "1"),
        ("max_nesting", [10, 20, 100], format!("SELECT {}true", "NOT ".repeat(40)), "54001", "t"),
        ("max_expression_terms", [10, 20, 3_000], format!("SELECT 1{}", " + 1".repeat(21)), "54001", "22"),
        ("max_conditions", [10, 20, 10_000], conditions, "54001", "1"),
        ("max_relations", [1, 2, 1_000], "SELECT count(*) FROM orders a, orders b, orders c".to_owned(), "54001", "1"),
        ("max_columns", [1, 4, 16_384], "SELECT 1, 2, 3, 4, 5".to_owned(), "54011", "1|2|3|4|5"),
        ("max_plan_parts", [100, 100, 100_000_000], list(201), "54001", "f"),
        ("max_plan_parts", [100, 100, 100_000_000], doubled.to_owned(), "54001", "1"),
    ] {
        client.ok(&format!("SET {setting} = {low}"));
        let unit = if setting == "max_text_bytes" { "B" } else { "" };
        assert_eq!(client.rows(&format!("SHOW {setting}")), [format!("{low}{unit}")]);
        let refused = error(&mut client, &sql);
        assert_eq!(refused.sqlstate.as_str(), state, "{setting}: {refused}");
        let hint = refused.hint.clone().unwrap_or_default();
        let names_it = hint.contains(setting) && refused.message.contains(&format!("at most {low} "));
        // The parser itself refuses nesting, and does not know of settings.
        assert!(names_it || setting == "max_nesting", "{refused}");
        assert_eq!(client.rows("SELECT count(*), min(customer) FROM orders"), ["1|Ada"], "after {setting}");
        for value in [(least - 1).to_string(), (most + 1).to_string(), "-1".to_owned(), "'many'".to_owned()] {
            assert_eq!(client.state(&format!("SET {setting} = {value}")), "22023", "{setting} = {value}");
        }
        assert_eq!(other.rows(&sql), [answer], "the bound of {setting} is that of one session");
        for value in [least, most] {
            client.ok(&format!("SET {setting} = {value}"));
        }
        client.ok(&format!("RESET {setting}"));
        assert_eq!(client.rows(&sql), [answer], "after RESET {setting}");
    }
}
