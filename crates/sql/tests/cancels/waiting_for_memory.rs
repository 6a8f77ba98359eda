//! A statement hears that it is cancelled while it waits for memory in the queue of admission, and leaves the queue.

use std::thread;
use std::time::{Duration, Instant};

use eris_engine::{EngineOptions, Event, StatementClass};
use eris_sql::{DatabaseOptions, SqlError};

use super::HEARD_MAX;
use crate::support::{Client, Instance, take_all};

const JOIN: &str = "SELECT count(*) FROM t a JOIN t b ON a.name = b.name";
/// All rows are one partition, which has to fit into memory.
const WINDOW: &str = "SELECT max(n) FROM (SELECT sum(id) OVER (ORDER BY name) AS n FROM t) s";
/// Memory that lets a long statement start, and is too little for [`WINDOW`].
const TOO_LITTLE: u64 = 5 << 20;

/// Runs a statement and cancels it once `waits` says that it waits; its error.
fn cancelled_once(mut client: Client, sql: &'static str, mut waits: impl FnMut() -> bool) -> (Client, SqlError) {
    let handle = client.session().cancel_handle();
    let running = thread::spawn(move || {
        let answer = client.run(sql);
        (client, answer)
    });
    let begun = Instant::now();
    while !waits() {
        assert!(begun.elapsed() < HEARD_MAX && !running.is_finished(), "{sql} waits for memory");
        thread::sleep(Duration::from_millis(1));
    }
    while !running.is_finished() {
        handle.cancel();
        thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < HEARD_MAX, "{sql} goes on");
    }
    let (client, answer) = running.join().unwrap();
    (client, answer.expect_err(sql))
}

/// It waits for room before it begins, then for what it starts with, and when it was refused memory while it ran.
#[test]
fn a_statement_that_waits_for_memory_is_cancelled_and_leaves_the_queue() {
    let options = EngineOptions {
        workers: 1,
        nodes: 1,
        memory_limit_bytes: 64 << 20,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let instance = Instance::with_engine(options, DatabaseOptions::default());
    let (engine, files) = (instance.database.engine().clone(), instance.database.temp_files());
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, name text)");
    let lines: String = (1..=100_000).map(|id| format!("{id},{id:0>60}\n")).collect::<Vec<_>>().concat();
    client.run_with("COPY t FROM STDIN (FORMAT csv)", &[], Some(&lines)).unwrap();
    // No wait ends by itself.
    client.ok("SET memory_wait_timeout = '1h'");
    let admit = engine.admit(StatementClass::Scan);
    let permit = engine.block_on(admit).unwrap().unwrap();
    let held = take_all(&engine, "other");
    // What is released meanwhile is taken, too.
    let take_rest = || while held.grow(64 << 10).is_ok() {};
    let is_queued = || engine.admitted(StatementClass::Scan) == (1, 1);
    let waits = || engine.statistics().event(Event::AdmissionWaits);
    let check = |client: &mut Client, error: &SqlError, what: &str| {
        assert_eq!(error.sqlstate.as_str(), "57014", "{what}: {error}");
        assert_eq!(engine.admitted(StatementClass::Scan), (1, 0), "{what}: the queue is empty");
        assert_eq!(client.rows("SELECT id FROM t WHERE id = 7"), ["7"], "{what}: the session goes on");
    };

    let (mut client, error) = cancelled_once(client, JOIN, || {
        take_rest();
        is_queued()
    });
    check(&mut client, &error, "for room");

    // After half a second it no longer waits for room, but does not get what it starts with.
    let before = waits();
    let (mut client, error) = cancelled_once(client, JOIN, || {
        take_rest();
        waits() >= before + 2 && is_queued()
    });
    check(&mut client, &error, "for what it starts with");

    held.shrink(TOO_LITTLE);
    let before = files.statistics().written_bytes;
    let (mut client, error) = cancelled_once(client, WINDOW, || {
        let runs = files.statistics().written_bytes > before;
        if runs {
            take_rest();
        }
        runs && is_queued()
    });
    check(&mut client, &error, "refused while it ran");

    drop(held);
    drop(permit);
    assert_eq!(client.rows(JOIN), ["100000"]);
    assert_eq!(engine.admitted(StatementClass::Scan), (0, 0));
}
