//! Timeouts of a session on the clock of the simulator: what each of them ends, and that it ends nothing else.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use eris_engine::{EngineOptions, Simulation};
use eris_platform::Env;
use eris_sql::{Database, DatabaseOptions, Interruption, Outcome, Session, SessionOptions, SqlError};
use support::joined;

/// A session of a database on a simulated engine.
struct Simulated {
    session: Option<Session>,
    database: Database,
    simulation: Simulation,
}

impl Simulated {
    fn start(seed: u64) -> Self {
        let options = EngineOptions { workers: 2, nodes: 1, ..EngineOptions::default() };
        let mut simulation = Simulation::new(seed, options).expect("starts");
        let opening = Database::open(simulation.engine().clone(), DatabaseOptions::default());
        let database = simulation.block_on(opening).expect("ends").expect("it opens");
        let session = Some(database.session(SessionOptions::default()));
        Self { session, database, simulation }
    }

    /// Runs a text: the rows of its last statement, and how long the text took.
    fn run(&mut self, sql: &str) -> (Result<Vec<String>, SqlError>, Duration) {
        let (mut session, text) = (self.session.take().expect("no statement runs"), sql.to_owned());
        let begun = self.simulation.env().now();
        let ran = async move {
            let answer = support::run(&mut session, &text, &[], None).await;
            (session, answer)
        };
        let (session, answer) = self.simulation.block_on(ran).expect("ends");
        self.session = Some(session);
        let rows = answer.map(|answer| answer.rows.iter().map(|row| joined(row)).collect());
        (rows, self.simulation.env().now() - begun)
    }

