//! Names and rows commit together: in every order of two transactions, when the commit fails, and when nobody waits for
//! it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use eris_engine::{EngineOptions, Simulation};
use eris_platform::MemoryFaults;
use eris_sql::catalog::Table;
use eris_sql::{Database, DatabaseOptions, Session, SessionOptions};
use support::{Client, Instance};

fn instance() -> Instance {
    Instance::start(2, 1, DatabaseOptions::default())
}

/// The names that a database has, and those that a new one of the same engine finds.
fn names_and_rows(instance: &mut Instance) -> (Vec<String>, Vec<String>) {
    let names = |instance: &Instance| {
        instance.session().rows("SELECT relname, relkind, oid FROM pg_class WHERE relkind <> 'v' ORDER BY 1")
    };
    let before = names(instance);
    let engine = instance.database.engine().clone();
    instance.database = Database::new(engine, DatabaseOptions::default()).expect("the database opens");
    (before, names(instance))
}

/// Both agree.
fn check(instance: &mut Instance) -> Vec<String> {
    let (published, committed) = names_and_rows(instance);
    assert_eq!(published, committed, "what is published is committed, and what is committed is published");
    committed.iter().map(|name| name.split('|').next().unwrap_or_default().to_string()).collect()
}

fn begin(instance: &Instance, statements: &[&str]) -> Client {
    let mut client = instance.session();
    client.ok("BEGIN");
    for sql in statements {
        client.ok(sql);
    }
    client
}

/// Two blocks at once, ended in either order: the first COMMIT wins, the second one is told.
#[test]
fn of_two_transactions_the_second_commit_fails() {
    // The first, the second, how the second ends, the names that are left (empty: any).
    type Names = &'static [&'static str];
    let cases: [(Names, Names, &str, Names); 2] = [
        (&["CREATE TABLE t (a int)"], &["CREATE TABLE t (b int)"], "42P07", &["old", "old_n", "old_pkey", "t"]),
        (
            &["CREATE TABLE x (a int)", "CREATE TABLE y (a int)"],
            &["CREATE TABLE y (a int)", "CREATE TABLE x (a int)"],
            "42P07",
            &["old", "old_n", "old_pkey", "x", "y"],
        ),
    ];
    for (first, second, state, left) in cases {
        for swapped in [false, true] {
            let mut instance = instance();
            instance.session().ok("CREATE TABLE old (id int PRIMARY KEY, n int); CREATE INDEX old_n ON old (n)");
            let (mut first, mut second) = if swapped {
                let second = begin(&instance, second);
                (begin(&instance, first), second)
            } else {
                (begin(&instance, first), begin(&instance, second))
            };
            let (winner, loser) = if swapped { (&mut second, &mut first) } else { (&mut first, &mut second) };
            winner.ok("COMMIT");
            assert_eq!(loser.state("COMMIT"), state, "{left:?}");
            loser.ok("SELECT 1");
            drop((first, second));
            let names = check(&mut instance);
            assert!(left.is_empty() || names == left, "{names:?}, not {left:?}");
        }
    }
}

/// Two blocks that change the same table: the second waits at its statement until the first has ended, then goes by the
/// names of then.
#[test]
fn of_two_transactions_the_second_waits_for_the_table() {
    const RECREATED: [&str; 2] = ["DROP TABLE old", "CREATE TABLE old (a int)"];
    type Case = (&'static [&'static str], &'static str, Option<&'static str>, &'static [&'static str]);
    // The first, what the second says, what becomes of that if the first commits, the names that are left.
    let cases: [Case; 5] = [
        (&["DROP TABLE old"], "DROP TABLE old", Some("42P01"), &[]),
        (&RECREATED, "DROP TABLE old", None, &[]),
        (&["TRUNCATE old"], "TRUNCATE old", None, &["old", "old_n", "old_pkey"]),
        (&["DROP INDEX old_n"], "TRUNCATE old", None, &["old", "old_pkey"]),
        (
            &["CREATE INDEX more ON old (n)"],
            "CREATE INDEX most ON old (n)",
            None,
            &["more", "most", "old", "old_n", "old_pkey"],
        ),
    ];
    for (first, second, refused, left) in cases {
        let mut instance = instance();
        instance.session().ok("CREATE TABLE old (id int PRIMARY KEY, n int); CREATE INDEX old_n ON old (n)");
        let mut first = begin(&instance, first);
        let mut client = begin(&instance, &[]);
        let waiter = thread::spawn(move || {
            let state = client.run(second).err().map(|error| error.sqlstate.to_string());
            let committed = client.ok("COMMIT").tag;
            (state, committed)
        });
        let engine = instance.database.engine().clone();
        while engine.table_locks().iter().all(|lock| lock.granted) {
            assert!(!waiter.is_finished(), "{second} waits");
            thread::yield_now();
        }
        first.ok("COMMIT");
        drop(first);
        let (state, committed) = waiter.join().unwrap();
        assert_eq!(state.as_deref(), refused, "{second}");
        assert_eq!(committed, if refused.is_some() { "ROLLBACK" } else { "COMMIT" });
        assert_eq!(check(&mut instance), left, "{second}");
    }
}

