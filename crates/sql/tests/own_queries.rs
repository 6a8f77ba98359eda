//! Queries with joins, groups and subqueries in FROM that our own binder binds and our own rules make cheaper, beside
//! the same queries bound and optimised by DataFusion.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_sql::DatabaseOptions;
use support::{Answer, Client, Instance};

const TABLES: &str = "
    CREATE TABLE t (
        id int PRIMARY KEY, g smallint, b bigint, n numeric(12, 2), r real, f double precision, d date, ts timestamp,
        x text, v varchar(8), c char(4), q boolean
    );
    INSERT INTO t VALUES
        (1, 1, 10000000000, 1.50, 1.5, 1.25, '2020-01-31', '2020-01-01 10:00:00', 'abc', 'abc', 'ab', true),
        (2, 1, -5, -2.25, -0.5, 1e10, '2019-12-31', '2020-01-02', 'abd', 'b', 'cd', false),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (4, 2, 7, 99.99, 0, 0, '1970-01-01', '1970-01-01', '', 'ä%_', 'zz', true),
        (5, 2, 5, 5, 5, 5, '2020-01-05', '2020-01-05', '5', '5', '5', false),
        (6, NULL, 5, 5, 5, 5, '2020-01-05', '2020-01-05', 'abc', 'abc', 'ab', NULL);
    CREATE TABLE u (id bigint PRIMARY KEY, o int, m numeric(10, 4), w varchar(20), k date);
    INSERT INTO u VALUES
        (10, 1, 1.5, 'abc', '2020-01-31'), (11, 1, 2.25, 'b', '2019-12-31'), (12, 2, -2.25, NULL, NULL),
        (13, 4, 5, '5', '1970-01-01'), (14, 9, 5, 'none', '2020-01-05'), (15, NULL, NULL, 'null', NULL);
    CREATE TABLE e (id int PRIMARY KEY, x text);
    CREATE TABLE many (id int PRIMARY KEY, g int, h text, n numeric(9, 3))";

