//! Timeouts as a client meets them, and sessions that end others: which statement ends, and that the connection goes on
//! or ends as it should.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use std::thread::sleep;
use std::time::{Duration, Instant};

use client::Server;
use client::wire::{Wire, message, query};
use eris_engine::{EngineOptions, StatementClass};

/// A statement that others end.
const SLEEP: &str = "SELECT pg_sleep(600)";

/// Statements that take about as long as their timeout, each followed at once by one without a timeout.
#[test]
fn a_timeout_never_hits_the_statement_after_the_one_it_was_for() {
    let server = Server::start();
    let mut client = Wire::start(&server);
    let (mut in_time, mut too_late) = (0, 0);
    for round in 0..200 {
        let seconds = match round % 10 {
            0 => "0".to_owned(),
            1 => "60".to_owned(),
            millis => format!("0.00{millis}"),
        };
        // In a text of two statements SET LOCAL holds for this text.
        let text = format!("SET LOCAL statement_timeout = 5; SELECT pg_sleep({seconds})");
        let reply = client.query(&text);
        match reply.sqlstate() {
            "" => in_time += 1,
            "57014" => too_late += 1,
            _ => panic!("round {round}: {reply:?}"),
        }
        assert_eq!(reply.status, Some('I'), "round {round}: {reply:?}");
        let reply = client.query("SELECT pg_sleep(0.01), 7");
        assert_eq!((reply.sqlstate(), reply.tags.len()), ("", 1), "round {round}: {reply:?}");
        assert_eq!(reply.rows[0][1].as_deref(), Some("7"), "round {round}");
    }
    assert!(in_time > 0 && too_late >= 20, "{in_time} ended in time, {too_late} did not");
}

/// Options and parameters of the start are what RESET goes back to, and not the settings of the database.
#[test]
fn reset_goes_back_to_what_the_connection_began_with() {
    let server = Server::start();
    let start = [
        ("application_name", "start"),
        ("lock_timeout", "88"),
        ("options", "-c statement_timeout=77s -c default_transaction_isolation=serializable"),
    ];
    let mut client = Wire::start_with(&server, &start);
    let settings = [
        ("application_name", "start", "'later'"),
        ("lock_timeout", "88ms", "1"),
        ("statement_timeout", "77s", "9000"),
        ("default_transaction_isolation", "serializable", "'read committed'"),
    ];
    let shown = |client: &mut Wire, name: &str| client.run(&format!("SHOW {name}")).value().to_owned();
    for (name, start, later) in settings {
        let set = format!("SET {name} TO {later}");
        let reset = [format!("RESET {name}"), format!("SET {name} TO DEFAULT")];
        for reset in reset.iter().map(String::as_str).chain(["RESET ALL", "DISCARD ALL"]) {
            client.run(&set);
            assert_ne!(shown(&mut client, name), start, "{set}");
            client.run(reset);
            assert_eq!(shown(&mut client, name), start, "{set}; {reset}");
        }
        // A transaction that is rolled back changes neither the value nor what RESET goes back to.
        for sql in ["BEGIN", "RESET ALL", set.as_str(), "ROLLBACK"] {
            client.run(sql);
        }
        assert_eq!(shown(&mut client, name), start, "after {set} and ROLLBACK");
    }
    assert_eq!(Wire::start(&server).run("SHOW statement_timeout").value(), "0", "it is this connection's alone");
}

#[test]
fn each_statement_of_a_text_and_each_part_of_a_portal_has_its_own_time() {
    let server = Server::start();
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id int PRIMARY KEY)");
    client.run("INSERT INTO t VALUES (1), (2), (3)");
    client.run("SET statement_timeout = '2s'");
    let begun = Instant::now();
    client.run(&"SELECT pg_sleep(0.2);".repeat(14));
    assert!(begun.elapsed() >= Duration::from_millis(2_800), "all together take longer");
    client.run("BEGIN");
    let execute = [message(b'E', b"p\0\0\0\0\x01"), message(b'S', b"")].concat();
    let opening =
        [message(b'P', b"\0SELECT id FROM t\0\0\0"), message(b'B', b"p\0\0\0\0\0\0\0\0"), execute.clone()].concat();
    for part in 0..3 {
        client.send(if part == 0 { &opening } else { &execute });
        let reply = client.until_ready();
        assert_eq!((reply.sqlstate(), reply.rows.len(), reply.status), ("", 1, Some('T')), "part {part}: {reply:?}");
        // The client takes its time.
        sleep(Duration::from_millis(2_500));
    }
    assert_eq!(client.run("COMMIT").tags, ["COMMIT"]);
}

