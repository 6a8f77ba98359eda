//! Foreign keys, case by case: two or three sessions, whose statements run one after another, and what each is
//! answered.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod families;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eris_engine::IsolationLevel::{ReadCommitted, RepeatableRead};
use eris_engine::ReferentialAction::{NoAction, Restrict};
use eris_engine::{
    ContainerSpec, EngineError, EngineOptions, ForeignKeyError, ForeignKeySpec, KeySide, Partitioning,
    ReferentialAction, Simulation,
};
use eris_platform::test_load;
use eris_storage::{Attribute, AttributeId, Batch, ContainerId, DataType, IndexDefinition, IndexId, Value};
use families::Answer::{Count, Deadlock, Done, Missing, Referenced, Timeout};
use families::{Answer, Bench, Do, SHAPES, Session, Shape, schema};

/// Placements, indexes and ways of running a command differ by seed; the answers do not.
const SEEDS: u64 = 12;

struct Case {
    bench: Bench,
    sessions: Vec<Session>,
}

impl Case {
    /// Session `number` does this and is answered so.
    fn t(&mut self, number: usize, order: Do, answer: Answer) -> &mut Self {
        self.bench.expect(&self.sessions[number - 1], order, answer);
        self
    }

    /// Session `number` does this and has to wait.
    fn waits(&mut self, number: usize, order: Do) -> &mut Self {
        self.bench.waits(&self.sessions[number - 1], order);
        self
    }

    /// Session `number` has waited and is answered so.
    fn goes_on(&mut self, number: usize, answer: Answer) -> &mut Self {
        assert_eq!(self.sessions[number - 1].answer(), Some(answer), "{:?}", self.bench.family.shape);
        self
    }

    fn shape(&self) -> Shape {
        self.bench.family.shape
    }
}

/// Runs a case of three sessions in every shape and at every level, under several seeds.
fn cases(action: ReferentialAction, run: impl Fn(&mut Case)) {
    for shape in SHAPES {
        for seed in 1..=test_load(SEEDS) {
            let level = if seed % 5 < 3 { RepeatableRead } else { ReadCommitted };
            let mut bench = Bench::new(seed, shape, action);
            let sessions = (0..3).map(|_| bench.begin(level)).collect();
            let mut case = Case { bench, sessions };
            run(&mut case);
            case.bench.finish(case.sessions);
        }
    }
}

fn child(id: i64, parent: i64) -> Do {
    Do::Children(vec![(id, Some(parent))])
}

fn children(rows: &[(i64, i64)]) -> Vec<(i64, Option<i64>)> {
    rows.iter().map(|(id, parent)| (*id, Some(*parent))).collect()
}

#[test]
fn a_child_needs_its_parent() {
    cases(NoAction, |case| {
        case.t(1, child(10, 1), Count(1)).t(1, Do::Savepoint, Done);
        case.t(1, child(11, 9), Missing(9)).t(1, Do::RollbackTo(0), Done);
        case.t(1, Do::Children(children(&[(11, 2), (12, 9), (13, 3)])), Missing(9)).t(1, Do::RollbackTo(0), Done);
        case.t(1, Do::Children(children(&[(11, 2), (12, 1), (13, 2)])), Count(3)).t(1, Do::Commit, Done);
    });
}

#[test]
fn a_key_that_is_null_refers_to_nothing() {
    cases(NoAction, |case| {
        case.t(1, Do::Children(vec![(10, None), (11, Some(1)), (12, None)]), Count(3));
        case.t(1, Do::Adopt(11, None), Count(1)).t(1, Do::DeleteParent(1), Count(1)).t(1, Do::Commit, Done);
    });
}

#[test]
fn a_child_that_is_updated_needs_its_new_parent() {
    cases(NoAction, |case| {
        case.t(1, Do::Children(children(&[(10, 1), (11, 2)])), Count(2)).t(1, Do::Savepoint, Done);
        case.t(1, Do::Adopt(10, Some(9)), Missing(9)).t(1, Do::RollbackTo(0), Done);
        case.t(1, Do::Adopt(10, Some(2)), Count(1)).t(1, Do::DeleteParent(1), Count(1)).t(1, Do::Commit, Done);
    });
}

