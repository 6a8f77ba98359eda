//! An idle transaction with an old snapshot costs itself its snapshot, and no writer anything.

use std::thread;
use std::time::{Duration, Instant};

use eris_engine::EngineOptions;
use eris_sql::DatabaseOptions;

use crate::support::{Client, Instance};

const MIB: u64 = 1 << 20;

fn instance(limit: Option<u64>) -> Instance {
    let options = EngineOptions {
        workers: 2,
        nodes: 1,
        memory_limit_bytes: 64 * MIB,
        old_version_limit_bytes: limit,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(options, DatabaseOptions::default());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n int, s text)");
    let rows: String = (0..500).map(|id| format!("{id},0,x\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&rows)).unwrap();
    instance
}

/// Gives all rows a new version, of 300 kB together, again and again.
fn write(client: &mut Client, rounds: usize) {
    for _ in 0..rounds {
        client.ok("UPDATE t SET n = n + 1, s = repeat('y', 500 + n % 7)");
    }
}

fn begin(instance: &Instance, level: &str, name: &str) -> Client {
    let mut client = instance.session();
    client.ok(&format!("SET application_name = '{name}'"));
    client.ok(&format!("BEGIN ISOLATION LEVEL {level}"));
    client.ok("SELECT count(*), sum(n) FROM t");
    client
}

#[test]
fn the_oldest_reader_fails_and_the_writer_goes_on() {
    let instance = instance(Some(4 * MIB));
    let (mut writer, mut watcher) = (instance.session(), instance.session());
    let mut idle = begin(&instance, "REPEATABLE READ", "forgotten");
    write(&mut writer, 4);
    // Which session holds it, and what that costs, as far as maintenance has come.
    let named = "SELECT application_name, isolation, state, holds_oldest, snapshot_age_ms >= 0, \
                 old_version_bytes > 500000 \
                 FROM eris.transactions WHERE pid IS NOT NULL AND pid <> pg_backend_pid() AND holds_oldest";
    let expected = ["forgotten|repeatable read|idle in transaction|t|t|t"];
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut found = watcher.rows(named);
    while found != expected && Instant::now() < deadline {
        write(&mut writer, 1);
        thread::sleep(Duration::from_millis(20));
        found = watcher.rows(named);
    }
    assert_eq!(found, expected);
    // Twice what there is of memory.
    write(&mut writer, 400);
    let mut fresh = begin(&instance, "REPEATABLE READ", "fresh");
    let seen = fresh.rows("SELECT count(*), min(n), max(n) FROM t");
    write(&mut writer, 3);
    assert_eq!(fresh.rows("SELECT count(*), min(n), max(n) FROM t"), seen, "a younger snapshot is in force");
    assert_eq!(
        watcher.rows("SELECT count(*) FROM eris.transactions WHERE application_name = 'forgotten' AND holds_oldest"),
        ["0"]
    );

    let error = idle.run("SELECT count(*), sum(n) FROM t").unwrap_err();
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("72000", "snapshot too old"), "{error}");
    assert!(error.hint.as_deref().unwrap().contains("--old-version-memory-limit"), "{error}");
    assert_eq!(idle.state("SELECT count(*) FROM t"), "25P02", "the block waits for its end");
    idle.ok("ROLLBACK");
    assert_eq!(idle.rows("SELECT count(*) FROM t"), ["500"]);
    fresh.ok("COMMIT");
}

/// READ COMMITTED is REPEATABLE READ in SQL, so it hears of it, too.
#[test]
fn a_quarter_of_the_memory_is_the_bound_unless_one_is_set() {
    let instance = instance(None);
    let (mut writer, mut idle) = (instance.session(), begin(&instance, "READ COMMITTED", "idle"));
    assert_eq!(idle.rows("SHOW old_version_memory_limit"), ["16MB"]);
    write(&mut writer, 300);
    assert_eq!(idle.state("SELECT count(*), min(n), max(n) FROM t"), "72000");
    idle.ok("ROLLBACK");
    assert_eq!(idle.rows("SELECT count(*), min(n), max(n) FROM t"), ["500|300|300"]);
    assert_eq!(idle.state("SET old_version_memory_limit = '1MB'"), "55P02");
    assert_eq!(writer.rows("SELECT value > 0 FROM eris.counters WHERE name = 'snapshots_revoked'"), ["t"]);
}
