//! TRUNCATE, DROP, CREATE INDEX and LOCK TABLE beside transactions that use the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use eris_engine::TableLockMode;

use super::support::{Answer, Client, Instance};
use eris_sql::SqlError;

const PATIENCE: Duration = Duration::from_mins(1);

fn instance() -> Instance {
    let instance = super::instance();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int)");
    client.ok("CREATE TABLE u (id int PRIMARY KEY, n int)");
    client.ok("INSERT INTO t VALUES (1, 1), (2, 2)");
    instance
}

/// A statement on a thread of its own.
struct Waiter(JoinHandle<(Client, Result<Answer, SqlError>)>);

impl Waiter {
    /// Starts it and returns once so many requests for table locks wait.
    fn start(instance: &Instance, mut client: Client, sql: &'static str, waiting: usize) -> Self {
        let waiter = Self(thread::spawn(move || {
            let answer = client.run(sql);
            (client, answer)
        }));
        let deadline = Instant::now() + PATIENCE;
        let requests = || instance.database.engine().table_locks().iter().filter(|lock| !lock.granted).count();
        while requests() != waiting {
            assert!(Instant::now() < deadline && !waiter.0.is_finished(), "{sql} waits for a table lock");
            thread::sleep(Duration::from_millis(1));
        }
        waiter
    }

    fn end(self) -> (Client, Result<Answer, SqlError>) {
        self.0.join().expect("the statement ends")
    }
}

#[test]
fn truncate_waits_for_who_has_inserted() {
    let instance = instance();
    let (mut writer, truncater, mut reader) = (instance.session(), instance.session(), instance.session());
    writer.ok("BEGIN");
    writer.ok("INSERT INTO t VALUES (3, 3)");
    writer.ok("INSERT INTO u VALUES (3, 3)");
    let waiter = Waiter::start(&instance, truncater, "TRUNCATE t", 1);
    assert_eq!(writer.rows("SELECT count(*) FROM t"), ["3"], "who has a lock goes on");
    writer.ok("COMMIT");
    waiter.end().1.expect("truncated");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["0"]);
    assert_eq!(reader.rows("SELECT count(*) FROM u"), ["1"]);
    assert!(instance.database.engine().table_locks().is_empty(), "all locks are given back");
}

#[test]
fn drop_waits_for_who_has_inserted() {
    let instance = instance();
    let (mut writer, dropper, mut reader) = (instance.session(), instance.session(), instance.session());
    writer.ok("BEGIN");
    writer.ok("INSERT INTO t VALUES (3, 3)");
    writer.ok("INSERT INTO u VALUES (3, 3)");
    let waiter = Waiter::start(&instance, dropper, "DROP TABLE t", 1);
    assert_eq!(writer.rows("SELECT count(*) FROM t"), ["3"], "who has a lock goes on");
    writer.ok("COMMIT");
    waiter.end().1.expect("dropped");
    assert_eq!(reader.state("SELECT count(*) FROM t"), "42P01");
    assert_eq!(reader.rows("SELECT count(*) FROM u"), ["1"], "its transaction was committed as a whole");
    assert!(instance.database.engine().table_locks().is_empty(), "all locks are given back");
}

#[test]
fn drop_index_waits_for_who_has_inserted() {
    let instance = instance();
    let (mut writer, mut dropper, mut reader) = (instance.session(), instance.session(), instance.session());
    dropper.ok("CREATE INDEX by_n ON t (n)");
    writer.ok("BEGIN");
    writer.ok("INSERT INTO t VALUES (3, 2)");
    let waiter = Waiter::start(&instance, dropper, "DROP INDEX by_n", 1);
    writer.ok("INSERT INTO t VALUES (4, 2)");
    assert_eq!(writer.rows("SELECT count(*) FROM t WHERE n = 2"), ["3"], "who has a lock goes on");
    writer.ok("COMMIT");
    waiter.end().1.expect("dropped");
    assert_eq!(reader.rows("SELECT count(*) FROM t WHERE n = 2"), ["3"]);
    assert_eq!(reader.state("DROP INDEX by_n"), "42704");
    assert!(instance.database.engine().table_locks().is_empty(), "all locks are given back");
}