#[test]
fn a_parent_with_children_stays() {
    for action in [NoAction, Restrict] {
        cases(action, |case| {
            case.t(1, child(10, 2), Count(1)).t(1, Do::Savepoint, Done);
            case.t(1, Do::DeleteParent(2), Referenced(2)).t(1, Do::RollbackTo(0), Done);
            case.t(1, Do::Rename(2, 5), Referenced(2)).t(1, Do::RollbackTo(0), Done);
            case.t(1, Do::Touch(2), Count(1)).t(1, Do::Rename(2, 2), Count(1));
            case.t(1, Do::DeleteParent(1), Count(1)).t(1, Do::Rename(3, 4), Count(1));
            case.t(1, Do::DeleteChild(10), Count(1)).t(1, Do::DeleteParent(2), Count(1)).t(1, Do::Commit, Done);
        });
    }
}

#[test]
fn one_statement_takes_away_many_parents() {
    cases(NoAction, |case| {
        case.t(1, child(10, 3), Count(1)).t(1, Do::Savepoint, Done);
        if case.shape() == Shape::Own {
            // The child goes with its parent.
            case.t(1, Do::DeleteAllParents, Count(4));
        } else {
            case.t(1, Do::DeleteAllParents, Referenced(3)).t(1, Do::RollbackTo(0), Done);
            case.t(1, Do::Shift(100), Referenced(3)).t(1, Do::RollbackTo(0), Done);
            case.t(1, Do::DeleteChild(10), Count(1)).t(1, Do::Shift(100), Count(3));
        }
        case.t(1, Do::Commit, Done);
    });
}

#[test]
fn one_statement_inserts_children_and_parents_of_one_table() {
    cases(NoAction, |case| {
        if case.shape() != Shape::Own {
            return;
        }
        case.t(1, Do::Children(children(&[(10, 11), (11, 10), (12, 12)])), Count(3)).t(1, Do::Savepoint, Done);
        case.t(1, Do::Children(children(&[(13, 14), (14, 15)])), Missing(15)).t(1, Do::RollbackTo(0), Done);
        case.t(1, Do::Load(children(&[(20, 24), (21, 20), (22, 23), (23, 22), (24, 1)])), Count(5));
        case.t(1, Do::Savepoint, Done);
        case.t(1, Do::Load(children(&[(30, 31), (31, 32), (33, 1)])), Missing(32)).t(1, Do::RollbackTo(1), Done);
        case.t(1, Do::DeleteChild(10), Referenced(10)).t(1, Do::RollbackTo(1), Done);
        case.t(1, Do::DeleteChild(12), Count(1)).t(1, Do::Commit, Done);
    });
}

#[test]
fn a_bulk_load_is_checked() {
    cases(NoAction, |case| {
        case.t(1, Do::Load(children(&[(10, 1), (11, 2), (12, 3), (13, 1)])), Count(4)).t(1, Do::Savepoint, Done);
        case.t(1, Do::Load(children(&[(20, 1), (21, 2), (22, 9)])), Missing(9)).t(1, Do::RollbackTo(0), Done);
        case.t(2, Do::Timeout(Some(Duration::ZERO)), Done).t(2, Do::DeleteParent(3), Timeout).t(2, Do::Rollback, Done);
        case.t(1, Do::Commit, Done).t(3, Do::DeleteParent(3), Referenced(3));
    });
}

