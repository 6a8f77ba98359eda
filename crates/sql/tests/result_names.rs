//! What the columns of results are called, as PostgreSQL 15 calls them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_sql::DatabaseOptions;
use support::Instance;

const NAMES: &[(&str, &str)] = &[
    ("SELECT k, k + 1, count(*), k::bigint, k AS \"K\" FROM a GROUP BY k", "k ?column? count k K"),
    // Beside `*` a name may come twice.
    ("SELECT *, x || '!' AS x, 1 AS one FROM a ORDER BY one", "k x x one"),
    ("SELECT 'x' AS k, * FROM a", "k k x"),
    ("SELECT b.*, k AS y FROM a FULL JOIN b USING (k)", "k y y"),
    // Merged columns come first, and keep their name whatever they stand for.
    ("SELECT * FROM a FULL JOIN b USING (k)", "k x y"),
    ("SELECT * FROM b NATURAL RIGHT JOIN a", "k y x"),
    ("SELECT x, k, a.k, k + 1 FROM a FULL JOIN b USING (k)", "x k k ?column?"),
    ("SELECT k::text, (k) FROM a FULL JOIN b USING (k)", "k k"),
    ("SELECT b.*, k, a.* FROM a FULL JOIN b USING (k) ORDER BY a.k", "k y k k x"),
    ("SELECT -k AS k, a.x FROM a ORDER BY a.k", "k x"),
    ("SELECT count(*) AS k FROM a GROUP BY a.k ORDER BY k, a.k", "k"),
    ("SELECT * FROM a JOIN b ON a.k = b.k", "k x k y"),
    ("SELECT * FROM (SELECT * FROM a FULL JOIN b USING (k)) AS s, b", "k x y k y"),
    ("SELECT k FROM a FULL JOIN b USING (k) UNION SELECT 1", "k"),
];

#[test]
fn columns_have_the_names_that_postgresql_gives_them() {
    let instance = Instance::start(1, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE a (k int, x text); CREATE TABLE b (k int, y text)");
    for (query, names) in NAMES {
        assert_eq!(client.ok(query).columns.join(" "), *names, "{query}");
    }
}
