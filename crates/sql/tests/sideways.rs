//! Filters that build sides pass sideways change no answer: queries of every shape, with constants that leave many
//! rows, few or none, against the lane that knows no such filters; and EXPLAIN shows where they are.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use eris_platform::SeededRandom;
use eris_sql::DatabaseOptions;
use support::{Client, Instance};

const PARTS: u64 = 400;

/// Parts of 40 brands, of which brand 7 is not there; lines of parts, some unknown; few makers.
fn load(client: &mut Client) {
    let mut random = SeededRandom::new(17);
    client.ok("CREATE TABLE part (id int PRIMARY KEY, brand int, twin int, name text) WITH (segment_rows = 128)");
    client.ok("CREATE TABLE line (id bigint PRIMARY KEY, part int, name text, maker int, n int, price numeric(12, 2))
               WITH (segment_rows = 512)");
    client.ok("CREATE TABLE maker (id int PRIMARY KEY, land int)");
    let nullable = |random: &mut SeededRandom, value: String| if random.below(12) == 0 { String::new() } else { value };
    let name = |id: u64| if id.is_multiple_of(3) { format!("p{id}") } else { format!("a part of number {id}") };
    let part = |id| {
        let brand = match random.below(40) {
            7 => 8,
            brand => brand,
        };
        let (twin, brand) = (random.below(PARTS), brand.to_string());
        let (twin, brand) = (nullable(&mut random, twin.to_string()), nullable(&mut random, brand));
        format!("{id},{brand},{twin},{}\n", name(id))
    };
    copy(client, "part", (0..PARTS).map(part));
    let line = |id| {
        let part = random.below(PARTS + 20);
        let own = nullable(&mut random, part.to_string());
        let named = nullable(&mut random, name(part));
        let (maker, n, price) = (random.below(30), random.below(50), random.below(90_000));
        format!("{id},{own},{named},{maker},{n},{}.{:02}\n", price / 100, price % 100)
    };
    copy(client, "line", (0..6_000).map(line));
    copy(client, "maker", (0..30).map(|id| format!("{id},{}\n", id % 6)));
}

fn copy(client: &mut Client, table: &str, lines: impl Iterator<Item = String>) {
    let lines = lines.collect::<Vec<String>>().concat();
    client.run_with(&format!("COPY {table} FROM STDIN (FORMAT csv)"), &[], Some(&lines)).unwrap();
}

/// Queries about brand `$B`, and whether a filter is passed in them when that brand is rare.
const QUERIES: &[(&str, bool)] = &[
    // A group of everything, of which one brand is asked for.
    (
        "SELECT sum(l.price), count(*) FROM line l JOIN part p ON p.id = l.part
         WHERE p.brand = $B AND l.n < (SELECT 0.5 * avg(x.n) FROM line x WHERE x.part = p.id)",
        true,
    ),
    (
        "SELECT p.id, t.n FROM part p JOIN (SELECT part, count(*) n FROM line GROUP BY part) t ON t.part = p.id
      WHERE p.brand = $B",
        true,
    ),
    (
        "SELECT p.id, t.n FROM part p LEFT JOIN (SELECT part, count(*) n FROM line GROUP BY part) t ON t.part = p.id
      WHERE p.brand = $B",
        true,
    ),
    (
        "SELECT p.id, t.part, t.n FROM (SELECT id FROM part WHERE brand = $B) p
      RIGHT JOIN (SELECT part, count(*) n FROM line GROUP BY part) t ON t.part = p.id",
        false,
    ),
    (
        "SELECT p.id, t.part, t.n FROM (SELECT id FROM part WHERE brand = $B) p
      FULL JOIN (SELECT part, count(*) n FROM line GROUP BY part) t ON t.part = p.id",
        false,
    ),
    // Not the column that is grouped by; a key that is computed; a text; two keys.
    (
        "SELECT p.id, t.m FROM part p JOIN (SELECT max(part) m, id FROM line GROUP BY id) t ON t.m = p.id
      WHERE p.brand = $B",
        false,
    ),
    (
        "SELECT p.id, t.n FROM part p JOIN (SELECT part + 1 k, count(*) n FROM line GROUP BY part + 1) t ON t.k = p.id
      WHERE p.brand = $B",
        false,
    ),
    (
        "SELECT p.name, t.n FROM part p JOIN (SELECT name, count(*) n FROM line GROUP BY name) t ON t.name = p.name
      WHERE p.brand = $B",
        true,
    ),
    (
        "SELECT p.id, t.c FROM part p JOIN (SELECT part, n, count(*) c FROM line GROUP BY part, n) t
      ON t.part = p.id AND t.n = p.brand WHERE p.brand = $B",
        true,
    ),
    // NULLs that are equal.
    (
        "SELECT p.id, t.part, t.c FROM (SELECT id, twin FROM part WHERE brand = $B) p
      JOIN (SELECT part, count(*) c FROM line GROUP BY part) t ON t.part IS NOT DISTINCT FROM p.twin",
        false,
    ),
    // Limits keep what they would without a filter; sorted and distinct rows do not mind.
    (
        "SELECT p.id, t.n FROM part p JOIN (SELECT part, n FROM line ORDER BY id LIMIT 900) t ON t.part = p.id
      WHERE p.brand = $B",
        false,
    ),
    (
        "SELECT p.id, t.n FROM part p JOIN (SELECT DISTINCT part, n FROM line) t ON t.part = p.id
      WHERE p.brand = $B",
        true,
    ),
    // Unions; what two read.
    (
        "SELECT p.id, u.v FROM part p JOIN (SELECT part k, sum(n) v FROM line GROUP BY part
      UNION ALL SELECT twin, sum(id) FROM part GROUP BY twin) u ON u.k = p.id WHERE p.brand = $B",
        true,
    ),
    (
        "WITH g AS (SELECT part, sum(n) q FROM line GROUP BY part)
      SELECT p.id, g.q FROM g JOIN part p ON p.id = g.part
      WHERE p.brand = $B AND g.q > (SELECT 0.9 * avg(q) FROM g)",
        false,
    ),
    // Existence, and its opposite.
    (
        "SELECT p.id FROM part p WHERE p.brand = $B AND EXISTS
         (SELECT 1 FROM line l WHERE l.part = p.id AND l.n > p.twin)",
        false,
    ),
    (
        "SELECT p.id FROM part p WHERE p.brand = $B AND NOT EXISTS
      (SELECT 1 FROM line l WHERE l.part = p.id AND l.n > p.twin)",
        false,
    ),
    (
        "SELECT count(*) FROM line l WHERE l.part IN (SELECT part FROM line GROUP BY part HAVING sum(n) > 350)
      AND l.part IN (SELECT id FROM part WHERE brand = $B)",
        false,
    ),
    ("SELECT count(*) FROM line l WHERE l.part NOT IN (SELECT id FROM part WHERE brand = $B)", false),
    (
        "SELECT count(*) FROM line l JOIN maker m ON m.id = l.maker WHERE m.land = 3
      AND EXISTS (SELECT 1 FROM line x WHERE x.part = l.part AND x.maker <> l.maker AND x.n < 3)
      AND NOT EXISTS (SELECT 1 FROM line x WHERE x.part = l.part AND x.maker <> l.maker AND x.n = 5)",
        false,
    ),
    // The key is a column of the other side of an outer join.
    (
        "SELECT l.id, p.id, q.id FROM line l LEFT JOIN part p ON p.id = l.part
      JOIN (SELECT id, brand FROM part WHERE brand = $B) q ON q.id = p.twin WHERE l.n < 20",
        false,
    ),
    (
        "SELECT l.id, m.id, p.id FROM maker m LEFT JOIN line l ON l.maker = m.id AND l.n < 25
      JOIN part p ON p.id = l.part WHERE p.brand = $B",
        false,
    ),
    // Two build sides by one key: a least value of each part, before and behind the probe that loses rows.
    (
        "SELECT l.id, p.id FROM line l JOIN part p ON p.id = l.part
      WHERE p.brand = $B AND l.price = (SELECT min(x.price) FROM line x WHERE x.part = p.id)",
        true,
    ),
    (
        "SELECT l.id, p.id, t.c FROM line l JOIN part p ON p.id = l.part
      LEFT JOIN (SELECT part, count(*) c FROM line WHERE n < 20 GROUP BY part) t ON t.part = l.part
      WHERE p.brand = $B",
        true,
    ),
    (
        "SELECT l.id, p.id FROM line l JOIN part p ON p.id = l.part WHERE p.brand = $B
      AND l.part NOT IN (SELECT part FROM line WHERE n = 7 AND part IS NOT NULL GROUP BY part)",
        false,
    ),
    (
        "SELECT l.id, p.id, t.part FROM line l JOIN part p ON p.id = l.part
      FULL JOIN (SELECT part, count(*) c FROM line WHERE n < 20 GROUP BY part) t ON t.part = l.part AND p.brand = $B",
        false,
    ),
    (
        "SELECT l.id, p.id FROM line l JOIN part p ON p.id = l.part WHERE p.brand = $B
      AND NOT EXISTS (SELECT 1 FROM line x WHERE x.part = l.part AND x.n = 7)",
        false,
    ),
    // Marks.
    ("SELECT p.id, p.id IN (SELECT part FROM line WHERE n = 3) FROM part p WHERE p.brand = $B", false),
];

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[test]
fn filters_that_are_passed_change_no_answer() {
    for (workers, options) in [
        (2, DatabaseOptions::default()),
        (1, DatabaseOptions { layout: eris_storage::Layout::Column, ..DatabaseOptions::default() }),
    ] {
        let instance = Instance::start(workers, 1, options);
        let mut client = instance.session();
        load(&mut client);
        for (query, is_passed) in QUERIES {
            for brand in ["3", "7", "38", "NULL", "brand", "8 AND false"] {
                let query = query.replace("$B", brand);
                let answer = client.run(&query).unwrap_or_else(|error| panic!("{query}\n{error}"));
                assert!(answer.native, "{query}");
                let found = sorted(answer.rows.iter().map(|row| support::joined(row)).collect());
                if brand == "3" {
                    let plan = client.rows(&format!("EXPLAIN {query}")).join("\n");
                    assert!(!is_passed || plan.contains("filter passed from stage"), "{query}\n{plan}");
                    assert!(!found.is_empty(), "{query}\n{plan}");
                }
                client.ok("SET native = off");
                assert_eq!(found, sorted(client.rows(&query)), "{query}");
                client.ok("SET native = on");
            }
        }
    }
}