#[test]
fn the_error_names_constraint_key_and_values() {
    let mut bench = Bench::new(1, Shape::Global, NoAction);
    let (engine, family) = (bench.engine().clone(), bench.family.clone());
    let errors = bench.simulation.block_on(async move {
        let mut transaction = engine.begin();
        let missing = families::obey(&mut transaction, &family, &child(10, 9)).await;
        drop(transaction);
        let mut transaction = engine.begin();
        families::obey(&mut transaction, &family, &child(10, 1)).await.expect("the parent is there");
        transaction.next_statement();
        let referenced = families::obey(&mut transaction, &family, &Do::DeleteParent(1)).await;
        [missing, referenced].map(|result| match result {
            Err(EngineError::ForeignKeyViolation(violation)) => violation,
            other => panic!("{other:?} is no violation"),
        })
    });
    let [missing, referenced] = errors.expect("it ends");
    assert_eq!(
        (missing.to_string(), missing.detail()),
        (
            "insert or update on table \"children\" violates foreign key constraint \"children_parent_fkey\"".into(),
            "Key (other)=(9) is not present in table \"parents\".".into()
        )
    );
    assert_eq!(
        (referenced.to_string(), referenced.detail()),
        (
            "update or delete on table \"parents\" violates foreign key constraint \"children_parent_fkey\" on table \
             \"children\""
                .into(),
            "Key (other)=(1) is still referenced from table \"children\".".into()
        )
    );
    assert!(!EngineError::ForeignKeyViolation(missing).is_retryable());
    bench.finish(Vec::new());
}

#[test]
fn no_action_looks_at_the_end_of_the_statement_and_restrict_at_once() {
    for action in [NoAction, Restrict] {
        cases(action, |case| {
            case.t(1, child(10, 1), Count(1)).t(1, Do::Savepoint, Done);
            case.t(1, Do::Hold(true), Done).t(1, Do::Together, Done);
            if action == Restrict {
                case.t(1, Do::DeleteParent(1), Referenced(1)).t(1, Do::Rollback, Done);
                return;
            }
            // Two operations of one statement.
            case.t(1, Do::DeleteParent(1), Count(1)).t(1, Do::Rename(2, 1), Count(1)).t(1, Do::Check, Done);
            case.t(1, Do::Statement, Done).t(1, Do::DeleteParent(1), Count(1)).t(1, Do::Check, Referenced(1));
        });
    }
}

#[test]
fn checks_that_are_put_off_are_run_by_the_commit() {
    cases(NoAction, |case| {
        case.t(1, Do::Hold(true), Done).t(1, child(10, 7), Count(1)).t(1, Do::Parents(vec![7]), Count(1));
        case.t(1, Do::Commit, Done);
        // The commit that fails is a rollback.
        case.t(2, Do::Hold(true), Done).t(2, child(11, 8), Count(1)).t(2, Do::Commit, Missing(8));
        case.t(3, Do::Hold(true), Done).t(3, Do::DeleteParent(3), Count(1)).t(3, child(12, 3), Count(1));
        case.t(3, Do::Commit, Referenced(3));
    });
}

#[test]
fn what_a_passed_check_relied_on_may_be_rolled_back() {
    cases(NoAction, |case| {
        case.t(1, Do::Hold(true), Done).t(1, child(10, 7), Count(1)).t(1, Do::Savepoint, Done);
        case.t(1, Do::Parents(vec![7]), Count(1)).t(1, Do::Check, Done).t(1, Do::RollbackTo(0), Done);
        case.t(1, Do::Commit, Missing(7));
        // A check goes with its statement.
        case.t(2, Do::Savepoint, Done).t(2, Do::Hold(true), Done).t(2, child(10, 7), Count(1));
        case.t(2, Do::RollbackTo(0), Done).t(2, Do::Commit, Done);
    });
}

#[test]
fn a_child_waits_for_whoever_takes_its_parent_away() {
    for commits in [true, false] {
        for taken in [Do::DeleteParent(1), Do::Rename(1, 7)] {
            cases(NoAction, |case| {
                case.t(1, taken.clone(), Count(1)).waits(2, child(10, 1));
                case.t(1, if commits { Do::Commit } else { Do::Rollback }, Done);
                case.goes_on(2, if commits { Missing(1) } else { Count(1) });
                case.t(2, if commits { Do::Rollback } else { Do::Commit }, Done);
            });
        }
    }
}

