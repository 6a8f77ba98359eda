//! A transaction that writes more than the log takes in one record: on a log that takes little.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::task::{Context, Poll};

use eris_engine::{Commit, CommitLog, Definition, EngineOptions, LogError, Simulation};
use eris_sql::{Database, DatabaseOptions, Session, SessionOptions, SqlError};
use eris_storage::TransactionId;
use support::joined;

/// A real log takes 4 GiB.
const RECORD_BYTES_MAX: u64 = 50_000;

/// Keeps nothing; refuses what is too long.
struct SmallLog;

impl CommitLog for SmallLog {
    fn poll_commit(&self, _context: &mut Context<'_>, commit: &mut Option<Commit>) -> Poll<Result<(), LogError>> {
        let Some(next) = commit.as_ref() else { return Poll::Ready(Ok(())) };
        let bytes = next.operations.len() as u64;
        if bytes > RECORD_BYTES_MAX {
            return Poll::Ready(Err(LogError::TooLong { bytes, bytes_max: RECORD_BYTES_MAX }));
        }
        next.take_timestamp().decide(Ok(()));
        *commit = None;
        Poll::Ready(Ok(()))
    }

    fn poll_part(
        &self,
        _context: &mut Context<'_>,
        _transaction: TransactionId,
        operations: &mut Vec<u8>,
    ) -> Poll<Result<(), LogError>> {
        operations.clear();
        Poll::Ready(Ok(()))
    }

    fn rolled_back(&self, _transaction: TransactionId) {}

    fn define(&self, _definition: &Definition) -> Result<(), LogError> {
        Ok(())
    }

    fn poll_durable(&self, _context: &mut Context<'_>, _ticket: &mut Option<u64>) -> Poll<Result<(), LogError>> {
        Poll::Ready(Ok(()))
    }
}

struct Logged {
    session: Option<Session>,
    _database: Database,
    simulation: Simulation,
}

impl Logged {
    fn open() -> Self {
        let mut simulation = Simulation::new(1, EngineOptions::default()).expect("starts");
        let engine = simulation.engine().clone();
        engine.attach_log(Arc::new(SmallLog));
        let opening = Database::open(engine, DatabaseOptions::default());
        let database = simulation.block_on(opening).expect("ends").expect("it opens");
        Self { session: Some(database.session(SessionOptions::default())), _database: database, simulation }
    }

    fn run(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        let (mut session, text) = (self.session.take().expect("no statement runs"), sql.to_owned());
        let ran = async move {
            let answer = support::run(&mut session, &text, &[], None).await;
            (session, answer)
        };
        let (session, answer) = self.simulation.block_on(ran).expect("ends");
        self.session = Some(session);
        answer.map(|answer| answer.rows.iter().map(|row| joined(row)).collect())
    }

    fn rows(&mut self, sql: &str) -> Vec<String> {
        self.run(sql).unwrap_or_else(|error| panic!("{}: {error}", &sql[..sql.len().min(60)]))
    }
}

/// A row with a text of this length.
fn insert(id: u32, bytes: usize) -> String {
    format!("INSERT INTO t VALUES ({id}, '{}')", "x".repeat(bytes))
}

#[test]
fn a_transaction_too_long_for_the_log_is_refused_with_54000_and_rolled_back() {
    let mut logged = Logged::open();
    logged.rows("CREATE TABLE t (id int PRIMARY KEY, text text)");
    logged.rows(&insert(0, 20_000));
    let assert_refused = |refused: Result<Vec<String>, SqlError>| {
        let error = refused.expect_err("it is too long");
        assert_eq!(error.sqlstate.as_str(), "54000", "{error}");
        assert!(error.message.contains("50000") && error.hint.is_some(), "{error}");
    };
    // A statement by itself.
    assert_refused(logged.run(&insert(1, 60_000)));
    assert_eq!(logged.rows("SELECT id FROM t WHERE id = 1"), Vec::<String>::new());
    // A block, each statement of which would fit.
    logged.rows("BEGIN");
    for id in 1..5 {
        logged.rows(&insert(id, 20_000));
    }
    assert_refused(logged.run("COMMIT"));
    for id in 1..5 {
        assert_eq!(logged.rows(&format!("SELECT id FROM t WHERE id = {id}")), Vec::<String>::new());
    }
    // The session goes on, and the keys are free.
    logged.rows(&insert(1, 20_000));
    let found = logged.rows("SELECT id, length(text) FROM t WHERE id = 1");
    assert_eq!((found, logged.rows("SELECT id FROM t WHERE id = 0")), (vec!["1|20000".into()], vec!["0".into()]));
}
