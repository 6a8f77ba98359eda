//! Waiting for other transactions, deadlocks, lock timeouts, savepoints and row locks, one operation at a time.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod accounts;
mod sessions;

use std::time::Duration;

use eris_engine::IsolationLevel::{ReadCommitted, RepeatableRead};
use eris_engine::LockWait::{NoWait, SkipLocked, Wait};
use eris_engine::{EngineOptions, Event, Partitioning};
use eris_platform::test_load;
use eris_storage::RowLock::{KeyShare, NoKeyUpdate, Share, Update};
use sessions::Answer::{
    Cancelled, Count, Deadlock, Done, Duplicate, Lost, NoSuchSavepoint, NotAvailable, Rows, Timeout,
};
use sessions::{Answer, Bench, Do, Session};

const SEEDS: u64 = 12;

/// Runs a history of `sessions` transactions at a level, under several seeds.
fn with(sessions: usize, level: eris_engine::IsolationLevel, run: impl Fn(&mut Bench, &[Session])) {
    for seed in 1..=test_load(SEEDS) {
        let mut bench = Bench::new(seed);
        let sessions: Vec<Session> = (0..sessions).map(|_| bench.begin(level)).collect();
        run(&mut bench, &sessions);
        bench.finish(sessions);
    }
}

fn event(bench: &Bench, event: Event) -> u64 {
    bench.engine().statistics().event(event)
}

#[test]
fn an_insert_waits_for_whoever_has_its_key() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Insert(7, 1), Count(1));
        bench.waits(&s[1], Do::Insert(7, 2));
        assert_eq!(bench.engine().statistics().waiting_transactions, 1);
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(s[1].answer(), Some(Duplicate));
    });
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Insert(7, 1), Count(1));
        bench.waits(&s[1], Do::InsertMany(vec![5, 6, 7, 8]));
        bench.expect(&s[0], Do::Rollback, Done);
        assert_eq!(s[1].answer(), Some(Count(4)));
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(bench.state(), [(1, 10), (2, 20), (5, 5), (6, 6), (7, 7), (8, 8)]);
    });
    // The key is given away by a delete and by a renaming that may yet be rolled back.
    with(3, ReadCommitted, |bench, s| {
        bench.expect(&s[0], Do::Delete(1), Count(1));
        bench.expect(&s[0], Do::Rename(2, 9), Count(1));
        bench.waits(&s[1], Do::Insert(1, 11));
        bench.waits(&s[2], Do::Insert(2, 22));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!((s[1].answer(), s[2].answer()), (Some(Count(1)), Some(Count(1))));
        bench.expect(&s[1], Do::Commit, Done);
        bench.expect(&s[2], Do::Commit, Done);
        assert_eq!(bench.state(), [(1, 11), (2, 22), (9, 20)]);
    });
}

#[test]
fn a_bulk_load_waits_for_whoever_has_one_of_its_keys() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Insert(40, 1), Count(1));
        bench.expect(&s[0], Do::Delete(2), Count(1));
        bench.waits(&s[1], Do::Load((30..60).collect()));
        bench.expect(&s[0], Do::Rollback, Done);
        assert_eq!(s[1].answer(), Some(Count(30)));
        bench.expect(&s[1], Do::All, Rows([(1, 10), (2, 20)].into_iter().chain((30..60).map(|k| (k, k))).collect()));
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(bench.state().len(), 32);
    });
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Insert(40, 1), Count(1));
        bench.waits(&s[1], Do::Load((30..60).collect()));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(s[1].answer(), Some(Duplicate));
        bench.expect(&s[1], Do::Rollback, Done);
        assert_eq!(bench.state(), [(1, 10), (2, 20), (40, 1)]);
    });
    // A load that was taken back to a savepoint leaves its keys free.
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Savepoint, Done);
        bench.expect(&s[0], Do::Load((30..60).collect()), Count(30));
        bench.waits(&s[1], Do::Insert(30, 1));
        bench.expect(&s[0], Do::RollbackTo(0), Done);
        assert_eq!(s[1].answer(), Some(Count(1)));
        bench.expect(&s[0], Do::Load((40..60).collect()), Count(20));
        bench.expect(&s[0], Do::Commit, Done);
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(bench.state().len(), 23);
    });
}