#[test]
fn drop_waits_for_who_reads() {
    let instance = instance();
    let (mut reader, dropper) = (instance.session(), instance.session());
    reader.ok("BEGIN");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["2"]);
    let waiter = Waiter::start(&instance, dropper, "DROP TABLE t", 1);
    assert_eq!(reader.rows("SELECT n FROM t WHERE id = 2"), ["2"]);
    reader.ok("COMMIT");
    waiter.end().1.expect("dropped");
    assert_eq!(reader.state("SELECT count(*) FROM t"), "42P01");
}

/// Of all but the last one the optimiser leaves a plan that does not read some of the tables.
#[test]
fn a_statement_locks_the_tables_that_it_names_and_not_only_those_that_its_plan_reads() {
    use TableLockMode::{AccessShare, RowExclusive};
    let instance = instance();
    let mut client = instance.session();
    client.ok("PREPARE nothing AS SELECT * FROM t WHERE false");
    // The locks on `t`, then those on `u`.
    let cases: [(&str, &[TableLockMode]); 14] = [
        ("SELECT * FROM t WHERE false", &[AccessShare]),
        ("SELECT * FROM t LIMIT 0", &[AccessShare]),
        ("SELECT count(*) FROM t WHERE false", &[AccessShare]),
        ("SELECT n FROM u WHERE EXISTS (SELECT 1 FROM t WHERE false)", &[AccessShare, AccessShare]),
        ("SELECT * FROM t JOIN u USING (id) WHERE false", &[AccessShare, AccessShare]),
        ("WITH c AS (SELECT * FROM t) SELECT * FROM c WHERE false", &[AccessShare]),
        ("WITH t AS (SELECT id FROM u) SELECT * FROM t WHERE false", &[AccessShare]),
        ("EXPLAIN SELECT * FROM t WHERE false", &[AccessShare]),
        ("EXECUTE nothing", &[AccessShare]),
        ("INSERT INTO u SELECT * FROM t WHERE false", &[AccessShare, RowExclusive]),
        ("UPDATE t SET n = (SELECT max(n) FROM u) WHERE false", &[RowExclusive, AccessShare]),
        ("DELETE FROM t WHERE false", &[RowExclusive]),
        ("DELETE FROM u USING t WHERE false", &[AccessShare, RowExclusive]),
        ("UPDATE t SET n = 1 WHERE id = 1", &[RowExclusive]),
    ];
    for (sql, modes) in cases {
        // The second time the plan is one that was kept.
        for _ in 0..2 {
            client.ok("BEGIN");
            client.ok(sql);
            let held = instance.database.engine().table_locks();
            assert_eq!(held.iter().map(|lock| lock.mode).collect::<Vec<_>>(), modes, "{sql}: {held:?}");
            client.ok("ROLLBACK");
        }
    }
    client.ok("BEGIN");
    client.ok("LOCK TABLE t");
    let waiter = Waiter::start(&instance, instance.session(), "SELECT * FROM t LIMIT 0", 1);
    client.ok("DROP TABLE t");
    client.ok("COMMIT");
    assert_eq!(waiter.end().1.expect_err("the table is gone").sqlstate.to_string(), "42P01");
}

#[test]
fn who_waited_for_a_drop_hears_that_the_table_is_gone() {
    let instance = instance();
    let (mut dropper, reader) = (instance.session(), instance.session());
    dropper.ok("BEGIN");
    dropper.ok("DROP TABLE t");
    let waiter = Waiter::start(&instance, reader, "SELECT count(*) FROM t", 1);
    dropper.ok("COMMIT");
    let error = waiter.end().1.expect_err("the table is gone");
    assert_eq!(error.sqlstate.to_string(), "42P01", "{error}");
}

#[test]
fn who_waited_for_a_truncate_inserts_into_the_new_table() {
    let instance = instance();
    let (mut truncater, mut writer, mut prepared) = (instance.session(), instance.session(), instance.session());
    prepared.ok("PREPARE put AS INSERT INTO t VALUES ($1, 0)");
    writer.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    truncater.ok("BEGIN");
    truncater.ok("TRUNCATE t");
    truncater.ok("INSERT INTO t VALUES (10, 10)");
    let first = Waiter::start(&instance, writer, "INSERT INTO t VALUES (11, 11)", 1);
    let second = Waiter::start(&instance, prepared, "EXECUTE put(12)", 2);
    truncater.ok("COMMIT");
    let (mut writer, inserted) = first.end();
    inserted.expect("its transaction had not begun to look");
    assert_eq!(writer.rows("SELECT count(*) FROM t WHERE id = 10"), ["1"], "it sees what it waited for");
    writer.ok("COMMIT");
    second.end().1.expect("planned anew");
    assert_eq!(truncater.rows("SELECT id FROM t ORDER BY id"), ["10", "11", "12"]);
}

