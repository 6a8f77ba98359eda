//! The isolation anomalies of Hermitage (M. Kleppmann, <https://github.com/ept/hermitage>) as histories of the task
//! API, with what PostgreSQL answers at READ COMMITTED and at REPEATABLE READ: who waits, who fails, what is read.
//!
//! One answer differs knowingly, see [`pmp_for_write_predicates`].

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod sessions;

use eris_engine::IsolationLevel::{self, ReadCommitted, RepeatableRead};
use eris_platform::test_load;
use sessions::Answer::{Count, Done, Lost, Rows};
use sessions::{Answer, Bench, Do, Session};

/// Placements, quanta and ways of running a command differ by seed; the answers do not.
const SEEDS: u64 = 12;

fn get(key: i64, amount: i64) -> (Do, Answer) {
    (Do::Get(key), Rows(vec![(key, amount)]))
}

fn set(key: i64, amount: i64) -> (Do, Answer) {
    (Do::Set(key, amount), Count(1))
}

fn all(amounts: &[(i64, i64)]) -> (Do, Answer) {
    (Do::All, Rows(amounts.to_vec()))
}

const COMMIT: (Do, Answer) = (Do::Commit, Done);
const ROLLBACK: (Do, Answer) = (Do::Rollback, Done);

struct History {
    bench: Bench,
    sessions: Vec<Session>,
}

impl History {
    /// Transaction `number` does this and is answered so.
    fn t(&mut self, number: usize, (order, answer): (Do, Answer)) -> &mut Self {
        self.bench.expect(&self.sessions[number - 1], order, answer);
        self
    }

    /// Transaction `number` does this and has to wait.
    fn waits(&mut self, number: usize, order: Do) -> &mut Self {
        self.bench.waits(&self.sessions[number - 1], order);
        self
    }

    /// Transaction `number` has waited and is answered so.
    fn goes_on(&mut self, number: usize, answer: Answer) -> &mut Self {
        assert_eq!(self.sessions[number - 1].answer(), Some(answer));
        self
    }

    fn ends_with(&mut self, rows: &[(i64, i64)]) {
        assert_eq!(self.bench.state(), rows);
    }
}

/// Runs a history of three transactions at a level, under several seeds.
fn at(level: IsolationLevel, run: impl Fn(&mut History)) {
    for seed in 1..=test_load(SEEDS) {
        let mut bench = Bench::new(seed);
        let sessions = (0..3).map(|_| bench.begin(level)).collect();
        let mut history = History { bench, sessions };
        run(&mut history);
        history.bench.finish(history.sessions);
    }
}

#[test]
fn g0_dirty_writes_are_prevented() {
    at(ReadCommitted, |h| {
        h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, set(2, 21)).t(1, COMMIT).goes_on(2, Count(1));
        h.t(3, all(&[(1, 11), (2, 21)])).t(2, set(2, 22)).t(2, COMMIT);
        h.ends_with(&[(1, 12), (2, 22)]);
    });
    at(RepeatableRead, |h| {
        h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, set(2, 21)).t(1, COMMIT).goes_on(2, Lost).t(2, ROLLBACK);
        h.ends_with(&[(1, 11), (2, 21)]);
    });
    // If the first one aborts, the second one goes on at either level.
    for level in [ReadCommitted, RepeatableRead] {
        at(level, |h| {
            h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, ROLLBACK).goes_on(2, Count(1)).t(2, COMMIT);
            h.ends_with(&[(1, 12), (2, 20)]);
        });
    }
}

#[test]
fn g1a_aborted_reads_are_prevented() {
    for level in [ReadCommitted, RepeatableRead] {
        at(level, |h| {
            h.t(1, set(1, 101)).t(2, all(&[(1, 10), (2, 20)])).t(1, ROLLBACK).t(2, all(&[(1, 10), (2, 20)]));
        });
    }
}

#[test]
fn g1b_intermediate_reads_are_prevented() {
    at(ReadCommitted, |h| {
        h.t(1, set(1, 101)).t(2, get(1, 10)).t(1, set(1, 11)).t(1, COMMIT).t(2, all(&[(1, 11), (2, 20)]));
    });
    at(RepeatableRead, |h| {
        h.t(1, set(1, 101)).t(2, get(1, 10)).t(1, set(1, 11)).t(1, COMMIT).t(2, all(&[(1, 10), (2, 20)]));
    });
}

#[test]
fn g1c_circular_information_flow_is_prevented() {
    for level in [ReadCommitted, RepeatableRead] {
        at(level, |h| {
            h.t(1, set(1, 11)).t(2, set(2, 22)).t(1, get(2, 20)).t(2, get(1, 10)).t(1, COMMIT).t(2, COMMIT);
            h.ends_with(&[(1, 11), (2, 22)]);
        });
    }
}