#[test]
fn transaction_timeout_ends_a_block_that_is_one_long_statement_and_no_session_after_rollback() {
    let server = Server::start();
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    client.run("INSERT INTO t VALUES (1, 0)");
    client.run("SET transaction_timeout = 200");
    let reply = client.query("BEGIN; UPDATE t SET n = 1 WHERE id = 1; SELECT pg_sleep(60)");
    assert_eq!(reply.sqlstate(), "25P04", "{reply:?}");
    if reply.status.is_some() {
        client.try_send(&query("SELECT 1"));
        assert_eq!(client.until_ready().status, None, "the connection ends");
    }
    let mut other = Wire::start(&server);
    other.run("UPDATE t SET n = n + 5 WHERE id = 1");
    assert_eq!(other.run("SELECT n FROM t").value(), "5", "it was rolled back, and its locks are free");
    other.run("SET transaction_timeout = '2s'");
    other.run("BEGIN");
    other.run("UPDATE t SET n = 9 WHERE id = 1");
    assert_eq!(other.run("ROLLBACK").tags, ["ROLLBACK"]);
    sleep(Duration::from_secs(3));
    assert_eq!(other.run("SELECT n FROM t").value(), "5");
    drop((client, other));
    server.wait_for_connections(0);
}

/// The timeout ends an idle session, which is told so, and releases its locks. A session is not idle while a statement
/// runs, however long that takes.
#[test]
fn idle_timeouts_end_the_session_and_release_its_locks() {
    let server = Server::start();
    let mut other = Wire::start(&server);
    other.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    other.run("INSERT INTO t VALUES (1, 0)");
    // Each text is one message: its client is not idle between its statements.
    let in_block = [
        "SET idle_in_transaction_session_timeout = 200",
        "BEGIN; UPDATE t SET n = 100 WHERE id = 1; SELECT pg_sleep(0.6), 7",
    ];
    let outside = ["SET idle_session_timeout = 200; SELECT pg_sleep(0.6), 7"];
    for (texts, status, state, words, n) in [
        (&in_block[..], 'T', "25P03", "idle-in-transaction timeout", "1"),
        (&outside[..], 'I', "57P05", "idle-session timeout", "2"),
    ] {
        let mut client = Wire::start(&server);
        let replies: Vec<_> = texts.iter().map(|text| client.run(text)).collect();
        let last = replies.last().expect("there are texts");
        assert_eq!((last.rows[0][1].as_deref(), last.status), (Some("7"), Some(status)), "{last:?}");
        let ended = client.until_ready();
        assert_eq!((ended.sqlstate(), ended.status), (state, None), "{ended:?}");
        assert!(ended.errors[0].message.contains(words), "{ended:?}");
        other.run("UPDATE t SET n = n + 1 WHERE id = 1");
        assert_eq!(other.run("SELECT n FROM t").value(), n, "{state}: it was rolled back");
    }
    // The timeouts of one session are not those of another.
    assert_eq!(other.run("SHOW idle_session_timeout").value(), "0");
    server.wait_for_connections(1);
}

