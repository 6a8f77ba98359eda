//! How comparisons with subqueries and set operations are planned: by extremes, by keys, each thing once. Their answers
//! are tested in `slt/quantified.slt` and `slt/set_operations.slt`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_sql::DatabaseOptions;
use support::Instance;

/// Queries, parts of lines that EXPLAIN has, and how many scans it has.
const PLANS: &[(&str, &[&str], usize)] = &[
    ("SELECT id FROM t WHERE x > ANY (SELECT y FROM u)", &["Group by []: Min(#0)", "UnorderedScan t where x > $1"], 2),
    ("SELECT id FROM t WHERE NOT x >= ALL (SELECT y FROM u)", &["Max(#0)", "UnorderedScan t where x < $1"], 2),
    // The extreme and the numbers of rows and of NULLs come from one stage, and each of them is a parameter once.
    (
        "SELECT id FROM t WHERE x >= ALL (SELECT y FROM u)",
        &["Group by []: Max(#0), CountAll(*), Count(#0)", "filter: (($1) is false) or ((#1 >= $2) and ($1))"],
        2,
    ),
    ("SELECT id, x = ALL (SELECT y FROM u) FROM t", &["Group by []: Min(#0), Max(#0), CountAll(*), Count(#0)"], 2),
    ("SELECT id FROM t WHERE x < ALL (SELECT id FROM u)", &["filter: (#1 < $1) or ($1 is null)"], 2),
    // A key beside the inequality: the extreme of each key.
    (
        "SELECT id FROM t WHERE x > ANY (SELECT y FROM u WHERE u.k = t.k)",
        &["Group by [#0]: Min(#1)", "Semi by #1 if #3 < #2"],
        2,
    ),
    ("SELECT id FROM t WHERE x <= ALL (SELECT id FROM u WHERE u.k = t.id)", &["Group by [#1]: Min(#0)", "Anti by"], 3),
    // Rows are keys of a join, and only what may be NULL is asked for.
    ("SELECT id FROM t WHERE (id, x) IN (SELECT k, y FROM u)", &["Semi by #0, #1"], 2),
    ("SELECT id FROM t WHERE (id, id) NOT IN (SELECT id, id FROM u)", &["Anti by"], 2),
    ("SELECT id, (id, x) IN (SELECT id, id FROM u) FROM t", &["Mark", "case when #2 then true when"], 3),
    ("SELECT x FROM t EXCEPT ALL SELECT y FROM u", &["Window by [#0]: RowNumber()", "Anti by #0 if #1 <= #2"], 2),
    ("SELECT x FROM t INTERSECT ALL SELECT y FROM u", &["Window by [#0]: RowNumber()", "Semi by #0 if #1 <= #2"], 2),
    ("SELECT DISTINCT x FROM t EXCEPT ALL SELECT y FROM u", &["Anti by #0  ["], 2),
];

/// How often is asked whether the rows are expected.
const ASKED_MAX: usize = 1_000;

#[test]
fn plans_do_no_more_than_they_must() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, k int, x int)");
    client.ok("CREATE TABLE u (id int PRIMARY KEY, k int, y int)");
    for table in ["t", "u"] {
        let rows: Vec<String> = (0..50).map(|id| format!("({id}, {}, {})", id % 5, id * 7 % 50)).collect();
        client.ok(&format!("INSERT INTO {table} VALUES {}", rows.join(", ")));
    }
    // Which side of a join is built depends on how many rows are expected, and right behind an INSERT none may be.
    for distinct in ["SELECT DISTINCT x FROM t", "SELECT DISTINCT y FROM u"] {
        let mut expects = || client.rows(&format!("EXPLAIN {distinct}")).join("\n").contains("(about 50 rows come)");
        assert!((0..ASKED_MAX).any(|_| expects()), "the rows are never expected: {distinct}");
    }
    for (sql, parts, scans) in PLANS {
        let plan = client.rows(&format!("EXPLAIN {sql}")).join("\n");
        assert!(plan.ends_with("Lane: native"), "{sql}\n{plan}");
        for part in *parts {
            assert!(plan.contains(part), "no {part}: {sql}\n{plan}");
        }
        assert_eq!(plan.matches("UnorderedScan").count(), *scans, "scans: {sql}\n{plan}");
    }
}

/// Equal subqueries are one parameter, those that are not the same each time are several.
#[test]
fn a_subquery_is_asked_once() {
    let instance = Instance::start(2, 1, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, x int)");
    client.ok("INSERT INTO t VALUES (1, 1), (2, 5)");
    for (value, parameters) in [("max(x)", 1), ("max(x + random())", 2)] {
        let subquery = format!("(SELECT {value} FROM t)");
        let plan = client.rows(&format!("EXPLAIN SELECT id + {subquery} FROM t WHERE id < {subquery}")).join("\n");
        assert_eq!(plan.matches("its value is").count(), parameters, "{plan}");
    }
}
