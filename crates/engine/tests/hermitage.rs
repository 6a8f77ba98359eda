//! The isolation anomalies of Hermitage (M. Kleppmann, <https://github.com/ept/hermitage>) as histories of the task
//! API, with what PostgreSQL answers at READ COMMITTED, REPEATABLE READ and SERIALIZABLE: who waits, who fails, what is
//! read.
//!
//! One answer differs knowingly, see [`pmp_for_write_predicates`].

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod sessions;

use eris_engine::IsolationLevel::{self, ReadCommitted, RepeatableRead, Serializable};
use eris_platform::test_load;
use sessions::Answer::{Count, Done, Lost, Rows, Unserializable};
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

    /// Transaction `number` begins now instead of with the others.
    fn begins(&mut self, number: usize, level: IsolationLevel) -> &mut Self {
        let session = self.bench.begin(level);
        std::mem::replace(&mut self.sessions[number - 1], session).tell(Do::Drop);
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

/// At both levels with one snapshot.
fn at_snapshots(run: impl Fn(&mut History)) {
    at(RepeatableRead, &run);
    at(Serializable, &run);
}

#[test]
fn g0_dirty_writes_are_prevented() {
    at(ReadCommitted, |h| {
        h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, set(2, 21)).t(1, COMMIT).goes_on(2, Count(1));
        h.t(3, all(&[(1, 11), (2, 21)])).t(2, set(2, 22)).t(2, COMMIT);
        h.ends_with(&[(1, 12), (2, 22)]);
    });
    at_snapshots(|h| {
        h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, set(2, 21)).t(1, COMMIT).goes_on(2, Lost).t(2, ROLLBACK);
        h.ends_with(&[(1, 11), (2, 21)]);
    });
    // If the first one aborts, the second one goes on at any level.
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        at(level, |h| {
            h.t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, ROLLBACK).goes_on(2, Count(1)).t(2, COMMIT);
            h.ends_with(&[(1, 12), (2, 20)]);
        });
    }
}

#[test]
fn g1a_aborted_reads_are_prevented() {
    for level in [ReadCommitted, RepeatableRead, Serializable] {
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
    at_snapshots(|h| {
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
    // Neither sees the other, so neither could be the first.
    at(Serializable, |h| {
        h.t(1, set(1, 11)).t(2, set(2, 22)).t(1, get(2, 20)).t(2, get(1, 10)).t(1, COMMIT);
        h.t(2, (Do::Commit, Unserializable)).ends_with(&[(1, 11), (2, 20)]);
    });
}

#[test]
fn otv_observed_transactions_do_not_vanish() {
    at(ReadCommitted, |h| {
        h.t(1, set(1, 11)).t(1, set(2, 19)).waits(2, Do::Set(1, 12)).t(1, COMMIT).goes_on(2, Count(1));
        h.t(3, get(1, 11)).t(2, set(2, 18)).t(3, get(2, 19)).t(2, COMMIT).t(3, get(2, 18)).t(3, get(1, 12));
    });
    at_snapshots(|h| {
        h.t(1, set(1, 11)).t(1, set(2, 19)).waits(2, Do::Set(1, 12)).t(1, COMMIT).goes_on(2, Lost).t(2, ROLLBACK);
        h.t(3, get(1, 10)).t(3, get(2, 20));
    });
}

#[test]
fn pmp_predicates_keep_their_rows_in_a_snapshot() {
    let nothing = || (Do::Having(30), Rows(Vec::new()));
    at(ReadCommitted, |h| {
        h.t(1, nothing()).t(2, (Do::Insert(3, 30), Count(1))).t(2, COMMIT);
        h.t(1, (Do::Having(30), Rows(vec![(3, 30)])));
    });
    at_snapshots(|h| {
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
    at_snapshots(|h| {
        h.t(1, (Do::AddToAll(10), Count(2))).waits(2, Do::DeleteHaving(20)).t(1, COMMIT).goes_on(2, Lost);
        h.t(2, ROLLBACK).ends_with(&[(1, 20), (2, 30)]);
    });
}

#[test]
fn p4_lost_updates_are_prevented_in_a_snapshot() {
    at(ReadCommitted, |h| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, COMMIT);
        h.goes_on(2, Count(1)).t(2, COMMIT).ends_with(&[(1, 12), (2, 20)]);
    });
    at_snapshots(|h| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(1, set(1, 11)).waits(2, Do::Set(1, 12)).t(1, COMMIT);
        h.goes_on(2, Lost).t(2, ROLLBACK).ends_with(&[(1, 11), (2, 20)]);
    });
}

#[test]
fn g_single_read_skew_is_prevented_in_a_snapshot() {
    let writes = |h: &mut History| {
        h.t(1, get(1, 10)).t(2, get(1, 10)).t(2, get(2, 20)).t(2, set(1, 12)).t(2, set(2, 18)).t(2, COMMIT);
    };
    at(ReadCommitted, |h| {
        writes(h);
        h.t(1, get(2, 18));
    });
    at_snapshots(|h| {
        writes(h);
        h.t(1, get(2, 20));
    });
    // By a write whose predicate held in the snapshot.
    at_snapshots(|h| {
        writes(h);
        h.t(1, (Do::DeleteHaving(20), Lost)).t(1, ROLLBACK).ends_with(&[(1, 12), (2, 18)]);
    });
}

#[test]
fn g2_write_skew_is_prevented_by_serializable_only() {
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
    at(Serializable, |h| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(2, all(&[(1, 10), (2, 20)])).t(1, set(1, 11)).t(2, set(2, 21));
        h.t(1, COMMIT).t(2, (Do::Commit, Unserializable)).ends_with(&[(1, 11), (2, 20)]);
    });
    // By keys, and the writer is told while it writes: the other one has committed.
    at(Serializable, |h| {
        h.t(1, get(1, 10)).t(2, get(2, 20)).t(1, set(2, 21)).t(1, COMMIT);
        h.t(2, (Do::Set(1, 11), Unserializable)).t(2, ROLLBACK).ends_with(&[(1, 10), (2, 21)]);
    });
    // The same with the reader told.
    at(Serializable, |h| {
        h.t(1, get(1, 10)).t(2, set(1, 11)).t(1, set(2, 21)).t(1, COMMIT);
        h.t(2, (Do::Get(2), Unserializable)).t(2, ROLLBACK).ends_with(&[(1, 10), (2, 21)]);
    });
    // On predicates.
    at(Serializable, |h| {
        h.t(1, (Do::Having(30), Rows(vec![]))).t(2, (Do::Having(30), Rows(vec![])));
        h.t(1, (Do::Insert(3, 30), Count(1))).t(2, (Do::Insert(4, 30), Count(1))).t(1, COMMIT);
        h.t(2, (Do::Commit, Unserializable)).ends_with(&[(1, 10), (2, 20), (3, 30)]);
    });
    // A row that leaves a predicate.
    at(Serializable, |h| {
        h.t(1, (Do::Having(10), Rows(vec![(1, 10)]))).t(2, (Do::Having(20), Rows(vec![(2, 20)])));
        h.t(1, set(2, 21)).t(2, set(1, 11)).t(1, COMMIT).t(2, (Do::Commit, Unserializable));
        h.ends_with(&[(1, 10), (2, 21)]);
    });
}

/// M. J. Fekete, E. O'Neil, P. O'Neil, *A read-only transaction anomaly under snapshot isolation* (2004).
#[test]
fn g2_with_two_edges_is_prevented_by_serializable_only() {
    let until_the_report = |h: &mut History, level| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(2, set(2, 25)).t(2, COMMIT);
        h.begins(3, level).t(3, all(&[(1, 10), (2, 25)])).t(3, COMMIT);
    };
    at(RepeatableRead, |h| {
        until_the_report(h, RepeatableRead);
        h.t(1, set(1, 0)).t(1, COMMIT).ends_with(&[(1, 0), (2, 25)]);
    });
    at(Serializable, |h| {
        until_the_report(h, Serializable);
        h.t(1, (Do::Set(1, 0), Unserializable)).t(1, ROLLBACK).ends_with(&[(1, 10), (2, 25)]);
    });
    // The report is run while the others are under way: whoever comes last is told.
    at(Serializable, |h| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(1, set(1, 0)).t(2, set(2, 25)).t(2, COMMIT);
        h.begins(3, Serializable).t(3, (Do::All, Rows(vec![(1, 10), (2, 25)])));
        h.t(1, (Do::Commit, Unserializable)).t(3, COMMIT).ends_with(&[(1, 10), (2, 25)]);
    });
    // A report that does not see the first one to commit comes before both.
    at(Serializable, |h| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(3, all(&[(1, 10), (2, 20)])).t(3, COMMIT).t(2, set(2, 25)).t(2, COMMIT);
        h.t(1, set(1, 0)).t(1, COMMIT).ends_with(&[(1, 0), (2, 25)]);
    });
}