    fn rows(&mut self, sql: &str) -> Vec<String> {
        self.run(sql).0.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn error(&mut self, sql: &str) -> SqlError {
        self.run(sql).0.expect_err(sql)
    }

    /// The client is idle.
    fn pause(&mut self, span: Duration) {
        let engine = self.database.engine().clone();
        let slept = async move { engine.sleep_until(engine.env().now() + span).await };
        self.simulation.block_on(slept).expect("ends");
    }
}

/// The statement sleeps for about as long as its timeout, to the same instant in half of the rounds, and the next one
/// begins at once.
#[test]
fn a_timeout_never_hits_the_statement_after_the_one_it_was_for() {
    let (mut in_time, mut too_late) = (0, 0);
    for seed in 0..20 {
        let mut simulated = Simulated::start(seed);
        if seed % 2 == 0 {
            // The next statement has a timeout, too, far ahead.
            simulated.rows("SET statement_timeout = '1min'");
        }
        for millis in [10, 19, 20, 20, 20, 20, 21, 60] {
            // In a text of two statements SET LOCAL holds for this text.
            let text = format!("SET LOCAL statement_timeout = 20; SELECT pg_sleep(0.{millis:03})");
            match simulated.run(&text).0 {
                Ok(_) => in_time += 1,
                Err(error) => {
                    assert_eq!(error.sqlstate.as_str(), "57014", "seed {seed}, {millis} ms: {error}");
                    assert!(error.message.contains("statement timeout"), "{error}");
                    too_late += 1;
                }
            }
            let (answer, took) = simulated.run("SELECT pg_sleep(0.05), 7");
            let answer = answer.unwrap_or_else(|error| panic!("seed {seed}, after {millis} ms: {error}"));
            assert_eq!(answer, ["|7"], "seed {seed}, {millis} ms");
            assert!(took >= Duration::from_millis(50), "seed {seed}, {millis} ms: {took:?}");
        }
    }
    assert!(in_time >= 20 && too_late >= 20, "{in_time} ended in time, {too_late} did not");
}

#[test]
fn each_statement_of_a_text_has_its_own_time() {
    let mut simulated = Simulated::start(1);
    simulated.rows("SET statement_timeout = 100");
    let (answer, took) = simulated.run("SELECT pg_sleep(0.08); SELECT pg_sleep(0.08); SELECT pg_sleep(0.08), 3");
    assert_eq!(answer.unwrap_or_else(|error| panic!("each has its time: {error}")), ["|3"]);
    assert!(took >= Duration::from_millis(240), "{took:?}");
    let (answer, took) = simulated.run("SELECT pg_sleep(0.08); SELECT pg_sleep(60); SELECT 3");
    assert_eq!(answer.expect_err("the second one takes too long").sqlstate.as_str(), "57014");
    assert!(took >= Duration::from_millis(180) && took < Duration::from_secs(1), "{took:?}");
    assert_eq!(simulated.rows("SELECT pg_sleep(0.08), 4"), ["|4"]);
}

/// While the client has a part and does not ask for more, the statement's time stands still; then it begins anew.
#[test]
fn each_part_of_a_portal_has_its_own_time() {
    let mut simulated = Simulated::start(2);
    simulated.rows("SET statement_timeout = 100");
    let mut session = simulated.session.take().expect("no statement runs");
    let engine = simulated.database.engine().clone();
    let parts = async move {
        let activity = Arc::clone(session.activity());
        let pause = |millis| engine.sleep_until(engine.env().now() + Duration::from_millis(millis));
        let statement = session.parse("SELECT 1", &[]).unwrap().remove(0);
        let Outcome::Rows(mut rows) = session.execute(&statement, &[]).await.unwrap() else { panic!("it has rows") };
        let mut told = Vec::new();
        pause(60).await;
        told.push(activity.pending());
        rows.suspend();
        pause(1_000).await;
        told.push(activity.pending());
        rows.resume();
        pause(60).await;
        told.push(activity.pending());
        pause(60).await;
        told.push(activity.pending());
        drop(rows);
        (session, told)
    };
    let (session, told) = simulated.simulation.block_on(parts).expect("ends");
    simulated.session = Some(session);
    assert_eq!(told, [None, None, None, Some(Interruption::StatementTimeout)]);
    assert_eq!(simulated.rows("SELECT pg_sleep(0.08), 4"), ["|4"]);
}

#[test]
fn transaction_timeout_ends_a_block_that_is_one_long_statement() {
    for sql in ["BEGIN; UPDATE t SET n = 1 WHERE id = 1; SELECT pg_sleep(60)", "SELECT pg_sleep(60)"] {
        let mut simulated = Simulated::start(3);
        simulated.rows("CREATE TABLE t (id int PRIMARY KEY, n int)");
        simulated.rows("INSERT INTO t VALUES (1, 0)");
        simulated.rows("SET transaction_timeout = 200");
        let (ended, took) = simulated.run(sql);
        let ended = ended.expect_err("it takes too long");
        assert_eq!(ended.sqlstate.as_str(), "25P04", "{sql}: {ended}");
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(2), "{sql}: {took:?}");
        assert_eq!(simulated.error("SELECT 1").sqlstate.as_str(), "25P04", "the session is over");
        // What it had locked is free, and as it was.
        simulated.session = Some(simulated.database.session(SessionOptions::default()));
        simulated.rows("SET lock_timeout = 50");
        simulated.rows("UPDATE t SET n = n + 5 WHERE id = 1");
        assert_eq!(simulated.rows("SELECT n FROM t WHERE id = 1"), ["5"], "{sql}");
    }
}

#[test]
fn a_block_that_ended_in_time_leaves_no_timeout_behind() {
    let mut simulated = Simulated::start(4);
    simulated.rows("CREATE TABLE t (id int PRIMARY KEY)");
    simulated.rows("INSERT INTO t VALUES (1)");
    simulated.rows("SET transaction_timeout = 200");
    for fails in [false, true] {
        for end in ["ROLLBACK", "COMMIT"] {
            simulated.rows("BEGIN; SELECT pg_sleep(0.15)");
            if fails {
                assert_eq!(simulated.error("INSERT INTO t VALUES (1)").sqlstate.as_str(), "23505");
            }
            simulated.rows(end);
            simulated.pause(Duration::from_millis(300));
            // Together they take longer; each is a transaction.
            for _ in 0..2 {
                assert_eq!(simulated.rows("SELECT pg_sleep(0.15), 5"), ["|5"], "after {end}");
            }
        }
    }
}