#[test]
fn whoever_takes_a_parent_away_waits_for_its_children() {
    for commits in [true, false] {
        for (taken, load) in [(Do::DeleteParent(1), false), (Do::Rename(1, 7), true)] {
            cases(NoAction, |case| {
                let insert = if load { Do::Load(children(&[(10, 1)])) } else { child(10, 1) };
                case.t(1, insert, Count(1)).waits(2, taken.clone());
                case.t(1, if commits { Do::Commit } else { Do::Rollback }, Done);
                case.goes_on(2, if commits { Referenced(1) } else { Count(1) });
                case.t(2, if commits { Do::Rollback } else { Do::Commit }, Done);
            });
        }
    }
}

#[test]
fn whoever_takes_a_parent_away_waits_for_children_that_go() {
    for commits in [true, false] {
        cases(NoAction, |case| {
            case.t(3, child(10, 1), Count(1)).t(3, Do::Commit, Done);
            case.t(1, Do::Rollback, Done).t(1, Do::Begin(RepeatableRead), Done);
            case.t(1, Do::DeleteChild(10), Count(1)).waits(2, Do::DeleteParent(1));
            case.t(1, if commits { Do::Commit } else { Do::Rollback }, Done);
            case.goes_on(2, if commits { Count(1) } else { Referenced(1) });
            case.t(2, if commits { Do::Commit } else { Do::Rollback }, Done);
        });
    }
}

#[test]
fn checks_see_what_is_newer_than_the_snapshot() {
    cases(NoAction, |case| {
        // The snapshot of the first one is taken.
        case.t(2, child(10, 1), Count(1)).t(2, Do::Parents(vec![4]), Count(1)).t(2, Do::DeleteParent(3), Count(1));
        case.t(2, Do::Commit, Done).t(1, Do::Savepoint, Done);
        case.t(1, Do::DeleteParent(1), Referenced(1)).t(1, Do::RollbackTo(0), Done);
        case.t(1, child(11, 3), Missing(3)).t(1, Do::RollbackTo(0), Done);
        case.t(1, child(11, 4), Count(1)).t(1, Do::Commit, Done);
    });
}

#[test]
fn children_and_updates_that_keep_the_key_do_not_wait_for_each_other() {
    cases(NoAction, |case| {
        case.t(1, child(10, 1), Count(1)).t(2, Do::Touch(1), Count(1)).t(3, child(11, 1), Count(1));
        case.t(2, Do::Commit, Done).t(1, Do::Commit, Done);
        // The lock is on whatever version counts: the third one is still under way.
        case.t(2, Do::Begin(ReadCommitted), Done).waits(2, Do::DeleteParent(1));
        case.t(3, Do::Commit, Done).goes_on(2, Referenced(1)).t(2, Do::Rollback, Done);
    });
    cases(NoAction, |case| {
        case.t(2, Do::Touch(1), Count(1)).t(1, child(10, 1), Count(1)).t(2, Do::Commit, Done);
        case.t(3, Do::Rollback, Done).t(3, Do::Begin(RepeatableRead), Done).waits(3, Do::DeleteParent(1));
        case.t(1, Do::Rollback, Done).goes_on(3, Count(1)).t(3, Do::Commit, Done);
    });
}

#[test]
fn a_rollback_to_a_savepoint_lets_go_of_the_parent() {
    cases(NoAction, |case| {
        case.t(1, child(10, 2), Count(1)).t(1, Do::Savepoint, Done).t(1, child(11, 1), Count(1));
        case.waits(2, Do::DeleteParent(1));
        case.t(1, Do::RollbackTo(0), Done).goes_on(2, Count(1)).waits(3, Do::DeleteParent(2));
        case.t(2, Do::Commit, Done).t(1, Do::Commit, Done).goes_on(3, Referenced(2));
    });
}

#[test]
fn the_lock_of_a_check_outlasts_a_rollback_of_later_statements() {
    cases(NoAction, |case| {
        // The first child's lock is taken by the check at the end, the second one's is rolled back.
        case.t(1, Do::Hold(true), Done).t(1, child(10, 1), Count(1)).t(1, Do::Savepoint, Done);
        case.t(1, child(11, 1), Count(1)).t(1, Do::Check, Done).t(1, Do::RollbackTo(0), Done);
        case.waits(2, Do::DeleteParent(1));
        case.t(1, Do::Commit, Done).goes_on(2, Referenced(1));
    });
}