#[test]
fn a_rolled_back_truncate_leaves_everything() {
    let instance = instance();
    let (mut truncater, reader) = (instance.session(), instance.session());
    truncater.ok("BEGIN");
    truncater.ok("TRUNCATE t");
    let waiter = Waiter::start(&instance, reader, "SELECT count(*) FROM t", 1);
    truncater.ok("ROLLBACK");
    assert_eq!(waiter.end().1.expect("read").rows[0][0].as_deref(), Some("2"));
}

#[test]
fn a_snapshot_from_before_a_truncate_fails_and_shows_nothing_wrong() {
    let instance = instance();
    let (mut reader, mut truncater) = (instance.session(), instance.session());
    reader.ok("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(reader.rows("SELECT count(*) FROM u"), ["0"]);
    truncater.ok("TRUNCATE t");
    truncater.ok("INSERT INTO t VALUES (7, 7)");
    assert_eq!(reader.state("SELECT count(*) FROM t"), "40001");
    reader.ok("ROLLBACK");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["1"]);
}

#[test]
fn of_two_that_count_and_truncate_one_fails() {
    let instance = instance();
    let (mut first, mut second) = (instance.session(), instance.session());
    for client in [&mut first, &mut second] {
        client.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
        assert_eq!(client.rows("SELECT count(*) FROM t"), ["2"]);
    }
    let waiter = Waiter::start(&instance, first, "TRUNCATE t", 1);
    assert_eq!(second.state("TRUNCATE t"), "40P01");
    let (mut first, truncated) = waiter.end();
    truncated.expect("the other one is gone");
    first.ok("COMMIT");
    assert_eq!(first.rows("SELECT count(*) FROM t"), ["0"]);
}

/// First the reader, who counts all of `t`, or first the other, whose row the reader would have counted: neither.
#[test]
fn a_truncate_counts_as_a_write_of_every_row() {
    let instance = instance();
    let (mut reader, mut truncater) = (instance.session(), instance.session());
    reader.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["2"]);
    truncater.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(truncater.rows("SELECT count(*) FROM u"), ["0"]);
    reader.ok("INSERT INTO u VALUES (1, 2)");
    reader.ok("COMMIT");
    let failed = truncater.run("TRUNCATE t").and_then(|_| truncater.run("COMMIT"));
    assert_eq!(failed.expect_err("no order").sqlstate.to_string(), "40001");
}

/// The same with DROP.
#[test]
fn a_drop_counts_as_a_write_of_every_row() {
    let instance = instance();
    let (mut reader, mut dropper) = (instance.session(), instance.session());
    reader.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["2"]);
    dropper.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
    assert_eq!(dropper.rows("SELECT count(*) FROM u"), ["0"]);
    reader.ok("INSERT INTO u VALUES (1, 2)");
    reader.ok("COMMIT");
    let failed = dropper.run("DROP TABLE t").and_then(|_| dropper.run("COMMIT"));
    assert_eq!(failed.expect_err("no order").sqlstate.to_string(), "40001");
    dropper.ok("ROLLBACK");
    assert_eq!(reader.rows("SELECT count(*) FROM t"), ["2"]);
}

/// The rows of others that a SERIALIZABLE transaction does not see do not go with those that it sees.
#[test]
fn who_replaces_a_table_has_missed_no_row_of_it() {
    for replace in ["TRUNCATE t", "DROP TABLE t"] {
        let instance = instance();
        let (mut writer, mut replacer) = (instance.session(), instance.session());
        replacer.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
        assert_eq!(replacer.rows("SELECT count(*) FROM u"), ["0"]);
        writer.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
        writer.ok("INSERT INTO t VALUES (3, 3)");
        writer.ok("COMMIT");
        let failed = replacer.run(replace).and_then(|_| replacer.run("COMMIT"));
        assert_eq!(failed.expect_err(replace).sqlstate.to_string(), "40001", "{replace}");
        replacer.ok("ROLLBACK");
        assert_eq!(writer.rows("SELECT count(*) FROM t"), ["3"], "{replace}");
    }
}