#[test]
fn a_renaming_waits_at_its_target() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Insert(9, 1), Count(1));
        bench.waits(&s[1], Do::Rename(1, 9));
        bench.expect(&s[0], Do::Rollback, Done);
        assert_eq!(s[1].answer(), Some(Count(1)));
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(bench.state(), [(2, 20), (9, 10)]);
    });
}

#[test]
fn a_change_of_many_rows_goes_on_where_it_waited() {
    for level in [ReadCommitted, RepeatableRead] {
        with(3, level, |bench, s| {
            bench.expect(&s[0], Do::InsertMany((3..20).collect()), Count(17));
            bench.expect(&s[0], Do::Commit, Done);
            bench.expect(&s[0], Do::Begin(level), Done);
            bench.expect(&s[1], Do::Rollback, Done);
            bench.expect(&s[1], Do::Begin(level), Done);
            bench.expect(&s[2], Do::Rollback, Done);
            bench.expect(&s[2], Do::Begin(level), Done);
            bench.expect(&s[0], Do::Set(7, 0), Count(1));
            bench.expect(&s[1], Do::Delete(15), Count(1));
            bench.waits(&s[2], Do::AddToAll(100));
            bench.expect(&s[0], Do::Rollback, Done);
            assert_eq!(s[2].answer(), None, "15 is still in the way");
            bench.expect(&s[1], Do::Rollback, Done);
            assert_eq!(s[2].answer(), Some(Count(19)), "every row is counted once");
            bench.expect(&s[2], Do::Commit, Done);
            let state = bench.state();
            assert!(state.iter().all(|(key, amount)| *amount == 100 + if *key < 3 { key * 10 } else { *key }));
        });
    }
}

#[test]
fn the_transaction_that_closes_a_circle_is_told() {
    with(3, ReadCommitted, |bench, s| {
        bench.expect(&s[2], Do::Insert(3, 30), Count(1));
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.expect(&s[1], Do::Set(2, 21), Count(1));
        bench.waits(&s[0], Do::Set(2, 12));
        bench.waits(&s[1], Do::Insert(3, 31));
        bench.expect(&s[2], Do::Set(1, 31), Deadlock);
        assert_eq!(event(bench, Event::Deadlocks), 1);
        // The others go on once it is gone, one after the other.
        bench.expect(&s[2], Do::Rollback, Done);
        assert_eq!((s[0].answer(), s[1].answer()), (None, Some(Count(1))));
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(s[0].answer(), Some(Count(1)));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(bench.state(), [(1, 11), (2, 12), (3, 31)]);
    });
}

#[test]
fn a_wait_ends_with_its_lock_timeout() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.expect(&s[1], Do::Timeout(Some(Duration::ZERO)), Done);
        bench.expect(&s[1], Do::Set(1, 12), Timeout);
        assert_eq!(event(bench, Event::LockWaits), 0);
        bench.expect(&s[1], Do::Timeout(Some(Duration::from_secs(5))), Done);
        let before = bench.engine().env().now();
        // The clock moves when nobody has work.
        bench.expect(&s[1], Do::Set(1, 12), Timeout);
        let waited = bench.engine().env().now() - before;
        assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(6), "{waited:?}");
        assert_eq!((event(bench, Event::LockWaits), event(bench, Event::LockTimeouts)), (1, 2));
        // The timer of a wait that has ended is gone: the clock does not move to it.
        bench.expect(&s[1], Do::Timeout(Some(Duration::from_hours(1))), Done);
        s[1].tell(Do::Set(2, 22));
        bench.settle();
        assert_eq!(s[1].answer(), Some(Count(1)));
        s[1].tell(Do::Set(1, 12));
        let engine = bench.engine().clone();
        bench.simulation.run_until(|| engine.statistics().waiting_transactions == 1).expect("it waits");
        s[1].cancel();
        let before = engine.env().now();
        bench.settle();
        assert_eq!(s[1].answer(), Some(Cancelled));
        assert!(engine.env().now() - before < Duration::from_mins(1), "{:?}", engine.env().now());
        bench.expect(&s[1], Do::Rollback, Done);
        bench.expect(&s[1], Do::Begin(RepeatableRead), Done);
        bench.waits(&s[1], Do::Set(1, 12));
        bench.expect(&s[0], Do::Rollback, Done);
        assert_eq!(s[1].answer(), Some(Count(1)));
    });
}