const QUERIES: &[&str] = &[
    // Groups.
    "SELECT count(*), count(g), count(1), count(DISTINCT g), count(NULL::int) FROM t",
    "SELECT sum(g), sum(id), sum(b), sum(n), sum(r), sum(f) FROM t",
    "SELECT avg(g), avg(b), avg(n), avg(f), avg(DISTINCT n) FROM t",
    "SELECT min(id), max(b), min(n), max(f), min(d), max(ts), min(x), max(v), bool_and(q), bool_or(q), every(q) FROM t",
    "SELECT g, count(*) FROM t GROUP BY g",
    "SELECT g AS h, count(*) AS c FROM t GROUP BY h ORDER BY c DESC, h",
    "SELECT g + 1, sum(n * 2) - 1 FROM t GROUP BY g + 1 ORDER BY 1 NULLS FIRST",
    "SELECT g, q, max(x) FROM t GROUP BY 1, 2 ORDER BY g, q",
    "SELECT g, sum(n) FROM t GROUP BY g HAVING sum(n) > 0 ORDER BY sum(n)",
    "SELECT g FROM t GROUP BY g HAVING count(*) > 1 AND g < 2",
    "SELECT count(*) FROM t HAVING count(*) > 100",
    "SELECT 'x' AS a, count(*) FROM t WHERE id > 100",
    "SELECT max(id) FROM t WHERE false",
    "SELECT g, max(id) FROM t WHERE false GROUP BY g",
    "SELECT sum(n) FILTER (WHERE q), count(*) FILTER (WHERE g = 1) FROM t",
    "SELECT CASE WHEN g = 1 THEN 'one' ELSE 'more' END AS k, count(*) FROM t GROUP BY k",
    "SELECT extract(year FROM d) AS y, count(*) FROM t GROUP BY y ORDER BY y",
    "SELECT substring(x FROM 1 FOR 2), count(*) FROM t GROUP BY substring(x FROM 1 FOR 2)",
    "SELECT sum(CASE WHEN x = 'abc' THEN n ELSE 0 END) / sum(n) FROM t",
    "SELECT 100.0 * sum(CASE WHEN x LIKE 'ab%' THEN n * (1 - m) ELSE 0 END) / sum(n * m) FROM t, u WHERE t.id = o",
    "SELECT g, g, count(*), count(*) + 1 FROM t GROUP BY g, g",
    "SELECT count(*) FROM e",
    "SELECT x, sum(id) FROM e GROUP BY x",
    "SELECT count(*)",
    "SELECT 1 AS one WHERE false",
    "SELECT sum(id) FROM many WHERE h LIKE 'h1%' AND n BETWEEN 10 AND 500.5",
    "SELECT g, h, count(*), sum(n), min(id) FROM many GROUP BY g, h ORDER BY g, h LIMIT 20 OFFSET 3",
    "SELECT sum(b * 1000000000) FROM t",
    "SELECT max(1 / (id - 3)) FROM t",
    // DISTINCT.
    "SELECT DISTINCT g FROM t",
    "SELECT DISTINCT g, q FROM t ORDER BY 2, 1 LIMIT 3",
    "SELECT DISTINCT count(*) FROM t GROUP BY g",
    "SELECT ALL g FROM t",
    // Order of many rows.
    "SELECT id, n FROM many ORDER BY g, n DESC LIMIT 5",
    "SELECT id FROM many ORDER BY h DESC, id OFFSET 4990",
    "SELECT id, g FROM many WHERE id < 50 ORDER BY n * -1",
    // Joins.
    "SELECT t.id, u.id FROM t, u WHERE t.id = u.o",
    "SELECT t.x, w FROM t JOIN u ON t.id = u.o AND m > 1.5",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o AND u.m > 2 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o AND t.g = 1 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o WHERE u.m > 2",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o WHERE u.id IS NULL ORDER BY t.id",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.id = u.o WHERE u.m > 2 OR t.g = 2 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t RIGHT JOIN u ON t.id = u.o ORDER BY 2",
    "SELECT t.id, u.id FROM t RIGHT JOIN u ON t.id = u.o WHERE t.g = 1",
    "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.o ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.o WHERE t.id > 1 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.o WHERE u.m > 1 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t FULL JOIN u ON t.id = u.o WHERE u.m > 1 AND t.g = 1 ORDER BY 1, 2",
    "SELECT t.id, u.id FROM t CROSS JOIN u WHERE t.id < 3",
    "SELECT a.id, b.id FROM t a, t b WHERE a.g = b.g AND a.id < b.id",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.n = b.f AND a.v = b.x",
    "SELECT t.id, u.id FROM t JOIN u ON n = m",
    "SELECT t.id, u.id FROM t JOIN u ON n + 0.5 = m - 0.5 OR x = w",
    "SELECT t.id, u.id FROM t JOIN u ON d = k AND v = w",
    "SELECT t.id, u.id FROM t JOIN u ON t.id + 9 = u.id",
    "SELECT t.id, u.id FROM t JOIN u ON t.id < u.o",
    "SELECT t.id, m FROM t JOIN u ON (t.id = u.o AND g = 1) OR (t.id = u.o AND m = 5)",
    "SELECT t.id, m FROM t, u WHERE (t.id = u.o AND g = 1 AND m > 0) OR (t.id = u.o AND g = 2 AND m > 4)",
    "SELECT t.id, m FROM t, u WHERE (x = 'abc' AND w = 'b') OR (x = '5' AND w = 'abc')",
    "SELECT g, sum(m), count(u.id) FROM t LEFT JOIN u ON t.id = u.o GROUP BY g ORDER BY g",
    "SELECT u.* FROM t, u WHERE t.id = u.o AND t.id = 1 ORDER BY u.id",
    "SELECT * FROM t JOIN u ON t.id = u.o ORDER BY t.id DESC, u.id LIMIT 2",
    "SELECT a.id, b.id, c.id FROM t a JOIN u b ON a.id = b.o JOIN t c ON c.g = a.g WHERE c.n > 0",
    "SELECT a.id FROM t a LEFT JOIN (u b JOIN t c ON b.o = c.id) ON a.id = c.id AND b.m > 0 ORDER BY a.id",
    "SELECT m.id FROM many m, t WHERE m.id = t.id AND m.g = t.g",
    "SELECT count(*) FROM many a, many b WHERE a.g = b.g AND a.id < 100 AND b.h = 'h3'",
    "SELECT count(*) FROM many a JOIN many b ON a.id = b.id * 2 WHERE b.n > 100",
    "SELECT t.id FROM e, t",
    "SELECT t.id, e.x FROM t LEFT JOIN e ON true ORDER BY 1",
    "SELECT t.id FROM t JOIN u ON true WHERE 1 = 0",
    // Subqueries in FROM.
    "SELECT y, count(*) FROM (SELECT extract(year FROM d) AS y, n FROM t) AS s GROUP BY y ORDER BY y",
    "SELECT s.c, t.id FROM (SELECT g, count(*) AS c FROM t GROUP BY g) AS s JOIN t ON t.g = s.g ORDER BY t.id",
    "SELECT * FROM (SELECT id, g FROM t ORDER BY id DESC LIMIT 3) AS s WHERE g = 2",
    "SELECT a, b FROM (SELECT id, n FROM t) AS s (a, b) WHERE b > 1 ORDER BY a",
    "SELECT c, count(*) FROM (SELECT t.id, count(u.id) FROM t LEFT JOIN u ON t.id = u.o GROUP BY t.id) AS s (id, c)
     GROUP BY c ORDER BY 2 DESC, 1",
    "SELECT max(c) FROM (SELECT g, sum(n) AS c FROM t GROUP BY g) AS s WHERE g = 1",
    "SELECT * FROM (SELECT DISTINCT g, q FROM t) AS s WHERE g IS NOT NULL ORDER BY g, q",
    "SELECT x.id FROM (SELECT id FROM t WHERE q) AS x, (SELECT o FROM u) AS y WHERE x.id = y.o",
    "SELECT (s).id FROM (SELECT id FROM t) AS s ORDER BY 1",
    // Subqueries.
    "SELECT id FROM t WHERE id IN (SELECT o FROM u)",
    "SELECT id FROM t WHERE id IN (SELECT o FROM u WHERE m > 2) AND g = 1",
    "SELECT id FROM t WHERE id NOT IN (SELECT o FROM u)",
    "SELECT id FROM t WHERE id NOT IN (SELECT o FROM u WHERE o IS NOT NULL)",
    "SELECT id FROM t WHERE g NOT IN (SELECT o FROM u WHERE o = 2)",
    "SELECT id FROM t WHERE g NOT IN (SELECT o FROM u WHERE false)",
    "SELECT id FROM t WHERE NOT (g IN (SELECT u.o FROM u WHERE u.id > t.b))",
    "SELECT id FROM t WHERE g NOT IN (SELECT u.o FROM u WHERE u.w = t.x)",
    "SELECT id FROM t WHERE (SELECT max(o) FROM u) NOT IN (SELECT g FROM t WHERE g IS NOT NULL)",
    "SELECT id, NULL::int IN (SELECT o FROM u) FROM t ORDER BY id",
    "SELECT id FROM t WHERE 5 NOT IN (SELECT o FROM u)",
    "SELECT id FROM t WHERE 5 NOT IN (SELECT o FROM u WHERE o IS NOT NULL)",
    "SELECT a.id FROM t a, t b WHERE a.id = b.id AND 4 IN (SELECT o FROM u)",
    "SELECT id, 4 IN (SELECT o FROM u), 5 IN (SELECT o FROM u) FROM t ORDER BY id",
    "SELECT id FROM t WHERE d NOT IN (SELECT ts FROM t WHERE ts IS NOT NULL)",
    "SELECT id FROM t WHERE n NOT IN (SELECT id FROM u)",
    "SELECT id FROM t WHERE NOT (n IN (SELECT m FROM u WHERE m IS NOT NULL))",
    "SELECT id FROM t WHERE n IN (SELECT m FROM u)",
    "SELECT id FROM t WHERE x IN (SELECT w FROM u) OR g = 2",
    "SELECT id, x IN (SELECT w FROM u WHERE w IS NOT NULL), g IN (SELECT o FROM u) FROM t ORDER BY id",
    "SELECT id, g NOT IN (SELECT o FROM u) FROM t ORDER BY id",
    "SELECT id FROM t WHERE id IN (SELECT u.o FROM u WHERE u.w = t.x)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.o = t.id)",
    "SELECT id FROM t WHERE EXISTS (SELECT * FROM u WHERE u.o = t.id AND u.m > 2)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.o = t.id)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.o = t.id AND u.m <> t.n)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.o = t.id AND u.m > t.n)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.o = t.id AND t.n <= u.m)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.o < t.id)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.o = t.id) = (g = 1)",
    "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.o = t.id AND m > 2) AS e FROM t ORDER BY id",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM e)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM e)",
    "SELECT id FROM t WHERE EXISTS (SELECT o FROM u WHERE u.o = t.id GROUP BY o HAVING count(*) > 1)",
    "SELECT id FROM t WHERE id IN (SELECT o FROM u GROUP BY o HAVING sum(m) > 3)",
    "SELECT id FROM t WHERE n > (SELECT avg(m) FROM u)",
    "SELECT id FROM t WHERE n = (SELECT max(m) FROM u WHERE w = 'nothing')",
    "SELECT (SELECT count(*) FROM u), (SELECT max(w) FROM u) AS w, id FROM t WHERE id < 3",
    "SELECT (SELECT id FROM u)",
    "SELECT (SELECT x FROM t WHERE id = 3), (SELECT x FROM t WHERE id = 99)",
    "SELECT g, count(*) FROM t GROUP BY g HAVING count(*) >= (SELECT count(*) / 3 FROM u) ORDER BY g",
    "SELECT id FROM t WHERE n > (SELECT avg(m) FROM u WHERE u.o = t.id)",
    "SELECT id, (SELECT sum(m) FROM u WHERE u.o = t.id) FROM t ORDER BY id",
    "SELECT id, (SELECT count(*) FROM u WHERE u.o = t.id) FROM t ORDER BY id",
    "SELECT id FROM t WHERE (SELECT count(*) FROM u WHERE u.o = t.id) = 0",
    "SELECT id, (SELECT coalesce(max(m), -1) FROM u WHERE u.o = t.id) AS m FROM t ORDER BY id",
    "SELECT id, (SELECT 2 * min(m) - 1 FROM u WHERE u.o = t.id AND u.w = t.x) AS m FROM t ORDER BY id",
    "SELECT id FROM t WHERE n < 0.2 * (SELECT sum(m) FROM u, t AS s WHERE u.o = s.id AND s.g = t.g)",
    "SELECT id FROM t WHERE id IN (SELECT a.id FROM t a WHERE a.n > (SELECT avg(b.n) FROM t b WHERE b.g = a.g))",
    "SELECT s.id FROM (SELECT id, g FROM t WHERE id IN (SELECT o FROM u)) AS s JOIN u ON u.o = s.id ORDER BY u.id",
    "SELECT count(*) FROM many WHERE id IN (SELECT id * 2 FROM many) AND EXISTS (SELECT 1 FROM t WHERE t.g = many.g)",
    "SELECT m.id FROM many m WHERE m.n = (SELECT max(n) FROM many o WHERE o.g = m.g) ORDER BY 1",
    "SELECT count(*) FROM many a WHERE EXISTS (SELECT 1 FROM many b WHERE b.h = a.h AND b.id <> a.id AND b.g = 3)",
    "SELECT count(*) FROM many a WHERE NOT EXISTS (SELECT 1 FROM many b WHERE b.g = a.g AND b.id > a.id)",
    "SELECT id FROM t WHERE substring(x FROM 1 FOR 1) IN ('a', '5')",
    "SELECT id FROM t WHERE id IN (SELECT o FROM u ORDER BY m LIMIT 2)",
    // Set operations.
    "SELECT id FROM t UNION ALL SELECT o FROM u",
    "SELECT id, x FROM t UNION SELECT o, w FROM u ORDER BY 1, x",
    "SELECT g FROM t UNION SELECT id FROM u ORDER BY g DESC LIMIT 3 OFFSET 1",
    "SELECT n FROM t INTERSECT SELECT m FROM u",
    "SELECT n, x FROM t EXCEPT SELECT m, w FROM u",
    "SELECT g FROM t INTERSECT SELECT o FROM u",
    "SELECT o FROM u EXCEPT SELECT g FROM t",
    "SELECT id FROM t UNION ALL SELECT id FROM t INTERSECT SELECT o FROM u",
    "(SELECT id FROM t ORDER BY id LIMIT 2) UNION ALL (SELECT id FROM u ORDER BY id DESC LIMIT 1) ORDER BY 1",
    "SELECT * FROM (SELECT id AS i, 'a' AS k FROM t UNION ALL SELECT o, w FROM u) AS s WHERE i < 3 AND k <> 'b'",
    "SELECT k, count(*) FROM (SELECT g AS k FROM t UNION ALL SELECT o FROM u) AS s GROUP BY k ORDER BY k",
    "SELECT id FROM t WHERE id IN (SELECT o FROM u UNION SELECT g FROM t)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u UNION ALL SELECT 1 FROM e)",
    "WITH r AS (SELECT id FROM t EXCEPT SELECT o FROM u) SELECT count(*) FROM r",
    "SELECT d FROM t UNION SELECT ts FROM t ORDER BY d",
    "SELECT f FROM t UNION ALL SELECT n FROM t ORDER BY 1",
    "SELECT id FROM t UNION ALL SELECT id FROM t EXCEPT ALL SELECT 1",
    "SELECT 1 UNION SELECT 2 UNION ALL SELECT 2",
    "SELECT id FROM t INTERSECT ALL SELECT o FROM u",
    "SELECT NULL UNION SELECT 1 ORDER BY 1",
    // WITH.
    "WITH r AS (SELECT g, sum(n) AS s FROM t GROUP BY g) SELECT g FROM r WHERE s = (SELECT max(s) FROM r)",
    "WITH a AS (SELECT id, g FROM t), b (k) AS (SELECT g FROM a) SELECT id, k FROM a, b WHERE a.g = b.k ORDER BY 1, 2",
    "WITH t AS (SELECT id FROM t WHERE q) SELECT * FROM t ORDER BY id",
    "SELECT * FROM (WITH r AS (SELECT id FROM t) SELECT id + 1 AS i FROM r) AS s WHERE i > 4",
    "WITH r AS (SELECT 1 AS one) SELECT x.one, y.two FROM r AS x, r AS y (two)",
    // Moments.
    "SELECT id FROM t WHERE d >= date '2020-01-01' AND d < date '2020-01-01' + interval '1' year",
    "SELECT id FROM t WHERE d <= date '2020-03-31' - interval '1 month 29 days'",
    "SELECT id, extract(month FROM ts), extract(day FROM d) FROM t ORDER BY id",
];