/// The TRUNCATE commits first: whatever a SERIALIZABLE transaction does with the table whose snapshot is older, it
/// begins again.
#[test]
fn a_serializable_transaction_from_before_a_truncate_fails_however_it_uses_the_table() {
    for sql in [
        "SELECT count(*) FROM t",
        "SELECT n FROM t WHERE id = 1",
        "INSERT INTO t VALUES (5, 5)",
        "UPDATE t SET n = 7 WHERE id = 1",
        "DELETE FROM t",
        "TRUNCATE t",
        "DROP TABLE t",
    ] {
        let instance = instance();
        let (mut second, mut truncater) = (instance.session(), instance.session());
        second.ok("BEGIN ISOLATION LEVEL SERIALIZABLE");
        assert_eq!(second.rows("SELECT count(*) FROM u"), ["0"]);
        truncater.ok("TRUNCATE t");
        assert_eq!(second.state(sql), "40001", "{sql}");
        second.ok("ROLLBACK");
        second.ok(sql);
    }
}

#[test]
fn a_cycle_through_a_row_and_a_table_is_a_deadlock() {
    let instance = instance();
    let (mut first, mut second) = (instance.session(), instance.session());
    first.ok("BEGIN");
    first.ok("UPDATE t SET n = 5 WHERE id = 1");
    second.ok("BEGIN");
    second.ok("INSERT INTO u VALUES (1, 1)");
    let waiter = Waiter::start(&instance, first, "LOCK TABLE u", 1);
    assert_eq!(second.state("UPDATE t SET n = 6 WHERE id = 1"), "40P01");
    waiter.end().1.expect("locked");
}

#[test]
fn create_index_waits_for_writers_and_not_for_readers() {
    let instance = instance();
    let (mut writer, mut reader, mut indexer) = (instance.session(), instance.session(), instance.session());
    reader.ok("BEGIN");
    reader.ok("SELECT count(*) FROM t");
    indexer.ok("CREATE INDEX by_n ON t (n)");
    writer.ok("BEGIN");
    writer.ok("INSERT INTO t VALUES (3, 1)");
    let waiter = Waiter::start(&instance, indexer, "CREATE UNIQUE INDEX once ON t (id, n)", 1);
    writer.ok("COMMIT");
    waiter.end().1.expect("built");
    reader.ok("COMMIT");
    assert_eq!(reader.rows("SELECT count(*) FROM t WHERE n = 1"), ["2"]);
}

#[test]
fn readers_that_keep_coming_do_not_starve_a_truncate() {
    let instance = instance();
    let (mut reader, truncater, late) = (instance.session(), instance.session(), instance.session());
    reader.ok("BEGIN");
    reader.ok("SELECT count(*) FROM t");
    let first = Waiter::start(&instance, truncater, "TRUNCATE t", 1);
    let second = Waiter::start(&instance, late, "SELECT count(*) FROM t", 2);
    reader.ok("COMMIT");
    first.end().1.expect("truncated");
    assert_eq!(second.end().1.expect("read").rows[0][0].as_deref(), Some("0"), "it came after the TRUNCATE");
}

#[test]
fn lock_table_takes_every_mode_and_does_not_wait_if_told_so() {
    let instance = instance();
    let (mut first, mut second) = (instance.session(), instance.session());
    assert_eq!(first.state("LOCK TABLE t"), "25P01");
    for held in TableLockMode::ALL {
        for wanted in TableLockMode::ALL {
            first.ok(&format!("BEGIN; LOCK TABLE t IN {} MODE", held.name()));
            second.ok("BEGIN");
            let locked = second.run(&format!("LOCK TABLE t IN {} MODE NOWAIT", wanted.name()));
            let state = locked.err().map(|error| error.sqlstate.to_string());
            let refused = held.conflicts_with(wanted).then(|| "55P03".to_string());
            assert_eq!(state, refused, "{} beside {}", wanted.name(), held.name());
            first.ok("ROLLBACK");
            second.ok("ROLLBACK");
        }
    }
}