#[test]
fn one_creates_what_the_other_drops() {
    for committed_first in [true, false] {
        let mut instance = instance();
        let mut creator = begin(&instance, &["CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)"]);
        let mut dropper = instance.session();
        assert_eq!(dropper.state("DROP TABLE t"), "42P01", "nobody sees it before the COMMIT");
        let mut dropper = if committed_first {
            creator.ok("COMMIT");
            begin(&instance, &["DROP TABLE t"])
        } else {
            let dropper = begin(&instance, &["DROP TABLE IF EXISTS t"]);
            creator.ok("COMMIT");
            dropper
        };
        dropper.ok("COMMIT");
        drop((creator, dropper));
        assert_eq!(check(&mut instance).is_empty(), committed_first);
    }
}

/// Names are no part of a snapshot: a transaction changes tables whose rows in the catalog are younger than it.
#[test]
fn a_transaction_drops_what_is_younger_than_its_snapshot() {
    let mut instance = instance();
    let mut other = instance.session();
    other.ok("CREATE TABLE data (id int PRIMARY KEY); CREATE TABLE changed (id int PRIMARY KEY, n int)");
    let mut old = begin(&instance, &["INSERT INTO data VALUES (1)"]);
    other.ok("CREATE TABLE young (id int)");
    other.ok("CREATE INDEX changed_n ON changed (n)");
    other.ok("CREATE TABLE emptied (id int)");
    other.ok("INSERT INTO emptied VALUES (1)");
    old.ok("DROP TABLE young");
    old.ok("DROP INDEX changed_n");
    old.ok("TRUNCATE emptied");
    old.ok("CREATE TABLE young (other text)");
    old.ok("COMMIT");
    assert_eq!(other.rows("SELECT count(*) FROM emptied"), ["0"]);
    assert_eq!(other.rows("SELECT * FROM data"), ["1"]);
    drop((old, other));
    let names = check(&mut instance);
    assert_eq!(names, ["changed", "changed_pkey", "data", "data_pkey", "emptied", "young"]);
}

/// Many sessions at the same names; each outcome is one of the expected, nobody waits for ever, and rows and names
/// agree.
#[test]
fn names_under_fire() {
    let mut instance = Instance::start(2, 2, DatabaseOptions::default());
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let mut client = instance.session();
            thread::spawn(move || {
                let mut won = 0;
                for round in 0..25 {
                    let blocks = [
                        vec!["CREATE TABLE a (id int PRIMARY KEY, n int)", "INSERT INTO a VALUES (1, 1)"],
                        vec!["CREATE TABLE IF NOT EXISTS b (id int)", "CREATE INDEX b_id ON b (id)"],
                        vec!["DROP TABLE IF EXISTS a", "CREATE TABLE a (other int)"],
                        vec!["CREATE TABLE c (id int)", "DROP TABLE IF EXISTS b"],
                        vec!["TRUNCATE IF EXISTS a", "DROP TABLE IF EXISTS c"],
                    ];
                    client.ok("BEGIN");
                    let block = &blocks[(round * 3 + number) % blocks.len()];
                    let failed = block.iter().chain(&["COMMIT"]).find_map(|sql| client.run(sql).err());
                    match failed {
                        None => won += 1,
                        Some(error) => {
                            let state = error.sqlstate.to_string();
                            assert!(["42P07", "40001", "42P01", "23505", "40P01"].contains(&&*state), "{error}");
                            client.ok("ROLLBACK");
                        }
                    }
                }
                won
            })
        })
        .collect();
    let won: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(won > 0, "somebody always wins");
    check(&mut instance);
}

/// Of many that take one name, one gets it.
#[test]
fn one_of_many_gets_a_name() {
    let mut instance = instance();
    for round in 0..10 {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let mut client = instance.session();
                thread::spawn(move || client.run(&format!("CREATE TABLE t{round} (c{number} int)")).map(drop))
            })
            .collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        for error in outcomes.into_iter().filter_map(Result::err) {
            assert_eq!(error.sqlstate.as_str(), "42P07", "{error}");
        }
    }
    assert_eq!(check(&mut instance).len(), 10);
}