#[test]
fn a_circle_of_waits_is_a_deadlock() {
    cases(NoAction, |case| {
        case.t(1, child(10, 1), Count(1)).t(2, child(11, 2), Count(1)).waits(1, Do::DeleteParent(2));
        case.t(2, Do::DeleteParent(1), Deadlock).t(2, Do::Rollback, Done).goes_on(1, Count(1)).t(1, Do::Commit, Done);
    });
}

#[test]
fn a_wait_for_a_parent_has_the_lock_timeout() {
    cases(NoAction, |case| {
        case.t(1, Do::DeleteParent(1), Count(1));
        case.t(2, Do::Timeout(Some(Duration::from_millis(10))), Done).t(2, child(10, 1), Timeout);
        case.t(2, Do::Rollback, Done).t(1, Do::Commit, Done);
    });
}

#[test]
fn locks_on_parents_go_where_the_parents_go() {
    cases(NoAction, |case| {
        case.t(1, Do::Parents((100..160).collect()), Count(60)).t(1, Do::Commit, Done);
        case.t(2, Do::Rollback, Done).t(2, Do::Begin(RepeatableRead), Done).t(2, child(10, 150), Count(1));
        let engine = case.bench.engine().clone();
        let of = case.bench.family.containers();
        let split = case.bench.simulation.block_on(async move {
            let list: Vec<_> =
                engine.partitions().iter().filter(|known| of.contains(&known.container)).cloned().collect();
            let mut split = 0;
            for partition in list {
                split += u64::from(engine.split_partition(partition.id).await.is_ok());
            }
            split
        });
        assert!(split.expect("it ends") > 0, "something was split");
        case.t(3, Do::Rollback, Done).t(3, Do::Begin(RepeatableRead), Done).waits(3, Do::DeleteParent(150));
        case.t(2, Do::Commit, Done).goes_on(3, Referenced(150));
    });
}

/// A foreign key that is being made while sessions go on.
fn make(bench: &Bench) -> Arc<Mutex<Option<Result<(), EngineError>>>> {
    let made = Arc::new(Mutex::new(None));
    let (engine, spec, slot) = (bench.engine().clone(), bench.family.spec(NoAction), Arc::clone(&made));
    bench.engine().spawn(async move {
        let result = engine.create_foreign_key(&spec).await;
        *slot.lock().expect("one thread") = Some(result);
    });
    made
}

#[test]
fn rows_that_exist_are_checked_and_writers_waited_for() {
    for shape in SHAPES {
        for seed in 1..=test_load(SEEDS) {
            let mut bench = Bench::without_foreign_key(seed, shape);
            let writer = bench.begin(RepeatableRead);
            bench.expect(&writer, child(10, 9), Count(1));
            let made = make(&bench);
            bench.settle();
            assert!(made.lock().expect("one thread").is_none(), "the writer may commit");
            // It is enforced from now on.
            let other = bench.begin(ReadCommitted);
            bench.expect(&other, child(11, 9), Missing(9));
            bench.expect(&other, Do::Rollback, Done);
            bench.expect(&writer, Do::Commit, Done);
            let result = made.lock().expect("one thread").take().expect("it went on");
            let Err(EngineError::ForeignKeyViolation(violation)) = result else { panic!("{result:?}") };
            assert_eq!(violation.key.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(), [Value::Int64(9)]);
            // It was taken back.
            for (order, answer) in [
                (Do::Begin(RepeatableRead), Done),
                (child(12, 8), Count(1)),
                (Do::DeleteChild(12), Count(1)),
                (Do::DeleteChild(10), Count(1)),
                (Do::Commit, Done),
            ] {
                bench.expect(&writer, order, answer);
            }
            let made = make(&bench);
            bench.settle();
            let result = made.lock().expect("one thread").take();
            assert!(matches!(result, Some(Ok(()))), "{result:?}");
            let family = bench.family.clone();
            let known = bench.engine().foreign_keys(family.parents).expect("it exists");
            assert_eq!(known, [family.spec(NoAction)]);
            bench.finish(vec![writer, other]);
        }
    }
}