/// Behind LOCK TABLE and behind a TRUNCATE in an open block every statement gives up when its time is over, and leaves
/// the locks as they were; with 0 it waits until it gets the table.
#[test]
fn lock_timeout_ends_every_wait_for_a_table() {
    for hold in ["LOCK TABLE t", "TRUNCATE t"] {
        let instance = instance();
        let (mut holder, mut client) = (instance.session(), instance.session());
        client.ok("CREATE INDEX by_n ON t (n)");
        holder.ok("BEGIN");
        holder.ok(hold);
        let held = instance.database.engine().table_locks();
        assert!(!held.is_empty() && held.iter().all(|lock| lock.granted), "{held:?}");
        client.ok("SET lock_timeout = 50");
        // A wait that lasts longer ends with 57014.
        client.ok("SET statement_timeout = '1min'");
        for sql in [
            "TRUNCATE t",
            "DROP TABLE t",
            "CREATE INDEX again ON t (n)",
            "DROP INDEX by_n",
            "SELECT count(*) FROM t",
            "SELECT n FROM t WHERE id = 1",
            "INSERT INTO t VALUES (3, 3)",
            "UPDATE t SET n = 0",
            "DELETE FROM t WHERE id = 1",
            "COPY t FROM STDIN",
            "BEGIN; LOCK TABLE t IN ACCESS SHARE MODE",
        ] {
            let error = client.run(sql).expect_err(sql);
            assert_eq!(error.sqlstate.as_str(), "55P03", "{sql} after {hold}: {error}");
            assert!(error.message.contains("lock timeout"), "{sql} after {hold}: {error}");
            client.ok("ROLLBACK");
            assert_eq!(instance.database.engine().table_locks(), held, "{sql} after {hold}");
        }
        client.ok("SET lock_timeout = 0");
        let waiter = Waiter::start(&instance, client, "INSERT INTO t VALUES (9, 9)", 1);
        holder.ok("COMMIT");
        let (mut client, inserted) = waiter.end();
        inserted.expect("nothing is in its way");
        for sql in ["CREATE INDEX again ON t (n)", "DROP INDEX by_n", "TRUNCATE t", "DROP TABLE t"] {
            client.ok(sql);
        }
        assert!(instance.database.engine().table_locks().is_empty(), "all locks are given back");
    }
}

#[test]
fn a_failed_block_holds_nothing() {
    let instance = instance();
    let (mut first, mut second) = (instance.session(), instance.session());
    first.ok("BEGIN");
    first.ok("TRUNCATE t");
    assert_eq!(first.state("SELECT 1 / 0"), "22012");
    assert_eq!(second.rows("SELECT count(*) FROM t"), ["2"]);
    first.ok("ROLLBACK");
}

/// Rows that are inserted into two tables at once, beside TRUNCATEs of one of them: each is in both tables or was
/// committed before a TRUNCATE; none that was committed after the last one is missing.
#[test]
fn no_row_that_is_committed_after_a_truncate_is_missing() {
    let instance = instance();
    let over = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicI64::new(100));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (mut client, over, next) = (instance.session(), Arc::clone(&over), Arc::clone(&next));
            thread::spawn(move || {
                let mut committed = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let begun = Instant::now();
                    let both = writer > 0;
                    let insert = format!("INSERT INTO t VALUES ({id}, 0)");
                    let text = format!("BEGIN; INSERT INTO u VALUES ({id}, 0); {insert}; COMMIT");
                    match client.run(if both { &text } else { &insert }) {
                        Ok(_) => committed.push((begun, id, both)),
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            client.run("ROLLBACK").expect("rolled back");
                        }
                    }
                }
                committed
            })
        })
        .collect();
    let mut truncater = instance.session();
    let mut answered = Instant::now();
    for _ in 0..30 {
        truncater.ok("TRUNCATE t");
        answered = Instant::now();
        thread::sleep(Duration::from_millis(3));
    }
    thread::sleep(Duration::from_millis(20));
    over.store(true, Ordering::Relaxed);
    let committed: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().expect("writes")).collect();
    let ids = |client: &mut Client, table: &str| -> Vec<i64> {
        let rows = client.rows(&format!("SELECT id FROM {table}"));
        rows.iter().map(|row| row.parse().expect("a number")).collect()
    };
    let (in_t, in_u) = (ids(&mut truncater, "t"), ids(&mut truncater, "u"));
    assert!(committed.iter().any(|(begun, ..)| *begun > answered), "some came after the last TRUNCATE");
    for (begun, id, both) in committed {
        assert!(begun < answered || in_t.contains(&id), "{id} was committed after the last TRUNCATE");
        assert!(!both || in_u.contains(&id), "{id} was committed");
    }
}
