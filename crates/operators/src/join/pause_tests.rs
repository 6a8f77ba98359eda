//! Joins of far more pairs than anyone has time for come in pieces, between which they stop.

use std::sync::Arc;

use eris_platform::{MemoryPool, SeededRandom};
use eris_storage::{BATCH_ROWS, Batch, Comparison, DataType, Value};

use super::{BuildSpec, JoinBuild, JoinKind, Probe};
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::pipeline::{Collector, Emit, Pipeline, RowCounts, Sink, Step};

const ROWS: i32 = 5_000;

fn number(index: usize) -> Expression {
    Expression::Column { index, data_type: DataType::Int32 }
}

/// Numbers from 0 on.
fn numbers() -> Batch {
    let rows: Vec<Vec<Value>> = (0..ROWS).map(|number| vec![Value::Int32(number)]).collect();
    Batch::from_rows(&[DataType::Int32], &rows)
}

/// A step that looks numbers up among others.
fn probe_of(
    kind: JoinKind,
    keys: Arc<[Expression]>,
    residual: Option<Expression>,
    rows: Batch,
    pool: &Arc<MemoryPool>,
) -> Step {
    let spec = BuildSpec {
        keys: keys.clone(),
        columns: [0].into(),
        types: [DataType::Int32].into(),
        keep_unmatched: true,
        existence: false,
        null_equal: false,
    };
    let build = Arc::new(JoinBuild::new(spec, pool, 1));
    Pipeline::new([], build.clone(), []).push(rows, &mut |_| panic!("nothing is emitted")).unwrap();
    crate::pipeline::finish(&*build, 1).unwrap();
    let gives_pairs = matches!(kind, JoinKind::Inner | JoinKind::Left);
    let build_columns: Arc<[usize]> = if gives_pairs { [0].into() } else { [].into() };
    let residual = residual.map(Arc::new);
    Step::Probe(Arc::new(Probe { build, kind, keys, residual, probe_columns: [0].into(), build_columns }))
}

/// One among all the numbers that each row meets: by equal keys or for want of any.
fn all_meet(kind: JoinKind, keys: bool, residual: Option<Expression>, pool: &Arc<MemoryPool>) -> Step {
    let one = Expression::Constant { value: Value::Int32(1), data_type: DataType::Int32 };
    probe_of(kind, if keys { [one].into() } else { [].into() }, residual, numbers(), pool)
}

/// Whether the probe row's number is below another; none is below 0.
fn below(number_above: i32) -> Expression {
    let above = Expression::Constant { value: Value::Int32(number_above), data_type: DataType::Int32 };
    Expression::Compare { comparison: Comparison::Less, left: Box::new(number(0)), right: Box::new(above) }
}

/// Three joins in a row have a hundred billion rows and more. A turn with one question does one piece.
#[test]
fn a_chain_of_cross_joins_stops_between_pieces() {
    let pool = MemoryPool::new(16 << 20);
    for keys in [false, true] {
        for kind in [JoinKind::Inner, JoinKind::Left] {
            let joins = [(); 3].map(|()| all_meet(kind, keys, None, &pool));
            let counts = Arc::new(RowCounts::new(joins.len()));
            let pipeline = Pipeline { counts: Some(counts.clone()), ..Pipeline::new(joins, Arc::new(Emit), []) };
            let mut flow = pipeline.start(numbers());
            let mut emitted = 0;
            for turn in 1..100 {
                let mut emit = |batch: Batch| {
                    assert!(batch.rows > 0 && batch.rows <= BATCH_ROWS);
                    emitted += batch.rows;
                    Ok(())
                };
                pipeline.advance(&mut flow, &mut emit, &mut || true).unwrap();
                assert!(!flow.is_over());
                let moved: u64 = (0..=3).map(|place| counts.at(place)).sum();
                assert!(moved <= turn * BATCH_ROWS as u64, "one piece at a time");
            }
            assert!(emitted > 90 * BATCH_ROWS, "it gets somewhere");
        }
    }
}