#[test]
fn a_statement_that_did_not_know_of_the_foreign_key_fails_and_is_repeated() {
    // Somebody waits for a key, so that the statement lasts.
    let mut bench = Bench::without_foreign_key(1, Shape::Local);
    let (first, second) = (bench.begin(RepeatableRead), bench.begin(RepeatableRead));
    bench.expect(&first, child(10, 1), Count(1));
    bench.waits(&second, child(10, 9));
    let made = make(&bench);
    bench.settle();
    bench.expect(&first, Do::Rollback, Done);
    assert_eq!(second.answer(), Some(Answer::Lost), "its row was written without a check");
    bench.expect(&second, Do::Rollback, Done);
    assert!(matches!(made.lock().expect("one thread").take(), Some(Ok(()))));
    bench.finish(vec![first, second]);
}

#[test]
fn a_foreign_key_that_cannot_be_is_refused() {
    for shape in SHAPES {
        let mut bench = Bench::new(2, shape, NoAction);
        let family = bench.family.clone();
        let spec = ForeignKeySpec { name: "another".into(), ..family.spec(NoAction) };
        let mut refused = |spec: &ForeignKeySpec| {
            let (engine, spec) = (bench.engine().clone(), spec.clone());
            let result = bench.simulation.block_on(async move { engine.create_foreign_key(&spec).await });
            match result.expect("it ends") {
                Err(EngineError::ForeignKey(error)) => error,
                other => panic!("{other:?}"),
            }
        };
        let with = |child: &[u16], parent: &[u16]| {
            let mut spec = spec.clone();
            spec.child.attributes = child.iter().map(|id| AttributeId(*id)).collect();
            spec.parent.attributes = parent.iter().map(|id| AttributeId(*id)).collect();
            spec
        };
        let key = family.key().0;
        assert_eq!(refused(&with(&[], &[])), ForeignKeyError::DifferentNumbers);
        assert_eq!(refused(&with(&[1, 0], &[key])), ForeignKeyError::DifferentNumbers);
        assert!(matches!(refused(&with(&[2], &[key])), ForeignKeyError::DifferentTypes { .. }));
        assert!(matches!(refused(&with(&[9], &[key])), ForeignKeyError::NoSuchAttribute { .. }));
        let other = 1 - key;
        if shape != Shape::Global {
            assert!(matches!(refused(&with(&[1], &[other])), ForeignKeyError::NoUniqueKey { .. }));
        }
        assert!(matches!(refused(&with(&[1, 1], &[key, key])), ForeignKeyError::NoUniqueKey { .. }));
        assert!(matches!(refused(&family.spec(NoAction)), ForeignKeyError::Exists { .. }), "the name is taken");
        bench.finish(Vec::new());
    }
}

#[test]
fn what_is_referred_to_is_not_dropped() {
    for shape in SHAPES {
        let mut bench = Bench::new(2, shape, NoAction);
        let family = bench.family.clone();
        let engine = bench.engine().clone();
        if shape != Shape::Own {
            let refused = engine.drop_container(family.parents);
            assert!(matches!(refused, Err(EngineError::ForeignKey(ForeignKeyError::Referenced { .. }))), "{refused:?}");
        }
        if shape != Shape::Global {
            let before = engine.container(family.parents).expect("it exists").schema();
            let mut without = eris_storage::Schema::clone(&before);
            without.version.0 += 1;
            without.indexes = without.indexes.iter().filter(|index| !index.unique).cloned().collect();
            let (dropper, without) = (engine.clone(), Arc::new(without));
            let refused = bench.simulation.block_on(async move { dropper.drop_index(without).await }).expect("it ends");
            assert!(matches!(refused, Err(EngineError::ForeignKey(ForeignKeyError::Referenced { .. }))), "{refused:?}");
        }
        let missing = engine.drop_foreign_key(family.children, "no_such_fkey");
        assert!(matches!(missing, Err(EngineError::ForeignKey(ForeignKeyError::NoSuchConstraint { .. }))));
        let session = bench.begin(RepeatableRead);
        bench.expect(&session, Do::Hold(true), Done);
        bench.expect(&session, child(10, 9), Count(1));
        engine.drop_foreign_key(family.children, "children_parent_fkey").expect("it exists");
        assert_eq!(engine.foreign_keys(family.parents).expect("it exists"), []);
        // Nobody asks any more, those who put it off included.
        bench.expect(&session, Do::Commit, Done);
        bench.expect(&session, Do::Begin(RepeatableRead), Done);
        bench.expect(&session, Do::DeleteParent(1), Count(1));
        bench.expect(&session, Do::DeleteChild(10), Count(1));
        bench.expect(&session, Do::Commit, Done);
        bench.finish(vec![session]);
    }
}