/// What is asked while a statement is planned is done when its plan is there: it does not run.
#[test]
fn a_statement_whose_planning_takes_longer_than_its_time_does_not_run() {
    let server = Server::start();
    let mut client = Wire::start(&server);
    client.run("CREATE TABLE t (id int PRIMARY KEY)");
    let tables: Vec<String> = (0..60).map(|n| format!("t t{n}")).collect();
    let conditions: Vec<String> = (1..60).map(|n| format!("t{n}.id = t{}.id + 1", n - 1)).collect();
    let sql = format!("SELECT count(*) FROM {} WHERE {}", tables.join(", "), conditions.join(" AND "));
    client.run("SET statement_timeout = 1");
    assert_eq!(client.query(&sql).sqlstate(), "57014", "there is no row, but a plan of 60 tables");
    client.run("RESET statement_timeout");
    assert_eq!(client.run(&sql).value(), "0");
}

/// Between two executions of a portal the session is idle, too, if it is in a block; each ends the wait.
#[test]
fn a_client_that_took_a_part_of_a_portal_is_idle_in_its_transaction() {
    let server = Server::start();
    let (mut other, mut client) = (Wire::start(&server), Wire::start(&server));
    other.run("CREATE TABLE t (id int PRIMARY KEY)");
    other.run("INSERT INTO t VALUES (1), (2), (3)");
    let process = client.run("SELECT pg_backend_pid()").value().to_owned();
    client.run("SET idle_in_transaction_session_timeout = '2s'");
    client.run("BEGIN");
    let execute = [message(b'E', b"p\0\0\0\0\x01"), message(b'S', b"")].concat();
    client.send(&[message(b'P', b"\0SELECT id FROM t\0\0\0"), message(b'B', b"p\0\0\0\0\0\0\0\0")].concat());
    for _ in 0..3 {
        client.send(&execute);
        assert_eq!(client.until_ready().status, Some('T'));
        let state = other.run(&format!("SELECT state FROM pg_stat_activity WHERE pid = {process}"));
        assert_eq!(state.value(), "idle in transaction");
        sleep(Duration::from_millis(900));
    }
    let ended = client.until_ready();
    assert_eq!((ended.sqlstate(), ended.status), ("25P03", None), "{ended:?}");
    server.wait_for_connections(1);
}