/// A chain with lists of columns in between gives the same rows in the same order, and counts the same, wherever it
/// stops.
#[test]
fn a_chain_that_stops_gives_what_one_that_does_not_stop_gives() {
    let pool = MemoryPool::unlimited();
    let mut random = SeededRandom::new(3);
    for case in 0..60 {
        let mut random_rows = |most: usize| {
            let (rows, keys) = (random.index(most), 1 + random.below(20));
            let rows: Vec<Vec<Value>> = (0..rows).map(|_| vec![Value::Int32(random.below(keys) as i32)]).collect();
            Batch::from_rows(&[DataType::Int32], &rows)
        };
        // Batches of more rows than a join takes at once, and joins of which one has duplicates as a rule.
        let input = random_rows(3 * BATCH_ROWS);
        let kinds = [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti];
        let builds = [random_rows(30), random_rows(10)];
        let joins = builds.map(|rows| {
            let kind = kinds[random.index(kinds.len())];
            let residual = (random.below(2) == 0).then(|| below(random.below(20) as i32));
            let keys: Arc<[Expression]> = if random.below(3) == 0 { [].into() } else { [number(0)].into() };
            probe_of(kind, keys, residual, rows, &pool)
        });
        let [first, second] = joins;
        let twice = [[number(0)].into(), [number(0)].into()];
        let steps = [first, Step::Expand(twice.into()), second];
        let run = |pauses: &mut dyn FnMut() -> bool| {
            let counts = Arc::new(RowCounts::new(steps.len()));
            let pipeline =
                Pipeline { counts: Some(counts.clone()), ..Pipeline::new(steps.clone(), Arc::new(Emit), []) };
            let (mut flow, mut rows) = (pipeline.start(input.clone()), Vec::new());
            while !flow.is_over() {
                let mut emit = |batch: Batch| {
                    rows.extend((0..batch.rows).map(|row| batch.row(row)));
                    Ok(())
                };
                pipeline.advance(&mut flow, &mut emit, pauses).unwrap();
            }
            (rows, (0..=steps.len()).map(|place| counts.at(place)).collect::<Vec<_>>())
        };
        let whole = run(&mut || false);
        assert_eq!(run(&mut || true), whole, "case {case}, stopping everywhere");
        let mut random = SeededRandom::new(case);
        assert_eq!(run(&mut || random.below(3) == 0), whole, "case {case}, stopping at random");
    }
}

/// Joins that hand nothing on before they know all of a batch stop as well.
#[test]
fn joins_that_find_no_partner_for_long_stop_in_between() {
    let pool = MemoryPool::new(16 << 20);
    let mark = JoinKind::Mark { null_aware: false };
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti, mark, JoinKind::Build] {
        for keys in [false, true] {
            let sink = Arc::new(Collector::new(&pool));
            let pipeline = Pipeline::new([all_meet(kind, keys, Some(below(0)), &pool)], sink.clone(), []);
            let mut flow = pipeline.start(numbers());
            let mut turns = 0;
            while !flow.is_over() {
                pipeline.advance(&mut flow, &mut |_| panic!("nothing is emitted"), &mut || true).unwrap();
                turns += 1;
            }
            let pairs = ROWS as usize * ROWS as usize;
            assert!(turns >= pairs / BATCH_ROWS, "{kind:?}: {turns} turns");
            let rows: usize = sink.take_output().unwrap().0.iter().map(|batch| batch.rows).sum();
            let all_stay = matches!(kind, JoinKind::Left | JoinKind::Anti | JoinKind::Mark { .. });
            assert_eq!(rows, if all_stay { ROWS as usize } else { 0 }, "{kind:?}");
        }
    }
    assert_eq!(pool.used(), 0);
}

/// Who emits and is refused ends there.
#[test]
fn an_exploding_join_ends_when_nobody_wants_more() {
    let pool = MemoryPool::new(16 << 20);
    let pipeline = Pipeline::new([all_meet(JoinKind::Inner, false, None, &pool)], Arc::new(Emit), []);
    let mut pieces = 0;
    let stopped = pipeline.push(numbers(), &mut |_| {
        pieces += 1;
        if pieces < 10 { Ok(()) } else { Err(OperatorError::Internal("over".to_string())) }
    });
    assert!(matches!(stopped, Err(OperatorError::Internal(text)) if text == "over") && pieces == 10);
    drop(pipeline);
    assert_eq!(pool.used(), 0);
}