#[test]
fn a_wait_can_be_cancelled_and_its_task_dropped() {
    with(4, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.waits(&s[1], Do::Set(1, 12));
        s[1].cancel();
        bench.settle();
        assert_eq!(s[1].answer(), Some(Cancelled));
        assert_eq!(bench.engine().statistics().waiting_transactions, 0);
        // A future that is dropped while it waits: its transaction goes with it, and who waits for that goes on.
        bench.expect(&s[3], Do::Set(2, 22), Count(1));
        let engine = bench.engine().clone();
        let container = bench.container;
        bench
            .simulation
            .block_on(async move {
                let mut transaction = engine.begin();
                let read = accounts::by_key(container, 1);
                let mut update =
                    Box::pin(
                        async move { transaction.update(&read, std::sync::Arc::new(accounts::SetAmount(13))).await },
                    );
                let mut pause = Box::pin(engine.sleep_until(engine.env().now() + Duration::from_millis(5)));
                std::future::poll_fn(|context| {
                    assert!(update.as_mut().poll(context).is_pending(), "the row is taken");
                    pause.as_mut().poll(context)
                })
                .await;
                assert_eq!(engine.statistics().waiting_transactions, 1);
                drop(update);
                assert_eq!(engine.statistics().waiting_transactions, 0);
            })
            .expect("the task ends");
        bench.expect(&s[0], Do::Commit, Done);
        bench.expect(&s[3], Do::Commit, Done);
        assert_eq!(bench.state(), [(1, 11), (2, 22)]);
    });
}

#[test]
fn a_partition_splits_while_others_wait_for_its_rows() {
    for seed in 1..=test_load(SEEDS) {
        let options =
            EngineOptions { workers: 2, split_rows: 40, in_place: seed.is_multiple_of(2), ..EngineOptions::default() };
        let mut bench = Bench::with(seed, options, Partitioning::Range(Box::new([accounts::KEY])));
        let s: Vec<Session> = (0..3).map(|_| bench.begin(ReadCommitted)).collect();
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.waits(&s[1], Do::AddToAll(100));
        bench.expect(&s[2], Do::InsertMany((3..200).collect()), Count(197));
        bench.expect(&s[2], Do::Commit, Done);
        let container = bench.engine().container(bench.container).expect("it exists");
        assert!(container.partition_count() > 1, "the partition has split");
        assert_eq!(s[1].answer(), None);
        bench.expect(&s[0], Do::Commit, Done);
        // With the snapshot of after the commit: 1 was changed, and the others are there.
        assert_eq!(s[1].answer(), Some(Count(199)));
        bench.expect(&s[1], Do::Commit, Done);
        assert_eq!(bench.state().len(), 199);
        drop(container);
        bench.finish(s);
    }
}