#[test]
fn keys_of_several_attributes_correspond_by_their_places() {
    let mut simulation = Simulation::new(5, EngineOptions { workers: 2, ..EngineOptions::default() }).expect("starts");
    let engine = simulation.engine().clone();
    let (first, second) = (AttributeId(0), AttributeId(1));
    let attribute = |name: &str, data_type| Attribute { name: name.into(), data_type, nullable: true };
    let attributes: Box<[Attribute]> = Box::new([attribute("a", DataType::Int64), attribute("b", DataType::Text)]);
    let create = |indexes: &[[AttributeId; 2]]| -> ContainerId {
        let container = engine.next_container_id();
        let mut schema = schema(container, 16, false);
        let definition = |(number, key): (usize, &[AttributeId; 2])| IndexDefinition {
            id: IndexId(number as u32 + 1),
            attributes: Box::new(*key),
            ..schema.indexes[0].clone()
        };
        schema.indexes = indexes.iter().enumerate().map(definition).collect();
        schema.attributes = attributes.clone();
        let partitioning = Partitioning::Hash { attributes: Box::new([second]), partitions: 3 };
        engine.create_container(ContainerSpec { schema: Arc::new(schema), partitioning }).expect("the id is fresh");
        container
    };
    let (parents, children) = (create(&[[second, first]]), create(&[]));
    let side = |container, name: &str| KeySide { container, name: name.into(), attributes: Box::new([first, second]) };
    let spec = ForeignKeySpec {
        name: "pair".into(),
        child: side(children, "children"),
        parent: side(parents, "parents"),
        on_delete: NoAction,
        on_update: NoAction,
    };
    let row = |a: Option<i64>, b: Option<&str>| {
        let a = a.map_or(Value::Null, Value::Int64);
        Batch::from_rows(
            &[DataType::Int64, DataType::Text],
            &[vec![a, b.map_or(Value::Null, |text| Value::Text(text.into()))]],
        )
    };
    let ended = simulation.block_on(async move {
        engine.create_foreign_key(&spec).await.expect("the unique key is over both");
        let mut transaction = engine.begin();
        transaction.insert(parents, row(Some(1), Some("x"))).await.expect("it is new");
        for (a, b, passes) in [
            (Some(1), Some("x"), true),
            (Some(1), Some("y"), false),
            (Some(2), Some("x"), false),
            // One NULL is enough (MATCH SIMPLE).
            (Some(2), None, true),
            (None, Some("y"), true),
        ] {
            let savepoint = transaction.savepoint();
            let result = transaction.insert(children, row(a, b)).await;
            match result {
                Ok(_) => assert!(passes, "{a:?} {b:?}"),
                Err(EngineError::ForeignKeyViolation(violation)) => {
                    assert!(!passes, "{a:?} {b:?}");
                    let expected = format!("Key (a, b)=({}, {}) ", a.expect("not null"), b.expect("not null"));
                    assert!(violation.detail().starts_with(&expected), "{}", violation.detail());
                    transaction.rollback_to(&savepoint).expect("it is there");
                }
                Err(error) => panic!("{error}"),
            }
        }
        transaction.commit().await.expect("all is checked");
    });
    ended.expect("it ends");
}