/// What is bound by DataFusion still.
const NOT_YET: &[&str] = &[
    "SELECT id FROM t WHERE NOT (g IN (SELECT u.o FROM u WHERE u.id > t.b))",
    "SELECT id FROM t WHERE g NOT IN (SELECT u.o FROM u WHERE u.w = t.x)",
    "SELECT (s).id FROM (SELECT id FROM t) AS s ORDER BY 1",
    "SELECT id FROM t UNION ALL SELECT id FROM t EXCEPT ALL SELECT 1",
    "SELECT id FROM t INTERSECT ALL SELECT o FROM u",
    "SELECT NULL UNION SELECT 1 ORDER BY 1",
];

/// What a statement gives, or its SQLSTATE, and whether our own binder bound it.
fn answer(client: &mut Client, sql: &str) -> (Result<Answer, String>, bool) {
    let before = client.session().database().bound_here();
    let answer = client.run(sql).map_err(|error| error.sqlstate.to_string());
    (answer, client.session().database().bound_here() > before)
}

#[test]
fn queries_mean_what_they_mean_to_datafusion() {
    let instance = Instance::start(2, 2, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok(TABLES);
    let rows: Vec<String> =
        (1..=5_000).map(|i| format!("({i}, {}, 'h{}', {}.{:03})", i % 7, i % 11, i / 8, i % 8 * 125)).collect();
    client.ok(&format!("INSERT INTO many VALUES {}", rows.join(", ")));
    let mut differences = Vec::new();
    for sql in QUERIES {
        client.ok("SET own_binder = on");
        let (own, here) = answer(&mut client, sql);
        if here == NOT_YET.contains(sql) {
            differences.push(format!("{sql}\nbound here: {here}, {own:?}"));
        }
        client.ok("SET own_binder = off");
        let (other, here) = answer(&mut client, sql);
        assert!(!here, "own_binder = off");
        let (own, other) = (in_order(own, sql), in_order(other, sql));
        if own != other {
            differences.push(format!("{sql}\n{own:?}\n{other:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    client.ok("SET own_binder = on");
    // DataFusion wants the item itself here.
    let having = "SELECT id, (SELECT count(*) FROM u WHERE u.o = t.id HAVING count(*) <> 1),
        (SELECT 7 FROM u WHERE u.o = t.id HAVING max(m) > 2) FROM t ORDER BY id";
    let rows = client.rows(having);
    let expected = ["1|2|7", "2|NULL|NULL", "3|0|NULL", "4|NULL|7", "5|0|NULL", "6|0|NULL"];
    assert_eq!(rows, expected, "as in PostgreSQL; DataFusion forgets HAVING");
    let rows = client.rows("SELECT DISTINCT n + 1 AS m FROM t ORDER BY n + 1 DESC");
    assert_eq!(rows, ["NULL", "100.99", "6.00", "2.50", "-1.25"], "as in PostgreSQL");
}

/// An answer whose rows are sorted unless the query says how.
fn in_order(mut answer: Result<Answer, String>, sql: &str) -> Result<Answer, String> {
    if let Ok(answer) = &mut answer
        && !sql.contains("ORDER BY")
    {
        answer.rows.sort();
    }
    answer
}