/// A commit that the engine refuses publishes nothing and leaves nothing; later the same works.
#[test]
fn names_of_a_commit_that_fails_are_not_published() {
    let mut instance = instance();
    let memory = instance.database.engine().memory().clone();
    instance.session().ok("CREATE TABLE data (id int PRIMARY KEY, t text); CREATE TABLE old (id int)");
    let wide: Vec<String> = (0..1_500).map(|number| format!("column_{number} text")).collect();
    let create = format!("CREATE TABLE wide ({})", wide.join(", "));
    let statements = ["SET application_name = 'x'", &create, "INSERT INTO data VALUES (1, 'x')", "DROP TABLE old"];
    let faults = Arc::new(MemoryFaults::new(7));
    memory.inject_faults(&faults);
    let mut failures = 0;
    // Sooner or later in the commit, and at last not at all.
    for chance in [1.0, 0.9, 0.7, 0.5, 0.5, 0.3, 0.3, 0.0] {
        let mut client = begin(&instance, &statements);
        faults.set_chance(chance);
        let committed = client.run("COMMIT");
        faults.set_chance(0.0);
        if let Err(error) = &committed {
            failures += 1;
            assert_eq!(error.sqlstate.as_str(), "53200", "{error}");
            assert_eq!(client.state("SELECT * FROM wide"), "42P01");
        }
        let [name, rows] = if committed.is_ok() { ["x", "1"] } else { ["", "0"] };
        assert_eq!(client.rows("SELECT current_setting('application_name')"), [name]);
        assert_eq!(client.rows("SELECT count(*) FROM data"), [rows]);
        drop(client);
        let names = check(&mut instance);
        assert_eq!(names, if committed.is_ok() { ["data", "data_pkey", "wide"] } else { ["data", "data_pkey", "old"] });
        if committed.is_ok() {
            instance.session().ok("DROP TABLE wide; CREATE TABLE old (id int); DELETE FROM data");
        }
    }
    assert!((1..8).contains(&failures), "{failures} commits met a refusal");
}

/// A full database does not refuse the DDL that is the way out of it, in place and by messages; a new table takes
/// memory.
#[test]
fn a_full_database_drops_tables() {
    for in_place in [true, false] {
        let mut instance = Instance::with_engine(
            EngineOptions { workers: 1, nodes: 1, in_place, ..EngineOptions::default() },
            DatabaseOptions::default(),
        );
        let memory = instance.database.engine().memory().clone();
        let limit = memory.limit();
        let mut client = instance.session();
        client.ok("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)");
        for _ in 0..50 {
            client.ok("CREATE INDEX t_n ON t (n); CREATE TABLE other (id int)");
            // Not a byte is left; the limit may also be put below what is used.
            memory.set_limit(memory.used() / 2);
            assert_eq!(client.state("CREATE TABLE new (id int)"), "53200");
            for sql in ["DROP INDEX t_n", "TRUNCATE t", "BEGIN", "TRUNCATE t", "DROP TABLE other", "COMMIT"] {
                if let Err(error) = client.run(sql) {
                    panic!("{sql}: {error}");
                }
            }
            assert_eq!(client.state("INSERT INTO t VALUES (1, 1)"), "53200");
            memory.set_limit(limit);
        }
        drop(client);
        assert_eq!(check(&mut instance), ["t", "t_pkey"]);
    }
}

/// Polls a future so often at most; `None` if it is dropped before its end.
async fn poll_times<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn run(session: &mut Session, sql: &str) {
    for statement in session.parse(sql, &[]).unwrap() {
        session.execute(&statement, &[]).await.unwrap();
    }
}

/// A session that ceases to wait in the middle of its COMMIT: names and rows are there, or neither is, and what is left
/// has a name.
#[test]
fn a_commit_that_nobody_waits_for_is_whole() {
    let (mut there, mut not_there) = (0, 0);
    for times in 0..12 {
        let options = EngineOptions { workers: 2, nodes: 1, in_place: times % 2 == 0, ..EngineOptions::default() };
        let mut simulation = Simulation::new(times as u64, options).unwrap();
        let engine = simulation.engine().clone();
        let opening = Database::open(engine.clone(), DatabaseOptions::default());
        let database = simulation.block_on(opening).unwrap().unwrap();
        let mut session = database.session(SessionOptions::default());
        simulation
            .block_on(async move {
                run(&mut session, "CREATE TABLE data (id int PRIMARY KEY)").await;
                run(&mut session, "BEGIN").await;
                run(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
                run(&mut session, "CREATE INDEX data_id ON data (id)").await;
                run(&mut session, "INSERT INTO data VALUES (1)").await;
                let commit = session.parse("COMMIT", &[]).unwrap().remove(0);
                let _ = poll_times(times, session.execute(&commit, &[])).await;
            })
            .unwrap();
        simulation.run_until_idle().unwrap();
        let published = database.catalog().current();
        assert_eq!(engine.partitions().len(), 1 + published.tables().count(), "after {times} polls");
        let indexes = |table: &Table| (table.schema.indexes.len(), engine.container(table.container()).unwrap());
        for (named, container) in published.tables().map(|table| indexes(table)) {
            assert_eq!(container.schema().indexes.len(), named, "after {times} polls");
        }
        let opening = Database::open(engine.clone(), DatabaseOptions::default());
        let opened = simulation.block_on(opening).unwrap().unwrap();
        let committed = opened.catalog().current();
        assert_eq!(published.find("t").is_some(), committed.find("t").is_some(), "after {times} polls");
        let data = committed.find("data").unwrap().container();
        let rows = engine.container(data).unwrap().rows();
        assert_eq!(rows, u64::from(committed.find("t").is_some()), "after {times} polls");
        if committed.find("t").is_some() { there += 1 } else { not_there += 1 }
    }
    assert!(there > 0 && not_there > 0, "{there} there, {not_there} not");
}