#[test]
fn otv_observed_transactions_do_not_vanish() {
    at(ReadCommitted, |h| {
        h.t(1, set(1, 11)).t(1, set(2, 19)).waits(2, Do::Set(1, 12)).t(1, COMMIT).goes_on(2, Count(1));
        h.t(3, get(1, 11)).t(2, set(2, 18)).t(3, get(2, 19)).t(2, COMMIT).t(3, get(2, 18)).t(3, get(1, 12));
    });
    at(RepeatableRead, |h| {
        h.t(1, set(1, 11)).t(1, set(2, 19)).waits(2, Do::Set(1, 12)).t(1, COMMIT).goes_on(2, Lost).t(2, ROLLBACK);
        h.t(3, get(1, 10)).t(3, get(2, 20));
    });
}

#[test]
fn pmp_predicates_keep_their_rows_under_repeatable_read() {
    let nothing = || (Do::Having(30), Rows(Vec::new()));
    at(ReadCommitted, |h| {
        h.t(1, nothing()).t(2, (Do::Insert(3, 30), Count(1))).t(2, COMMIT);
        h.t(1, (Do::Having(30), Rows(vec![(3, 30)])));
    });
    at(RepeatableRead, |h| {
        h.t(1, nothing()).t(2, (Do::Insert(3, 30), Count(1))).t(2, COMMIT).t(1, nothing());
    });
}

/// PostgreSQL at READ COMMITTED looks only at the rows that it waited for again, and deletes nothing here: the row that
/// has 20 now was not among them. ERIS begins the statement again with a new snapshot, so that it sees one state of the
/// table: the row that has 20 is deleted.
#[test]
fn pmp_for_write_predicates() {
    at(ReadCommitted, |h| {
        h.t(1, (Do::AddToAll(10), Count(2))).waits(2, Do::DeleteHaving(20)).t(1, COMMIT).goes_on(2, Count(1));
        h.t(2, all(&[(2, 30)])).t(2, COMMIT);
    });
    at(RepeatableRead, |h| {
        h.t(1, (Do::AddToAll(10), Count(2))).waits(2, Do::DeleteHaving(20)).t(1, COMMIT).goes_on(2, Lost);
        h.t(2, ROLLBACK).ends_with(&[(1, 20), (2, 30)]);
    });
}

#[test]
fn p4_lost_updates_are_prevented_under_repeatable_read() {
    at(ReadCommitted, |h| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, COMMIT);
        h.goes_on(2, Count(1)).t(2, COMMIT).ends_with(&[(1, 12), (2, 20)]);
    });
    at(RepeatableRead, |h| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, COMMIT);
        h.goes_on(2, Lost).t(2, ROLLBACK).ends_with(&[(1, 11), (2, 20)]);
    });
}

#[test]
fn g_single_read_skew_is_prevented_under_repeatable_read() {
    let writes = |h: &mut History| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(2, get(2, 20)).t(2, set(1, 12)).t(2, set(2, 18)).t(2, COMMIT);
    };
    at(ReadCommitted, |h| {
        writes(h);
        h.t(1, get(2, 18));
    });
    at(RepeatableRead, |h| {
        writes(h);
        h.t(1, get(2, 20));
    });
    // By a write whose predicate held in the snapshot.
    at(RepeatableRead, |h| {
        writes(h);
        h.t(1, (Do::DeleteHaving(20), Lost)).t(1, ROLLBACK).ends_with(&[(1, 12), (2, 18)]);
    });
}

#[test]
fn g2_write_skew_is_not_prevented() {
    for level in [ReadCommitted, RepeatableRead] {
        // On items.
        at(level, |h| {
            h.t(1, all(&[(1, 10), (2, 20)])).t(2, all(&[(1, 10), (2, 20)])).t(1, set(1, 11)).t(2, set(2, 21));
            h.t(1, COMMIT).t(2, COMMIT).ends_with(&[(1, 11), (2, 21)]);
        });
        // On predicates.
        at(level, |h| {
            h.t(1, (Do::Having(30), Rows(vec![]))).t(2, (Do::Having(30), Rows(vec![])));
            h.t(1, (Do::Insert(3, 30), Count(1))).t(2, (Do::Insert(4, 30), Count(1))).t(1, COMMIT).t(2, COMMIT);
            h.ends_with(&[(1, 10), (2, 20), (3, 30), (4, 30)]);
        });
    }
}