#[test]
fn who_is_not_in_the_way_commits() {
    // Keys that are not the other's.
    at(Serializable, |h| {
        h.t(1, get(1, 10)).t(2, get(2, 20)).t(1, set(1, 11)).t(2, set(2, 21)).t(1, COMMIT).t(2, COMMIT);
        h.ends_with(&[(1, 11), (2, 21)]);
    });
    // Predicates that the other's rows never meet.
    at(Serializable, |h| {
        h.t(1, (Do::Having(30), Rows(vec![]))).t(2, (Do::Having(40), Rows(vec![])));
        h.t(1, (Do::Insert(3, 30), Count(1))).t(2, (Do::Insert(4, 40), Count(1))).t(1, COMMIT).t(2, COMMIT);
        h.ends_with(&[(1, 10), (2, 20), (3, 30), (4, 40)]);
    });
    // One edge: who saw nothing of the other was first.
    at(Serializable, |h| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(2, set(2, 21)).t(2, COMMIT).t(1, get(2, 20)).t(1, COMMIT);
        h.ends_with(&[(1, 10), (2, 21)]);
    });
    // Two edges in a row, and the last one commits last.
    at(Serializable, |h| {
        h.t(1, get(1, 10)).t(2, set(1, 11)).t(2, get(2, 20)).t(1, COMMIT).t(2, COMMIT).t(3, set(2, 21)).t(3, COMMIT);
        h.ends_with(&[(1, 11), (2, 21)]);
    });
    // Others are not looked at.
    at(RepeatableRead, |h| {
        h.begins(1, Serializable).t(1, all(&[(1, 10), (2, 20)])).t(2, all(&[(1, 10), (2, 20)]));
        h.t(1, set(1, 11)).t(2, set(2, 21)).t(1, COMMIT).t(2, COMMIT).ends_with(&[(1, 11), (2, 21)]);
    });
    // Who rolled back leaves nothing.
    at(Serializable, |h| {
        h.t(1, all(&[(1, 10), (2, 20)])).t(2, all(&[(1, 10), (2, 20)])).t(1, set(1, 11)).t(2, set(2, 21));
        h.t(1, ROLLBACK).t(2, COMMIT).ends_with(&[(1, 10), (2, 21)]);
    });
}
