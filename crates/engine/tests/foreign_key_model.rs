//! Foreign keys against a model: what one session is answered at random is what two sets say. No violation is missed,
//! and none is told that is none.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod families;

use std::collections::{BTreeMap, BTreeSet};

use eris_engine::IsolationLevel;
use eris_engine::ReferentialAction::{NoAction, Restrict};
use eris_platform::{SeededRandom, test_load};
use families::Answer::{Count, Done, Duplicate, Missing, Referenced};
use families::{Answer, Bench, Do, SHAPES, Shape, orphans};

/// What one session does, as a model of two sets says it.
#[derive(Clone, Debug, Default)]
struct Model {
    parents: BTreeSet<i64>,
    children: BTreeMap<i64, Option<i64>>,
}

impl Model {
    /// What the statement makes of it, and which answers are right.
    fn after(&self, shape: Shape, order: &Do) -> (Self, Vec<Answer>) {
        let mut model = self.clone();
        let mut count = 0;
        let mut duplicate = false;
        match order {
            Do::Parents(keys) => {
                for key in keys {
                    duplicate |= !model.parents.insert(*key);
                    if shape == Shape::Own {
                        duplicate |= model.children.insert(*key, None).is_some();
                    }
                    count += 1;
                }
            }
            Do::Children(rows) | Do::Load(rows) => {
                for (id, parent) in rows {
                    duplicate |= model.children.insert(*id, *parent).is_some();
                    if shape == Shape::Own {
                        model.parents.insert(*id);
                    }
                    count += 1;
                }
            }
            Do::DeleteParent(key) => {
                count = u64::from(model.parents.remove(key));
                if shape == Shape::Own {
                    model.children.remove(key);
                }
            }
            Do::DeleteChild(id) => {
                count = u64::from(model.children.remove(id).is_some());
                if shape == Shape::Own {
                    model.parents.remove(id);
                }
            }
            Do::Rename(from, to) if model.parents.remove(from) => {
                count = 1;
                duplicate |= !model.parents.insert(*to);
                if shape == Shape::Own {
                    let parent = model.children.remove(from).expect("it is both");
                    duplicate |= model.children.insert(*to, parent).is_some();
                }
            }
            Do::Adopt(id, parent) => {
                if let Some(known) = model.children.get_mut(id) {
                    *known = *parent;
                    count = 1;
                }
            }
            Do::Rename(..) => {}
            other => unreachable!("{other:?} is not among the orders"),
        }
        let rows = (model.parents.iter().copied().collect(), model.children.iter().map(|(id, p)| (*id, *p)).collect());
        let broken = orphans(&rows);
        let mut answers: Vec<Answer> = broken
            .iter()
            .filter_map(|(_, parent)| *parent)
            .map(|key| if self.parents.contains(&key) { Referenced(key) } else { Missing(key) })
            .collect();
        if duplicate {
            answers.push(Duplicate);
        }
        if answers.is_empty() { (model, vec![Count(count)]) } else { (self.clone(), answers) }
    }
}

fn order(random: &mut SeededRandom) -> Do {
    let mut key = || 1 + random.below(8) as i64;
    let (first, second, third) = (key(), key(), key());
    let parent = |key: i64| (key > 1).then_some(key);
    match random.below(16) {
        0..3 => Do::Parents(vec![first]),
        3..6 => Do::Children(vec![(first, parent(second))]),
        6 => Do::Children(vec![(first, parent(second)), (first % 8 + 1, parent(third))]),
        7 => Do::Load(vec![(first, parent(second)), (first % 8 + 1, parent(third)), ((first + 1) % 8 + 1, None)]),
        8..10 => Do::DeleteParent(first),
        10..12 => Do::DeleteChild(first),
        12..14 => Do::Rename(first, second),
        _ => Do::Adopt(first, parent(second)),
    }
}

#[test]
fn one_session_agrees_with_a_model() {
    let mut told = [0; 4];
    for shape in SHAPES {
        for seed in 0..test_load(20) {
            let mut random = SeededRandom::new(seed);
            let action = [NoAction, Restrict][random.index(2)];
            let mut bench = Bench::new(seed, shape, action);
            let keys = BTreeSet::from([1, 2, 3]);
            let rows =
                if shape == Shape::Own { keys.iter().map(|key| (*key, None)).collect() } else { BTreeMap::new() };
            let mut model = Model { parents: keys, children: rows };
            let level = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead][random.index(2)];
            let session = bench.begin(level);
            let mut savepoints = 0;
            for _ in 0..80 {
                bench.expect(&session, Do::Savepoint, Done);
                savepoints += 1;
                let order = order(&mut random);
                let (after, answers) = model.after(shape, &order);
                let found = bench.run(&session, order.clone()).expect("nobody is in the way");
                assert!(
                    answers.contains(&found),
                    "seed {seed} {shape:?}: {order:?} in {model:?}: {found:?}, {answers:?}"
                );
                match found {
                    Count(_) => told[0] += 1,
                    Missing(_) => told[1] += 1,
                    Referenced(_) => told[2] += 1,
                    _ => told[3] += 1,
                }
                if !matches!(found, Count(_)) {
                    bench.expect(&session, Do::RollbackTo(savepoints - 1), Done);
                }
                model = after;
                if random.chance(0.1) {
                    bench.expect(&session, Do::Commit, Done);
                    bench.expect(&session, Do::Begin(level), Done);
                    savepoints = 0;
                }
            }
            let expected = (model.parents.into_iter().collect(), model.children.into_iter().collect());
            bench.expect(&session, Do::Rows, Answer::Rows(expected));
            bench.finish(vec![session]);
        }
    }
    assert!(told.iter().all(|count| *count > test_load(50)), "every answer was among them: {told:?}");
}