/// Calls a function with the number of a session that runs [`SLEEP`], until it no longer does.
fn interrupt(client: &mut Wire, function: &str, process: &str) {
    let sleeps = format!("SELECT state FROM pg_stat_activity WHERE pid = {process} AND query = '{SLEEP}'");
    let patience = Instant::now() + Duration::from_mins(1);
    while client.run(&sleeps).value() != "active" {
        assert!(Instant::now() < patience, "{process} sleeps");
        sleep(Duration::from_millis(5));
    }
    // While the statement is planned a cancel is lost.
    while client.run(&sleeps).value() == "active" {
        assert!(Instant::now() < patience, "{process} sleeps on after {function}");
        client.run(&format!("SELECT {function}({process})"));
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_session_cancels_and_terminates_others() {
    let server = Server::start();
    let (mut one, mut two, mut three) = (Wire::start(&server), Wire::start(&server), Wire::start(&server));
    one.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    one.run("INSERT INTO t VALUES (1, 0)");
    let process = two.run("SELECT pg_backend_pid()").value().to_owned();

    two.send(&query(SLEEP));
    interrupt(&mut one, "pg_cancel_backend", &process);
    let reply = two.until_ready();
    assert_eq!((reply.sqlstate(), reply.status), ("57014", Some('I')), "{reply:?}");
    // Between statements it hits nothing.
    assert_eq!(one.run(&format!("SELECT pg_cancel_backend({process})")).value(), "t");
    assert_eq!(two.run("SELECT 7").value(), "7");

    two.run("BEGIN");
    two.run("UPDATE t SET n = 100 WHERE id = 1");
    two.send(&query(SLEEP));
    interrupt(&mut one, "pg_terminate_backend", &process);
    let reply = two.until_ready();
    assert_eq!((reply.sqlstate(), reply.status), ("57P01", None), "{reply:?}");
    one.run("UPDATE t SET n = n + 1 WHERE id = 1");
    assert_eq!(one.run("SELECT n FROM t").value(), "1", "a busy session was rolled back");

    three.run("BEGIN");
    three.run("UPDATE t SET n = 100 WHERE id = 1");
    let process = three.run("SELECT pg_backend_pid()").value().to_owned();
    assert_eq!(one.run(&format!("SELECT pg_terminate_backend({process})")).value(), "t");
    let reply = three.until_ready();
    assert_eq!((reply.sqlstate(), reply.status), ("57P01", None), "{reply:?}");
    one.run("UPDATE t SET n = n + 1 WHERE id = 1");
    assert_eq!(one.run("SELECT n FROM t").value(), "2", "an idle session was rolled back");

    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        assert_eq!(one.run(&format!("SELECT {function}(123456)")).value(), "f", "there is no such session");
    }
    server.wait_for_connections(1);
}

/// Waits until a session waits for something of this type and name.
fn wait_for_event(client: &mut Wire, process: &str, kind: &str, event: &str) {
    let sql = format!("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = {process}");
    let expected = [Some(kind.to_owned()), Some(event.to_owned())];
    let patience = Instant::now() + Duration::from_mins(1);
    loop {
        let rows = client.run(&sql).rows;
        assert_eq!(rows.len(), 1, "there is such a session");
        if rows[0] == expected {
            return;
        }
        assert!(Instant::now() < patience, "it waits for {:?}, not for {kind} {event}", rows[0]);
        sleep(Duration::from_millis(2));
    }
}

#[test]
fn pg_stat_activity_tells_what_a_session_waits_for() {
    let server = Server::start();
    let (mut holder, mut waiter, mut observer) = (Wire::start(&server), Wire::start(&server), Wire::start(&server));
    holder.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    holder.run("INSERT INTO t VALUES (1, 0)");
    let process = waiter.run("SELECT pg_backend_pid()").value().to_owned();
    for (hold, statement, event) in [
        ("LOCK TABLE t", "SELECT n FROM t WHERE id = 1", "relation"),
        ("LOCK TABLE t IN SHARE MODE", "UPDATE t SET n = n + 1 WHERE id = 1", "relation"),
        ("UPDATE t SET n = n + 1 WHERE id = 1", "UPDATE t SET n = n + 1 WHERE id = 1", "transactionid"),
        ("UPDATE t SET n = n + 1 WHERE id = 1", "TRUNCATE t", "relation"),
    ] {
        wait_for_event(&mut observer, &process, "Client", "ClientRead");
        holder.run("BEGIN");
        holder.run(hold);
        waiter.send(&query(statement));
        wait_for_event(&mut observer, &process, "Lock", event);
        holder.run("COMMIT");
        let reply = waiter.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("", Some('I')), "{statement}: {reply:?}");
    }
    wait_for_event(&mut observer, &process, "Client", "ClientRead");
    assert_eq!(observer.run("SELECT count(*) FROM t").value(), "0", "each was done in the end");
}

/// The row that it waits for is changed while the session is terminated: a statement that has lost is repeated, but not
/// that of a session that is to end.
#[test]
fn a_session_that_is_terminated_while_it_waits_does_not_repeat_its_statement() {
    let server = Server::start();
    let (mut holder, mut observer) = (Wire::start(&server), Wire::start(&server));
    holder.run("CREATE TABLE t (id int PRIMARY KEY, n int)");
    holder.run("INSERT INTO t VALUES (1, 0)");
    for round in 1..=20 {
        let mut waiter = Wire::start(&server);
        waiter.run("SET retries = 1000");
        let process = waiter.run("SELECT pg_backend_pid()").value().to_owned();
        holder.run("BEGIN");
        holder.run("UPDATE t SET n = n + 1 WHERE id = 1");
        waiter.send(&query("UPDATE t SET n = n + 100 WHERE id = 1"));
        wait_for_event(&mut observer, &process, "Lock", "transactionid");
        holder.run(&format!("SELECT pg_terminate_backend({process}); COMMIT"));
        let reply = waiter.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("57P01", None), "round {round}: {reply:?}");
        assert_eq!(observer.run("SELECT n FROM t").value(), round.to_string(), "it was not done");
    }
    server.wait_for_connections(2);
}

