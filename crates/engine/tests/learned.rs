//! What a SERIALIZABLE transaction knows only of an error, or of what it took back, counts as read.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod families;

use eris_engine::IsolationLevel::Serializable;
use eris_engine::ReferentialAction::{NoAction, Restrict};
use eris_platform::test_load;
use families::Answer::{Count, Done, Duplicate, Lost, Missing, Referenced};
use families::{Answer, Bench, Do, SHAPES};

/// Placements, indexes and ways of running a command differ by seed; the answers do not.
const SEEDS: u64 = 6;

/// A parent that the one inserts and the other does not see.
const UNSEEN: i64 = 99;

/// One does this and takes it back; another makes it untrue. Parents are 1, 2 and 3; parent 3 has child 30.
fn facts() -> Vec<(Do, Answer, Do)> {
    let child = |id, parent| Do::Children(vec![(id, Some(parent))]);
    let parent = |key| Do::Parents(vec![key]);
    vec![
        (parent(1), Duplicate, Do::DeleteParent(1)),
        (parent(7), Count(1), parent(7)),
        (Do::Rename(2, 1), Duplicate, Do::DeleteParent(1)),
        (Do::Rename(2, 7), Count(1), parent(7)),
        (child(30, 1), Duplicate, Do::DeleteChild(30)),
        (child(10, 1), Count(1), child(10, 2)),
        (Do::Load(vec![(30, None), (31, None)]), Duplicate, Do::DeleteChild(30)),
        (child(10, 7), Missing(7), parent(7)),
        (child(10, 1), Count(1), Do::DeleteParent(1)),
        (Do::Adopt(30, Some(7)), Missing(7), parent(7)),
        (Do::DeleteParent(3), Referenced(3), Do::DeleteChild(30)),
        (Do::DeleteParent(1), Count(1), child(10, 1)),
    ]
}

fn cases(run: impl Fn(&mut Bench, Do, Answer, Do)) {
    for shape in SHAPES {
        for seed in 1..=test_load(SEEDS) {
            for (learns, answer, changes) in facts() {
                let mut bench = Bench::new(seed, shape, if seed % 2 == 0 { NoAction } else { Restrict });
                let first = bench.begin(Serializable);
                bench.expect(&first, Do::Children(vec![(30, Some(3))]), Count(1));
                bench.expect(&first, Do::Commit, Done);
                run(&mut bench, learns, answer, changes);
                first.tell(Do::Drop);
                bench.finish(Vec::new());
            }
        }
    }
}

/// Each misses what the other one did: what it learned says so.
#[test]
fn what_was_learned_comes_before_whoever_changes_it() {
    cases(|bench, learns, answer, changes| {
        let what = format!("{learns:?}, {changes:?}, {:?}", bench.family.shape);
        let (one, other) = (bench.begin(Serializable), bench.begin(Serializable));
        bench.expect(&one, Do::Savepoint, Done);
        bench.expect(&one, learns, answer);
        bench.expect(&one, Do::RollbackTo(0), Done);
        bench.expect(&one, Do::Parents(vec![UNSEEN]), Count(1));
        other.tell(Do::Rows);
        bench.settle();
        assert!(matches!(other.answer(), Some(Answer::Rows(_))), "{what}");
        bench.expect(&other, changes, Count(1));
        bench.expect(&other, Do::Commit, Done);
        one.tell(Do::Commit);
        bench.settle();
        assert_eq!(one.answer(), Some(Lost), "{what}");
        for session in [one, other] {
            session.tell(Do::Drop);
        }
    });
}

/// An error that tells of rows which the snapshot does not show: whoever heard of it may not commit.
#[test]
fn who_learned_of_what_it_does_not_see_begins_again() {
    for shape in SHAPES {
        for seed in 1..=test_load(SEEDS) {
            let mut bench = Bench::new(seed, shape, NoAction);
            let (one, other) = (bench.begin(Serializable), bench.begin(Serializable));
            bench.expect(&other, Do::Parents(vec![7]), Count(1));
            bench.expect(&other, Do::Commit, Done);
            bench.expect(&one, Do::Savepoint, Done);
            bench.expect(&one, Do::Parents(vec![7]), Duplicate);
            bench.expect(&one, Do::RollbackTo(0), Done);
            bench.expect(&one, Do::Parents(vec![UNSEEN]), Lost);
            bench.finish(vec![one, other]);
        }
    }
}