#[test]
fn what_lies_behind_a_savepoint_can_be_taken_back() {
    for level in [ReadCommitted, RepeatableRead] {
        with(2, level, |bench, s| {
            let own = &s[0];
            bench.expect(own, Do::Set(1, 11), Count(1));
            bench.expect(own, Do::Savepoint, Done);
            bench.expect(own, Do::Set(1, 12), Count(1));
            bench.expect(own, Do::Insert(3, 30), Count(1));
            bench.expect(own, Do::Delete(2), Count(1));
            bench.expect(own, Do::Savepoint, Done);
            bench.expect(own, Do::Insert(2, 21), Count(1));
            bench.expect(own, Do::All, Rows(vec![(1, 12), (2, 21), (3, 30)]));
            bench.expect(own, Do::RollbackTo(1), Done);
            bench.expect(own, Do::All, Rows(vec![(1, 12), (3, 30)]));
            // Another one waits for a row that is given back, not for the transaction.
            bench.waits(&s[1], Do::Set(2, 22));
            bench.expect(own, Do::RollbackTo(0), Done);
            assert_eq!(s[1].answer(), Some(Count(1)));
            bench.expect(own, Do::RollbackTo(1), NoSuchSavepoint);
            bench.expect(own, Do::All, Rows(vec![(1, 11), (2, 20)]));
            // What was taken back can be done again: row, key, and a key that was there before.
            bench.expect(own, Do::Set(1, 13), Count(1));
            bench.expect(own, Do::Insert(3, 31), Count(1));
            bench.expect(own, Do::Release(0), Done);
            bench.expect(own, Do::RollbackTo(0), NoSuchSavepoint);
            bench.expect(&s[1], Do::Insert(4, 40), Count(1));
            bench.expect(&s[1], Do::Commit, Done);
            bench.expect(own, Do::Commit, Done);
            assert_eq!(bench.state(), [(1, 13), (2, 22), (3, 31), (4, 40)]);
        });
    }
}

#[test]
fn a_failed_statement_is_taken_back_and_the_transaction_goes_on() {
    with(1, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.expect(&s[0], Do::Savepoint, Done);
        bench.expect(&s[0], Do::InsertMany(vec![5, 6, 2, 7]), Duplicate);
        bench.expect(&s[0], Do::RollbackTo(0), Done);
        bench.expect(&s[0], Do::Insert(5, 50), Count(1));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(bench.state(), [(1, 11), (2, 20), (5, 50)]);
    });
}

#[test]
fn row_locks_conflict_with_each_other_and_with_writes() {
    let modes = [KeyShare, Share, NoKeyUpdate, Update];
    for first in modes {
        for second in modes {
            with(2, ReadCommitted, |bench, s| {
                bench.expect(&s[0], Do::Lock(1, first, Wait), Rows(vec![(1, 10)]));
                if first.conflicts_with(second) {
                    bench.expect(&s[1], Do::Lock(1, second, NoWait), NotAvailable);
                    bench.expect(&s[1], Do::LockAll(second, SkipLocked), Rows(vec![(2, 20)]));
                    bench.waits(&s[1], Do::Lock(1, second, Wait));
                    bench.expect(&s[0], Do::Commit, Done);
                    assert_eq!(s[1].answer(), Some(Rows(vec![(1, 10)])));
                } else {
                    bench.expect(&s[1], Do::LockAll(second, NoWait), Rows(vec![(1, 10), (2, 20)]));
                }
            });
        }
        let writes: [(Do, eris_storage::RowLock); 3] =
            [(Do::Set(1, 11), NoKeyUpdate), (Do::Delete(1), Update), (Do::Rename(1, 9), Update)];
        for (write, mode) in writes {
            with(2, ReadCommitted, |bench, s| {
                bench.expect(&s[0], Do::Lock(1, first, Wait), Rows(vec![(1, 10)]));
                if first.conflicts_with(mode) {
                    bench.waits(&s[1], write.clone());
                    bench.expect(&s[0], Do::Rollback, Done);
                    assert_eq!(s[1].answer(), Some(Count(1)));
                } else {
                    bench.expect(&s[1], write.clone(), Count(1));
                }
            });
            // The other way round: the write is first.
            with(2, ReadCommitted, |bench, s| {
                bench.expect(&s[0], write.clone(), Count(1));
                let answer = if first.conflicts_with(mode) { NotAvailable } else { Rows(vec![(1, 10)]) };
                bench.expect(&s[1], Do::Lock(1, first, NoWait), answer);
            });
        }
    }
}