/// Waits until `is_there`, and lets `meanwhile` be done all the time.
fn wait_until(what: &str, is_there: impl Fn() -> bool, mut meanwhile: impl FnMut()) {
    let patience = Instant::now() + Duration::from_mins(1);
    while !is_there() {
        assert!(Instant::now() < patience, "{what}");
        meanwhile();
        sleep(Duration::from_millis(1));
    }
}

/// In the queue for a table, in the queue for memory, and while it writes temporary files: the client is told, and what
/// the session held is free.
#[test]
fn a_session_that_is_terminated_ends_wherever_it_waits() {
    let options = EngineOptions {
        workers: 1,
        nodes: 1,
        memory_limit_bytes: 64 << 20,
        // What else this process holds does not count.
        memory_watched: false,
        ..EngineOptions::default()
    };
    let server = Server::with(options);
    let (mut holder, mut observer) = (Wire::start(&server), Wire::start(&server));
    holder.run("CREATE TABLE t (id int PRIMARY KEY, name text)");
    let rows: String = (1..=2_000).map(|id| format!("{id},{id:0>60}\n")).collect::<Vec<_>>().concat();
    holder.copy("COPY t FROM STDIN WITH (FORMAT csv)", rows.as_bytes());
    // Of 8 billion rows.
    let sort = "SELECT a.name FROM t a, t b, t c ORDER BY a.name DESC, b.id, c.id";
    let waiter = |work_mem: &str| {
        let mut waiter = Wire::start(&server);
        let process = waiter.run("SELECT pg_backend_pid()").value().to_owned();
        waiter.run(&format!("SET work_mem = {work_mem}"));
        waiter.run("SET memory_wait_timeout = '1h'");
        (waiter, process)
    };
    let mut terminate = |mut waiter: Wire, process: &str, what: &str| {
        assert_eq!(observer.run(&format!("SELECT pg_terminate_backend({process})")).value(), "t", "{what}");
        let reply = waiter.until_ready();
        assert_eq!((reply.sqlstate(), reply.status), ("57P01", None), "{what}: {reply:?}");
        observer.run("UPDATE t SET name = 'y' WHERE id = 1");
        wait_until(what, || server.engine.admitted(StatementClass::Scan).1 == 0, || ());
    };
    holder.run("CREATE TABLE locked (id int)");
    holder.run("BEGIN");
    holder.run("LOCK TABLE locked");
    let (mut client, process) = waiter("DEFAULT");
    client.run("BEGIN");
    client.run("UPDATE t SET name = 'x' WHERE id = 1");
    client.send(&query("SELECT * FROM locked"));
    wait_for_event(&mut Wire::start(&server), &process, "Lock", "relation");
    terminate(client, &process, "for a table");
    holder.run("COMMIT");

    let (mut client, process) = waiter("'64kB'");
    client.run("BEGIN");
    client.run("UPDATE t SET name = 'x' WHERE id = 1");
    let files = server.database.temp_files();
    let before = files.statistics().written_bytes;
    client.send(&query(sort));
    wait_until("it sorts in files", || files.statistics().written_bytes > before, || ());
    terminate(client, &process, "in files");
    wait_until("no file stays", || files.statistics().used_bytes == 0, || ());

    let permit = server.engine.block_on(server.engine.admit(StatementClass::Scan)).unwrap().unwrap();
    let held = server.engine.memory().reserve("others");
    // In a block it would not wait.
    let (mut client, process) = waiter("DEFAULT");
    client.send(&query(sort));
    let is_queued = || server.engine.admitted(StatementClass::Scan) == (1, 1);
    wait_until("it waits for memory", is_queued, || while held.grow(64 << 10).is_ok() {});
    terminate(client, &process, "for memory");
    drop((held, permit));
    assert_eq!(holder.run("SELECT name FROM t WHERE id = 1").value(), "y", "none of them was done");
    server.wait_for_connections(2);
}