#[test]
fn a_key_share_goes_with_the_row_that_others_change() {
    // Locked first, changed then; and the other way round.
    for lock_first in [true, false] {
        with(3, ReadCommitted, |bench, s| {
            let lock = (Do::Lock(1, KeyShare, Wait), Rows(vec![(1, 10)]));
            let change = (Do::Set(1, 11), Count(1));
            let both: [(&Session, (Do, Answer)); 2] =
                if lock_first { [(&s[0], lock), (&s[1], change)] } else { [(&s[1], change), (&s[0], lock)] };
            for (session, (order, answer)) in both {
                bench.expect(session, order, answer);
            }
            bench.expect(&s[1], Do::Commit, Done);
            bench.waits(&s[2], Do::Delete(1));
            bench.expect(&s[0], Do::Commit, Done);
            assert_eq!(s[2].answer(), Some(Count(1)));
        });
    }
}

/// The version that a snapshot sees was updated and kept its key; the version that came of it did not.
#[test]
fn a_key_share_looks_at_the_newest_version() {
    for end in [Do::Delete(1), Do::Rename(1, 9)] {
        with(2, ReadCommitted, |bench, s| {
            bench.expect(&s[0], Do::Set(1, 11), Count(1));
            bench.expect(&s[0], Do::Savepoint, Done);
            bench.expect(&s[0], end.clone(), Count(1));
            bench.expect(&s[1], Do::Lock(1, KeyShare, NoWait), NotAvailable);
            bench.expect(&s[0], Do::RollbackTo(0), Done);
            bench.expect(&s[1], Do::Lock(1, KeyShare, NoWait), Rows(vec![(1, 10)]));
        });
    }
}

#[test]
fn row_locks_end_with_a_rollback_to_a_savepoint() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Lock(1, Share, Wait), Rows(vec![(1, 10)]));
        bench.expect(&s[0], Do::Savepoint, Done);
        bench.expect(&s[0], Do::LockAll(Update, Wait), Rows(vec![(1, 10), (2, 20)]));
        bench.waits(&s[1], Do::Lock(1, Share, Wait));
        bench.expect(&s[0], Do::RollbackTo(0), Done);
        assert_eq!(s[1].answer(), Some(Rows(vec![(1, 10)])), "the first lock stays, and is shared");
        bench.expect(&s[1], Do::Set(2, 21), Count(1));
        bench.expect(&s[1], Do::Timeout(Some(Duration::ZERO)), Done);
        bench.expect(&s[1], Do::Set(1, 11), Timeout);
    });
}

#[test]
fn row_locks_go_where_splits_move_their_rows() {
    for seed in 1..=test_load(SEEDS) {
        let options = EngineOptions { workers: 2, split_rows: 40, ..EngineOptions::default() };
        let mut bench = Bench::with(seed, options, Partitioning::Range(Box::new([accounts::KEY])));
        let s: Vec<Session> = (0..3).map(|_| bench.begin(ReadCommitted)).collect();
        bench.expect(&s[1], Do::InsertMany((3..30).collect()), Count(27));
        bench.expect(&s[1], Do::Commit, Done);
        bench.expect(&s[0], Do::Lock(6, Update, Wait), Rows(vec![(6, 6)]));
        bench.expect(&s[0], Do::Lock(29, KeyShare, Wait), Rows(vec![(29, 29)]));
        assert_eq!(event(&bench, Event::Splits), 0, "all rows are in one partition");
        bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
        // Below: the rows that were there are above the middle, and leave.
        bench.expect(&s[1], Do::InsertMany((-200..0).collect()), Count(200));
        bench.expect(&s[1], Do::Commit, Done);
        bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
        assert!(event(&bench, Event::Splits) > 0);
        bench.expect(&s[1], Do::Lock(6, KeyShare, NoWait), NotAvailable);
        bench.waits(&s[1], Do::Delete(6));
        bench.expect(&s[2], Do::Set(29, 30), Count(1));
        bench.waits(&s[2], Do::Delete(29));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!((s[1].answer(), s[2].answer()), (Some(Count(1)), Some(Count(1))));
        bench.finish(s);
    }
}

#[test]
fn row_locks_go_where_compaction_moves_their_rows() {
    let options = EngineOptions { workers: 1, ..EngineOptions::default() };
    let mut bench = Bench::with(1, options, Partitioning::Range(Box::new([accounts::KEY])));
    let s: Vec<Session> = (0..2).map(|_| bench.begin(ReadCommitted)).collect();
    bench.expect(&s[1], Do::InsertMany((3..15).collect()), Count(12));
    bench.expect(&s[1], Do::Commit, Done);
    bench.expect(&s[0], Do::Lock(6, Update, Wait), Rows(vec![(6, 6)]));
    bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
    for key in (3..15).filter(|key| *key != 6) {
        bench.expect(&s[1], Do::Delete(key), Count(1));
    }
    bench.expect(&s[1], Do::Commit, Done);
    // With a newer snapshot nobody sees the deleted rows any more; the next end of a transaction has somebody look.
    bench.expect(&s[0], Do::Get(6), Rows(vec![(6, 6)]));
    bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
    bench.expect(&s[1], Do::Set(1, 11), Count(1));
    bench.expect(&s[1], Do::Commit, Done);
    bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
    assert!(bench.engine().statistics().store.rows_moved > 0, "the row has moved");
    bench.expect(&s[1], Do::Lock(6, KeyShare, NoWait), NotAvailable);
    bench.waits(&s[1], Do::Delete(6));
    bench.expect(&s[0], Do::Commit, Done);
    assert_eq!(s[1].answer(), Some(Count(1)));
    bench.finish(s);
}

#[test]
fn a_locked_row_that_changed_meanwhile_is_lost_or_read_anew() {
    with(2, RepeatableRead, |bench, s| {
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.waits(&s[1], Do::Lock(1, Update, Wait));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(s[1].answer(), Some(Lost));
    });
    with(2, ReadCommitted, |bench, s| {
        bench.expect(&s[0], Do::Set(1, 11), Count(1));
        bench.waits(&s[1], Do::Lock(1, Update, Wait));
        bench.expect(&s[0], Do::Commit, Done);
        assert_eq!(s[1].answer(), Some(Rows(vec![(1, 11)])));
        assert_eq!(event(bench, Event::StatementRestarts), 1);
    });
}

/// A lock word numbers so many statements and no more; the transaction can still end.
#[test]
fn the_numbers_of_statements_may_run_out() {
    let mut bench = Bench::new(1);
    let (engine, container) = (bench.engine().clone(), bench.container);
    let done = bench.simulation.block_on(async move {
        let mut transaction = engine.begin();
        let set = std::sync::Arc::new(accounts::SetAmount(11));
        transaction.update(&accounts::by_key(container, 1), set).await.expect("nobody else is there");
        for _ in 1..eris_storage::StatementNumber::MAX {
            transaction.next_statement();
        }
        let savepoint = transaction.savepoint();
        let refused = transaction.read(&accounts::by_key(container, 1)).await;
        assert!(matches!(refused, Err(eris_engine::EngineError::TooManyStatements)));
        transaction.rollback_to(&savepoint).expect("it is there");
        transaction.commit().await.expect("a commit is no statement");
    });
    done.expect("the task ends");
    assert_eq!(bench.state(), [(1, 11), (2, 20)]);
}

/// A snapshot that no statement uses any more keeps nothing.
#[test]
fn read_committed_lets_go_of_old_snapshots() {
    with(2, ReadCommitted, |bench, s| {
        bench.expect(&s[0], Do::Get(1), Rows(vec![(1, 10)]));
        for amount in 0..5 {
            bench.expect(&s[1], Do::Set(1, amount), Count(1));
            bench.expect(&s[1], Do::Commit, Done);
            bench.expect(&s[1], Do::Begin(ReadCommitted), Done);
        }
        let statistics = bench.engine().statistics();
        assert!(statistics.oldest_snapshot < statistics.newest_snapshot, "the first statement's is still published");
        bench.expect(&s[0], Do::Get(1), Rows(vec![(1, 4)]));
        let statistics = bench.engine().statistics();
        assert_eq!(statistics.oldest_snapshot, statistics.newest_snapshot);
    });
}
